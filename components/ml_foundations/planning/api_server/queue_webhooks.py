"""What Kueue's webhooks refuse about a workload, whether or not it names a queue.

Follows pkg/controller/jobframework/validation.go and the webhooks in pkg/controller/jobs of Kueue
v0.19.2; ``topology_requests`` has their rules about topology.
"""

import re
from collections.abc import Iterator
from typing import Any

from ml_foundations.kinds.kind_files import kind_named, queue_of
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    labels_of,
    mappings,
    section,
)
from ml_foundations.kubernetes.text_formats import (
    DNS_SUBDOMAIN,
    DOMAIN_PATH,
    FALSE_TEXTS,
    TRUE_TEXTS,
)
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import definitions
from ml_foundations.planning.api_server.pod_groups import group_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import Workload

_MOST_SETS = 18
"""The most sets of pods in a workload (jobframework/constants.go)."""
_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
_PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
_MANAGED = "kueue.x-k8s.io/managed"
_Faults = Iterator[tuple[str, str, Any, str]]
"""The field, what is wrong with it, its value, and what it must be."""


def refusals(workload: Workload) -> Iterator[Refusal]:
    """Yield the fields of a workload for which Kueue's webhooks refuse it or its pods."""
    is_queued = workload.queue is not None
    cluster = kind_named(workload.kind).path_of("RayCluster")
    for path, problem, value, remedy in (
        *_of_metadata(workload.kind, workload.manifest, ""),
        *_of_managed(workload),
        *_of_templates(workload),
        *(_of_job(workload) if workload.kind == "Job" else ()),
        *(_of_ray(workload, cluster) if is_queued and cluster else ()),
        *(_of_parameters(workload, cluster) if cluster else ()),
    ):
        message = f"Kueue refuses the {workload.kind}: {path} {problem}"
        yield Refusal("queue", path, message, f"{remedy}.", certain=value is not UNKNOWN)


def _of_templates(workload: Workload) -> _Faults:
    """Yield faults of pods, which have a separate webhook."""
    if workload.kind == "Pod":
        return
    # The pods of a queued Deployment or LeaderWorkerSet get its queue, whatever their label is.
    has_queue = workload.queue is not None and workload.kind in ("Deployment", "LeaderWorkerSet")
    templates = {pods.path.removesuffix("spec"): pods.template for pods in workload.pods}
    for path, template in templates.items():
        yield from _of_metadata("Pod", template, path, has_queue=has_queue)


def _of_metadata(kind: str, manifest: Manifest, prefix: str, *, has_queue: bool = False) -> _Faults:
    """Yield faults of labels and annotations (jobframework/validation.go ValidateJobOnCreate)."""
    of_object = labels_of(manifest)
    annotations = annotations_of(manifest)
    in_labels = f"{prefix}metadata.labels."
    in_annotations = f"{prefix}metadata.annotations."
    queue = of_object.get(labels.KUEUE_QUEUE)
    if isinstance(queue, str) and not has_queue and not DNS_SUBDOMAIN.matches(queue):
        path = f"{in_labels}{labels.KUEUE_QUEUE}"
        yield path, f"is {queue}, and must be a DNS subdomain", queue, "Name a LocalQueue"
    if annotations.get(labels.KUEUE_ELASTIC) == "true" and not queue_of(kind).elastic:
        path = f"{in_annotations}{labels.KUEUE_ELASTIC}"
        yield path, f"is true, and {kind}s cannot be elastic", "true", "Leave it out"
    if fault := _gates_fault(annotations.get(_GATED_BY)):
        path = f"{in_annotations}{_GATED_BY}"
        remedy = "Name gates with a domain, once each"
        yield path, fault, annotations[_GATED_BY], remedy
    if kind != "Pod" and "pod" in queue_of(kind).frameworks:
        return  # there is a Workload for each pod or group: the rules of Jobs are for their pods
    seconds = of_object.get(labels.KUEUE_MOST_SECONDS)
    if seconds is not None and not (_is_number(seconds) and int(seconds) > 0):
        path = f"{in_labels}{labels.KUEUE_MOST_SECONDS}"
        yield path, f"is {seconds}", seconds, 'Set a number from 1 on, such as "3600"'
    in_both = {in_labels: of_object.get(_PREBUILT)} | {in_annotations: annotations.get(_PREBUILT)}
    place = in_annotations if annotations.get(_PREBUILT) else in_labels
    name = in_both[place]
    if isinstance(name, str) and not DNS_SUBDOMAIN.matches(name):
        yield f"{place}{_PREBUILT}", f"is {name}, and must be a DNS subdomain", name, "Name it so"
    if kind == "Pod":
        yield from _of_pod(manifest, prefix, name)


