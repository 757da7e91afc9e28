"""Whether Kueue finds the topology domains that the pods of a workload in a queue request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ml_foundations.kinds.kind_files import kind_named
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    name_of,
    section,
    text_of,
)
from ml_foundations.kubernetes.quantities import Amounts, scheduled
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.api_server.cohorts import flavors_of
from ml_foundations.planning.api_server.pod_groups import group_of
from ml_foundations.planning.api_server.queue_admission import counted_requests, fewest_admitted
from ml_foundations.planning.api_server.queues import by_name
from ml_foundations.planning.api_server.stages import seen_by
from ml_foundations.planning.api_server.topology_requests import (
    RULE,
    refused_requests,
    topology_request,
)
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    AdmittedWorkload,
    Outcome,
    Verdict,
)
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.refusals import Refusal, beyond_planning, doubt
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.scheduler.budget import is_exhausted, spend
from ml_foundations.planning.scheduler.filters import spec_refusals
from ml_foundations.planning.scheduler.topology import (
    UNCONSTRAINED,
    Topology,
    TopologyNode,
    TopologyPods,
    TopologyRequest,
    Usage,
    add_usage,
)
from ml_foundations.planning.scheduler.topology_search import assign
from ml_foundations.planning.verdict.fitting import Fitting

_WORDS = {"node-selector": "nodeSelector", "node-affinity": "affinity"}
"""Kueue's words for the rules by which a node refuses pods."""
_STEPS_OF_DOMAIN = 10
"""The steps of the budget for one domain and one replica."""
_TOO_MANY = "there are too many to try"
_ANY = "?"
"""The value of a level that is not known: all nodes may be in one domain."""
_SETTLED = "Judge the cluster with its nodes once they exist: ml-foundations plan, see planning.md."
_REMEDY = "Request fewer pods or a bigger domain, or add nodes with the labels of the topology."

_TOLERATE = (
    "Tolerate the taint in the template, or by spec.tolerations of the ResourceFlavor: Kueue does "
    "not see the tolerations that pods get when they are created."
)


@dataclass(frozen=True, eq=False)
class _Set:
    """A set of pods that Kueue places by a topology."""

    request: TopologyRequest
    pods: PodSet
    pod: PodClass
    requests: Amounts
    fewest: int
    """The fewest pods that Kueue admits."""


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The nodes of a flavor as Kueue sees them: the certain ones, or all that there may be."""

    is_certain: bool
    topology: Topology
    groups: Mapping[str, NodeGroup]
    """The group of each node, by the node's name."""
    tolerations: Sequence[Manifest]
    """Those that the flavor adds to pods."""
    doubts: Sequence[tuple[str, str]]
    """What is not known of the nodes, each with what settles it."""
    known: dict[object, Mapping[str, str]] = field(default_factory=dict[object, Mapping[str, str]])
    """The excluded nodes by the key of pods: thousands of workloads have few keys."""

    def excluded(self, pod: PodClass) -> Mapping[str, str]:
        """Return the nodes that refuse pods, with Kueue's word for the reason."""
        if pod.node_key not in self.known:
            tolerations = [*items(pod.spec, "tolerations"), *self.tolerations]
            spec = {**pod.spec, "tolerations": tolerations}
            words = {group: self._word(spec, group) for group in {*self.groups.values()}}
            excluded = {name: words[group] for name, group in self.groups.items() if words[group]}
            self.known[pod.node_key] = excluded
        return self.known[pod.node_key]

    def _word(self, spec: Manifest, group: NodeGroup) -> str:
        for taint in untolerated_taints(items(spec, "tolerations"), group.node.declared_taints):
            return f'taint "{described_taint(taint)}"'
        for refusal in spec_refusals(spec, group.node):
            if refusal.rule in _WORDS and (refusal.certain or self.is_certain):
                return _WORDS[refusal.rule]
        return ""

    def failure(self, sets: Sequence[_Set], replicas: int) -> str:
        """Return why Kueue finds no domains for all replicas of sets of pods; "" if it does."""
        taken: Usage = {}
        for replica in range(replicas):
            is_tried = not replica or spend(_STEPS_OF_DOMAIN * self.topology.size())
            if failure := self._next_failure(sets, taken) if is_tried else _TOO_MANY:
                has = f"{replica} of {replicas} replicas have domains; "
                return f"{has if replica else ''}{failure}"
        return ""

    def _next_failure(self, sets: Sequence[_Set], taken: Usage) -> str:
        """Add the domains of one replica to what is taken, or return why there are none."""
        for workers, leader in _groups(sets):
            demand = self._demand(workers)
            of_leader = leader and self._demand(leader)
            excluded = self.excluded(workers.pod)
            assigned = assign(self.topology, demand, of_leader, excluded, taken)
            if assigned.failure:
                return assigned.failure
            add_usage(taken, assigned.workers, demand.requests)
            if of_leader:
                add_usage(taken, assigned.leader, of_leader.requests)
        return ""

    def _demand(self, member: _Set) -> TopologyPods:
        count = member.pods.count if self.is_certain else member.fewest
        return TopologyPods(member.request, count, member.requests)

    def leader_refusals(self, workers: _Set, leader: _Set | None) -> Iterator[Refusal]:
        """Yield a refusal if Kueue may choose a node for a leader that refuses the leader.

        Kueue 0.19.2 applies the workers' selectors and tolerations to it (kueue issue 15373).
        """
        if leader is None or not self.topology.is_by_host:
            return
        of_workers = self.excluded(workers.pod)
        of_leader = self.excluded(leader.pod)
        chosen = self.groups.keys() - of_workers.keys()
        if wrong := chosen & of_leader.keys():
            by = "Kueue admits a leader by its workers' conditions, and"
            which = "each" if wrong == chosen else "some"
            message = f"{by} {which} of their nodes refuses it: {of_leader[min(wrong)]}"
            remedy = "Give the leader the node selector, affinity and tolerations of the workers."
            yield Refusal(RULE, leader.pods.path, message, remedy, certain=wrong == chosen)


