"""The kubelet: it starts a pod once its volumes, ConfigMaps and Secrets are there."""

from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from ml_foundations.catalog.disks import PD_CSI
from ml_foundations.catalog.injections import SCAN, injections
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, items, name_of, namespace_of, section
from ml_foundations.planning.api_server import checkpoints
from ml_foundations.planning.api_server.defaults import is_profiled
from ml_foundations.planning.input.program import granted_buckets
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.storage import claim_names
from ml_foundations.rehearsal.api import NODES, Object, condition, existing, pod_path
from ml_foundations.rehearsal.cloud import crashes
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.volumes import VOLUMES

_SOURCES = {"ConfigMap": "/api/v1/configmaps", "Secret": "/api/v1/secrets"}
_CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
_READY = "PodReadyToStartContainers"
_MISSED = timedelta(seconds=8)
_SHOWN = "rehearsal.ml-foundations/shown"
"""An annotation that makes kwok look again at a pod for which it has done nothing for so long."""
_SERVICE_ACCOUNT_VOLUME = "kube-api-access-"
"""The prefix of the volumes that the API server adds. Their sources always exist."""
_NO_SIDECAR = (
    "rpc error: code = FailedPrecondition desc = failed to find the sidecar container in Pod spec"
)
"""From GKE's CSI driver for buckets (GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/csi_driver)."""
_NO_SCAN = (
    'Bucket scan failed for bucket "{}": googleapi: Error 403: the service agent of GKE does not'
    " have storage.objects.list access"
)
"""From GKE's CSI driver for buckets (GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/profiles)."""
_NO_CLIENT = "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name"
"""From a kubelet without the driver (Kubernetes, pkg/volume/csi)."""
_NO_PULL_SECRET = (
    "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed."
)
"""From a kubelet (pkg/kubelet/kubelet_pods.go). Here, the image is assumed to need the secret."""
_Keys = Mapping[tuple[str, str, str], set[str]]
"""The keys of ConfigMaps and Secrets, by kind, namespace and name."""


class _Reference(NamedTuple):
    """A required ConfigMap or Secret, or a key of it, of a volume or of the environment."""

    kind: str
    name: str
    key: str = ""
    volume: str = ""


def _keys_only(item: Object) -> Object:
    """Return a ConfigMap or Secret without its values."""
    kept = ("uid", "name", "namespace", "resourceVersion")
    metadata = {key: item["metadata"][key] for key in kept}
    keys = {*(item.get("data") or ()), *(item.get("binaryData") or ())}
    return {"metadata": metadata, "keys": keys}


