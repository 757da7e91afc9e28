"""The generator: cases in which the rule that shall decide is drawn first, and its numbers near the edge.

Every case starts from a draft in which its pods fit. Then the deciding rule is laid over it, tightly, and up to two
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

from tests.differential.case import (
    GANG,
    MAX_NODES,
    PLACEHOLDER,
    Case,
    Document,
    cluster_wide,
    isolated,
)

NAMESPACE = f"{PLACEHOLDER}-team"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
RACK = f"example.com/rack-{PLACEHOLDER}"
"""A topology key of the case's own: constraints that look at every node with the key see no other case's."""
GPU = "nvidia.com/gpu"
DISKS = "pd.csi.storage.gke.io"
ZONES = ("us-a", "us-b", "us-c")
LABELS = ((ZONE, ZONES), ("disk", ("ssd", "hdd")), ("generation", ("1", "2", "3")))
OFTEN = ("Deployment", "Gang")
STAYING = (*OFTEN, "StatefulSet", "ReplicaSet", *OFTEN, "DaemonSet", "Pod")
"""Kinds of workloads whose pods stay, a gang's as long as others may wait."""
KINDS = (*STAYING, "Job", "CronJob")
"""Plain Jobs stand alone: beside others they take turns, and the pods of cases never end."""
PER_RULE = 16
"""Cases per rule and batch. A control plane takes its time to start; with more nodes, the scheduler takes its own."""


