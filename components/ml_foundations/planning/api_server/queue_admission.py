"""Decisions of Kueue about the workloads that wait in a LocalQueue."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from ml_foundations.kinds.kind_files import queue_of
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, times
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server import queue_webhooks
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.defaults import with_gke_tolerations
from ml_foundations.planning.api_server.pod_groups import PodGroups, group_of
from ml_foundations.planning.api_server.stages import seen_by
from ml_foundations.planning.api_server.topology_requests import refused_annotations
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedPodSet,
    AdmittedWorkload,
    Outcome,
    QueueUsage,
)
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.resources import PODS, pod_requests
from ml_foundations.planning.model.workloads import PodSet, Workload

_MOST_CHOICES = 16
"""The most combinations of flavors that are judged one by one."""


class QueueAdmission:
    """Kueue with the LocalQueues and ClusterQueues of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pod_groups = PodGroups(cluster.by_kind["Pod"])
        self._of_groups: dict[tuple[str, str, str], list[Refusal]] = {}
        self._namespaces = set(map(name_of, cluster.by_kind["Namespace"]))
        self._priority_classes = set(map(name_of, cluster.by_kind["WorkloadPriorityClass"]))

    def decide(self, waiting: AdmittedWorkload, name: str) -> AdmittedWorkload:
        """Return a workload with the decisions of the LocalQueue in which it waits.

        Kueue adds the node labels and tolerations of the flavor to which it admits the pods. If
        several flavors are possible, the pods keep their labels, and the workload has each choice
        of flavors. The nodes must then accept the pods of each choice.
        """
        workload = waiting.workload
        namespace = waiting.workload.namespace
        queues = self._cluster.queues
        outcome = waiting.outcome + Outcome.refused(queue_webhooks.refusals(workload))
        outcome += Outcome.refused(refused_annotations(workload))
        outcome += Outcome.refused(self._unknown_priority(workload))
        queue = queues.cluster_queue(namespace, name)
        if queue is None:
            missing = f"there is no LocalQueue {namespace}/{name} with its ClusterQueue"
            message = f"it waits in the queue {name}, and {missing}"
            remedy = f"Declare LocalQueue {name} in namespace {namespace}."
            no_queue = doubt("queue", "metadata.labels", message, remedy)
            return waiting.with_outcome(outcome + Outcome.refused([no_queue]))
        # Without a selector, a ClusterQueue accepts workloads of no namespace.
        selector = section(queue, "spec").get("namespaceSelector")
        if not selects(selector, self._cluster.namespaces.get(namespace, {})):
            rejects = f"does not accept workloads of namespace {namespace}"
            message = f"ClusterQueue {name_of(queue)} {rejects}"
            remedy = "Let its namespaceSelector select the namespace."
            is_certain = namespace in self._namespaces
            closed = Refusal("queue", "metadata.labels", message, remedy, is_certain)
            outcome += Outcome.refused([closed])
        outcome += Outcome.refused(queues.not_known(queue))
        usage: list[QueueUsage] = []
        for pods, pod in waiting.pod_sets:
            if pods.spec.get("resourceClaims"):
                classes = self._cluster.devices.classes(pods.spec, namespace)
                outcome += Outcome.refused(queues.refused_claims(classes, pods.path))
            counted = queues.counted(counted_requests(self._cluster, workload, pods, pod))
            requests = times(counted, fewest_admitted(workload, pods)) if pods.count else {}
            spec = seen_by("queue", self._cluster, workload, pods, pod)
            usage.append(QueueUsage(queue, pods.count_path, spec, requests))
        outcome += Outcome.refused(self._quota_refusals(workload, usage))
        if workload.kind == "Pod":
            outcome += Outcome.refused(self._pod_groups.refusals(workload.manifest))
            outcome += Outcome.refused(self._group_refusals(workload.manifest, queue))
        return self._with_flavors(waiting, usage, outcome)

    def without_queue(self, workload: Workload) -> Outcome:
        """Return what Kueue's webhooks refuse about a workload that waits in no queue.

        They read every workload of a cluster with Kueue, so this needs a ClusterQueue.
        """
        if workload.queue is not None or not self._cluster.by_kind["ClusterQueue"]:
            return NOTHING_DECIDED
        refused = queue_webhooks.refusals(workload)
        return Outcome.refused([*refused, *refused_annotations(workload)])

    def _quota_refusals(self, workload: Workload, usage: Sequence[QueueUsage]) -> Iterable[Refusal]:
        """Return what a queue has too little of. Replicas that wait alone may get other flavors."""
        queues = self._cluster.queues
        replicas = workload.queued_replicas
        refused = [*queues.refusals(usage)]
        if not refused or replicas == 1:
            return refused
        flavors: list[list[str]] = []
        for queue, _, spec, requests in usage:
            flavors += queues.accepting(queue, requests, spec)
        if all(len(accepting) < 2 for accepting in flavors):
            return refused
        one: list[QueueUsage] = []
        for used in usage:
            share = {name: amount // replicas for name, amount in used.requests.items()}
            one.append(used._replace(requests=share))
        return [*queues.refusals(one)] or [refusal._replace(certain=False) for refusal in refused]

    def _group_refusals(self, pod: Manifest, queue: Manifest) -> Sequence[Refusal]:
        """Return what a queue has too little of for a pod's group: it admits all or none."""
        key = namespace_of(pod), group_of(pod), name_of(queue)
        if key not in self._of_groups:
            usage: list[QueueUsage] = []
            for member in self._pod_groups.members(pod):
                spec = self._cluster.stored(section(member, "spec"), key[0])
                requests = self._cluster.queues.counted(_with_pods(pod_requests(spec)))
                usage.append(QueueUsage(queue, "spec", spec, requests))
            few = usage if len(usage) > 1 else []
            self._of_groups[key] = [*self._cluster.queues.refusals(few)]
        return self._of_groups[key]

    def _with_flavors(
        self, waiting: AdmittedWorkload, usage: Sequence[QueueUsage], outcome: Outcome
    ) -> AdmittedWorkload:
        """Return a workload with the labels and tolerations of the flavors that may admit it."""
        by_set: list[list[AdmittedPodSet]] = []
        for (pods, pod), draw in zip(waiting.pod_sets, usage, strict=True):
            specs = self._cluster.queues.admitted(pod.spec, draw)
            # Kueue adds the labels of a flavor to a template before its pods are created.
            if self._cluster.is_gke and not queue_of(waiting.workload.kind).gate:
                specs = map(with_gke_tolerations, specs)
            by_set.append([AdmittedPodSet(pods, replace(pod, spec=spec)) for spec in specs])
        # Each choice is placed on the nodes, and the number of choices is a product.
        choices = [*product(*by_set)] if prod(map(len, by_set)) <= _MOST_CHOICES else []
        if waiting.pod_sets and not choices and not outcome.reasons:
            outcome += Outcome.refused([OTHER_FLAVOR])
        pod_sets = list(waiting.pod_sets)
        for index, flavors in enumerate(by_set):
            if len(flavors) == 1:
                pod_sets[index] = flavors[0]
        queued = replace(
            waiting,
            pod_sets=pod_sets,
            queue_usage=usage,
            flavor_choices=choices,
            outcome=outcome,
        )
        if len(choices) < 2:
            return queued
        possible: list[Sequence[AdmittedPodSet]] = []
        for variant in queued.in_each_flavor():
            if not any(self._cluster.queues.refusals(variant.queue_usage)):
                possible.append(variant.pod_sets)
        if not possible:
            return queued
        only = possible[0] if len(possible) == 1 else queued.pod_sets
        return replace(queued, pod_sets=only, flavor_choices=possible)

    def _unknown_priority(self, workload: Workload) -> Iterator[Refusal]:
        """Yield a WorkloadPriorityClass that a workload names and that is not declared."""
        name = labels_of(workload.manifest).get(labels.KUEUE_PRIORITY)
        if isinstance(name, str) and name and name not in self._priority_classes:
            missing = f"WorkloadPriorityClass does not exist, and {name} is not declared"
            message = f"Kueue admits no workload whose {missing}"
            remedy = f"Declare the WorkloadPriorityClass {name}."
            path = f"metadata.labels.{labels.KUEUE_PRIORITY}"
            yield doubt("queue", path, message, remedy, only_refuses=True)


def counted_requests(cluster: Cluster, workload: Workload, pods: PodSet, pod: PodClass) -> Amounts:
    """Return the amounts that Kueue counts for one pod."""
    return _with_pods(pod_requests(seen_by("queue-quota", cluster, workload, pods, pod)))


def _with_pods(requests: Amounts) -> Amounts:
    return {name: amount for name, amount in requests.items() if amount} | {PODS: WHOLE}


def fewest_admitted(workload: Workload, pods: PodSet) -> int:
    """Return the fewest pods that Kueue admits: partial admission starts a Job with some pods."""
    fewest = annotations_of(workload.manifest).get(labels.KUEUE_LEAST, "")
    fewest = "1" if fewest is UNKNOWN else str(fewest)
    is_partial = workload.kind == "Job" and fewest.isdecimal()
    return min(int(fewest), pods.count) if is_partial else pods.count
