"""When an object counts as ready, and why it is not: by kind, the rules that the official plugin documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes import annotations
from ml_foundations.rehearsal.plugins.kubernetes.annotations import condition
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind


@dataclass(frozen=True)
class Progress:
    """How far an object is: done, failed for good, or still waiting for something."""

    done: bool
    failed: bool = False
    message: str = ""


_DONE = Progress(True)


def progress(client: Client, live: Object) -> Progress:
    """How far a live object is."""
    missing = annotations.waits_for(live)
    if missing is not None:
        return Progress(not missing, message=f"waiting for {', '.join(missing)}")
    rule = _RULES.get(group_kind(live))
    return rule(client, live) if rule else _DONE


def reasons(client: Client, live: Object) -> list[str]:
    """What keeps an object, or the pods of a workload, from running, in the cluster's own words."""
    if group_kind(live) == "Pod":
        return _pod_reasons(live)
    found = _bad_conditions(live)
    if labels := (live.get("spec", {}).get("selector") or {}).get("matchLabels"):
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        pods = client.list("v1", "Pod", live["metadata"]["namespace"], labelSelector=selector)
        found += [reason for pod in pods for reason in _pod_reasons(pod)]
    return sorted(set(found))


def is_complete(job: Object) -> bool:
    """Whether a Job has succeeded."""
    return condition(job, "Complete").get("status") == "True"


def _rollout(client: Client, live: Object) -> Progress:
    spec, status = live["spec"], live.get("status", {})
    wanted = spec.get("replicas", 1)
    ready = status.get("readyReplicas", 0)
    if not _is_updated_by_hand(live):
        ready = min(ready, status.get("updatedReplicas", 0))
    if _is_observed(live) and ready >= wanted and status.get("replicas", 0) == wanted:
        return _DONE
    return Progress(False, message=f"{ready}/{wanted} replicas ready")


def _replication_controller(client: Client, live: Object) -> Progress:
    wanted, available = live["spec"].get("replicas"), live.get("status", {}).get("availableReplicas", 0)
    return Progress(_is_observed(live) and available == wanted, message=f"{available}/{wanted} replicas available")


def _is_observed(live: Object) -> bool:
    """Whether the status speaks of the spec as it is now."""
    return live.get("status", {}).get("observedGeneration", 0) >= live["metadata"].get("generation", 0)


def _is_updated_by_hand(live: Object) -> bool:
    return (live["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"


def _daemon_set(client: Client, live: Object) -> Progress:
    status = live.get("status", {})
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    updated = wanted if _is_updated_by_hand(live) else status.get("updatedNumberScheduled", 0)
    if _is_observed(live) and ready >= wanted and updated >= wanted:
        return _DONE
    return Progress(False, message=f"{ready}/{wanted} pods ready")


def _job(client: Client, live: Object) -> Progress:
    if is_complete(live):
        return _DONE
    failed = condition(live, "Failed")
    if failed.get("status") == "True":
        return Progress(False, True, f"{failed.get('reason')}: {failed.get('message')}")
    succeeded, wanted = live.get("status", {}).get("succeeded", 0), live["spec"].get("completions", 1)
    return Progress(False, message=f"{succeeded}/{wanted} completions")


def _pod(client: Client, live: Object) -> Progress:
    status = live.get("status", {})
    if status.get("phase") == "Succeeded" or condition(live, "Ready").get("status") == "True":
        return _DONE
    return Progress(False, status.get("phase") == "Failed", f"the pod is {status.get('phase', 'Pending')}")


def _claim(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("phase") == "Bound":
        return _DONE
    name = live["spec"].get("storageClassName")
    if not name:
        return Progress(False, message="the claim is not bound, and names no storage class")
    storage_class = client.get({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}})
    if storage_class is None:
        return Progress(False, message=f"the claim is not bound: there is no storage class {name}")
    # Such a claim is bound when a pod uses it, and that pod may come later in the same update.
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        return _DONE
    return Progress(False, message="the claim is not bound")


def _volume(client: Client, live: Object) -> Progress:
    phase = live.get("status", {}).get("phase", "Pending")
    return Progress(phase in ("Available", "Bound"), phase == "Failed", f"the volume is {phase}")


def _quota(client: Client, live: Object) -> Progress:
    met = live.get("status", {}).get("hard") == live["spec"].get("hard")
    return Progress(met, message="the quota does not count yet")


def _service(client: Client, live: Object) -> Progress:
    spec = live["spec"]
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") == "None" or not spec.get("selector"):
        return _DONE
    slices = client.list(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        live["metadata"]["namespace"],
        labelSelector=f"kubernetes.io/service-name={live['metadata']['name']}",
    )
    endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or []]
    if not any(endpoint.get("conditions", {}).get("ready") for endpoint in endpoints):
        return Progress(False, message="no pod behind the service is ready")
    if spec.get("type") == "LoadBalancer" and not live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return Progress(False, message="the load balancer has no address")
    return _DONE


def _ingress(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return _DONE
    return Progress(False, message="the ingress has no address")


def _crd(client: Client, live: Object) -> Progress:
    if condition(live, "Established").get("status") == "True":
        return _DONE
    return Progress(False, message="the kind is not served yet")


_RULES: Mapping[str, Callable[[Client, Object], Progress]] = {
    "CustomResourceDefinition.apiextensions.k8s.io": _crd,
    "DaemonSet.apps": _daemon_set,
    "Deployment.apps": _rollout,
    "Ingress.networking.k8s.io": _ingress,
    "Job.batch": _job,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "ReplicationController": _replication_controller,
    "ResourceQuota": _quota,
    "Service": _service,
    "StatefulSet.apps": _rollout,
}


def _bad_conditions(live: Object) -> list[str]:
    """What a Deployment's own conditions say. They may be of an earlier try, so they end no wait."""
    refused, stalled = condition(live, "ReplicaFailure"), condition(live, "Progressing")
    return [item["message"] for item, bad in ((refused, "True"), (stalled, "False")) if item.get("status") == bad]


def _pod_reasons(pod: Object) -> list[str]:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return [f"pod {pod['metadata']['name']}: {scheduled.get('reason')}: {scheduled.get('message')}"]
    waiting = [item.get("state", {}).get("waiting") for item in pod.get("status", {}).get("containerStatuses") or []]
    return [
        f"pod {pod['metadata']['name']}: {item.get('reason')}: {item.get('message', '')}"
        for item in waiting
        if item and item.get("reason") not in ("ContainerCreating", "PodInitializing")
    ]
