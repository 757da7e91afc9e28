"""The rules by which an object of a kind is ready, and the reasons why it is not.

The rules are those that the official plugin documents.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ml_foundations.kubernetes.objects import api_object, section
from ml_foundations.rehearsal.api import Object, condition
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind

_SETTLED = timedelta(seconds=10)
_START_WARNINGS = "type=Warning,reason!=FailedScheduling"
"""Selects the events with the reasons why a scheduled pod does not start."""
_CHECKED_AT_REFRESH = {
    *("DaemonSet.apps", "Deployment.apps", "StatefulSet.apps", "Job.batch", "Pod"),
    *("Ingress.networking.k8s.io", "Service"),
}


class NotReady(NamedTuple):
    """The reason why an object is not ready."""

    reason: str
    is_final: bool = False
    """Whether it will never be ready."""


def missing(client: Client, live: Object) -> NotReady | None:
    """Return what an object lacks to be ready; None if it is ready."""
    conditions = annotations.unmet_conditions(live)
    if conditions is not None:
        return NotReady(f"waiting for {', '.join(conditions)}") if conditions else None
    rule = _RULES.get(group_kind(live))
    return rule(client, live) if rule else None


def missing_at_refresh(client: Client, live: Object) -> NotReady | None:
    """Return what an object lacks at a refresh, if the official plugin checks its kind then."""
    kind = group_kind(live)
    if kind not in _CHECKED_AT_REFRESH or annotations.is_set(live, annotations.SKIP):
        return None
    return _RULES[kind](client, live)


def reasons(client: Client, live: Object) -> list[str]:
    """Return the cluster's own messages why an object, or the pods of a workload, do not run."""
    messages: set[str] = set()
    # A Deployment's conditions may be of an earlier try: they explain a failure, but end no wait.
    for name, bad_status in (("ReplicaFailure", "True"), ("Progressing", "False")):
        status = condition(live, name)
        if status.get("status") == bad_status:
            messages.add(status["message"])
    unplaced = dict[str, str]()
    starting = list[Object]()
    for store in map(Store, Rehearsal.of_this_process().replicas):
        unplaced |= store.get("unplaced", {})
    for pod in pods_of(client, live):
        messages.update(_pod_reasons(pod, unplaced))
        if pod["spec"].get("nodeName") and not _phase(pod, "the pod", "Pending"):
            starting.append(pod)
    if starting:
        # The last warning about each pod, such as of a disk that another node holds.
        namespace = starting[0]["metadata"]["namespace"]
        events = client.list("v1", "Event", namespace, fieldSelector=_START_WARNINGS)
        events.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
        by_uid = {event["involvedObject"].get("uid"): event for event in events}
        for pod in starting:
            if event := by_uid.get(pod["metadata"]["uid"]):
                name = pod["metadata"]["name"]
                messages.add(f"pod {name}: {event['reason']}: {event['message']}")
    return sorted(messages)


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
    """Return whether a Job has succeeded."""
    return _is_true(job, "Complete")


def _is_true(live: Object, name: str) -> bool:
    return condition(live, name).get("status") == "True"


def _rollout(client: Client, live: Object) -> NotReady | None:
    status = live.get("status", {})
    replicas = live["spec"].get("replicas", 1)
    ready = status.get("readyReplicas", 0)
    # With OnDelete, old pods stay until somebody deletes them.
    if not _is_updated_by_hand(live):
        ready = min(ready, status.get("updatedReplicas", 0))
    is_ready = _is_observed(live) and ready >= replicas and status.get("replicas", 0) == replicas
    return None if is_ready else NotReady(f"{ready}/{replicas} replicas ready")


def _replication_controller(client: Client, live: Object) -> NotReady | None:
    replicas = live["spec"].get("replicas")
    available = live.get("status", {}).get("availableReplicas", 0)
    is_ready = _is_observed(live) and available == replicas
    return None if is_ready else NotReady(f"{available}/{replicas} replicas available")


def _is_observed(live: Object) -> bool:
    """Return whether the status is of the present spec."""
    generation = live["metadata"].get("generation", 0)
    return live.get("status", {}).get("observedGeneration", 0) >= generation


