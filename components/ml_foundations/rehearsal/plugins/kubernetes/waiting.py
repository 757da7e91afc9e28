"""When an object counts as ready, and what to say while it does not: the rules that the official plugin documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind

REPLACE_UNREADY = "pulumi.com/replaceUnready"
SKIP = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
TIMEOUT = "pulumi.com/timeoutSeconds"

DEFAULT_SECONDS: Mapping[str, float] = {"PersistentVolumeClaim": 300}
USUAL_SECONDS = 600

WHOLE_NUMBER = re.compile(r"[1-9]\d*", re.ASCII)
CONDITION = re.compile(r"condition=([^=]+)(?:=(.*))?")
JSONPATH = re.compile(r"jsonpath=\{\s*\$?((?:\.[A-Za-z_]\w*|\[\d+\])+)\s*\}(?:=([^=]+))?")
"""The paths that are read here: those without wildcards, filters and quotes."""


@dataclass(frozen=True)
class Progress:
    """How far an object is: done, failed for good, or still waiting for something."""

    done: bool
    failed: bool = False
    message: str = ""


DONE = Progress(True)


def annotation(obj: Object, name: str) -> str:
    """An annotation of an object, or nothing; nothing as well where it is not known yet, or is no text."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    said = annotations.get(name) if isinstance(annotations, Mapping) else None
    return said if isinstance(said, str) else ""


def faults(obj: Object) -> list[str]:
    """What is wrong with the annotations that say how to wait."""
    found: list[str] = []
    said = annotation(obj, TIMEOUT)
    if said and not WHOLE_NUMBER.fullmatch(said):
        found.append(f"the annotation {TIMEOUT} must be a whole number of seconds (got {said!r})")
    if (said := annotation(obj, WAIT_FOR)) and not is_skipped(obj):
        try:
            _conditions(said)
        except ValueError as error:
            found.append(str(error))
    return found


def is_skipped(obj: Object) -> bool:
    """Whether the user said not to wait."""
    return annotation(obj, SKIP) == "true"


def seconds(obj: Object, allowed: float) -> float:
    """How long to wait until it is ready: by customTimeouts, by annotation, or by kind."""
    return allowed or _said_seconds(obj) or DEFAULT_SECONDS.get(group_kind(obj), USUAL_SECONDS)


def deletion_seconds(obj: Object, allowed: float) -> float:
    """How long to wait until it is gone: by customTimeouts, by annotation, or as for any kind."""
    return allowed or _said_seconds(obj) or USUAL_SECONDS


def _said_seconds(obj: Object) -> float:
    """What the annotation says; nothing where it makes no sense, which only somebody else can have written."""
    said = annotation(obj, TIMEOUT)
    return float(said) if WHOLE_NUMBER.fullmatch(said) else 0


def progress(client: Client, live: Object) -> Progress:
    """How far a live object is."""
    if conditions := annotation(live, WAIT_FOR):
        return _wait_for(live, conditions)
    rule = RULES.get(group_kind(live))
    return rule(client, live) if rule else DONE


def troubles(client: Client, live: Object) -> list[str]:
    """What keeps an object, or the pods of a workload, from running, in the cluster's own words."""
    if group_kind(live) == "Pod":
        return _pod_troubles(live)
    found = _bad_conditions(live)
    if labels := (live.get("spec", {}).get("selector") or {}).get("matchLabels"):
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        pods = client.list("v1", "Pod", live["metadata"]["namespace"], labelSelector=selector)
        found += [trouble for pod in pods for trouble in _pod_troubles(pod)]
    return sorted(set(found))


def _wait_for(live: Object, text: str) -> Progress:
    missing = [wanted.string for wanted in _conditions(text) if not _meets(live, wanted)]
    return Progress(not missing, message=f"waiting for {', '.join(missing)}")


def _conditions(text: str) -> list[re.Match[str]]:
    """The waitFor annotation: ``condition=Type[=Status]``, ``jsonpath={.path}[=value]``, or a JSON list of these."""
    try:
        given = json.loads(text)
    except ValueError:
        given = text
    wanted = given if isinstance(given, list) else [text]
    found = [CONDITION.fullmatch(item) or JSONPATH.fullmatch(item) for item in wanted if isinstance(item, str)]
    read = [match for match in found if match]
    if not read or len(read) < len(wanted):
        raise ValueError(
            f"the annotation {WAIT_FOR} must be condition=Type[=Status] or jsonpath={{.plain.path}}[=value], "
            f"or a JSON list of these; a rehearsal reads no other paths (got {text!r})"
        )
    return read


def _meets(live: Object, wanted: re.Match[str]) -> bool:
    name, value = wanted.groups()
    if wanted.re is CONDITION:
        return _condition(live, name).get("status") == (value or "True")
    actual = _at(live, name)
    if value is None or actual is None:
        return actual is not None
    return (actual if isinstance(actual, str) else json.dumps(actual)) == value


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
    ready = status.get("readyReplicas", 0)
    if not _is_updated_by_hand(live):
        ready = min(ready, status.get("updatedReplicas", 0))
    if _is_observed(live) and ready >= wanted and status.get("replicas", 0) == wanted:
        return DONE
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
        return DONE
    return Progress(False, message=f"{ready}/{wanted} pods ready")


def is_complete(job: Object) -> bool:
    """Whether a Job has succeeded."""
    return _condition(job, "Complete").get("status") == "True"


def _job(client: Client, live: Object) -> Progress:
    if is_complete(live):
        return DONE
    failed = _condition(live, "Failed")
    if failed.get("status") == "True":
        return Progress(False, True, f"{failed.get('reason')}: {failed.get('message')}")
    succeeded, wanted = live.get("status", {}).get("succeeded", 0), live["spec"].get("completions", 1)
    return Progress(False, message=f"{succeeded}/{wanted} completions")


def _pod(client: Client, live: Object) -> Progress:
    status = live.get("status", {})
    if status.get("phase") == "Succeeded" or _condition(live, "Ready").get("status") == "True":
        return DONE
    return Progress(False, status.get("phase") == "Failed", f"the pod is {status.get('phase', 'Pending')}")


def _claim(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("phase") == "Bound":
        return DONE
    name = live["spec"].get("storageClassName")
    if not name:
        return Progress(False, message="the claim is not bound, and names no storage class")
    storage_class = client.get({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}})
    if storage_class is None:
        return Progress(False, message=f"the claim is not bound: there is no storage class {name}")
    # Such a claim is bound when a pod uses it, and that pod may come later in the same update.
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        return DONE
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
        return DONE
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
    return DONE


def _ingress(client: Client, live: Object) -> Progress:
    if live.get("status", {}).get("loadBalancer", {}).get("ingress"):
        return DONE
    return Progress(False, message="the ingress has no address")


def _crd(client: Client, live: Object) -> Progress:
    if _condition(live, "Established").get("status") == "True":
        return DONE
    return Progress(False, message="the kind is not served yet")


RULES: Mapping[str, Callable[[Client, Object], Progress]] = {
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
    refused, stalled = _condition(live, "ReplicaFailure"), _condition(live, "Progressing")
    return [item["message"] for item, bad in ((refused, "True"), (stalled, "False")) if item.get("status") == bad]


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
