"""A cluster of one's own: the replica has copies of its nodes, from what ``kubectl get nodes -o yaml`` printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rehearsal.access import Access
from rehearsal.api import Api, ApiError
from rehearsal.gke.addons import Addons
from rehearsal.gke.nodes import KWOK_NODE
from rehearsal.layout import Rehearsal
from rehearsal.progress import RehearsalError, step

PASSING = "node.kubernetes.io/"
"""Prefix of the taints that come and go with a node's health."""


def copy(rehearsal: Rehearsal, file: Path) -> None:
    """Put copies of the nodes in a file into the replica; those that are there already take what the file says.

    The cluster has what every GKE cluster has.

    Raises:
        RehearsalError: the file cannot be read, or holds no node.
    """
    nodes = list(read(file))
    api = Api(Access(rehearsal.kubeconfig))
    Addons(api).reconcile()
    with step(f"copying {len(nodes)} nodes of {file.name}"):
        for node in nodes:
            try:
                api.create("/api/v1/nodes", node)
            except ApiError as error:
                if error.status != 409:
                    raise RehearsalError(f"{file}: node {node['metadata']['name']}: {error}") from None
                path = f"/api/v1/nodes/{node['metadata']['name']}"
                api.patch(path, {part: node[part] for part in ("metadata", "spec")})
                api.patch(f"{path}/status", {"status": node["status"]})


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The nodes in a file, without what belongs to the machine behind each."""
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise RehearsalError(f"the nodes in {file} cannot be read: {error}") from None
    found = [item for document in documents if document for item in document.get("items", [document])]
    nodes = [item for item in found if item.get("kind") == "Node"]
    if not nodes:
        raise RehearsalError(f"there is no Node in {file}. Write one: kubectl get nodes -o yaml > {file}")
    yield from map(_replica, nodes)


def _replica(node: dict[str, Any]) -> dict[str, Any]:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    lasting = [taint for taint in spec.get("taints") or [] if not taint["key"].startswith(PASSING)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}, "annotations": KWOK_NODE},
        "spec": {"taints": lasting, "unschedulable": spec.get("unschedulable", False)},
        "status": {"capacity": status.get("capacity") or allocatable, "allocatable": allocatable},
    }