@dataclass
class Draft:
    """The parts of a case, before its workloads are documents."""

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

    def offer(self, resource: str, *amounts: Any, unit: str = "") -> list[int]:
        """Let each node offer one of the amounts; return what each one offers."""
        offered = [self.pick(*amounts) for _ in self.nodes]
        for node, amount in zip(self.nodes, offered, strict=True):
            node["status"]["allocatable"][resource] = f"{amount}{unit}"
        return offered

    def room(self, offers: list[int], request: int = 1) -> int:
        """Return how many pods with a request the nodes together take."""
        return sum(
            _size(node) * (offer // request) for node, offer in zip(self.nodes, offers, strict=True)
        )

    def require(self, kind: str, required: Any) -> None:
        """Give the pods an affinity of a kind."""
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        self.pod.setdefault("affinity", {})[kind] = rule

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


# --- The draft before any rule


def _draft(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Draft:
    nodes = [_node(draw, index) for index in range(draw(st.sampled_from((2, 1, 2, 3, 4))))]
    labels = {"app": draw(st.sampled_from(("train", "serve")))}
    count = draw(st.integers(1, 4))
    return Draft(draw, nodes, _pod_of("main", cpu="100m", memory="64Mi"), labels, count)


def _container(name: str, image: str, **requests: str) -> Document:
    resources = {"requests": requests}
    return {"name": name, "image": f"example.com/{image}", "resources": resources}


def _pod_of(name: str, **requests: str) -> Document:
    return {"containers": [_container(name, name, **requests)]}


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
    made: Document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}
    return made | {"status": {"allocatable": allocatable}}


# --- Rules


def _resources(draft: Draft, tight: bool) -> None:
    resource, unit = draft.pick(("cpu", ""), ("memory", "Gi"), ("ephemeral-storage", "Gi"))
    _fill(draft, resource, unit, tight)


def _gpus(draft: Draft, tight: bool) -> None:
    for node in draft.nodes:
        node["spec"]["taints"] = [{"key": GPU, "value": "present", "effect": "NoSchedule"}]
    _fill(draft, GPU, "", tight)


def _fill(draft: Draft, resource: str, unit: str, tight: bool) -> None:
    """Ask for so much of a resource that the nodes are about full, or, loosely, half full."""
    offers = draft.offer(resource, 4, 8, 5, 2, unit=unit)
    request = draft.pick(2, 3, 4, 5, 8) if tight else 1
    room = draft.room(offers, request)
    draft.request(resource, f"{request}{unit}")
    if tight:
        draft.near(room)
    else:
        draft.count = min(draft.count, room // 2)


def _pod_count(draft: Draft, tight: bool) -> None:
    if tight:
        draft.near(draft.room(draft.offer("pods", 1, 2, 3)))
        return
    for node in draft.nodes:
        node["status"]["allocatable"]["pods"] = "5"


def _little_room(draft: Draft) -> None:
    """Room for few pods on each node, and often as many pods as all nodes together take."""
    room = draft.room(draft.offer("pods", 1, 3, 2))
    draft.count = max(1, room - draft.pick(0, 1, 3)) if draft.chance(70) else min(room, 2)


def _init_containers(draft: Draft, tight: bool) -> None:
    """Init containers run one by one before the others, sidecars from their turn on to the end."""
    init: list[Document] = []
    for index in range(draft.pick(1, 2, 3)):
        cpu = draft.integer(1, 5) if tight else 1
        container = _container(f"init-{index}", "init", cpu=str(cpu))
        if draft.chance(50):
            container["restartPolicy"] = "Always"
        init.append(container)
    draft.pod["initContainers"] = init
    if tight:
        draft.request("cpu", str(draft.pick(1, 2, 3)))
        draft.offer("cpu", 6, 8, 5)
        draft.near(draft.node_count)


def _overhead(draft: Draft, tight: bool) -> None:
    overhead = {"cpu": draft.pick("500m", "1", "250m") if tight else "10m"}
    name = f"{PLACEHOLDER}-sandbox"
    fields = {"handler": "sandbox", "overhead": {"podFixed": overhead}}
    draft.others.append(cluster_wide("node.k8s.io/v1", "RuntimeClass", name, **fields))
    draft.pod |= {"runtimeClassName": name, "overhead": overhead}
    if tight:
        # As many pods as the nodes take without the overhead.
        request, most = draft.pick(("2", 2), ("1", 4), ("3500m", 1), ("1500m", 2))
        draft.request("cpu", request)
        draft.count = max(1, min(16, draft.node_count * most - draft.pick(0, 0, 1)))


def _node_selector(draft: Draft, tight: bool) -> None:
    if not tight:
        shared = draft.nodes[0]["metadata"]["labels"]
        draft.pod["nodeSelector"] = {"disk": shared["disk"]}
        return
    selector: dict[str, str] = {}
    for _ in range(draft.pick(1, 2)):
        key, values = draft.pick(*LABELS, ("pool", ("pool-0", "pool-1")))
        selector[key] = draft.pick(*values)
    draft.pod["nodeSelector"] = selector
    if draft.chance(60):
        _little_room(draft)


def _node_affinity(draft: Draft, tight: bool) -> None:
    if tight:
        terms = [_node_term(draft) for _ in range(draft.pick(1, 1, 2))]
        if draft.chance(70):
            _little_room(draft)
    else:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
    draft.require("nodeAffinity", {"nodeSelectorTerms": terms})


def _node_term(draft: Draft) -> Document:
    requirements = [_node_requirement(draft) for _ in range(draft.pick(2, 1, 3))]
    term: Document = {"matchExpressions": requirements}
    nodes = [node["metadata"] for node in draft.nodes]
    single = [metadata["name"] for metadata in nodes if "annotations" not in metadata]
    if single and draft.chance(25):
        field: Document = {"key": "metadata.name", "operator": draft.pick("In", "NotIn")}
        term["matchFields"] = [field | {"values": [draft.pick(*single)]}]
    return term


def _node_requirement(draft: Draft) -> Document:
    operator = draft.pick("In", "NotIn", "Gt", "Lt", "DoesNotExist", "Exists")
    if operator in ("Gt", "Lt"):
        key = draft.pick("generation", "generation", "disk")
        return {"key": key, "operator": operator, "values": [str(draft.integer(1, 4))]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": draft.pick("absent", "disk"), "operator": operator}
    key, values = draft.pick(*LABELS, ("absent", ("x", "y")))
    return {"key": key, "operator": operator, "values": [draft.pick(*values)]}


def _taints(draft: Draft, tight: bool) -> None:
    for node in draft.nodes:
        taints = node["spec"].setdefault("taints", [])
        present = {taint["key"] for taint in taints}
        for _ in range(draft.pick(2, 1) if tight else draft.pick(0, 1)):
            taint = _taint(draft)
            if taint["key"] not in present:
                present.add(taint["key"])
                taints.append(taint)
    if tight:
        draft.pod["tolerations"] = [_toleration(draft) for _ in range(draft.pick(1, 2))]
        if draft.chance(70):
            _little_room(draft)
    else:
        draft.pod["tolerations"] = [{"operator": "Exists"}]


def _taint(draft: Draft) -> Document:
    taint = {
        "key": draft.pick("team", "spot", "stage"),
        "effect": draft.pick("NoSchedule", "NoExecute", "NoSchedule", "PreferNoSchedule"),
    }
    if draft.chance(70):
        taint["value"] = draft.pick("a", "b")
    return taint


def _toleration(draft: Draft) -> Document:
    toleration: Document = {}
    if draft.chance(95):
        toleration["key"] = draft.pick("team", "spot", "stage")
    if "key" not in toleration or draft.chance(40):
        toleration["operator"] = "Exists"
    else:
        toleration["value"] = draft.pick("a", "b", "")
        if draft.chance(50):
            toleration["operator"] = "Equal"
    if draft.chance(50):
        toleration["effect"] = draft.pick("NoSchedule", "NoExecute")
        if toleration["effect"] == "NoExecute" and draft.chance(50):
            toleration["tolerationSeconds"] = 3600
    return toleration


def _unschedulable(draft: Draft, tight: bool) -> None:
    for node in draft.nodes[0 if tight else 1 :]:
        if draft.chance(75 if tight else 30):
            node["spec"]["unschedulable"] = True
    if tight and draft.chance(10):
        tolerated = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        draft.pod["tolerations"] = [tolerated]
    if tight and draft.chance(90):
        _little_room(draft)


def _topology_spread(draft: Draft, tight: bool) -> None:
    constraint: Document = {
        "maxSkew": draft.pick(1, 1, 1, 1, 2) if tight else 5,
        "topologyKey": draft.pick(ZONE, HOSTNAME, RACK),
        "whenUnsatisfiable": "DoNotSchedule"
        if tight
        else draft.pick("DoNotSchedule", "ScheduleAnyway"),
        "labelSelector": {"matchLabels": dict(draft.labels)},
    }
    if tight and draft.chance(30):
        constraint["minDomains"] = draft.pick(2, 3)
    if constraint["topologyKey"] == RACK and draft.chance(50):
        constraint["nodeAffinityPolicy"] = draft.pick("Honor", "Ignore")
    if draft.chance(30):
        constraint["nodeTaintsPolicy"] = draft.pick("Honor", "Ignore")
    draft.pod["topologySpreadConstraints"] = [constraint]
    if tight:
        _unbalance(draft)
        if draft.chance(15):
            draft.pod["nodeSelector"] = {"disk": draft.nodes[0]["metadata"]["labels"]["disk"]}


def _unbalance(draft: Draft) -> None:
    """Neighbouring pools in different domains, with unlike room, and often as many pods as there is room for."""
    rooms = draft.pick((1, 4), (3, 1), (1, 3))
    for index, node in enumerate(draft.nodes):
        node["metadata"]["labels"] |= {ZONE: ZONES[index % 3], RACK: f"r{index % 2 + 1}"}
        node["status"]["allocatable"]["pods"] = str(rooms[index % 2])
    room = sum(_size(node) * rooms[index % 2] for index, node in enumerate(draft.nodes))
    draft.count = max(1, room - draft.pick(0, 0, 1))


def _anti_affinity(draft: Draft, tight: bool) -> None:
    if tight:
        key = draft.pick(HOSTNAME, ZONE, RACK)
        domains = {node["metadata"]["labels"].get(key) for node in draft.nodes}
        draft.near(draft.node_count if key == HOSTNAME else len(domains))
        selector = _selector(draft)
    else:
        key, selector = ZONE, {"matchLabels": {"app": "nobody"}}
    draft.require("podAntiAffinity", [{"topologyKey": key, "labelSelector": selector}])


def _selector(draft: Draft) -> Document:
    """A selector that selects the pods themselves, in one of the ways to say so."""
    app = draft.labels["app"]
    return draft.pick(
        {"matchLabels": {"app": app}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "other"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["other"]}]},
    )


def _pod_affinity(draft: Draft, tight: bool) -> None:
    """All pods in one domain; tightly, with little room in each, or with pods that nobody declares."""
    selector = _selector(draft)
    if tight:
        if draft.chance(15):
            selector = {"matchLabels": {"app": "nobody"}}
        _little_room(draft)
    key = draft.pick(ZONE, HOSTNAME, RACK) if tight else ZONE
    draft.require("podAffinity", [{"topologyKey": key, "labelSelector": selector}])


def _daemon_overhead(draft: Draft, tight: bool) -> None:
    """A DaemonSet takes its part of every node, and leaves the others just enough, or too little."""
    part, request = (draft.pick(2, 3), draft.pick(3, 4, 2)) if tight else (1, 1)
    left = [offer - part for offer in draft.offer("cpu", 4, 5, 6)]
    draft.request("cpu", str(request))
    draft.near(draft.room(left, request) + draft.pick(0, 1))
    own = {"workload": "agent"}
    pod = _pod_of("agent", cpu=str(part)) | {"tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": own}, "spec": pod}
    spec = {"selector": {"matchLabels": own}, "template": template}
    draft.others.append(_named("apps/v1", "DaemonSet", "agent", spec))


