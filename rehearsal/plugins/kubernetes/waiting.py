"""When an object counts as ready, and what to say while it does not: the rules that the official plugin documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.plugins.kubernetes.client import Client, Object

SKIP = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
TIMEOUT = "pulumi.com/timeoutSeconds"

DEFAULT_SECONDS: Mapping[str, float] = {"PersistentVolumeClaim": 300}
USUAL_SECONDS = 600


@dataclass(frozen=True)
class Progress:
    """How far an object is: done, failed for good, or still waiting for something."""

    done: bool
    failed: bool = False
    message: str = ""
    details: list[str] = field(default_factory=list[str])


DONE = Progress(True)


def annotation(obj: Object, name: str) -> str:
    """An annotation of an object, or nothing."""
    return (obj.get("metadata", {}).get("annotations") or {}).get(name, "")


def is_skipped(obj: Object) -> bool:
    """Whether the user said not to wait."""
    return annotation(obj, SKIP) == "true"


def seconds(obj: Object, allowed: float) -> float:
    """How long to wait: by customTimeouts, by annotation, or by kind."""
    return allowed or float(annotation(obj, TIMEOUT) or DEFAULT_SECONDS.get(obj["kind"], USUAL_SECONDS))


def progress(client: Client, live: Object) -> Progress:
    """How far a live object is."""
    if conditions := annotation(live, WAIT_FOR):
        return _wait_for(live, conditions)
    rule = RULES.get(live["kind"])
    return rule(client, live) if rule else DONE


def _wait_for(live: Object, text: str) -> Progress:
    """The waitFor annotation: ``condition=Type[=Status]``, ``jsonpath={.path}[=value]``, or a JSON list of these."""
    wanted: list[str] = json.loads(text) if text.startswith("[") else [text]
    missing = [item for item in wanted if not _meets(live, item)]
    return Progress(not missing, message=f"waiting for {', '.join(missing)}")


def _meets(live: Object, wanted: str) -> bool:
    kind, _, rest = wanted.partition("=")
    if kind == "condition":
        name, _, status = rest.partition("=")
        return _condition(live, name).get("status") == (status or "True")
    found = re.fullmatch(r"\{?\.?(.*?)\}?(?:=(.*))?", rest)
    path, value = (found[1], found[2]) if found else (rest, None)
    actual = _at(live, path)
    return actual is not None if value is None else str(actual) == value


def _at(value: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _condition(live: Object, name: str) -> Object:
    conditions = live.get("status", {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == name), {})


def _rollout(client: Client, live: Object) -> Progress:
    spec, status = live["spec"], live.get("status", {})
    wanted = spec.get("replicas", 1)
    ready = min(status.get("readyReplicas", 0), status.get("updatedReplicas", 0))
    current = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    stalled = _condition(live, "Progressing")
    # The first status after an update may still carry the old rollout's failure, of another ReplicaSet.
    if current and stalled.get("reason") == "ProgressDeadlineExceeded" and not status.get("updatedReplicas"):
        return Progress(False, True, stalled["message"], _troubles(client, live))
    if current and ready >= wanted and status.get("replicas", 0) == wanted:
        return DONE
    return Progress(False, False, f"{ready}/{wanted} replicas ready", _troubles(client, live))


def _daemon_set(client: Client, live: Object) -> Progress:
    status = live.get("status", {})
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    current = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    if current and ready >= wanted and status.get("updatedNumberScheduled", 0) >= wanted:
        return DONE
    return Progress(False, False, f"{ready}/{wanted} pods ready", _troubles(client, live))


def _job(client: Client, live: Object) -> Progress:
    if _condition(live, "Complete").get("status") == "True":
        return DONE
    failed = _condition(live, "Failed")
    if failed.get("status") == "True":
        return Progress(False, True, f"{failed.get('reason')}: {failed.get('message')}")
    succeeded, wanted = live.get("status", {}).get("succeeded", 0), live["spec"].get("completions", 1)
    return Progress(False, False, f"{succeeded}/{wanted} completions", _troubles(client, live))


def _pod(client: Client, live: Object) -> Progress:
    status = live.get("status", {})
    if status.get("phase") == "Succeeded" or _condition(live, "Ready").get("status") == "True":
        return DONE
    details = _pod_troubles(live)
    return Progress(False, status.get("phase") == "Failed", f"the pod is {status.get('phase', 'Pending')}", details)


def _claim(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("phase") == "Bound":
        return DONE
    storage_class = client.get(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": live["spec"].get("storageClassName", "")},
        }
    )
    # Such a claim is bound when a pod uses it, and that pod may come later in the same update.
    if storage_class and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        return DONE
    return Progress(False, False, "the claim is not bound", [] if storage_class else ["its storage class is not there"])


def _service(client: Client, live: Object) -> Progress:
    spec = live["spec"]
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") == "None" or not spec.get("selector"):
        return DONE
    slices = client.list(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        live["metadata"]["namespace"],
        labelSelector=f"kubernetes.io/service-name={live['metadata']['name']}",
    )
    endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or []]
    if not any(endpoint.get("conditions", {}).get("ready") for endpoint in endpoints):
        return Progress(False, False, "no pod behind the service is ready")
    if spec.get("type") == "LoadBalancer" and not live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return Progress(False, False, "the load balancer has no address")
    return DONE


def _ingress(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return DONE
    return Progress(False, False, "the ingress has no address")


def _crd(client: Client, live: Object) -> Progress:
    if _condition(live, "Established").get("status") == "True":
        return DONE
    return Progress(False, False, "the kind is not served yet")


RULES: Mapping[str, Callable[[Client, Object], Progress]] = {
    "CustomResourceDefinition": _crd,
    "DaemonSet": _daemon_set,
    "Deployment": _rollout,
    "Ingress": _ingress,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "Service": _service,
    "StatefulSet": _rollout,
}


def _troubles(client: Client, live: Object) -> list[str]:
    """What keeps the pods of a workload from running."""
    labels = live["spec"].get("selector", {}).get("matchLabels") or {}
    namespace = live["metadata"]["namespace"]
    pods = client.list("v1", "Pod", namespace, labelSelector=",".join(f"{k}={v}" for k, v in labels.items()))
    found = [trouble for pod in pods for trouble in _pod_troubles(pod)]
    refused = _condition(live, "ReplicaFailure").get("message")
    return sorted({*found, *([refused] if refused else [])})


def _pod_troubles(pod: Object) -> list[str]:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return [f"pod {pod['metadata']['name']}: {scheduled.get('reason')}: {scheduled.get('message')}"]
    waiting = [item.get("state", {}).get("waiting") for item in pod.get("status", {}).get("containerStatuses") or []]
    return [
        f"pod {pod['metadata']['name']}: {item.get('reason')}: {item.get('message', '')}"
        for item in waiting
        if item and item.get("reason") not in ("ContainerCreating", "PodInitializing")
    ]
