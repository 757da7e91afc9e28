"""The environment in which stock ``pulumi``, ``kubectl`` and ``helm`` work on a rehearsal.

It is closed off: a private PULUMI_HOME with the embedded plugins, a state backend of files, and no credential of the
user's. A plugin that lies on PATH is never run, so a rehearsal cannot touch a real cloud.
"""

import importlib.metadata
import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from packaging.version import Version

from ml_foundations.rehearsal.cloud import replica
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import language_host
from ml_foundations.rehearsal.files import read_map, write, write_json
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, console, user_errors
from ml_foundations.rehearsal.tools.groups import LANGUAGE_YAML
from ml_foundations.rehearsal.tools.toolchain import Tools, build

_SEEN = "stack-file.seen"
"""The project's stack file as it was when it was copied. Times are no guide: an older file may come back."""
PLACEHOLDER = "rehearsed"
"""What a program gets for an encrypted value."""
_PLUGINS = "ml_foundations.rehearsal.plugins"
_EMBEDDED = frozenset(("gcp", "kubernetes", "random", "tls"))
_ANY_VERSION = "9999.0.0"
"""The version of what serves every version that a program asks for."""
_TABLES = read_map(Path(__file__).with_suffix(".yaml"), "the environment of a rehearsal")
_NO_CREDENTIALS: dict[str, str] = _TABLES["no_credentials"]


def _variables(rehearsal: Rehearsal) -> dict[str, str]:
    """The variables that a rehearsal sets, over the environment without those that ``_dropped`` names."""
    own = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    path = [
        entry
        for entry in os.environ.get("PATH", "").split(os.pathsep)
        if not _is_a_rehearsals(Path(entry))
    ]
    values = {
        "rehearsal": rehearsal,
        "path": os.pathsep.join([str(rehearsal.bin_dir), *path]),
        "no_proxy": f"{own},127.0.0.1,localhost,::1" if own else "127.0.0.1,localhost,::1",
        "command": os.environ.get("ML_FOUNDATIONS_COMMAND", "ml-foundations"),
        "kubeconfigs": kubeconfigs(rehearsal),
        "backend": quote(str(rehearsal.backend_dir)),
        "passphrase_file": _passphrase_file(rehearsal),
        "stack_file": stack_file(rehearsal),
    }
    return {
        name: value.format_map(values) for name, value in _TABLES["variables"].items()
    } | _NO_CREDENTIALS


def kubeconfigs(rehearsal: Rehearsal) -> str:
    """The kubeconfigs of all replicas, as KUBECONFIG lists them; one without a cluster comes last."""
    found = sorted(rehearsal.replicas, key=lambda each: not Store(each).clusters())
    return os.pathsep.join(str(each.kubeconfig) for each in found)


def _is_a_rehearsals(path: Path) -> bool:
    """Whether a rehearsal's own shell put a path into the environment."""
    return ".rehearsal" in path.parts


def _dropped() -> list[str]:
    dropped = (name for name in os.environ if name.startswith(tuple(_TABLES["dropped"])))
    return sorted(name for name in dropped if not name.startswith("PULUMI_K8S_"))


def process_environment(rehearsal: Rehearsal) -> dict[str, str]:
    """The whole environment for a child process."""
    return without_credentials() | _variables(rehearsal)


def without_credentials() -> dict[str, str]:
    """The environment for a child process that reaches no cloud, and no rehearsal."""
    return {name: os.environ[name] for name in os.environ.keys() - _dropped()} | _NO_CREDENTIALS


def shell_exports(rehearsal: Rehearsal) -> str:
    """Lines for ``eval``: after them, plain ``pulumi up -s <stack>``, ``kubectl`` and ``helm`` work on the replica."""
    return "\n".join(_exports(_variables(rehearsal)))


def dead_shell() -> str:
    """Lines for ``eval`` where there is no replica: after them nothing reaches any other cluster or cloud, either."""
    exports = {
        "KUBECONFIG": "/dev/null",
        "PULUMI_BACKEND_URL": "file:///dev/null",
        **_NO_CREDENTIALS,
    }
    return "\n".join(
        [*_exports(exports), "echo 'there is no replica: this shell reaches no cluster' >&2"]
    )


