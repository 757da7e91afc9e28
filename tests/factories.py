"""Factories of manifests: workloads, pods, claims, nodes and quotas of a namespace ``team``."""

from typing import Any

from ml_foundations.planning import Verdict

Manifest = dict[str, Any]

MAX_NODES = "ml-foundations/max-nodes"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
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
    offered = {"cpu": "4", "memory": "16Gi", "pods": "110"} | _with_gpus(allocatable)
    made = cluster_wide("v1", "Node", name, spec={"taints": taints or []})
    made["metadata"]["labels"] = {HOSTNAME: name} | (labels or {})
    return {**made, "status": {"allocatable": offered}}


def _with_gpus(amounts: Manifest) -> Manifest:
    return {key.replace("gpu", GPU): value for key, value in amounts.items()}


def container(**limits: Any) -> Manifest:
    amounts = {key: str(value) for key, value in _with_gpus(limits).items()}
    return {"name": "main", "resources": {"limits": amounts}}


def template(
    labels: Manifest | None = None, containers: list[Manifest] | None = None, **spec: Any
) -> Manifest:
    images = [{"image": "example.com/main", **each} for each in containers or [container(cpu=1)]]
    metadata = {"labels": labels or {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": images, **spec}}


def deployment(name: str, replicas: int, pods: Manifest, **spec: Any) -> Manifest:
    spec = {"replicas": replicas, **_selecting(pods), **spec}
    return namespaced("apps/v1", "Deployment", name, spec=spec)


def stateful_set(name: str, replicas: int, pods: Manifest, **spec: Any) -> Manifest:
    return {**deployment(name, replicas, pods, **spec), "kind": "StatefulSet"}


def daemon_set(name: str, pods: Manifest) -> Manifest:
    return namespaced("apps/v1", "DaemonSet", name, spec=_selecting(pods))


def _selecting(pods: Manifest) -> Manifest:
    return {"selector": {"matchLabels": pods["metadata"]["labels"]}, "template": pods}


def job(
    name: str, parallelism: int, pods: Manifest, *, gang: bool = False, **spec: Any
) -> Manifest:
    pods = {**pods, "spec": {"restartPolicy": "Never", **pods["spec"]}}
    spec = {"parallelism": parallelism, "template": pods, **spec}
    manifest = namespaced("batch/v1", "Job", name, spec=spec)
    if gang:
        manifest["metadata"]["annotations"] = {"ml-foundations/gang": "true"}
    return manifest


def workload(version: str, kind: str, name: str, spec: Manifest) -> Manifest:
    return namespaced(version, kind, name, spec=spec)


def namespaced(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def cluster_wide(version: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def namespace(name: str = "team", labels: Manifest | None = None) -> Manifest:
    made = cluster_wide("v1", "Namespace", name)
    return made | {"metadata": {"name": name, "labels": labels or {}}}


def in_namespace(name: str, manifest: Manifest) -> Manifest:
    """Return an object in another namespace than ``team``."""
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": name}}


def resource(manifest: Manifest) -> tuple[str, Manifest]:
    """Return the resource by which a Pulumi program declares an object."""
    return f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", manifest


def pod(name: str, pods: Manifest | None = None, **fields: Any) -> Manifest:
    """Return a Pod with the labels and the spec of a template."""
    pods = pods or template()
    made = namespaced("v1", "Pod", name, spec=pods["spec"], **fields)
    return made | {"metadata": {**made["metadata"], **pods["metadata"]}}


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
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {REQUIRED: [term]}


def node_affinity(*expressions: Manifest) -> Manifest:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def spread(key: str = ZONE, skew: int = 1, app: str = "web", **more: Any) -> Manifest:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    limits = {"maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologyKey": key, **limits, **selector, **more}


def webhook(resource: str, group: str = "", kind: str = "Mutating", **fields: Any) -> Manifest:
    """Return the configuration of a webhook that is called when a resource is created."""
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}
    hook = {
        "name": "h.example.com",
        "rules": [rule | {"operations": ["CREATE"]}],
        "clientConfig": {"url": "https://example.com"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }
    version = "admissionregistration.k8s.io/v1"
    return cluster_wide(version, f"{kind}WebhookConfiguration", "hook", webhooks=[hook])
