"""Pod classes and node groups: identical pods, and alike nodes with what they have free."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
    texts,
)
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, millis, scheduled
from ml_foundations.kubernetes.selectors import REQUIRED, selects, selects_node
from ml_foundations.kubernetes.tolerations import untolerated_taints
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.performance import fingerprint
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import (
    HUGE_PAGES,
    PODS,
    is_extended,
    pod_limits,
    pod_requests,
)
from ml_foundations.planning.model.workloads import DISK_FIELDS

HOSTNAME = labels.HOSTNAME
_ANY_ADDRESS = "0.0.0.0"
_LIMITED = ("cpu", "memory", "ephemeral-storage")
"""The resources whose limits quotas count too."""
_Port = tuple[str, str, int]
"""Host address, protocol and number."""
_Disk = tuple[Any, ...]
"""Kind and names of a disk, and whether it is only read."""


@dataclass(frozen=True, eq=False)
class AffinityTerm:
    """A required term of pod affinity or anti-affinity."""

    key: str
    selector: Manifest | None
    namespaces: frozenset[str] | None
    """None means every namespace."""

    def matches(self, pod: PodClass) -> bool:
        """Return whether the term is about a pod."""
        return (self.namespaces is None or pod.namespace in self.namespaces) and selects(
            self.selector, pod.labels
        )


@dataclass(frozen=True, eq=False)
class SpreadConstraint:
    """A topology spread constraint that the scheduler enforces."""

    key: str
    max_skew: int
    min_domains: int
    selector: Manifest | None
    honor_affinity: bool
    honor_taints: bool

    def counts(self, pod: PodClass, neighbor: PodClass) -> bool:
        """Return whether a pod counts for the skew of another; an empty selector counts none."""
        return (
            not self.is_empty
            and neighbor.namespace == pod.namespace
            and selects(self.selector, neighbor.labels)
        )

    @property
    def is_empty(self) -> bool:
        """Return whether its selector has no requirement."""
        selector = self.selector or {}
        return not section(selector, "matchLabels") and not items(selector, "matchExpressions")

    def counts_itself(self, pod: PodClass) -> bool:
        """Return whether the pod itself counts once it is placed."""
        return selects(self.selector, pod.labels)


@dataclass(frozen=True, eq=False)
class PodClass:
    """Identical pods, as the scheduler sees them."""

    name: str
    """The workload as text, by which messages name the pods and pods are matched to workloads."""
    namespace: str
    labels: Mapping[str, Any]
    spec: Manifest
    """The admitted spec."""
    priority: int = 0
    preempts: bool = True
    recreated: bool = True
    """Whether a controller makes a new pod for one that is evicted."""
    one_per_node: bool = False
    """Whether they belong to a DaemonSet: one on each node, bound to it by node affinity."""
    created_spec: Manifest | None = None
    """The spec that the controller creates: a DaemonSet's chooses nodes by it."""
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    exclusive_claims: frozenset[str] = frozenset()
    """Claims with the access mode ReadWriteOncePod: one pod at a time, in the whole cluster."""
    made_claims: tuple[Manifest, ...] = ()
    """The claims made for each pod: of a StatefulSet's templates, and of ephemeral volumes."""
    volumes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The free volumes that each pod takes and its node alone reaches, by resource names."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """The charge of the device claims that are made for each pod, by the names of quotas."""
    claimed: Mapping[str, int] = field(default_factory=dict[str, int])
    """The interfaces that each pod claims of its node, by the resources of their classes."""
    volume_refusals: Callable[[NodeClass], list[Refusal]] | None = field(default=None, repr=False)
    """Why volumes keep the pods from a node."""
    ignored: frozenset[str] = frozenset()
    """The rules that the user accepts to break: nodes are judged as if these did not exist."""

    @cached_property
    def requests(self) -> Amounts:
        """The resources that each pod takes of a node, with ``pods``; only cpu has fractions."""
        amounts = scheduled(pod_requests(self.spec)).items()
        requested = {name: amount for name, amount in amounts if amount}
        return {**requested, PODS: WHOLE, **self.volumes, **self.claimed}

    @cached_property
    def charge(self) -> Amounts:
        """The charge of each pod and its device claims, by names of quotas, in thousandths."""
        limits = pod_limits(self.spec)
        charge = {"pods": WHOLE, "count/pods": WHOLE, **self.devices}
        for name, amount in pod_requests(self.spec).items():
            if is_own := name in _LIMITED or name.startswith(HUGE_PAGES):
                charge[name] = amount
            if is_own or is_extended(name):
                charge[f"requests.{name}"] = amount
        return charge | {f"limits.{name}": limits[name] for name in _LIMITED if name in limits}

    @cached_property
    def most_gpus(self) -> int:
        """The most GPUs that one of its containers requests, in thousandths."""
        containers = (*items(self.spec, "containers"), *items(self.spec, "initContainers"))
        requests = (millis(section(container, "resources", "requests")) for container in containers)
        return max((amounts.get(labels.GPU_RESOURCE, 0) for amounts in requests), default=0)

    @cached_property
    def ports(self) -> frozenset[_Port]:
        """The host ports of each pod."""
        if "pod-anti-affinity" in self.ignored:
            return frozenset()
        ports: set[_Port] = set()
        init_containers = items(self.spec, "initContainers")
        sidecars = [c for c in init_containers if c.get("restartPolicy") == "Always"]
        for container in [*items(self.spec, "containers"), *sidecars]:
            for port in items(container, "ports"):
                number = port.get("hostPort")
                if not number and self.spec.get("hostNetwork"):
                    number = port.get("containerPort")
                if number:
                    address = port.get("hostIP") or _ANY_ADDRESS
                    ports.add((address, port.get("protocol") or "TCP", int(number)))
        return frozenset(ports)

    @cached_property
    def disks(self) -> frozenset[_Disk]:
        """The disks that each pod mounts by name: pods of one node share them only to read."""
        disks: set[_Disk] = set()
        for volume in items(self.spec, "volumes"):
            for kind, fields in DISK_FIELDS.items():
                if disk := section(volume, kind):
                    # Only the pool of rbd may be missing, and its default is rbd.
                    names = [disk.get(name) or "rbd" for name in fields]
                    is_read = kind != "awsElasticBlockStore" and bool(disk.get("readOnly"))
                    for monitor in texts(disk, "monitors") or [None]:
                        disks.add((kind, *names, monitor, is_read))
        return frozenset(disks)

    @property
    def writes_to_disks(self) -> list[_Disk]:
        """The disks of Google Cloud that each pod writes to: one node attaches each."""
        return [disk for disk in self.disks if disk[0] == "gcePersistentDisk" and not disk[-1]]

    @cached_property
    def node_key(self) -> Hashable:
        """A key of pods that the same nodes refuse, volumes disregarded."""
        fields = ("nodeName", "nodeSelector", "tolerations")
        affinity = section(self.spec, "affinity").get("nodeAffinity")
        deciding = [self.most_gpus, affinity, *map(self.spec.get, fields)]
        return fingerprint(deciding) or repr(deciding)

    def of(self, **others: Any) -> PodClass:
        """Return the class of other pods that differ in some fields, keeping what is computed."""
        _ = self.excludes_itself_per_node, self.requests, self.node_key  # which are known then
        # Without the constructor, which checks nothing: dataclasses.replace would drop the cached
        # values, and thousands of equivalent workloads would compute them again.
        # A spec may differ in the amounts of its resources only.
        copy = object.__new__(PodClass)
        vars(copy).update(vars(self), **others)
        for key in _OF_AMOUNTS if "spec" in others else ():
            vars(copy).pop(key, None)
        return copy

    @property
    def is_simple(self) -> bool:
        """Return whether only free resources decide, on the nodes that accept the pods."""
        return not (self.affinity or self.anti_affinity or self.spread or self.exclusive_claims)

    @property
    def selecting_rules(self) -> list[AffinityTerm | SpreadConstraint]:
        """All rules about other pods, which they select by their labels."""
        return [*self.anti_affinity, *self.spread, *self.affinity]

    @property
    def is_exclusive(self) -> bool:
        """Return whether the pods may keep others from their node that would have the room."""
        return bool(self.anti_affinity or self.ports or self.disks)

    @cached_property
    def excludes_itself_per_node(self) -> bool:
        """Return whether a node takes one of them only: by host ports, disks or anti-affinity."""
        return self.one_per_node or (self.is_exclusive and self.excludes_on_node(self))

    def excludes_on_node(self, neighbor: PodClass) -> bool:
        """Return whether no node can hold both: by ports, disks or anti-affinity."""
        if (self is neighbor and self.one_per_node) or _collide(self.ports, neighbor.ports):
            return True
        for *disk, is_only_read in self.disks:
            for *other_disk, is_other_only_read in neighbor.disks:
                if disk == other_disk and not (is_only_read and is_other_only_read):
                    return True
        return self._repels_on_node(neighbor) or neighbor._repels_on_node(self)

    def _repels_on_node(self, neighbor: PodClass) -> bool:
        return any(term.key == HOSTNAME and term.matches(neighbor) for term in self.anti_affinity)

    def has_affinity_to(self, neighbor: PodClass) -> bool:
        """Return whether all terms of the pods' affinity match another pod."""
        return all(term.matches(neighbor) for term in self.affinity)

    def is_eligible(self, constraint: SpreadConstraint, node: NodeClass) -> bool:
        """Return whether a node takes part in the skew of a spread constraint."""
        for rule in self.spread:
            if rule.key != HOSTNAME and rule.key not in node.labels:
                return False
        if constraint.honor_affinity and not selects_node(self.spec, node.manifest):
            return False
        return not (
            constraint.honor_taints
            and untolerated_taints(items(self.spec, "tolerations"), node.taints)
        )


