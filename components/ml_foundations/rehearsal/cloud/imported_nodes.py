"""Copies of the nodes of the user's cluster, from the output of ``kubectl get nodes -o yaml``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes import objects, regular_files
from ml_foundations.kubernetes.objects import annotations_of, items, labels_of, name_of, section
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.input.streams import parse
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import NODES, Api, ApiError, by_name, pod_path
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.cloud.nodes import KWOK_NODE
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, Step

_IMPORTED = {"ml-foundations/brought": "true"}
"""The annotation of a copy. A copy that is not in the file any more is removed."""

_PASSING = "node.kubernetes.io/"
"""The prefix of the taints that the node controller adds and removes."""


def copy(rehearsal: Rehearsal, file: Path) -> None:
    """Copy the nodes of a file, and GKE's add-ons, into the replica; remove an earlier file's."""
    nodes = by_name(read(file))
    api = Api(Access(rehearsal.kubeconfig))
    Addons(api).reconcile()
    with Step(f"copying {number(len(nodes), 'node')} of {file.name}"):
        existing = by_name(api.get(NODES)["items"])
        for name in existing.keys() - nodes.keys():
            if _IMPORTED.items() <= annotations_of(existing[name]).items():
                remove(api, name)
        for name, node in nodes.items():
            try:
                if name not in existing:
                    api.create(NODES, node)
                    continue
                # The conditions stay, which kwok reports.
                spec = existing[name]["spec"] | node["spec"]
                status = existing[name]["status"] | node["status"]
                api.request("PUT", f"{NODES}/{name}", body=node | {"spec": spec})
                api.request("PUT", f"{NODES}/{name}/status", body=node | {"status": status})
            except ApiError as error:
                raise RehearsalError(f"{file}: node {name}: {error}") from None


def remove(api: Api, name: str) -> None:
    """Remove a node and its pods, which would otherwise look as if they ran for another minute."""
    api.delete(f"{NODES}/{name}")
    for pod in api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]:
        # Without its node, no kubelet ends the pod gracefully.
        api.delete(f"{pod_path(pod)}?gracePeriodSeconds=0")


def read(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the nodes in a file, without the parts that belong to their machines."""
    try:
        documents = parse(regular_files.read(file))
    except ReadError as error:
        raise RehearsalError(f"the nodes in {file} cannot be read: {error}") from None
    mappings = [item for _, _, item in documents if isinstance(item, dict)]
    nodes = [item for item in mappings if item.get("kind") == "Node"]
    if not nodes:
        fix = f"Write one: kubectl get nodes -o yaml > {file}"
        raise RehearsalError(f"there is no Node in {file}. {fix}")
    for node in nodes:
        spec = section(node, "spec")
        status = section(node, "status")
        allocatable = section(status, "allocatable")
        # kwok sets both of a node without either.
        capacity = section(status, "capacity") or allocatable
        resources = {"capacity": capacity, "allocatable": allocatable} if allocatable else {}
        taints = items(spec, "taints")
        lasting = [taint for taint in taints if not taint["key"].startswith(_PASSING)]
        declared = {"taints": lasting, "unschedulable": spec.get("unschedulable", False)}
        metadata = {"name": name_of(node), "labels": labels_of(node)}
        metadata["annotations"] = KWOK_NODE | _IMPORTED
        yield objects.api_object("v1", "Node", metadata, spec=declared, status=resources)
