"""What a test run inherits from the shell of another user decides nothing."""

import locale
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import surroundings
from tests.support.checkout import CHECKOUT

HOSTILE = {
    "PULUMI_HOME": "/nonexistent",
    "PULUMI_CONFIG_PASSPHRASE": "x",
    "KUBECONFIG": "/nonexistent",
    "HELM_NAMESPACE": "else",
    "ML_FOUNDATIONS_KINDS": "/nonexistent",
    "LC_ALL": "C",
    "LANGUAGE": "de",
    "TZ": "Asia/Kathmandu",
    "TERM": "dumb",
    "COLUMNS": "40",
    "NO_COLOR": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SHOWN = """
import os, signal, time
from tests.support import surroundings
surroundings.settle()
mask = os.umask(0)
ignored = [n.name for n in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
found = {name: os.environ.get(name) for name in %r}
print({name: value for name, value in found.items() if value}, oct(mask), time.tzname[0], ignored)
"""


def test_the_run_has_its_own() -> None:
    assert os.umask(0o022) == 0o022
    assert time.tzname[0] == "UTC"
    assert locale.getpreferredencoding(False).lower().replace("-", "") == "utf8"
    assert not [name for name in os.environ if name.startswith(("PULUMI_", "KUBECONFIG"))]
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


def test_those_of_a_hostile_shell_are_replaced() -> None:
    def inherited() -> None:
        os.umask(0o077)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-c", SHOWN % sorted(HOSTILE)],
        cwd=CHECKOUT,
        env=os.environ | HOSTILE,
        preexec_fn=inherited,
        capture_output=True,
        text=True,
        check=True,
    )
    own = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
    assert done.stdout == f"{own} 0o22 UTC []\n"


def test_what_a_run_asks_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tools than those that are built here, as a run on GitHub may have."""
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "download")
    surroundings.settle()
    assert os.environ["ML_FOUNDATIONS_TOOLS"] == "download"