_OF_AMOUNTS = ("requests", "charge", "most_gpus", "node_key")


def pod_class(
    name: str,
    namespace: str,
    pod_labels: Mapping[str, Any],
    spec: Manifest,
    namespaces: Mapping[str, Mapping[str, Any]],
    **others: Any,
) -> PodClass:
    """Return the class of pods with an admitted spec."""
    # Namespaces are all that are known, with their labels; ``others`` are more fields of the class.

    def terms(kind: str) -> tuple[AffinityTerm, ...]:
        required = items(section(spec, "affinity", kind), REQUIRED)
        return tuple(_affinity_term(term, namespace, pod_labels, namespaces) for term in required)

    spread: list[SpreadConstraint] = []
    for constraint in items(spec, "topologySpreadConstraints"):
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule":
            continue
        selector: Manifest | None = constraint.get("labelSelector")
        spread.append(
            SpreadConstraint(
                key=constraint["topologyKey"],
                max_skew=int(constraint["maxSkew"]),
                min_domains=int(constraint.get("minDomains") or 1),
                selector=_with_label_keys(selector, constraint, pod_labels),
                honor_affinity=constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
                honor_taints=constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
            )
        )
    others |= {"affinity": terms("podAffinity"), "anti_affinity": terms("podAntiAffinity")}
    return PodClass(name, namespace, pod_labels, spec, spread=tuple(spread), **others)


