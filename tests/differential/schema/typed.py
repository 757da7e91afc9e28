"""Objects typed from the schema: required fields always, optional ones by chance, values of the right type."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.differential.schema import values
from tests.differential.schema.openapi import Node, Schema, reference

Object = dict[str, Any]

STRANGE = 2
"""In a hundred: how often a value comes that its field is probably refused for."""
ALWAYS = ("spec", "template")
"""What the schema calls optional, and no object is accepted without."""
FORMATS: dict[str, tuple[Any, ...]] = {
    "date-time": ("2026-01-01T00:00:00Z",),
    "byte": ("eA==",),
    "int-or-string": (1, "50%"),
    "int32": (1, 0, 2, 5),
    "int64": (1, 0, 1000),
    "double": (1.0,),
}


class Draw:
    """One case's chances: the same for the same seed."""

    def __init__(self, schema: Schema, seed: str) -> None:
        self.schema = schema
        self._random = random.Random(seed)

    def pick(self, *options: Any) -> Any:
        return self._random.choice(options)

    def some(self, *options: Any) -> list[Any]:
        """One of the options, or two, or three."""
        return self._random.sample(options, min(len(options), self.pick(1, 1, 2, 2, 3)))

    def chance(self, percent: float) -> bool:
        return self._random.random() * 100 < percent

    def integer(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def shuffled(self, items: list[Any]) -> list[Any]:
        return self._random.sample(items, len(items))

    def object(self, type_name: str, without: frozenset[str] = frozenset()) -> Any:
        """A value of a type."""
        short = type_name.rsplit(".", 1)[-1]
        if short in RULES:
            return RULES[short](self)
        if "properties" not in self.schema.types[type_name]:
            return self._leaf(self.schema.types[type_name], short)
        required = self.schema.required(type_name)
        made: Object = {}
        for name, node in self.schema.fields(type_name).items():
            key = f"{short}.{name}"
            if name in without or name in values.NEVER or key in values.NEVER:
                continue
            chance = values.CHANCE.get(key, values.CHANCE.get(short, values.OTHERWISE))
            if name in required or name in ALWAYS or self.chance(chance):
                made[name] = self.field(key, node)
        return made

    def field(self, key: str, node: Node) -> Any:
        """A value of a field: from its pool, by its rule, or of its type."""
        if key in values.POOLS:
            return self.pick(*values.POOLS[key])
        if key in RULES:
            return RULES[key](self)
        if type_name := reference(node):
            return self.object(type_name)
        match node.get("type"):
            case "array":
                items = [self.field(f"{key}[]", node["items"]) for _ in range(self.pick(1, 1, 2))]
                return _distinct(items, node)
            case "object" if "additionalProperties" in node:
                return {"key": self.field(f"{key}{{}}", node["additionalProperties"])}
            case "object":
                return {}
            case _:
                return self._leaf(node, key)

    def _leaf(self, node: Node, key: str) -> Any:
        if "enum" in node:
            return self.pick(*node["enum"])
        if (form := node.get("format")) in FORMATS:
            return self.pick(*FORMATS[form])
        parts = [part.get("type") for part in node.get("oneOf", ())]
        match node.get("type") or next(iter(parts), "string"):
            case "boolean":
                return self.pick(True, False)
            case "integer" | "number":
                return self.pick(1, 2)
            case _:
                return "Strange value" if self.chance(STRANGE) else "example"


def _distinct(items: list[Any], node: Node) -> list[Any]:
    """Items whose keys differ, as lists that are maps need them."""
    keys = node.get("x-kubernetes-list-map-keys", ())

    def identity(item: Any) -> Any:
        return [item.get(key) for key in keys] if keys and isinstance(item, dict) else item

    found: list[Any] = []
    for item in items:
        if identity(item) not in map(identity, found):
            found.append(item)
    return found


# --- Types of which the schema tells less than validation wants

Rule = Callable[[Draw], Any]
RULES: dict[str, Rule] = {}
"""By the name of a type, or of one field."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@rule("Quantity")
def _quantity(draw: Draw) -> Any:
    if draw.chance(STRANGE):
        return draw.pick("-1", 1, "1.5")
    return draw.pick("1", "500m", "1Gi", "2", "1e0")


@rule("MicroTime", "Time")
def _time(_draw: Draw) -> Any:
    return FORMATS["date-time"][0]


@rule("LabelSelector")
def _label_selector(draw: Draw) -> Any:
    app = draw.pick(*values.APPS)
    return draw.pick(
        {"matchLabels": {"app": app}},
        {"matchLabels": {"app": app}},
        {"matchLabels": {"tier": draw.pick("front", "back")}},
        {"matchExpressions": [_label_requirement(draw)]},
        {"matchLabels": {"app": app}, "matchExpressions": [_label_requirement(draw)]},
        {},
    )


@rule("LabelSelectorRequirement")
def _label_requirement(draw: Draw) -> Object:
    key = draw.pick(*values.POOLS["LabelSelectorRequirement.key"])
    operator = draw.pick("In", "In", "NotIn", "Exists", "DoesNotExist")
    known = {"app": values.APPS, "tier": ("front", "back"), "job-name": ("w0", "w1")}
    return _required(draw, key, operator, known.get(key, ("0", "1")))


def _required(draw: Draw, key: str, operator: str, known: tuple[str, ...]) -> Object:
    """A requirement, with some of the known values if its operator has values."""
    given = {"key": key, "operator": operator}
    return given | ({"values": draw.some(*known)} if operator.endswith("In") else {})


@rule("NodeSelectorRequirement")
def _node_requirement(draw: Draw) -> Object:
    if draw.chance(STRANGE):
        operator = draw.pick("In", "Exists", "Gt")
        return {"key": "disk", "operator": operator, "values": draw.pick([], ["x"], ["1", "2"])}
    operator = draw.pick("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    if operator in ("Gt", "Lt"):
        key = draw.pick("gen", "gen", "disk")
        return {"key": key, "operator": operator, "values": [draw.pick("1", "2", "3", "0")]}
    key = draw.pick("disk", "gen", values.ZONE, values.RACK, values.HOSTNAME)
    return _required(draw, key, operator, _label_values(key))


def _label_values(key: str) -> tuple[str, ...]:
    return {
        "disk": ("ssd", "hdd"),
        "gen": ("1", "2", "3"),
        "spot": ("yes",),
        values.ZONE: values.ZONES,
        values.RACK: (f"{values.CASE}-r1", f"{values.CASE}-r2"),
        values.HOSTNAME: values.NODES[:3],
    }[key]


def node_labels(draw: Draw, name: str) -> dict[str, str]:
    """Labels of a node; now and then two nodes share a hostname. A kubelet gives one to every node."""
    labels = {
        key: draw.pick(*_label_values(key))
        for key in (*values.KEYS, values.ZONE, values.RACK)
        if draw.chance(75)
    }
    shares_it = not draw.chance(3) and draw.chance(3)
    return labels | {values.HOSTNAME: values.NODES[0] if shares_it else name}


@rule("TopologySpreadConstraint")
def _spread(draw: Draw) -> Object:
    fields = draw.schema.fields("io.k8s.api.core.v1.TopologySpreadConstraint")
    ways = (*["DoNotSchedule"] * 3, "ScheduleAnyway")
    made = {"whenUnsatisfiable": draw.pick(*ways)}
    for name, chance in _SPREAD_CHANCES.items():
        if draw.chance(chance):
            made[name] = draw.field(f"TopologySpreadConstraint.{name}", fields[name])
    if made.get("nodeAffinityPolicy") == "Ignore":
        made["topologyKey"] = values.RACK
    if made["whenUnsatisfiable"] == "ScheduleAnyway" and not draw.chance(STRANGE):
        made.pop("minDomains", None)
    return made


_SPREAD_CHANCES = {
    "maxSkew": 100, "topologyKey": 100, "labelSelector": 90, "minDomains": 15, "matchLabelKeys": 6,
    "nodeAffinityPolicy": 12, "nodeTaintsPolicy": 12,
}  # fmt: skip


@rule("NodeSelectorTerm")
def _node_term(draw: Draw) -> Object:
    field = {"key": "metadata.name", "operator": draw.pick("In", "NotIn")}
    fields = [field | {"values": [draw.pick(*values.NODES[:3])]}]
    if draw.chance(15):
        return {"matchFields": fields}
    expressions = [_node_requirement(draw) for _ in range(draw.pick(1, 1, 2))]
    return {"matchExpressions": expressions} | ({"matchFields": fields} if draw.chance(8) else {})


@rule("PodSpec.nodeSelector", "Scheduling.nodeSelector")
def _node_selector(draw: Draw) -> Object:
    key = draw.pick("disk", "disk", "gen", values.ZONE, values.RACK, "spot")
    return {key: draw.pick(*_label_values(key))}


@rule("Toleration", "DeviceToleration")
def _toleration(draw: Draw) -> Object:
    if draw.chance(STRANGE):
        return draw.pick(
            {"operator": "Equal", "value": "x"},
            {"key": "spot", "operator": "Exists", "value": "x"},
            {},
        )
    key = draw.pick("spot", "spot", "team", values.GPU, "node.kubernetes.io/unschedulable")
    made: Object = draw.pick(
        {"operator": "Exists"}, {"key": key, "operator": "Exists"}, {"key": key, "value": "x"}
    )
    if draw.chance(40):
        made["effect"] = draw.pick("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
        if made["effect"] == "NoExecute" and draw.chance(40):
            made["tolerationSeconds"] = 3600
    if draw.chance(0.3) and "value" not in made and "key" in made:
        made |= {"operator": draw.pick("Lt", "Gt"), "value": "5"}
    return made


# --- Amounts


CPU = ("250m", "500m", "500m", "1", "1", "1500m", "2")
MEMORY = ("512Mi", "1Gi", "2Gi")


@rule("ResourceRequirements")
def _resources(draw: Draw) -> Object:
    """Requests that fill small nodes, and limits that are mostly not below them."""
    made: dict[str, Any] = {"requests": {}, "limits": {}}
    if draw.chance(85):
        _ask(draw, made, "cpu", CPU)
    if draw.chance(40):
        _ask(draw, made, "memory", MEMORY)
    if draw.chance(8):
        _ask(draw, made, "ephemeral-storage", MEMORY)
    if draw.chance(12):
        amount = draw.pick("1", "1", "2") if not draw.chance(STRANGE) else draw.pick("0", "500m")
        made["limits"][draw.pick(values.GPU, values.GPU, values.FPGA)] = amount
    if draw.chance(2):
        made["limits"]["hugepages-2Mi"] = draw.pick("2Mi", "4Mi", "1Mi")
    if draw.chance(STRANGE / 2):
        made["requests"][draw.pick("gpu", "example.com/UPPER!", values.GPU)] = "1"
    return {key: value for key, value in made.items() if value}


@rule("PodSpec.resources")
def _pod_resources(draw: Draw) -> Object:
    """Of the whole pod: mostly no less than its containers ask for."""
    cpu = draw.pick("2", "3", "3", "1")
    return draw.pick(
        {"requests": {"cpu": cpu}},
        {"limits": {"cpu": cpu, "memory": "4Gi"}},
        {"limits": {"cpu": "4"}, "requests": {"cpu": cpu}},
    )


def _ask(draw: Draw, made: Object, resource: str, amounts: tuple[str, ...]) -> None:
    request = draw.pick(*amounts)
    if draw.chance(85):
        made["requests"][resource] = request
    if draw.chance(30):
        enough = amounts[amounts.index(request) :] if not draw.chance(STRANGE) else amounts
        made["limits"][resource] = draw.pick(request, *enough)


@rule("VolumeResourceRequirements")
def _storage(draw: Draw) -> Object:
    return {"requests": {"storage": draw.pick("1Gi", "1Gi", "5Gi", "10Gi")}}


@rule("PersistentVolumeSpec.capacity")
def _capacity(draw: Draw) -> Object:
    return {"storage": draw.pick("5Gi", "10Gi", "1Gi")}


@rule("PodSpec.overhead", "Overhead.podFixed")
def _overhead(draw: Draw) -> Object:
    return draw.pick({"cpu": "250m"}, {"cpu": "500m", "memory": "128Mi"}, {"memory": "256Mi"})


@rule("ResourceQuotaSpec.hard")
def _hard(draw: Draw) -> Object:
    pools: dict[str, tuple[str, ...]] = {
        "requests.cpu": ("2", "3", "4", "8"),
        "limits.cpu": ("2", "4", "8"),
        "cpu": ("2", "4"),
        "requests.memory": ("2Gi", "4Gi"),
        "memory": ("2Gi", "4Gi"),
        "limits.memory": ("4Gi",),
        "requests.ephemeral-storage": ("2Gi",),
        "pods": ("1", "2", "3", "5", "8"),
        "count/pods": ("2", "4", "6"),
        "count/jobs.batch": ("0", "1", "2"),
        "count/deployments.apps": ("0", "1", "2"),
        "count/replicasets.apps": ("0", "1", "2"),
        "count/statefulsets.apps": ("0", "1"),
        "count/controllerrevisions.apps": ("0", "1"),
        "persistentvolumeclaims": ("0", "1", "2", "4"),
        "requests.storage": ("1Gi", "5Gi", "20Gi"),
        f"{values.CLASSES[0]}.storageclass.storage.k8s.io/requests.storage": ("1Gi", "10Gi"),
        f"{values.CLASSES[1]}.storageclass.storage.k8s.io/persistentvolumeclaims": ("0", "2"),
        f"requests.{values.GPU}": ("0", "1", "2", "4"),
        "services": ("0", "1"),
        "configmaps": ("1", "2"),
        "count/configmaps": ("1", "3"),
        "count/resourceclaims.resource.k8s.io": ("0", "1"),
        "hugepages-2Mi": ("2Mi",),
        "count/widgets.example.com": ("0",),
    }
    keys = draw.some(*pools, "requests.cpu", "pods", "pods", "limits.cpu")
    return {key: draw.pick(*pools[key]) for key in keys}


@rule("ResourceQuotaSpec.scopes")
def _scopes(draw: Draw) -> list[str]:
    known = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")
    return [draw.pick(*known, "CrossNamespacePodAffinity")]


@rule("ScopeSelector")
def _scope_selector(draw: Draw) -> Object:
    operator = draw.pick("In", "NotIn", "Exists", "DoesNotExist")
    given = {"scopeName": "PriorityClass", "operator": operator}
    named = {"values": draw.some(*values.PRIORITIES)} if operator.endswith("In") else {}
    if draw.chance(25):
        given = {"scopeName": draw.pick("BestEffort", "Terminating"), "operator": "Exists"}
        named = {}
    return {"matchExpressions": [given | named]}


@rule("LimitRangeItem")
def _limit(draw: Draw) -> Object:
    kinds = (*["Container"] * 3, "Pod", "PersistentVolumeClaim")
    item: Object = {"type": draw.pick(*kinds)}
    if item["type"] == "PersistentVolumeClaim":
        return item | draw.pick({"max": {"storage": "5Gi"}}, {"min": {"storage": "5Gi"}})
    low, middle, high = draw.pick(("250m", "500m", "1"), ("500m", "1", "2"), ("100m", "2", "4"))
    for key, amount in (("max", high), ("min", low), ("maxLimitRequestRatio", "2")):
        if draw.chance(35):
            item[key] = {"cpu": amount}
    if item["type"] == "Container" and draw.chance(60):
        item |= {"default": {"cpu": high}} if draw.chance(60) else {}
        item |= {"defaultRequest": {"cpu": middle}} if draw.chance(60) else {}
    return item if len(item) > 1 else item | {"max": {"memory": "2Gi"}}