def _host_ports(draft: Draft, tight: bool) -> None:
    port: Document = {"containerPort": 80, "hostPort": draft.pick(8080, 8081)}
    if draft.chance(30):
        port["protocol"] = draft.pick("TCP", "UDP")
    if draft.chance(30):
        port["hostIP"] = draft.pick("127.0.0.1", "0.0.0.0")
    draft.container["ports"] = [port]
    if tight:
        draft.near(draft.node_count)
    else:
        draft.count = min(draft.count, draft.node_count)


def _quota(draft: Draft, tight: bool) -> None:
    draft.container["resources"] = {
        "requests": {"cpu": "200m", "memory": "64Mi"},
        "limits": {"cpu": "400m", "memory": "64Mi"},
    }
    count = draft.count + (draft.pick(-1, 0, -2, 0) if tight else 20)
    per_pod = {"pods": 1, "requests.cpu": 200, "limits.cpu": 400, "requests.memory": 64}
    per_pod |= {"count/pods": 1, "cpu": 200}
    hard: dict[str, str] = {}
    for item in sorted({draft.pick(*per_pod) for _ in range(draft.pick(1, 2))}):
        suffix = "m" if "cpu" in item else "Mi" if "memory" in item else ""
        hard[item] = f"{max(0, count) * per_pod[item]}{suffix}"
    spec: Document = {"hard": hard}
    if draft.chance(25):
        spec["scopes"] = [draft.pick("NotTerminating", "Terminating", "NotBestEffort")]
    elif draft.chance(15):
        match: Document = {"scopeName": "PriorityClass", "operator": "In"}
        match["values"] = [f"{PLACEHOLDER}-{draft.pick('high', 'low')}"]
        spec["scopeSelector"] = {"matchExpressions": [match]}
    if "scopes" in spec or "scopeSelector" in spec:
        spec["hard"].pop("count/pods", None)
        spec["hard"].setdefault("pods", str(max(0, count)))
    if "scopeSelector" in spec:
        _priority(draft)
    if draft.chance(10):
        # Whoever says nothing of a resource that a quota counts is refused.
        del draft.container["resources"]["limits"]
    draft.others.append(_named("v1", "ResourceQuota", "team", spec))


