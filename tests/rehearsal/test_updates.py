"""Updates of a cluster in place: the program still reaches it."""

import json
from pathlib import Path

import pytest

from tests.rehearsal.test_any_program import rehearse

PROGRAM = """
import json
import pathlib

import pulumi
import pulumi_kubernetes as k8s
from ml_foundations import CpuNodePool, GkeCluster

given = json.loads(pathlib.Path("cluster.json").read_text())
cluster = GkeCluster("ml", {"project": "acme-research", "location": "us-central1", "deletion_protection": False, **given})
provider = cluster.kubernetes_provider()
k8s.core.v1.ConfigMap("note", metadata={"name": "note"}, opts=pulumi.ResourceOptions(provider=provider))
"""
CHANGES = {
    "node_local_dns": True,
    "stateful_ha": True,
    "filestore": True,
    "gateway_api": True,
    "cost_allocation": False,
    "resource_labels": {"team": "ml"},
    "authorized_networks": {"office": "198.18.1.0/24"},
    "logging": ["SYSTEM_COMPONENTS"],
    "release_channel": "STABLE",
}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("endpoint", ["dns", "public"])
def test_cluster_changes_in_place(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: updates\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    other = "public" if endpoint == "dns" else "dns"
    try:
        for cluster in ({}, CHANGES, {**CHANGES, "endpoint": other}):
            home = {"authorized_networks": {"home": "198.18.0.0/24"}}
            given = json.dumps({"endpoint": endpoint, **home, **cluster})
            (tmp_path / "cluster.json").write_text(given)
            done = rehearse(tmp_path, "up")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "KeyError" not in done.stdout + done.stderr
    finally:
        rehearse(tmp_path, "down")
