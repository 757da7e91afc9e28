"""The environment in which stock ``pulumi``, ``kubectl`` and ``helm`` work on a rehearsal.

It is closed off: a private PULUMI_HOME with the embedded plugins, a state backend of files, and no credential of the
user's. A plugin that lies on PATH is never run, so a rehearsal cannot touch a real cloud.
"""

from __future__ import annotations

import importlib.metadata
import os
import secrets
import shlex
import shutil
import ssl
import sys
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.engine import language_host
from ml_foundations.rehearsal.files import read_map, write
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, console, user_errors
from ml_foundations.rehearsal.tools.groups import LANGUAGE_YAML
from ml_foundations.rehearsal.tools.toolchain import Tools, build

_SEEN = "stack-file.seen"
"""The project's stack file as it was when it was copied. Times are no guide: an older file may come back."""
_CA_BUNDLE = "ca-bundle.crt"
_PLUGINS = "ml_foundations.rehearsal.plugins"
_CLOUD_VARIABLES = ("GOOGLE_", "CLOUDSDK_", "GCLOUD_", "GCP_", "AWS_", "ARM_", "AZURE_", "HELM_", "PULUMI_", "KUBE")
"""Prefixes of the variables that a rehearsal drops: credentials, and settings that would lead out of the replica."""

_NO_CREDENTIALS = {
    "CLOUDSDK_CONFIG": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "AZURE_CONFIG_DIR": os.devnull,
    "NO_GCE_CHECK": "true",
    "METADATA_SERVER_DETECTION": "none",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Keeps a program from credentials in the user's home, and from those of a machine in a cloud."""


def _variables(rehearsal: Rehearsal) -> dict[str, str]:
    """The variables that a rehearsal sets, over the environment without those that ``_dropped`` names."""
    path = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if not _is_a_rehearsals(Path(entry))]
    return {
        "PATH": os.pathsep.join([str(rehearsal.bin_dir), *path]),
        "KUBECONFIG": str(rehearsal.kubeconfig),
        "KUBECACHEDIR": str(rehearsal.kubectl_cache_dir),
        "HELM_CACHE_HOME": str(rehearsal.root / "helm"),
        "HELM_CONFIG_HOME": str(rehearsal.root / "helm"),
        "HELM_DATA_HOME": str(rehearsal.root / "helm"),
        "ML_FOUNDATIONS_COMMAND": os.environ.get("ML_FOUNDATIONS_COMMAND", "ml-foundations"),
        "ML_FOUNDATIONS_REHEARSAL": str(rehearsal.root),
        "SSL_CERT_FILE": str(rehearsal.root / _CA_BUNDLE),
        "PULUMI_HOME": str(rehearsal.pulumi_home),
        # Attributes beside each file are not written atomically: where a run is killed then, no file can be read again.
        "PULUMI_BACKEND_URL": f"file://{rehearsal.backend_dir}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(_passphrase_file(rehearsal)),
        "PULUMI_OPTION_CONFIG_FILE": str(stack_file(rehearsal)),
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
        **_NO_CREDENTIALS,
    }


def _is_a_rehearsals(path: Path) -> bool:
    """Whether a rehearsal's own shell put a path into the environment."""
    return ".rehearsal" in path.parts


def _dropped() -> list[str]:
    dropped = (name for name in os.environ if name.startswith(_CLOUD_VARIABLES))
    return sorted(name for name in dropped if not name.startswith("PULUMI_K8S_"))


def process_environment(rehearsal: Rehearsal) -> dict[str, str]:
    """The whole environment for a child process."""
    return {name: os.environ[name] for name in os.environ.keys() - _dropped()} | _variables(rehearsal)


def shell_exports(rehearsal: Rehearsal) -> str:
    """Lines for ``eval``: after them, plain ``pulumi up -s <stack>``, ``kubectl`` and ``helm`` work on the replica."""
    exports = _variables(rehearsal)
    lines = [f"unset {name}" for name in _dropped() if name not in exports]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    return "\n".join(lines)


def stack_file(rehearsal: Rehearsal) -> Path:
    """The rehearsal's copy of the stack file: Pulumi writes its encryption salt there, and not into the checkout."""
    return rehearsal.root / f"Pulumi.{rehearsal.stack}.yaml"


def project_settings(project: Path) -> dict[str, Any]:
    """The settings in Pulumi.yaml.

    Raises:
        RehearsalError: the folder is not a Pulumi project.
    """
    file = project / "Pulumi.yaml"
    if not file.exists():
        raise RehearsalError(f"{project} is not a Pulumi project: it has no Pulumi.yaml")
    settings = read_map(file, str(file))
    if missing := [key for key in ("name", "runtime") if not settings.get(key)]:
        raise RehearsalError(f"{file} has no {' and no '.join(missing)}")
    return settings


def source_stack_file(rehearsal: Rehearsal) -> Path:
    """The stack file in the project, if it has any.

    Raises:
        RehearsalError: the project has stack files, but none of this stack; the message names those that exist.
    """
    folder = rehearsal.project / project_settings(rehearsal.project).get("stackConfigDir", "")
    path = folder / f"Pulumi.{rehearsal.stack}.yaml"
    known = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in folder.glob("Pulumi.*.yaml"))
    if known and rehearsal.stack not in known:
        name = path.relative_to(rehearsal.project)
        raise RehearsalError(f'no stack "{rehearsal.stack}": there is no {name}. Stacks: {", ".join(known)}')
    return path


