"""The replica is never kinder than GKE: switches with the failing default, and kinds in the oldest release that GKE may have."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_foundations.rehearsal
import pytest
import yaml
from ml_foundations.catalog.gke_kinds import LATER_FIELDS
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import plural
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.rules.field_versions import later_fields
from ml_foundations.rehearsal.cloud import addons
from ml_foundations.rehearsal.cloud.store import SWITCHES, Store

from tests.support.golden import GOLDEN
from tests.support.stacks import of_program

ROOT = Path(ml_foundations.rehearsal.__file__).parent
STATE = {"sizes", "ran_on", "unplaced", "hopeless", "ready"}
"""What the simulated cloud notes for itself. Nobody chooses it."""


def stored_names() -> Iterator[tuple[str, str, bool]]:
    """Each name that some module gets from a store or puts into it, the method, and whether it gives a default."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = ast.unparse(node.func.value)
            method, is_store = node.func.attr, "store" in owner.lower() or owner == "self"
            if method in ("get", "put", "switch") and is_store and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, method, len(node.args) > 1


def test_every_switch_has_a_default_and_a_reason() -> None:
    """One that is read with a default of its own could be kinder than the table says."""
    found = {name for name, _, _ in stored_names()}
    assert found >= SWITCHES.keys()
    assert found - SWITCHES.keys() <= STATE
    for name, method, _ in stored_names():
        assert method != "get" or name not in SWITCHES, name
    for name, (_, reason) in SWITCHES.items():
        assert len(reason) > 30, name
    documented = inspect.getdoc(Store.put) or ""
    assert all(f"``{name}``" in documented for name in STATE)


def test_the_defaults_are_those_that_fail() -> None:
    """A new switch is added here, with the behaviour that its default has."""
    assert {name: default for name, (default, _) in SWITCHES.items()} == {
        "networks_by_ip_only": None,  # by machine: those with RDMA, of which it is known
        "scale_down_seconds": 600.0,
        "stock": {},
        "metrics": {},
    }


DEFINITIONS = {row["definition"]: row for row in rows("gke_definitions.csv")}


def definitions() -> dict[str, Any]:
    """The kinds that the simulated GKE installs, by name: the schema of their newest version."""
    found: dict[str, Any] = {}
    for path in (Path(addons.__file__).with_name(n) for n in ("addons.yaml", "gateways.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest["kind"] == "CustomResourceDefinition":
                version = manifest["spec"]["versions"][-1]
                found[manifest["metadata"]["name"]] = version["schema"]["openAPIV3Schema"]
    return found


def test_every_kind_of_the_replica_has_its_release() -> None:
    assert definitions().keys() == DEFINITIONS.keys()
    for row in DEFINITIONS.values():
        assert row["upstream"] and row["release"].startswith("v")
        assert row["basis"] in ("documented", "assumed", "open")


def schema_at(schema: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The schema of a field; None if a kind does not have it."""
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            most = schema.get("maxItems")
            if part != "[]" and most is not None and most <= int(part.strip("[]")):
                return None
            schema = schema["items"]
        elif part in schema.get("properties", {}):
            schema = schema["properties"][part]
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            return schema
        else:
            return None
    return schema


@pytest.mark.parametrize("name", [name for name, fields in LATER_FIELDS.items() if fields])
def test_the_replica_has_no_field_that_an_older_gke_lacks(name: str) -> None:
    for path, release in LATER_FIELDS[name]:
        assert schema_at(definitions()[name], path) is None, (path, release)


def unknown(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields of an object that a schema does not have."""
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for item in value:
            yield from unknown(item, schema.get("items", {}), f"{path}[]")
    elif isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            if key in schema["properties"]:
                yield from unknown(inner, schema["properties"][key], f"{path}.{key}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{key}"


def objects_in(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, list):
        for each in tree:
            yield from objects_in(each)
    elif isinstance(tree, dict):
        if {"apiVersion", "kind", "metadata", "spec"} <= tree.keys():
            yield tree
        for each in tree.values():
            yield from objects_in(each)


def test_no_component_sends_a_field_that_the_oldest_gke_refuses() -> None:
    """Server-side apply refuses a field that the schema does not have."""
    schemas, seen = definitions(), set[str]()
    for path in GOLDEN.rglob("*.yaml"):
        for manifest in objects_in([*yaml.safe_load_all(path.read_text())]):
            group = manifest["apiVersion"].partition("/")[0]
            name = f"{plural(manifest['kind'])}.{group}"
            if name in schemas:
                seen.add(name)
                assert not [*unknown({"spec": manifest["spec"]}, schemas[name])], path
                assert not [*later_fields(of_program(manifest))], path
    assert {"inferencepools.inference.networking.k8s.io", "networks.networking.gke.io"} <= seen


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"appProtocol": "http"}, ["spec.appProtocol"]),
        ({"appProtocol": UNKNOWN}, ["spec.appProtocol"]),
        ({"targetPorts": [{"number": 1}, {"number": 2}]}, ["spec.targetPorts[1]"]),
        ({"targetPorts": [{"number": 1}]}, []),
    ],
)
def test_a_field_that_an_older_gke_lacks_is_warned_about(
    spec: dict[str, Any], fields: list[str]
) -> None:
    kind = {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool"}
    manifest: Any = kind | {"metadata": {"name": "p", "namespace": "ml"}, "spec": spec}
    found = [*later_fields(of_program(manifest))]
    assert [each.path for each in found] == fields
    assert not any(finding.is_error for finding in found)
    name = {"name": "inferencepools.inference.networking.k8s.io"}
    own = {"apiVersion": "v1", "kind": "CustomResourceDefinition", "metadata": name}
    assert not [*later_fields(of_program(manifest, own))]
