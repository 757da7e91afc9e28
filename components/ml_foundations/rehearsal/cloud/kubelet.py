"""The kubelet, as far as it keeps pods from starting: volumes that do not mount, ConfigMaps and Secrets that miss."""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ml_foundations.catalog.disks import PD_CSI
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.planning.model.storage import claim_names
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud.events import Recorder
from ml_foundations.rehearsal.cloud.informer import Informer, attempt

CONFIG_MAPS, SECRETS = "/api/v1/configmaps", "/api/v1/secrets"
_READY = "PodReadyToStartContainers"
_MISSED = timedelta(seconds=8)
_SHOWN = "rehearsal.ml-foundations/shown"
"""The annotation that makes kwok look again at a pod with which it has done nothing for so long."""
_MADE_FOR_ALL = "kube-api-access-"
"""Volumes that the API server adds: what they hold is always there."""
_NO_SIDECAR = (
    "rpc error: code = FailedPrecondition desc = failed to find the sidecar container in Pod spec"
)
"""What GKE's CSI driver for buckets answers (GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/csi_driver/node.go)."""

_NO_CLIENT = "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name"
"""What a kubelet says of a driver that does not run on its node (Kubernetes, pkg/volume/csi)."""

_NO_PULL_SECRET = (
    "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed."
)
"""What a kubelet says then (Kubernetes, pkg/kubelet/kubelet_pods.go). Here the image counts as one that wants it."""


class _Reference(NamedTuple):
    """A ConfigMap or a Secret, or a key of it, that a pod does not start without; empty for environment: the volume."""

    kind: str
    name: str
    key: str = ""
    volume: str = ""


def keys_only(item: Object) -> Object:
    """A ConfigMap or a Secret without its values."""
    metadata = {
        key: item["metadata"][key] for key in ("uid", "name", "namespace", "resourceVersion")
    }
    return {
        "metadata": metadata,
        "keys": {*(item.get("data") or ()), *(item.get("binaryData") or ())},
    }


class Kubelet:
    """Lets the pods on simulated GKE nodes start for which the stage pod-mount waits, or says what keeps them."""

    def __init__(self, api: Api, volumes: Informer, *kept: Informer) -> None:
        self._api, self._volumes = api, volumes
        self._kept = dict(zip(("ConfigMap", "Secret"), kept, strict=True))
        self._recorder = Recorder(api, "kubelet")
        self._attacher = Recorder(api, "attachdetach-controller")

    def start(self, pods: Iterable[Object], lacks: Set[str] = frozenset()) -> None:
        """One round over the pods that have a node of a cluster that lacks some of GKE's drivers."""
        pods = list(pods)
        pending = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
        for pod in filter(_was_missed, pending):
            with attempt(f"what kwok missed of pod {name_of(pod)}"):
                path = f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
                shown = {_SHOWN: datetime.now(UTC).isoformat()}
                self._patch(path, {"metadata": {"annotations": shown}})
        waiting = [pod for pod in pending if condition(pod, _READY).get("status") == "False"]
        kept = (
            (kind, item)
            for kind, informer in self._kept.items()
            if waiting
            for item in informer.items()
        )
        known = {(kind, namespace_of(item), name_of(item)): item["keys"] for kind, item in kept}
        held = self._held(filter(_is_started, pods) if waiting else ())
        for pod in waiting:
            with attempt(f"the start of pod {name_of(pod)}"):
                if said := self._multi_attach(pod, held):
                    self._attacher.warn(pod, "Pod", "FailedAttachVolume", said)
                    continue
                self._start(pod, known, lacks)
                held |= self._held([pod])

    def _held(self, pods: Iterable[Object]) -> dict[str, Object]:
        """Return the disks that attach to one node at a time, each with a pod that holds it."""
        return {disk: pod for pod in pods for disk in self._single_disks(pod)}

    def _multi_attach(self, pod: Object, held: Mapping[str, Object]) -> str:
        """Return the attach controller's words for a disk that another node holds (Kubernetes, attachdetach)."""
        for disk in self._single_disks(pod):
            holder = held.get(disk)
            if holder and holder["spec"]["nodeName"] != pod["spec"]["nodeName"]:
                return f'Multi-Attach error for volume "{disk}" Volume is already used by pod(s) {name_of(holder)}'
        return ""

    def _single_disks(self, pod: Object) -> Iterator[str]:
        """Yield the disks of a pod that attach to one node at a time: by access mode, or inline and not read-only."""
        inline = (section(volume, "gcePersistentDisk") for volume in items(pod["spec"], "volumes"))
        yield from (disk["pdName"] for disk in inline if disk and not disk.get("readOnly"))
        mine = {(namespace_of(pod), name) for name in claim_names(pod["spec"])}
        for volume in self._volumes.items() if mine else ():
            owner, modes = (
                section(volume, "spec", "claimRef"),
                set(volume["spec"].get("accessModes") or ()),
            )
            is_disk = section(volume, "spec", "csi").get("driver") == PD_CSI
            is_mine = (owner.get("namespace"), owner.get("name")) in mine
            if is_disk and is_mine and modes <= {"ReadWriteOnce", "ReadWriteOncePod"}:
                yield name_of(volume)

    def _start(
        self, pod: Object, known: Mapping[tuple[str, str, str], set[str]], lacks: Set[str]
    ) -> None:
        if said := self._unmountable(pod, lacks) or _missing(pod, known):
            self._recorder.warn(pod, "Pod", *said)
            return
        # By a strategic merge, no other condition is touched: kwok writes them at the same time.
        path = f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}/status"
        self._patch(path, {"status": {"conditions": [{"type": _READY, "status": "True"}]}})

    def _patch(self, path: str, body: Object) -> None:
        self._api.request(
            "PATCH", path, body=body, content_type="application/strategic-merge-patch+json"
        )

    def _unmountable(self, pod: Object, lacks: Set[str]) -> tuple[str, str] | None:
        """Reason and message of a volume without its driver, and of a bucket for which nothing has added a sidecar."""
        mine = {(namespace_of(pod), name) for name in claim_names(pod["spec"])}
        sources = [(volume["name"], volume) for volume in items(pod["spec"], "volumes")]
        for volume in self._volumes.items() if mine else ():
            owner = section(volume, "spec", "claimRef")
            if (owner.get("namespace"), owner.get("name")) in mine:
                sources.append((name_of(volume), volume["spec"]))
        has_sidecar = annotations_of(pod).get(labels.GCS_FUSE_VOLUMES, "").lower() == "true"
        for name, source in sources:
            driver = section(source, "csi").get("driver")
            if driver in lacks:
                said = f"{_NO_CLIENT} {driver} not found in the list of registered CSI drivers"
                return "FailedMount", _not_set_up(name, said)
            if driver == labels.GCS_FUSE_DRIVER and not has_sidecar:
                return "FailedMount", _not_set_up(name, _NO_SIDECAR)
        return None


