"""The files that the environment of a rehearsal names: tools, plugins and language hosts."""

import importlib.metadata
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Set
from pathlib import Path

from packaging.version import Version

from ml_foundations.rehearsal.cloud import replica
from ml_foundations.rehearsal.engine import language_host, project_files
from ml_foundations.rehearsal.engine.environment import is_in_rehearsal
from ml_foundations.rehearsal.engine.project_files import project_settings
from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, console
from ml_foundations.rehearsal.tools.groups import LANGUAGE_YAML
from ml_foundations.rehearsal.tools.toolchain import Tools, build

_PLUGINS = "ml_foundations.rehearsal.plugins"
_KUBERNETES = "kubernetes"
_EMBEDDED = frozenset(("gcp", _KUBERNETES, "random", "tls"))
_PULUMI_PAGE = "https://www.pulumi.com/docs/install/"
_ANY_VERSION = "9999.0.0"
"""The version of a plugin that serves every version that a program asks for."""
_REACHES = {
    "command": "runs commands on this machine, and by ssh on others",
    "docker": "builds and runs by your Docker daemon, and pushes to registries",
    "docker-build": "builds by your Docker daemon, and pushes to registries",
    _KUBERNETES: "reaches only the replicas of this rehearsal",
    "time": "reaches nothing",
}
"""The effects of the providers that a user may allow in a rehearsal."""


def install(
    rehearsal: Rehearsal,
    tools: Tools,
    official_kubernetes: bool = False,
    allowed: Collection[str] = (),
) -> None:
    """Install tools, plugins, the language host and the stack file.

    The ``allowed`` providers run by the user's own plugins; with ``official_kubernetes``, so does
    the kubernetes provider.

    Raises:
        RehearsalError: No CLI here runs the program's language, or a plugin is not allowed.
    """
    rehearsal.make()
    project_files.passphrase_file(rehearsal)
    project_files.refresh_stack_file(rehearsal)
    replica.trust(rehearsal)
    _link_other_stacks(rehearsal)
    for name in ("kubectl", "helm"):
        _link(rehearsal.bin_dir / name, getattr(tools, name))
    # This script copies the stack file if it was edited, then runs the real CLI.
    paths = {"cli": tools.pulumi, "root": rehearsal.root}
    paths["seen"] = project_files.copied_source(rehearsal)
    paths["source"] = project_files.source_stack_file(rehearsal)
    words = {name: shlex.quote(str(path)) for name, path in paths.items()}
    launcher = Path(__file__).with_name("pulumi.sh").read_text()
    script = launcher.format_map(words | {"python": _python()})
    _write_script(rehearsal.bin_dir / "pulumi", script)
    auth_plugin = _module_launcher(rehearsal, f"{_PLUGINS}.gke_gcloud_auth_plugin")
    _write_script(rehearsal.bin_dir / "gke-gcloud-auth-plugin", auth_plugin)
    _install_plugins(rehearsal, {*allowed, *([_KUBERNETES] if official_kubernetes else [])})
    if not tools.pulumi_is_official:
        runtime = project_settings(rehearsal.project)["runtime"].get("name")
        if runtime not in ("python", "yaml"):
            reason = f"Pulumi.yaml: the runtime is {runtime}, and the CLI that was built here runs"
            fix = f"Install Pulumi's own CLI ({_PULUMI_PAGE}), and put it on PATH"
            raise RehearsalError(f"{reason} python and yaml only. {fix}")
        install_language_host(rehearsal, tools)
        if runtime == "yaml":
            version = LANGUAGE_YAML.pinned("github.com/pulumi/pulumi-yaml")
            folder = rehearsal.pulumi_home / "plugins" / f"language-yaml-{version}"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link(folder / "pulumi-language-yaml", build(LANGUAGE_YAML) / "pulumi-language-yaml")


def install_language_host(rehearsal: Rehearsal, tools: Tools) -> None:
    """Install the Python language host as the only version in the engine's plugin folder."""
    plugins = rehearsal.pulumi_home / "plugins"
    folder = plugins / f"language-python-v{importlib.metadata.version('pulumi')}"
    for outdated in set(plugins.glob("language-python-v*")) - {folder}:
        shutil.rmtree(outdated)
    # Programs inherit this environment: PYTHONPATH stays the user's, and with -P no module of the
    # user's folder replaces one of this package.
    path = f"import sys; sys.path.insert(0, {str(SOURCE_ROOT)!r})"
    start = f"{path}; from {language_host.__name__} import main; main()"
    executor = str(tools.pulumi.parent / "python" / "pulumi-language-python-exec")
    command = shlex.join([sys.executable, "-P", "-c", start, executor])
    _write_script(folder / "pulumi-language-python", f'exec {command} "$@"\n')


