"""Compute Engine's CSI driver, as far as it shows: a disk is made where its first pod runs, if it attaches there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_foundations.catalog.disks import DISK_TYPES, PD_CSI
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.kubernetes import labels
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud.attempts import attempt
from ml_foundations.rehearsal.cloud.informer import Informer

_log = logging.getLogger(__name__)

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotations by which the controller manager asks for a volume, and the scheduler for one on a node."""

_FIRST_CONSUMER = "WaitForFirstConsumer"
"""The binding mode of classes whose volumes are made where the first pod runs."""

_NODE_PREFIX = "gke-"
"""Claims on other nodes, and those that wait for no node, are provisioned by the stage claim-provision."""


class Disks:
    """Provisions the claims whose pods are to run on simulated GKE nodes, and keeps what classes say of their end."""

    def __init__(self, api: Api, claims: Informer, volumes: Informer, classes: Informer) -> None:
        self._api, self._claims, self._volumes, self._classes = api, claims, volumes, classes
        self._refused: set[tuple[str, str]] = set()
        """Claims and the nodes to which their disks do not attach, as far as it was said already."""

    def reconcile(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        """One round: a volume for each claim that waits for one, or the reason why there is none."""
        classes = {item["metadata"]["name"]: item for item in self._classes.items()}
        waiting = [claim for claim in self._claims.items() if _waits_for_disk(claim)]
        if waiting:
            by_name = {node["metadata"]["name"]: node["metadata"] for node in nodes}
            zones = ((meta.get("labels") or {}).get(labels.GKE_ZONE) for meta in by_name.values())
            populated = sorted(set(filter(None, zones)))
            for claim in waiting:
                found = classes.get(claim["spec"].get("storageClassName", ""))
                node = by_name.get(_annotations(claim)[SELECTED_NODE])
                if found and node:
                    with attempt(f"the volume of claim {claim['metadata']['name']}"):
                        self._provision(claim, found, node, populated, pods)
        self._keep_policies(classes)

    def zones(self, pod: Mapping[str, Any]) -> frozenset[str] | None:
        """The zones in which a pod reaches all of its disks, those to be made included; None where any zone will do.

        None at all where a claim is missing, or is bound without regard to its pods: no new node would help.
        """
        names = _claim_names(pod)
        if not names:
            return None
        claims = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in self._claims.items()}
        named = [claims.get((pod["metadata"]["namespace"], name)) for name in names]
        if not all(claim and self._binds(claim) for claim in named):
            return frozenset()
        limits = [zones for claim in named if claim and (zones := self._zones_of(claim))]
        return frozenset.intersection(*map(frozenset, limits)) if limits else None

    def _binds(self, claim: Object) -> bool:
        """Whether a claim is bound, or will be for its first pod."""
        found = self._class_of(claim)
        return bool(claim["spec"].get("volumeName") or (found and found.get("volumeBindingMode") == _FIRST_CONSUMER))

    def _class_of(self, claim: Object) -> Object | None:
        wanted = claim["spec"].get("storageClassName", "")
        return next((item for item in self._classes.items() if item["metadata"]["name"] == wanted), None)

    def _zones_of(self, claim: Object) -> Sequence[str]:
        if name := claim["spec"].get("volumeName"):
            bound = (item for item in self._volumes.items() if item["metadata"]["name"] == name)
            return next((_volume_zones(item) for item in bound), ())
        found = self._class_of(claim)
        return _allowed_zones(found) if found else ()

    def _provision(
        self, claim: Object, storage_class: Object, node: Object, populated: Sequence[str], pods: Iterable[Object]
    ) -> None:
        if reason := _refusal(storage_class, node["labels"][labels.INSTANCE_TYPE]):
            self._refuse(claim, node["name"], reason, pods)
            return
        zones = zones_of_disk(storage_class, node["labels"][labels.GKE_ZONE], populated)
        self._api.ensure(VOLUMES, _volume(claim, storage_class, zones))

    def _refuse(self, claim: Object, node: str, reason: str, pods: Iterable[Object]) -> None:
        key = (claim["metadata"]["uid"], node)
        if key in self._refused:
            return
        self._refused.add(key)
        _log.info("claim %s stays without a volume: %s", claim["metadata"]["name"], reason)
        users = [pod for pod in pods if _uses(pod, claim)]
        for item, kind in [(claim, "PersistentVolumeClaim"), *((pod, "Pod") for pod in users)]:
            self._api.create(_events(item), _event(item, kind, "FailedAttachVolume", reason))

    def _keep_policies(self, classes: Mapping[str, Object]) -> None:
        """The stage that provisions the other claims does not know their classes."""
        for item in self._volumes.items():
            storage_class = classes.get(item["spec"].get("storageClassName", ""))
            if storage_class is None or "pv.kubernetes.io/provisioned-by" not in _annotations(item):
                continue
            policy = storage_class.get("reclaimPolicy", "Delete")
            # Once the class says Retain, an administrator may have said Retain for one volume as well.
            if policy == "Retain" != item["spec"].get("persistentVolumeReclaimPolicy"):
                patch = {"spec": {"persistentVolumeReclaimPolicy": policy}}
                with attempt(f"the reclaim policy of volume {item['metadata']['name']}"):
                    self._api.patch(f"{VOLUMES}/{item['metadata']['name']}", patch)