def _is_updated_by_hand(live: Object) -> bool:
    return (live["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"


def _daemon_set(client: Client, live: Object) -> NotReady | None:
    status = live.get("status", {})
    scheduled = status.get("desiredNumberScheduled", 0)
    ready = status.get("numberReady", 0)
    updated = scheduled if _is_updated_by_hand(live) else status.get("updatedNumberScheduled", 0)
    is_ready = _is_observed(live) and min(ready, updated) >= scheduled
    return None if is_ready else NotReady(f"{ready}/{scheduled} pods ready")


def _job(client: Client, live: Object) -> NotReady | None:
    if is_complete(live):
        return None
    failed = condition(live, "Failed")
    if failed.get("status") == "True":
        return NotReady(f"{failed.get('reason')}: {failed.get('message')}", is_final=True)
    succeeded = live.get("status", {}).get("succeeded", 0)
    return NotReady(f"{succeeded}/{live['spec'].get('completions', 1)} completions")


def _phase(live: Object, what: str, *good: str) -> NotReady | None:
    """Return what is wrong with a phase that is none of the good ones."""
    phase = live.get("status", {}).get("phase", "Pending")
    if phase in good:
        return None
    return NotReady(f"{what} is {phase}", is_final=phase == "Failed")


def _pod(client: Client, live: Object) -> NotReady | None:
    return None if _is_true(live, "Ready") else _phase(live, "the pod", "Succeeded")


def _claim(client: Client, live: Object) -> NotReady | None:
    if live.get("status", {}).get("phase") == "Bound":
        return None
    name = live["spec"].get("storageClassName")
    if not name:
        return NotReady("the claim is not bound, and names no storage class")
    storage_class = client.get(api_object("storage.k8s.io/v1", "StorageClass", {"name": name}))
    if storage_class is None:
        return NotReady(f"the claim is not bound: there is no storage class {name}")
    # Such a claim is bound when a pod uses it, and that pod may come later in the same update.
    waits_for_pod = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return None if waits_for_pod else NotReady("the claim is not bound")


def _quota(client: Client, live: Object) -> NotReady | None:
    is_counted = live.get("status", {}).get("hard") == live["spec"].get("hard")
    return None if is_counted else NotReady("the quota does not count yet")


def _secret(client: Client, live: Object) -> NotReady | None:
    # A controller adds the token to the Secret.
    is_token = live.get("type") == "kubernetes.io/service-account-token"
    return NotReady("its token is not made yet") if is_token and not live.get("data") else None


def _service(client: Client, live: Object) -> NotReady | None:
    spec = live["spec"]
    if spec.get("type") == "LoadBalancer" and not _has_address(live):
        return NotReady("the load balancer has no address")
    is_headless = spec.get("clusterIP") == "None"
    # These get no endpoints from Kubernetes, or need none.
    if spec.get("type") == "ExternalName" or is_headless or not spec.get("selector"):
        return None
    metadata = live["metadata"]
    group = "discovery.k8s.io/v1"
    selector = f"kubernetes.io/service-name={metadata['name']}"
    slices = client.list(group, "EndpointSlice", metadata["namespace"], labelSelector=selector)
    endpoints = [item for part in slices for item in part.get("endpoints") or []]
    for endpoint in endpoints:
        conditions = endpoint["conditions"]
        if not conditions.get("ready") and not conditions.get("terminating"):
            return NotReady("pods behind the service are not ready")
    # A service may have no pods. Its future pods get some time to appear.
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    is_settled = endpoints or datetime.now(UTC) - created > _SETTLED
    return None if is_settled else NotReady("no pod is behind the service")


def _ingress(client: Client, live: Object) -> NotReady | None:
    namespace = live["metadata"]["namespace"]
    for rule in live["spec"].get("rules") or []:
        for path in rule.get("http", {}).get("paths", []):
            name = path["backend"].get("service", {}).get("name")
            service = api_object("v1", "Service", {"name": name, "namespace": namespace})
            if name and client.get(service) is None:
                failure = "the ingress has at least one rule with an unavailable target"
                return NotReady(f"{failure}: there is no service {name}")
    if _has_address(live):
        return None
    name = live["spec"].get("ingressClassName")
    controller = f": it comes from the controller of the class {name}" if name else ""
    return NotReady(f"the ingress has no address{controller}")


def _has_address(live: Object) -> bool:
    return bool(live.get("status", {}).get("loadBalancer", {}).get("ingress"))


_RULES: Mapping[str, Callable[[Client, Object], NotReady | None]] = {
    "CustomResourceDefinition.apiextensions.k8s.io": lambda _, live: (
        None if _is_true(live, "Established") else NotReady("the kind is not served yet")
    ),
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


def _pod_reasons(pod: Object, unplaced: Mapping[str, str]) -> list[str]:
    """Return why a pod is not scheduled, or why its containers do not start."""
    name = pod["metadata"]["name"]
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        message = f"{scheduled.get('reason')}: {scheduled.get('message')}"
        return [f"pod {name}: {unplaced.get(pod['metadata']['uid']) or message}"]
    reasons: list[str] = []
    for status in pod.get("status", {}).get("containerStatuses") or []:
        waiting = status.get("state", {}).get("waiting")
        if message := section(status, "lastState", "terminated").get("message"):
            reasons.append(f"pod {name}: {message}")
        if waiting and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
            reasons.append(f"pod {name}: {waiting.get('reason')}: {waiting.get('message', '')}")
    return reasons
