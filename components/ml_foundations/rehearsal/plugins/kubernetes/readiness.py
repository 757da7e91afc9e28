"""When an object counts as ready, and why it is not: by kind, the rules that the official plugin documents."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from ml_foundations.rehearsal.api import Object, condition
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind

_SETTLED = timedelta(seconds=10)
_OF_STARTS = "type=Warning,reason!=FailedScheduling"
"""Selects the events that tell why a pod with a node does not start."""
_REFRESHED = {
    *(
        "DaemonSet.apps",
        "Deployment.apps",
        "Ingress.networking.k8s.io",
        "Job.batch",
        "Pod",
        "Service",
    ),
    "StatefulSet.apps",
}


class Failure(str):
    """Why an object will never be ready."""


def missing(client: Client, live: Object) -> str:
    """What a live object lacks to be ready: empty if nothing, a Failure if waiting is in vain."""
    awaited = annotations.waits_for(live)
    if awaited is not None:
        return f"waiting for {', '.join(awaited)}" if awaited else ""
    rule = _RULES.get(group_kind(live))
    return rule(client, live) if rule else ""


def missing_at_refresh(client: Client, live: Object) -> str:
    """The same when a refresh reads it, for the kinds that the official plugin then looks at."""
    kind = group_kind(live)
    return (
        _RULES[kind](client, live)
        if kind in _REFRESHED and not annotations.is_skipped(live)
        else ""
    )


def reasons(client: Client, live: Object) -> list[str]:
    """The cluster's own messages about why an object, or the pods of a workload, do not run."""
    # A Deployment's own conditions may be of an earlier try, so they end no wait.
    refused, stalled = condition(live, "ReplicaFailure"), condition(live, "Progressing")
    found = [
        item["message"]
        for item, bad in ((refused, "True"), (stalled, "False"))
        if item.get("status") == bad
    ]
    pods, unplaced = pods_of(client, live), _unplaced()
    found += [reason for pod in pods for reason in _pod_reasons(pod, unplaced)]
    starting = [
        pod for pod in pods if pod["spec"].get("nodeName") and not _phase(pod, "the pod", "Pending")
    ]
    return sorted({*found, *(_warnings(client, starting) if starting else ())})


def pods_of(client: Client, live: Object) -> list[Object]:
    """Return the pods of a workload, by its selector; a Pod is its own."""
    if group_kind(live) == "Pod":
        return [live]
    labels = (live.get("spec", {}).get("selector") or {}).get("matchLabels")
    if not labels:
        return []
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return client.list("v1", "Pod", live["metadata"]["namespace"], labelSelector=selector)


def is_complete(job: Object) -> bool:
    """Whether a Job has succeeded."""
    return condition(job, "Complete").get("status") == "True"


def _rollout(client: Client, live: Object) -> str:
    status, wanted = live.get("status", {}), live["spec"].get("replicas", 1)
    ready = status.get("readyReplicas", 0)
    if not _is_updated_by_hand(live):
        ready = min(ready, status.get("updatedReplicas", 0))
    met = _is_observed(live) and ready >= wanted and status.get("replicas", 0) == wanted
    return "" if met else f"{ready}/{wanted} replicas ready"


def _replication_controller(client: Client, live: Object) -> str:
    wanted, available = (
        live["spec"].get("replicas"),
        live.get("status", {}).get("availableReplicas", 0),
    )
    return (
        ""
        if _is_observed(live) and available == wanted
        else f"{available}/{wanted} replicas available"
    )


def _is_observed(live: Object) -> bool:
    """Whether the status is of the present spec."""
    return live.get("status", {}).get("observedGeneration", 0) >= live["metadata"].get(
        "generation", 0
    )


