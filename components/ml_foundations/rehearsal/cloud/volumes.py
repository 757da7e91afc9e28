"""GKE's CSI drivers: they provision a disk in the zone of its first pod, if it attaches there."""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_foundations.catalog.disks import DISK_TYPES, PD_CSI, class_facts, disk_types_of
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.kubernetes import labels, objects
from ml_foundations.kubernetes.objects import items, labels_of, name_of, namespace_of, section
from ml_foundations.planning.model.storage import allowed_zones, claim_names
from ml_foundations.rehearsal.api import Object, by_name, existing, path_in
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.events import Recorder, reference
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.statuses import set_status

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

_SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshots"

_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
"""The annotation with which the controller manager asks a driver for a volume."""
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation with which the scheduler asks for a volume that is available on a node."""
_NODE_PREFIX = "gke-"
"""The stage claim-provision makes the disks for other nodes, and those with Immediate binding."""
_DRIVERS = ".csi.storage.gke.io"
"""The suffix of GKE's drivers. All nodes reach volumes of file systems; buckets need no volumes."""


class VolumeProvisioner(Controller):
    """Provisions the claims of pods on simulated GKE nodes, and keeps the reclaim policies."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._claims = cluster.watch(CLAIMS)
        self._volumes = cluster.watch(VOLUMES)
        self._classes = cluster.watch(CLASSES)
        self._attacher = Recorder(cluster.api, "attachdetach-controller")
        self._provisioner = Recorder(cluster.api, "external-provisioner")

    def reconcile(self) -> None:
        """Create a volume for each claim that waits for one, or report why it gets none."""
        classes = by_name(self._classes.items())
        # The controller manager reports the claims of missing drivers, which stay pending.
        ignored = {*self.cluster.missing_drivers, ""}
        waiting = [claim for claim in self._claims.items() if _driver_of(claim) not in ignored]
        if waiting:
            node_by_name = by_name(self.cluster.nodes.items())
            named_zones = {labels_of(node).get(labels.GKE_ZONE) for node in node_by_name.values()}
            zones = sorted(filter(None, named_zones))
            for claim in waiting:
                storage_class = classes.get(claim["spec"].get("storageClassName", ""))
                node = node_by_name.get(objects.annotations_of(claim).get(_SELECTED_NODE, ""))
                with attempt(f"the volume of claim {name_of(claim)}"):
                    if storage_class:
                        self._provision(claim, storage_class, node, zones)
        self._keep_policies(classes)
        self._take_snapshots()

    def _provision(
        self,
        claim: Object,
        storage_class: Object,
        node: Object | None,
        node_zones: Sequence[str],
    ) -> None:
        if reason := _mode_refusal(claim, storage_class):
            self._provisioner.warn(claim, "PersistentVolumeClaim", "ProvisioningFailed", reason)
        elif _driver_of(claim) != PD_CSI:
            self.api.ensure(VOLUMES, _volume(claim, storage_class, []))
        elif node is None:
            return
        elif reason := _attach_refusal(storage_class, labels_of(node)[labels.INSTANCE_TYPE]):
            self._attacher.warn(claim, "PersistentVolumeClaim", "FailedAttachVolume", reason)
            for pod in self.cluster.pods:
                is_in_namespace = namespace_of(pod) == namespace_of(claim)
                if is_in_namespace and name_of(claim) in claim_names(pod["spec"]):
                    self._attacher.warn(pod, "Pod", "FailedAttachVolume", reason)
        else:
            zones = zones_of_disk(storage_class, labels_of(node)[labels.GKE_ZONE], node_zones)
            self.api.ensure(VOLUMES, _volume(claim, storage_class, zones))

    def _take_snapshots(self) -> None:
        """Mark each VolumeSnapshot whose claim has a volume as taken."""
        claims = [claim for claim in self._claims.items() if claim["spec"].get("volumeName")]
        bound = {(namespace_of(claim), name_of(claim)) for claim in claims}
        for snapshot in existing(self.api, _SNAPSHOTS):
            source = section(snapshot, "spec", "source").get("persistentVolumeClaimName")
            if (namespace_of(snapshot), source) in bound:
                set_status(self.api, _SNAPSHOTS, snapshot, {"readyToUse": True})

    def zones(self, pod: Mapping[str, Any]) -> frozenset[str] | None:
        """Return the zones in which a pod reaches all its disks, or None for all zones.

        Disks that do not exist yet count, too. The set is empty if no new node would help: a claim
        is missing, or is bound without regard to its pods.
        """
        names = claim_names(pod["spec"])
        if not names:
            return None
        claims = {(namespace_of(item), name_of(item)): item for item in self._claims.items()}
        zones = [self._zones_of(claims.get((namespace_of(pod), name))) for name in names]
        limits = [frozenset(limit) for limit in zones if limit is not None]
        return frozenset.intersection(*limits) if limits else None

    def _zones_of(self, claim: Object | None) -> Sequence[str] | None:
        """Return the zones from which a claim's volume can be used, or None for all zones."""
        if claim is None:
            return ()
        spec = section(claim, "spec")
        if bound := spec.get("volumeName"):
            volume = by_name(self._volumes.items()).get(bound, {})
            affinity = section(volume, "spec", "nodeAffinity", "required")
            zones: list[str] = []
            for term in items(affinity, "nodeSelectorTerms"):
                for expression in items(term, "matchExpressions"):
                    if (expression["key"], expression["operator"]) == (labels.GKE_ZONE, "In"):
                        zones += expression["values"]
            return zones or None
        storage_class = by_name(self._classes.items()).get(spec.get("storageClassName", ""))
        if storage_class and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
            return allowed_zones(storage_class) or None
        return ()

    def _keep_policies(self, classes: Mapping[str, Object]) -> None:
        """Set the reclaim policy of volumes: the stage claim-provision does not know it."""
        for volume in self._volumes.items():
            storage_class = classes.get(volume["spec"].get("storageClassName", ""))
            is_provisioned = "pv.kubernetes.io/provisioned-by" in objects.annotations_of(volume)
            if storage_class is None or not is_provisioned:
                continue
            policy = storage_class.get("reclaimPolicy", "Delete")
            # If the class says Delete, an administrator may have set Retain for this volume alone.
            if policy == "Retain" != volume["spec"].get("persistentVolumeReclaimPolicy"):
                patch = {"spec": {"persistentVolumeReclaimPolicy": policy}}
                with attempt(f"the reclaim policy of volume {name_of(volume)}"):
                    self.api.patch(path_in(VOLUMES, volume), patch)