class Kubelet(Controller):
    """Starts pods that wait in the stage pod-mount, on simulated GKE nodes, or reports why not."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._volumes = cluster.watch(VOLUMES)
        watched = {kind: cluster.watch(path, read=_keys_only) for kind, path in _SOURCES.items()}
        self._sources = watched
        self._recorder = Recorder(cluster.api, "kubelet")
        self._attacher = Recorder(cluster.api, "attachdetach-controller")

    def reconcile(self) -> None:
        """Start the pods that lack nothing, in a cluster that may lack some CSI drivers."""
        pods = self.cluster.pods
        pending = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
        for pod in filter(_is_missed, pending):
            with attempt(f"showing pod {name_of(pod)} to kwok"):
                shown = {_SHOWN: datetime.now(UTC).isoformat()}
                self.api.patch(pod_path(pod), {"metadata": {"annotations": shown}})
        for pod in pods:
            statuses = items(pod["status"], "containerStatuses")
            is_ready = all(status.get("ready", True) for status in statuses)
            if pod["status"]["phase"] != "Running" or is_ready:
                continue
            with attempt(f"the restart of pod {name_of(pod)}"):
                if (restarted := crashes.restarted(pod)) != statuses:
                    self.api.set_status(pod_path(pod), {"containerStatuses": restarted})
        waiting = [pod for pod in pending if condition(pod, _READY).get("status") == "False"]
        if not waiting:
            return
        missing_drivers = self.cluster.missing_drivers
        # GKE scans these buckets for their class. There, the pods of others have a gate.
        recorded = self.cluster.project.recorded()
        resources = [(item["type"], section(item, "inputs")) for item in recorded]
        scanned: set[str | None] = {*granted_buckets(resources)}
        if not self.cluster.properties:
            scanned.add(None)  # If the program has no cluster, a role may be granted elsewhere.
        keys: dict[tuple[str, str, str], set[str]] = {}
        for kind, informer in self._sources.items():
            for item in informer.items():
                keys[kind, namespace_of(item), name_of(item)] = item["keys"]
        # A disk belongs to the first pod that mounts it, also among those that start in this round.
        holders: dict[str, Object] = {}
        for pod in filter(_has_volumes, pods):
            holders |= dict.fromkeys(self._exclusive_disks(pod), pod)
        for pod in waiting:
            with attempt(f"the start of pod {name_of(pod)}"):
                if error := self._multi_attach_error(pod, holders):
                    self._attacher.warn(pod, "Pod", "FailedAttachVolume", error)
                    continue
                failure = self._mount_failure(pod, missing_drivers, scanned)
                if failure := failure or _missing(pod, keys):
                    self._recorder.warn(pod, "Pod", *failure)
                elif ended := crashes.causes(self.api, pod):
                    self.api.set_status(pod_path(pod), crashes.status(pod, ended))
                else:
                    # kwok writes the other conditions at this time.
                    self.api.set_condition(pod_path(pod), _READY, "True")
                holders |= dict.fromkeys(self._exclusive_disks(pod), pod)

    def _multi_attach_error(self, pod: Object, holders: Mapping[str, Object]) -> str:
        """Return the attach controller's error for a disk that a pod on another node holds."""
        for disk in self._exclusive_disks(pod):
            holder = holders.get(disk)
            if holder and holder["spec"]["nodeName"] != pod["spec"]["nodeName"]:
                reason = f"Volume is already used by pod(s) {name_of(holder)}"
                return f'Multi-Attach error for volume "{disk}" {reason}'
        return ""

    def _exclusive_disks(self, pod: Object) -> Iterator[str]:
        """Yield the disks of a pod that attach to one node at a time."""
        for volume in items(pod["spec"], "volumes"):
            disk = section(volume, "gcePersistentDisk")
            if disk and not disk.get("readOnly"):
                yield disk["pdName"]
        for volume in self._bound_volumes(pod):
            modes = set(volume["spec"].get("accessModes") or ())
            is_disk = section(volume, "spec", "csi").get("driver") == PD_CSI
            if is_disk and modes <= {"ReadWriteOnce", "ReadWriteOncePod"}:
                yield name_of(volume)

    def _bound_volumes(self, pod: Object) -> Iterator[Object]:
        claims = {(namespace_of(pod), name) for name in claim_names(pod["spec"])}
        for volume in self._volumes.items() if claims else ():
            owner = section(volume, "spec", "claimRef")
            if (owner.get("namespace"), owner.get("name")) in claims:
                yield volume

    def _mount_failure(
        self, pod: Object, missing_drivers: Set[str], scanned: Set[str | None]
    ) -> tuple[str, str] | None:
        """Return reason and message for a volume without its driver or without its sidecar."""
        has_sidecar = annotations_of(pod).get(labels.GCS_FUSE_VOLUMES, "").lower() == "true"
        inline = ((volume["name"], volume) for volume in items(pod["spec"], "volumes"))
        bound = ((name_of(volume), volume["spec"]) for volume in self._bound_volumes(pod))
        for name, source in chain(inline, bound):
            driver = section(source, "csi").get("driver")
            is_missing = driver in missing_drivers
            if driver == labels.CHECKPOINT_DRIVER and not is_missing:
                # A CheckpointConfiguration installs this driver on nodes.
                node = node_class(self.api.get(f"{NODES}/{pod['spec']['nodeName']}"))
                configurations = existing(self.api, _CONFIGURATIONS)
                selectors = (section(item, "spec") for item in configurations)
                is_missing = not any(checkpoints.selects(spec, node) for spec in selectors)
            if is_missing:
                error = f"{_NO_CLIENT} {driver} not found in the list of registered CSI drivers"
                return "FailedMount", _not_set_up(name, error)
            if driver == labels.GCS_FUSE_DRIVER and not has_sidecar:
                return "FailedMount", _not_set_up(name, _NO_SIDECAR)
            bucket = str(section(source, "csi").get("volumeHandle"))
            if is_profiled(source) and scanned.isdisjoint({bucket, None}):
                return "FailedScheduling", f"{injections()[SCAN].gate}: {_NO_SCAN.format(bucket)}"
        return None


