"""What the shell that starts the tests decides, set once: all tests run as on a fresh machine."""

import os
import signal
import time
from pathlib import Path

_FOREIGN = ("PULUMI_", "HELM_", "KUBE", "ML_FOUNDATIONS_", "LC_")
"""How the variables begin that another user's own stacks, clusters and locale have."""
_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""The variables by which Rich decides about width and colours."""
_OTHERS = ("LANGUAGE", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONWARNINGS", "CDPATH")
_OWN = {
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm",
    # No test reaches the publishers of the tools, and all tests run the same ones.
    "ML_FOUNDATIONS_TOOLS": "build",
    # The Go programs of a test live for seconds: let them collect garbage less often.
    "GOGC": "400",
}


def settle() -> None:
    """Set what tests depend on, in this process and for those that it starts.

    The folders of HOME and TMPDIR stay: the cache of the tools is in the one, and the other may be
    on a larger disk.
    """
    given = {
        name: os.environ[name] for name in ("ML_FOUNDATIONS_TOOLS", "GOGC") if name in os.environ
    }
    for name in [*os.environ]:
        if name.startswith(_FOREIGN) or name in (*_TERMINAL, *_OTHERS):
            del os.environ[name]
    os.environ.update(_OWN | given)
    os.environ.setdefault("HOME", str(Path.home()))
    time.tzset()
    os.umask(0o022)
    # A script ignores SIGINT in what it runs in the background, and nohup SIGHUP; tests send both.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
