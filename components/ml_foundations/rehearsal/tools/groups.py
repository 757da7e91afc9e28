"""The groups of tools in ``groups.toml``: each is a Go module in a folder with pinned sources."""

import hashlib
import json
import platform
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ml_foundations.rehearsal.files import KEY_LENGTH
from ml_foundations.rehearsal.progress import RehearsalError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Group:
    """A Go module whose ``tool`` lines name the binaries. ``groups.toml`` explains the fields."""

    name: str
    binaries: Mapping[str, str]
    minutes: float
    version_of: str = ""
    version_variables: Sequence[str] = ()
    version_by: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    left_out: frozenset[str] = frozenset()
    """The tools that are not built because they are on PATH or downloaded."""
    folder: Path | None = None
    """The module's folder, if it is not next to this file."""

    @property
    def source(self) -> Path:
        """Return the folder with go.mod and go.sum."""
        return self.folder or _FOLDER / self.name

    @property
    def built(self) -> dict[str, str]:
        """Return the binaries to build, as names of the tool and of its Go package."""
        return {name: built for name, built in self.binaries.items() if name not in self.left_out}

    @property
    def provided(self) -> list[str]:
        """Return the names of all tools and data files."""
        return [*self.binaries, *self.copies]

    def lacks(self, name: str) -> bool:
        """Return whether a tool or data file is still to be built."""
        return name in self.built or name in self.copies

    def without(self, names: Collection[str]) -> "Group":
        """Return the group without tools and data files that exist elsewhere."""
        copies = {name: copy for name, copy in self.copies.items() if name not in names}
        left_out = self.left_out | (self.binaries.keys() & set(names))
        return replace(self, left_out=left_out, copies=copies)

    def pinned(self, module: str) -> str:
        """Return the version of a module that go.mod pins."""
        file = self.source / "go.mod"
        pattern = rf"^\s*(?:require )?{re.escape(module)} (v\S+)"
        match = re.search(pattern, file.read_text(), re.M)
        if match is None:
            raise RehearsalError(f"{file} does not pin {module}")
        return match[1]

    @property
    def linker_flags(self) -> str:
        """Return the flags that strip the binaries and set their version."""
        if not self.version_of:
            return "-s -w"
        version = self.pinned(self.version_of)
        major, minor, *_ = version.removeprefix("v").split(".")
        flags = "-s -w"
        for variable in self.version_variables:
            flags += f" -X {variable.format(v=version, major=major, minor=minor)}"
        return flags

    def key(self) -> str:
        """Return a hash of everything that decides the binaries: sources, flags and platform."""
        digest = hashlib.sha256()
        for part in (
            (self.source / "go.mod").read_bytes(),
            (self.source / "go.sum").read_bytes(),
            *(path.read_bytes() for path in sorted(self.source.rglob("*.go"))),
            self.linker_flags.encode(),
            json.dumps([self.built, dict(self.copies)]).encode(),
            f"{platform.system()}/{platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:KEY_LENGTH]


GROUPS = {
    name: Group(name, **{"binaries": {name: name}} | fields)
    for name, fields in tomllib.loads((_FOLDER / "groups.toml").read_text()).items()
}
KUBERNETES = GROUPS["kubernetes"]
HELM = GROUPS["helm"]
PULUMI = GROUPS["pulumi"]
LANGUAGE_YAML = GROUPS["language-yaml"]
KUEUE = GROUPS["kueue"]
JOBSET = GROUPS["jobset"]
LWS = GROUPS["lws"]
KUBERAY = GROUPS["kuberay-operator"]
TRAINER = GROUPS["kubeflow-trainer"]