def _of_managed(workload: Workload) -> _Faults:
    """Yield a wrong label of pods; those that wait in a queue themselves get the right one."""
    if workload.queue is not None and queue_of(workload.kind).gate == "stored":
        return
    for pods in workload.pods:
        managed = labels_of(pods.template).get(_MANAGED, "true")
        # A definition leaves null out; in a Deployment, it is an empty text.
        is_left_out = managed is None and definitions.is_defined(workload.manifest)
        if managed not in ("true", UNKNOWN) and not is_left_out:
            path = f"{pods.path.removesuffix('spec')}metadata.labels.{_MANAGED}"
            yield path, f"is {managed}, and must be true", managed, "Leave it out"


def _of_pod(pod: Manifest, prefix: str, prebuilt: Any) -> _Faults:
    """Yield faults of the labels of a pod alone (jobs/pod)."""
    group: Any = group_of(pod)
    if not group or group is UNKNOWN:
        return
    if prebuilt and prebuilt != group:
        path = f"{prefix}metadata.labels.{_PREBUILT}"
        problem = f"differs from the group {group}"
        yield path, problem, prebuilt, "Give both the same name"
    if not DNS_SUBDOMAIN.matches(group):
        path = f"{prefix}metadata.labels.{labels.KUEUE_POD_GROUP}"
        yield path, f"is {group}, and must be a DNS subdomain", group, "Name the group so"


def _gates_fault(text: Any) -> str:
    """Return what is wrong with gates (pkg/util/webhook/validation_admissiongatedby.go)."""
    gates = [gate.strip() for gate in text.split(",")] if text and isinstance(text, str) else []
    for gate in gates:
        if not DOMAIN_PATH.matches(gate):
            return f"has {gate or 'an empty gate'}, and each gate must have a domain"
    return "has a gate twice" if len(set(gates)) < len(gates) else ""


def _of_job(workload: Workload) -> _Faults:
    """Yield faults of partial admission and of synchronized completions (jobs/job)."""
    annotations = annotations_of(workload.manifest)
    spec = section(workload.manifest, "spec")
    fewest = annotations.get(labels.KUEUE_LEAST)
    parallelism = spec.get("parallelism", 1)
    path = f"metadata.annotations.{labels.KUEUE_LEAST}"
    if fewest is not None and isinstance(parallelism, int):
        completions = spec.get("completions")
        most = min(parallelism, completions) if isinstance(completions, int) else parallelism
        if not (_is_number(fewest) and 0 < int(fewest) < most):
            allowed = f"a number from 1 to {most - 1}"
            remedy = f"Set it to {allowed}, or leave it out"
            yield path, f"is {fewest}, and must be {allowed}", fewest, remedy
        if _is_elastic(workload):
            yield path, f"excludes {labels.KUEUE_ELASTIC}", fewest, "Keep one of them"
    same = annotations.get(labels.KUEUE_SAME_COMPLETIONS, "false")
    if same not in (*TRUE_TEXTS, *FALSE_TEXTS):
        path = f"metadata.annotations.{labels.KUEUE_SAME_COMPLETIONS}"
        yield path, f"is {same}, which is not a boolean", same, 'Set it to "true", or leave it out'
    if same in TRUE_TEXTS:
        path = f"metadata.annotations.{labels.KUEUE_SAME_COMPLETIONS}"
        completions = spec.get("completions", 1)
        if spec.get("completionMode", "NonIndexed") == "NonIndexed":
            remedy = "Set completionMode: Indexed, or leave the annotation out"
            yield path, "is true for a Job without indexes", "true", remedy
        if UNKNOWN not in (completions, parallelism) and completions != parallelism:
            problem = f"is {completions}, and parallelism is {parallelism}"
            yield "spec.completions", problem, completions, "Set both to the same number"


