"""The objects that exist before the workloads: nodes, limits, volumes, queues, running pods."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Any

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
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.api_server.queues import Queues, by_name
from ml_foundations.planning.model import workloads
from ml_foundations.planning.model.devices import DeviceClaims
from ml_foundations.planning.model.equivalence import grouped, mentions
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, carrying, pod_class
from ml_foundations.planning.model.nodes import (
    MAX_NODES,
    SHARED_HOSTNAME,
    NodeClass,
    by_host,
    by_zone,
    node_class,
)
from ml_foundations.planning.model.owners import Key, all_owners, is_kubernetes_kind, owners_of
from ml_foundations.planning.model.volumes import Volumes
from ml_foundations.planning.model.workloads import Workload, workload_kinds
from ml_foundations.planning.scheduler.filters import is_wanted_on, refusals

SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes that every cluster has."""
_FIELDS_OF_RULES = {
    "pod-affinity": "affinity",
    "pod-anti-affinity": "anti_affinity",
    "topology-spread": "spread",
}
"""The fields of a pod class that a rule is about."""


class Spread(Enum):
    """An assumption about the spread of a pool's nodes over its zones, if zones matter."""

    EVEN = "even"
    """Evenly, as GKE does if it can."""
    FULL = "full"
    """As many in each zone as there may ever be: more than there will be."""
    UNKNOWN = "unknown"
    """In zones that are not known."""


