"""A rehearsal of a day without machines: `up --stockout` with a ComputeClass, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from ml_foundations import (
    ComputeClass, CpuNodePool, GkeCluster, GpuNodePool, Proof, TeamNamespace, TrainingJob
)

with Proof():
    cluster = GkeCluster("ml", location="us-central1", deletion_protection=False)
    CpuNodePool("system", cluster=cluster, machine_type="n2-standard-8", min_nodes=1, max_nodes=2)
    h100 = {"cluster": cluster, "machine_type": "a3-highgpu-8g", "zones": ["us-central1-a"]}
    h100 |= {"max_nodes": 2, "compute_class": "h100"}
    reserved = GpuNodePool("reserved", reservation="h100-2026", **h100)
    flex = GpuNodePool("flex", flex_start=True, **h100)
    spot = GpuNodePool("spot", spot=True, **h100)
    ways = ComputeClass("h100", cluster=cluster, pools=[reserved, flex, spot])
    team = TeamNamespace("nlp", cluster=cluster, gpus=8, cpu="90", memory="900Gi", storage="1Ti")
    TrainingJob(
        "finetune", team=team, image="i", gpus=8, cpu="90", memory="800Gi", grace_seconds=15,
        compute_class=ways.compute_class,
    )
"""


def rehearse(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ml_foundations.rehearsal", *words, "--project", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.usefixtures("tools")
def test_each_workload_ends_where_machines_are(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: ways\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {gcp:project: acme-ml}\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    try:
        done = rehearse(tmp_path, "up", "--stockout", "reserved,flex", "--stockout", "flx")
        assert done.returncode == 0, done.stdout + done.stderr
        assert 'there is no node pool "flx". Did you mean flex?' in done.stderr
        assert "Ways to buy" in done.stdout
        report = json.loads(rehearse(tmp_path, "report", "--json").stdout)
    finally:
        rehearse(tmp_path, "down")
    assert {row["name"] for row in report["pools"] if row["gpus"]} == {"spot"}
    [bought] = report["purchases"]
    expected = {"workload": "Job finetune", "pools": {"spot": 1}, "first": "reserved"}
    assert expected.items() <= bought.items()
    assert 0 < bought["per_hour"] < bought["first_per_hour"]
    assert "pod_spec" not in report["workloads"][0]
