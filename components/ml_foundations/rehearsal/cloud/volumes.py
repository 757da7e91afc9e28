"""GKE's CSI drivers, as far as they show: a disk is made where its first pod runs, if it attaches there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.disks import DISK_TYPES, PD_CSI, class_facts
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.planning.model.storage import allowed_zones, claim_names
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud.events import Recorder, reference
from ml_foundations.rehearsal.cloud.informer import Informer, attempt

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotations by which the controller manager asks for a volume, and the scheduler for one on a node."""

_FIRST_CONSUMER = "WaitForFirstConsumer"
"""The binding mode of classes whose volumes are made where the first pod runs."""

_NODE_PREFIX = "gke-"
"""Disks for other nodes, and those that wait for no node, are provisioned by the stage claim-provision."""

_DRIVERS = ".csi.storage.gke.io"
"""How the names of GKE's drivers end. Those of file systems make volumes that all nodes reach, that of buckets none."""


class Disks:
    """Provisions the claims of pods on simulated GKE nodes, and sets the reclaim policy of their class."""

    def __init__(self, api: Api, claims: Informer, volumes: Informer, classes: Informer) -> None:
        self._api, self._claims, self._volumes, self._classes = api, claims, volumes, classes
        self._recorder = Recorder(api, "attachdetach-controller")
        self._provisioner = Recorder(api, "external-provisioner")

    def reconcile(
        self, nodes: Iterable[Object], pods: Iterable[Object], lacks: Iterable[str]
    ) -> None:
        """One round: a volume for each claim that waits for one, or the reason why there is none.

        Claims of the drivers that the cluster lacks go on waiting, as the controller manager tells.
        """
        classes = {name_of(item): item for item in self._classes.items()}
        if waiting := [
            claim for claim in self._claims.items() if _awaited(claim) not in (*lacks, "")
        ]:
            by_name = {name_of(node): node for node in nodes}
            populated = sorted(
                {
                    zone
                    for node in by_name.values()
                    if (zone := labels_of(node).get(labels.GKE_ZONE))
                }
            )
            for claim in waiting:
                found = classes.get(claim["spec"].get("storageClassName", ""))
                node = by_name.get(annotations_of(claim).get(_SELECTED_NODE, ""))
                with attempt(f"the volume of claim {name_of(claim)}"):
                    if found and (refused := _mode_refusal(claim, found)):
                        self._provisioner.warn(
                            claim, "PersistentVolumeClaim", "ProvisioningFailed", refused
                        )
                    elif found and _awaited(claim) != PD_CSI:
                        self._api.ensure(VOLUMES, _volume(claim, found, []))
                    elif found and node:
                        self._provision(claim, found, node, populated, pods)
        self._keep_policies(classes)

    def zones(self, pod: Mapping[str, Any]) -> frozenset[str] | None:
        """The zones in which a pod reaches all its disks, those to be made included; None where any zone will do.

        Empty where a claim is missing, or is bound without regard to its pods: no new node would help.
        """
        names = claim_names(pod["spec"])
        claims = (
            {(namespace_of(item), name_of(item)): item for item in self._claims.items()}
            if names
            else {}
        )
        found: frozenset[str] | None = None
        for name in names:
            zones = self._zones_of(claims.get((namespace_of(pod), name)))
            if zones is not None:
                found = frozenset(zones) if found is None else found & frozenset(zones)
        return found

    def _zones_of(self, claim: Object | None) -> Sequence[str] | None:
        spec = section(claim or {}, "spec")
        if bound := spec.get("volumeName"):
            return next(
                (_volume_zones(item) for item in self._volumes.items() if name_of(item) == bound),
                None,
            )
        wanted = spec.get("storageClassName", "")
        found = next(
            (item for item in self._classes.items() if claim and name_of(item) == wanted), {}
        )
        return (
            (allowed_zones(found) or None)
            if found.get("volumeBindingMode") == _FIRST_CONSUMER
            else ()
        )

    def _provision(
        self,
        claim: Object,
        storage_class: Object,
        node: Object,
        populated: Sequence[str],
        pods: Iterable[Object],
    ) -> None:
        if reason := _refusal(storage_class, labels_of(node)[labels.INSTANCE_TYPE]):
            self._recorder.warn(claim, "PersistentVolumeClaim", "FailedAttachVolume", reason)
            for pod in pods:
                if namespace_of(pod) == namespace_of(claim) and name_of(claim) in claim_names(
                    pod["spec"]
                ):
                    self._recorder.warn(pod, "Pod", "FailedAttachVolume", reason)
            return
        zones = zones_of_disk(storage_class, labels_of(node)[labels.GKE_ZONE], populated)
        self._api.ensure(VOLUMES, _volume(claim, storage_class, zones))

    def _keep_policies(self, classes: Mapping[str, Object]) -> None:
        """Set what the stage that provisions the other claims does not know: their classes' policies."""
        for item in self._volumes.items():
            storage_class = classes.get(item["spec"].get("storageClassName", ""))
            if storage_class is None or "pv.kubernetes.io/provisioned-by" not in annotations_of(
                item
            ):
                continue
            policy = storage_class.get("reclaimPolicy", "Delete")
            # Once the class says Retain, an administrator may have said Retain for one volume as well.
            if policy == "Retain" != item["spec"].get("persistentVolumeReclaimPolicy"):
                patch = {"spec": {"persistentVolumeReclaimPolicy": policy}}
                with attempt(f"the reclaim policy of volume {name_of(item)}"):
                    self._api.patch(f"{VOLUMES}/{name_of(item)}", patch)


