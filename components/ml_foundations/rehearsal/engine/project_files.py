"""The files of a Pulumi project that a rehearsal reads, and its own copy of the stack file.

``pulumi.sh`` runs this module to copy a stack file that was edited.
"""

import json
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.kubernetes.objects import section
from ml_foundations.rehearsal.files import read_map, write, write_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, console, styled, user_errors

PLACEHOLDER = "rehearsed"
"""The value that a program gets for an encrypted one."""


def project_settings(project: Path) -> dict[str, Any]:
    """Return the settings in Pulumi.yaml; ``runtime`` always has ``name`` and ``options``."""
    file = project / "Pulumi.yaml"
    if not file.exists():
        raise RehearsalError(f"{project} is not a Pulumi project: it has no Pulumi.yaml")
    settings = read_map(file, str(file))
    if missing := [key for key in ("name", "runtime") if not settings.get(key)]:
        raise RehearsalError(f"{file} has no {' and no '.join(missing)}")
    runtime = settings["runtime"]
    runtime = runtime if isinstance(runtime, dict) else {"name": runtime}
    return settings | {"runtime": runtime | {"options": runtime.get("options") or {}}}


def stack_file(rehearsal: Rehearsal) -> Path:
    """Return the rehearsal's copy of the stack file, in which Pulumi writes its encryption salt."""
    return rehearsal.root / f"Pulumi.{rehearsal.stack}.yaml"


def copied_source(rehearsal: Rehearsal) -> Path:
    """Return the project's stack file as it was when it was copied."""
    # Its content is compared, not its time: an older file may come back.
    return rehearsal.root / "stack-file.seen"


def source_stack_file(rehearsal: Rehearsal) -> Path:
    """Return the stack file in the project, which may not exist if the project has none at all."""
    folder = rehearsal.project / project_settings(rehearsal.project).get("stackConfigDir", "")
    path = folder / f"Pulumi.{rehearsal.stack}.yaml"
    files = folder.glob("Pulumi.*.yaml")
    stacks = sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in files)
    if stacks and rehearsal.stack not in stacks:
        missing = f"there is no {path.relative_to(rehearsal.project)}"
        known = f"Stacks: {', '.join(stacks)}"
        raise RehearsalError(f'no stack "{rehearsal.stack}": {missing}. {known}')
    return path


def refresh_stack_file(rehearsal: Rehearsal) -> None:
    """Copy the project's stack file into the rehearsal, which keeps its own salt and secrets.

    A secret that was set in the rehearsal stays until the project's file gets a new plain value for
    its key.
    """
    source = source_stack_file(rehearsal)
    target = stack_file(rehearsal)
    copied = copied_source(rehearsal)
    text = source.read_bytes() if source.exists() else b""
    # Every pulumi command in the rehearsal's shell comes here, so an unchanged file ends it.
    if target.exists() and copied.exists() and copied.read_bytes() == text:
        return
    settings = _read_if_exists(source)
    name = source.relative_to(rehearsal.project)
    if "environment" in settings:
        fix = "Add a stack file with plain values, and rehearse that stack."
        raise RehearsalError(f"{name} imports environments, which are kept in Pulumi Cloud. {fix}")
    config = settings.get("config") or {}
    copy = _read_if_exists(target)
    previous = _read_if_exists(copied).get("config") or {}
    kept_secrets: dict[str, Any] = {}
    for key, value in (copy.get("config") or {}).items():
        is_plain = key in config and not _is_secret(config[key])
        is_replaced = is_plain and config[key] != previous.get(key)
        if _is_secret(value) and not is_replaced:
            kept_secrets[key] = value
    encrypted = [key for key, value in config.items() if _is_secret(value)]
    replaced = [key for key in encrypted if key not in kept_secrets]
    if replaced:
        warning = (
            f" {name} holds encrypted values, and a rehearsal has no key to them: "
            f'the program gets "{PLACEHOLDER}" for {", ".join(replaced)}'
        )
        console().print(styled(("!", "yellow"), warning))
    copy["config"] = _without_secrets(config) | kept_secrets
    write(target, yaml.safe_dump(copy, sort_keys=False))
    write_json(rehearsal.placeholders, replaced)
    # Last, so that an interrupted copy is repeated.
    write(copied, text.decode())


def own_secrets(rehearsal: Rehearsal) -> list[str]:
    """Return the keys of the secrets that were set in the rehearsal, which only its copy has."""
    with suppress(RehearsalError):
        config = section(_read_if_exists(stack_file(rehearsal)), "config")
        return [key for key, value in config.items() if _is_secret(value)]
    return []


def _read_if_exists(path: Path) -> dict[str, Any]:
    return read_map(path, str(path)) if path.exists() else {}


def configuration_of(rehearsal: Rehearsal) -> dict[str, str]:
    """Return a program's configuration by full key: the stack file, and Pulumi.yaml's defaults."""
    settings = project_settings(rehearsal.project)
    config: dict[str, Any] = {}
    for key, declared in (settings.get("config") or {}).items():
        values = declared if isinstance(declared, dict) else {}
        default = values.get("value", values.get("default"))
        if default is not None:
            config[key] = default
    config |= _read_if_exists(source_stack_file(rehearsal)).get("config") or {}
    texts: dict[str, str] = {}
    for key, value in _without_secrets(config).items():
        full_key = key if ":" in key else f"{settings['name']}:{key}"
        texts[full_key] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _without_secrets(config: Any) -> Any:
    """Return a configuration with placeholders for encrypted values."""
    if isinstance(config, dict):
        # Pulumi, "Stack settings file reference": the key ``secure`` alone in a map.
        if config.keys() == {"secure"}:
            return PLACEHOLDER
        return {key: _without_secrets(value) for key, value in config.items()}
    return list(map(_without_secrets, config)) if isinstance(config, list) else config


def _is_secret(value: Any) -> bool:
    """Return whether a configuration value is encrypted, or holds an encrypted value."""
    return _without_secrets(value) != value


def passphrase_file(rehearsal: Rehearsal) -> Path:
    """Return the file of the passphrase that encrypts the secrets; write it if it is missing."""
    path = rehearsal.root / "passphrase"
    if not path.exists() and rehearsal.root.exists():
        stack_file(rehearsal).unlink(missing_ok=True)  # Its salt is of another passphrase.
        # All rehearsals of a project share one: a StackReference reads another stack's secrets.
        existing = next(rehearsal.root.parent.glob("*/passphrase"), None)
        write(path, existing.read_text() if existing else secrets.token_urlsafe(32))
    return path


if __name__ == "__main__":
    with user_errors():
        refresh_stack_file(Rehearsal.at(Path(sys.argv[1])))