def _disk_of(storage_class: Object) -> str:
    """The disk type of a class (kubernetes-sigs/gcp-compute-persistent-disk-csi-driver: pd-standard by default)."""
    return (storage_class.get("parameters") or {}).get("type", "pd-standard")


def _is_regional(storage_class: Object) -> bool:
    """Whether a class makes regional persistent disks."""
    return (storage_class.get("parameters") or {}).get("replication-type") == "regional-pd"


def _describe(storage_class: Object) -> str:
    """A class and its disks, for people."""
    where = "regional " if _is_regional(storage_class) else ""
    return f"the {where}{_disk_of(storage_class)} of class {storage_class['metadata']['name']}"


def _refusal(storage_class: Object, machine: str) -> str:
    """Why a machine type is not given the disks of a class; empty where nothing is known against it."""
    disk, known = _disk_of(storage_class), MACHINE_TYPES.get(machine)
    if known and known.attaches(disk, regional=_is_regional(storage_class)) is False:
        return f"{_describe(storage_class)} does not attach to {machine}"
    return "" if disk in DISK_TYPES else f"{_describe(storage_class)} is not known to attach to {machine}"


def zones_of_disk(storage_class: Object, zone: str, populated: Sequence[str]) -> list[str]:
    """Where the driver makes a disk for a pod in a zone: there, and a replicated one in a second zone as well."""
    replicated = _is_regional(storage_class) or DISK_TYPES[_disk_of(storage_class)].always_regional
    others = [other for other in _allowed_zones(storage_class) or populated if other != zone]
    return [zone, *others[:1]] if replicated else [zone]


def _allowed_zones(storage_class: Object) -> Sequence[str]:
    """The zones that a class allows; none where it allows all."""
    terms = [
        term
        for item in storage_class.get("allowedTopologies") or []
        for term in item.get("matchLabelExpressions") or []
    ]
    return [zone for term in terms if term["key"] == labels.GKE_ZONE for zone in term["values"]]


def _volume_zones(item: Object) -> Sequence[str]:
    """The zones in which a volume can be used; none where it can be used in all."""
    required = (item["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = [term for part in required.get("nodeSelectorTerms") or [] for term in part.get("matchExpressions") or []]
    zoned = [term for term in terms if (term["key"], term["operator"]) == (labels.GKE_ZONE, "In")]
    return [zone for term in zoned for zone in term["values"]]


def _volume(claim: Object, storage_class: Object, zones: Sequence[str]) -> Object:
    """The PersistentVolume that the CSI driver's provisioner makes for a claim."""
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    place = {"matchExpressions": [{"key": labels.GKE_ZONE, "operator": "In", "values": list(zones)}]}
    return {
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PD_CSI}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": storage_class["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "csi": {"driver": PD_CSI, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}},
        },
    }


def _event(item: Object, kind: str, reason: str, message: str) -> Object:
    """A warning about an object, as the attach-detach controller says it."""
    meta = item["metadata"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {"kind": kind, "apiVersion": "v1"} | {key: meta[key] for key in ("name", "namespace", "uid")},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "attachdetach-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _annotations(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _waits_for_disk(claim: Object) -> bool:
    found = _annotations(claim)
    return (
        found.get(PROVISIONER) == PD_CSI
        and found.get(SELECTED_NODE, "").startswith(_NODE_PREFIX)
        and not claim["spec"].get("volumeName")
    )


def _uses(pod: Object, claim: Object) -> bool:
    if pod["metadata"]["namespace"] != claim["metadata"]["namespace"]:
        return False
    return claim["metadata"]["name"] in _claim_names(pod)


def _claim_names(pod: Mapping[str, Any]) -> list[str]:
    claims = [(item.get("persistentVolumeClaim") or {}).get("claimName") for item in pod["spec"].get("volumes") or []]
    return [name for name in claims if name]


def _events(item: Object) -> str:
    return f"/api/v1/namespaces/{item['metadata']['namespace']}/events"
