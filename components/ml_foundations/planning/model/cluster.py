"""What some documents declare: nodes, quotas, limits, volumes, priorities, workloads and pods that run already."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import Manifest, items, labels_of, name_of, namespace_of, section
from ml_foundations.planning.api_server import admission
from ml_foundations.planning.api_server import quotas as quota
from ml_foundations.planning.api_server.queues import Queues
from ml_foundations.planning.model import pods
from ml_foundations.planning.model.nodes import NodeClass, by_zone, from_manifests
from ml_foundations.planning.model.places import Place, PodClass, places, pod_class
from ml_foundations.planning.model.pods import PodSet, Workload
from ml_foundations.planning.model.resources import Amounts
from ml_foundations.planning.model.volumes import Volumes

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priority classes that every cluster has."""


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
        declared: The classes of nodes, a pool as one.
        nodes: The classes of nodes, a pool split over its zones where zones matter.
        is_split: Whether there is a pool that is split.
        limit_ranges: LimitRanges by namespace.
        quotas: ResourceQuotas by namespace.
        volumes: Claims, volumes and storage classes.
        queues: Kueue's queues.
        workloads: What is judged.
        running: Pods that take room already, by the name of their node.
        places: The nodes with what those leave free.
        taken: What is used of each quota before the workloads, by the quota's id.
    """

    def __init__(self, documents: list[Manifest], nodes: list[NodeClass], spread: Spread = Spread.EVEN) -> None:
        by_kind: defaultdict[str, list[Manifest]] = defaultdict(list)
        for document in documents:
            by_kind[document["kind"]].append(document)
        self._by_kind = by_kind
        self.declared = [*from_manifests(by_kind["Node"]), *nodes]
        self.nodes = self.declared
        self.is_split = any(node.zones for node in self.declared) and _mentions_zones(documents)
        if self.is_split and spread is not Spread.UNKNOWN:
            parts = (part for node in self.declared for part in by_zone(node, most=spread is Spread.FULL))
            self.nodes = [part for part in parts if part.count]
        self.limit_ranges = _by_namespace(by_kind["LimitRange"])
        self.quotas = _by_namespace(by_kind["ResourceQuota"])
        self.volumes = Volumes(by_kind)
        self.queues = Queues(by_kind)
        declared = {(d["kind"], namespace_of(d), name_of(d)) for d in documents if d["kind"] in pods.WORKLOAD_KINDS}
        self.workloads = [
            pods.workload(document, self._autoscalers)
            for document in documents
            if document["kind"] in pods.WORKLOAD_KINDS
            and not pods.is_running(document)
            and not pods.is_finished(document)
            and not _owners(document) & declared
        ]
        self.running = self._running_pods()
        self.places = places(self.nodes, self.running)
        self._accepted: dict[str, list[int]] = {}
        self.taken = {id(quota_): self._taken_of(quota_) for quotas in self.quotas.values() for quota_ in quotas}

    @cached_property
    def _autoscalers(self) -> Mapping[tuple[str, str, str], Manifest]:
        targets = (
            (section(scaler, "spec", "scaleTargetRef"), scaler) for scaler in self._by_kind["HorizontalPodAutoscaler"]
        )
        return {(target["kind"], namespace_of(scaler), target["name"]): scaler for target, scaler in targets if target}

    @cached_property
    def _namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        name_label = "kubernetes.io/metadata.name"
        known = {namespace_of(d) for kind in (*pods.WORKLOAD_KINDS,) for d in self._by_kind[kind]}
        found: dict[str, Mapping[str, Any]] = {name: {name_label: name} for name in known}
        for namespace in self._by_kind["Namespace"]:
            found[name_of(namespace)] = {name_label: name_of(namespace), **labels_of(namespace)}
        return found

    @cached_property
    def priority_classes(self) -> Mapping[str, Manifest]:
        """The PriorityClasses by name."""
        return {name_of(priority): priority for priority in self._by_kind["PriorityClass"]}

    @cached_property
    def runtime_classes(self) -> Mapping[str, Manifest]:
        """The RuntimeClasses by name."""
        return {name_of(runtime): runtime for runtime in self._by_kind["RuntimeClass"]}

    def _running_pods(self) -> dict[str, list[PodClass]]:
        """Pods that take room already, but for those of the workloads that are judged here."""
        mine = {(w.kind, w.namespace, w.name) for w in self.workloads}
        found: dict[str, list[PodClass]] = {}
        for pod in self._by_kind["Pod"]:
            if pods.is_running(pod) and not _owners(pod) & mine:
                spec = section(pod, "spec")
                admitted = admission.admitted(pods.read_fields(spec), ())
                running = self.pod_class(name_of(pod), namespace_of(pod), labels_of(pod), admitted)
                found.setdefault(spec["nodeName"], []).append(running)
        return found

    def pod_class(
        self, name: str, namespace: str, own_labels: Mapping[str, Any], spec: Manifest, **others: Any
    ) -> PodClass:
        """The class of pods with an admitted spec: their priority and their claims are looked up."""
        priority, preempts = self._priority(spec)
        claims = self.volumes.exclusive_claims(spec, namespace)
        return pod_class(
            name,
            namespace,
            own_labels,
            spec,
            self._namespaces,
            priority=priority,
            preempts=preempts,
            exclusive_claims=claims,
            **others,
        )

    def _priority(self, spec: Manifest) -> tuple[int, bool]:
        name = spec.get("priorityClassName")
        if name in SYSTEM_PRIORITIES:
            return SYSTEM_PRIORITIES[name], spec.get("preemptionPolicy") != "Never"
        found = self.priority_classes.get(name) if name else self.default_priority
        value = int(found.get("value", 0)) if found else int(spec.get("priority") or 0)
        policy = spec.get("preemptionPolicy") or (found or {}).get("preemptionPolicy")
        return value, policy != "Never"

    @cached_property
    def default_priority(self) -> Manifest | None:
        """The PriorityClass of pods that name none."""
        defaults = [priority for priority in self.priority_classes.values() if priority.get("globalDefault")]
        return min(defaults, key=lambda priority: priority.get("value", 0), default=None)

    def _taken_of(self, quota_: Manifest) -> Amounts:
        """What is used of a quota before the workloads: by its status, or by pods and claims that are there."""
        if found := quota.used(quota_):
            return found
        namespace = namespace_of(quota_)
        parts = [
            (quota.pod_charge(pod.spec), 1)
            for running in self.running.values()
            for pod in running
            if pod.namespace == namespace and quota.covers_pod(quota_, pod.spec)
        ]
        if quota.covers_objects(quota_):
            parts += [
                (quota.claim_charge(self.volumes.with_default_class(claim)), 1)
                for claim in self._by_kind["PersistentVolumeClaim"]
                if namespace_of(claim) == namespace
            ]
        return quota.charges(parts)

    def accepting(self, pod: PodClass, among: Sequence[Place] | None = None) -> list[Place]:
        """The places whose nodes accept the pods whatever their room; of a DaemonSet, those that it wants."""
        among = self.places if among is None else among
        if pod.one_per_node:
            return [place for place in among if pod.is_wanted_on(place.node)]
        if pod.volume_refusals is not None:
            return [place for place in among if not pod.refusals(place.node)]
        if pod.node_key not in self._accepted:
            indices = (index for index, place in enumerate(self.places) if not pod.refusals(place.node))
            self._accepted[pod.node_key] = list(indices)
        return [among[index] for index in self._accepted[pod.node_key]]

    def perhaps(self, pod: PodClass) -> list[Place]:
        """The places whose nodes may accept the pods: a name or a label is not known."""
        return [
            place
            for place in self.places
            if (found := pod.refusals(place.node)) and not any(refusal.certain for refusal in found)
        ]

    def count(self, workload: Workload, pod_set: PodSet, pod: PodClass) -> int:
        """How many pods must run at once; of a DaemonSet, one on each node that matches."""
        if workload.kind == "DaemonSet":
            return sum(place.count for place in self.accepting(pod))
        return pod_set.count


def _mentions_zones(documents: Iterable[Manifest]) -> bool:
    """Whether zones matter to some workload or volume."""
    text = json.dumps([d for d in documents if d["kind"] not in ("Node", "ConfigMap", "Secret")], default=str)
    return any(f'"{label}"' in text for label in labels.ZONES)


def _by_namespace(documents: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for document in documents:
        found.setdefault(namespace_of(document), []).append(document)
    return found


def _owners(document: Manifest) -> set[tuple[str, str, str]]:
    """The workloads that an object may belong to; ReplicaSets are named after their Deployment."""
    found: set[tuple[str, str, str]] = set()
    for owner in items(section(document, "metadata"), "ownerReferences"):
        found.add((owner["kind"], namespace_of(document), owner["name"]))
        if owner["kind"] == "ReplicaSet":
            found.add(("Deployment", namespace_of(document), owner["name"].rpartition("-")[0]))
    return found
