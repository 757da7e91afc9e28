"""What Kueue's webhooks refuse about a workload that names a queue.

Follows pkg/controller/jobframework/validation.go and the webhooks in pkg/controller/jobs of Kueue
v0.19.2; ``topology_requests`` has their rules about topology.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, labels_of, mappings, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.text_formats import DNS_SUBDOMAIN
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import Workload

_RAY = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
"""The path of the cluster's spec in each kind of KubeRay."""
_MOST_SETS = 18
"""The most sets of pods in a workload (jobframework/constants.go)."""
_HEAD = "head"
_ELASTIC_KINDS = ("Job", *_RAY)
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's ParseBool reads as true."""
_Faults = Iterator[tuple[str, str, Any, str]]
"""The field, what is wrong with it, its value, and what it must be."""


def refusals(workload: Workload) -> Iterator[Refusal]:
    """Yield the fields of a queued workload for which Kueue's webhook refuses it."""
    for path, problem, value, wanted in (
        *_of_every_kind(workload),
        *(_of_job(workload) if workload.kind == "Job" else ()),
        *(_of_ray(workload) if workload.kind in _RAY else ()),
    ):
        message = f"Kueue refuses the {workload.kind}: {path} {problem}"
        yield Refusal("queue", path, message, f"{wanted}.", certain=value is not UNKNOWN)


def _of_every_kind(workload: Workload) -> _Faults:
    queue, kind = workload.queue, workload.kind
    if isinstance(queue, str) and not DNS_SUBDOMAIN.matches(queue):
        path = f"metadata.labels.{labels.KUEUE_QUEUE}"
        yield path, f"is {queue}, and must be a DNS subdomain", queue, "Name a LocalQueue"
    seconds = labels_of(workload.manifest).get(labels.KUEUE_MOST_SECONDS)
    if seconds is not None and not (_is_number(seconds) and int(seconds) > 0):
        path = f"metadata.labels.{labels.KUEUE_MOST_SECONDS}"
        yield path, f"is {seconds}", seconds, 'Set a number from 1 on, such as "3600"'
    if _is_elastic(workload) and kind not in _ELASTIC_KINDS:
        path = f"metadata.annotations.{labels.KUEUE_ELASTIC}"
        yield path, f"is true, and {kind}s cannot be elastic", "true", "Leave it out"


def _of_job(workload: Workload) -> _Faults:
    """Yield faults of partial admission and of synchronized completions (jobs/job)."""
    annotations, spec = annotations_of(workload.manifest), section(workload.manifest, "spec")
    fewest, parallelism = annotations.get(labels.KUEUE_LEAST), spec.get("parallelism", 1)
    path = f"metadata.annotations.{labels.KUEUE_LEAST}"
    if fewest is not None and isinstance(parallelism, int):
        if not (_is_number(fewest) and 0 < int(fewest) < parallelism):
            wanted = f"a number from 1 to {parallelism - 1}"
            remedy = f"Set it to {wanted}, or leave it out"
            yield path, f"is {fewest}, and must be {wanted}", fewest, remedy
        if _is_elastic(workload):
            yield path, f"excludes {labels.KUEUE_ELASTIC}", fewest, "Keep one of them"
    if annotations.get(labels.KUEUE_SAME_COMPLETIONS) in _TRUE:
        path = f"metadata.annotations.{labels.KUEUE_SAME_COMPLETIONS}"
        completions = spec.get("completions", 1)
        if spec.get("completionMode", "NonIndexed") == "NonIndexed":
            remedy = "Set completionMode: Indexed, or leave the annotation out"
            yield path, "is true for a Job without indexes", "true", remedy
        if UNKNOWN not in (completions, parallelism) and completions != parallelism:
            problem = f"is {completions}, and parallelism is {parallelism}"
            yield "spec.completions", problem, completions, "Set both to the same number"


def _of_ray(workload: Workload) -> _Faults:
    """Yield faults of a Ray cluster, and of the RayJob that makes it (jobs/ray*)."""
    spec, keys = section(workload.manifest, "spec"), _RAY[workload.kind]
    cluster, prefix = section(workload.manifest, *keys), ".".join(keys)
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
        path, value = f"{prefix}.enableInTreeAutoscaling", cluster["enableInTreeAutoscaling"]
        remedy = f'Leave it out, or set the annotation {labels.KUEUE_ELASTIC}: "true"'
        yield path, "is true for a cluster that is not elastic", value, remedy
    groups = mappings(cluster, "workerGroupSpecs")
    if len(groups) >= _MOST_SETS:
        problem = f"has {len(groups)} groups, and at most {_MOST_SETS - 1} fit in a workload"
        yield f"{prefix}.workerGroupSpecs", problem, "", "Join some groups"
    yield from _head_groups(prefix, groups)


def _head_groups(prefix: str, groups: Sequence[Any]) -> _Faults:
    for index, group in enumerate(groups):
        if group.get("groupName") == _HEAD:
            path = f"{prefix}.workerGroupSpecs[{index}].groupName"
            yield path, f"is {_HEAD}, the name of the head's group", _HEAD, "Choose another name"


def _is_elastic(workload: Workload) -> bool:
    return annotations_of(workload.manifest).get(labels.KUEUE_ELASTIC) == "true"


def _is_number(text: Any) -> bool:
    return str(text).isdecimal()
