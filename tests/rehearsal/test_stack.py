"""The dev stack, rehearsed end to end as a user would: up, look, up again, crash, recover, down."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rehearsal import control_plane, gke
from tests.conftest import Checkout

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def dev(copy_checkout: Callable[[], Checkout]) -> Iterator[Checkout]:
    checkout = copy_checkout()
    before = files(checkout)
    result = checkout.run("up")
    assert result.returncode == 0, result.stdout + result.stderr
    assert files(checkout) == before, "the rehearsal changed the checkout"
    yield checkout
    checkout.run("down")


def files(checkout: Checkout) -> dict[str, int]:
    """Every file outside of .rehearsal, with the time of its last change."""
    paths = (path for path in checkout.root.rglob("*") if ".rehearsal" not in path.parts and path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in paths if "__pycache__" not in path.parts}


def report(checkout: Checkout) -> dict[str, Any]:
    return json.loads(checkout.run("report", "--json").stdout)


def get(checkout: Checkout, what: str) -> list[dict[str, Any]]:
    return json.loads(checkout.shell(f"kubectl get {what} -A -o json").stdout)["items"]


def requests_gpu(pod: dict[str, Any]) -> bool:
    return any(GPU in (c.get("resources", {}).get("requests") or {}) for c in pod["spec"]["containers"])


def test_every_workload_runs_or_has_completed(dev: Checkout) -> None:
    workloads = {(w["kind"], w["name"]): w for w in report(dev)["workloads"]}
    assert workloads
    jobs = [w for (kind, _), w in workloads.items() if kind == "Job"]
    deployments = [w for (kind, _), w in workloads.items() if kind == "Deployment"]
    assert {w["state"] for w in jobs} == {"Completed"}
    assert {w["state"] for w in deployments} == {"Ready"}
    assert all(w["nodes"] for w in workloads.values())


def test_gpu_pods_run_on_tainted_nodes_of_the_declared_product_and_no_others_do(dev: Checkout) -> None:
    nodes = {node["metadata"]["name"]: node for node in get(dev, "nodes")}
    pods = [pod for pod in get(dev, "pods") if not pod["metadata"]["namespace"].startswith(("kube-", "gke-"))]
    on_gpu_nodes = {True: 0, False: 0}
    for pod in pods:
        node = nodes.get(pod["spec"].get("nodeName", ""))
        if node is None:
            continue
        tainted = any(taint["key"] == GPU for taint in node["spec"].get("taints", []))
        assert tainted == requests_gpu(pod), pod["metadata"]["name"]
        on_gpu_nodes[tainted] += 1
        if tainted:
            assert node["metadata"]["labels"]["nvidia.com/gpu.product"].startswith("NVIDIA-")
    assert on_gpu_nodes[True] >= 3


def test_every_claim_is_bound(dev: Checkout) -> None:
    claims = get(dev, "pvc")
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}
    assert {"ReadWriteOnce", "ReadWriteMany"} <= {claim["spec"]["accessModes"][0] for claim in claims}


def test_quota_use_is_what_the_pods_request(dev: Checkout) -> None:
    running = [pod for pod in get(dev, "pods") if pod["status"]["phase"] == "Running"]
    for quota in report(dev)["quotas"]:
        key = f"requests.{GPU}"
        if key in quota["hard"]:
            wanted = sum(
                int(c["resources"]["requests"].get(GPU, 0))
                for pod in running
                if pod["metadata"]["namespace"] == quota["namespace"]
                for c in pod["spec"]["containers"]
            )
            assert int(quota["used"][key]) == wanted


def test_a_second_up_changes_nothing_and_takes_seconds(dev: Checkout) -> None:
    before = state_ids(dev)
    result = dev.run("up")
    assert result.returncode == 0, result.stderr
    assert "unchanged" in result.stdout
    for word in ("created", "updated", "replaced", "deleted"):
        assert f" {word}" not in result.stdout.partition("Resources:")[2].partition("Duration")[0]
    assert state_ids(dev) == before


def state_ids(checkout: Checkout) -> dict[str, str]:
    exported = json.loads(checkout.shell("pulumi stack export -s dev").stdout)["deployment"]
    assert not exported.get("pending_operations")
    resources = exported["resources"]
    assert len({r["urn"] for r in resources}) == len(resources), "duplicates in the state"
    return {r["urn"]: r.get("id", "") for r in resources}


def test_plain_pulumi_works_in_the_printed_environment(dev: Checkout) -> None:
    result = dev.shell("pulumi preview -s dev --expect-no-changes && pulumi stack -s dev && helm list -A")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_claim_of_more_gpus_than_a_node_has_stays_pending(dev: Checkout) -> None:
    result = dev.shell(
        f"""kubectl run greedy --image=busybox --overrides='{{"spec": {{"containers": [{{"name": "greedy",
        "image": "busybox", "resources": {{"limits": {{"{GPU}": "64"}}}}}}]}}}}'"""
    )
    assert result.returncode == 0, result.stderr
    try:
        time.sleep(3)
        row = next(w for w in report(dev)["workloads"] if w["name"] == "greedy")
        assert row["state"] == "Pending"
        assert f"Insufficient {GPU}" in row["reason"]
    finally:
        dev.shell("kubectl delete pod greedy --now")


