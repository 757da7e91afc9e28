"""What a workload still lacks, told from its own status, its controller's, and its pods'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Seen = Mapping[str, Mapping[tuple[str, str], Object]]


@dataclass(frozen=True)
class Missing:
    """Why a workload does not run.

    Attributes:
        is_coming: Whether its objects say that this will change by itself.
        next: What its controller would create next; it is to come unless the API server refuses one of them.
    """

    why: str
    is_coming: bool = False
    next: Sequence[Object] = ()


DONE = Missing("")
"""Nothing is missing."""


def missing_of(workload: Object, seen: Seen, pods: Mapping[str, list[Object]]) -> Missing:
    """What a workload lacks; ``DONE`` where it runs, or has run."""
    kind, metadata = workload["kind"], workload["metadata"]
    space, name = metadata["namespace"], metadata["name"]
    mine = pods.get(space, [])
    if kind == "Pod":
        found = [pod for pod in mine if pod["metadata"]["name"] == name]
        return _of_pods(found, seen) if found else Missing("the pod is gone")
    if kind == "CronJob":
        kind = "Job"
        workload = workload["spec"]["jobTemplate"] | {"kind": kind, "metadata": metadata}
    held = seen[kind].get((space, name))
    if held is None:
        return DONE if kind == "Job" else Missing("it is gone", is_coming=True)
    if kind == "Deployment":
        return _deployment(held, seen, mine)
    own = _owned(mine, held)
    return {"Job": _job, "DaemonSet": _daemon_set}.get(kind, _replicated)(held, own, seen)


def _owned(objects: Sequence[Object], owner: Object) -> list[Object]:
    uid = owner["metadata"]["uid"]
    return [
        item for item in objects
        if any(reference["uid"] == uid for reference in item["metadata"].get("ownerReferences", ()))
    ]  # fmt: skip


def _pod_of(held: Object) -> Object:
    """One more pod of a template."""
    template = held["spec"]["template"]
    made = _beside(held, "v1", "Pod", {"spec": template["spec"]})
    made["metadata"]["labels"] = template.get("metadata", {}).get("labels", {})
    return made


def _beside(held: Object, api_version: str, kind: str, content: Object) -> Object:
    own = held["metadata"]
    metadata = {"generateName": f"{own['name']}-", "namespace": own["namespace"]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | content


def _is_observed(held: Object) -> bool:
    return held.get("status", {}).get("observedGeneration", 0) >= held["metadata"]["generation"]


# --- By kind


def _deployment(held: Object, seen: Seen, pods: Sequence[Object]) -> Missing:
    space = held["metadata"]["namespace"]
    sets = _owned([item for (where, _), item in seen["ReplicaSet"].items() if where == space], held)
    if not sets and held["spec"].get("paused"):
        return Missing("it is paused")
    if not sets:
        spec = {"replicas": 0} | {key: held["spec"][key] for key in ("selector", "template")}
        new = _beside(held, "apps/v1", "ReplicaSet", {"spec": spec})
        return Missing("it has no ReplicaSet", next=[new])
    if not _is_observed(held):
        return Missing("its controller has not seen it", is_coming=True)
    if sum(item["spec"]["replicas"] for item in sets) < held["spec"]["replicas"]:
        return Missing("its ReplicaSet is too small", is_coming=True)
    found = [_replicated(item, _owned(pods, item), seen) for item in sets]
    return next((missing for missing in found if missing is not DONE), DONE)


def _replicated(held: Object, pods: Sequence[Object], seen: Seen) -> Missing:
    """ReplicaSets, ReplicationControllers and StatefulSets."""
    wanted, is_ordered = held["spec"]["replicas"], held["kind"] == "StatefulSet"
    if not _is_observed(held) and is_ordered:
        return Missing("its controller has not seen it", next=_set_parts(held))
    found = _of_pods(pods, seen)
    if found is not DONE or len(pods) == wanted:
        unseen = Missing("its controller has not seen it", is_coming=True)
        return found if _is_observed(held) else unseen
    if len(pods) > wanted:
        return Missing("it has too many pods", is_coming=True)
    return Missing(f"{len(pods)} of {wanted} pods exist", next=[*_claims(held), _pod_of(held)])


def _set_parts(held: Object) -> list[Object]:
    """What StatefulSets and DaemonSets keep beside their pods: a revision of their template."""
    return [_beside(held, "apps/v1", "ControllerRevision", {"revision": 1, "data": {}})]


def _claims(held: Object) -> list[Object]:
    templates = held["spec"].get("volumeClaimTemplates", ())
    specs = [{"spec": item["spec"]} for item in templates]
    return [_beside(held, "v1", "PersistentVolumeClaim", spec) for spec in specs]


def _daemon_set(held: Object, pods: Sequence[Object], seen: Seen) -> Missing:
    if not _is_observed(held):
        return Missing("its controller has not seen it", next=_set_parts(held))
    wanted = held["status"]["desiredNumberScheduled"]
    found = _of_pods(pods, seen)
    if found is not DONE or len(pods) >= wanted:
        return found
    return Missing(f"{len(pods)} of {wanted} pods exist", next=[_pod_of(held)])


def _job(held: Object, pods: Sequence[Object], seen: Seen) -> Missing:
    """A Job has run when it is complete; one that waits to be resumed wants no pods."""
    spec, status = held["spec"], held.get("status", {})
    true = {item["type"] for item in status.get("conditions", ()) if item["status"] == "True"}
    rests = spec.get("suspend") or 0 in (spec.get("parallelism"), spec.get("completions"))
    if "Complete" in true or rests:
        return DONE
    if "Failed" in true:
        return Missing("it failed")
    if spec.get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
        return Missing("another controller is to manage it")
    ended = [pod for pod in pods if pod["status"].get("phase") in ("Succeeded", "Failed")]
    if any(map(_is_tracked, ended)):
        return Missing("finished pods are not counted yet", is_coming=True)
    active = [pod for pod in pods if pod not in ended]
    found = _of_pods(active, seen)
    if found is not DONE:
        return found
    if active or "Complete" in true or "SuccessCriteriaMet" in true:
        return Missing("it still works", is_coming=True)
    return Missing(f"{status.get('succeeded', 0)} pods have done their work", next=[_pod_of(held)])


def _is_tracked(pod: Object) -> bool:
    return "batch.kubernetes.io/job-tracking" in pod["metadata"].get("finalizers", ())


# --- Pods


def _of_pods(pods: Sequence[Object], seen: Seen) -> Missing:
    """The first pod that does not run; one that is to change comes before one that is not."""
    found = [missing for pod in pods if (missing := _of_pod(pod, seen)) is not DONE]
    return next((missing for missing in found if missing.is_coming), found[0]) if found else DONE


def _of_pod(pod: Object, seen: Seen) -> Missing:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    name = metadata["name"]
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    if "deletionTimestamp" in metadata:
        return Missing(f"{name} ends", is_coming=True)
    if spec.get("nodeName"):
        if ("", spec["nodeName"]) not in seen["Node"]:
            return Missing(f"{name} is on a node that does not exist")
        if status.get("phase") == "Failed":
            return Missing(f"{name} failed")
        last = "Succeeded" if spec.get("restartPolicy") != "Always" else "Running"
        return DONE if status.get("phase") == last else Missing(f"{name} starts", is_coming=True)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("reason") in ("Unschedulable", "SchedulingGated"):
        return Missing(scheduled.get("message", scheduled["reason"]))
    if spec.get("schedulerName") != "default-scheduler":
        return Missing(f"{name} is for another scheduler")
    if absent := _absent_claims(pod, seen):
        # The scheduler puts such a pod aside and says nothing about it.
        return Missing(f"{name} needs the resource claim {absent[0]}, which does not exist")
    return Missing(f"{name} is not scheduled yet", is_coming=True)


def _absent_claims(pod: Object, seen: Seen) -> list[str]:
    """The resource claims of a pod that are not there, or not made yet."""
    statuses = pod["status"].get("resourceClaimStatuses", ())
    made = {item["name"]: item.get("resourceClaimName") for item in statuses}
    claims = {
        item["name"]: item.get("resourceClaimName") or made.get(item["name"])
        for item in pod["spec"].get("resourceClaims", ())
    }
    space = pod["metadata"]["namespace"]
    return [name for name, claim in claims.items() if (space, claim) not in seen["ResourceClaim"]]
