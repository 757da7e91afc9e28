"""Write the fields and kinds of Kubernetes that its older minor versions lack, and since when.

The sources are the pinned modules k8s.io/kubernetes and k8s.io/api, which `ml-foundations tools`
leaves in Go's module cache: the table of feature gates, the markers of fields (`+featureGate`), and
the release in which each kind was introduced. Run it after an update of Kubernetes:
``python -m codegen.feature_gates``.
"""

import csv
import io
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ml_foundations.catalog.tables import rows
from ml_foundations.planning.input import field_catalog
from ml_foundations.rehearsal.tools import groups

from codegen import ROOT, write

_FOLDER = ROOT / "components" / "ml_foundations" / "planning" / "api_server"
FIELDS = _FOLDER / "gated_fields.csv"
KINDS = _FOLDER / "introduced_kinds.csv"
_GATE = re.compile(r"^\t(\w+): \{\n(.*?)^\t\},", re.MULTILINE | re.DOTALL)
_STAGE = re.compile(r'MustParse\("(\d+)\.(\d+)"\), Default: (true|false)')
_STRUCT = re.compile(r"^type (\w+) struct \{$")
_FIELD = re.compile(r'^\t\w.*`json:"(\w+)')
_INLINE = re.compile(r'^\t(?:\w+\s+)?(\w+)\s+`json:",inline')
_INTRODUCED = re.compile(r"\*(\w+)\) APILifecycleIntroduced.*\n\treturn (\d+), (\d+)")
_DROPPED = re.compile(r"Enabled\((?:\w+)?features\.(\w+)")
_UNION = re.compile(r"(only|exactly) one of", re.IGNORECASE)
UNMARKED = {
    "ContainerStopSignals": "core.v1.Lifecycle.stopSignal",
    "ImageVolume": "core.v1.VolumeSource.image",
    "JobManagedBy": "batch.v1.JobSpec.managedBy",
    "JobSuccessPolicy": "batch.v1.JobSpec.successPolicy",
    "MatchLabelKeysInPodAffinity": (
        "core.v1.PodAffinityTerm.matchLabelKeys core.v1.PodAffinityTerm.mismatchLabelKeys"
    ),
    "PodCertificateRequest": "core.v1.VolumeProjection.podCertificate",
    "ProcMountType": "core.v1.SecurityContext.procMount",
    "RecursiveReadOnlyMounts": "core.v1.VolumeMount.recursiveReadOnly",
    "UserNamespacesSupport": "core.v1.PodSpec.hostUsers",
}
"""Fields without a marker that the API server drops by a gate (pkg/api/pod/util.go and the
strategies of pkg/registry)."""
OF_NO_FIELD = {
    *("DeploymentReplicaSetTerminatingReplicas", "PodObservedGenerationTracking"),
    *("RecoverVolumeExpansionFailure", "ServiceCIDRStatusFieldWiping"),
    *("DRAResourceClaimGranularStatusAuthorization", "NodeDeclaredFeatures"),
    *("HPAScaleToZero", "PodLifecycleSleepActionAllowZero", "PreferSameTrafficDistribution"),
    *("RelaxedDNSSearchValidation", "RelaxedEnvironmentVariableValidation", "SELinuxMount"),
    *("RestartAllContainersOnContainerExits", "TaintTolerationComparisonOperators"),
    *("MatchLabelKeysInPodTopologySpreadSelectorMerge", "UserNamespacesHostNetworkSupport"),
    *("MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs"),
}
"""Gates of the same code that drop no field of a spec: of a status, of values, of updates."""
_ALIASES = {"PodCertificateProjection": "PodCertificateRequest"}
"""Markers that name a gate otherwise than the table does."""


def main() -> None:
    """Read the modules, and write both tables."""
    write(files())


