"""Where volumes let pods run: zones and nodes of volumes, topologies of classes, disks that machines attach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.quantities import milli
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.pods import Workload
from ml_foundations.planning.scheduler.filters import Refusal, matches_node_affinity

DISK_DRIVER = "pd.csi.storage.gke.io"
"""The driver of Persistent Disks and Hyperdisks (GKE, "Compute Engine persistent disk CSI driver")."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_REPLICATION = "replication-type"
_TOPOLOGY_LABELS = (labels.ZONE, labels.REGION, labels.OLD_ZONE, labels.OLD_REGION)
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Volumes:
    """The claims, volumes and storage classes that are declared."""

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._claims = {(namespace_of(c), name_of(c)): c for c in by_kind.get("PersistentVolumeClaim", ())}
        self._volumes = {name_of(volume): volume for volume in by_kind.get("PersistentVolume", ())}
        self._classes = {name_of(c): c for c in by_kind.get("StorageClass", ())}
        self._default = next(
            (n for n, c in self._classes.items() if annotations_of(c).get(_DEFAULT_CLASS) == "true"), None
        )

    def with_default_class(self, claim: Manifest) -> Manifest:
        """A claim as the API server stores it: one that names no class gets the default one."""
        spec = section(claim, "spec")
        if self._default is None or spec.get("storageClassName") is not None:
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}

    def claims_of(self, workload: Workload) -> list[Manifest]:
        """The declared claims that a workload's pods mount."""
        names = {name for pods in workload.pods for name in _claim_names(pods.spec)}
        return [claim for name in sorted(names) if (claim := self._claims.get((workload.namespace, name)))]

    def exclusive_claims(self, spec: Manifest, namespace: str) -> frozenset[str]:
        """The claims of a pod that only one pod may use at a time."""
        return frozenset(
            f"{namespace}/{name}"
            for name in _claim_names(spec)
            if "ReadWriteOncePod" in _access_modes(self._claims.get((namespace, name)))
        )

    def on_one_node(self, workload: Workload) -> list[str]:
        """The claims that a workload's pods mount and that one node at a time may attach."""
        return [name_of(c) for c in self.claims_of(workload) if set(_access_modes(c)) == {"ReadWriteOnce"}]

    def refusals(self, spec: Manifest, workload: Workload) -> Callable[[NodeClass], list[Refusal]] | None:
        """Why volumes keep pods from nodes, as a function of the node; None for pods without such volumes."""
        claims = [*self._claims_in(spec, workload.namespace), *map(self.with_default_class, workload.claims)]
        if not claims:
            return None
        return lambda node: [refusal for claim in claims for refusal in self._refused(claim, node)]

    def open_questions(self, spec: Manifest, workload: Workload) -> Iterable[tuple[str, str, str]]:
        """What is not known about the volumes of a pod: message, remedy and field of the pod's spec."""
        for name in _claim_names(spec):
            if (workload.namespace, name) not in self._claims and not _is_own(workload, name):
                yield f"the claim {name} is not declared", f"Declare the PersistentVolumeClaim {name}.", "volumes"
        made = map(self.with_default_class, workload.claims)
        for claim in [*self._claims_in(spec, workload.namespace), *made]:
            yield from self._open_question(claim)

    def _open_question(self, claim: Manifest) -> Iterable[tuple[str, str, str]]:
        if self._volume_of(claim) is not None:
            return
        name, spec = name_of(claim), section(claim, "spec")
        if bound := spec.get("volumeName"):
            message = f"the volume {bound} of claim {name} is not declared"
            yield message, f"Declare the PersistentVolume {bound}.", "volumes"
            return
        storage_class = spec.get("storageClassName")
        found = self._classes.get(storage_class or "")
        if found is None and not (storage_class == "" and self._candidates(claim)):
            message = f"the storage class {storage_class or '(none)'} of claim {name} is not declared"
            remedy = f"Declare the StorageClass {storage_class}." if storage_class else "Name a storage class."
            yield message, remedy, "volumes"
        elif found is not None and found.get("volumeBindingMode") != "WaitForFirstConsumer" and _is_zonal(found):
            yield (
                f"the storage class {storage_class} of claim {name} picks a zone before there is a pod",
                "Set volumeBindingMode: WaitForFirstConsumer.",
                "volumes",
            )

    def _claims_in(self, spec: Manifest, namespace: str) -> Iterable[Manifest]:
        for volume in items(spec, "volumes"):
            if template := section(volume, "ephemeral", "volumeClaimTemplate"):
                yield self.with_default_class(template)
        for name in _claim_names(spec):
            if claim := self._claims.get((namespace, name)):
                yield self.with_default_class(claim)

    def _volume_of(self, claim: Manifest) -> Manifest | None:
        """The volume that a claim is bound to, or will be: by its own choice or by the volume's."""
        if name := section(claim, "spec").get("volumeName"):
            return self._volumes.get(name)
        for volume in self._volumes.values():
            owner = section(volume, "spec", "claimRef")
            if owner and (owner.get("namespace", "default"), owner.get("name")) == (
                namespace_of(claim),
                name_of(claim),
            ):
                return volume
        return None

    def _refused(self, claim: Manifest, node: NodeClass) -> Iterable[Refusal]:
        volume = self._volume_of(claim)
        storage_class = self._classes.get(section(claim, "spec").get("storageClassName") or "")
        if volume is not None:
            yield from _volume_refused(volume, node, name_of(claim))
            storage_class = self._classes.get(section(volume, "spec").get("storageClassName") or "", storage_class)
        elif storage_class is not None or self._candidates(claim):
            yield from self._unbound_refused(claim, storage_class, node)
        if storage_class is not None:
            yield from _disk_refused(storage_class, node)

    def _candidates(self, claim: Manifest) -> list[Manifest]:
        """The free volumes that would satisfy a claim."""
        spec = section(claim, "spec")
        wanted = section(spec, "resources", "requests").get("storage", 0)
        return [
            volume
            for volume in self._volumes.values()
            if (section(volume, "spec").get("storageClassName") or "") == (spec.get("storageClassName") or "")
            and not section(volume, "spec", "claimRef")
            and set(_access_modes(claim)) <= set(_access_modes(volume))
            and milli(section(volume, "spec", "capacity").get("storage", 0)) >= milli(wanted)
        ]

    def _unbound_refused(self, claim: Manifest, storage_class: Manifest | None, node: NodeClass) -> Iterable[Refusal]:
        name = name_of(claim)
        if any(not list(_volume_refused(volume, node, name)) for volume in self._candidates(claim)):
            return
        if storage_class is None or storage_class.get("provisioner") == NO_PROVISIONER:
            yield Refusal("volume-zone", "volumes", f"no free volume for claim {name} is reachable from the node")
            return
        terms = items(storage_class, "allowedTopologies")
        if terms and not any(_in_topology(term, node.labels) for term in terms):
            message = f"storage class {name_of(storage_class)} makes no volume for claim {name} in the node's topology"
            yield Refusal("volume-zone", "volumes", message)