def test_a_pod_over_quota_is_refused_by_the_api_server(dev: Checkout) -> None:
    namespace = next(q["namespace"] for q in report(dev)["quotas"] if f"requests.{GPU}" in q["hard"])
    result = dev.shell(
        f"""kubectl run greedy -n {namespace} --image=busybox --overrides='{{"spec": {{"containers": [{{"name":
        "greedy", "image": "busybox", "resources": {{"limits": {{"{GPU}": "999", "cpu": "1", "memory": "1Gi"}}}}}}]}}}}'"""
    )
    assert result.returncode != 0
    assert "exceeded quota" in result.stderr or "forbidden" in result.stderr


def test_up_recovers_from_the_death_of_any_process(dev: Checkout) -> None:
    before = state_ids(dev)
    rehearsal = dev.rehearsal()
    for process in [*control_plane.processes(rehearsal), gke.process(rehearsal)]:
        os.kill(process.pid, signal.SIGKILL)
    result = dev.run("up")
    assert result.returncode == 0, result.stdout + result.stderr
    assert state_ids(dev) == before


def test_down_leaves_no_process_and_no_file(copy_checkout: Callable[[], Checkout]) -> None:
    checkout = copy_checkout()
    before = files(checkout)
    interrupted_up(checkout)
    assert checkout.run("up").returncode == 0
    state_ids(checkout)
    assert checkout.run("down").returncode == 0
    assert not (checkout.root / ".rehearsal").exists()
    assert files(checkout) == before
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(checkout.root) in " ".join(p.info["cmdline"] or [])]


def interrupted_up(checkout: Checkout) -> None:
    """Start ``up`` and kill pulumi with SIGKILL once it has created a few resources."""
    up = subprocess.Popen(
        ["python", "-m", "rehearsal", "up"],
        cwd=checkout.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert up.stdout
    for line in up.stdout:
        if "TrainingJob" in line and "created" in line:
            break
    for process in psutil.Process(up.pid).children(recursive=True):
        if process.name() == "pulumi":
            process.kill()
    up.stdout.read()
    assert up.wait() != 0


def test_a_planted_plugin_is_never_run(dev: Checkout, tmp_path: Path) -> None:
    for name in (
        "pulumi-resource-gcp",
        "pulumi-resource-kubernetes",
        "pulumi-language-python",
        "gke-gcloud-auth-plugin",
    ):
        trap = tmp_path / name
        trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\nexit 1\n")
        trap.chmod(0o755)
    result = dev.run("up", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "sprung").exists()
