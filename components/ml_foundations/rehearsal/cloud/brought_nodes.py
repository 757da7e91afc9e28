"""A cluster of one's own: the replica has copies of its nodes, from what ``kubectl get nodes -o yaml`` printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError, Object
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.cloud.nodes import KWOK_NODE
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, step

_NODES = "/api/v1/nodes"
_BROUGHT = {"ml-foundations/brought": "true"}
"""The annotation of a copy: it goes when the file no longer has it."""

_PASSING = "node.kubernetes.io/"
"""Prefix of the taints that come and go with a node's health."""


def copy(rehearsal: Rehearsal, file: Path) -> None:
    """Put copies of the nodes in a file into the replica: as the file says, and no others that a file brought before.

    The cluster has what every GKE cluster has.

    Raises:
        RehearsalError: the file cannot be read, or holds no node.
    """
    nodes = {node["metadata"]["name"]: node for node in read(file)}
    api = Api(Access(rehearsal.kubeconfig))
    Addons(api).reconcile()
    with step(f"copying {len(nodes)} nodes of {file.name}"):
        there = {node["metadata"]["name"]: node for node in api.get(_NODES)["items"]}
        for name in there.keys() - nodes.keys():
            if _BROUGHT.items() <= there[name]["metadata"].get("annotations", {}).items():
                remove(api, name)
        for name, node in nodes.items():
            try:
                if name in there:
                    _replace(api, node, there[name])
                else:
                    api.create(_NODES, node)
            except ApiError as error:
                raise RehearsalError(f"{file}: node {name}: {error}") from None


def _replace(api: Api, node: Object, there: Object) -> None:
    """Make a node as it is wanted, whatever else it had; how it is doing is kwok's to say."""
    path = f"{_NODES}/{node['metadata']['name']}"
    api.request("PUT", path, body=node | {"spec": there["spec"] | node["spec"]})
    api.request("PUT", f"{path}/status", body=node | {"status": there["status"] | node["status"]})


def remove(api: Api, name: str) -> None:
    """Take a node away, with the pods on it: in a report they would go on running for a minute."""
    api.delete(f"{_NODES}/{name}")
    for pod in api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
        meta = pod["metadata"]
        # At once: without its node, nobody is there to end it.
        api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0")


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
    # Of a node that says neither, kwok fills in both.
    resources = {"capacity": status.get("capacity") or allocatable, "allocatable": allocatable} if allocatable else {}
    lasting = [taint for taint in spec.get("taints") or [] if not taint["key"].startswith(_PASSING)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": metadata["name"],
            "labels": metadata.get("labels") or {},
            "annotations": KWOK_NODE | _BROUGHT,
        },
        "spec": {"taints": lasting, "unschedulable": spec.get("unschedulable", False)},
        "status": resources,
    }