def _disk_of(storage_class: Object) -> str:
    """The disk type of a class (kubernetes-sigs/gcp-compute-persistent-disk-csi-driver: pd-standard by default)."""
    return section(storage_class, "parameters").get("type", "pd-standard")


def _is_regional(storage_class: Object) -> bool:
    return section(storage_class, "parameters").get("replication-type") == "regional-pd"


def _describe(storage_class: Object) -> str:
    where = "regional " if _is_regional(storage_class) else ""
    return f"the {where}{_disk_of(storage_class)} of class {name_of(storage_class)}"


def _refusal(storage_class: Object, machine: str) -> str:
    """Why a machine type is not given the disks of a class; empty where nothing is known against it."""
    disk, known = _disk_of(storage_class), MACHINE_TYPES.get(machine)
    if known and known.attaches(disk, regional=_is_regional(storage_class)) is False:
        return f"{_describe(storage_class)} does not attach to {machine}"
    return (
        ""
        if disk in DISK_TYPES
        else f"{_describe(storage_class)} is not known to attach to {machine}"
    )


def _mode_refusal(claim: Object, storage_class: Object) -> str:
    """Return the provisioner's words for an access mode that its disks do not have; empty if they have all.

    Source: kubernetes-sigs/gcp-compute-persistent-disk-csi-driver, pkg/gce-pd-csi-driver/controller.go. Block devices
    may have several writers.
    """
    facts = class_facts(storage_class.get("provisioner"), section(storage_class, "parameters"))
    if facts is None or claim["spec"].get("volumeMode") == "Block":
        return ""
    lacking = [mode for mode in claim["spec"]["accessModes"] if mode not in facts.access_modes]
    if not lacking:
        return ""
    return (
        f'failed to provision volume with StorageClass "{name_of(storage_class)}": rpc error: code = InvalidArgument '
        f"desc = VolumeCapabilities is invalid: {_describe(storage_class)} has no access mode {', '.join(lacking)}"
    )


def zones_of_disk(storage_class: Object, zone: str, populated: Sequence[str]) -> list[str]:
    """Where the driver makes a disk for a pod in a zone: there, and a replicated one in a second zone as well."""
    replicated = _is_regional(storage_class) or DISK_TYPES[_disk_of(storage_class)].always_regional
    others = [other for other in allowed_zones(storage_class) or populated if other != zone]
    return [zone, *others[:1]] if replicated else [zone]


def _volume_zones(volume: Object) -> Sequence[str] | None:
    """The zones in which a volume can be used; None where it can be used in all."""
    parts = items(section(volume, "spec", "nodeAffinity", "required"), "nodeSelectorTerms")
    terms = [term for part in parts for term in items(part, "matchExpressions")]
    zoned = [term for term in terms if (term["key"], term["operator"]) == (labels.GKE_ZONE, "In")]
    return [zone for term in zoned for zone in term["values"]] or None


def _volume(claim: Object, storage_class: Object, zones: Sequence[str]) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    place = {
        "matchExpressions": [{"key": labels.GKE_ZONE, "operator": "In", "values": list(zones)}]
    }
    driver = annotations_of(claim)[_PROVISIONER]
    return {
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": name_of(storage_class),
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "claimRef": reference(claim, "PersistentVolumeClaim"),
            "csi": {"driver": driver, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}} if zones else None,
        },
    }


def _awaited(claim: Object) -> str:
    """The driver of GKE's that is to make the claim's volume; empty where there is one, or another makes it."""
    found = annotations_of(claim)
    driver = found.get(_PROVISIONER, "")
    on_gke = driver != PD_CSI or found.get(_SELECTED_NODE, "").startswith(_NODE_PREFIX)
    is_made = (
        driver.endswith(_DRIVERS)
        and driver != labels.GCS_FUSE_DRIVER
        and not claim["spec"].get("volumeName")
    )
    return driver if on_gke and is_made else ""