def _is_updated_by_hand(live: Object) -> bool:
    return (live["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"


def _daemon_set(client: Client, live: Object) -> str:
    status = live.get("status", {})
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    updated = wanted if _is_updated_by_hand(live) else status.get("updatedNumberScheduled", 0)
    return (
        ""
        if _is_observed(live) and min(ready, updated) >= wanted
        else f"{ready}/{wanted} pods ready"
    )


def _job(client: Client, live: Object) -> str:
    if is_complete(live):
        return ""
    failed = condition(live, "Failed")
    if failed.get("status") == "True":
        return Failure(f"{failed.get('reason')}: {failed.get('message')}")
    return f"{live.get('status', {}).get('succeeded', 0)}/{live['spec'].get('completions', 1)} completions"


def _pod(client: Client, live: Object) -> str:
    return (
        ""
        if condition(live, "Ready").get("status") == "True"
        else _phase(live, "the pod", "Succeeded")
    )


def _phase(live: Object, what: str, *good: str) -> str:
    phase = live.get("status", {}).get("phase", "Pending")
    return "" if phase in good else (Failure if phase == "Failed" else str)(f"{what} is {phase}")


def _claim(client: Client, live: Object) -> str:
    if live.get("status", {}).get("phase") == "Bound":
        return ""
    name = live["spec"].get("storageClassName")
    if not name:
        return "the claim is not bound, and names no storage class"
    storage_class = client.get(
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    )
    if storage_class is None:
        return f"the claim is not bound: there is no storage class {name}"
    # Such a claim is bound when a pod uses it, and that pod may come later in the same update.
    waits_for_pod = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return "" if waits_for_pod else "the claim is not bound"


def _quota(client: Client, live: Object) -> str:
    met = live.get("status", {}).get("hard") == live["spec"].get("hard")
    return "" if met else "the quota does not count yet"


def _secret(client: Client, live: Object) -> str:
    is_token = live.get("type") == "kubernetes.io/service-account-token"
    return "its token is not made yet" if is_token and not live.get("data") else ""


def _service(client: Client, live: Object) -> str:
    spec = live["spec"]
    if spec.get("type") == "LoadBalancer" and not _has_address(live):
        return "the load balancer has no address"
    if (
        spec.get("type") == "ExternalName"
        or spec.get("clusterIP") == "None"
        or not spec.get("selector")
    ):
        return ""
    meta, label = live["metadata"], "kubernetes.io/service-name"
    slices = client.list(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        meta["namespace"],
        labelSelector=f"{label}={meta['name']}",
    )
    endpoints = [
        endpoint["conditions"] for item in slices for endpoint in item.get("endpoints") or []
    ]
    if not all(
        conditions.get("ready") or conditions.get("terminating") for conditions in endpoints
    ):
        return "pods behind the service are not ready"
    # A service may do without pods, once those that there will be had the time to appear.
    created = datetime.fromisoformat(live["metadata"]["creationTimestamp"])
    is_settled = endpoints or datetime.now(UTC) - created > _SETTLED
    return "" if is_settled else "no pod is behind the service"


def _ingress(client: Client, live: Object) -> str:
    paths = [
        path
        for rule in live["spec"].get("rules") or []
        for path in rule.get("http", {}).get("paths", [])
    ]
    for name in (path["backend"].get("service", {}).get("name") for path in paths):
        place = {"name": name, "namespace": live["metadata"]["namespace"]}
        if name and client.get({"apiVersion": "v1", "kind": "Service", "metadata": place}) is None:
            return f"the ingress has at least one rule with an unavailable target: there is no service {name}"
    if _has_address(live):
        return ""
    chosen = live["spec"].get("ingressClassName")
    return f"the ingress has no address{f': it comes from the controller of the class {chosen}' if chosen else ''}"


def _has_address(live: Object) -> bool:
    return bool(live.get("status", {}).get("loadBalancer", {}).get("ingress"))


def _crd(client: Client, live: Object) -> str:
    return (
        ""
        if condition(live, "Established").get("status") == "True"
        else "the kind is not served yet"
    )


_RULES: Mapping[str, Callable[[Client, Object], str]] = {
    "CustomResourceDefinition.apiextensions.k8s.io": _crd,
    "DaemonSet.apps": _daemon_set,
    "Deployment.apps": _rollout,
    "Ingress.networking.k8s.io": _ingress,
    "Job.batch": _job,
    "PersistentVolume": lambda _, live: _phase(live, "the volume", "Available", "Bound"),
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "ReplicationController": _replication_controller,
    "ResourceQuota": _quota,
    "Secret": _secret,
    "Service": _service,
    "StatefulSet.apps": _rollout,
}


def _unplaced() -> dict[str, str]:
    """Return why the autoscaler makes no node for a pod, by the pod's uid."""
    stores = map(Store, Rehearsal.of_this_process().replicas)
    return {uid: reason for store in stores for uid, reason in store.get("unplaced", {}).items()}


def _warnings(client: Client, pods: list[Object]) -> list[str]:
    """Return the last warning about each pod of a namespace, such as of a disk that another node holds."""
    of_namespace = client.list(
        "v1", "Event", pods[0]["metadata"]["namespace"], fieldSelector=_OF_STARTS
    )
    last = {
        event["involvedObject"].get("uid"): event for event in sorted(of_namespace, key=_time_of)
    }
    told = ((pod["metadata"]["name"], last.get(pod["metadata"]["uid"])) for pod in pods)
    return [f"pod {name}: {event['reason']}: {event['message']}" for name, event in told if event]


def _time_of(event: Object) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def _pod_reasons(pod: Object, unplaced: Mapping[str, str]) -> list[str]:
    name, scheduled = pod["metadata"]["name"], condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        if reason := unplaced.get(pod["metadata"]["uid"]):
            return [f"pod {name}: {reason}"]
        return [f"pod {name}: {scheduled.get('reason')}: {scheduled.get('message')}"]
    waiting = [
        item.get("state", {}).get("waiting")
        for item in pod.get("status", {}).get("containerStatuses") or []
    ]
    stuck = [
        item
        for item in waiting
        if item and item.get("reason") not in ("ContainerCreating", "PodInitializing")
    ]
    return [f"pod {name}: {item.get('reason')}: {item.get('message', '')}" for item in stuck]
