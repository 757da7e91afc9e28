"""Workloads on their way into the cluster: what the API server makes of their pods, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import Manifest, items, name_of, section
from ml_foundations.planning.api_server import admission
from ml_foundations.planning.api_server import quotas as quota
from ml_foundations.planning.model.cluster import SYSTEM_PRIORITIES, Cluster
from ml_foundations.planning.model.places import PodClass
from ml_foundations.planning.model.pods import PodSet, Workload
from ml_foundations.planning.model.resources import Amounts
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.cost import RunCost
from ml_foundations.planning.verdict.findings import Finding, Verdict, together

DEFAULT_SCHEDULER = "default-scheduler"
_DAEMON_TOLERATIONS: tuple[Manifest, ...] = (
    *(
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ),
    *(
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoSchedule"}
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
"""What the DaemonSet controller lets its pods tolerate."""
_PER_POD_LABELS = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    labels.JOB_INDEX,
)
"""Labels that differ from pod to pod of one workload."""


@dataclass(eq=False)
class Candidate:
    """A workload with its pods as the scheduler would see them."""

    workload: Workload
    sets: list[tuple[PodSet, PodClass]] = field(default_factory=list[tuple[PodSet, PodClass]])
    reasons: list[Finding] = field(default_factory=list[Finding])
    warnings: list[Finding] = field(default_factory=list[Finding])
    verdict: Verdict | None = None

    run_cost: RunCost | None = None
    is_refused: bool = False
    """Whether the API server refuses some of its pods."""

    def decide(self, verdict: Verdict, *findings: Finding) -> None:
        """Give the verdict, unless a worse one is there already."""
        self.verdict = together([verdict] if self.verdict is None else [verdict, self.verdict])
        self.reasons += [finding.weighed(verdict) for finding in findings]


class Admission:
    """The API server of a cluster: completes the pods of workloads, charges quotas, and refuses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def admit(self, candidate: Candidate) -> None:
        """Make the pods' classes, or decide what the API server and values that are not known decide."""
        workload = candidate.workload
        if workload.unknown:
            candidate.decide(Verdict.UNDETERMINED, *explain.unknown(workload))
            return
        limit_ranges = self._cluster.limit_ranges.get(workload.namespace, [])
        for pod_set in workload.pods:
            declared = self._with_controller_fields(workload, pod_set)
            spec = admission.admitted(declared, limit_ranges, self._cluster.runtime_classes)
            name = str(workload)
            pod_labels = {**pod_set.labels, **_controller_labels(workload)}
            pod = self._cluster.pod_class(
                name,
                workload.namespace,
                pod_labels,
                spec,
                recreated=workload.kind != "Pod",
                one_per_node=workload.kind == "DaemonSet",
                declared_spec=declared,
                volume_refusals=self._cluster.volumes.refusals(spec, workload),
            )
            candidate.sets.append((pod_set, pod))
            for objection in admission.objections(spec, limit_ranges):
                candidate.decide(Verdict.CANNOT_FIT, explain.objection(workload, pod_set, objection))
            for message, remedy, path in self._open_questions(workload, pod):
                candidate.decide(Verdict.UNDETERMINED, explain.open_question(workload, pod_set, message, remedy, path))
        self._queue(candidate)
        if ambiguous := admission.ambiguous_defaults(limit_ranges):
            candidate.decide(Verdict.UNDETERMINED, explain.ambiguous_defaults(workload, ambiguous))
        for claim in workload.claims:
            for objection in admission.claim_objections(claim, limit_ranges):
                candidate.decide(Verdict.CANNOT_FIT, explain.claim_objection(workload, claim, objection))
        for claim in self._cluster.volumes.claims_of(workload):
            for objection in admission.claim_objections(claim, limit_ranges):
                candidate.decide(Verdict.CANNOT_FIT, explain.claim_objection(workload, claim, objection))
        self._charge(candidate)
        candidate.is_refused = candidate.verdict is Verdict.CANNOT_FIT

    def _with_controller_fields(self, workload: Workload, pod_set: PodSet) -> Manifest:
        """The spec as the workload's controller completes it, with the name of the default priority class."""
        spec = dict(pod_set.spec)
        if "priorityClassName" not in spec and self._cluster.default_priority is not None:
            spec["priorityClassName"] = name_of(self._cluster.default_priority)
        if workload.kind == "DaemonSet":
            spec["tolerations"] = [*items(spec, "tolerations"), *_DAEMON_TOLERATIONS]
        return spec

    def _open_questions(self, workload: Workload, pod: PodClass) -> Iterable[tuple[str, str, str]]:
        """What decides about the pods and is beyond these rules: message, remedy and field of the pod's spec."""
        spec = pod.spec
        if spec.get("schedulingGates"):
            yield (
                "its scheduling gates are lifted by somebody else",
                "Remove the gates to have it judged.",
                "schedulingGates",
            )
        if spec.get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
            yield (
                f"the scheduler {spec['schedulerName']} follows rules of its own",
                "Use the default scheduler to have it judged.",
                "schedulerName",
            )
        if spec.get("resourceClaims"):
            yield (
                "resource claims are allocated by drivers",
                "Request the device as an extended resource.",
                "resourceClaims",
            )
        if spec.get("runtimeClassName") and spec["runtimeClassName"] not in self._cluster.runtime_classes:
            yield (
                f"the runtime class {spec['runtimeClassName']} may add overhead and a node selector",
                f"Declare the RuntimeClass {spec['runtimeClassName']}.",
                "runtimeClassName",
            )
        name = spec.get("priorityClassName")
        if name and name not in self._cluster.priority_classes and name not in SYSTEM_PRIORITIES:
            yield (
                f"the priority class {name} is not declared",
                f"Declare the PriorityClass {name}.",
                "priorityClassName",
            )
        selectors = [*(t.selector for t in (*pod.affinity, *pod.anti_affinity)), *(c.selector for c in pod.spread)]
        if any(key in _PER_POD_LABELS for selector in selectors for key in _selector_keys(selector)):
            yield "a selector tells the pods of one workload apart", "Select the pods by a common label.", "affinity"
        yield from self._cluster.volumes.open_questions(spec, workload)

    def _queue(self, candidate: Candidate) -> None:
        """Ask the quotas of the queue that the workload waits in."""
        workload = candidate.workload
        queue = workload.queue
        if queue is None:
            return
        found = self._cluster.queues.cluster_queue(workload.namespace, queue)
        if found is None:
            candidate.decide(Verdict.UNDETERMINED, explain.unknown_queue(workload, queue))
            return
        for index, (pod_set, pod) in enumerate(candidate.sets):
            requests = {name: amount * pod_set.count for name, amount in pod.requests.items()}
            for name, wanted, most in self._cluster.queues.excess(found, requests):
                candidate.decide(Verdict.CANNOT_FIT, explain.queue_quota(workload, pod_set, found, name, wanted, most))
            sent = replace(pod, spec=self._cluster.queues.sent(pod.spec, found, requests))
            candidate.sets[index] = (pod_set, sent)

    def _charge(self, candidate: Candidate) -> None:
        """Count the workload alone against the quotas of its namespace."""
        workload = candidate.workload
        for quota_ in self._cluster.quotas.get(workload.namespace, []):
            taken = self._cluster.taken[id(quota_)]
            if quota.covers_objects(quota_):
                for charge in (quota.object_charge(workload.kind), self._claims_charge(candidate)):
                    for name, numbers in quota.excess(quota_, charge, taken).items():
                        candidate.decide(Verdict.CANNOT_FIT, explain.quota(workload, quota_, name, numbers))
            self._charge_pods(candidate, quota_, taken)

    def _claims_charge(self, candidate: Candidate) -> Amounts:
        """What the claims count against that a workload makes, one for each of its pods."""
        with_class = self._cluster.volumes.with_default_class
        count = sum(pod_set.count for pod_set, _ in candidate.sets)
        return quota.charges((quota.claim_charge(with_class(claim)), count) for claim in candidate.workload.claims)

    def _charge_pods(self, candidate: Candidate, quota_: Manifest, taken: Amounts) -> None:
        workload = candidate.workload
        covered = [(s, p) for s, p in candidate.sets if quota.covers_pod(quota_, p.spec)]
        for pod_set, pod in covered:
            for field_name, container in quota.missing_requirements(quota_, pod.spec):
                candidate.decide(
                    Verdict.CANNOT_FIT, explain.must_specify(workload, pod_set, quota_, field_name, container)
                )
        counts = {id(pod): self._cluster.count(candidate.workload, pod_set, pod) for pod_set, pod in covered}
        charge = quota.charges((quota.pod_charge(pod.spec), counts[id(pod)]) for _, pod in covered)
        exceeded = quota.excess(quota_, charge, taken)
        if not exceeded:
            self._warn_of_ceiling(candidate, quota_, taken)
        elif not workload.is_partial:
            for name, numbers in exceeded.items():
                candidate.decide(Verdict.CANNOT_FIT, explain.quota(workload, quota_, name, numbers))
        else:
            pod_set, pod = covered[0]
            most = quota.most_pods(quota_, quota.pod_charge(pod.spec), taken, counts[id(pod)])
            name, numbers = next(iter(exceeded.items()))
            if most:
                candidate.warnings.append(
                    explain.turns(workload, pod_set, most, counts[id(pod)], quota.described(quota_))
                )
            else:
                candidate.decide(Verdict.CANNOT_FIT, explain.quota(workload, quota_, name, numbers))

    def _warn_of_ceiling(self, candidate: Candidate, quota_: Manifest, taken: Amounts) -> None:
        """Warn where the quota stops a rollout or an autoscaler, though not the first replicas."""
        workload = candidate.workload
        for pod_set, pod in candidate.sets[:1]:
            if not quota.covers_pod(quota_, pod.spec):
                continue
            for rule, count in ceilings(workload, pod_set.count):
                charge = quota.charges([(quota.pod_charge(pod.spec), count)])
                for name, numbers in quota.excess(quota_, charge, taken).items():
                    candidate.warnings.append(
                        explain.ceiling_quota(workload, pod_set, quota_, rule, count, name, numbers)
                    )


def _controller_labels(workload: Workload) -> Mapping[str, str]:
    """Labels that controllers give to the pods of a workload; hashes stand for themselves."""
    match workload.kind:
        case "Deployment":
            return {"pod-template-hash": f"{workload.namespace}/{workload.name}"}
        case "StatefulSet" | "DaemonSet":
            return {"controller-revision-hash": f"{workload.namespace}/{workload.name}"}
        case "Job":
            return {labels.JOB_NAME: workload.name, "job-name": workload.name}
        case _:
            return {}


def ceilings(workload: Workload, count: int) -> Iterable[tuple[str, int]]:
    """More pods than at first: the rule that speaks of them, and how many there are then."""
    if workload.surge:
        yield "rollout-surge", count + workload.surge
    if workload.ceiling is not None and workload.ceiling > count:
        yield "autoscaling-ceiling", workload.ceiling


def _selector_keys(selector: Manifest | None) -> Iterable[str]:
    if selector:
        yield from section(selector, "matchLabels")
        yield from (requirement["key"] for requirement in items(selector, "matchExpressions"))
