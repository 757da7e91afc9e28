"""Questions about one claim, volume or storage class, as the volume controller answers them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.catalog.disks import FILESTORE_CSI
from ml_foundations.kinds.kind import at
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    section,
    text_of,
    texts,
)
from ml_foundations.kubernetes.quantities import milli
from ml_foundations.kubernetes.selectors import REQUIRED, selects, selects_node
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal

TOPOLOGY_LABELS = {labels.ZONE, labels.REGION, labels.OLD_ZONE, labels.OLD_REGION}
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_EQUAL_FIELDS = {"volumeMode": "Filesystem", "volumeAttributesClassName": ""}
"""The fields that a claim and its volume must have alike, with the defaults."""
_FIELDS_OF_CLAIMS = {
    "spec.capacity.storage": "spec.resources.requests.storage",
    "metadata.labels": "spec.selector",
    "metadata.name": "spec.volumeName",
}
"""The fields of volumes that others of claims are compared with."""
_IN_EVERY_ZONE = "enable-multi-zone-provisioning"
"""The parameter of a class whose volumes are a disk in each zone (GKE, "Hyperdisk ML")."""


class StorageClasses:
    """The storage classes of a cluster: GKE's own and the declared ones."""

    def __init__(self, of_gke: Mapping[str, Manifest], declared: Mapping[str, Manifest]) -> None:
        self.by_name = {**of_gke, **declared}
        # Of several defaults, the API server takes the one that was created last: GKE's own class
        # is older than those of a program.
        defaults = _defaults(declared) or _defaults(self.by_name)
        self._default = defaults[0] if len(defaults) == 1 else None

    def of(self, claim_or_volume: Manifest) -> Manifest:
        """Return the class of a claim or a volume; empty if it is not known."""
        return self.by_name.get(class_name(claim_or_volume), {})

    def with_default(self, claim: Manifest) -> Manifest:
        """Return a claim as the API server stores it: with the default class if it names none."""
        spec = section(claim, "spec")
        if self._default is None or spec.get("storageClassName") is not None:
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}

    def waits(self, claim: Manifest) -> bool:
        """Return whether a claim gets its volume only when a pod mounts it."""
        mode = self.of(claim).get("volumeBindingMode")
        return mode == "WaitForFirstConsumer" and not section(claim, "spec").get("volumeName")

    def makes_volume(self, claim: Manifest, node: NodeClass | None = None) -> bool:
        """Return whether a volume is made for a claim that finds none: anywhere, or for a node."""
        storage_class = self.of(claim)
        provisioner = storage_class.get("provisioner")
        if not storage_class or provisioner == _NO_PROVISIONER:
            return False
        if section(claim, "spec").get("volumeName"):
            return False
        if provisioner == FILESTORE_CSI and not self.waits(claim):
            # It is made before there is a pod, and the driver limits no volume to a zone.
            return True
        terms = items(storage_class, "allowedTopologies")
        return not (node and terms) or any(_in_topology(term, node.labels) for term in terms)


def _defaults(classes: Mapping[str, Manifest]) -> list[str]:
    return [n for n, c in classes.items() if annotations_of(c).get(_DEFAULT_CLASS) == "true"]


def _in_topology(term: Manifest, node_labels: Mapping[str, Any]) -> bool:
    for expression in items(term, "matchLabelExpressions"):
        if node_labels.get(text_of(expression, "key")) not in texts(expression, "values"):
            return False
    return True


def class_name(claim_or_volume: Manifest) -> str:
    """Return the name of the storage class of a claim or a volume, or nothing."""
    name = section(claim_or_volume, "spec").get("storageClassName") or ""
    return "" if isinstance(name, dict | list) else name


def allowed_zones(storage_class: Manifest) -> list[str]:
    """Return the zones that a class of disks allows; none if it allows all."""
    zones: list[str] = []
    for topology in items(storage_class, "allowedTopologies"):
        for term in items(topology, "matchLabelExpressions"):
            if term.get("key") == labels.GKE_ZONE:
                zones += texts(term, "values")
    return zones


def copies_of(storage_class: Manifest) -> int:
    """Return how many disks are made for a claim: one, or one in each zone."""
    is_in_every_zone = section(storage_class, "parameters").get(_IN_EVERY_ZONE) == "true"
    return max(len(allowed_zones(storage_class)), 1) if is_in_every_zone else 1


def claim_names(spec: Manifest) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    names: list[str] = []
    for volume in items(spec, "volumes"):
        if name := section(volume, "persistentVolumeClaim").get("claimName"):
            names.append(name)
    return names


def claim_of(volume: Manifest) -> tuple[str, str] | None:
    """Return the namespace and the name of the claim that a volume is kept for."""
    owner = section(volume, "spec", "claimRef")
    phase = section(volume, "status").get("phase", "Released" if owner.get("uid") else "Available")
    # A Released volume is kept for no claim, and is not free either.
    if not owner or phase == "Released":
        return None
    return text_of(owner, "namespace") or "default", text_of(owner, "name")


