"""Where volumes let pods run: zones and nodes of volumes, topologies of classes, disks that machines attach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.disks import PD_CSI, ClassFacts, class_facts
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import (
    UNKNOWN,
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
    unknown_paths,
)
from ml_foundations.kubernetes.quantities import milli
from ml_foundations.kubernetes.selectors import REQUIRED, selects_node
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import Workload

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONAL_PROVISIONERS = (PD_CSI, _NO_PROVISIONER, "kubernetes.io/gce-pd")
_TOPOLOGY_LABELS = (labels.ZONE, labels.REGION, labels.OLD_ZONE, labels.OLD_REGION)
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Volumes:
    """The claims, volumes and storage classes that are declared.

    Attributes:
        claims: The claims, as the API server stores them.
    """

    def __init__(self, by_kind: Mapping[str, Sequence[Manifest]]) -> None:
        self._volumes = {name_of(volume): volume for volume in by_kind.get("PersistentVolume", ())}
        self._classes = {name_of(c): c for c in by_kind.get("StorageClass", ())}
        self._default = next(
            (n for n, c in self._classes.items() if annotations_of(c).get(_DEFAULT_CLASS) == "true"), None
        )
        self.claims = [self.with_default_class(claim) for claim in by_kind.get("PersistentVolumeClaim", ())]
        self._claims = {(namespace_of(claim), name_of(claim)): claim for claim in self.claims}

    def with_default_class(self, claim: Manifest) -> Manifest:
        """A claim as the API server stores it: one that names no class gets the default one."""
        spec = section(claim, "spec")
        if self._default is None or spec.get("storageClassName") is not None:
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}

    def claims_of(self, workload: Workload) -> list[Manifest]:
        """The declared claims that a workload's pods mount."""
        names = {name for pods in workload.pods for name in claim_names(pods.spec)}
        return [claim for name in sorted(names) if (claim := self._claims.get((workload.namespace, name)))]

    def exclusive_claims(self, spec: Manifest, namespace: str) -> frozenset[str]:
        """The claims of a pod that only one pod may use at a time."""
        return frozenset(
            f"{namespace}/{name}"
            for name in claim_names(spec)
            if "ReadWriteOncePod" in _access_modes(self._claims.get((namespace, name), {}))
        )

    def on_one_node(self, workload: Workload) -> list[str]:
        """The claims that a workload's pods mount and that one node at a time may attach."""
        return [name_of(c) for c in self.claims_of(workload) if set(_access_modes(c)) == {"ReadWriteOnce"}]

    def refusals(self, spec: Manifest, workload: Workload) -> Callable[[NodeClass], list[Refusal]] | None:
        """Why volumes keep pods from nodes, as a function of the node; None for pods without such volumes."""
        claims = [*self._claims_in(spec, workload.namespace), *workload.claims]
        if not claims:
            return None
        return lambda node: [_as_known(r, node) for claim in claims for r in self._refused(claim, node)]

    def unused(self, workloads: Iterable[Workload]) -> list[Manifest]:
        """The declared claims that no pod of some workloads mounts."""
        used = {id(claim) for workload in workloads for claim in self.claims_of(workload)}
        return [claim for claim in self.claims if id(claim) not in used]

    def class_refusals(self, claim: Manifest) -> Iterable[Refusal]:
        """Why the driver of a claim's class gives it no volume; where it gives a larger one, that is not certain."""
        spec, name, storage_class = section(claim, "spec"), name_of(claim), self._class_of(claim) or {}
        facts = _facts(storage_class)
        if facts is None or any(unknown_paths(spec)):
            return
        volume, driver = self._volume_of(claim), storage_class.get("provisioner")
        is_made = volume is None and not spec.get("volumeName") and not self._candidates(claim)
        if not is_made and section(volume or {}, "spec", "csi").get("driver") != driver:
            return
        about = f"PersistentVolumeClaim {namespace_of(claim)}/{name}" if claim in self.claims else ""
        of_class = f"volumes of the class {name_of(storage_class)}"
        for mode in _access_modes(claim) if spec.get("volumeMode") != "Block" else ():
            if mode not in facts.access_modes:
                message = f"the claim {name} asks for {mode}, and {of_class} are {' or '.join(facts.access_modes)}"
                others = [n for n, c in self._classes.items() if (f := _facts(c)) and mode in f.access_modes]
                known = " or ".join(others) or "no class that is declared"
                remedy = f"Ask for another access mode, or for another class: {mode} is given by {known}."
                yield Refusal("volume-class", "spec.accessModes", message, remedy, object=about)
        wanted = section(spec, "resources", "requests").get("storage")
        if is_made and wanted and facts.smallest and milli(wanted) < milli(facts.smallest):
            message = f"the claim {name} asks for {wanted}, and {of_class} have at least {facts.smallest}"
            remedy = f"Ask for {facts.smallest} or more, or for another class."
            path = "spec.resources.requests.storage"
            yield Refusal("volume-class", path, message, remedy, certain=not facts.raises, object=about)

    def not_known(self, spec: Manifest, workload: Workload) -> Iterable[Refusal]:
        """What is not declared of a pod's volumes, and would decide."""
        own = {name_of(claim) for claim in workload.claims}
        for name in claim_names(spec):
            if (workload.namespace, name) not in self._claims and name not in own:
                yield _not_known(f"the claim {name} is not declared", f"Declare the PersistentVolumeClaim {name}.")
        for claim in (*self._claims_in(spec, workload.namespace), *workload.claims):
            if self._volume_of(claim) is None:
                yield from self._not_known_of(claim)

    def _not_known_of(self, claim: Manifest) -> Iterable[Refusal]:
        name, spec = name_of(claim), section(claim, "spec")
        wanted = spec.get("storageClassName")
        found = self._classes.get(wanted or "")
        if bound := spec.get("volumeName"):
            message = f"the volume {bound} of claim {name} is not declared"
            yield _not_known(message, f"Declare the PersistentVolume {bound}.")
        elif found is None and not (wanted == "" and self._candidates(claim)):
            message = f"the storage class {wanted or '(none)'} of claim {name} is not declared"
            yield _not_known(message, f"Declare the StorageClass {wanted}." if wanted else "Name a storage class.")
        elif (
            found is not None
            and found.get("volumeBindingMode") != "WaitForFirstConsumer"
            and found.get("provisioner") in _ZONAL_PROVISIONERS
        ):
            message = f"the storage class {wanted} of claim {name} picks a zone before there is a pod"
            yield _not_known(message, "Set volumeBindingMode: WaitForFirstConsumer.")

    def _claims_in(self, spec: Manifest, namespace: str) -> Iterable[Manifest]:
        for volume in items(spec, "volumes"):
            if template := section(volume, "ephemeral", "volumeClaimTemplate"):
                # Its claim has the names of pod and volume (Kubernetes, "Ephemeral Volumes").
                named = {"metadata": {**section(template, "metadata"), "name": f"<pod>-{volume.get('name')}"}}
                yield self.with_default_class({**template, **named})
        for name in claim_names(spec):
            if claim := self._claims.get((namespace, name)):
                yield claim

    def _volume_of(self, claim: Manifest) -> Manifest | None:
        """The volume that a claim is bound to, or will be: by its own choice or by the volume's."""
        if name := section(claim, "spec").get("volumeName"):
            return self._volumes.get(name)
        mine = namespace_of(claim), name_of(claim)
        for volume in self._volumes.values():
            owner = section(volume, "spec", "claimRef")
            if owner and (owner.get("namespace", "default"), owner.get("name")) == mine:
                return volume
        return None

    def _refused(self, claim: Manifest, node: NodeClass) -> Iterable[Refusal]:
        volume = self._volume_of(claim)
        storage_class = self._class_of(claim)
        if volume is not None:
            yield from _volume_refused(volume, node, name_of(claim))
            storage_class = self._class_of(volume) or storage_class
        elif storage_class is not None or self._candidates(claim):
            yield from self._unbound_refused(claim, storage_class, node)
        if storage_class is not None:
            yield from _disk_refused(storage_class, node)

    def _class_of(self, claim_or_volume: Manifest) -> Manifest | None:
        return self._classes.get(section(claim_or_volume, "spec").get("storageClassName") or "")

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
        if storage_class is None or storage_class.get("provisioner") == _NO_PROVISIONER:
            yield Refusal("volume-zone", "volumes", f"no free volume for claim {name} is reachable from the node")
            return
        terms = items(storage_class, "allowedTopologies")
        if terms and not any(_in_topology(term, node.labels) for term in terms):
            message = f"storage class {name_of(storage_class)} makes no volume for claim {name} in the node's topology"
            yield Refusal("volume-zone", "volumes", message)