def module(name: str) -> Path:
    """Return the folder of a pinned module in Go's module cache; it may be absent."""
    cache = subprocess.run(
        ["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return Path(cache) / f"{name}@{groups.KUBERNETES.pinned(name)}"


def files() -> dict[Path, str]:
    """Return both tables by their paths."""
    kubernetes = module("k8s.io/kubernetes")
    api = module("k8s.io/api")
    oldest = min(_minor(row["oldest"]) for row in rows("release_channels.csv"))
    gates = on_since((kubernetes / "pkg" / "features" / "kube_features.go").read_text())
    late = {gate: minor for gate, minor in gates.items() if minor is None or minor > oldest}
    dropped = set[str]()
    for pattern in ("pkg/api/*/util.go", "pkg/registry/*/*/strategy.go"):
        for path in kubernetes.glob(pattern):
            dropped |= {*_DROPPED.findall(path.read_text())}
    marked = [field for path in sorted(api.glob("*/v*/types.go")) for field in _marked(path)]
    known = {gate for *_, gate in marked} | UNMARKED.keys() | OF_NO_FIELD
    if unknown := (dropped & late.keys()) - known:
        raise SystemExit(f"Fields of gates are not known: {', '.join(sorted(unknown))}")
    embedding = {}
    unions = set[str]()
    for path in api.glob("*/v*/types.go"):
        found_embedding, found_unions = _structs(path)
        embedding |= found_embedding
        unions |= found_unions
    for gate, paths in UNMARKED.items():
        marked += [(*path.rpartition(".")[::2], gate) for path in paths.split()]
    types = field_catalog.schema()["types"]
    lines: set[tuple[str, ...]] = set()
    for struct, field, gate in marked:
        type_ = struct if struct in types else embedding.get(struct, "")
        if gate in late and field in types.get(type_, {}) and not type_.endswith("Status"):
            union = "yes" if struct in unions else ""
            lines.add((type_, field, gate, _text(late[gate]), union))
    kinds = {(kind, _text(minor)) for kind, minor in _introduced(api) if minor > oldest}
    version = groups.KUBERNETES.pinned("k8s.io/kubernetes")
    head = f"# Written by codegen.feature_gates from Kubernetes {version}"
    return {
        FIELDS: _csv(
            f"{head}: fields with a feature gate, and since when\n# it is on by default (nothing:"
            " in no version so far). union: an object without the field is invalid.",
            ("type", "field", "gate", "since", "union"),
            lines,
        ),
        KINDS: _csv(
            f"{head}: the stable kinds that older versions lack.", ("kind", "since"), kinds
        ),
    }


def on_since(text: str) -> Mapping[str, int | None]:
    """Return the minor version since which each gate is on; None if it is off in the last one."""
    gates: dict[str, int | None] = {}
    for gate, body in _GATE.findall(text):
        since: int | None = None
        for _, minor, default in _STAGE.findall(body):
            since = (since or int(minor)) if default == "true" else None
        gates[gate] = since
    return gates


def _package(path: Path) -> str:
    return f"{path.parent.parent.name}.{path.parent.name}"


def _marked(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield type, field and gate of each field with a marker."""
    struct = ""
    gates = list[str]()
    for line in path.read_text().splitlines():
        if match := _STRUCT.match(line):
            struct = f"{_package(path)}.{match[1]}"
            gates = []
        elif marker := re.search(r"\+featureGate=([\w,]+)", line):
            gates += marker[1].split(",")
        elif match := _FIELD.match(line):
            yield from ((struct, match[1], _ALIASES.get(gate, gate)) for gate in gates)
            gates = []


def _structs(path: Path) -> tuple[dict[str, str], set[str]]:
    """Return the type that each inlined type is part of, and the types that are unions."""
    embedding = dict[str, str]()
    unions = set[str]()
    struct = ""
    comment = ""
    for line in path.read_text().splitlines():
        if match := _STRUCT.match(line):
            struct = f"{_package(path)}.{match[1]}"
            if _UNION.search(comment):
                unions.add(struct)
        elif match := _INLINE.match(line):
            embedding[f"{_package(path)}.{match[1]}"] = struct
        comment = f"{comment} {line}" if line.startswith("//") else ""
    return embedding, unions


def _introduced(api: Path) -> Iterator[tuple[str, int]]:
    """Yield the stable kinds that schema.json has, with the minor versions that have them."""
    kinds = field_catalog.schema()["kinds"]
    for path in sorted(api.glob("*/v1/zz_generated.prerelease-lifecycle.go")):
        minors = {kind: int(minor) for kind, _, minor in _INTRODUCED.findall(path.read_text())}
        for kind, type_ in kinds.items():
            name = kind.rpartition(" ")[2]
            if type_ == f"{_package(path)}.{name}" and name in minors:
                yield kind, minors[name]


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _text(minor: int | None) -> str:
    return "" if minor is None else f"1.{minor}"


def _csv(comment: str, columns: tuple[str, ...], lines: set[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *sorted(lines)])
    return f"{comment}\n{text.getvalue()}"


if __name__ == "__main__":
    main()