class Topologies:
    """Kueue's topologies of the flavors of a cluster, with the nodes in their domains."""

    def __init__(self, fitting: Fitting) -> None:
        self._cluster = cluster = fitting.cluster
        self._fitting = fitting
        self._topologies = by_name(cluster.by_kind["Topology"])
        flavors = by_name(cluster.by_kind["ResourceFlavor"])
        self._flavors = {name: section(flavor, "spec") for name, flavor in flavors.items()}
        self._nodes: dict[tuple[str, bool], _Nodes] = {}

    def place(self, admitted: AdmittedWorkload) -> Outcome:
        """Return whether Kueue finds domains for a workload's pods."""
        workload = admitted.workload
        queue = None
        if workload.queue is not None:
            queue = self._cluster.queues.cluster_queue(workload.namespace, workload.queue)
        if queue is None or not admitted.queue_usage:
            return NOTHING_DECIDED
        flavors = [flavor["name"] for _, flavor in flavors_of(queue)]
        with_topology = list(filter(self._topology, flavors))
        keys = {*labels.KUEUE_TOPOLOGY.values(), labels.KUEUE_SLICE_LEVEL, labels.KUEUE_SLICES}
        annotated = (annotations_of(pods.template) for pods in workload.pods)
        if not with_topology and all(map(keys.isdisjoint, annotated)):
            return NOTHING_DECIDED
        if refused := [
            *refused_requests(workload.queued_sets),
            *self._unknown(workload, with_topology),
        ]:
            return Outcome.refused(refused)
        # If all flavors have a topology, Kueue uses it for pods that request none, too.
        implied = TopologyRequest(UNCONSTRAINED) if with_topology == flavors else None
        sets: list[_Set] = []
        choices = dict.fromkeys(with_topology)
        queued = {pods.path: pods for pods in workload.queued_sets}
        for (declared, pod), (*_, usage) in zip(
            admitted.pod_sets, admitted.queue_usage, strict=True
        ):
            pods = queued.pop(declared.path, None)
            if pods is None:
                continue  # one of the same template
            request = topology_request(pods) or implied
            seen = seen_by(RULE, self._cluster, workload, pods, pod)
            groups = self._cluster.queues.accepting(queue, usage, seen)
            for group in groups:
                suitable = [name for name in group if self._suits(name, request)]
                if not suitable:
                    return Outcome.refused([_no_flavor(queue, pods, request)])
                if request is not None:
                    choices = {name: None for name in choices if name in suitable}
            if request is not None and pods.count:
                requests = scheduled(counted_requests(self._cluster, workload, pods, pod))
                fewest = fewest_admitted(workload, pods)
                sets.append(_Set(request, pods, pod.of(spec=seen), requests, fewest))
        if not sets:
            return NOTHING_DECIDED
        return self._in_flavors(choices, sets, workload.queued_replicas)

    def _topology(self, flavor: str) -> str | None:
        return self._flavors.get(flavor, {}).get("topologyName")

    def _levels(self, flavor: str) -> list[str]:
        topology = self._topologies.get(self._topology(flavor) or "", {})
        return [text_of(level, "nodeLabel") for level in items(section(topology, "spec"), "levels")]

    def _suits(self, flavor: str, request: TopologyRequest | None) -> bool:
        """Return whether Kueue considers a flavor for pods with a topology, or without one."""
        if request is None:
            return self._topology(flavor) is None
        return bool(self._topology(flavor)) and {*request.named_levels} <= {*self._levels(flavor)}

    def _unknown(self, workload: Workload, flavors: Iterable[str]) -> Iterator[Refusal]:
        """Yield why the topology of a workload cannot be judged."""
        for name, flavor in {self._topology(flavor): flavor for flavor in flavors}.items():
            declared = self._topologies.get(str(name), {})
            if not self._levels(flavor) or any(unknown_paths(declared)):
                message = f"the levels of Topology {name} are not known"
                yield doubt(RULE, "metadata.labels", message, f"Declare the Topology {name}.")
        is_in_group = workload.kind == "Pod" and bool(group_of(workload.manifest))
        if kind_named(workload.kind).queue is None or is_in_group:
            what = "group" if is_in_group else workload.kind
            message = f"Kueue looks for a topology domain for each pod of a {what}"
            yield beyond_planning("kind", message, "Check it by a rehearsal.")

    def _in_flavors(self, flavors: Iterable[str], sets: Sequence[_Set], replicas: int) -> Outcome:
        outcomes = [self._in_flavor(flavor, sets, replicas) for flavor in flavors]
        if not outcomes:
            message = "its sets of pods need different flavors, and Kueue looks for one topology"
            return Outcome.refused([beyond_planning("metadata.labels", message, _REMEDY)])
        verdicts = {outcome.verdict for outcome in outcomes}
        # Each replica may get another flavor.
        if len(verdicts) == 1 and (len(outcomes) == 1 or replicas == 1 or Verdict.FITS in verdicts):
            return outcomes[0]
        # Kueue chooses a flavor by its quota, and only then looks for the topology.
        failed = next(outcome for outcome in outcomes if outcome.verdict is not Verdict.FITS)
        return Outcome.of(Verdict.UNDETERMINED, *[reason for _, reason in failed.reasons])

    def _in_flavor(self, flavor: str, sets: Sequence[_Set], replicas: int) -> Outcome:
        """Return whether Kueue finds domains among the nodes of a flavor."""
        nodes = self._nodes_of(flavor, True)
        path = sets[0].pods.count_path
        failure = nodes.failure(sets, replicas)
        if not failure:
            refused = [*self._unmodelled(nodes, sets)]
            for group in _groups(sets):
                refused += nodes.leader_refusals(*group)
            return Outcome.refused(refused) if refused else Outcome.of(Verdict.FITS)
        possible = self._nodes_of(flavor, False)
        may_take = (self._cluster.possibly_accepting(member.pod) for member in sets)
        is_open = any(group.node.unknown for groups in may_take for group in groups)
        never = "" if is_open else possible.failure(sets, replicas)
        if never and not is_exhausted():
            message = f"Kueue never admits it: {never}"
            remedy = _TOLERATE if "taint" in never else _REMEDY
            return Outcome.refused([Refusal(RULE, path, message, remedy)])
        daemons_first = f"DaemonSets may come first, and {failure}", _REMEDY
        why, remedy = possible.doubts[0] if possible.doubts else daemons_first
        message = f"whether Kueue finds a topology domain is not known: {why}"
        return Outcome.refused([doubt(RULE, path, message, remedy)])

    def _nodes_of(self, flavor: str, certain: bool) -> _Nodes:
        """Return the nodes of a flavor that there are for certain, or all that there may be."""
        if (flavor, certain) in self._nodes:
            return self._nodes[flavor, certain]
        levels = self._levels(flavor)
        node_labels = section(self._flavors[flavor], "nodeLabels")
        members: dict[str, NodeGroup] = {}
        doubts: list[tuple[str, str]] = []
        # DaemonSets may come before Kueue looks at the nodes, or after.
        for group in self._fitting.occupied if certain else self._cluster.node_groups:
            node = group.node
            made_labels = {**group.node.labels, labels.HOSTNAME: ""}
            unmet = [key for key in node_labels if made_labels.get(key) != node_labels[key]]
            if not certain:
                unmet = [key for key in unmet if made_labels.get(key) is not UNKNOWN]
            is_cordoned = section(node.manifest, "spec").get("unschedulable")
            # Kueue ignores them, whatever pods tolerate (pkg/cache/scheduler/tas_nodes_cache.go).
            is_ignored = is_cordoned or node.is_unready
            if unmet or is_ignored or not made_labels.keys() >= {*levels}:
                continue
            if unknown := [level for level in levels if made_labels[level] is UNKNOWN]:
                why = f"the labels {names(unknown)} of {node.name} are not known"
                doubts.append((f"{why} before its nodes exist", _SETTLED))
            elif node.is_template and node.fewest < node.count:
                some = f"{node.name} may have {node.fewest} nodes"
                least = f"Let it have {node.count} nodes at least, or wait for them. {_SETTLED}"
                doubts.append((f"Kueue counts the nodes that exist, and {some}", least))
            if unknown and certain:
                continue
            count = node.fewest if certain and node.is_template else node.count
            for number in range(count):
                members[f"{node.name} {number}"] = group
        nodes = list(_topology_nodes(members, levels))
        topology = Topology(self._topology(flavor) or "", levels, nodes)
        tolerations = items(self._flavors[flavor], "tolerations")
        nodes_of_flavor = _Nodes(certain, topology, members, tolerations, doubts)
        self._nodes[flavor, certain] = nodes_of_flavor
        return nodes_of_flavor

    def _unmodelled(self, nodes: _Nodes, sets: Sequence[_Set]) -> Iterator[Refusal]:
        """Yield doubts about pods that fit by what Kueue counts, and perhaps not on the nodes."""
        if not nodes.topology.is_by_host:
            last = nodes.topology.levels[-1]
            adds_up = f"Kueue adds up what the nodes of a {last} have free"
            message = f"{adds_up}, and ignores their taints"
            remedy = f"Add {labels.HOSTNAME} as the last level of the topology."
            yield doubt(RULE, "metadata.labels", message, remedy)
        for member in sets:
            pod = member.pod
            annotations = annotations_of(member.pods.template)
            fields = {
                "affinity to pods or spreading": not pod.is_simple,
                "host ports": pod.ports,
                "claims of devices": pod.spec.get("resourceClaims"),
                "volumes that only some nodes reach": pod.volumes or pod.volume_refusals,
                "interfaces in node networks": labels.GKE_INTERFACES in annotations,
            }
            for what in (what for what, has_it in fields.items() if has_it):
                message = f"Kueue places its pods without regard to {what}"
                remedy = "Check it by a rehearsal, or leave that out."
                yield beyond_planning(member.pods.path, message, remedy)
        for contender in self._fitting.contenders([*nodes.groups.values()]):
            message = f"{contender} may take nodes of the domain that Kueue chooses"
            yield beyond_planning("metadata.labels", message, "Keep its pods off these nodes.")


