"""What the stock pulumi_gcp SDK says about resource types: their inputs and outputs.

It is read, not imported: an import takes seconds, and a type's own file says all that is asked here.
"""

from __future__ import annotations

import ast
import importlib.util
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any


class UnknownTypeError(Exception):
    """A resource type that the installed pulumi_gcp does not have."""


_PARSER = threading.Lock()
"""Python 3.11 cannot parse in two threads at once (python/cpython#106905)."""


@cache
def _class(token: str) -> ast.ClassDef:
    """The class of ``gcp:container/nodePool:NodePool``: that name in container/node_pool.py."""
    _, module, name = token.split(":")
    folder, _, file = module.lower().partition("/")
    sdk = importlib.util.find_spec("pulumi_gcp")
    root = Path(sdk.origin).parent if sdk and sdk.origin else Path()
    for path in (root / folder).glob("*.py"):
        if path.stem.replace("_", "") == file:
            with _PARSER:
                body = ast.parse(path.read_text()).body
            for node in body:
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return node
    raise UnknownTypeError(f"{token} is not a resource type of the installed pulumi_gcp")


@cache
def _properties(token: str) -> Mapping[str, str]:
    """The outputs of a type: their names in Python and on the wire."""
    return dict(_getters(_class(token)))


def _getters(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The methods under ``@pulumi.getter``, which names what is called otherwise on the wire."""
    for method in _methods(node):
        for decorator in method.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if ast.unparse(call.func if call else decorator) == "pulumi.getter":
                named = [ast.literal_eval(word.value) for word in call.keywords if word.arg == "name"] if call else []
                yield method.name, named[0] if named else method.name


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    return (item for item in node.body if isinstance(item, ast.FunctionDef))


@cache
def outputs(token: str) -> frozenset[str]:
    """The names of all outputs of a type."""
    return frozenset(_properties(token).values())


@cache
def inputs(token: str) -> frozenset[str]:
    """The names of all inputs of a type."""
    (init,) = (method.args for method in _methods(_class(token)) if method.name == "_internal_init")
    accepted = {argument.arg for argument in (*init.args, *init.kwonlyargs)}
    return frozenset(wire for name, wire in _properties(token).items() if name in accepted)


def unmodelled(token: str, state: Mapping[str, Any]) -> set[str]:
    """The outputs of a type that only Google computes and that a state lacks: a program would read None.

    Args:
        token: The type, such as ``gcp:container/cluster:Cluster``.
        state: The outputs that the plugin gave.
    """
    return set(outputs(token) - inputs(token) - state.keys())


def unmodelled_outputs(resources: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """By URN, the outputs that the plugin did not model, of the gcp resources of an exported stack.

    Args:
        resources: ``deployment.resources`` of ``pulumi stack export``.
    """
    return {
        resource["urn"]: missing
        for resource in resources
        if resource["type"].startswith("gcp:") and resource.get("custom")
        for missing in [unmodelled(resource["type"], resource.get("outputs") or {})]
        if missing
    }
