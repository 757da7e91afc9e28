"""The pods of workloads: how many, which template, and how many must run at once."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.counts import Count, deciding_path
from ml_foundations.kinds.kind import Kind, Template, at, holds
from ml_foundations.kinds.kind_files import (
    cached_per_kinds,
    described_kinds,
    kind_named,
    kinds,
    queue_of,
    user_kinds,
)
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.model import exclusive
from ml_foundations.planning.model.declared import key_of, written_kind
from ml_foundations.planning.model.peers import talk
from ml_foundations.planning.model.performance import fingerprint
from ml_foundations.planning.model.written import (
    WrittenField,
    WrittenFields,
    written_fields,
    written_path,
)

COUNTED = frozenset({"Job", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})
"""The kinds that make a declared number of alike pods."""
_STOPS_JOB = {"backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy"}
"""The fields with which failed pods may end a Job."""

_COUNTS = ("replicas", "parallelism", "completions")
_COUNTING_FIELDS = (*_COUNTS, "strategy", "ordinals", "volumeClaimTemplates")
"""The fields next to a template that decide how many pods and claims there are."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs from its own files: no drain moves these, and no taint
ends them (Kubernetes, "Create static Pods")."""
_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"
OF_JOB = (labels.JOB_NAME, "job-name", "batch.kubernetes.io/controller-uid", "controller-uid")
_JOB_SET = "jobset.sigs.k8s.io/"
_OF_JOB_SET = ("jobset-uid", "job-index", "job-key", "job-global-index", "restart-attempt")
"""Labels that JobSet gives to pods (JobSet, api/jobset/v1alpha2)."""
_OF_GROUPS = ("replicatedjob-replicas", "global-replicas", "group-name", "group-replicas")
"""Others that planning does not compute (JobSet v0.12.0, labelAndAnnotateObject)."""
_MOST_APART = 24
"""The most pods of a workload that are placed one by one."""

_READ = {
    row["of"]: frozenset(row["fields"].split())
    for row in rows("read_fields.csv", "ml_foundations.planning.model")
}
"""The fields that decide where a pod may run: of its spec, of a container and of a volume."""
DISK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("iqn",),
    "rbd": ("pool", "image"),
}
"""The kinds of disks that one pod of a node may mount, with the fields that identify a disk."""


@cached_per_kinds
def groups() -> Mapping[str, str]:
    """Return the API group of each kind of workloads."""
    # TrainJobs are judged as the JobSets that are made of them.
    return {name: kind.group for name, kind in kinds().items() if kind.template_paths_in_schema}


@cached_per_kinds
def workload_kinds() -> frozenset[str]:
    """Return the kinds of workloads."""
    return frozenset(groups())


@dataclass(frozen=True, eq=False, slots=True)
class PodSet:
    """Identical pods of a workload."""

    template: Manifest
    """What the pods are made of: their ``metadata`` and ``spec``, whole."""
    spec: Manifest
    """The fields of the pods' spec that decide where they may run."""
    labels: Mapping[str, Any]
    """With those that controllers add; in place of random values, the name of the workload."""
    count: int
    """How many run at once: replicas, or parallelism; of a DaemonSet, decided by the nodes."""
    path: str
    """The path of the pods' spec in the workload's manifest."""
    count_path: str
    """The path of their number."""
    counts: tuple[Count, ...] = ()
    """The factors of their number, with the fields that decide each."""
    written: WrittenFields = field(default_factory=dict[str, WrittenField])
    """The fields that the user wrote, if a controller makes the workload."""

    @property
    def rests(self) -> bool:
        """Return whether a field of the workload is 0, so that none of the pods run yet."""
        values = chain.from_iterable(count.fields.values() for count in self.counts)
        is_none = not math.prod(count.number for count in self.counts)
        return is_none and any(value == 0 for value in values)

    def written_path(self, below: str) -> str:
        """Return the field that the user wrote for one of the pods' spec."""
        return written_path(f"{self.path}.{below}", self.written)


