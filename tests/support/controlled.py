"""A cluster for one controller, whose live objects are those of a test."""

from typing import Any
from unittest.mock import Mock

from ml_foundations.rehearsal.cloud.cluster import Cluster

Object = dict[str, Any]


def cluster_of(api: Any, *, live: dict[str, list[Object]] | None = None, **known: Any) -> Cluster:
    """Return a cluster with the objects of some collections, and what its controllers know of it."""
    cluster = Mock(spec=Cluster, api=api, pods=[], pools={}, properties={}, has_dra=True)
    cluster.missing_drivers = set()
    cluster.project = Mock(recorded=list)
    cluster.watch = lambda path, *_, **__: Mock(items=lambda: (live or {}).get(path, []))
    cluster.nodes = cluster.watch("/api/v1/nodes")
    cluster.nodes_by_pool.return_value = known.pop("by_pool", {})
    cluster.configure_mock(**known)
    return cluster
