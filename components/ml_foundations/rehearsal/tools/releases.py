"""The publishers' binaries of the tools, as ``releases.toml`` lists them."""

import fnmatch
import hashlib
import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ml_foundations.rehearsal.files import KEY_LENGTH
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.groups import GROUPS, Group

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_PINS: dict[str, str] = {pin["file"]: pin["sha256"] for pin in _TABLE.pop("pins")}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names of the architectures that every publisher builds for, by that of the machine."""


@dataclass(frozen=True)
class Release:
    """A file of a publisher, with one tool or several. ``releases.toml`` explains the fields."""

    name: str
    url: str
    sha256: str
    folder: str = ""
    tools: Sequence[str] = ()
    documents: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def target(self) -> Path:
        """Return the folder of the cache that has the tools after the download."""
        key = hashlib.sha256(repr(self).encode()).hexdigest()[:KEY_LENGTH]
        return cache_dir() / "downloads" / f"{self.name}-{key}"

    @property
    def tool(self) -> Path:
        """Return the tool in that folder, or the folder of the data files."""
        return self.target / self.name

    def has(self, file: str) -> bool:
        """Return whether a file of the archive is to be unpacked."""
        folder, _, name = file.rpartition("/")
        return folder == self.folder and any(fnmatch.fnmatch(name, tool) for tool in self.tools)


def architecture() -> str:
    """Return the publishers' name of this machine's architecture; empty if they have none."""
    return _ARCHITECTURES.get(platform.machine(), "") if platform.system() == "Linux" else ""


def of_group(group: Group, arch: str = "") -> list[Release]:
    """Return the releases with the tools of a group, for this machine or an architecture."""
    arch = arch or architecture()
    releases: list[Release] = []
    for name, fields in _TABLE.items():
        if not arch or GROUPS[fields["group"]].source != group.source:
            continue
        values = {"v": group.pinned(fields["module"]), "arch": arch}
        values["x64"] = "x64" if arch == "amd64" else arch
        url = fields["url"].format_map(values)
        release = Release(
            name,
            url,
            _PINS[url],
            folder=fields.get("folder", "").format_map(values),
            tools=fields.get("tools", (name,)),
            documents=fields.get("documents", {}),
        )
        releases.append(release)
    return releases


def path_of(url: str) -> str:
    """Return the path of a publisher's file in a mirror: the host, then the path there."""
    return url.removeprefix("https://")


def address(url: str) -> str:
    """Return where to get a publisher's file: there, or from the user's mirror.

    Raises:
        RehearsalError: the mirror's address is invalid. The message does not show it: any part of
            an address that cannot be read may be the password.
    """
    mirror = os.environ.get("ML_FOUNDATIONS_MIRROR", "").rstrip("/")
    if mirror and not _is_address(mirror):
        raise RehearsalError(
            "ML_FOUNDATIONS_MIRROR is not an address. Set it to one such as "
            "https://mirror.example.com/tools; in a password, write / as %2F, @ as %40, and so on"
        )
    return f"{mirror}/{path_of(url)}" if mirror else url


def _is_address(mirror: str) -> bool:
    """Return whether a text is the address of a web server or a folder there."""
    if re.search(r"[^!-~]|[?#\\]", mirror):
        return False
    try:
        parts = urlsplit(mirror)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # Behind the first slash, an @ ends a password that has a slash.
    return is_server and "@" not in parts.path