def is_free(volume: Manifest) -> bool:
    """Return whether a volume is kept for no claim, and can be bound to one."""
    # A Pending volume is a new one, which becomes Available.
    phase = section(volume, "status").get("phase", "Available")
    return phase in ("Available", "Pending") and not section(volume, "spec", "claimRef")


def access_modes(claim_or_volume: Manifest) -> list[str]:
    """Return the access modes of a claim or a volume."""
    return section(claim_or_volume, "spec").get("accessModes") or []


def size_of(volume: Manifest) -> int:
    """Return the size of a volume in thousandths of a byte; 0 if it is not known or no number."""
    size = section(volume, "spec", "capacity").get("storage", 0)
    return milli(size) if isinstance(size, str | int | float) else 0


def is_large_enough(volume: Manifest, claim: Manifest) -> bool:
    """Return whether a volume has the size and the modes that a claim asks for."""
    actual = section(volume, "spec")
    claimed = section(claim, "spec")
    for key, default in _EQUAL_FIELDS.items():
        if (actual.get(key) or default) != (claimed.get(key) or default):
            return False
    if not set(access_modes(claim)) <= set(access_modes(volume)):
        return False
    return size_of(volume) >= milli(section(claimed, "resources", "requests").get("storage"))


def satisfies(volume: Manifest, claim: Manifest) -> bool:
    """Return whether a free volume can be bound to a claim."""
    if class_name(volume) != class_name(claim) or not is_large_enough(volume, claim):
        return False
    claimed = section(claim, "spec")
    # A claim that names its volume needs no labels of it.
    if name := claimed.get("volumeName"):
        return name == name_of(volume)
    selector = claimed.get("selector")
    return selector is None or selects(selector, labels_of(volume))


def mismatch(volume: Manifest, claim: Manifest) -> str:
    """Return which field of a volume keeps it from being bound to a claim, and of the claim."""
    actual = section(volume, "spec")
    claimed = section(claim, "spec")
    of_volume = f"PersistentVolume {name_of(volume)}"
    of_claim = f"PersistentVolumeClaim {name_of(claim)}"
    if owner := section(actual, "claimRef"):
        kept_for = f"{owner.get('namespace')}/{owner.get('name')}"
        return f"spec.claimRef of {of_volume} is of claim {kept_for}"
    if not is_free(volume):
        return f"status.phase of {of_volume} is {section(volume, 'status').get('phase')}"
    size = section(claimed, "resources", "requests").get("storage")
    selector = claimed.get("selector")
    agree = {
        "spec.storageClassName": class_name(volume) == class_name(claim),
        "spec.accessModes": {*access_modes(claim)} <= {*access_modes(volume)},
        "spec.capacity.storage": size_of(volume) >= milli(size),
        "metadata.labels": selector is None or selects(selector, labels_of(volume)),
    }
    for key, default in _EQUAL_FIELDS.items():
        agree[f"spec.{key}"] = (actual.get(key) or default) == (claimed.get(key) or default)
    field = next((field for field, agrees in agree.items() if not agrees), "metadata.name")
    claim_field = _FIELDS_OF_CLAIMS.get(field, field)
    values = [json.dumps(at(volume, field) or ""), json.dumps(at(claim, claim_field) or "")]
    return f"{field} of {of_volume} is {values[0]}, and {claim_field} of {of_claim} is {values[1]}"


def is_selected(node: NodeClass, volume: Manifest) -> bool:
    """Return whether a volume's node affinity selects a node."""
    required = section(volume, "spec", "nodeAffinity").get("required")
    return selects_node({"affinity": {"nodeAffinity": {REQUIRED: required}}}, node.manifest)


def reach_refusals(volume: Manifest, node: NodeClass, claim: str) -> Iterable[Refusal]:
    """Yield why a node does not reach the volume of a claim: by node affinity, or by its labels."""
    if not is_selected(node, volume):
        message = f"the volume {name_of(volume)} of claim {claim} is out of the node's reach"
        yield Refusal("volume-zone", "volumes", message)
    if TOPOLOGY_LABELS.isdisjoint(node.labels):
        return
    for key, value in labels_of(volume).items():
        # A regional volume has the names of its zones in one label: a__b.
        if key in TOPOLOGY_LABELS and node.labels.get(key) not in str(value).split("__"):
            actual = node.labels.get(key, f"no {key}")
            message = f"the volume of claim {claim} is in {value}, the node in {actual}"
            yield Refusal("volume-zone", "volumes", message)


def is_reached(volume: Manifest, node: NodeClass) -> bool:
    """Return whether a node reaches a volume."""
    return not any(reach_refusals(volume, node, ""))
