"""Files that come with a workload, such as a script, and what it may write to: home and /tmp."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.kubernetes.merging import Overrides, named_by_content
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
    """Yield invalid paths, paths with the same key, and files that are too large together."""
    keys: dict[str, str] = {}
    for path in files:
        if not _PATH.fullmatch(path):
            reason = "must be an absolute path of letters, digits, dots, dashes and underscores"
            yield f"files.{path}", reason
        elif (first := keys.setdefault(_key(path), path)) != path:
            yield f"files.{path}", f"has the same key as {first} in a ConfigMap; rename one of them"
    if (size := config_map_bytes(files)) > MAX_CONFIG_MAP_BYTES:
        reason = f"have {size} bytes, but a ConfigMap holds {MAX_CONFIG_MAP_BYTES}"
        yield "files", f"{reason}: put what is large into the image, a bucket or a claim"


def config_map_bytes(data: Mapping[str, str]) -> int:
    """Return the bytes that data use of a ConfigMap's limit."""
    return sum(len(text.encode()) for text in data.values())


def files_manifest(
    metadata: Mapping[str, Any], name: str, files: Mapping[str, str], overrides: Overrides
) -> dict[str, Any]:
    """Return the ConfigMap of the files. A change of the content changes its name."""
    data = {_key(path): text for path, text in files.items()}
    manifest = api_object("v1", "ConfigMap", metadata, immutable=True, data=data)
    return named_by_content(manifest, f"{name}-files", "data", overrides)


def files_volume(config_map: str) -> dict[str, Any]:
    """Return the volume of the files. All of them are executable."""
    source = {"name": config_map, "defaultMode": _READ_AND_EXECUTE}
    return {"name": FILES_VOLUME, "configMap": source}


def files_mounts(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a mount for each file, so that the image's other files in its folder stay visible."""
    return [
        {"name": FILES_VOLUME, "mountPath": path, "subPath": _key(path), "readOnly": True}
        for path in sorted(files)
    ]


def _key(path: str) -> str:
    return path.lstrip("/").replace("/", ".")
