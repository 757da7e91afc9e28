"""What a test run inherits from the shell of another user decides nothing."""

import locale
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import surroundings
from tests.support.checkout import CHECKOUT

HOSTILE = {
    "another stack": {
        "PULUMI_HOME": "/nonexistent",
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_STACK": "prod",
        "ML_FOUNDATIONS_KINDS": "/nonexistent",
    },
    "another cluster": {"KUBECONFIG": "/nonexistent", "HELM_NAMESPACE": "else"},
    "another project of Google Cloud": {
        "GOOGLE_PROJECT": "theirs",
        "GCLOUD_PROJECT": "theirs",
        "CLOUDSDK_CORE_PROJECT": "theirs",
    },
    "another language": {"LC_ALL": "C", "LC_NUMERIC": "de_DE", "LANG": "tr_TR", "LANGUAGE": "de"},
    "another time zone": {"TZ": "Asia/Kathmandu"},
    "a dumb terminal": {"TERM": "dumb", "COLUMNS": "40", "NO_COLOR": "1"},
    "a terminal with colours": {"TERM": "", "FORCE_COLOR": "1", "DISPLAY": ":9"},
    "a hook of git": {"GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent"},
    "settings of git": {
        "GIT_CONFIG_GLOBAL": "/nonexistent",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "commit.gpgsign",
        "GIT_CONFIG_VALUE_0": "true",
    },
    "a target of make": {"MAKEFLAGS": "n", "MAKELEVEL": "1", "MFLAGS": "-n", "STACK": "prod"},
    "another Python": {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "ascii",
        "PYTHONOPTIMIZE": "1",
        "PYTHONPATH": "/nonexistent",
    },
    "another shell": {"BASH_ENV": "/nonexistent", "CDPATH": "/", "POSIXLY_CORRECT": "1"},
}
"""Variables of shells, by whose they are."""
SHOWN = """
import locale, os, signal, subprocess, time
from tests.support import surroundings
surroundings.settle()
numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)
print(oct(os.umask(0)), time.tzname[0], locale.getencoding(), subprocess.run(["false"]).returncode)
print([number.name for number in numbers if signal.getsignal(number) == signal.SIG_IGN])
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), os.environ["HOME"])
"""


def test_the_run_has_its_own() -> None:
    assert os.umask(0o022) == 0o022
    assert time.tzname[0] == "UTC"
    assert locale.getpreferredencoding(False).lower().replace("-", "") == "utf8"
    assert not [name for name in os.environ if name.startswith(("PULUMI_", "KUBECONFIG"))]
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


@pytest.mark.parametrize("shell", HOSTILE)
def test_the_variables_of_another_shell_are_replaced(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have left a variable.
    surroundings.settle()
    own = dict(os.environ)
    for name, value in HOSTILE[shell].items():
        monkeypatch.setenv(name, value)
    surroundings.settle()
    assert os.environ == own
    assert time.tzname[0] == "UTC"


def test_what_a_process_inherits_is_replaced() -> None:
    """Also under nohup, in the background of a script, and without a HOME."""

    def inherited() -> None:
        os.umask(0o077)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGUSR1))

    given = {name: value for name, value in os.environ.items() if name not in ("HOME", "LANG")}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=CHECKOUT,
        env=given | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "EST5"},
        preexec_fn=inherited,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"0o22 UTC UTF-8 1\n[]\nset() {pwd.getpwuid(os.getuid()).pw_dir}\n"


def test_git_has_no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[commit]\ngpgsign = true\n[core]\nautocrlf = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    command = ["git", "config", "--list", "--show-scope"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "command\tsafe.directory=*\n"


def test_a_proxy_is_not_asked_for_the_servers_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "intern,localhost")
    for _ in range(2):
        surroundings.settle()
    for name in ("no_proxy", "NO_PROXY"):
        assert os.environ[name] == "intern,localhost,127.0.0.1,::1"


def test_what_a_run_asks_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tools than those that are built here, as a run on GitHub may have."""
    monkeypatch.setenv("ML_FOUNDATIONS_TOOLS", "download")
    monkeypatch.setenv("GIT_SSL_CAINFO", "/authority")
    surroundings.settle()
    assert os.environ["ML_FOUNDATIONS_TOOLS"] == "download"
    assert os.environ["GIT_SSL_CAINFO"] == "/authority"