def _priority(draft: Draft) -> None:
    name = f"{PLACEHOLDER}-high"
    made = cluster_wide("scheduling.k8s.io/v1", "PriorityClass", name, value=1000)
    draft.others.append(made)
    draft.pod["priorityClassName"] = name


def _object_quota(draft: Draft, tight: bool) -> None:
    """Objects counted by kind, and extended resources."""
    if draft.chance(50):
        for node in draft.nodes:
            node["status"]["allocatable"][GPU] = "16"
        draft.request(GPU, "2")
        most = 2 * draft.count + (draft.pick(-1, 0, -2, 1) if tight else 10)
        hard = {f"requests.{GPU}": str(max(0, most))}
    else:
        kinds = ("jobs.batch", "deployments.apps", "statefulsets.apps", "replicasets.apps", "pods")
        hard = {f"count/{kind}": str(draft.pick(0, 1) if tight else 20) for kind in kinds}
        if tight:
            hard["count/pods"] = str(draft.count)
    draft.others.append(_named("v1", "ResourceQuota", "objects", {"hard": hard}))


def _limit_range(draft: Draft, tight: bool) -> None:
    item: Document = {"type": draft.pick("Container", "Container", "Pod")}
    cpu = draft.integer(2, 8) if tight else 2
    resources: Document = {"requests": {"cpu": f"{cpu}00m"}}
    if draft.chance(60):
        resources["limits"] = {"cpu": f"{cpu + draft.pick(0, 2, 4)}00m"}
    if tight:
        bounds = {
            "max": {"cpu": f"{draft.integer(3, 9)}00m"},
            "min": {"cpu": f"{draft.integer(1, 5)}00m"},
            "maxLimitRequestRatio": {"cpu": str(draft.pick(1, 2))},
        }
        for bound in sorted({draft.pick(*bounds) for _ in range(draft.pick(1, 2))}):
            item[bound] = bounds[bound]
        if "max" in item and "min" in item and bounds["min"]["cpu"] > bounds["max"]["cpu"]:
            del item["min"]
    if item["type"] == "Container" and draft.chance(50):
        _limit_range_defaults(draft, item, resources)
    draft.container["resources"] = resources
    if len(item) == 1:
        item["max"] = {"cpu": "4"}
    draft.others.append(_named("v1", "LimitRange", "limits", {"limits": [item]}))


