"""The environment in which ``pulumi``, ``kubectl`` and ``helm`` work on a rehearsal.

It is closed: it has a private PULUMI_HOME with the embedded plugins, a state backend of files, and
no secrets of the user's environment. A plugin on PATH is never run, so a rehearsal cannot touch a
real cloud.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import project_files
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.layout import Rehearsal

_TABLES = read_map(Path(__file__).with_suffix(".yaml"), "the environment of a rehearsal")
_NO_CREDENTIALS: dict[str, str] = _TABLES["no_credentials"]
_SECRET_NAME = re.compile(_TABLES["secret_name"], re.I | re.X)
_SECRET_VALUE = re.compile(_TABLES["secret_value"])
_LOCAL_HOSTS = "127.0.0.1,localhost,::1"


def _variables(rehearsal: Rehearsal) -> dict[str, str]:
    """Return the variables that a rehearsal sets; it drops those that ``_dropped`` names."""
    no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    entries = os.environ.get("PATH", "").split(os.pathsep)
    path = [entry for entry in entries if not is_in_rehearsal(Path(entry))]
    values = {
        "rehearsal": rehearsal,
        "path": os.pathsep.join([str(rehearsal.bin_dir), *path]),
        "no_proxy": f"{no_proxy},{_LOCAL_HOSTS}" if no_proxy else _LOCAL_HOSTS,
        "command": os.environ.get("ML_FOUNDATIONS_COMMAND", "ml-foundations"),
        "kubeconfigs": kubeconfigs(rehearsal),
        "backend": quote(str(rehearsal.backend_dir)),
        "passphrase_file": project_files.passphrase_file(rehearsal),
        "stack_file": project_files.stack_file(rehearsal),
    }
    templates: dict[str, str] = _TABLES["variables"]
    variables = {name: template.format_map(values) for name, template in templates.items()}
    return variables | _NO_CREDENTIALS


def kubeconfigs(rehearsal: Rehearsal) -> str:
    """Return the replicas' kubeconfigs, in KUBECONFIG's form; those without a cluster are last."""
    replicas = sorted(rehearsal.replicas, key=lambda replica: not Store(replica).clusters())
    return os.pathsep.join(str(replica.kubeconfig) for replica in replicas)


def is_in_rehearsal(path: Path) -> bool:
    """Return whether a path is in the folder of a rehearsal: a rehearsal's shell has set it."""
    return ".rehearsal" in path.parts


def _dropped() -> list[str]:
    """Return the variables that a rehearsal drops: secrets, credentials, settings of its tools."""
    return sorted(name for name, value in os.environ.items() if _is_dropped(name, value))


def _is_dropped(name: str, value: str) -> bool:
    if name.startswith(tuple(_TABLES["dropped"])):
        return not name.startswith("PULUMI_K8S_")
    has_login = _SECRET_VALUE.search(value) and not name.upper().endswith("PROXY")
    is_secret = bool(has_login or _SECRET_NAME.search(name))
    return is_secret and name not in os.environ.get("ML_FOUNDATIONS_KEEP", "").split(",")


def process_environment(rehearsal: Rehearsal) -> dict[str, str]:
    """Return the whole environment for a child process."""
    return without_credentials() | _variables(rehearsal)


def without_credentials() -> dict[str, str]:
    """Return the environment for a child process that reaches no cloud, and no rehearsal."""
    return {name: os.environ[name] for name in os.environ.keys() - _dropped()} | _NO_CREDENTIALS


def shell_exports(rehearsal: Rehearsal) -> str:
    """Return lines for ``eval``: then ``pulumi up``, ``kubectl`` and ``helm`` use the replica."""
    return "\n".join(_exports(_variables(rehearsal)))


def dead_shell() -> str:
    """Return lines for ``eval`` that keep a shell without replica from clusters and clouds."""
    backend = {"KUBECONFIG": "/dev/null", "PULUMI_BACKEND_URL": "file:///dev/null"}
    message = "echo 'there is no replica: this shell reaches no cluster' >&2"
    return "\n".join([*_exports(backend | _NO_CREDENTIALS), message])


def _exports(variables: Mapping[str, str]) -> list[str]:
    # No shell has a variable with another name, and `unset` must not run one.
    names = filter(str.isidentifier, _dropped())
    lines = [f"unset {name}" for name in names if name not in variables]
    return lines + [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
