"""Factories of manifests: workloads, pods, claims, nodes and quotas of a namespace ``team``."""

from typing import Any

from ml_foundations.planning import Verdict

Manifest = dict[str, Any]

MAX_NODES = "ml-foundations/max-nodes"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
FITS, CANNOT, OPEN = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED


def pool(
    name: str,
    count: int,
    labels: Manifest | None = None,
    taints: list[Manifest] | None = None,
    **allocatable: Any,
) -> Manifest:
    manifest = node(name, labels, taints, **allocatable)
    manifest["metadata"]["annotations"] = {MAX_NODES: str(count)}
    return manifest


def node(
    name: str,
    labels: Manifest | None = None,
    taints: list[Manifest] | None = None,
    **allocatable: Any,
) -> Manifest:
    offered = {"cpu": "4", "memory": "16Gi", "pods": "110"} | {
        key.replace("gpu", GPU): value for key, value in allocatable.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name} | (labels or {})},
        "spec": {"taints": taints or []},
        "status": {"allocatable": offered},
    }


def container(**limits: Any) -> Manifest:
    return {
        "name": "main",
        "resources": {
            "limits": {key.replace("gpu", GPU): str(value) for key, value in limits.items()}
        },
    }


def template(
    labels: Manifest | None = None, containers: list[Manifest] | None = None, **spec: Any
) -> Manifest:
    images = [{"image": "example.com/main", **each} for each in containers or [container(cpu=1)]]
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": images, **spec},
    }


def deployment(name: str, replicas: int, pods: Manifest, **spec: Any) -> Manifest:
    return workload(
        "apps/v1", "Deployment", name, {"replicas": replicas, **_selecting(pods), **spec}
    )


def stateful_set(name: str, replicas: int, pods: Manifest, **spec: Any) -> Manifest:
    return workload(
        "apps/v1", "StatefulSet", name, {"replicas": replicas, **_selecting(pods), **spec}
    )


def daemon_set(name: str, pods: Manifest) -> Manifest:
    return workload("apps/v1", "DaemonSet", name, _selecting(pods))


def _selecting(pods: Manifest) -> Manifest:
    return {"selector": {"matchLabels": pods["metadata"]["labels"]}, "template": pods}


def job(
    name: str, parallelism: int, pods: Manifest, *, gang: bool = False, **spec: Any
) -> Manifest:
    pods = {**pods, "spec": {"restartPolicy": "Never", **pods["spec"]}}
    manifest = workload(
        "batch/v1", "Job", name, {"parallelism": parallelism, "template": pods, **spec}
    )
    if gang:
        manifest["metadata"]["annotations"] = {"ml-foundations/gang": "true"}
    return manifest


def workload(version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "team"},
        "spec": spec,
    }


def namespaced(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "team"},
        **fields,
    }


def cluster_wide(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def pod(name: str, pods: Manifest | None = None, **fields: Any) -> Manifest:
    """Return a Pod with the labels and the spec of a template."""
    pods = pods or template()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **pods["metadata"]},
        "spec": pods["spec"],
        **fields,
    }


def claim(
    name: str = "data", mode: str = "ReadWriteOnce", size: str = "1Gi", **spec: Any
) -> Manifest:
    """Return a PersistentVolumeClaim."""
    wanted = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return namespaced("v1", "PersistentVolumeClaim", name, spec=wanted | spec)


def quota(name: str = "quota", hard: Manifest | None = None, **spec: Any) -> Manifest:
    return namespaced("v1", "ResourceQuota", name, spec={"hard": hard or {}, **spec})


def limit_range(*limits: Manifest) -> Manifest:
    return namespaced("v1", "LimitRange", "limits", spec={"limits": list(limits)})


def anti_affinity(key: str = HOSTNAME, app: str = "web") -> Manifest:
    return {"podAntiAffinity": pod_affinity_term(key, app)}


def affinity(key: str = HOSTNAME, app: str = "web") -> Manifest:
    return {"podAffinity": pod_affinity_term(key, app)}


def pod_affinity_term(key: str, app: str) -> Manifest:
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
        ]
    }


def node_affinity(*expressions: Manifest) -> Manifest:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": list(expressions)}]
            }
        }
    }


def spread(key: str = ZONE, skew: int = 1, app: str = "web", **more: Any) -> Manifest:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def webhook(
    resource: str, group: str = "", kind: str = "Mutating", **selectors: Manifest
) -> Manifest:
    """Return the configuration of a webhook that is called when a resource is created."""
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": [resource],
    }
    called = {
        "clientConfig": {"url": "https://example.com"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    hooks = [{"name": "h.example.com", "rules": [rule], **called, **selectors}]
    version = "admissionregistration.k8s.io/v1"
    return cluster_wide(version, f"{kind}WebhookConfiguration", "hook", webhooks=hooks)