def _install_plugins(rehearsal: Rehearsal, allowed: Set[str]) -> None:
    """Install the embedded plugins and the user's own that are allowed, and remove all others."""
    settings = project_settings(rehearsal.project)
    providers = (settings.get("plugins") or {}).get("providers") or []
    names = [provider.get("name") for provider in providers]
    if foreign := [name for name in names if name not in allowed]:
        raise RehearsalError(
            f"Pulumi.yaml names its own plugins for {', '.join(foreign)} (plugins.providers), "
            "which would run in place of the rehearsal's. Remove them, or allow each: "
            "up --allow-provider"
        )
    python = language_host.project_python(rehearsal.project, settings)
    asked = language_host.packages_of(python)
    allowed_plugins = {name: _users_plugin(name, asked) for name in sorted(allowed)}
    # Plugins of an earlier ``up`` may no longer be allowed.
    for folder in rehearsal.pulumi_home.glob("plugins/resource-*"):
        shutil.rmtree(folder)
    for name, plugin in allowed_plugins.items():
        # The engine finds no plugin in a folder that is a link.
        shutil.copytree(plugin, _plugin_file(rehearsal, name).parent)
        default = "reaches what the program gives it an address and a credential for"
        console().print(f"using your plugin {plugin.name}, which {_REACHES.get(name, default)}")
    if _KUBERNETES in allowed:
        # A gate is in the place of Pulumi's plugin, which then is the gate's child.
        gate = _plugin_file(rehearsal, _KUBERNETES)
        official = gate.rename(gate.with_name("official"))
        command = f"{_PLUGINS}.kubernetes.gate {shlex.quote(str(official))}"
        _write_script(gate, _module_launcher(rehearsal, command))
    elif (official := _plugins_folder() / f"resource-kubernetes-{asked.get(_KUBERNETES)}").is_dir():
        console().print(f"{official.name} is installed. To use it: up --official-kubernetes-plugin")
    # The engine asks for this plugin if a program uses pulumi.dynamic, which no package names.
    dynamic = f'exec {shlex.quote(str(python))} -u -m pulumi.dynamic "$@"\n'
    _write_script(_plugin_file(rehearsal, "pulumi-python"), dynamic)
    for package in _EMBEDDED - allowed:
        launcher = _module_launcher(rehearsal, f"{_PLUGINS} {package}")
        _write_script(_plugin_file(rehearsal, package), launcher)
        # ``pulumi package`` asks for the locked version of the SDK, which may not be installed.
        for sdk in importlib.metadata.distributions(name=f"pulumi-{package}"):
            _write_script(_plugin_file(rehearsal, package, sdk.version), launcher)
    # Any other provider gets a plugin that fails, so that the error has a fix.
    for package in asked.keys() - _EMBEDDED - allowed:
        allow = f"ml-foundations up --allow-provider {package}"
        refusal = f"the provider {package} runs by your own plugin, if you allow it: {allow}"
        script = f"echo {shlex.quote(refusal)} >&2\nexit 1\n"
        _write_script(_plugin_file(rehearsal, package), script)


def _plugin_file(rehearsal: Rehearsal, package: str, version: str = _ANY_VERSION) -> Path:
    folder = rehearsal.pulumi_home / "plugins" / f"resource-{package}-v{version}"
    return folder / f"pulumi-resource-{package}"


def _plugins_folder() -> Path:
    """Return the user's own plugin folder."""
    home = Path(os.environ.get("PULUMI_HOME", ""))
    # In a rehearsal's own shell it names the rehearsal's, with the embedded plugins.
    if not home.parts or is_in_rehearsal(home):
        home = Path.home() / ".pulumi"
    return home / "plugins"


def _users_plugin(package: str, asked: Mapping[str, str]) -> Path:
    """Return the folder of the user's plugin: of the version that is asked for, or the newest."""
    folder = _plugins_folder()
    prefix = f"resource-{package}-v"
    plugins = list(filter(Path.is_dir, folder.glob(f"{prefix}*")))
    if not plugins:
        fix = f"Install it: pulumi plugin install resource {package}"
        raise RehearsalError(f"no plugin of the provider {package} in {folder}. {fix}")
    exact = folder / f"resource-{package}-{asked.get(package)}"
    if exact in plugins:
        return exact
    return max(plugins, key=lambda path: Version(path.name.removeprefix(prefix)))


def _link_other_stacks(rehearsal: Rehearsal) -> None:
    """Link the states of the project's other rehearsals, so that a StackReference finds them."""
    stacks = Path(".pulumi", "stacks", project_settings(rehearsal.project)["name"])
    folder = rehearsal.backend_dir / stacks
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for link in filter(Path.is_symlink, folder.iterdir()):
        link.unlink()
    for root in rehearsal.root.parent.iterdir():
        state = root / "state" / stacks / f"{root.name}.json"
        if root != rehearsal.root and state.is_file():
            (folder / state.name).symlink_to(state)


def _module_launcher(rehearsal: Rehearsal, module: str) -> str:
    variable = f"ML_FOUNDATIONS_REHEARSAL={shlex.quote(str(rehearsal.root))}"
    return f'export {variable}\nexec {_python()} -m {module} "$@"\n'


def _python() -> str:
    """Return the command of this interpreter, independent of the caller's PYTHONPATH and folder."""
    return f"env PYTHONPATH={shlex.quote(str(SOURCE_ROOT))} {shlex.quote(sys.executable)} -P"


def _write_script(path: Path, body: str) -> None:
    write(path, f"#!/bin/sh\n{body}", mode=0o700)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