def _of_ray(workload: Workload, prefix: str) -> _Faults:
    """Yield faults of a Ray cluster, and of the RayJob that makes it (jobs/ray*)."""
    spec = section(workload.manifest, "spec")
    cluster = section(workload.manifest, *prefix.split("."))
    if workload.kind == "RayJob":
        if spec.get("clusterSelector"):
            if cluster:
                problem = "names a cluster that exists, and there is a rayClusterSpec"
                yield "spec.clusterSelector", problem, "", "Leave one of them out"
            return
        if not (kept := spec.get("shutdownAfterJobFinishes", False)) or kept is UNKNOWN:
            problem = "is not true: the cluster would keep the quota after the job"
            yield "spec.shutdownAfterJobFinishes", problem, kept, "Set it to true"
    if cluster.get("enableInTreeAutoscaling") and not _is_elastic(workload):
        path = f"{prefix}.enableInTreeAutoscaling"
        value = cluster["enableInTreeAutoscaling"]
        remedy = f'Leave it out, or set the annotation {labels.KUEUE_ELASTIC}: "true"'
        yield path, "is true for a cluster that is not elastic", value, remedy
    groups = mappings(cluster, "workerGroupSpecs")
    if len(groups) >= _MOST_SETS:
        problem = f"has {len(groups)} groups, and at most {_MOST_SETS - 1} fit in a workload"
        yield f"{prefix}.workerGroupSpecs", problem, "", "Join some groups"
    for index, group in enumerate(groups):
        if group.get("groupName") == "head":
            path = f"{prefix}.workerGroupSpecs[{index}].groupName"
            yield path, "is head, the name of the head's group", "head", "Choose another name"


def _of_parameters(workload: Workload, prefix: str) -> _Faults:
    """Yield groups of a Ray cluster without rayStartParams, if Kueue's webhook changes the object.

    Go writes null for such a map, which the definition of KubeRay v1.6.2 refuses.
    """
    cluster = section(workload.manifest, *prefix.split("."))
    holder = section(workload.manifest, "spec") if workload.kind == "RayJob" else cluster
    suspended = holder.get("suspend")
    is_gated = _is_elastic(workload) and workload.kind != "RayJob"
    if not is_gated and (workload.queue is None or suspended is True):
        return
    groups = {f"{prefix}.headGroupSpec": section(cluster, "headGroupSpec")}
    for index, group in enumerate(mappings(cluster, "workerGroupSpecs")):
        groups[f"{prefix}.workerGroupSpecs[{index}]"] = group
    for path, group in groups.items():
        if group and group.get("rayStartParams") is None:
            problem = "is missing, and Kueue writes null for it, which the API server refuses"
            remedy = "Set it; {} is enough"
            is_known = is_gated or suspended is not UNKNOWN
            yield f"{path}.rayStartParams", problem, "" if is_known else UNKNOWN, remedy


def _is_elastic(workload: Workload) -> bool:
    return annotations_of(workload.manifest).get(labels.KUEUE_ELASTIC) == "true"


def _is_number(text: Any) -> bool:
    """Return whether Go's Atoi reads a text."""
    return bool(re.fullmatch(r"[+-]?[0-9]{1,99}", str(text))) and abs(int(text)) < 2**63
