"""Teams with data: their namespaces and volumes stay until somebody removes them on purpose."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT
from tests.support.cluster import Cluster
from tests.support.project import Project
from tests.support.waiting import until

CLASS = """
k8s.storage.v1.StorageClass("class", metadata={"name": "nfs"}, provisioner="cluster.local/nfs",
    volume_binding_mode="WaitForFirstConsumer", opts=here)
"""
TEAM = """
from ml_foundations import TeamNamespace
team = TeamNamespace("vision", {"data": True, "cpu": "8", "memory": "16Gi", "gpus": 0, "storage": "1Ti"}, here)
"""
VOLUMES = """
from ml_foundations import Volume
Volume("photos", {"namespace": "vision", "size": "100Gi", "storage_class": "nfs"}, here)
Volume("raw", {"namespace": "vision", "bucket": "raw-photos"}, here)
"""


DATA = {"vision", "photos", "raw"}
"""The names of the team's objects that hold its data."""


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, tools: Tools) -> Iterator[Project]:
    project = Project(tmp_path, cluster, tools)
    yield project
    project.clear()
    project.kubectl("delete", "namespace", "vision")
    until(lambda: project.kubectl("get", "namespace", "vision") is None)
    project.kubectl("delete", "persistentvolume", "vision-raw")


def objects(project: Project) -> dict[str, str]:
    """The identities of the team's objects that are not about to go."""
    found = [project.kubectl("get", "namespace", "vision")]
    for kind in ("resourcequotas", "persistentvolumeclaims", "networkpolicies"):
        found += project.kubectl("get", kind, "-n", "vision")["items"]
    metadata = [each["metadata"] for each in found]
    return {each["uid"]: each["name"] for each in metadata if "deletionTimestamp" not in each}


@pytest.mark.parametrize("rest", [VOLUMES, ""])
def test_a_team_with_data_does_not_leave_with_its_lines(project: Project, rest: str) -> None:
    """Pulumi's preview refuses it; an update without a preview deletes what is not protected, and keeps the data."""
    project.up(CLASS + TEAM + VOLUMES)
    before = objects(project)
    assert set(before.values()) >= DATA
    project.program(CLASS + rest)
    refused = project.pulumi("up", "--yes", "--stack", "t")
    assert refused.returncode != 0
    assert "protected" in refused.stdout + refused.stderr
    assert objects(project) == before
    assert "protected" in project.fails(CLASS + rest)
    left = objects(project)
    assert set(left.values()) >= DATA
    assert left.items() <= before.items()


def commands() -> list[str]:
    """The commands of the page that remove a team."""
    page = (CHECKOUT / "docs" / "storage.md").read_text()
    (block,) = re.findall(r"### Remove a team with its data\n.*?```sh\n(.*?)```", page, re.DOTALL)
    return [
        line.partition(" #")[0].strip() for line in block.splitlines() if not line.startswith("#")
    ]


def test_the_commands_of_the_page_remove_a_team(project: Project) -> None:
    """A person answers the questions of `pulumi state`."""
    project.up(CLASS + TEAM + VOLUMES)
    shell = project.environment | {
        "KUBECONFIG": str(project.cluster.kubeconfig),
        "PULUMI_SKIP_CONFIRMATIONS": "true",
    }
    shell["PATH"] = f"{project.rehearsal.bin_dir}{os.pathsep}{shell['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            command,
            cwd=project.root,
            env=shell,
            shell=True,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, command + done.stdout + done.stderr
        return done.stdout

    run("pulumi stack select t")
    listing, unprotect, up, delete = commands()
    for urn in re.findall(r"urn:\S+", run(listing)):
        run(unprotect.replace("<urn>", urn))
    assert up == "pulumi up"
    project.up(CLASS)
    assert set(objects(project).values()) >= DATA, "to keep the data, leave the last command out"
    run(delete)
    until(lambda: project.kubectl("get", "namespace", "vision") is None)
