"""The groups of tools, of ``groups.toml``: each a Go module beside this file, with every line of source pinned."""

import hashlib
import json
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ml_foundations.rehearsal.files import KEY_LENGTH
from ml_foundations.rehearsal.progress import RehearsalError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Group:
    """A Go module whose ``tool`` lines name the binaries to build; ``groups.toml`` says what the fields are."""

    name: str
    binaries: Mapping[str, str]
    minutes: float
    version_of: str = ""
    version_variables: Sequence[str] = ()
    version_by: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    left_out: frozenset[str] = frozenset()
    """The tools that are not built, since the machine has them."""
    folder: Path | None = None
    """Where the module is, if not beside this file."""

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return self.folder or _FOLDER / self.name

    @property
    def built(self) -> dict[str, str]:
        """The binaries that are built."""
        return {name: built for name, built in self.binaries.items() if name not in self.left_out}

    def pinned(self, module: str) -> str:
        """The version of a module that go.mod pins."""
        found = re.search(
            rf"^\s*(?:require )?{re.escape(module)} (v\S+)",
            (self.source / "go.mod").read_text(),
            re.M,
        )
        if found is None:
            raise RehearsalError(f"{self.source / 'go.mod'} does not pin {module}")
        return found[1]

    @property
    def linker_flags(self) -> str:
        """Strip the binaries and stamp their version."""
        if not self.version_of:
            return "-s -w"
        version = self.pinned(self.version_of)
        major, minor, *_ = version.removeprefix("v").split(".")
        stamps = (
            f"-X {variable.format(v=version, major=major, minor=minor)}"
            for variable in self.version_variables
        )
        return " ".join(["-s -w", *stamps])

    def key(self) -> str:
        """What decides the binaries: the sources, the flags, the platform."""
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
KUBERNETES, HELM, PULUMI = GROUPS["kubernetes"], GROUPS["helm"], GROUPS["pulumi"]
LANGUAGE_YAML, KUEUE, JOBSET = GROUPS["language-yaml"], GROUPS["kueue"], GROUPS["jobset"]
