"""Copies of the nodes of the user's own cluster, from the output of ``kubectl get nodes -o yaml``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.kubernetes.objects import (
    annotations_of,
    api_object,
    items,
    labels_of,
    name_of,
    section,
)
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.input.streams import parse, problem
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.cloud.nodes import KWOK_NODE
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, Step

_NODES = "/api/v1/nodes"
_BROUGHT = {"ml-foundations/brought": "true"}
"""The annotation of a copy: it goes when the file no longer has it."""

_PASSING = "node.kubernetes.io/"
"""Prefix of the taints that come and go with a node's health."""


def copy(rehearsal: Rehearsal, file: Path) -> None:
    """Copy the nodes of a file into the replica, with what every GKE cluster has; remove those of an earlier file.

    Raises:
        RehearsalError: the file cannot be read, or holds no node.
    """
    nodes = {name_of(node): node for node in read(file)}
    api = Api(Access(rehearsal.kubeconfig))
    Addons(api).reconcile()
    with Step(f"copying {number(len(nodes), 'node')} of {file.name}"):
        there = {name_of(node): node for node in api.get(_NODES)["items"]}
        for name in there.keys() - nodes.keys():
            if _BROUGHT.items() <= annotations_of(there[name]).items():
                remove(api, name)
        for name, node in nodes.items():
            try:
                if name not in there:
                    api.create(_NODES, node)
                    continue
                # As the file has it, but for the conditions that kwok reports.
                for path, part in (
                    (f"{_NODES}/{name}", "spec"),
                    (f"{_NODES}/{name}/status", "status"),
                ):
                    api.request("PUT", path, body=node | {part: there[name][part] | node[part]})
            except ApiError as error:
                raise RehearsalError(f"{file}: node {name}: {error}") from None


def remove(api: Api, name: str) -> None:
    """Remove a node and its pods, which a report would show as running for another minute."""
    api.delete(f"{_NODES}/{name}")
    for pod in api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
        # At once: without its node, nobody is there to end it.
        api.delete(
            f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name_of(pod)}?gracePeriodSeconds=0"
        )


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The nodes in a file, without what belongs to their machines."""
    try:
        found = [item for _, _, item in parse(file.read_text())]
    except (OSError, yaml.YAMLError) as error:
        raise RehearsalError(f"the nodes in {file} cannot be read: {problem(error)}") from None
    nodes = [item for item in found if item.get("kind") == "Node"]
    if not nodes:
        raise RehearsalError(
            f"there is no Node in {file}. Write one: kubectl get nodes -o yaml > {file}"
        )
    yield from map(_replica, nodes)


def _replica(node: dict[str, Any]) -> dict[str, Any]:
    spec, status = section(node, "spec"), section(node, "status")
    allocatable = section(status, "allocatable")
    # Of a node that says neither, kwok fills in both.
    resources = {"capacity": section(status, "capacity") or allocatable, "allocatable": allocatable}
    lasting = [taint for taint in items(spec, "taints") if not taint["key"].startswith(_PASSING)]
    metadata = {
        "name": name_of(node),
        "labels": labels_of(node),
        "annotations": KWOK_NODE | _BROUGHT,
    }
    declared = {"taints": lasting, "unschedulable": spec.get("unschedulable", False)}
    return api_object(
        "v1", "Node", metadata, spec=declared, status=resources if allocatable else {}
    )