class Cluster:
    """The objects that are in the cluster, or will be, before the workloads.

    The constructor only sorts the documents by kind. Every other part is computed when it is first
    read, so the order of the calls does not matter.

    Attributes:
        by_kind: The documents by kind.
        limit_ranges: LimitRanges by namespace.
        priority_classes: PriorityClasses by name.
        runtime_classes: RuntimeClasses by name.
        service_accounts: The declared ServiceAccounts by namespace and name.
        devices: Claims of devices.
        queues: Kueue's queues.
        declared: The classes of nodes, each pool as one.
        ignored: The rules whose errors the user accepts.
        scalers: The HorizontalPodAutoscalers by kind, namespace and name of their targets.
    """

    def __init__(
        self,
        documents: Sequence[Manifest],
        nodes: Sequence[NodeClass],
        spread: Spread = Spread.EVEN,
        gke: Manifest | None = None,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self._documents = documents
        self._spread = spread
        self._gke = gke
        self.ignored = ignored
        self._accepted: dict[Hashable, list[int]] = {}
        self.by_kind: defaultdict[str, list[Manifest]] = defaultdict(list)
        for document in documents:
            self.by_kind[document["kind"]].append(document)
        self.priority_classes = by_name(self.by_kind["PriorityClass"])
        self.runtime_classes = by_name(self.by_kind["RuntimeClass"])
        self.service_accounts: dict[tuple[str, str], Manifest] = {}
        for account in self.by_kind["ServiceAccount"]:
            self.service_accounts[namespace_of(account), name_of(account)] = account
        self.limit_ranges: defaultdict[str, list[Manifest]] = defaultdict(list)
        for limit_range in self.by_kind["LimitRange"]:
            self.limit_ranges[namespace_of(limit_range)].append(limit_range)
        self.scalers: defaultdict[tuple[str, str, str], list[Manifest]] = defaultdict(list)
        for scaler in self.by_kind["HorizontalPodAutoscaler"]:
            target = section(scaler, "spec", "scaleTargetRef")
            if {"apiVersion", "kind", "name"} <= target.keys() and is_kubernetes_kind(target):
                self.scalers[target["kind"], namespace_of(scaler), target["name"]].append(scaler)
        self.devices = DeviceClaims(self.by_kind)
        self.queues = Queues(self.by_kind)
        existing = map(self.devices.with_published, map(node_class, self.by_kind["Node"]))
        self.declared = [*existing, *nodes]

    @cached_property
    def is_split(self) -> bool:
        """True if pools are split over their zones, because some document mentions zones."""
        if not any(node.zones for node in self.declared):
            return False
        without_zones = ("Node", "ConfigMap", "Secret")
        documents = (item for item in self._documents if item["kind"] not in without_zones)
        return not mentions(documents).isdisjoint(labels.ZONES)

    @cached_property
    def _split_nodes(self) -> list[NodeClass]:
        """The declared nodes, by zone if the cluster is split."""
        if not self.is_split or self._spread is Spread.UNKNOWN:
            return by_host(self.declared)
        is_full = self._spread is Spread.FULL
        parts: list[NodeClass] = []
        for node in self.declared:
            parts += (part for part in by_zone(node, most=is_full) if part.count)
        return by_host(parts)

    @cached_property
    def _found_workloads(self) -> tuple[list[Workload], frozenset[Workload]]:
        """The workloads to judge, and those of them whose pods all run already.

        Running and finished pods are not workloads, nor is an object that another workload creates.
        """
        running_pods = Counter[Key]()
        for pod in filter(workloads.is_running, self.by_kind["Pod"]):
            running_pods.update(all_owners(pod, self._owners))
        pending_workloads: list[Workload] = []
        fully_running: set[Workload] = set()
        for document in self._documents:
            is_workload = document["kind"] in workload_kinds()
            if not is_workload or workloads.is_running(document) or workloads.is_finished(document):
                continue
            if not owners_of(document).isdisjoint(self._owners):
                continue
            pending = workloads.workload(document, self.scalers, self._priority_label)
            if pending.claims:
                claims = tuple(map(self._unsettled_volumes.with_default_class, pending.claims))
                pending = replace(pending, claims=claims)
            if workloads.is_stored(document) and not pending.unknown:
                running = running_pods[pending.kind, pending.namespace, pending.name]
                pending = workloads.without_running(pending, running)
                if _has_all_pods(pending, running):
                    fully_running.add(pending)
            pending_workloads.append(pending)
        return pending_workloads, frozenset(fully_running)

    @cached_property
    def _owners(self) -> Mapping[Key, set[Key]]:
        """The declared workloads by kind, namespace and name, each with its owners."""
        owners: dict[Key, set[Key]] = {}
        for kind in workload_kinds():
            for document in self.by_kind[kind]:
                owners[kind, namespace_of(document), name_of(document)] = owners_of(document)
        return owners

    @property
    def workloads(self) -> list[Workload]:
        """The workloads to judge."""
        return self._found_workloads[0]

    @property
    def fully_running(self) -> frozenset[Workload]:
        """The workloads whose pods all run already."""
        return self._found_workloads[1]

    @cached_property
    def _unsettled_volumes(self) -> Volumes:
        return Volumes(self.by_kind, self._gke)

    @cached_property
    def _nodes(self) -> list[NodeClass]:
        """All nodes, with the free volumes that only they reach."""
        return self._unsettled_volumes.settle(self.workloads, self._split_nodes)

    @cached_property
    def volumes(self) -> Volumes:
        """The claims, volumes and storage classes, after it is known which claims compete."""
        _ = self._nodes  # reading them settles the volumes
        return self._unsettled_volumes

    @property
    def running(self) -> Mapping[str, list[PodClass]]:
        """Pods that use resources already, by the name of their node."""
        return self._stored_pods[0]

    @property
    def replaced(self) -> list[PodClass]:
        """Other stored pods: their workloads are judged with all their pods."""
        return self._stored_pods[1]

    @cached_property
    def node_groups(self) -> list[NodeGroup]:
        """The nodes with the resources that the running pods leave free."""
        groups = grouped(self._nodes, self.running, self._mentioned)
        return list(itertools.starmap(carrying, groups))

    @cached_property
    def some_end(self) -> bool:
        """True if some running pod may leave its node by itself."""
        return any(map(self._may_leave, filter(workloads.is_running, self.by_kind["Pod"])))

    @property
    def is_declared(self) -> bool:
        """True if the settings of the cluster are given: then everything in it is declared."""
        return self._gke is not None

    @cached_property
    def is_gke(self) -> bool:
        """True if some node is of a GKE node pool."""
        of_gke = (labels.GKE_NODE_POOL, labels.COMPUTE_CLASS)
        return any(key in node.labels for node in self.declared for key in of_gke)

    @cached_property
    def lacks_host_names(self) -> bool:
        """True if some Node has no label with its host name."""
        nodes = [node for node in self.by_kind["Node"] if MAX_NODES not in annotations_of(node)]
        return any(labels.HOSTNAME not in labels_of(node) for node in nodes)

    @cached_property
    def namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        """The labels of every namespace that is known."""
        by_name: dict[str, Mapping[str, Any]] = {}
        for kind in workload_kinds():
            for name in map(namespace_of, self.by_kind[kind]):
                by_name[name] = {labels.NAMESPACE_NAME: name}
        for namespace in self.by_kind["Namespace"]:
            name = name_of(namespace)
            by_name[name] = {labels.NAMESPACE_NAME: name, **labels_of(namespace)}
        return by_name

    @cached_property
    def _stored_pods(self) -> tuple[dict[str, list[PodClass]], list[PodClass]]:
        """The pods that stay on their nodes, by node, and the pods that do not.

        A pod does not stay if its workload is judged with all its pods. A pod that may leave its
        node stays only if nodes are spread evenly: a relaxed cluster is without it.
        """
        judged_whole: set[Key] = set()
        for pending in self.workloads:
            is_counted = workloads.is_stored(pending.manifest) and pending.kind in workloads.COUNTED
            if not is_counted and pending not in self.fully_running:
                judged_whole.add((pending.kind, pending.namespace, pending.name))
        staying: dict[str, list[PodClass]] = {}
        not_staying: list[PodClass] = []
        for document in self.by_kind["Pod"]:
            is_there = workloads.is_running(document)
            is_new = not (is_there or workloads.is_stored(document))
            if is_new or workloads.is_finished(document) or self._is_evicted(document):
                continue
            spec = section(document, "spec")
            stored = admitted(workloads.read_fields(spec), ())
            name = name_of(document)
            namespace = namespace_of(document)
            pod = self.pod_class(name, namespace, labels_of(document), stored)
            may_leave = self._spread is not Spread.EVEN and self._may_leave(document)
            has_owner = not all_owners(document, self._owners).isdisjoint(judged_whole)
            if is_there and not has_owner and not may_leave:
                staying.setdefault(spec["nodeName"], []).append(pod)
            else:
                not_staying.append(pod)
        return staying, not_staying

    @cached_property
    def _nodes_by_name(self) -> Mapping[str, Manifest]:
        return by_name(self.by_kind["Node"])

    def _node_of(self, pod: Manifest) -> Manifest:
        return self._nodes_by_name.get(str(section(pod, "spec").get("nodeName")), {})

    def _may_leave(self, pod: Manifest) -> bool:
        """Return whether a running pod may leave: it ends, is deleted, or is evicted by a taint."""
        is_deleted = _is_deleted(pod) or _is_deleted(self._node_of(pod))
        return is_deleted or workloads.may_end(pod) or bool(self._evicting_taints(pod))

    def _is_evicted(self, pod: Manifest) -> bool:
        """Return whether a taint evicts a pod at once, and no controller replaces it."""
        if section(pod, "metadata").get("ownerReferences"):
            return False
        tolerations = items(section(pod, "spec"), "tolerations")
        return bool(untolerated_taints(tolerations, self._evicting_taints(pod)))

    def _evicting_taints(self, pod: Manifest) -> list[Manifest]:
        """Return the NoExecute taints of a pod's node that it does not tolerate forever.

        A kubelet runs mirror pods whatever the taints, so they have none.
        """
        if workloads.MIRROR in annotations_of(pod):
            return []
        taints = items(section(self._node_of(pod), "spec"), "taints")
        evicting = [taint for taint in taints if taint.get("effect") == "NoExecute"]
        tolerations = items(section(pod, "spec"), "tolerations")
        forever = [item for item in tolerations if item.get("tolerationSeconds") is None]
        return untolerated_taints(forever, evicting)

    @cached_property
    def _mentioned(self) -> frozenset[str]:
        """Every string in a rule that can distinguish nodes.

        Of running pods, only the anti-affinity distinguishes nodes.
        """
        trees: list[Any] = [SHARED_HOSTNAME]
        for kind, documents in self.by_kind.items():
            if kind not in ("Node", "Pod", "Job"):
                trees += documents
        for pending in self.workloads:
            if pending.kind in ("Pod", "Job"):
                trees += (pods.spec for pods in pending.pods)
        for pod in itertools.chain.from_iterable(self.running.values()):
            trees.append(section(pod.spec, "affinity").get("podAntiAffinity"))
        return mentions(trees)

    def pod_class(
        self, name: str, namespace: str, own_labels: Manifest, spec: Manifest, **others: Any
    ) -> PodClass:
        """Return the class of pods with an admitted spec; their priority and claims are looked up.

        The rules that the user accepts do not apply to it.
        """
        priority, preempts = self.priority(spec)
        pod = pod_class(
            name,
            namespace,
            own_labels,
            spec,
            self.namespaces,
            priority=priority,
            preempts=preempts,
            exclusive_claims=self.volumes.exclusive_claims(spec, namespace),
            devices=self.devices.charge(spec, namespace),
            **others,
        )
        if self.ignored:
            fields = [_FIELDS_OF_RULES[rule] for rule in self.ignored & _FIELDS_OF_RULES.keys()]
            pod = replace(pod, ignored=self.ignored, **dict.fromkeys(fields, ()))
        # Either all nodes have the label or none has.
        shares_hosts = any(SHARED_HOSTNAME in node.labels for node in self._split_nodes[:1])
        return _with_shared_hosts(pod) if shares_hosts else pod

    def stored(self, spec: Manifest, namespace: str) -> Manifest:
        """Return the spec of a pod in a namespace as the API server stores it."""
        return admitted(spec, self.limit_ranges.get(namespace, ()), self.runtime_classes)

    def priority(self, spec: Manifest) -> tuple[int, bool]:
        """Return the priority of pods, and whether they preempt others."""
        name = spec.get("priorityClassName")
        if name in SYSTEM_PRIORITIES:
            return SYSTEM_PRIORITIES[name], spec.get("preemptionPolicy") != "Never"
        declared = self.priority_classes.get(name) if name else self.default_priority
        value = int(declared.get("value") or 0) if declared else int(spec.get("priority") or 0)
        policy = spec.get("preemptionPolicy") or (declared or {}).get("preemptionPolicy")
        return value, policy != "Never"

    def _priority_label(self, spec: Manifest) -> str:
        """Return the priority of pods as a label, or the name of a class that is not declared."""
        name = spec.get("priorityClassName") or ""
        is_known = name in ("", *SYSTEM_PRIORITIES, *self.priority_classes)
        return str(self.priority(spec)[0]) if is_known else name

    @cached_property
    def default_priority(self) -> Manifest | None:
        """The PriorityClass of pods that name none."""
        classes = self.priority_classes.values()
        defaults = [priority for priority in classes if priority.get("globalDefault")]
        return min(defaults, key=lambda priority: priority.get("value") or 0, default=None)

    def large_enough(self, pod: PodClass) -> list[NodeGroup]:
        """Return the node groups that accept the pods, and have or may have what one requests.

        If none has all of it, these are the groups with its devices, such as GPUs.
        """
        devices = {name: amount for name, amount in pod.requests.items() if "/" in name}
        for needed in (pod.requests, devices):
            able: list[NodeGroup] = []
            for group in self.accepting(pod):
                offered = group.node.allocatable
                has_room = all(offered.get(name, 0) >= needed[name] for name in needed)
                if has_room or group.node.unknown:
                    able.append(group)
            if able:
                return able
        return []

    def accepting(self, pod: PodClass, among: Sequence[NodeGroup] | None = None) -> list[NodeGroup]:
        """Return the node groups that accept the pods, whatever is free on them.

        Of a DaemonSet, these are the groups on which its controller wants a pod. ``among`` are the
        cluster's node groups with more pods on them, in the same order.
        """
        among = self.node_groups if among is None else among
        if pod.one_per_node:
            return [place for place in among if is_wanted_on(pod, place.node)]
        # Thousands of workloads have few keys: each key looks at the nodes once. Volumes differ
        # from workload to workload.
        key = pod.node_key if pod.volume_refusals is None else pod
        if key not in self._accepted:
            accepting = self._accepted[key] = []
            for index, place in enumerate(self.node_groups):
                if not refusals(pod, place.node):
                    accepting.append(index)
        return [among[index] for index in self._accepted[key]]

    def possibly_accepting(self, pod: PodClass) -> list[NodeGroup]:
        """Return the node groups that may accept the pods, because a name or a label is unknown."""
        possible: list[NodeGroup] = []
        for place in self.node_groups:
            refused = refusals(pod, place.node)
            if refused and not any(refusal.certain for refusal in refused):
                possible.append(place)
        return possible


def _is_deleted(document: Manifest) -> bool:
    return bool(section(document, "metadata").get("deletionTimestamp"))


def _has_all_pods(workload: Workload, running: int) -> bool:
    """Return whether as many pods of a stored workload run as its controller wants."""
    # A DaemonSet declares no number of pods: its controller counts the nodes that want one.
    if workload.kind == "DaemonSet":
        desired = section(workload.manifest, "status").get("desiredNumberScheduled")
        return isinstance(desired, int) and running >= desired
    missing = sum(pods.count for pods in workload.pods)
    # Those of other kinds are without the running ones already.
    missing -= 0 if workload.kind in workloads.COUNTED else running
    return bool(running) and missing <= 0


def _with_shared_hosts(pod: PodClass) -> PodClass:
    """Return a pod class whose rules about host names are about groups of nodes that share one."""
    fields: dict[str, Any] = {}
    for name in _FIELDS_OF_RULES.values():
        rules: list[Any] = []
        for rule in getattr(pod, name):
            is_of_hosts = rule.key == labels.HOSTNAME
            rules.append(replace(rule, key=SHARED_HOSTNAME) if is_of_hosts else rule)
        fields[name] = tuple(rules)
    return replace(pod, **fields)
