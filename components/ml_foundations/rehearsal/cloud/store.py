"""The state of the simulated Google Cloud: a JSON file per cluster, pool and recorded resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ml_foundations.catalog.pools import PoolGpu, PoolTraits
from ml_foundations.rehearsal.files import locked, read_json, stamp, write_json
from ml_foundations.rehearsal.layout import Rehearsal

_DEFAULT_ZONES = ("us-central1-a",)
SCALE_DOWN_SECONDS = 600.0
"""How long a node must be idle before it is removed, as in GKE's autoscaler."""


@dataclass(frozen=True, kw_only=True)
class Pool(PoolTraits):
    """A declared node pool. Numbers of nodes are those of the pool over all its zones."""

    cluster: str
    cluster_id: str = ""
    min_nodes: int = 0
    max_nodes: int = 0
    initial_nodes: int = 0
    autoscaled: bool = True
    max_nodes_per_zone: int | None = None
    project: str = ""
    zones: tuple[str, ...] = ()
    location_policy: str = "BALANCED"
    networks: tuple[str, ...] = ()
    """What its nodes advertise for the networks that are ready now. It is not saved."""
    priority: int = 0
    """Its place among the pools of its ComputeClass: the autoscaler tries them in this order."""
    grows: bool = True
    """Whether its ComputeClass lets it grow, if it has one."""
    is_sold_out: bool = False
    """Whether a stockout leaves it fewer nodes than it may have."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """The Pulumi resource that declares the pool: type, id, urn, inputs and outputs."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Pool:
        """Return the pool of a JSON object. A missing field has its default."""
        gpu = PoolGpu(**data["gpu"]) if data.get("gpu") else None
        zones = tuple(data.get("zones") or _DEFAULT_ZONES)
        parts = {"zones": zones, "taints": tuple(data.get("taints") or ()), "gpu": gpu}
        parts["networks"] = ()
        return cls(**{**data, **parts})


SWITCHES: dict[str, tuple[Any, str]] = {
    "networks_by_ip_only": (
        None,
        "Whether nodes advertise a network by NAME.IP alone; null: those with RDMA, as llm-d has"
        " seen them (guides/wide-ep-lws). Google's manifests for others need both names.",
    ),
    "scale_down_seconds": (SCALE_DOWN_SECONDS, "How long a node may idle, as on GKE."),
    "stock": ({}, "By pool, the nodes to which it may grow; no source has a number."),
    "metrics": ({}, "By metric, the value that autoscalers read. They read no other, and stay."),
}
"""What a user or a test may change, by the name in the store: the default and its reason.

Of two documented behaviours, the default is the one that fails.
"""
ASSUMED = Pool(
    name="assumed",
    cluster="",
    machine_type="e2-standard-4",
    min_nodes=3,
    max_nodes=3,
    initial_nodes=3,
    autoscaled=False,
    zones=_DEFAULT_ZONES,
)
"""The nodes of a program without node pools, if none are imported: its cluster exists already."""


class Store:
    """The files of one replica's simulated Google Cloud."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.root = rehearsal.gke_dir

    def claimed(self) -> AbstractContextManager[None]:
        """Exclude all other processes and threads, so that two never create the same resource."""
        return locked(self.root, "claims")

    def pools(self) -> dict[str, Pool]:
        """Return the declared node pools by name."""
        return {pool.name: pool for pool in map(Pool.of, self._all("node_pools"))}

    def available(self, pool: Pool, existing: int = 0) -> Pool:
        """Return a pool with no more nodes than a stockout leaves. The existing ones stay."""
        stock: dict[str, int] = self.switch("stock")
        most = max(existing, stock.get(pool.name, pool.max_nodes))
        is_sold_out = most < pool.max_nodes
        return replace(pool, max_nodes=most, is_sold_out=True) if is_sold_out else pool

    def save_pool(self, pool: Pool) -> None:
        """Declare a node pool, or change it."""
        self.save("node_pools", pool.name, asdict(pool))

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Return the declared clusters by id: each a Pulumi resource, as ``Pool.resource`` is."""
        return {cluster["id"]: cluster for cluster in self._all("clusters")}

    def version(self) -> list[list[int]]:
        """Return a value that changes with each change of a node pool or cluster."""
        folders = (self.root / "node_pools", self.root / "clusters")
        return [stamp(folder) for folder in folders if folder.exists()]

    def recorded(self) -> list[dict[str, Any]]:
        """Return the resources that were only recorded."""
        return self._all("recorded")

    def made(self) -> list[dict[str, Any]]:
        """Return what GKE's controllers made in the project: names, and the network ``in``."""
        return self._all("made")

    def save(self, folder: str, key: str, resource: Mapping[str, Any]) -> None:
        """Save a resource in ``node_pools``, ``clusters``, ``recorded`` or ``made`` under a key."""
        write_json(self._file(folder, key), resource)

    def delete(self, folder: str, key: str) -> None:
        """Delete one of these. The nodes of a deleted pool are drained and removed."""
        self._file(folder, key).unlink(missing_ok=True)

    def resources(self) -> list[Mapping[str, Any]]:
        """Return every resource of the simulated Google Cloud, as ``Pool.resource`` is."""
        pools = (pool.resource for pool in self.pools().values())
        return [*self.clusters().values(), *filter(None, pools), *self.recorded()]

    def get(self, name: str, default: Any) -> Any:
        """Return the value that was put under a name, or the default."""
        return read_json(self.root / f"{name}.json", default)

    def switch(self, name: str) -> Any:
        """Return the value of a switch, or its default."""
        return self.get(name, SWITCHES[name][0])

    def put(self, name: str, data: Any) -> None:
        """Replace the value of a switch, or of the state under a name.

        ``sizes``: the number of nodes that each pool should have now; ``ran_on``: by uid of a Job,
        the nodes where its pods ended; ``unplaced``: by uid of a pod, why no pool gets a node for
        it; ``hopeless``: the pods that can never have a node, and when the round began that found
        this; ``ready``: by pool, the number of its nodes that are ready.
        """
        write_json(self.root / f"{name}.json", data)

    def _file(self, folder: str, key: str) -> Path:
        return self.root / folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', key)}.json"

    def _all(self, folder: str) -> list[dict[str, Any]]:
        paths = sorted((self.root / folder).glob("*.json"))
        # Another process may delete a file after it was listed.
        return list(filter(None, [read_json(path, None) for path in paths]))
