"""``plan --diff``, ``--without`` and ``--format markdown``: what fares worse, at what cost, and the comment that tells."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.__main__ import main

from tests.factories import (
    Manifest,
    container,
    deployment,
    in_namespace,
    node,
    pool,
    quota,
    template,
)
from tests.factories import pod as pod_of

PRICED = {
    "node.kubernetes.io/instance-type": "a3-highgpu-8g",
    "topology.kubernetes.io/region": "us-central1",
}


def gpu_pool(name: str, most: int) -> Manifest:
    found = pool(name, most, PRICED, gpu="8")
    found["metadata"]["annotations"]["ml-foundations/usd-per-hour"] = "80"
    return found


def gpu_template(gpus: int) -> Manifest:
    return template(containers=[container(gpu=gpus)])


def pod_on(node_name: str, name: str, owner: str = "", cpu: str = "4") -> Manifest:
    owners = (
        [{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "u"}] if owner else []
    )
    pods = template(containers=[container(cpu=cpu)], nodeName=node_name)
    pods["metadata"] = {"uid": f"uid-{name}", "ownerReferences": owners}
    return pod_of(name, pods, status={"phase": "Running"})


class Folder:
    """A folder of manifests, and the exit codes and output of ``plan`` about them."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys

    def write(self, name: str, *documents: Any) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump_all(documents))
        return path

    def plan(self, *arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    return Folder(tmp_path, capsys)


def test_two_folders_are_compared(folder: Folder) -> None:
    shared = folder.write("cluster.yaml", gpu_pool("h100", 2))
    folder.write("old/a/web.yaml", deployment("web", 2, gpu_template(4)))
    folder.write("new/web.yaml", deployment("web", 6, gpu_template(4)))
    for name in ("old/same.yml", "new/same.yml"):
        folder.write(name, deployment("same", 1, template()))
    old, new = folder.root / "old", folder.root / "new"
    code, text = folder.plan("--diff", old, new, shared)
    assert code == 1
    first, change, reason, *costs = text.splitlines()
    assert first == f"From {old} to {new}: 1 of 2 workloads fares worse."
    assert change == "Deployment team/web: fits with 8 GPUs, then cannot fit with 24 GPUs"
    assert "room for 4 of the 6 pods" in reason
    assert costs == [
        "Cost of GPUs of team team per hour in USD: 80.00 (8 GPUs), then 240.00 (24 GPUs)."
    ]
    assert folder.plan("--diff", new, old, shared)[0] == 0


def test_a_comparison_is_data_too(folder: Folder) -> None:
    web = deployment("web", 2, gpu_template(4))
    old = folder.write("old.yaml", gpu_pool("h100", 2))
    new = folder.write("new.yaml", web, gpu_pool("h100", 3))
    code, text = folder.plan("--diff", old, new, "--json")
    found = json.loads(text)
    assert (code, found["worse"]) == (0, False)
    assert found["changes"] == [
        {"name": "Deployment team/web", "worse": False, "before": None, "after": "fits"}
    ]
    before, after = found["before"]["cost"], found["after"]["cost"]
    assert (before["per_hour_min"], before["per_hour_max"]) == (0.0, 160.0)
    assert after["pools"]["h100"] == {"per_hour_min": 0.0, "per_hour_max": 240.0}
    assert (before["teams"], after["teams"]["team"]["per_hour"]) == ({}, 80.0)


def test_a_new_workload_that_does_not_fit_is_worse(folder: Folder) -> None:
    both = folder.write("both.yaml", pool("p", 1), deployment("stuck", 5, template()))
    empty = folder.write("empty.yaml")
    new = folder.write("new.yaml", deployment("more", 9, template()))
    assert folder.plan("--diff", empty, new, both)[0] == 1
    same = (0, f"From {empty} to {empty}: nothing fares worse.\n")
    assert folder.plan("--diff", empty, empty, both) == same


def test_without_a_node_its_pods_need_another_place(folder: Folder) -> None:
    cluster = folder.write(
        "cluster.yaml",
        *map(node, "abc"),
        pod_on("a", "big", "ReplicaSet"),
        pod_on("a", "small", cpu="1"),
        pod_on("a", "agent", "DaemonSet"),
        pod_on("b", "stays", "ReplicaSet", "2"),
        pod_on("c", "other", "ReplicaSet", "2"),
    )
    code, text = folder.plan(cluster, "--without", "a")
    assert code == 1
    first, second, *lines = text.splitlines()
    assert first == "Without a: 1 of 2 workloads fares worse."
    assert second == "Pod team/big: runs, then cannot fit"
    assert "Pod team/small: runs, then fits" in lines
    assert "Pods that ran there: team/big, team/small." in lines
    assert "Nothing makes these pods anew: team/small." in lines
    assert "agent" not in text
    assert folder.plan(cluster, "--without", "b")[0] == 0
    assert folder.plan(cluster, "--without", "b,c")[0] == 1
    more = folder.write("d.yaml", node("d"), node("e"))
    assert folder.plan(cluster, more, "--without", "a")[0] == 0


def test_pods_that_find_no_place_together_are_named(folder: Folder) -> None:
    pods = [pod_on(name, f"on-{name}", "ReplicaSet") for name in ("a", "b")]
    cluster = folder.write("c.yaml", *map(node, "abc"), *pods)
    code, text = folder.plan(cluster, "--without", "a,b")
    assert code == 1
    alone = "alone, each fares as before, and all together cannot fit"
    assert text.startswith(f"Without a, b: {alone}.\n")
    assert "Pod team/on-a" in text
    assert "Pod team/on-b" in text


def test_without_a_pool(folder: Folder) -> None:
    nodes = [node(name, {"cloud.google.com/gke-nodepool": "h100"}) for name in "ab"]
    cluster = folder.write("c.yaml", *nodes, pool("p", 1), deployment("web", 9, template()))
    code, text = folder.plan(cluster, "--without", "pool:h100")
    assert code == 1
    assert "Raise" not in text and "[nodes]" in text
    worse = "1 of 1 workload fares worse.\n"
    assert text.startswith(f"Without a, b: {worse}")
    assert folder.plan(cluster, "--without", "pool:p")[1].startswith(f"Without p: {worse}")


def test_a_node_that_is_not_there_is_refused(folder: Folder) -> None:
    cluster = folder.write("c.yaml", node("gpu-a"), deployment("web", 1, template()))
    code, text = folder.plan(cluster, "--without", "gpu-b,gpu-a")
    assert code == 2
    assert text == "error: there is no node 'gpu-b'. Did you mean gpu-a or pool:gpu-a?\n"
    assert folder.plan(cluster, "--without", "") == (2, "error: there is no node ''.\n")
    missing = "error: no node has the label cloud.google.com/gke-nodepool=h100, by which pool:h100"
    assert folder.plan(cluster, "--without", "pool:h100")[1].startswith(missing)


@pytest.mark.parametrize(
    ("hard", "status", "is_told"),
    [
        ("1G", {}, False),
        ("7", {"hard": {"pods": "7"}}, False),
        ("7", {"hard": {"pods": "7"}, "used": {"pods": "1"}}, True),
    ],
)
def test_a_quota_that_limits_nothing_is_not_told(
    hard: str, status: Manifest, is_told: bool, folder: Folder
) -> None:
    own = quota("gcp-critical-pods", {"pods": hard}) | {"status": status}
    file = folder.write("c.yaml", in_namespace("kube-system", own))
    text = folder.plan(file)[1]
    assert ("leaves pods 6 of 7." in text) is ("Quota" in text) is is_told


def test_a_comment_answers_first_and_folds_the_rest(folder: Folder) -> None:
    old = folder.write("old.yaml", gpu_pool("h100", 2))
    new = folder.write("new.yaml", gpu_pool("h100", 1), deployment("web", 6, gpu_template(4)))
    _, text = folder.plan("--diff", old, new, "--format", "markdown")
    lines = text.splitlines()
    assert lines[0] == "<!-- ml-foundations plan -->"
    assert lines[2].startswith("**❌ From ")
    assert "| the stack | 0.00 to 160.00 | 0.00 to 80.00 |" in lines
    assert "| GPUs of team team | none | 240.00 (24 GPUs) |" in lines
    assert "<details><summary>1 changed workload</summary>" in lines
    assert text.count("<details>") == text.count("</details>") == 1


def test_a_comment_of_a_plan(folder: Folder) -> None:
    file = folder.write("a.yaml", pool("p", 1), deployment("web", 1, template()))
    code, text = folder.plan(file, "--format", "markdown")
    assert code == 0
    assert text.splitlines()[2] == "**✅ The stack fits.**"
    assert "| Deployment team/web | ✅ fits |  |  |" in text


def test_text_from_manifests_is_no_mark_up_in_a_comment(folder: Folder) -> None:
    pods = template(nodeSelector={"key": "<img src=x>|@everyone `x` [a](b)"})
    many = [deployment(f"web-{index}", 9, pods) for index in range(60)]
    file = folder.write("a.yaml", pool("p", 1), *many)
    _, text = folder.plan(file, "--format", "markdown")
    for mark_up in ("<img", "@everyone", "`"):
        assert mark_up not in text
    assert "<summary>60 workloads, of which 50 are shown</summary>" in text
    assert len(text) < 65_536