def _is_started(pod: Object) -> bool:
    """Return whether a pod has its volumes."""
    phase = pod["status"]["phase"]
    return phase == "Running" or (
        phase == "Pending" and condition(pod, _READY).get("status") == "True"
    )


def _was_missed(pod: Object) -> bool:
    """Whether kwok does nothing for a pod, as it may for one that was bound in the moment in which kwok started."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "True" or condition(pod, _READY).get("status") == "False":
        return False
    since = annotations_of(pod).get(_SHOWN, scheduled["lastTransitionTime"])
    return datetime.now(UTC) - datetime.fromisoformat(since) > _MISSED


def _missing(pod: Object, known: Mapping[tuple[str, str, str], set[str]]) -> tuple[str, str] | None:
    """Reason and message of what is not there; of a chart's pods nothing, since hooks make it whose pods do nothing."""
    if labels_of(pod).get("app.kubernetes.io/managed-by") == "Helm" or "helm.sh/chart" in labels_of(
        pod
    ):
        return None
    for kind, name, key, volume in _references(pod["spec"]):
        keys = known.get((kind, namespace_of(pod), name))
        if keys is not None and (not key or key in keys):
            continue
        absent = f'{kind.lower()} "{name}" not found'
        if volume:
            lacking = f"references non-existent {'config' if kind == 'ConfigMap' else 'secret'} key: {key}"
            return "FailedMount", _not_set_up(volume, absent if keys is None else lacking)
        lacking = f"couldn't find key {key} in {kind} {namespace_of(pod)}/{name}"
        return "Failed", f"Error: {absent if keys is None else lacking}"
    for each in items(pod["spec"], "imagePullSecrets"):
        if ("Secret", namespace_of(pod), each["name"]) not in known:
            return "FailedToRetrieveImagePullSecret", _NO_PULL_SECRET.format(each["name"])
    return None


def _not_set_up(volume: str, why: str) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {why}'


def _references(spec: Mapping[str, Any]) -> Iterator[_Reference]:
    for volume in items(spec, "volumes"):
        name = volume["name"]
        sources = [volume, *items(section(volume, "projected"), "sources")]
        for source in sources if not name.startswith(_MADE_FOR_ALL) else ():
            yield from _of_source("ConfigMap", section(source, "configMap"), name)
            yield from _of_source("Secret", section(source, "secret"), name)
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        for each in items(container, "envFrom"):
            yield from _of_source("ConfigMap", section(each, "configMapRef"))
            yield from _of_source("Secret", section(each, "secretRef"))
        for each in items(container, "env"):
            yield from _of_source("ConfigMap", section(each, "valueFrom", "configMapKeyRef"))
            yield from _of_source("Secret", section(each, "valueFrom", "secretKeyRef"))


def _of_source(kind: str, source: Mapping[str, Any], volume: str = "") -> Iterator[_Reference]:
    """What a source refers to; nothing where it is optional."""
    name = source.get("name") or source.get("secretName")
    if name and not source.get("optional"):
        keys = [item["key"] for item in items(source, "items")] or [source.get("key") or ""]
        yield from (_Reference(kind, name, key, volume) for key in keys)
