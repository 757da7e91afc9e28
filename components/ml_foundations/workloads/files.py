"""Files that come with a workload, such as a script, and what it may write to: home and /tmp."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.kubernetes.merging import named_by_content
from ml_foundations.kubernetes.objects import api_object

FILES_VOLUME = "files"
HOME_VOLUME = "home"
HOME = "/home/user"
TMP_VOLUME = "tmp"
TMP = "/tmp"
MAX_CONFIG_MAP_BYTES = 1 << 20
"""What a ConfigMap holds at most (Kubernetes, "ConfigMaps")."""
_PATH = re.compile(r"(/[-\w.]+)+", re.ASCII)
_READ_AND_EXECUTE = 0o555


def file_errors(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Paths that are none, two that share a key, and more than a ConfigMap holds."""
    keys: dict[str, str] = {}
    for path in files:
        if not _PATH.fullmatch(path):
            yield (
                f"files.{path}",
                "must be an absolute path of letters, digits, dots, dashes and underscores",
            )
        elif (other := keys.setdefault(_key(path), path)) != path:
            yield f"files.{path}", f"has the same key as {other} in a ConfigMap; rename one of them"
    if (size := config_map_bytes(files)) > MAX_CONFIG_MAP_BYTES:
        reason = f"have {size} bytes, but a ConfigMap holds {MAX_CONFIG_MAP_BYTES}"
        yield "files", f"{reason}: put what is large into the image, a bucket or a claim"


def config_map_bytes(data: Mapping[str, str]) -> int:
    """How much of a ConfigMap's room its data take."""
    return sum(len(text.encode()) for text in data.values())


def files_manifest(
    metadata: Mapping[str, Any],
    name: str,
    files: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The ConfigMap of the files; its name tells what is in them, so that a change replaces the pods."""
    data = {_key(path): text for path, text in files.items()}
    manifest = api_object("v1", "ConfigMap", metadata, immutable=True, data=data)
    return named_by_content(manifest, f"{name}-files", "data", overrides)


def files_volume(config_map: str) -> dict[str, Any]:
    """The volume of the files. All may be executed."""
    return {
        "name": FILES_VOLUME,
        "configMap": {"name": config_map, "defaultMode": _READ_AND_EXECUTE},
    }


def files_mounts(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each file at its own path: what else the image has in that folder stays visible."""
    return [
        {"name": FILES_VOLUME, "mountPath": path, "subPath": _key(path), "readOnly": True}
        for path in sorted(files)
    ]


def _key(path: str) -> str:
    return path.lstrip("/").replace("/", ".")