def _exports(variables: Mapping[str, str]) -> list[str]:
    dropped = [f"unset {name}" for name in _dropped() if name not in variables]
    return dropped + [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def stack_file(rehearsal: Rehearsal) -> Path:
    """The rehearsal's copy of the stack file: Pulumi writes its encryption salt there, and not into the checkout."""
    return rehearsal.root / f"Pulumi.{rehearsal.stack}.yaml"


def project_settings(project: Path) -> dict[str, Any]:
    """The settings in Pulumi.yaml; ``runtime`` has ``name`` and ``options``, also where the file gives the name alone.

    Raises:
        RehearsalError: the folder is not a Pulumi project.
    """
    file = project / "Pulumi.yaml"
    if not file.exists():
        raise RehearsalError(f"{project} is not a Pulumi project: it has no Pulumi.yaml")
    settings = read_map(file, str(file))
    if missing := [key for key in ("name", "runtime") if not settings.get(key)]:
        raise RehearsalError(f"{file} has no {' and no '.join(missing)}")
    runtime = (
        settings["runtime"]
        if isinstance(settings["runtime"], dict)
        else {"name": settings["runtime"]}
    )
    return settings | {"runtime": runtime | {"options": runtime.get("options") or {}}}


def source_stack_file(rehearsal: Rehearsal) -> Path:
    """The stack file in the project, if it has any.

    Raises:
        RehearsalError: the project has stack files, but none of this stack; the message names those that exist.
    """
    folder = rehearsal.project / project_settings(rehearsal.project).get("stackConfigDir", "")
    path = folder / f"Pulumi.{rehearsal.stack}.yaml"
    known = sorted(
        p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in folder.glob("Pulumi.*.yaml")
    )
    if known and rehearsal.stack not in known:
        name = path.relative_to(rehearsal.project)
        raise RehearsalError(
            f'no stack "{rehearsal.stack}": there is no {name}. Stacks: {", ".join(known)}'
        )
    return path


def refresh_stack_file(rehearsal: Rehearsal) -> None:
    """Copy the project's stack file into the rehearsal, with the rehearsal's own encryption salt and secrets."""
    source, target, seen = (
        source_stack_file(rehearsal),
        stack_file(rehearsal),
        rehearsal.root / _SEEN,
    )
    text = source.read_bytes() if source.exists() else b""
    if target.exists() and seen.exists() and seen.read_bytes() == text:
        return
    settings = read_map(source, str(source)) if text else {}
    name = source.relative_to(rehearsal.project)
    if "environment" in settings:
        raise RehearsalError(
            f"{name} imports environments, which are kept in Pulumi Cloud. "
            "Give a rehearsal plain values in a stack file of its own, and rehearse that stack."
        )
    config = settings.get("config") or {}
    mine = read_map(target, str(target)) if target.exists() else {}
    before = (read_map(seen, str(seen)) if seen.exists() else {}).get("config") or {}
    plain = {
        key
        for key, value in config.items()
        if value != before.get(key) and _without_secrets(value) == value
    }
    secret = {
        key: value
        for key, value in (mine.get("config") or {}).items()
        if _without_secrets(value) != value
    }
    own = {key: value for key, value in secret.items() if key not in plain}
    replaced = [
        key for key, value in config.items() if key not in own and _without_secrets(value) != value
    ]
    if replaced:
        console().print(
            f"[yellow]![/] {name} holds encrypted values, and a rehearsal has no key to them: the program gets "
            f'"{PLACEHOLDER}" for {", ".join(replaced)}'
        )
    write(
        target, yaml.safe_dump(mine | {"config": _without_secrets(config) | own}, sort_keys=False)
    )
    write_json(rehearsal.placeholders, replaced)
    write(seen, text.decode())


def configuration_of(rehearsal: Rehearsal) -> dict[str, str]:
    """The configuration that a program gets, by full key: the stack file's, and Pulumi.yaml's defaults."""
    settings, source = project_settings(rehearsal.project), source_stack_file(rehearsal)
    file = read_map(source, str(source)) if source.exists() else {}
    typed = {
        key: value
        for key, value in (settings.get("config") or {}).items()
        if isinstance(value, dict)
    }
    defaults = {key: value.get("value", value.get("default")) for key, value in typed.items()}
    given = {key: value for key, value in defaults.items() if value is not None} | (
        file.get("config") or {}
    )
    return {
        key if ":" in key else f"{settings['name']}:{key}": value
        if isinstance(value, str)
        else json.dumps(value)
        for key, value in _without_secrets(given).items()
    }


def _without_secrets(config: Any) -> Any:
    """A configuration with a placeholder for each encrypted value: ``secure`` alone in a mapping.

    Source: Pulumi, "Stack settings file reference".
    """
    if isinstance(config, dict):
        if config.keys() == {"secure"}:
            return PLACEHOLDER
        return {key: _without_secrets(value) for key, value in config.items()}
    return [*map(_without_secrets, config)] if isinstance(config, list) else config


def install(
    rehearsal: Rehearsal,
    tools: Tools,
    official_kubernetes: bool = False,
    allowed: Collection[str] = (),
) -> None:
    """Install what the environment names: tools, plugins, the language host, the stack file.

    Pulumi's own kubernetes plugin may take the place of the embedded one; other providers that are allowed run by the
    user's own plugins.
    """
    rehearsal.make()
    _passphrase_file(rehearsal)
    refresh_stack_file(rehearsal)
    replica.trust(rehearsal)
    _link_other_stacks(rehearsal)
    for name in ("kubectl", "helm"):
        _link(rehearsal.bin_dir / name, getattr(tools, name))
    _script(rehearsal.bin_dir / "pulumi", _pulumi_launcher(rehearsal, tools))
    auth = _python_module(rehearsal, f"{_PLUGINS}.gke_gcloud_auth_plugin")
    _script(rehearsal.bin_dir / "gke-gcloud-auth-plugin", auth)
    _install_plugins(rehearsal, {*allowed, *(["kubernetes"] if official_kubernetes else [])})
    if not tools.pulumi_is_official:
        install_language_host(rehearsal, tools)
        if project_settings(rehearsal.project)["runtime"].get("name") == "yaml":
            _yaml_language_host(rehearsal)


def install_language_host(rehearsal: Rehearsal, tools: Tools) -> None:
    """Put the host where the engine of this rehearsal finds it: in its plugin folder, and in no other version."""
    plugins = rehearsal.pulumi_home / "plugins"
    folder = plugins / f"language-python-v{importlib.metadata.version('pulumi')}"
    for other in set(plugins.glob("language-python-v*")) - {folder}:
        shutil.rmtree(other)
    # Programs inherit this environment: PYTHONPATH stays the user's, and -P keeps their folder from shadowing modules.
    start = f"import sys; sys.path.insert(0, {str(SOURCE_ROOT)!r}); from {language_host.__name__} import main; main()"
    executor = str(tools.pulumi.parent / "python" / "pulumi-language-python-exec")
    command = shlex.join([sys.executable, "-P", "-c", start, executor])
    _script(folder / "pulumi-language-python", f'exec {command} "$@"\n')


def _yaml_language_host(rehearsal: Rehearsal) -> None:
    version = LANGUAGE_YAML.pinned("github.com/pulumi/pulumi-yaml")
    folder = rehearsal.pulumi_home / "plugins" / f"language-yaml-{version}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _link(folder / "pulumi-language-yaml", build(LANGUAGE_YAML) / "pulumi-language-yaml")


def _install_plugins(rehearsal: Rehearsal, allowed: Set[str]) -> None:
    """Put in place the embedded plugins, the allowed ones of the user's own, and no others."""
    settings = project_settings(rehearsal.project)
    named = [entry.get("name") for entry in (settings.get("plugins") or {}).get("providers") or []]
    if foreign := [name for name in named if name not in allowed]:
        raise RehearsalError(
            f"Pulumi.yaml names plugins of its own for {', '.join(foreign)} (plugins.providers), which would "
            "run in place of the rehearsal's. Take them out, or allow each: up --allow-provider"
        )
    own = {name: _users_plugin(name) for name in sorted(allowed)}
    for folder in rehearsal.pulumi_home.glob("plugins/resource-*"):
        shutil.rmtree(folder)
    for name, found in own.items():
        # The engine finds no plugin in a folder that is a link.
        shutil.copytree(found, _plugin_folder(rehearsal, name))
        reaches = _TABLES["reaches"].get(
            name, "reaches what the program gives it an address and a credential for"
        )
        console().print(f"using your plugin {found.name}, which {reaches}")
    python = language_host.project_python(rehearsal.project, settings)
    # The engine asks for this one by no package: it runs what pulumi.dynamic made of the program's classes.
    dynamic = _plugin_folder(rehearsal, "pulumi-python") / "pulumi-resource-pulumi-python"
    _script(dynamic, f'exec {shlex.quote(str(python))} -u -m pulumi.dynamic "$@"\n')
    for package in _EMBEDDED - allowed:
        script = _python_module(rehearsal, f"{_PLUGINS} {package}")
        # `pulumi package` asks for the very version that the component package is locked to.
        with suppress(importlib.metadata.PackageNotFoundError):
            locked = importlib.metadata.version(f"pulumi-{package}")
            _script(
                _plugin_folder(rehearsal, package, locked) / f"pulumi-resource-{package}", script
            )
        _script(_plugin_folder(rehearsal, package) / f"pulumi-resource-{package}", script)
    for package in language_host.packages_of(python) - _EMBEDDED - allowed:
        allow = f"ml-foundations up --allow-provider {package}"
        refusal = shlex.quote(
            f"the provider {package} runs by your own plugin, if you allow it: {allow}"
        )
        _script(
            _plugin_folder(rehearsal, package) / f"pulumi-resource-{package}",
            f"echo {refusal} >&2\nexit 1\n",
        )


def _plugin_folder(rehearsal: Rehearsal, package: str, version: str = _ANY_VERSION) -> Path:
    return rehearsal.pulumi_home / "plugins" / f"resource-{package}-v{version}"


def _users_plugin(package: str) -> Path:
    """The folder of the newest plugin of a package in the user's own plugin folder."""
    home = Path(os.environ.get("PULUMI_HOME", ""))
    # In a rehearsal's own shell it names the rehearsal's, with the embedded plugins.
    if not home.parts or _is_a_rehearsals(home):
        home = Path.home() / ".pulumi"
    prefix = f"resource-{package}-v"
    found = [path for path in home.glob(f"plugins/{prefix}*") if path.is_dir()]
    if not found:
        raise RehearsalError(
            f"no plugin of the provider {package} in {home / 'plugins'}. "
            f"Install it: pulumi plugin install resource {package}"
        )
    return max(found, key=lambda path: Version(path.name.removeprefix(prefix)))


def _link_other_stacks(rehearsal: Rehearsal) -> None:
    """Let a StackReference find the stacks of the project's other rehearsals."""
    stacks = Path(".pulumi", "stacks", project_settings(rehearsal.project)["name"])
    own = rehearsal.backend_dir / stacks
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    for link in filter(Path.is_symlink, own.iterdir()):
        link.unlink()
    for root in rehearsal.root.parent.iterdir():
        other = root / "state" / stacks / f"{root.name}.json"
        if root != rehearsal.root and other.is_file():
            (own / other.name).symlink_to(other)


def _pulumi_launcher(rehearsal: Rehearsal, tools: Tools) -> str:
    """A script that copies the stack file if it was edited, then runs the real CLI."""
    named = {
        "source": source_stack_file(rehearsal),
        "seen": rehearsal.root / _SEEN,
        "cli": tools.pulumi,
    }
    quoted = {
        name: shlex.quote(str(path)) for name, path in (named | {"root": rehearsal.root}).items()
    }
    return (
        Path(__file__).with_name("pulumi.sh").read_text().format_map(quoted | {"python": _python()})
    )


def _python_module(rehearsal: Rehearsal, module: str) -> str:
    return f'export ML_FOUNDATIONS_REHEARSAL={shlex.quote(str(rehearsal.root))}\nexec {_python()} -m {module} "$@"\n'


def _python() -> str:
    """This interpreter with these modules, independent of the caller's PYTHONPATH and folder."""
    return f"env PYTHONPATH={shlex.quote(str(SOURCE_ROOT))} {shlex.quote(sys.executable)} -P"


def _script(path: Path, body: str) -> None:
    write(path, f"#!/bin/sh\n{body}", mode=0o700)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _passphrase_file(rehearsal: Rehearsal) -> Path:
    path = rehearsal.root / "passphrase"
    if not path.exists() and rehearsal.root.exists():
        stack_file(rehearsal).unlink(missing_ok=True)  # Its salt is of another passphrase.
        # One for all rehearsals of a project: a StackReference reads the secrets of another stack.
        others = rehearsal.root.parent.glob("*/passphrase")
        write(path, next((other.read_text() for other in others), secrets.token_urlsafe(32)))
    return path


if __name__ == "__main__":
    with user_errors():
        refresh_stack_file(Rehearsal.at(Path(sys.argv[1])))
