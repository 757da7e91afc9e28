"""The generator: cases in which the rule that shall decide is drawn first, and its numbers near the edge.

Every case starts from a world in which its pods fit. Then the deciding rule is laid over it, tightly, and up to two
others, loosely, so that rules also meet.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.case import GANG, MAX_NODES, PLACEHOLDER, Case, Document, isolated

NAMESPACE = f"{PLACEHOLDER}-team"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
RACK = f"example.com/rack-{PLACEHOLDER}"
"""A topology key of the case's own: constraints that look at every node with the key see no other case's."""
GPU = "nvidia.com/gpu"
ZONES = ("us-a", "us-b", "us-c")
STAYING = (
    "Deployment",
    "Gang",
    "StatefulSet",
    "ReplicaSet",
    "Deployment",
    "Gang",
    "DaemonSet",
    "Pod",
)
"""Kinds of workloads whose pods stay, a gang's as long as others may wait."""
KINDS = (*STAYING, "Job", "CronJob")
"""Plain Jobs stand alone: beside others they take turns, and the pods of cases never end."""
PER_RULE = 16
"""Cases per rule and batch. A control plane takes its time to start; with more nodes, the scheduler takes its own."""


@dataclass
class ClassifiedDocuments:
    """What a case is made of, before its workloads are documents."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    nodes: list[Document]
    pod: Document
    """The spec of the pods."""
    labels: dict[str, str]
    count: int
    others: list[Document] = field(default_factory=list[Document])

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def chance(self, percent: int) -> bool:
        # Hypothesis prefers small integers: let those mean no.
        return self.draw(st.integers(0, 99)) >= 100 - percent

    @property
    def container(self) -> Document:
        return self.pod["containers"][0]

    @property
    def node_count(self) -> int:
        return sum(_size(node) for node in self.nodes)

    def request(self, resource: str, amount: str) -> None:
        resources = self.container["resources"]
        resources["requests"][resource] = amount
        if "/" in resource:
            resources.setdefault("limits", {})[resource] = amount

    def near(self, edge: int) -> None:
        """So many pods, or a few more or less."""
        self.count = min(16, max(1, edge + self.pick(1, 0, 1, 0, 2, -1)))


def _size(node: Document) -> int:
    return int(node["metadata"].get("annotations", {}).get(MAX_NODES, 1))


# --- The world before any rule


def _world(draw: Callable[[st.SearchStrategy[Any]], Any]) -> ClassifiedDocuments:
    nodes = [_node(draw, index) for index in range(draw(st.sampled_from((2, 1, 2, 3, 4))))]
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    labels = {"app": draw(st.sampled_from(("train", "serve")))}
    count = draw(st.integers(1, 4))
    return ClassifiedDocuments(draw, nodes, {"containers": [container]}, labels, count)


def _node(draw: Callable[[st.SearchStrategy[Any]], Any], index: int) -> Document:
    labels = {
        ZONE: draw(st.sampled_from(ZONES)),
        "pool": f"pool-{index}",
        "disk": draw(st.sampled_from(("ssd", "hdd"))),
        "generation": str(draw(st.integers(1, 4))),
        RACK: draw(st.sampled_from(("r1", "r2"))),
    }
    metadata: Document = {"name": f"{PLACEHOLDER}-pool-{index}", "labels": labels}
    if draw(st.booleans()):
        metadata["annotations"] = {MAX_NODES: str(draw(st.sampled_from((2, 1, 3))))}
    else:
        labels[HOSTNAME] = metadata["name"]
    allocatable = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "16"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {},
        "status": {"allocatable": allocatable},
    }


# --- Rules


def _resources(world: ClassifiedDocuments, tight: bool) -> None:
    resource, unit = world.pick(("cpu", ""), ("memory", "Gi"), ("ephemeral-storage", "Gi"))
    _fill(world, resource, unit, tight)


def _gpus(world: ClassifiedDocuments, tight: bool) -> None:
    for node in world.nodes:
        node["spec"]["taints"] = [{"key": GPU, "value": "present", "effect": "NoSchedule"}]
    _fill(world, GPU, "", tight)


def _fill(world: ClassifiedDocuments, resource: str, unit: str, tight: bool) -> None:
    """Ask for so much of a resource that the nodes are about full, or, loosely, half full."""
    for node in world.nodes:
        node["status"]["allocatable"][resource] = f"{world.pick(4, 8, 5, 2)}{unit}"
    request = world.pick(2, 3, 4, 5, 8) if tight else 1
    offers = [
        int(node["status"]["allocatable"][resource].removesuffix(unit)) for node in world.nodes
    ]
    room = sum(
        _size(node) * (offer // request) for node, offer in zip(world.nodes, offers, strict=True)
    )
    world.request(resource, f"{request}{unit}")
    if tight:
        world.near(room)
    else:
        world.count = min(world.count, room // 2)


def _pod_count(world: ClassifiedDocuments, tight: bool) -> None:
    for node in world.nodes:
        node["status"]["allocatable"]["pods"] = str(world.pick(1, 2, 3) if tight else 5)
    if tight:
        world.near(
            sum(_size(node) * int(node["status"]["allocatable"]["pods"]) for node in world.nodes)
        )


def _little_room(world: ClassifiedDocuments) -> None:
    """Room for few pods on each node, and often as many pods as all nodes together take."""
    for node in world.nodes:
        node["status"]["allocatable"]["pods"] = str(world.pick(1, 3, 2))
    room = sum(_size(node) * int(node["status"]["allocatable"]["pods"]) for node in world.nodes)
    world.count = max(1, room - world.pick(0, 1, 3)) if world.chance(70) else min(room, 2)


def _init_containers(world: ClassifiedDocuments, tight: bool) -> None:
    """Init containers run one by one before the others, sidecars from their turn on to the end."""
    init: list[Document] = []
    for index in range(world.pick(1, 2, 3)):
        cpu = world.integer(1, 5) if tight else 1
        container: Document = {
            "name": f"init-{index}",
            "image": "example.com/init",
            "resources": {"requests": {"cpu": str(cpu)}},
        }
        if world.chance(50):
            container["restartPolicy"] = "Always"
        init.append(container)
    world.pod["initContainers"] = init
    if tight:
        world.request("cpu", str(world.pick(1, 2, 3)))
        for node in world.nodes:
            node["status"]["allocatable"]["cpu"] = str(world.pick(6, 8, 5))
        world.near(world.node_count)


def _overhead(world: ClassifiedDocuments, tight: bool) -> None:
    overhead = {"cpu": world.pick("500m", "1", "250m") if tight else "10m"}
    name = f"{PLACEHOLDER}-sandbox"
    world.others.append(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "sandbox",
            "overhead": {"podFixed": overhead},
        }
    )
    world.pod |= {"runtimeClassName": name, "overhead": overhead}
    if tight:
        # As many pods as the nodes take without the overhead.
        request, most = world.pick(("2", 2), ("1", 4), ("3500m", 1), ("1500m", 2))
        world.request("cpu", request)
        world.count = max(1, min(16, world.node_count * most - world.pick(0, 0, 1)))


def _node_selector(world: ClassifiedDocuments, tight: bool) -> None:
    if not tight:
        shared = world.nodes[0]["metadata"]["labels"]
        world.pod["nodeSelector"] = {"disk": shared["disk"]}
        return
    selector: dict[str, str] = {}
    for _ in range(world.pick(1, 2)):
        key, values = world.pick(
            (ZONE, ZONES),
            ("disk", ("ssd", "hdd")),
            ("generation", ("1", "2", "3")),
            ("pool", ("pool-0", "pool-1")),
        )
        selector[key] = world.pick(*values)
    world.pod["nodeSelector"] = selector
    if world.chance(60):
        _little_room(world)


def _node_affinity(world: ClassifiedDocuments, tight: bool) -> None:
    if tight:
        terms = [_node_term(world) for _ in range(world.pick(1, 1, 2))]
        if world.chance(70):
            _little_room(world)
    else:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
    affinity = world.pod.setdefault("affinity", {})
    affinity["nodeAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
    }


def _node_term(world: ClassifiedDocuments) -> Document:
    term: Document = {
        "matchExpressions": [_node_requirement(world) for _ in range(world.pick(2, 1, 3))]
    }
    single = [
        node["metadata"]["name"] for node in world.nodes if "annotations" not in node["metadata"]
    ]
    if single and world.chance(25):
        operator = world.pick("In", "NotIn")
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [world.pick(*single)]}
        ]
    return term


def _node_requirement(world: ClassifiedDocuments) -> Document:
    operator = world.pick("In", "NotIn", "Gt", "Lt", "DoesNotExist", "Exists")
    if operator in ("Gt", "Lt"):
        key = world.pick("generation", "generation", "disk")
        return {"key": key, "operator": operator, "values": [str(world.integer(1, 4))]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": world.pick("absent", "disk"), "operator": operator}
    key, values = world.pick(
        (ZONE, ZONES),
        ("disk", ("ssd", "hdd")),
        ("generation", ("1", "2", "3")),
        ("absent", ("x", "y")),
    )
    return {"key": key, "operator": operator, "values": [world.pick(*values)]}


def _taints(world: ClassifiedDocuments, tight: bool) -> None:
    for node in world.nodes:
        taints = node["spec"].setdefault("taints", [])
        present = {taint["key"] for taint in taints}
        for _ in range(world.pick(2, 1) if tight else world.pick(0, 1)):
            taint = _taint(world)
            if taint["key"] not in present:
                present.add(taint["key"])
                taints.append(taint)
    if tight:
        world.pod["tolerations"] = [_toleration(world) for _ in range(world.pick(1, 2))]
        if world.chance(70):
            _little_room(world)
    else:
        world.pod["tolerations"] = [{"operator": "Exists"}]


def _taint(world: ClassifiedDocuments) -> Document:
    taint = {
        "key": world.pick("team", "spot", "stage"),
        "effect": world.pick("NoSchedule", "NoExecute", "NoSchedule", "PreferNoSchedule"),
    }
    if world.chance(70):
        taint["value"] = world.pick("a", "b")
    return taint


def _toleration(world: ClassifiedDocuments) -> Document:
    toleration: Document = {}
    if world.chance(95):
        toleration["key"] = world.pick("team", "spot", "stage")
    if "key" not in toleration or world.chance(40):
        toleration["operator"] = "Exists"
    else:
        toleration["value"] = world.pick("a", "b", "")
        if world.chance(50):
            toleration["operator"] = "Equal"
    if world.chance(50):
        toleration["effect"] = world.pick("NoSchedule", "NoExecute")
        if toleration["effect"] == "NoExecute" and world.chance(50):
            toleration["tolerationSeconds"] = 3600
    return toleration


def _unschedulable(world: ClassifiedDocuments, tight: bool) -> None:
    for node in world.nodes[0 if tight else 1 :]:
        if world.chance(75 if tight else 30):
            node["spec"]["unschedulable"] = True
    if tight and world.chance(10):
        world.pod["tolerations"] = [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        ]
    if tight and world.chance(90):
        _little_room(world)


def _topology_spread(world: ClassifiedDocuments, tight: bool) -> None:
    constraint: Document = {
        "maxSkew": world.pick(1, 1, 1, 1, 2) if tight else 5,
        "topologyKey": world.pick(ZONE, HOSTNAME, RACK),
        "whenUnsatisfiable": "DoNotSchedule"
        if tight
        else world.pick("DoNotSchedule", "ScheduleAnyway"),
        "labelSelector": {"matchLabels": dict(world.labels)},
    }
    if tight and world.chance(30):
        constraint["minDomains"] = world.pick(2, 3)
    if constraint["topologyKey"] == RACK and world.chance(50):
        constraint["nodeAffinityPolicy"] = world.pick("Honor", "Ignore")
    if world.chance(30):
        constraint["nodeTaintsPolicy"] = world.pick("Honor", "Ignore")
    world.pod["topologySpreadConstraints"] = [constraint]
    if tight:
        _unbalance(world)
        if world.chance(15):
            world.pod["nodeSelector"] = {"disk": world.nodes[0]["metadata"]["labels"]["disk"]}


def _unbalance(world: ClassifiedDocuments) -> None:
    """Neighbouring pools in different domains, with unlike room, and often as many pods as there is room for."""
    rooms = world.pick((1, 4), (3, 1), (1, 3))
    for index, node in enumerate(world.nodes):
        node["metadata"]["labels"] |= {ZONE: ZONES[index % 3], RACK: f"r{index % 2 + 1}"}
        node["status"]["allocatable"]["pods"] = str(rooms[index % 2])
    room = sum(_size(node) * rooms[index % 2] for index, node in enumerate(world.nodes))
    world.count = max(1, room - world.pick(0, 0, 1))


def _anti_affinity(world: ClassifiedDocuments, tight: bool) -> None:
    if tight:
        key = world.pick(HOSTNAME, ZONE, RACK)
        domains = {node["metadata"]["labels"].get(key) for node in world.nodes}
        world.near(world.node_count if key == HOSTNAME else len(domains))
        selector = _selector(world)
    else:
        key, selector = ZONE, {"matchLabels": {"app": "nobody"}}
    term = {"topologyKey": key, "labelSelector": selector}
    affinity = world.pod.setdefault("affinity", {})
    affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _selector(world: ClassifiedDocuments) -> Document:
    """A selector that selects the pods themselves, in one of the ways to say so."""
    app = world.labels["app"]
    return world.pick(
        {"matchLabels": {"app": app}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "other"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["other"]}]},
    )


def _pod_affinity(world: ClassifiedDocuments, tight: bool) -> None:
    """All pods in one domain; tightly, with little room in each, or with pods that nobody declares."""
    selector = _selector(world)
    if tight:
        if world.chance(15):
            selector = {"matchLabels": {"app": "nobody"}}
        _little_room(world)
    term = {
        "topologyKey": world.pick(ZONE, HOSTNAME, RACK) if tight else ZONE,
        "labelSelector": selector,
    }
    affinity = world.pod.setdefault("affinity", {})
    affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _daemon_overhead(world: ClassifiedDocuments, tight: bool) -> None:
    """A DaemonSet takes its part of every node, and leaves the others just enough, or too little."""
    part, request = (world.pick(2, 3), world.pick(3, 4, 2)) if tight else (1, 1)
    for node in world.nodes:
        node["status"]["allocatable"]["cpu"] = str(world.pick(4, 5, 6))
    offers = [(int(node["status"]["allocatable"]["cpu"]), _size(node)) for node in world.nodes]
    world.request("cpu", str(request))
    world.near(sum(size * ((offer - part) // request) for offer, size in offers) + world.pick(0, 1))
    container = {
        "name": "agent",
        "image": "example.com/agent",
        "resources": {"requests": {"cpu": str(part)}},
    }
    own = {"workload": "agent"}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": own}, "spec": spec}
    world.others.append(
        _named(
            "apps/v1",
            "DaemonSet",
            "agent",
            {"selector": {"matchLabels": own}, "template": template},
        )
    )


def _host_ports(world: ClassifiedDocuments, tight: bool) -> None:
    port: Document = {"containerPort": 80, "hostPort": world.pick(8080, 8081)}
    if world.chance(30):
        port["protocol"] = world.pick("TCP", "UDP")
    if world.chance(30):
        port["hostIP"] = world.pick("127.0.0.1", "0.0.0.0")
    world.container["ports"] = [port]
    if tight:
        world.near(world.node_count)
    else:
        world.count = min(world.count, world.node_count)


def _quota(world: ClassifiedDocuments, tight: bool) -> None:
    world.container["resources"] = {
        "requests": {"cpu": "200m", "memory": "64Mi"},
        "limits": {"cpu": "400m", "memory": "64Mi"},
    }
    count = world.count + (world.pick(-1, 0, -2, 0) if tight else 20)
    per_pod = {
        "pods": 1,
        "requests.cpu": 200,
        "limits.cpu": 400,
        "requests.memory": 64,
        "count/pods": 1,
        "cpu": 200,
    }
    hard: dict[str, str] = {}
    for item in sorted({world.pick(*per_pod) for _ in range(world.pick(1, 2))}):
        suffix = "m" if "cpu" in item else "Mi" if "memory" in item else ""
        hard[item] = f"{max(0, count) * per_pod[item]}{suffix}"
    spec: Document = {"hard": hard}
    if world.chance(25):
        spec["scopes"] = [world.pick("NotTerminating", "Terminating", "NotBestEffort")]
    elif world.chance(15):
        match = {
            "scopeName": "PriorityClass",
            "operator": "In",
            "values": [f"{PLACEHOLDER}-{world.pick('high', 'low')}"],
        }
        spec["scopeSelector"] = {"matchExpressions": [match]}
    if "scopes" in spec or "scopeSelector" in spec:
        spec["hard"].pop("count/pods", None)
        spec["hard"].setdefault("pods", str(max(0, count)))
    if "scopeSelector" in spec:
        _priority(world)
    if world.chance(10):
        # Whoever says nothing of a resource that a quota counts is refused.
        del world.container["resources"]["limits"]
    world.others.append(_named("v1", "ResourceQuota", "team", spec))


def _priority(world: ClassifiedDocuments) -> None:
    name = f"{PLACEHOLDER}-high"
    world.others.append(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }
    )
    world.pod["priorityClassName"] = name


def _object_quota(world: ClassifiedDocuments, tight: bool) -> None:
    """Objects counted by kind, and extended resources."""
    if world.chance(50):
        for node in world.nodes:
            node["status"]["allocatable"][GPU] = "16"
        world.request(GPU, "2")
        most = 2 * world.count + (world.pick(-1, 0, -2, 1) if tight else 10)
        hard = {f"requests.{GPU}": str(max(0, most))}
    else:
        kinds = ("jobs.batch", "deployments.apps", "statefulsets.apps", "replicasets.apps", "pods")
        hard = {f"count/{kind}": str(world.pick(0, 1) if tight else 20) for kind in kinds}
        if tight:
            hard["count/pods"] = str(world.count)
    world.others.append(_named("v1", "ResourceQuota", "objects", {"hard": hard}))


def _limit_range(world: ClassifiedDocuments, tight: bool) -> None:
    item: Document = {"type": world.pick("Container", "Container", "Pod")}
    cpu = world.integer(2, 8) if tight else 2
    resources: Document = {"requests": {"cpu": f"{cpu}00m"}}
    if world.chance(60):
        resources["limits"] = {"cpu": f"{cpu + world.pick(0, 2, 4)}00m"}
    if tight:
        bounds = {
            "max": {"cpu": f"{world.integer(3, 9)}00m"},
            "min": {"cpu": f"{world.integer(1, 5)}00m"},
            "maxLimitRequestRatio": {"cpu": str(world.pick(1, 2))},
        }
        for bound in sorted({world.pick(*bounds) for _ in range(world.pick(1, 2))}):
            item[bound] = bounds[bound]
        if "max" in item and "min" in item and bounds["min"]["cpu"] > bounds["max"]["cpu"]:
            del item["min"]
    if item["type"] == "Container" and world.chance(50):
        _limit_range_defaults(world, item, resources)
    world.container["resources"] = resources
    if len(item) == 1:
        item["max"] = {"cpu": "4"}
    world.others.append(_named("v1", "LimitRange", "limits", {"limits": [item]}))


def _limit_range_defaults(world: ClassifiedDocuments, item: Document, resources: Document) -> None:
    """Defaults within the bounds, for pods that ask for nothing."""
    default = item.get("max", {"cpu": "900m"})["cpu"]
    request = item.get("min", {"cpu": "100m"})["cpu"]
    if "maxLimitRequestRatio" not in item and request <= default:
        item["default"], item["defaultRequest"] = {"cpu": default}, {"cpu": request}
        if world.chance(50):
            resources.clear()


def _default_requests(world: ClassifiedDocuments, tight: bool) -> None:
    """Pods ask for nothing; the namespace's defaults ask for them, and fill the nodes."""
    request = world.pick(2, 3, 1) if tight else 1
    for node in world.nodes:
        node["status"]["allocatable"]["cpu"] = str(world.pick(4, 2, 5, 3))
    room = sum(
        _size(node) * (int(node["status"]["allocatable"]["cpu"]) // request) for node in world.nodes
    )
    world.container["resources"] = {}
    limit = {
        "type": "Container",
        "default": {"cpu": str(request + 1)},
        "defaultRequest": {"cpu": str(request)},
    }
    world.others.append(_named("v1", "LimitRange", "defaults", {"limits": [limit]}))
    if tight:
        world.near(room)
    else:
        world.count = max(1, min(world.count, room // 2))


def _volume_zone(world: ClassifiedDocuments, tight: bool) -> None:
    """A volume that exists in one zone, bound to the claim that the pods use."""
    zone = world.pick(*ZONES) if tight else world.nodes[0]["metadata"]["labels"][ZONE]
    claim, volume = "data", f"{PLACEHOLDER}-volume"
    modes = [
        world.pick("ReadWriteMany", "ReadWriteOncePod")
        if tight and world.count <= 2
        else "ReadWriteMany"
    ]
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    world.others += [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": modes,
                "storageClassName": "",
                "claimRef": {"namespace": NAMESPACE, "name": claim},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": volume},
            },
        },
        _named(
            "v1",
            "PersistentVolumeClaim",
            claim,
            {
                "accessModes": modes,
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": {"storage": "10Gi"}},
            },
        ),
    ]
    if tight and world.chance(50):
        _little_room(world)
    world.pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def _volume_topology(world: ClassifiedDocuments, tight: bool) -> None:
    """Each pod has a volume of its own, of a class that makes volumes in some zones only."""
    name = f"{PLACEHOLDER}-zonal"
    storage_class: Document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "pd.csi.storage.gke.io",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if tight:
        if world.chance(60):
            _little_room(world)
        expression = {"key": ZONE, "values": [world.pick(*ZONES)]}
        storage_class["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "resources": {"requests": {"storage": "10Gi"}},
    }
    world.others.append(storage_class)
    ephemeral = {"volumeClaimTemplate": {"spec": spec}}
    world.pod.setdefault("volumes", []).append({"name": "zonal", "ephemeral": ephemeral})


Rule = Callable[[ClassifiedDocuments, bool], None]

RULES: dict[str, Rule] = {
    "resources": _resources,
    "gpus": _gpus,
    "pod-count": _pod_count,
    "init-containers": _init_containers,
    "overhead": _overhead,
    "node-selector": _node_selector,
    "node-affinity": _node_affinity,
    "taints": _taints,
    "unschedulable": _unschedulable,
    "topology-spread": _topology_spread,
    "pod-anti-affinity": _anti_affinity,
    "pod-affinity": _pod_affinity,
    "daemon-overhead": _daemon_overhead,
    "host-ports": _host_ports,
    "quota": _quota,
    "object-quota": _object_quota,
    "limit-range": _limit_range,
    "default-requests": _default_requests,
    "volume-zone": _volume_zone,
    "volume-topology": _volume_topology,
}
"""The rules, by the names under which the table of agreement counts them."""
WEIGHTS = {
    "resources": 0.3,
    "gpus": 2.1,
    "pod-count": 0.5,
    "init-containers": 2.6,
    "overhead": 1.7,
    "node-selector": 2.2,
    "node-affinity": 1.5,
    "taints": 2.4,
    "unschedulable": 2.4,
    "topology-spread": 2.8,
    "pod-anti-affinity": 2.0,
    "pod-affinity": 2.6,
    "daemon-overhead": 1.6,
    "host-ports": 1.3,
    "quota": 1.5,
    "object-quota": 1.7,
    "limit-range": 2.1,
    "default-requests": 1.9,
    "volume-zone": 0.9,
    "volume-topology": 0.9,
}
"""How many more cases some rules get, since fewer are decided by them, or how many fewer."""
LOOSE = (
    "taints",
    "node-affinity",
    "topology-spread",
    "host-ports",
    "unschedulable",
    "pod-anti-affinity",
    "overhead",
)
"""Rules that may accompany the deciding one."""


# --- Workloads


def _named(api_version: str, kind: str, name: str, spec: Document) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _workload(world: ClassifiedDocuments, index: int, kinds: Sequence[str] = KINDS) -> Document:
    kind = world.pick(*kinds)
    name = f"{world.labels['app']}-{index}-one"
    pod = copy.deepcopy(world.pod)
    own = {"workload": name}
    template = {"metadata": {"labels": world.labels | own}, "spec": pod}
    if kind == "Pod":
        document = _named("v1", "Pod", name, pod)
        document["metadata"]["labels"] = world.labels | own
        return document
    if kind in ("Job", "Gang", "CronJob"):
        return _job(world, kind, name, template)
    spec: Document = {"selector": {"matchLabels": own}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = world.count
    if kind == "StatefulSet":
        spec["serviceName"] = name
        if world.chance(50):
            spec["podManagementPolicy"] = "Parallel"
    if kind == "Deployment":
        spec["strategy"] = world.pick(
            {"type": "Recreate"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        )
    return _named("apps/v1", kind, name, spec)


def _job(world: ClassifiedDocuments, kind: str, name: str, template: Document) -> Document:
    template["spec"]["restartPolicy"] = "Never"
    spec: Document = {
        "parallelism": world.count,
        "completions": world.count + world.pick(0, 0, 2),
        "template": template,
    }
    if world.chance(20):
        # Kubernetes calls pods with a deadline Terminating; quotas tell them apart.
        template["spec"]["activeDeadlineSeconds"] = 36000
    if kind == "CronJob":
        return _named(
            "batch/v1", "CronJob", name, {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
        )
    document = _named("batch/v1", "Job", name, spec)
    if kind == "Gang":
        document["metadata"]["annotations"] = {GANG: "true"}
    return document


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any], rule: str) -> Case:
    """Cases that a rule is meant to decide."""
    world = _world(draw)
    for other in draw(st.lists(st.sampled_from(LOOSE), max_size=2, unique=True)):
        if other != rule:
            RULES[other](world, False)
    RULES[rule](world, True)
    several = world.chance(20)
    workloads = [_workload(world, 0, STAYING if several or rule == "daemon-overhead" else KINDS)]
    if several and rule != "daemon-overhead":
        for index in range(1, world.pick(2, 3)):
            world.labels = {"app": world.pick("train", "serve")}
            world.count = world.integer(1, 3)
            workloads.append(_workload(world, index, STAYING))
    documents = [*world.nodes, *world.others, *workloads]
    return Case(rule, isolated(json.loads(json.dumps(documents))))


def batch(number: int, per_rule: int = PER_RULE) -> list[Case]:
    """About so many cases for each rule, by its weight; the same ones for the same number."""
    generated = (
        case
        for rule in RULES
        for case in generate(rule, round(per_rule * WEIGHTS.get(rule, 1)), number)
    )
    return [part for case in generated for part in case.parts()]


def generate(rule: str, count: int, number: int) -> list[Case]:
    """About so many different cases of a rule; the same ones for the same number."""
    found: dict[str, Case] = {}

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ],
    )
    @given(cases(rule))
    def collect(case: Case) -> None:
        found.setdefault(json.dumps(case.documents), case)

    collect()
    return list(found.values())