def _disks_of(storage_class: Object) -> list[str]:
    """Return the disk types that a disk of a class may have."""
    return disk_types_of(section(storage_class, "parameters"))


def _is_regional(storage_class: Object) -> bool:
    return section(storage_class, "parameters").get("replication-type") == "regional-pd"


def _describe(storage_class: Object) -> str:
    regional = "regional " if _is_regional(storage_class) else ""
    return (
        f"the {regional}{' or '.join(_disks_of(storage_class))} of class {name_of(storage_class)}"
    )


def _attach_refusal(storage_class: Object, machine: str) -> str:
    """Return why a disk of a class does not attach to a machine type; empty if nothing is known."""
    disks = _disks_of(storage_class)
    machine_type = MACHINE_TYPES.get(machine)
    regional = _is_regional(storage_class)
    if machine_type and all(
        machine_type.attaches(disk, regional=regional) is False for disk in disks
    ):
        return f"{_describe(storage_class)} does not attach to {machine}"
    if DISK_TYPES.keys().isdisjoint(disks):
        return f"{_describe(storage_class)} is not known to attach to {machine}"
    return ""


def _mode_refusal(claim: Object, storage_class: Object) -> str:
    """Return the provisioner's error for an access mode that its disks do not have, or nothing."""
    # As in kubernetes-sigs/gcp-compute-persistent-disk-csi-driver, gce-pd-csi-driver/controller.go.
    # Block devices may have several writers.
    facts = class_facts(storage_class.get("provisioner"), section(storage_class, "parameters"))
    if facts is None or claim["spec"].get("volumeMode") == "Block":
        return ""
    missing = [mode for mode in claim["spec"]["accessModes"] if mode not in facts.access_modes]
    if not missing:
        return ""
    failure = f'failed to provision volume with StorageClass "{name_of(storage_class)}"'
    code = "rpc error: code = InvalidArgument desc = VolumeCapabilities is invalid"
    reason = f"{_describe(storage_class)} has no access mode {', '.join(missing)}"
    return f"{failure}: {code}: {reason}"


def zones_of_disk(storage_class: Object, zone: str, node_zones: Sequence[str]) -> list[str]:
    """Return the zones of a new disk: that of its pod, and a second one if it is replicated."""
    disks = [DISK_TYPES[name] for name in _disks_of(storage_class) if name in DISK_TYPES]
    if _is_regional(storage_class) or any(disk.always_regional for disk in disks):
        for second in allowed_zones(storage_class) or node_zones:
            if second != zone:
                return [zone, second]
    return [zone]


def _volume(claim: Object, storage_class: Object, zones: Sequence[str]) -> Object:
    spec = claim["spec"]
    name = f"pvc-{claim['metadata']['uid']}"
    in_zones = {"key": labels.GKE_ZONE, "operator": "In", "values": list(zones)}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zones]}]}}
    driver = objects.annotations_of(claim)[_PROVISIONER]
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
            "nodeAffinity": affinity if zones else None,
        },
    }


def _driver_of(claim: Object) -> str:
    """Return GKE's driver that has to provision a claim; empty if no driver has to."""
    annotations = objects.annotations_of(claim)
    driver = annotations.get(_PROVISIONER, "")
    if claim["spec"].get("volumeName") or driver == labels.GCS_FUSE_DRIVER:
        return ""
    if driver == PD_CSI and not annotations.get(_SELECTED_NODE, "").startswith(_NODE_PREFIX):
        return ""
    return driver if driver.endswith(_DRIVERS) else ""