def _facts(storage_class: Manifest) -> ClassFacts | None:
    return class_facts(storage_class.get("provisioner"), section(storage_class, "parameters"))


def _as_known(refusal: Refusal, node: NodeClass) -> Refusal:
    """A zone that nobody has said may be the right one."""
    is_open = node.labels.get(labels.ZONE) is UNKNOWN and not node.zones
    return refusal._replace(certain=False) if is_open and refusal.rule == "volume-zone" else refusal


def _not_known(message: str, remedy: str) -> Refusal:
    return Refusal("beyond-planning", "volumes", message, remedy, certain=False)


def claim_names(spec: Manifest) -> list[str]:
    """The claims that a pod names."""
    return [
        name for volume in items(spec, "volumes") if (name := section(volume, "persistentVolumeClaim").get("claimName"))
    ]


def _access_modes(claim_or_volume: Manifest) -> list[str]:
    return section(claim_or_volume, "spec").get("accessModes") or []


def _in_topology(term: Manifest, node_labels: Mapping[str, Any]) -> bool:
    return all(
        node_labels.get(expression["key"]) in (expression.get("values") or [])
        for expression in items(term, "matchLabelExpressions")
    )


def _volume_refused(volume: Manifest, node: NodeClass, claim: str) -> Iterable[Refusal]:
    required = section(volume, "spec", "nodeAffinity").get("required")
    if not selects_node({"affinity": {"nodeAffinity": {REQUIRED: required}}}, node.manifest):
        message = f"the volume {name_of(volume)} of claim {claim} is out of the node's reach"
        yield Refusal("volume-zone", "volumes", message)
    if not any(key in node.labels for key in _TOPOLOGY_LABELS):
        return
    for key, value in labels_of(volume).items():
        if key in _TOPOLOGY_LABELS and node.labels.get(key) not in str(value).split("__"):
            at = node.labels.get(key, f"no {key}")
            yield Refusal("volume-zone", "volumes", f"the volume of claim {claim} is in {value}, the node in {at}")


def _disk_refused(storage_class: Manifest, node: NodeClass) -> Iterable[Refusal]:
    """Disks that the node's machine type is known not to attach; the scheduler does not look at that."""
    parameters, machine = section(storage_class, "parameters"), machine_of(node)
    disk_type = parameters.get("type")
    if machine is None or disk_type is None or storage_class.get("provisioner") != PD_CSI:
        return
    attaches = machine.attaches(disk_type, regional=parameters.get("replication-type") == "regional-pd")
    if not attaches:
        verb = "does not attach" if attaches is False else "is not known to attach"
        message = (
            f"{machine.name} {verb} {disk_type} disks of storage class {name_of(storage_class)}; "
            f"it attaches {', '.join(machine.disk_types)}"
        )
        yield Refusal("disk-type", "volumes", message, certain=attaches is False)