def _topology_nodes(
    members: Mapping[str, NodeGroup], levels: Sequence[str]
) -> Iterator[TopologyNode]:
    """Yield the nodes with the values of their levels: if some are not known, all may be near."""
    # Each node has another host name.
    shared = {*levels} - {labels.HOSTNAME}
    is_unknown = any(UNKNOWN in map(group.node.labels.get, shared) for group in {*members.values()})
    unknown = dict.fromkeys(levels, _ANY) if is_unknown else {}
    for name, group in members.items():
        node_labels = {**group.node.labels, **unknown}
        yield TopologyNode(name, {**node_labels, labels.HOSTNAME: name}, group.free)


def _groups(sets: Sequence[_Set]) -> list[tuple[_Set, _Set | None]]:
    """Return the workers of each group with their leader, and other sets alone."""
    by_name: dict[object, list[_Set]] = {}
    for member in sets:
        by_name.setdefault(member.request.group or member, []).append(member)
    groups: list[tuple[_Set, _Set | None]] = []
    for members in by_name.values():
        workers, *leaders = sorted(members, key=lambda member: member.pods.count, reverse=True)
        groups.append((workers, leaders[0] if leaders else None))
    return groups


def _no_flavor(queue: Manifest, pods: PodSet, request: TopologyRequest | None) -> Refusal:
    """Return the refusal of pods for which no flavor of a queue has the levels, or no topology."""
    holder = f"ClusterQueue {name_of(queue)}"
    if request is None:
        message = f"Kueue never admits it: {holder} only has flavors for pods with a topology"
        remedy = f'Annotate its pods {labels.KUEUE_TOPOLOGY[UNCONSTRAINED]}: "true".'
        return Refusal(RULE, pods.path, message, remedy)
    level_names = names(request.named_levels) or "any level"
    covers = f"no flavor of {holder} has a topology with {level_names} for what its pods request"
    remedy = "Request a level of the topology, and let one flavor have all resources."
    return Refusal(RULE, pods.path, f"Kueue never admits it: {covers}", remedy)
