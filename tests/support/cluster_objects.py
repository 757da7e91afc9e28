"""Factories of the objects around workloads: namespaces, classes, volumes and what the proof's tests share."""

from typing import Any

from tests.factories import Manifest, cluster_wide, container, deployment, namespaced, template

PD = "pd.csi.storage.gke.io"
LATE = "WaitForFirstConsumer"


def web(replicas: int = 1, **spec: Any) -> Manifest:
    """Return a Deployment; the keywords are fields of its pods."""
    return deployment("web", replicas, template(**spec))


def using(labels: Manifest | None = None, **limits: Any) -> Manifest:
    """Return a template of pods with one container; the keywords are its limits."""
    return template(labels, [container(**limits)])


def namespace(name: str = "team", **labels: Any) -> Manifest:
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return cluster_wide("v1", "Namespace", name, metadata=metadata)


def priority_class(name: str, value: int, **fields: Any) -> Manifest:
    return cluster_wide("scheduling.k8s.io/v1", "PriorityClass", name, value=value, **fields)


def storage_class(name: str = "fast", provisioner: str = PD, **fields: Any) -> Manifest:
    """Return a StorageClass whose volumes are made for the first pod that mounts them."""
    binding = {"provisioner": provisioner, "volumeBindingMode": LATE}
    return cluster_wide("storage.k8s.io/v1", "StorageClass", name, **binding | fields)


def claim_spec(size: str = "1Gi", mode: str = "ReadWriteOnce", **spec: Any) -> Manifest:
    """Return the spec of a claim, or of a template of claims."""
    return {"accessModes": [mode], "resources": {"requests": {"storage": size}}, **spec}


def claim_template(name: str = "data", **spec: Any) -> Manifest:
    """Return an item of a StatefulSet's volumeClaimTemplates."""
    return {"metadata": {"name": name}, "spec": claim_spec(**spec)}


def volume(
    name: str = "pv",
    labels: Manifest | None = None,
    mode: str = "ReadWriteOnce",
    size: str = "1Gi",
    **spec: Any,
) -> Manifest:
    """Return a PersistentVolume."""
    metadata = {"name": name, "labels": labels or {}}
    offered = {"accessModes": [mode], "capacity": {"storage": size}, **spec}
    return cluster_wide("v1", "PersistentVolume", name, metadata=metadata, spec=offered)


def mounted(claim: str = "data") -> Manifest:
    """Return the field of pods that mount a claim."""
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def autoscaler(target: Manifest, name: str = "web", **spec: Any) -> Manifest:
    """Return a HorizontalPodAutoscaler of a workload."""
    reference = {key: target[key] for key in ("apiVersion", "kind")}
    scaled = {"scaleTargetRef": reference | {"name": target["metadata"]["name"]}, **spec}
    return namespaced("autoscaling/v2", "HorizontalPodAutoscaler", name, spec=scaled)


def kueue(kind: str, name: str, **spec: Any) -> Manifest:
    """Return a cluster-wide object of Kueue."""
    return cluster_wide("kueue.x-k8s.io/v1beta2", kind, name, spec=spec)


def policy(name: str, **spec: Any) -> Manifest:
    return namespaced("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Manifest:
    return {"key": key, "value": value, "effect": effect}
