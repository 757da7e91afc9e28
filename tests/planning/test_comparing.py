"""``plan --diff``, ``--without`` and ``--format markdown``: what fares worse, at what cost, and the comment that tells."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.__main__ import main

from tests.factories import GPU, Manifest, deployment, node, pool, template

PRICED = {
    "node.kubernetes.io/instance-type": "a3-highgpu-8g",
    "topology.kubernetes.io/region": "us-central1",
}


def gpu_pool(name: str, most: int) -> Manifest:
    found = pool(name, most, PRICED)
    found["metadata"]["annotations"]["ml-foundations/usd-per-hour"] = "80"
    found["status"]["allocatable"][GPU] = "8"
    return found


def gpu_template(gpus: int) -> Manifest:
    return template(
        containers=[{"name": "main", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}]
    )


def pod_on(node_name: str, name: str, owner: str = "", cpu: str = "4") -> Manifest:
    owners = (
        [{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "u"}] if owner else []
    )
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": owners}
    spec = {"nodeName": node_name, "containers": containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Running"},
    }


def write(path: Path, *documents: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents))
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_two_folders_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = write(tmp_path / "cluster.yaml", gpu_pool("h100", 2))
    write(tmp_path / "old" / "a" / "web.yaml", deployment("web", 2, gpu_template(4)))
    write(tmp_path / "old" / "same.yml", deployment("same", 1, template()))
    write(tmp_path / "new" / "web.yaml", deployment("web", 6, gpu_template(4)))
    write(tmp_path / "new" / "same.yml", deployment("same", 1, template()))
    code, text = printed(capsys, "--diff", tmp_path / "old", tmp_path / "new", shared)
    assert code == 1
    lines = text.splitlines()
    assert lines[0] == f"From {tmp_path}/old to {tmp_path}/new: 1 of 2 workloads fares worse."
    assert lines[1] == "Deployment team/web: fits with 8 GPUs, then cannot fit with 24 GPUs"
    assert "room for 4 of the 6 pods" in lines[2]
    assert lines[3:] == [
        "Cost of GPUs of team team per hour in USD: 80.00 (8 GPUs), then 240.00 (24 GPUs)."
    ]
    assert printed(capsys, "--diff", tmp_path / "new", tmp_path / "old", shared)[0] == 0


def test_a_comparison_is_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = deployment("web", 2, gpu_template(4))
    old, new = (
        write(tmp_path / "old.yaml", gpu_pool("h100", 2)),
        write(tmp_path / "new.yaml", web, gpu_pool("h100", 3)),
    )
    code, text = printed(capsys, "--diff", old, new, "--json")
    found = json.loads(text)
    assert code == 0
    assert found["worse"] is False
    assert found["changes"] == [
        {"name": "Deployment team/web", "worse": False, "before": None, "after": "fits"}
    ]
    before, after = found["before"]["cost"], found["after"]["cost"]
    assert (before["per_hour_min"], before["per_hour_max"]) == (0.0, 160.0)
    assert after["pools"]["h100"] == {"per_hour_min": 0.0, "per_hour_max": 240.0}
    assert (before["teams"], after["teams"]["team"]["per_hour"]) == ({}, 80.0)


def test_a_new_workload_that_does_not_fit_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = write(tmp_path / "both.yaml", pool("p", 1), deployment("stuck", 5, template()))
    empty, new = (
        write(tmp_path / "empty.yaml"),
        write(tmp_path / "new.yaml", deployment("more", 9, template())),
    )
    assert printed(capsys, "--diff", empty, new, both)[0] == 1
    code, text = printed(capsys, "--diff", empty, empty, both)
    assert (code, text) == (0, f"From {empty} to {empty}: nothing fares worse.\n")


def test_without_a_node_its_pods_need_another_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = write(
        tmp_path / "cluster.yaml",
        *(node(name) for name in ("a", "b", "c")),
        pod_on("a", "big", "ReplicaSet"),
        pod_on("a", "small", cpu="1"),
        pod_on("a", "agent", "DaemonSet"),
        pod_on("b", "stays", "ReplicaSet", "2"),
        pod_on("c", "other", "ReplicaSet", "2"),
    )
    code, text = printed(capsys, cluster, "--without", "a")
    assert code == 1
    lines = text.splitlines()
    assert lines[0] == "Without a: 1 of 2 workloads fares worse."
    assert lines[1] == "Pod team/big: runs, then cannot fit"
    assert "Pod team/small: runs, then fits" in lines
    assert "Pods that ran there: team/big, team/small." in lines
    assert "Nothing makes these pods anew: team/small." in lines
    assert "agent" not in text
    assert printed(capsys, cluster, "--without", "b")[0] == 0
    assert printed(capsys, cluster, "--without", "b,c")[0] == 1
    assert (
        printed(
            capsys, cluster, write(tmp_path / "d.yaml", node("d"), node("e")), "--without", "a"
        )[0]
        == 0
    )


def test_pods_that_find_no_place_together_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [pod_on(name, f"on-{name}", "ReplicaSet") for name in ("a", "b")]
    code, text = printed(
        capsys, write(tmp_path / "c.yaml", *map(node, "abc"), *pods), "--without", "a,b"
    )
    assert code == 1
    assert text.startswith(
        "Without a, b: alone, each fares as before, and all together cannot fit.\n"
    )
    assert "Pod team/on-a" in text
    assert "Pod team/on-b" in text


def test_without_a_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = {"cloud.google.com/gke-nodepool": "h100"}
    cluster = write(
        tmp_path / "c.yaml",
        node("a", mine),
        node("b", mine),
        pool("p", 1),
        deployment("web", 9, template()),
    )
    code, text = printed(capsys, cluster, "--without", "pool:h100")
    assert code == 1
    assert "Raise" not in text and "[nodes]" in text
    assert text.startswith("Without a, b: 1 of 1 workload fares worse.\n")
    assert printed(capsys, cluster, "--without", "pool:p")[1].startswith(
        "Without p: 1 of 1 workload fares worse.\n"
    )


def test_a_node_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = write(tmp_path / "c.yaml", node("gpu-a"), deployment("web", 1, template()))
    code, text = printed(capsys, cluster, "--without", "gpu-b,gpu-a")
    assert code == 2
    assert text == "error: there is no node 'gpu-b'. Did you mean gpu-a or pool:gpu-a?\n"
    assert printed(capsys, cluster, "--without", "") == (2, "error: there is no node ''.\n")
    missing = "error: no node has the label cloud.google.com/gke-nodepool=h100, by which pool:h100"
    assert printed(capsys, cluster, "--without", "pool:h100")[1].startswith(missing)


def test_a_quota_that_limits_nothing_is_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"name": "gcp-critical-pods", "namespace": "kube-system"}
    own = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": {"pods": "1G"}},
    }
    assert "Quota" not in printed(capsys, write(tmp_path / "c.yaml", own))[1]
    own |= {"spec": {"hard": {"pods": "7"}}, "status": {"hard": {"pods": "7"}}}
    assert "Quota" not in printed(capsys, write(tmp_path / "c.yaml", own))[1]
    own["status"]["used"] = {"pods": "1"}
    assert "leaves pods 6 of 7." in printed(capsys, write(tmp_path / "c.yaml", own))[1]


def test_a_comment_answers_first_and_folds_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old.yaml", gpu_pool("h100", 2))
    new = write(tmp_path / "new.yaml", gpu_pool("h100", 1), deployment("web", 6, gpu_template(4)))
    _, text = printed(capsys, "--diff", old, new, "--format", "markdown")
    lines = text.splitlines()
    assert lines[0] == "<!-- ml-foundations plan -->"
    assert lines[2].startswith("**❌ From ")
    assert "| the stack | 0.00 to 160.00 | 0.00 to 80.00 |" in lines
    assert "| GPUs of team team | none | 240.00 (24 GPUs) |" in lines
    assert "<details><summary>1 changed workload</summary>" in lines
    assert text.count("<details>") == text.count("</details>") == 1


def test_a_comment_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(
        capsys,
        write(tmp_path / "a.yaml", pool("p", 1), deployment("web", 1, template())),
        "--format",
        "markdown",
    )
    assert code == 0
    assert text.splitlines()[2] == "**✅ The stack fits.**"
    assert "| Deployment team/web | ✅ fits |  |  |" in text


def test_text_from_manifests_is_no_mark_up_in_a_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "<img src=x>|@everyone `x` [a](b)"
    many = [
        deployment(f"web-{index}", 9, template(nodeSelector={"key": evil})) for index in range(60)
    ]
    _, text = printed(
        capsys, write(tmp_path / "a.yaml", pool("p", 1), *many), "--format", "markdown"
    )
    assert "<img" not in text
    assert "@everyone" not in text
    assert "`" not in text
    assert "<summary>60 workloads, of which 50 are shown</summary>" in text
    assert len(text) < 65_536
