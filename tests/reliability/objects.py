"""Kubernetes objects and resources of programs with something odd in them: valid ones, edited by the schema or without."""

import base64
import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes import labels
from ml_foundations.planning.input.field_catalog import SCHEMA

from tests.reliability import odd
from tests.support.checkout import CHECKOUT

Tree = Any
_TESTS = CHECKOUT / "tests"
_NODE = """
apiVersion: v1
kind: Node
metadata: {name: gpu, labels: {cloud.google.com/gke-nodepool: l4, kubernetes.io/hostname: gpu}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]}
status: {capacity: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "1"}}
"""
_POD = {"containers": [{"name": "main", "image": "train"}], "restartPolicy": "Never"}
_VALID: dict[str, tuple[Any, ...]] = {
    "string": ("a", "main", "gpu", "web", "research", "IfNotPresent", "zone", "1"),
    "int32": (0, 1, 2, 3, 8, 1000),
    "integer": (0, 1, 60),
    "number": (1, 0.5),
    "boolean": (True, False),
    "quantity": ("1", "500m", "10Gi", "0", "1e3", 2),
    "time": ("2026-01-01T00:00:00Z",),
    "byte": ("eA==",),
    "integer or string": (1, "50%", "http"),
}
_ODD_SHARE = 0.15
_MOST_REPEATED = 150_000
"""Bytes of an object of which a part is repeated."""


def _loaded(text: str) -> list[Tree]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def types() -> dict[str, Any]:
    """The kinds and types of Kubernetes, without those of users."""
    return json.loads(SCHEMA.read_text())


@cache
def streams() -> list[list[Tree]]:
    """The documents of each file of manifests in the tests and the examples."""
    found: list[list[Tree]] = []
    folders = ("tests/planning", "tests/golden/workloads", "tests/workloads", "examples")
    for path in sorted(path for name in folders for path in (CHECKOUT / name).rglob("*.yaml")):
        documents = [each for each in _loaded(path.read_text()) if each]
        if all(isinstance(each, dict) and "kind" in each for each in documents):
            found.append(documents[:12])
    return found


@cache
def resources() -> list[tuple[str, Tree]]:
    """The resources of the development stack, as the engine gets them."""
    [listed] = _loaded((_TESTS / "golden" / "dev.yaml").read_text())
    return [(each["type"], each.get("inputs", {})) for each in listed]


@cache
def descriptions() -> list[Tree]:
    """The descriptions of kinds of this package that a user may have, too."""
    folder = Path(kind_files.__file__).parent
    described = [_loaded(path.read_text())[0] for path in sorted(folder.glob("*.yaml"))]
    return [kind for kind in described if kind.keys() & {"pods", "embeds"}]


def stack(draw: Random) -> list[Tree]:
    """The documents of a stack, of which some are edited."""
    documents = copy.deepcopy(draw.choice(streams()))
    documents += _loaded(_NODE) * draw.choice([0, 1, 1])
    if draw.random() < 0.2:
        documents.append(of_any_kind(draw))
    if draw.random() < 0.2:
        documents.append(holder(draw))
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        index = draw.randrange(len(documents))
        documents[index] = edited(documents[index], draw)
    return documents


def of_any_kind(draw: Random) -> Tree:
    """An object of any kind, as far as the schema knows it."""
    kind, type_ = draw.choice(sorted(types()["kinds"].items()))
    version, _, name = kind.rpartition(" ")
    metadata = {"name": odd.text(draw, "a") if draw.random() < _ODD_SHARE else "a"}
    fields = {key: _typed(draw, below, 4) for key, below in types()["types"].get(type_, {}).items()}
    return {**fields, "apiVersion": version, "kind": name, "metadata": metadata}


def _typed(draw: Random, type_: str, depth: int) -> Tree:
    """A value of a type of the schema, or now and then one of no type."""
    if draw.random() < _ODD_SHARE:
        return odd.value(draw)
    if type_[0] in "[{":
        values = [_typed(draw, type_[1:-1], depth - 1) for _ in range(draw.choice([1, 1, 2]))]
        if type_[0] == "[":
            return values
        return {draw.choice(["app", "a/b", odd.text(draw, "a")]): value for value in values}
    fields = types()["types"].get(type_)
    if fields is None:
        name, _, allowed = type_.partition(": ")
        return draw.choice([*allowed.split(), *_VALID.get(name, ())] or [odd.value(draw)])
    names = sorted(fields) if depth > 0 else []
    some = draw.sample(names, min(len(names), draw.choice([2, 4, 9])))
    return {name: _typed(draw, fields[name], depth - 1) for name in some}