def pod_of(pod: Manifest) -> PodClass:
    """Return the class of one Pod, as the API server has it."""
    return pod_class(name_of(pod), namespace_of(pod), labels_of(pod), section(pod, "spec"), {})


@dataclass(eq=False)
class NodeGroup:
    """The nodes of a class, with the pods that they carry already."""

    node: NodeClass
    free: Amounts
    """What one node has free, in thousandths."""
    running: tuple[PodClass, ...] = ()

    @property
    def count(self) -> int:
        """The number of such nodes."""
        return self.node.count

    def room(self, pod: PodClass) -> int:
        """Return how many pods of a class one node has room for; one if they exclude each other."""
        free = self.free
        most = sys.maxsize
        for name, amount in pod.requests.items():
            if (fitting := free.get(name, 0) // amount) < most:
                most = fitting
            if most <= 0:
                return 0
        if self.running and any(pod.excludes_on_node(running) for running in self.running):
            return 0
        return 1 if pod.excludes_itself_per_node else most


@dataclass(eq=False)
class Demand:
    """Pods of one class that must run at once; of a DaemonSet, one on each node that takes it."""

    pod: PodClass
    count: int
    node_groups: Sequence[NodeGroup]
    """The node groups that accept them, whatever their room."""
    everywhere: bool = False
    """Whether they belong to a DaemonSet."""


def node_count(node_groups: Iterable[NodeGroup]) -> int:
    """Return the number of nodes in some groups."""
    return sum(group.count for group in node_groups)


def total_room(pod: PodClass, node_groups: Iterable[NodeGroup]) -> int:
    """Return how many pods of a class all nodes of some groups have room for."""
    return sum(group.count * group.room(pod) for group in node_groups)


def carrying(node: NodeClass, pods: Iterable[PodClass]) -> NodeGroup:
    """Return the nodes of a class, each with some pods."""
    free = dict(node.allocatable)
    running = tuple(pods)
    for pod in running:
        take(free, pod)
    return NodeGroup(node, free, running)


def take(free: Amounts, pod: PodClass, count: int = 1) -> None:
    """Subtract the requests of some pods from free resources."""
    for name, amount in pod.requests.items():
        free[name] = free.get(name, 0) - amount * count


def _affinity_term(
    term: Manifest,
    namespace: str,
    pod_labels: Mapping[str, Any],
    namespaces: Mapping[str, Mapping[str, Any]],
) -> AffinityTerm:
    by_label: Manifest | None = term.get("namespaceSelector")
    where: set[str] | None = set(term.get("namespaces") or ())
    if by_label is None:
        where = where or {namespace}
    elif not by_label:
        where = None  # an empty selector selects every namespace
    else:
        where.update(n for n, own_labels in namespaces.items() if selects(by_label, own_labels))
    selector = _with_label_keys(term.get("labelSelector"), term, pod_labels)
    return AffinityTerm(term["topologyKey"], selector, None if where is None else frozenset(where))


def _with_label_keys(
    selector: Manifest | None, holder: Manifest, pod_labels: Mapping[str, Any]
) -> Manifest | None:
    """Return a selector with the expressions that matchLabelKeys and mismatchLabelKeys add."""
    added: list[Manifest] = []
    for operator, keys in (("In", "matchLabelKeys"), ("NotIn", "mismatchLabelKeys")):
        for key in holder.get(keys) or ():
            if key in pod_labels:
                added.append({"key": key, "operator": operator, "values": [pod_labels[key]]})
    if not added or selector is None:
        return selector
    return {**selector, "matchExpressions": [*items(selector, "matchExpressions"), *added]}


def _collide(ports: frozenset[_Port], other_ports: frozenset[_Port]) -> bool:
    for address, *port in ports:
        for other_address, *other_port in other_ports:
            addresses = {address, other_address}
            if port == other_port and (len(addresses) == 1 or _ANY_ADDRESS in addresses):
                return True
    return False
