"""What the simulated Google Cloud knows, as JSON files: one per cluster, node pool and recorded resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ml_foundations.catalog.pools import PoolGpu, PoolTraits
from ml_foundations.rehearsal.files import read_json, write_json
from ml_foundations.rehearsal.layout import Rehearsal

_DEFAULT_ZONES = ("us-central1-a",)
SCALE_DOWN_SECONDS = 600.0
"""How long a node must be idle before it goes, as GKE's autoscaler has it."""


@dataclass(frozen=True, kw_only=True)
class Pool(PoolTraits):
    """A node pool as it was declared. Numbers of nodes are those of the whole pool, over all its zones."""

    cluster: str
    min_nodes: int = 0
    max_nodes: int = 0
    initial_nodes: int = 0
    autoscaled: bool = True
    max_nodes_per_zone: int | None = None
    project: str = ""
    zones: tuple[str, ...] = ()
    location_policy: str = "BALANCED"
    boot_disk_gib: int = 100
    ephemeral_local_ssds: int = 0
    resource: Mapping[str, Any] = field(default_factory=dict)
    """The Pulumi resource that declares the pool: type, id, urn, inputs and outputs."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Pool:
        """The pool that a JSON object describes; a field that is not there has its default."""
        gpu = data.get("gpu")
        return cls(
            **{
                **data,
                "zones": tuple(data.get("zones") or _DEFAULT_ZONES),
                "taints": tuple(data.get("taints") or ()),
                "gpu": PoolGpu(**gpu) if gpu else None,
            }
        )


class Store:
    """The files of one rehearsal's simulated Google Cloud."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.root = rehearsal.gke_dir

    def pools(self) -> dict[str, Pool]:
        """The declared node pools by name."""
        return {pool.name: pool for pool in map(Pool.of, self._all("node_pools"))}

    def save_pool(self, pool: Pool) -> None:
        """Declare a node pool, or change it."""
        write_json(self._file("node_pools", pool.name), asdict(pool))

    def delete_pool(self, name: str) -> None:
        """Take a node pool back; its nodes are drained and removed."""
        self._file("node_pools", name).unlink(missing_ok=True)

    def clusters(self) -> dict[str, dict[str, Any]]:
        """The declared clusters by name: the Pulumi resource of each, as type, id, urn, inputs and outputs."""
        return {cluster["name"]: cluster for cluster in self._all("clusters")}

    def save_cluster(self, name: str, resource: Mapping[str, Any]) -> None:
        """Declare a cluster."""
        write_json(self._file("clusters", name), {"name": name, **resource})

    def delete_cluster(self, name: str) -> None:
        """Forget a cluster."""
        self._file("clusters", name).unlink(missing_ok=True)

    def recorded(self) -> list[dict[str, Any]]:
        """The resources that were only recorded."""
        return self._all("recorded")

    def save_recorded(self, key: str, resource: Mapping[str, Any]) -> None:
        """Record a resource under a key that is its own."""
        write_json(self._file("recorded", key), resource)

    def delete_recorded(self, key: str) -> None:
        """Forget a recorded resource."""
        self._file("recorded", key).unlink(missing_ok=True)

    def resources(self) -> list[Mapping[str, Any]]:
        """Every resource of the simulated Google Cloud: type, id, urn, inputs and outputs."""
        pools = (pool.resource for pool in self.pools().values())
        return [*self.clusters().values(), *filter(None, pools), *self.recorded()]

    def sizes(self) -> dict[str, int]:
        """The number of nodes that each pool is meant to have now, kept by the supervisor."""
        return read_json(self.root / "sizes.json", {})

    def save_sizes(self, sizes: Mapping[str, int]) -> None:
        """Keep the numbers of nodes that the pools are meant to have."""
        write_json(self.root / "sizes.json", sizes)

    def history(self) -> list[dict[str, Any]]:
        """Where finished pods ran."""
        return read_json(self.root / "history.json", [])

    def save_history(self, entries: list[dict[str, Any]]) -> None:
        """Keep where finished pods ran."""
        write_json(self.root / "history.json", entries)

    def _file(self, folder: str, key: str) -> Path:
        return self.root / folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', key)}.json"

    def _all(self, folder: str) -> list[dict[str, Any]]:
        read = (read_json(path, None) for path in sorted((self.root / folder).glob("*.json")))
        return [data for data in read if data is not None]


def settings_file(root: Path) -> Path:
    """What the supervised process reads while it runs, such as how long a node may idle."""
    return root / "settings.json"