def holder(draw: Random) -> Tree:
    """An object with YAML or JSON inside of its text, which planning reads."""
    config = {"resources": {"transformations": [{"input": "a", "outputs": {"b": 1}}]}}
    networks = [{"interfaceName": "eth1", "network": "rdma-0"}]
    inside = odd.document(draw, draw.choice([config, networks, {"auths": {"a": {"auth": "b"}}}]))
    annotated = {"networking.gke.io/interfaces": inside, labels.KUEUE_SLICES: inside}
    of_nodes = (labels.HOURLY_PRICE, "ml-foundations/max-nodes", "ml-foundations/min-nodes")
    on_node = {key: draw.choice([*odd.AMOUNTS, inside]) for key in of_nodes}
    pods = {"metadata": {"annotations": annotated, "labels": {"a": inside}}, "spec": _POD}
    packed = base64.b64encode(inside.encode(errors="replace")).decode()
    schedule = draw.choice([*odd.AMOUNTS, inside, "@every " + "9" * 400 + "h"])
    made: list[tuple[str, str, str, dict[str, Any]]] = [
        ("v1", "ConfigMap", "kueue-manager-config", {"data": {"controller_manager_config.yaml": inside}}),
        ("v1", "ConfigMap", "a", {"data": {odd.text(draw, "a"): inside}}),
        ("v1", "Secret", "a", {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": inside}}),
        ("v1", "Secret", "a", {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": packed}}),
        ("v1", "Pod", "a", {"metadata": {"name": "a", "annotations": annotated}, "spec": _POD}),
        ("batch/v1", "Job", "a", {"spec": {"template": pods}}),
        ("batch/v1", "CronJob", "a", {"spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": pods}}}}),
        ("v1", "Node", "n", {"metadata": {"name": "n", "annotations": on_node}, "status": {"capacity": {"cpu": "8"}}}),
        ("ray.io/v1", "RayJob", "r", {"spec": {"runtimeEnvYAML": inside, "entrypoint": inside, "rayClusterSpec": {"headGroupSpec": {"template": {"spec": _POD}}}}}),
        ("ray.io/v1", "RayService", "r", {"spec": {"serveConfigV2": inside}}),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "a", {"spec": {"variables": [{"name": "models", "expression": inside}], "validations": [{"expression": inside}]}}),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a", {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"pattern": inside}}}]}}),
        (odd.text(draw, "a.io/v1"), odd.text(draw, "Kind"), odd.text(draw, "a"), {"spec": {"template": pods, "replicas": 2}}),
    ]  # fmt: skip
    version, kind, name, fields = draw.choice(made)
    metadata = {"name": name} | ({"namespace": "kueue-system"} if kind == "ConfigMap" else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def edited(tree: Tree, draw: Random) -> Tree:
    """A copy of an object or a list with one edit."""
    tree = copy.deepcopy(tree)
    kind = f"{tree.get('apiVersion')} {tree.get('kind')}" if isinstance(tree, dict) else ""
    if draw.random() < 0.4 and (places := list(_fields(tree, types()["kinds"].get(kind, "")))):
        parent, key, type_ = draw.choice(places)
        parent[key] = _typed(draw, type_, draw.choice([2, 4]))
        return tree
    places = list(_places(tree))
    if not places:
        return odd.value(draw)
    (parent, key), (other, another) = draw.choice(places), draw.choice(places)
    before = parent[key]
    ways = ["drop", "null", "odd", "odd", "text", "text", "key", "wrap", "swap", "many", "inside"]
    match draw.choice(ways):
        case "drop":
            parent.pop(key)
        case "null":
            parent[key] = None
        case "text":
            parent[key] = odd.text(draw, before if isinstance(before, str) else "a")
        case "key" if isinstance(parent, dict):
            parent[odd.text(draw, str(key))] = parent.pop(key)
        case "wrap":
            parent[key] = draw.choice([[before], {str(key): before}])
        case "swap":
            parent[key] = copy.deepcopy(other[another])
        case "many":
            parent[key] = _repeated(before, draw)
        case "inside":
            parent[key] = odd.document(draw, before)
        case _:
            parent[key] = odd.value(draw)
    return tree  # fmt: skip


def _repeated(value: Tree, draw: Random) -> Tree:
    """A list, map or text that is long, with a number in each of its entries' names."""
    if not value or not isinstance(value, list | dict | str):
        return value
    count = _MOST_REPEATED // len(json.dumps(value, default=str)) // draw.choice([1, 4, 50]) + 2
    if isinstance(value, dict):
        return {f"{key}{n}": each for n in range(count) for key, each in value.items()}
    if isinstance(value, list) and isinstance(value[0], dict) and draw.random() < 0.8:
        names = ("name", "key", "mountPath", "containerPort", "topologyKey")
        own = [{key: f"{key}{n}" for key in names if key in value[0]} for n in range(count)]
        return [value[0] | each for each in own]
    return value * count


def _fields(tree: Tree, type_: str) -> Iterator[tuple[Any, Any, str]]:
    """Each field that the schema has, whether or not it is set, with its type."""
    if type_[:1] in ("[", "{") and isinstance(tree, list | dict):
        for key in range(len(tree)) if isinstance(tree, list) else list(tree):
            yield tree, key, type_[1:-1]
            yield from _fields(tree[key], type_[1:-1])
    elif isinstance(tree, dict):
        for key, below in types()["types"].get(type_, {}).items():
            yield tree, key, below
            yield from _fields(tree.get(key), below)


def _places(tree: Tree) -> Iterator[tuple[Any, Any]]:
    """Each list and map of a tree with each of its keys."""
    if isinstance(tree, list | dict):
        for key in range(len(tree)) if isinstance(tree, list) else list(tree):
            yield tree, key
            yield from _places(tree[key])
