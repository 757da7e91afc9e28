"""What the shell that starts the tests decides, set once: all tests run as on a fresh machine."""

import locale
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_FOREIGN = (
    *("PULUMI_", "HELM_", "KUBE", "ML_FOUNDATIONS_", "LC_"),
    # pulumi-gcp has them as defaults of its provider.
    *("GOOGLE_", "GCLOUD_", "CLOUDSDK_"),
    # A hook of git has them: git then reads and writes that repository, wherever it runs.
    "GIT_",
    *("MAKE", "PYTHON"),
)
"""How the variables begin that another user's own stacks, clusters, programs and locale have."""
_OF_NETWORK = ("GIT_SSL_",)
"""How those begin without which the tools cannot be downloaded."""
_TERMINAL = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("DISPLAY", "WAYLAND_DISPLAY"),
)
"""The variables by which Rich decides about width and colours, and a hint about a browser."""
_OTHERS = (
    *("LANGUAGE", "CDPATH", "BASH_ENV", "ENV", "POSIXLY_CORRECT"),
    # Variables of the Makefile.
    *("STACK", "PROJECT", "NODES", "MFLAGS"),
)
_OWN = {
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm",
    # No test reaches the publishers of the tools, and all tests run the same ones.
    "ML_FOUNDATIONS_TOOLS": "build",
    # The Go programs of a test live for seconds: let them collect garbage less often.
    "GOGC": "400",
    # Git has no settings of the user, such as to sign or to convert; a checkout may be another's.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
_ASKED_FOR = ("ML_FOUNDATIONS_TOOLS", "GOGC")
"""What a run may ask for."""


def settle() -> None:
    """Set what tests depend on, in this process and for those that it starts.

    The folders of HOME and TMPDIR stay: the cache of the tools is in the one, and the other may be
    on a larger disk.
    """
    given = {name: os.environ[name] for name in _ASKED_FOR if name in os.environ}
    for name in [*os.environ]:
        is_foreign = name.startswith(_FOREIGN) and not name.startswith(_OF_NETWORK)
        if is_foreign or name in (*_TERMINAL, *_OTHERS):
            del os.environ[name]
    os.environ.update(_OWN | given)
    os.environ.setdefault("HOME", str(Path.home()))
    _reach_loopback()
    _settle_process()


def _reach_loopback() -> None:
    """Let no proxy of the user be asked for the servers of the tests."""
    if any(name.lower().endswith("_proxy") for name in os.environ):
        for name in ("no_proxy", "NO_PROXY"):
            known = os.environ.get(name, "").split(",")
            missing = [host for host in ("127.0.0.1", "localhost", "::1") if host not in known]
            os.environ[name] = ",".join([*filter(None, known), *missing])


def _settle_process() -> None:
    time.tzset()
    # The encoding of files that are opened without one.
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
    os.umask(0o022)
    # A script ignores SIGINT in what it runs in the background, and nohup SIGHUP; tests send both.
    # With an ignored SIGCHLD, every process that is waited for has ended with code 0.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