def refresh_stack_file(rehearsal: Rehearsal) -> None:
    """Copy the project's stack file into the rehearsal, with the rehearsal's own encryption salt."""
    source, target, seen = source_stack_file(rehearsal), stack_file(rehearsal), rehearsal.root / _SEEN
    text = source.read_bytes() if source.exists() else b""
    if target.exists() and seen.exists() and seen.read_bytes() == text:
        return
    settings = read_map(source, str(source)) if text else {}
    for foreign, why in (
        (_holds_secrets(settings.get("config")), "holds encrypted values, and a rehearsal has no key to them"),
        ("environment" in settings, "imports environments, which are kept in Pulumi Cloud"),
    ):
        if foreign:
            raise RehearsalError(
                f"{source.relative_to(rehearsal.project)} {why}. "
                "Give a rehearsal plain values in a stack file of its own, and rehearse that stack."
            )
    salt = read_map(target, str(target)).get("encryptionsalt") if target.exists() else None
    copy = {"config": settings.get("config") or {}} | ({"encryptionsalt": salt} if salt else {})
    write(target, yaml.safe_dump(copy, sort_keys=False))
    write(seen, text.decode())


def _holds_secrets(config: Any) -> bool:
    """Whether any value is encrypted: ``secure`` alone in a mapping (Pulumi, "Stack settings file reference")."""
    if isinstance(config, dict):
        return config.keys() == {"secure"} or any(map(_holds_secrets, config.values()))
    return isinstance(config, list) and any(map(_holds_secrets, config))


def trust(rehearsal: Rehearsal) -> None:
    """Let clients trust the replica as they trust the public certificate of a real cluster's DNS endpoint."""
    known = os.environ.get("SSL_CERT_FILE", "") or ssl.get_default_verify_paths().cafile
    public = Path(known).read_text() if known and Path(known).is_file() else ""
    write(rehearsal.root / _CA_BUNDLE, public + configuration.credentials(rehearsal).ca.read_text())


def install(rehearsal: Rehearsal, tools: Tools, official_kubernetes: bool = False) -> None:
    """Install what the environment names: tools, plugins, the language host, the stack file."""
    rehearsal.make()
    _passphrase_file(rehearsal)
    refresh_stack_file(rehearsal)
    for name in ("kubectl", "helm"):
        _link(rehearsal.bin_dir / name, getattr(tools, name))
    _script(rehearsal.bin_dir / "pulumi", _pulumi_launcher(rehearsal, tools))
    auth = _python_module(rehearsal, f"{_PLUGINS}.gke_gcloud_auth_plugin")
    _script(rehearsal.bin_dir / "gke-gcloud-auth-plugin", auth)
    _embedded_plugin(rehearsal, "gcp")
    if official_kubernetes:
        _official_kubernetes_plugin(rehearsal)
    else:
        _embedded_plugin(rehearsal, "kubernetes")
    if not tools.pulumi_is_official:
        language_host.install(rehearsal, tools)
        runtime = project_settings(rehearsal.project)["runtime"]
        if "yaml" in (runtime, runtime["name"] if isinstance(runtime, dict) else ""):
            _yaml_language_host(rehearsal)


def _yaml_language_host(rehearsal: Rehearsal) -> None:
    version = LANGUAGE_YAML.pinned("github.com/pulumi/pulumi-yaml")
    folder = rehearsal.pulumi_home / "plugins" / f"language-yaml-{version}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _link(folder / "pulumi-language-yaml", build(LANGUAGE_YAML) / "pulumi-language-yaml")


def _plugin_folder(rehearsal: Rehearsal, package: str) -> Path:
    """Where the engine looks for the version that the SDK asks for, emptied."""
    version = importlib.metadata.version(f"pulumi-{package}")
    folder = rehearsal.pulumi_home / "plugins" / f"resource-{package}-v{version}"
    if folder.exists():
        shutil.rmtree(folder)
    return folder


def _embedded_plugin(rehearsal: Rehearsal, package: str) -> None:
    folder = _plugin_folder(rehearsal, package)
    _script(folder / f"pulumi-resource-{package}", _python_module(rehearsal, f"{_PLUGINS}.{package}"))


def _official_kubernetes_plugin(rehearsal: Rehearsal) -> None:
    """Copy the newest kubernetes plugin of the user's plugin folder, as the version that the SDK asks for."""
    home = Path(os.environ.get("PULUMI_HOME", ""))
    # In a rehearsal's own shell it names the rehearsal's, with the embedded plugin.
    if not home.parts or _is_a_rehearsals(home):
        home = Path.home() / ".pulumi"
    found = [path for path in home.glob("plugins/resource-kubernetes-v*") if path.is_dir()]
    if not found:
        raise RehearsalError(
            f"no official kubernetes plugin in {home / 'plugins'}. "
            "Install it: pulumi plugin install resource kubernetes"
        )
    newest = max(found, key=lambda path: Version(path.name.removeprefix("resource-kubernetes-v")))
    # The engine finds no plugin in a folder that is a link.
    shutil.copytree(newest, _plugin_folder(rehearsal, "kubernetes"))
    console.print(f"using the official kubernetes plugin {newest.name.rpartition('-')[2]}")


def _pulumi_launcher(rehearsal: Rehearsal, tools: Tools) -> str:
    """A script that copies the stack file if it was edited, then runs the real CLI."""
    named = shlex.quote(str(source_stack_file(rehearsal)))
    refresh = f"{_python()} -m ml_foundations.rehearsal.engine.environment {shlex.quote(str(rehearsal.root))}"
    return (
        f"if [ -e {named} ] && ! cmp -s {named} {shlex.quote(str(rehearsal.root / _SEEN))}; then\n"
        f"  {refresh} || exit 1\nfi\n"
        f'exec {shlex.quote(str(tools.pulumi))} "$@"\n'
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
        write(path, secrets.token_urlsafe(32))
    return path


if __name__ == "__main__":
    with user_errors():
        refresh_stack_file(Rehearsal.at(Path(sys.argv[1])))