def _is_own(workload: Workload, name: str) -> bool:
    """Whether a volume of a pod is one of the claims that its StatefulSet makes."""
    return any(name_of(claim) == name for claim in workload.claims)


def _claim_names(spec: Manifest) -> list[str]:
    return [
        name for volume in items(spec, "volumes") if (name := section(volume, "persistentVolumeClaim").get("claimName"))
    ]


def _access_modes(holder: Manifest | None) -> list[str]:
    return section(holder or {}, "spec").get("accessModes") or []


def _is_zonal(storage_class: Manifest) -> bool:
    return storage_class.get("provisioner") in (DISK_DRIVER, NO_PROVISIONER, "kubernetes.io/gce-pd")


def _in_topology(term: Manifest, node_labels: Mapping[str, Any]) -> bool:
    return all(
        node_labels.get(expression["key"]) in (expression.get("values") or [])
        for expression in items(term, "matchLabelExpressions")
    )


def _volume_refused(volume: Manifest, node: NodeClass, claim: str) -> Iterable[Refusal]:
    required = section(volume, "spec", "nodeAffinity").get("required")
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if required is not None and not matches_node_affinity({"affinity": affinity}, node.manifest):
        yield Refusal(
            "volume-zone", "volumes", f"the volume {name_of(volume)} of claim {claim} is out of the node's reach"
        )
    if not any(key in node.labels for key in _TOPOLOGY_LABELS):
        return
    for key, value in labels_of(volume).items():
        if key in _TOPOLOGY_LABELS and node.labels.get(key) not in str(value).split("__"):
            at = node.labels.get(key, f"no {key}")
            yield Refusal("volume-zone", "volumes", f"the volume of claim {claim} is in {value}, the node in {at}")


def _disk_refused(storage_class: Manifest, node: NodeClass) -> Iterable[Refusal]:
    """Disks that the node's machine type is known not to attach; the scheduler does not look at that."""
    parameters = section(storage_class, "parameters")
    machine = machine_of(node)
    disk_type = parameters.get("type")
    if machine is None or disk_type is None or storage_class.get("provisioner") != DISK_DRIVER:
        return
    attaches = machine.attaches(disk_type, regional=parameters.get(_REPLICATION) == "regional-pd")
    if not attaches:
        known = ", ".join(machine.disk_types)
        verb = "does not attach" if attaches is False else "is not known to attach"
        message = (
            f"{machine.name} {verb} {disk_type} disks of storage class {name_of(storage_class)}; it attaches {known}"
        )
        yield Refusal("disk-type", "volumes", message, certain=attaches is False)
