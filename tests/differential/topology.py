"""Random topologies and gangs: the domains that planning finds, and those that the real Kueue assigns."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, labels_of, name_of
from ml_foundations.kubernetes.quantities import WHOLE
from ml_foundations.planning.model.node_groups import carrying, pod_class, pod_of
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.resources import PODS, pod_requests
from ml_foundations.planning.scheduler.topology import (
    PREFERRED,
    REQUIRED,
    UNCONSTRAINED,
    Assigned,
    Assignment,
    Slices,
    Topology,
    TopologyPods,
    TopologyRequest,
    Usage,
    add_usage,
)
from ml_foundations.planning.scheduler.topology_search import assign
from ml_foundations.planning.verdict.topology import _Nodes, _topology_nodes
from ml_foundations.rehearsal.api import Api

from tests.factories import GPU, cluster_wide, namespaced, node
from tests.support.waiting import until

NAMESPACE = "team"
API = "kueue.x-k8s.io/v1beta2"
FLAVOR_LABEL = "example.com/flavor"
UPPER = ("example.com/block", "example.com/sub-block", "example.com/rack")
TAINT = {"key": "example.com/team", "value": "a", "effect": "NoSchedule"}
LONGEST_SECONDS = 300
SETTLE_SECONDS = 0.3
"""How long Kueue may take to see that a workload is gone."""


@dataclass
class Gang:
    """The sets of pods of a workload, the workers of a group first."""

    request: TopologyRequest | None
    counts: list[int]
    spec: Manifest


@dataclass
class Fleet:
    """The nodes of one flavor, and what runs on them beside the topology."""

    name: str
    levels: list[str]
    nodes: list[Manifest] = field(default_factory=list[Manifest])
    pods: list[Manifest] = field(default_factory=list[Manifest])
    tolerations: list[Manifest] = field(default_factory=list[Manifest])

    def objects(self) -> Iterator[Manifest]:
        """Yield nodes and pods, then the queue with its flavor and topology."""
        yield from self.nodes
        yield from self.pods
        levels = [{"nodeLabel": level} for level in self.levels]
        yield cluster_wide(API, "Topology", self.name, spec={"levels": levels})
        flavor: dict[str, Any] = {
            "nodeLabels": {FLAVOR_LABEL: self.name},
            "topologyName": self.name,
        }
        if self.tolerations:
            flavor["tolerations"] = self.tolerations
        yield cluster_wide(API, "ResourceFlavor", self.name, spec=flavor)
        quotas = [{"name": name, "nominalQuota": 10_000} for name in ("cpu", GPU)]
        flavors = [{"name": self.name, "resources": quotas}]
        groups = [{"coveredResources": ["cpu", GPU], "flavors": flavors}]
        queue = {"namespaceSelector": {}, "resourceGroups": groups}
        yield cluster_wide(API, "ClusterQueue", self.name, spec=queue)
        local = namespaced(API, "LocalQueue", self.name, spec={"clusterQueue": self.name})
        yield local

    def planned(self) -> _Nodes:
        """Return the nodes as planning sees them."""
        members = {}
        for manifest in self.nodes:
            on_it = [pod for pod in self.pods if pod["spec"]["nodeName"] == name_of(manifest)]
            group = carrying(node_class(manifest), map(pod_of, on_it))
            if set(self.levels) <= labels_of(manifest).keys():
                members[name_of(manifest)] = group
        nodes = _topology_nodes(members, self.levels)
        topology = Topology(self.name, self.levels, nodes)
        return _Nodes(True, topology, members, self.tolerations, [])


def fleet(chance: random.Random, name: str) -> Fleet:
    """Return random nodes in domains of random sizes."""
    levels = [*UPPER[: chance.randint(0, 3)]]
    if not levels or chance.random() < 0.85:
        levels.append(labels.HOSTNAME)
    made = Fleet(name, levels, tolerations=[TAINT_TOLERATION] * (chance.random() < 0.2))
    for number in range(chance.randint(2, 18)):
        own: dict[str, str] = {FLAVOR_LABEL: name, "kind": chance.choice("ab")}
        above = ""
        for level in UPPER:
            above = own[level] = f"{above}{chance.choice('xyz')}"
        if chance.random() < 0.1:
            del own[chance.choice(UPPER)]
        taints = [TAINT] * (chance.random() < 0.15)
        gpus, pods = chance.choice((0, 2, 4, 8, 8, 8)), chance.choice((2, 4, 8, 110))
        offered = {"gpu": str(gpus), "cpu": str(chance.choice((4, 8, 16))), "pods": str(pods)}
        one = node(f"{name}-n{number:02}", own, taints, **offered)
        one["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        made.nodes.append(one)
        if chance.random() < 0.25:
            made.pods.append(_running(f"{name}-p{number:02}", name_of(one), chance))
    return made


TAINT_TOLERATION = {"key": "example.com/team", "operator": "Exists"}


def _running(name: str, node_name: str, chance: random.Random) -> Manifest:
    """Return a pod that runs on a node, and that Kueue does not manage."""
    spec = pods({"cpu": str(chance.randint(1, 3)), GPU: str(chance.choice((0, 0, 1)))})
    spec |= {"nodeName": node_name, "tolerations": [{"operator": "Exists"}]}
    made = namespaced("v1", "Pod", name, spec=spec)
    made["metadata"]["annotations"] = {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}
    return made


def pods(requests: Manifest) -> dict[str, Any]:
    """Return the spec of pods with these requests."""
    amounts = {name: amount for name, amount in requests.items() if amount != "0"}
    resources = {"requests": amounts, "limits": amounts}
    main = {"name": "main", "image": "example.com/main", "resources": resources}
    return {"restartPolicy": "Never", "containers": [main]}


def gang(chance: random.Random, levels: Sequence[str]) -> Gang:
    """Return a random gang that asks for a topology of these levels."""
    gpus = chance.choice((0, 1, 2, 2, 4, 8))
    spec = pods({"cpu": str(chance.choice((1, 1, 2, 3))), GPU: str(gpus)})
    if chance.random() < 0.3:
        spec["tolerations"] = [TAINT_TOLERATION]
    if chance.random() < 0.15:
        spec["nodeSelector"] = {"kind": "a"}
    if chance.random() < 0.1:
        terms = [{"matchExpressions": [{"key": "kind", "operator": "In", "values": ["b"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    count = chance.choice((1, 2, 3, 4, 4, 6, 8, 8, 12, 16))
    mode = chance.choice((REQUIRED, REQUIRED, PREFERRED, PREFERRED, UNCONSTRAINED, "implied"))
    if mode == "implied":
        return Gang(None, [count], spec)
    level = None if mode == UNCONSTRAINED else chance.choice(levels)
    if level is not None and chance.random() < 0.3:
        return Gang(TopologyRequest(mode, level, group="ring"), [count, 1], spec)
    first = 0 if level is None else levels.index(level)
    slices: list[Slices] = []
    if chance.random() < 0.45:
        size = chance.choice((1, 2, 2, 4))
        for depth in range(chance.randint(first, len(levels) - 1), len(levels)):
            if size and len(slices) < 3 and chance.random() < 0.7:
                slices.append(Slices(levels[depth], size))
                size = size // 2 if size > 1 else 0
        if slices:
            count += -count % slices[0].size
    return Gang(TopologyRequest(mode, level, tuple(slices)), [count], spec)


def planned(nodes: _Nodes, gang: Gang, taken: Usage) -> Assigned:
    """Return what planning finds for a gang, and count it as taken."""
    pod = pod_class("gang", "default", {}, gang.spec, {})
    requests = pod_requests(gang.spec) | {PODS: WHOLE}
    request = gang.request or TopologyRequest(UNCONSTRAINED)
    workers, *leader = [TopologyPods(request, count, requests) for count in gang.counts]
    if leader and leader[0].count > workers.count:
        workers, leader = leader[0], [workers]
    first = leader[0] if leader else None
    found = assign(nodes.topology, workers, first, nodes.excluded(pod), taken)
    for assignment in (found.workers, found.leader):
        add_usage(taken, assignment, requests)
    return found


def workload(name: str, queue: str, gang: Gang) -> Manifest:
    """Return a Workload of Kueue for a gang."""
    sets: list[Manifest] = []
    for index, count in enumerate(gang.counts):
        own: Manifest = {"name": f"set{index}", "count": count, "template": {"spec": gang.spec}}
        if gang.request is not None:
            own = {**own, "topologyRequest": _topology_request(gang.request)}
        sets.append(own)
    return namespaced(API, "Workload", name, spec={"queueName": queue, "podSets": sets})


def _topology_request(request: TopologyRequest) -> Manifest:
    made: dict[str, Any] = {}
    if request.level is not None:
        made[request.mode] = request.level
    elif request.mode == UNCONSTRAINED and not request.slices:
        made["unconstrained"] = True
    layers = [{"topology": layer.level, "size": layer.size} for layer in request.slices]
    if len(layers) == 1:
        made["podSetSliceRequiredTopology"] = layers[0]["topology"]
        made["podSetSliceSize"] = layers[0]["size"]
    elif layers:
        made["podsetSliceRequiredTopologyConstraints"] = layers
    return made | ({"podSetGroupName": request.group} if request.group else {})


class RealKueue:
    """Kueue on a control plane, with the fleets that were created there."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._workloads = f"/apis/{API}/namespaces/{NAMESPACE}/workloads"

    def decision(self, manifest: Manifest) -> tuple[list[Assignment], str]:
        """Create a Workload, and return its assignments by set, or why it waits."""
        self._api.create(self._workloads, dict(manifest))
        path = f"{self._workloads}/{name_of(manifest)}"
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            status = self._api.get(path).get("status", {})
            if admission := status.get("admission"):
                sets = admission["podSetAssignments"]
                return [list(_decoded(each["topologyAssignment"])) for each in sets], ""
            for condition in status.get("conditions", ()):
                if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                    return [], condition["message"]
            assert time.monotonic() < deadline, f"{name_of(manifest)}: {status}"
            time.sleep(0.05)

    def delete(self, names: Sequence[str]) -> None:
        """Delete Workloads, until Kueue does not count them any more."""
        paths = [f"{self._workloads}/{name}" for name in names]
        queues = {self._api.get(path)["spec"]["queueName"] for path in paths}
        for path in paths:
            self._api.delete(path)
        for path in paths:
            until(lambda path=path: self._api.find(path) is None)
        time.sleep(SETTLE_SECONDS)
        for queue in queues:
            path = f"/apis/{API}/namespaces/{NAMESPACE}/localqueues/{queue}"
            until(lambda path=path: not self._api.get(path)["status"].get("reservingWorkloads"))


def _decoded(assignment: Manifest) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the domains of an assignment, and their numbers of pods."""
    for part in assignment["slices"]:
        number = part["domainCount"]
        values: list[list[str]] = []
        for level in part["valuesPerLevel"]:
            if "universal" in level:
                values.append([level["universal"]] * number)
                continue
            own = level["individual"]
            before, after = own.get("prefix", ""), own.get("suffix", "")
            values.append([f"{before}{root}{after}" for root in own["roots"]])
        counts = part["podCounts"]
        numbers = counts.get("individual") or [counts["universal"]] * number
        yield from zip(zip(*values, strict=True), numbers, strict=True)