class Ceiling(NamedTuple):
    """A higher number of replicas that a workload may have later."""

    rule: str
    """The rule about it."""
    replicas: int


@dataclass(frozen=True, eq=False, slots=True)
class Workload:
    """A workload and its pods."""

    kind: str
    namespace: str
    name: str
    manifest: Manifest
    pods: tuple[PodSet, ...]
    """Its pod sets; one, except for a JobSet and for a described kind."""
    all_at_once: bool = True
    """Whether the pods are of use only together, as those of always-on workloads and of gangs."""
    phases: tuple[frozenset[str], ...] = ()
    """Of a JobSet whose Jobs wait for others to complete, the paths of pods that run together."""
    groups: int = 0
    """Of a kind whose replicas are groups of pods, the number of replicas."""
    surge: int = 0
    """Replicas beyond the present ones during a rollout."""
    ceiling: int | None = None
    """The most replicas that an autoscaler may set, if it has one."""
    claims: tuple[Manifest, ...] = ()
    """Claims that the workload makes for each of its pods."""
    unknown: tuple[str, ...] = field(default=())
    """Field paths that hold a value that is not known yet."""
    cluster: str = ""
    """Its cluster in words, if a program has several."""

    def __str__(self) -> str:
        kind = annotations_of(self.manifest).get(labels.MADE_FROM, self.kind)
        where = f" in {self.cluster}" if self.cluster else ""
        return f"{kind} {self.namespace}/{self.name}{where}"

    @property
    def is_finite(self) -> bool:
        """Return whether its pods end and make room for others."""
        return holds(self.manifest, kind_named(self.kind).ends)

    @property
    def may_make_room(self) -> bool:
        """Return whether it may make room for others: Pods that end, JobSets without a gang."""
        return self.may_start_in_parts or (self.kind == "Pod" and may_end(self.manifest))

    @property
    def may_start_in_parts(self) -> bool:
        """Return whether it is a JobSet that is not a gang: its pods may run one by one."""
        if self.kind != "JobSet" or annotations_of(self.manifest).get(labels.GANG) == "true":
            return False
        jobs = items(section(self.manifest, "spec"), "replicatedJobs")
        specs = [section(job, "template", "spec") for job in jobs]
        return not (len(specs) == 1 and jobs[0].get("replicas", 1) == 1 and talk(specs[0]))

    @property
    def ends(self) -> bool:
        """Return whether it stops using its nodes by itself."""
        return self.is_finite or self.may_make_room

    @property
    def _job_spec(self) -> Manifest:
        below = ("jobTemplate", "spec") if self.kind == "CronJob" else ()
        return section(self.manifest, "spec", *below)

    @property
    def replaces_evicted(self) -> bool:
        """Return whether evicted pods are replaced for certain: those of Jobs count as failed."""
        if not self.is_finite:
            return self.kind != "Pod"
        if _ignores_evictions(section(self._job_spec, "podFailurePolicy")):
            return True
        many = self.kind != "JobSet" and self.pods[0].count > 6  # the default of backoffLimit
        return not many and _STOPS_JOB.isdisjoint(self._job_spec)

    @property
    def deadline(self) -> int | None:
        """The seconds that a run may last, if the workload limits them."""
        seconds = self._job_spec.get("activeDeadlineSeconds") if self.is_finite else None
        return seconds if isinstance(seconds, int) else None

    @property
    def completions(self) -> int:
        """The pods of a Job that must still do their work; 0 if it has no ``completions``."""
        completions = self._job_spec.get("completions") if self.is_finite else None
        succeeded = section(self.manifest, "status").get("succeeded") or 0
        return max(0, completions - succeeded) if isinstance(completions, int) else 0

    @property
    def takes_turns(self) -> bool:
        """Return whether it leaves room to others in time: plain Jobs, Jobs in a Kueue queue."""
        may_wait = not self.all_at_once or bool(self.phases) or self.queue is not None
        return self.is_finite and may_wait

    @property
    def queue(self) -> str | None:
        """The LocalQueue of Kueue that it waits in."""
        queue = labels_of(self.manifest).get(labels.KUEUE_QUEUE)
        if not queue and self.kind == "CronJob":
            job_template = section(self.manifest, "spec", "jobTemplate")
            queue = labels_of(job_template).get(labels.KUEUE_QUEUE)
        return queue or None

    @property
    def ceilings(self) -> Iterable[Ceiling]:
        """Higher numbers of replicas that it may have later."""
        count = self.groups or self.pods[0].count
        if self.surge:
            yield Ceiling("rollout-surge", count + self.surge)
        if self.ceiling is not None and self.ceiling > count:
            yield Ceiling("autoscaling-ceiling", self.ceiling)

    @property
    def queued_replicas(self) -> int:
        """The number of Workloads of Kueue: one for each group, and each pod of a Deployment."""
        if queue_of(self.kind).gate == "stored":
            return max(1, self.pods[0].count)
        described = described_kinds().get(self.kind)
        if described and not self.groups and described.exclusive in annotations_of(self.manifest):
            return max(1, described.replicas_of(self.manifest))
        return max(1, self.groups)

    @property
    def queued_sets(self) -> list[PodSet]:
        """The pod sets of one such Workload: one per template."""
        counts = Counter[str]()
        for pods in self.pods:
            counts[pods.path] += pods.count
        first = {pods.path: pods for pods in reversed(self.pods)}
        replicas = self.queued_replicas
        return [replace(first[path], count=counts[path] // replicas) for path in counts]

    def pods_of(self, pods: PodSet, replicas: int) -> int:
        """Return how many pods of a set there are with so many replicas."""
        return pods.count // self.groups * replicas if self.groups else replicas


def differing_labels(workload: Workload) -> frozenset[str]:
    """Return the keys of labels whose values differ from pod to pod of a workload."""
    if workload.kind == "StatefulSet":
        return frozenset({_POD_NAME, _POD_INDEX})
    if workload.kind == "JobSet":
        differing = {*OF_JOB, labels.JOB_INDEX, *(f"{_JOB_SET}{key}" for key in _OF_JOB_SET)}
        if all(exclusive.JOB_KEY in pods.labels for pods in workload.pods):
            differing.discard(exclusive.JOB_KEY)
        return frozenset(differing)
    if described := described_kinds().get(workload.kind):
        differing = frozenset(described.own_labels)
        return frozenset[str]().union(*[differing - pods.labels.keys() for pods in workload.pods])
    return frozenset({labels.JOB_INDEX} if is_indexed(workload) else ())


def single_pods(workload: Workload) -> list[PodSet] | None:
    """Return a set for each pod of a workload, with its own labels; None if they are not known."""
    pods = workload.pods[0]
    spec = section(workload.manifest, "spec")
    if workload.kind == "StatefulSet":
        numbers = ordinals(workload)[: pods.count]
        own_labels: list[dict[str, str]] = []
        for number in numbers:
            own_labels.append({_POD_INDEX: str(number), _POD_NAME: f"{workload.name}-{number}"})
    elif is_indexed(workload) and workload.all_at_once and pods.count == spec.get("completions"):
        own_labels = [{labels.JOB_INDEX: str(number)} for number in range(pods.count)]
    else:
        return None
    if len(own_labels) > _MOST_APART:
        return None
    return [replace(pods, count=1, labels={**pods.labels, **added}) for added in own_labels]


def ordinals(workload: Workload) -> range:
    """Return the numbers of the pods of StatefulSets, those that run already included."""
    if workload.groups:
        return range(sum(pods.count for pods in workload.pods))
    spec = section(workload.manifest, "spec")
    first = section(spec, "ordinals").get("start")
    replicas = spec.get("replicas")
    first = first if isinstance(first, int) else 0
    return range(first, first + max(replicas or 0, *(pods.count for pods in workload.pods)))


def is_indexed(workload: Workload) -> bool:
    """Return whether a workload is a Job whose pods have numbers."""
    mode = section(workload.manifest, "spec").get("completionMode")
    return workload.kind == "Job" and mode == "Indexed"


def _controller_labels(document: Manifest) -> Mapping[str, str]:
    """Return the labels that controllers give to all pods of a workload."""
    # The name of the workload replaces the random part of a label.
    by_lot = f"{namespace_of(document)}/{name_of(document)}"
    match document["kind"]:
        case "Deployment":
            return {labels.TEMPLATE_HASH: by_lot}
        case "StatefulSet":
            return {"controller-revision-hash": by_lot}
        case "DaemonSet":
            return {"controller-revision-hash": by_lot, "pod-template-generation": "1"}
        case "Job":
            uid = section(document, "metadata").get("uid") or by_lot
            return dict(zip(OF_JOB, (name_of(document),) * 2 + (uid,) * 2, strict=True))
        case "CronJob":
            return dict.fromkeys(OF_JOB, by_lot)
        case _:
            return {}


def _job_set_labels(document: Manifest, job: Manifest) -> Mapping[str, Any]:
    """Return the labels that a JobSet gives to all pods of one of its replicated Jobs."""
    values = {"jobset-name": name_of(document), "replicatedjob-name": job.get("name")}
    return {f"{_JOB_SET}{key}": value for key, value in values.items()}


def added_labels(document: Manifest, job: Manifest) -> Mapping[str, Any]:
    """Return the labels that controllers add to the pods of a workload that no file describes.

    ``job`` is the pods' Job if the workload is a JobSet. A value is ``UNKNOWN`` if it differs from
    pod to pod or is not known before.
    """
    if document["kind"] == "JobSet":
        own_keys = (*_OF_JOB_SET, *_OF_GROUPS, "job-group-index")
        unknown = (*OF_JOB, labels.JOB_INDEX, *(f"{_JOB_SET}{key}" for key in own_keys))
        names = {labels.JOB_NAME, "job-name"} if job.get("replicas") in (None, 1) else ()
        names_of_job = dict.fromkeys(names, f"{name_of(document)}-{job.get('name')}-0")
        return {**dict.fromkeys(unknown, UNKNOWN), **_job_set_labels(document, job), **names_of_job}
    by_lot = f"{namespace_of(document)}/{name_of(document)}"
    added = _controller_labels(document)
    differing = {"StatefulSet": (_POD_NAME, _POD_INDEX), "Job": (labels.JOB_INDEX,)}
    unknown = [key for key, value in added.items() if value == by_lot]
    unknown += differing.get(document["kind"], ())
    return {**added, **dict.fromkeys(unknown, UNKNOWN)}


def has_scale(kind: str) -> bool:
    """Return whether a kind has a scale: replicas that an autoscaler may set. A user's may have."""
    return kind in user_kinds() or bool(kind_named(kind).replicas)


def is_running(document: Manifest) -> bool:
    """Return whether a document is a pod that takes room on a node already."""
    is_bound = document.get("kind") == "Pod" and section(document, "spec").get("nodeName")
    phase = section(document, "status").get("phase")
    return bool(is_bound) and phase in ("Running", "Pending", "Unknown")


def _ignores_evictions(policy: Manifest) -> bool:
    """Return whether evicted pods do not count as failed: the first rule that matches decides."""
    first = next(iter(items(policy, "rules")), dict[str, Any]())
    conditions = items(first, "onPodConditions")
    states = [(condition.get("type"), condition.get("status", "True")) for condition in conditions]
    return ("DisruptionTarget", "True") in states and first.get("action") == "Ignore"


def may_end(pod: Manifest) -> bool:
    """Return whether a pod ends with its containers, or at its deadline."""
    spec = section(pod, "spec")
    is_limited = spec.get("activeDeadlineSeconds") is not None
    return is_limited or spec.get("restartPolicy", "Always") != "Always"


def is_finished(document: Manifest) -> bool:
    """Return whether a document is a pod, or a workload that runs once, that has ended."""
    if document.get("kind") == "Pod":
        has_ended = section(document, "status").get("phase") in ("Succeeded", "Failed")
        is_known = is_stored(document) or bool(section(document, "spec").get("nodeName"))
        return has_ended and is_known
    # The API server drops the status of an object that is new.
    state, _ = kind_named(str(document.get("kind"))).state_of(document)
    return is_stored(document) and state in ("Completed", "Failed")


def is_stored(document: Manifest) -> bool:
    """Return whether the API server has accepted an object: it gives each a uid."""
    return bool(section(document, "metadata").get("uid"))


def without_running(workload: Workload, running: int) -> Workload:
    """Return a workload without the pods of it that run already."""
    if workload.kind not in COUNTED or not running:
        return workload
    pods = replace(workload.pods[0], count=max(0, workload.pods[0].count - running))
    ceiling = None if workload.ceiling is None else max(0, workload.ceiling - running)
    return replace(workload, pods=(pods,), ceiling=ceiling)


def workload(
    document: Manifest,
    autoscalers: Mapping[tuple[str, str, str], Sequence[Manifest]],
    priority: Callable[[Manifest], str],
) -> Workload:
    """Return the workload that a document of one of ``workload_kinds()`` declares.

    Autoscalers are by kind, namespace and name of what they scale. ``priority`` returns the
    priority of a pod's spec.
    """
    kind = document["kind"]
    namespace = namespace_of(document)
    name = name_of(document)
    unknown = tuple(_unknown(document, kind)) if fingerprint(document) is None else ()
    if unknown:
        return Workload(kind, namespace, name, document, (), unknown=unknown)
    scalers = autoscalers.get((kind, namespace, name), ())
    if described := described_kinds().get(kind):
        return _of_described(document, described, scalers)
    match kind:
        case "Pod":
            spec = read_fields(section(document, "spec"))
            pods = PodSet(document, spec, labels_of(document), 1, "spec", "spec")
            return Workload(kind, namespace, name, document, (pods,))
        case "Job" | "CronJob":
            return _job(document, kind)
        case "JobSet":
            sets = tuple(_of_job_set(document, priority))
            return Workload(kind, namespace, name, document, sets, phases=_phases(document))
        case "DaemonSet":
            pods = _pod_set(document, "spec.template", Count(0, {}))
            return Workload(kind, namespace, name, document, (pods,))
        case _:
            return _replicated(document, kind, scalers)


def read_fields(spec: Manifest) -> Manifest:
    """Return a pod's spec without the fields that do not decide where it may run."""
    present = {key: value for key, value in spec.items() if value not in (None, [], {})}
    kept = _only(present, _READ["pod"])
    for key in ("containers", "initContainers"):
        if key in kept:
            kept[key] = [_only(container, _READ["container"]) for container in kept[key]]
    if "volumes" in kept:
        kept["volumes"] = [_only(volume, _READ["volume"]) for volume in kept["volumes"]]
    return kept


def _only(tree: Any, keys: frozenset[str]) -> Any:
    return {key: value for key, value in tree.items() if key in keys} if is_mapping(tree) else tree


def _unknown(document: Manifest, kind: str) -> Iterable[str]:
    """Yield the paths of unknown values that decide where a workload's pods run."""
    if kind == "JobSet":
        jobs = section(document, "spec").get("replicatedJobs")
        yield from unknown_paths(jobs, "spec.replicatedJobs")
        domain = annotations_of(document).get(exclusive.EXCLUSIVE)
        yield from unknown_paths(domain, f"metadata.annotations.{exclusive.EXCLUSIVE}")
        return
    described = kinds()[kind]
    for path in described.template_paths(document):
        yield from _unknown_template(document, path)
    if described.pods:
        for path, value in described.deciding_values(document):
            yield from unknown_paths(value, path)
    elif kind != "Pod":
        parent = section(document, *described.main_template.split(".")[:-1])
        for key in _COUNTING_FIELDS:
            yield from unknown_paths(parent.get(key), f"spec.{key}")


def _unknown_template(document: Manifest, path: str) -> Iterable[str]:
    """Yield the paths of unknown values in a pod template that decide where its pods run."""
    holder = at(document, path)
    if holder is UNKNOWN:
        yield path
        return
    template: Manifest = holder or {}
    prefix = f"{path}.spec".lstrip(".")
    if template.get("spec") is UNKNOWN:
        yield prefix
        return
    spec = section(template, "spec")
    lists = ("containers", "initContainers", "volumes")
    unknown_lists = [key for key in lists if spec.get(key) is UNKNOWN]
    yield from (f"{prefix}.{key}" for key in unknown_lists)
    if not unknown_lists:
        yield from unknown_paths(read_fields(spec), prefix)
    yield from unknown_paths(labels_of(template), f"{path}.metadata.labels".lstrip("."))


def claim_templates(document: Manifest) -> tuple[Manifest, ...]:
    """Return the claims that an object has made for each of its pods."""
    *parents, key = kind_named(document["kind"]).claims.split(".")
    return tuple(items(section(document, *parents), key))


def _pod_set(document: Manifest, path: str, count: Count) -> PodSet:
    template = section(document, *path.split("."))
    pod_labels = {**labels_of(template), **_controller_labels(document)}
    spec = read_fields(section(template, "spec"))
    counts = (count,)
    count_path = deciding_path(counts)
    return PodSet(template, spec, pod_labels, count.number, f"{path}.spec", count_path, counts)


def _job(document: Manifest, kind: str) -> Workload:
    path = "spec.jobTemplate.spec" if kind == "CronJob" else "spec"
    spec = section(document, *path.split("."))
    succeeded = section(document, "status").get("succeeded") or 0
    marks = [annotations_of(document).get(labels.GANG)]
    if kind == "CronJob":
        marks.append(annotations_of(section(document, "spec", "jobTemplate")).get(labels.GANG))
    is_gang = "true" in marks or talk(spec)
    count = Count(_at_once(spec, succeeded), _job_fields(spec, path, of_gang=is_gang))
    pods = _pod_set(document, f"{path}.template", count)
    return Workload(kind, *key_of(document), document, (pods,), all_at_once=is_gang)


def _job_fields(spec: Manifest, path: str, *, of_gang: bool) -> Mapping[str, Any]:
    """Return the fields that decide how many pods of a Job run at once, with their values."""
    parallelism = spec.get("parallelism")
    completions = spec.get("completions")
    fields = {f"{path}.parallelism": parallelism}
    # All pods of a gang run at once, so it has as many completions.
    is_all = of_gang and completions is not None and completions <= (parallelism or 1)
    return {**fields, f"{path}.completions": completions} if is_all else fields


def _at_once(spec: Manifest, succeeded: int = 0) -> int:
    """Return how many pods of a Job run at once; some that it needs may have succeeded."""
    parallelism = spec.get("parallelism")
    completions = spec.get("completions")
    most = 1 if parallelism is None else parallelism
    return most if completions is None else min(most, max(0, completions - succeeded))


def _of_job_set(document: Manifest, priority: Callable[[Manifest], str]) -> Iterable[PodSet]:
    jobs = items(section(document, "spec"), "replicatedJobs")
    written = written_fields(document)
    ways = [exclusive.placement(document, job) for job in jobs]
    for index, (job, how) in enumerate(zip(jobs, ways, strict=True)):
        path = f"spec.replicatedJobs[{index}]"
        template = section(job, "template", "spec", "template")
        replicas = 1 if job.get("replicas") is None else job["replicas"]
        count = _at_once(section(job, "template", "spec")) if replicas else 0
        spec = read_fields(section(template, "spec"))
        value = priority(spec)
        pod_labels = {
            **labels_of(template),
            **_job_set_labels(document, job),
            **({exclusive.PRIORITY: value} if how.has_priority else {}),
        }
        job_spec = section(job, "template", "spec")
        fields = _job_fields(job_spec, f"{path}.template.spec", of_gang=True)
        fields = {written_path(path, written): value for path, value in fields.items()}
        of_jobs = {written_path(f"{path}.replicas", written): replicas}
        counts = (Count(max(replicas, 1), of_jobs), Count(count, fields))
        count_path = deciding_path(counts)
        spec_path = f"{path}.template.spec.template.spec"
        pods = PodSet(template, spec, pod_labels, count, spec_path, count_path, counts, written)
        # Each child Job has its own set if the Jobs are placed exclusively.
        if replicas > 1 and not any(way.is_exclusive for way in ways):
            yield replace(pods, count=replicas * count)
            continue
        for number in range(max(1, replicas)):
            key = exclusive.job_key(document, job, number)
            name = f"{namespace_of(document)}_{name_of(document)}-{job.get('name')}-{number}"
            placed_spec = exclusive.placed(spec, how, key, value, name)
            own_labels = {**pod_labels, exclusive.JOB_KEY: key}
            alone = (counts[0]._replace(number=1), counts[1])
            yield replace(pods, spec=placed_spec, labels=own_labels, counts=alone)


def _phases(document: Manifest) -> tuple[frozenset[str], ...]:
    """Return for each Job of a JobSet those that may run with it; empty if all may."""
    jobs = items(section(document, "spec"), "replicatedJobs")
    index = {job.get("name"): number for number, job in enumerate(jobs)}
    completed: list[frozenset[int]] = []
    for job in jobs:  # each depends on Jobs before it
        before: set[int] = set()
        # A Job with ``dependsOn`` starts when other Jobs are ready or complete (JobSet,
        # api/jobset/v1alpha2, DependsOn).
        for dependency in items(job, "dependsOn"):
            number = index.get(dependency.get("name"), len(completed))
            if number < len(completed):
                before |= completed[number]
                if dependency.get("status") == "Complete":
                    before.add(number)
        completed.append(frozenset(before))
    if not any(completed):
        return ()
    phases: dict[frozenset[str], None] = {}
    for job_index in range(len(jobs)):
        phase: set[str] = set()
        for candidate in range(len(jobs)):
            if candidate not in completed[job_index] and job_index not in completed[candidate]:
                phase.add(f"spec.replicatedJobs[{candidate}].template.spec.template.spec")
        phases[frozenset(phase)] = None
    return tuple(phases)


def _of_described(document: Manifest, described: Kind, autoscalers: Sequence[Manifest]) -> Workload:
    """Return the workload of a described kind: a pod set for each template."""
    replicas, ceiling = _scaled(described.replicas_of(document), autoscalers)
    outer: tuple[Count, ...] = ()
    if path := described.replicas:
        outer = (_scaled_count(path, at(document, path), replicas, autoscalers),)
    whose = (described.kind, *key_of(document), document)
    claims = claim_templates(document)
    sets: list[PodSet] = []
    is_exclusive = described.exclusive in annotations_of(document)
    templates = [*described.templates(document)]
    for template in templates:
        factors = _shared_factors(templates, template)
        counts = (*outer, *factors)
        pods = PodSet(
            template=template.manifest,
            spec=read_fields(template.spec),
            labels=template.labels,
            count=template.count * replicas,
            path=f"{template.path}.spec",
            count_path=deciding_path(counts),
            counts=counts,
        )
        if not is_exclusive:
            sets.append(pods)
            continue
        counts_of_one = (*[factor._replace(number=1) for factor in outer], *factors)
        alone = replace(pods, count=template.count * min(replicas, 1), counts=counts_of_one)
        for replica in range(max(1, replicas)):
            key, spec = exclusive.placed_group(document, described, pods.spec, replica)
            pod_labels = {**pods.labels, described.key_label: key}
            sets.append(replace(alone, spec=spec, labels=pod_labels))
    if not sets:
        return Workload(*whose, (), unknown=("spec",))
    if is_exclusive or not described.replicas:
        return Workload(*whose, tuple(sets), claims=claims)
    added = at(document, described.surge) if described.surge else 0
    surge = min(_number_or_share(added or 0, replicas), replicas)
    made = Workload(*whose, tuple(sets), claims=claims)
    return replace(made, groups=replicas, surge=surge, ceiling=ceiling)


def _shared_factors(templates: Sequence[Template], template: Template) -> Sequence[Count]:
    """Return the factors of a template's pods; of a leader's and workers' template, of the sum."""
    sharing = [sharer for sharer in templates if sharer.path == template.path]
    if len(sharing) == 1:
        return template.counts
    counts = sharing[-1].counts
    return [count._replace(number=count.number + count.others, others=0) for count in counts]


def _scaled(count: int, autoscalers: Sequence[Manifest]) -> tuple[int, int | None]:
    """Return the replicas of an object within the bounds of its autoscalers, and the most."""
    count = count or int(any(map(_starts_pods, autoscalers)))
    if not (autoscalers and count):
        return count, None
    specs = [section(autoscaler, "spec") for autoscaler in autoscalers]
    ceiling = min(int(scaling.get("maxReplicas", count)) for scaling in specs)
    least = max(int(scaling.get("minReplicas") or 1) for scaling in specs)
    return max(min(count, ceiling), least), ceiling


def _starts_pods(autoscaler: Manifest) -> bool:
    """Return whether an autoscaler scales an object without replicas: KEDA does."""
    return written_kind(autoscaler) == "ScaledObject"


def _scaled_count(
    path: str, declared: Any, replicas: int, autoscalers: Sequence[Manifest]
) -> Count:
    """Return the replicas of an object, with its field and those of its autoscalers."""
    fields = {path: declared}
    ceilings: list[str] = []
    for autoscaler in autoscalers:
        kind = written_kind(autoscaler)
        is_scaled_object = _starts_pods(autoscaler)
        most = "spec.maxReplicaCount" if is_scaled_object else "spec.maxReplicas"
        least = "spec.minReplicaCount" if is_scaled_object else "spec.minReplicas"
        ceilings.append(f"{most} of {kind} {name_of(autoscaler)}")
        if declared != 0 or is_scaled_object:
            fewest = section(autoscaler, "spec").get("minReplicas")
            fields[f"{least} of {kind} {name_of(autoscaler)}"] = int(fewest or 1)
    return Count(replicas, fields, ceilings=tuple(ceilings))


def _replicated(document: Manifest, kind: str, autoscalers: Sequence[Manifest]) -> Workload:
    spec = section(document, "spec")
    declared = spec.get("replicas")
    replicas, ceiling = _scaled(1 if declared is None else declared, autoscalers)
    count = _scaled_count("spec.replicas", declared, replicas, autoscalers)
    sets = (_pod_set(document, "spec.template", count),)
    surge = 0
    strategy = section(spec, "strategy")
    if kind == "Deployment" and strategy.get("type") != "Recreate":
        # A rolling update adds a quarter of the pods by default, rounded up.
        declared_surge = section(strategy, "rollingUpdate").get("maxSurge")
        surge = _number_or_share("25%" if declared_surge is None else declared_surge, replicas)
    claims = claim_templates(document)
    whose = (kind, *key_of(document), document)
    return Workload(*whose, sets, surge=surge, ceiling=ceiling, claims=claims)


def _number_or_share(value: Any, replicas: int) -> int:
    """Return a number, or a percentage of the replicas, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(replicas * int(value[:-1]) / 100)
    return int(value)
