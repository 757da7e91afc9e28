"""What the API server holds before the workloads: nodes, limits, volumes, priorities, queues, and pods that run."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
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
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.api_server.queues import Queues
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
from ml_foundations.planning.model.volumes import Volumes
from ml_foundations.planning.model.workloads import (
    COUNTED,
    GROUPS,
    WORKLOAD_KINDS,
    Workload,
    beside,
    is_finished,
    is_running,
    is_stored,
    may_end,
    read_fields,
    workload,
)
from ml_foundations.planning.scheduler.filters import is_wanted_on, refusals

SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes that every cluster has."""


_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs from its own files: no taint ends these."""
_FIELDS_OF_RULES = {
    "pod-affinity": "affinity",
    "pod-anti-affinity": "anti_affinity",
    "topology-spread": "spread",
}
"""The fields of a pod class that a rule is about."""


class Spread(Enum):
    """How the nodes of a pool are taken to be spread over its zones, where zones matter."""

    EVEN = "even"
    """As GKE does where it can."""
    FULL = "full"
    """As many in each zone as there may ever be: more than there will be."""
    UNKNOWN = "unknown"
    """In zones that are not known."""


class Cluster:
    """What is there, or will be, before the workloads.

    Attributes:
        by_kind: The documents by kind.
        declared: The classes of nodes, a pool as one.
        is_split: Whether some pool is split over its zones, because zones matter.
        limit_ranges: LimitRanges by namespace.
        priority_classes: PriorityClasses by name.
        runtime_classes: RuntimeClasses by name.
        service_accounts: ServiceAccounts that are declared, by namespace and name.
        volumes: Claims, volumes and storage classes.
        devices: Claims of devices.
        queues: Kueue's queues.
        workloads: What is judged.
        running: Pods that take room already, by the name of their node.
        replaced: Other pods that are there: their workloads are judged with all their pods.
        fully_running: The workloads, by their id, all of whose pods run.
        places: The nodes with what those leave free.
        ignored: The rules that the user accepts to break.
        scalers: The HorizontalPodAutoscalers by kind, namespace and name of what they scale.
    """

    def __init__(
        self,
        documents: Sequence[Manifest],
        nodes: Sequence[NodeClass],
        spread: Spread = Spread.EVEN,
        gke: Manifest | None = None,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self.ignored = ignored
        self.by_kind: defaultdict[str, list[Manifest]] = defaultdict(list)
        self.limit_ranges: defaultdict[str, list[Manifest]] = defaultdict(list)
        for document in documents:
            self.by_kind[document["kind"]].append(document)
        for limit_range in self.by_kind["LimitRange"]:
            self.limit_ranges[namespace_of(limit_range)].append(limit_range)
        self.priority_classes = {name_of(each): each for each in self.by_kind["PriorityClass"]}
        self.runtime_classes = {name_of(each): each for each in self.by_kind["RuntimeClass"]}
        self.service_accounts = {
            (namespace_of(each), name_of(each)): each for each in self.by_kind["ServiceAccount"]
        }
        self.declared = [*map(node_class, self.by_kind["Node"]), *nodes]
        self._taints = {
            name_of(n): [*items(section(n, "spec"), "taints")] for n in self.by_kind["Node"]
        }
        self._going = {
            name_of(n)
            for n in self.by_kind["Node"]
            if section(n, "metadata").get("deletionTimestamp")
        }
        self.some_end = any(is_running(pod) and self._may_leave(pod) for pod in self.by_kind["Pod"])
        others = (each for each in documents if each["kind"] not in ("Node", "ConfigMap", "Secret"))
        has_zones = any(node.zones for node in self.declared)
        self.is_split = has_zones and not mentions(others).isdisjoint(labels.ZONES)
        nodes = self.declared
        if self.is_split and spread is not Spread.UNKNOWN:
            parts = (
                part for node in self.declared for part in by_zone(node, most=spread is Spread.FULL)
            )
            nodes = [part for part in parts if part.count]
        nodes = by_host(nodes)
        self._shares_hosts = any(SHARED_HOSTNAME in node.labels for node in nodes[:1])
        self.volumes = Volumes(self.by_kind, gke)
        self.devices = DeviceClaims(self.by_kind)
        self.queues = Queues(self.by_kind)
        self._up = Counter(
            owner for pod in self.by_kind["Pod"] if is_running(pod) for owner in _owners(pod)
        )
        self.scalers: defaultdict[tuple[str, str, str], list[Manifest]] = defaultdict(list)
        for scaler in self.by_kind["HorizontalPodAutoscaler"]:
            target = section(scaler, "spec", "scaleTargetRef")
            if {"apiVersion", "kind", "name"} <= target.keys() and _is_ours(target):
                self.scalers[target["kind"], namespace_of(scaler), target["name"]].append(scaler)
        self.fully_running: set[int] = set()
        self.workloads = list(self._workloads(documents))
        nodes = self.volumes.settle(self.workloads, nodes)
        self.replaced: list[PodClass] = []
        self.running = self._running_pods(all_stay=spread is Spread.EVEN)
        self.places = [carrying(*each) for each in grouped(nodes, self.running, self._mentioned())]
        self._accepted: dict[Hashable, list[int]] = {}

    def _workloads(self, documents: Iterable[Manifest]) -> Iterable[Workload]:
        """The workloads that are to be judged: no pod that runs or has ended, and none that another one makes."""
        declared = {
            (d["kind"], namespace_of(d), name_of(d))
            for kind in WORKLOAD_KINDS
            for d in self.by_kind[kind]
        }
        for document in documents:
            if (
                document["kind"] not in WORKLOAD_KINDS
                or is_running(document)
                or is_finished(document)
            ):
                continue
            if not _owners(document) & declared:
                found = workload(document, self.scalers, self._priority_label)
                if found.claims:
                    found = replace(
                        found, claims=tuple(map(self.volumes.with_default_class, found.claims))
                    )
                if is_stored(document) and not found.unknown:
                    up = self._up[found.kind, found.namespace, found.name]
                    found = beside(found, up)
                    wanted = section(document, "status").get("desiredNumberScheduled", math.inf)
                    if (
                        up >= wanted
                        if found.kind == "DaemonSet"
                        else up and not any(p.count for p in found.pods)
                    ):
                        self.fully_running.add(id(found))
                yield found

    @cached_property
    def is_gke(self) -> bool:
        """Whether some node is of a GKE node pool."""
        return any(labels.GKE_NODE_POOL in node.labels for node in self.declared)

    @cached_property
    def lacks_host_names(self) -> bool:
        """Whether some Node has no label with its host name."""
        nodes = (node for node in self.by_kind["Node"] if MAX_NODES not in annotations_of(node))
        return any(labels.HOSTNAME not in labels_of(node) for node in nodes)

    @cached_property
    def namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        """The labels of every namespace that is known."""
        known = {
            namespace_of(document) for kind in WORKLOAD_KINDS for document in self.by_kind[kind]
        }
        declared = {
            name_of(namespace): labels_of(namespace) for namespace in self.by_kind["Namespace"]
        }
        return {
            name: {labels.NAMESPACE_NAME: name, **declared.get(name, {})}
            for name in (*known, *declared)
        }

    def _running_pods(self, *, all_stay: bool) -> dict[str, list[PodClass]]:
        """Pods that keep their room: none of workloads judged with all their pods; unless all stay, none that end."""
        afresh = {
            (w.kind, w.namespace, w.name)
            for w in self.workloads
            if id(w) not in self.fully_running and not (is_stored(w.manifest) and w.kind in COUNTED)
        }
        found: dict[str, list[PodClass]] = {}
        for pod in self.by_kind["Pod"]:
            if is_finished(pod) or not (is_running(pod) or is_stored(pod)) or self._is_evicted(pod):
                continue
            spec = section(pod, "spec")
            stored = admitted(read_fields(spec), ())
            there = self.pod_class(name_of(pod), namespace_of(pod), labels_of(pod), stored)
            if (
                is_running(pod)
                and not _owners(pod) & afresh
                and (all_stay or not self._may_leave(pod))
            ):
                found.setdefault(spec["nodeName"], []).append(there)
            else:
                self.replaced.append(there)
        return found

    def _may_leave(self, pod: Manifest) -> bool:
        """Return whether a running pod may leave its node by itself: it ends, is deleted, or is evicted by a taint."""
        node = section(pod, "spec").get("nodeName")
        is_deleted = section(pod, "metadata").get("deletionTimestamp") or node in self._going
        return bool(is_deleted) or may_end(pod) or bool(self._evicting_taints(pod))

    def _is_evicted(self, pod: Manifest) -> bool:
        """Return whether a taint of its node evicts a pod at once, and no controller makes another one."""
        evicting = untolerated_taints(
            items(section(pod, "spec"), "tolerations"), self._evicting_taints(pod)
        )
        return bool(evicting) and not section(pod, "metadata").get("ownerReferences")

    def _evicting_taints(self, pod: Manifest) -> list[Manifest]:
        """Return the NoExecute taints of a pod's node that it does not tolerate for ever; none for mirror pods."""
        spec = section(pod, "spec")
        lasting = [
            each for each in items(spec, "tolerations") if each.get("tolerationSeconds") is None
        ]
        taints = [
            t
            for t in self._taints.get(str(spec.get("nodeName")), ())
            if t.get("effect") == "NoExecute"
        ]
        return [] if _MIRROR in annotations_of(pod) else untolerated_taints(lasting, taints)

    def _mentioned(self) -> frozenset[str]:
        """What can tell nodes apart: pods that run already do so by their anti-affinity alone."""
        kinds = (
            found for kind, found in self.by_kind.items() if kind not in ("Node", "Pod", "Job")
        )
        declared = [document for found in kinds for document in found]
        pending = [
            pods.spec
            for each in self.workloads
            if each.kind in ("Pod", "Job")
            for pods in each.pods
        ]
        repelling = [
            section(pod.spec, "affinity").get("podAntiAffinity")
            for pods in self.running.values()
            for pod in pods
        ]
        return mentions([*declared, *pending, *repelling, SHARED_HOSTNAME])

    def pod_class(
        self,
        name: str,
        namespace: str,
        own_labels: Mapping[str, Any],
        spec: Manifest,
        **others: Any,
    ) -> PodClass:
        """The class of pods with an admitted spec: their priority and their claims are looked up."""
        priority, preempts = self.priority(spec)
        claims = self.volumes.exclusive_claims(spec, namespace)
        devices = self.devices.charge(spec, namespace)
        others |= {
            "priority": priority,
            "preempts": preempts,
            "exclusive_claims": claims,
            "devices": devices,
        }
        found = pod_class(name, namespace, own_labels, spec, self.namespaces, **others)
        if self.ignored:
            dropped = {
                field: () for rule, field in _FIELDS_OF_RULES.items() if rule in self.ignored
            }
            found = replace(found, ignored=self.ignored, **dropped)
        if not self._shares_hosts:
            return found

        def shared(rule: Any) -> Any:
            return replace(rule, key=SHARED_HOSTNAME) if rule.key == labels.HOSTNAME else rule

        fields = ("affinity", "anti_affinity", "spread")
        return replace(
            found, **{field: tuple(map(shared, getattr(found, field))) for field in fields}
        )

    def priority(self, spec: Manifest) -> tuple[int, bool]:
        """The priority of pods, and whether they preempt others."""
        name = spec.get("priorityClassName")
        if name in SYSTEM_PRIORITIES:
            return SYSTEM_PRIORITIES[name], spec.get("preemptionPolicy") != "Never"
        found = self.priority_classes.get(name) if name else self.default_priority
        value = int(found.get("value") or 0) if found else int(spec.get("priority") or 0)
        policy = spec.get("preemptionPolicy") or (found or {}).get("preemptionPolicy")
        return value, policy != "Never"

    def _priority_label(self, spec: Manifest) -> str:
        """Return the priority of pods as a label; the name of a class that is not declared stands for its value."""
        name = spec.get("priorityClassName") or ""
        is_known = name in ("", *SYSTEM_PRIORITIES, *self.priority_classes)
        return str(self.priority(spec)[0]) if is_known else name

    @cached_property
    def default_priority(self) -> Manifest | None:
        """The PriorityClass of pods that name none."""
        defaults = [
            priority for priority in self.priority_classes.values() if priority.get("globalDefault")
        ]
        return min(defaults, key=lambda priority: priority.get("value") or 0, default=None)

    def accepting(self, pod: PodClass, among: Sequence[NodeGroup] | None = None) -> list[NodeGroup]:
        """The places whose nodes accept the pods whatever their room; of a DaemonSet, those that it wants."""
        among = self.places if among is None else among
        if pod.one_per_node:
            return [place for place in among if is_wanted_on(pod, place.node)]
        if pod.volume_refusals is not None:
            return [place for place in among if not refusals(pod, place.node)]
        if pod.node_key not in self._accepted:
            indices = (
                index for index, place in enumerate(self.places) if not refusals(pod, place.node)
            )
            self._accepted[pod.node_key] = list(indices)
        return [among[index] for index in self._accepted[pod.node_key]]

    def possibly_accepting(self, pod: PodClass) -> list[NodeGroup]:
        """The places whose nodes may accept the pods: a name or a label is not known."""
        refused = [(place, refusals(pod, place.node)) for place in self.places]
        return [
            place
            for place, found in refused
            if found and not any(refusal.certain for refusal in found)
        ]


def _is_ours(reference: Manifest) -> bool:
    """Whether a reference is to a workload of Kubernetes, and not to another API's object of that kind."""
    version = reference.get("apiVersion")
    return version is None or str(version).rpartition("/")[0] == GROUPS.get(
        str(reference.get("kind"))
    )


def _owners(document: Manifest) -> set[tuple[str, str, str]]:
    """Return the workloads that an object may belong to; a Deployment's ReplicaSet has its name and the pods' hash."""
    found: set[tuple[str, str, str]] = set()
    owners = filter(is_mapping, items(section(document, "metadata"), "ownerReferences"))
    for owner in filter(_is_ours, owners):
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        found.add((kind, namespace_of(document), name))
        suffix = f"-{labels_of(document).get(labels.TEMPLATE_HASH)}"
        if kind == "ReplicaSet" and name.endswith(suffix):
            found.add(("Deployment", namespace_of(document), name.removesuffix(suffix)))
    return found
