"""The groups of tools: each a Go module in a folder beside this file, with every line of source pinned."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.folders import KEY_LENGTH

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Group:
    """A Go module whose ``tool`` lines name the binaries to build."""

    name: str
    binaries: Mapping[str, str]
    """The name of each tool, and the name under which ``go install`` leaves it."""
    minutes: float
    """How long a cold build took on 2 cores."""
    version_of: str = ""
    """The module whose pinned version the binaries report."""
    version_variables: Sequence[str] = ()
    """What the linker sets to that version: ``{v}`` is v1.2.3, ``{major}`` and ``{minor}`` are its parts."""
    copies: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Data files to keep beside the binaries: target folder to (module, folder in it)."""
    folder: Path | None = None

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return self.folder or _FOLDER / self.name

    def pinned(self, module: str) -> str:
        """The version of a module that go.mod pins."""
        found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (self.source / "go.mod").read_text(), re.M)
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
        stamps = (f"-X {variable.format(v=version, major=major, minor=minor)}" for variable in self.version_variables)
        return " ".join(["-s -w", *stamps])

    def key(self) -> str:
        """What decides the binaries: the sources, the flags, the platform."""
        digest = hashlib.sha256()
        for part in (
            (self.source / "go.mod").read_bytes(),
            (self.source / "go.sum").read_bytes(),
            *(path.read_bytes() for path in sorted(self.source.rglob("*.go"))),
            self.linker_flags.encode(),
            json.dumps([dict(self.binaries), dict(self.copies)]).encode(),
            f"{platform.system()}/{platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:KEY_LENGTH]


def _released(name: str, minutes: float) -> Group:
    """A controller whose module carries its Helm chart."""
    module = f"sigs.k8s.io/{name}"
    return Group(
        name,
        {name: name},
        minutes,
        version_of=module,
        version_variables=(f"{module}/pkg/version.GitVersion={{v}}",),
        copies={"chart": (module, f"charts/{name}")},
    )


KUBERNETES = Group(
    "kubernetes",
    {
        "etcd": "server",
        **{name: name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
        **{name: name for name in ("kubectl", "kwok", "kwokctl")},
    },
    minutes=10,
    version_of="k8s.io/kubernetes",
    version_variables=(
        "k8s.io/component-base/version.gitVersion={v}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
    copies={"kwok-stages": ("sigs.k8s.io/kwok", "kustomize/stage")},
)
HELM = Group("helm", {"helm": "helm"}, minutes=2.5)
PULUMI = Group(
    "pulumi",
    {"pulumi": "pulumi"},
    minutes=6,
    version_of="github.com/pulumi/pulumi/pkg/v3",
    version_variables=("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={v}",),
    copies={"python": ("github.com/pulumi/pulumi/sdk/v3", "python/cmd")},
)
LANGUAGE_YAML = Group("language-yaml", {"pulumi-language-yaml": "pulumi-language-yaml"}, minutes=2)
KUEUE = _released("kueue", minutes=6)
JOBSET = _released("jobset", minutes=4)
GROUPS = {group.name: group for group in (KUBERNETES, HELM, PULUMI, LANGUAGE_YAML, KUEUE, JOBSET)}