def _has_volumes(pod: Object) -> bool:
    """Return whether the volumes of a pod are mounted."""
    phase = pod["status"]["phase"]
    is_ready = condition(pod, _READY).get("status") == "True"
    return phase == "Running" or (phase == "Pending" and is_ready)


def _is_missed(pod: Object) -> bool:
    """Return whether kwok does nothing for a pod: it may miss one that is bound while it starts."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "True" or condition(pod, _READY).get("status") == "False":
        return False
    since = annotations_of(pod).get(_SHOWN, scheduled["lastTransitionTime"])
    return datetime.now(UTC) - datetime.fromisoformat(since) > _MISSED


def _missing(pod: Object, keys: _Keys) -> tuple[str, str] | None:
    """Return reason and message for a missing ConfigMap, Secret or key."""
    # Pods of charts are exempt: hooks of the chart create these objects, and no hook runs here.
    pod_labels = section(pod, "metadata", "labels")
    if pod_labels.get("app.kubernetes.io/managed-by") == "Helm" or "helm.sh/chart" in pod_labels:
        return None
    for kind, name, key, volume in _references(pod["spec"]):
        present = keys.get((kind, namespace_of(pod), name))
        if present is not None and (not key or key in present):
            continue
        absent = f'{kind.lower()} "{name}" not found'
        if volume:
            source = "config" if kind == "ConfigMap" else "secret"
            no_key = f"references non-existent {source} key: {key}"
            return "FailedMount", _not_set_up(volume, absent if present is None else no_key)
        no_key = f"couldn't find key {key} in {kind} {namespace_of(pod)}/{name}"
        return "Failed", f"Error: {absent if present is None else no_key}"
    for secret in items(pod["spec"], "imagePullSecrets"):
        if ("Secret", namespace_of(pod), secret["name"]) not in keys:
            return "FailedToRetrieveImagePullSecret", _NO_PULL_SECRET.format(secret["name"])
    return None


def _not_set_up(volume: str, error: str) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {error}'


def _references(spec: Mapping[str, Any]) -> Iterator[_Reference]:
    """Yield the ConfigMaps and Secrets of a pod's volumes and environment that are not optional."""
    for volume in items(spec, "volumes"):
        name = volume["name"]
        if name.startswith(_SERVICE_ACCOUNT_VOLUME):
            continue
        for source in (volume, *items(section(volume, "projected"), "sources")):
            yield from _required("ConfigMap", section(source, "configMap"), name)
            yield from _required("Secret", section(source, "secret"), name)
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        for source in items(container, "envFrom"):
            yield from _required("ConfigMap", section(source, "configMapRef"))
            yield from _required("Secret", section(source, "secretRef"))
        for variable in items(container, "env"):
            yield from _required("ConfigMap", section(variable, "valueFrom", "configMapKeyRef"))
            yield from _required("Secret", section(variable, "valueFrom", "secretKeyRef"))


def _required(kind: str, source: Mapping[str, Any], volume: str = "") -> Iterator[_Reference]:
    name = source.get("name") or source.get("secretName")
    if name and not source.get("optional"):
        for key in [item["key"] for item in items(source, "items")] or [source.get("key") or ""]:
            yield _Reference(kind, name, key, volume)