def _limit_range_defaults(draft: Draft, item: Document, resources: Document) -> None:
    """Defaults within the bounds, for pods that ask for nothing."""
    default = item.get("max", {"cpu": "900m"})["cpu"]
    request = item.get("min", {"cpu": "100m"})["cpu"]
    if "maxLimitRequestRatio" not in item and request <= default:
        item["default"], item["defaultRequest"] = {"cpu": default}, {"cpu": request}
        if draft.chance(50):
            resources.clear()


def _default_requests(draft: Draft, tight: bool) -> None:
    """Pods ask for nothing; the namespace's defaults ask for them, and fill the nodes."""
    request = draft.pick(2, 3, 1) if tight else 1
    room = draft.room(draft.offer("cpu", 4, 2, 5, 3), request)
    draft.container["resources"] = {}
    limit = {"type": "Container", "default": {"cpu": str(request + 1)}}
    limit["defaultRequest"] = {"cpu": str(request)}
    draft.others.append(_named("v1", "LimitRange", "defaults", {"limits": [limit]}))
    if tight:
        draft.near(room)
    else:
        draft.count = max(1, min(draft.count, room // 2))


def _volume_zone(draft: Draft, tight: bool) -> None:
    """A volume that exists in one zone, bound to the claim that the pods use."""
    zone = draft.pick(*ZONES) if tight else draft.nodes[0]["metadata"]["labels"][ZONE]
    claim, volume = "data", f"{PLACEHOLDER}-volume"
    few = tight and draft.count <= 2
    mode = draft.pick("ReadWriteMany", "ReadWriteOncePod") if few else "ReadWriteMany"
    both: Document = {"accessModes": [mode], "storageClassName": ""}
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    made = {
        "capacity": {"storage": "10Gi"},
        **both,
        "claimRef": {"namespace": NAMESPACE, "name": claim},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "csi": {"driver": DISKS, "volumeHandle": volume},
    }
    asked = {**both, "volumeName": volume, "resources": {"requests": {"storage": "10Gi"}}}
    draft.others.append(cluster_wide("v1", "PersistentVolume", volume, spec=made))
    draft.others.append(_named("v1", "PersistentVolumeClaim", claim, asked))
    if tight and draft.chance(50):
        _little_room(draft)
    draft.pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def _volume_topology(draft: Draft, tight: bool) -> None:
    """Each pod has a volume of its own, of a class that makes volumes in some zones only."""
    name = f"{PLACEHOLDER}-zonal"
    fields = {"provisioner": DISKS, "volumeBindingMode": "WaitForFirstConsumer"}
    storage_class = cluster_wide("storage.k8s.io/v1", "StorageClass", name, **fields)
    if tight:
        if draft.chance(60):
            _little_room(draft)
        expression = {"key": ZONE, "values": [draft.pick(*ZONES)]}
        storage_class["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    spec: Document = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    spec["resources"] = {"requests": {"storage": "10Gi"}}
    draft.others.append(storage_class)
    ephemeral = {"volumeClaimTemplate": {"spec": spec}}
    draft.pod.setdefault("volumes", []).append({"name": "zonal", "ephemeral": ephemeral})


Rule = Callable[[Draft, bool], None]

RULES: dict[str, tuple[Rule, float]] = {
    "resources": (_resources, 0.3),
    "gpus": (_gpus, 2.1),
    "pod-count": (_pod_count, 0.5),
    "init-containers": (_init_containers, 2.6),
    "overhead": (_overhead, 1.7),
    "node-selector": (_node_selector, 2.2),
    "node-affinity": (_node_affinity, 1.5),
    "taints": (_taints, 2.4),
    "unschedulable": (_unschedulable, 2.4),
    "topology-spread": (_topology_spread, 2.8),
    "pod-anti-affinity": (_anti_affinity, 2.0),
    "pod-affinity": (_pod_affinity, 2.6),
    "daemon-overhead": (_daemon_overhead, 1.6),
    "host-ports": (_host_ports, 1.3),
    "quota": (_quota, 1.5),
    "object-quota": (_object_quota, 1.7),
    "limit-range": (_limit_range, 2.1),
    "default-requests": (_default_requests, 1.9),
    "volume-zone": (_volume_zone, 0.9),
    "volume-topology": (_volume_topology, 0.9),
}
"""The rules, by the names under which the table of agreement counts them.

Each has how many times as many cases as others: fewer are decided by some rules.
"""
LOOSE = ("taints", "node-affinity", "topology-spread", "host-ports", "unschedulable")
LOOSE += ("pod-anti-affinity", "overhead")
"""Rules that may accompany the deciding one."""


# --- Workloads


def _named(api_version: str, kind: str, name: str, spec: Document) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _workload(draft: Draft, index: int, kinds: Sequence[str] = KINDS) -> Document:
    kind = draft.pick(*kinds)
    name = f"{draft.labels['app']}-{index}-one"
    pod = copy.deepcopy(draft.pod)
    own = {"workload": name}
    template = {"metadata": {"labels": draft.labels | own}, "spec": pod}
    if kind == "Pod":
        document = _named("v1", "Pod", name, pod)
        document["metadata"]["labels"] = draft.labels | own
        return document
    if kind in ("Job", "Gang", "CronJob"):
        return _job(draft, kind, name, template)
    spec: Document = {"selector": {"matchLabels": own}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = draft.count
    if kind == "StatefulSet":
        spec["serviceName"] = name
        if draft.chance(50):
            spec["podManagementPolicy"] = "Parallel"
    if kind == "Deployment":
        spec["strategy"] = draft.pick(
            {"type": "Recreate"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        )
    return _named("apps/v1", kind, name, spec)


def _job(draft: Draft, kind: str, name: str, template: Document) -> Document:
    template["spec"]["restartPolicy"] = "Never"
    spec: Document = {
        "parallelism": draft.count,
        "completions": draft.count + draft.pick(0, 0, 2),
        "template": template,
    }
    if draft.chance(20):
        # Kubernetes calls pods with a deadline Terminating; quotas tell them apart.
        template["spec"]["activeDeadlineSeconds"] = 36000
    if kind == "CronJob":
        schedule = {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
        return _named("batch/v1", "CronJob", name, schedule)
    document = _named("batch/v1", "Job", name, spec)
    if kind == "Gang":
        document["metadata"]["annotations"] = {GANG: "true"}
    return document


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any], rule: str) -> Case:
    """Cases that a rule is meant to decide."""
    draft = _draft(draw)
    for other in draw(st.lists(st.sampled_from(LOOSE), max_size=2, unique=True)):
        if other != rule:
            RULES[other][0](draft, False)
    RULES[rule][0](draft, True)
    several = draft.chance(20)
    workloads = [_workload(draft, 0, STAYING if several or rule == "daemon-overhead" else KINDS)]
    if several and rule != "daemon-overhead":
        for index in range(1, draft.pick(2, 3)):
            draft.labels = {"app": draft.pick("train", "serve")}
            draft.count = draft.integer(1, 3)
            workloads.append(_workload(draft, index, STAYING))
    documents = [*draft.nodes, *draft.others, *workloads]
    return Case(rule, isolated(json.loads(json.dumps(documents))))


def batch(number: int, per_rule: int = PER_RULE) -> list[Case]:
    """About so many cases for each rule, by its weight; the same ones for the same number."""
    generated = (
        case
        for rule, (_, weight) in RULES.items()
        for case in generate(rule, round(per_rule * weight), number)
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
