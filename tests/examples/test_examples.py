"""Every example is a Pulumi project that rehearses; of each, what it is there to show."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rehearsal import brought_nodes
from rehearsal.progress import RehearsalError
from tests.conftest import CHECKOUT, Checkout

EXAMPLES = CHECKOUT / "examples"
NODES = "examples/bring-your-own-cluster/nodes.yaml"


def test_every_example_is_tested() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} == set(SHOWS)


SHOWS: dict[str, dict[str, tuple[str, str]]] = {
    "minimal": {"Job finetune": ("Completed", "gke-minimal-l4-")},
    "bring-your-own-cluster": {"Job finetune": ("Completed", "h100-1"), "Deployment chat": ("Ready", "l4-1")},
    "yaml": {"Job finetune": ("Completed", "h100-1"), "Deployment chat": ("Ready", "l4-1")},
}
"""Of each example: its workloads, the state that they reach and the nodes that they run on."""


@pytest.mark.parametrize("example", SHOWS)
def test_example(example: str, copy_checkout: Callable[[], Checkout]) -> None:
    checkout = copy_checkout()
    project = ["--project", f"examples/{example}"]
    has_pools = "NodePool" in "".join(path.read_text() for path in (EXAMPLES / example).glob("*.py"))
    nodes = [] if has_pools else ["--nodes", NODES]
    try:
        result = checkout.run("up", *project, *nodes)
        assert result.returncode == 0, result.stdout + result.stderr
        workloads = json.loads(checkout.run("report", "--json", *project).stdout)["workloads"]
        shown = {f"{w['kind']} {w['name']}": (w["state"], w["nodes"]) for w in workloads}
        assert shown.keys() == SHOWS[example].keys()
        for workload, (state, node) in SHOWS[example].items():
            assert shown[workload][0] == state
            assert all(name.startswith(node) for name in shown[workload][1]) and shown[workload][1]
    finally:
        assert checkout.run("down", *project).returncode == 0


def node(**parts: Any) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": "a"}, **parts}


@pytest.mark.parametrize(
    ("text", "says"), [("kind: Pod", "there is no Node in"), ("{", "cannot be read"), ("", "there is no Node in")]
)
def test_a_file_without_nodes_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(text)
    with pytest.raises(RehearsalError, match=says):
        list(brought_nodes.read(tmp_path / "nodes.yaml"))


def test_a_copied_node_leaves_the_machine_behind(tmp_path: Path) -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "ours", "effect": "NoSchedule"}]
    original = node(
        metadata={"name": "a", "uid": "1", "labels": {"zone": "z"}, "annotations": {"csi": "x"}},
        spec={"providerID": "gce://x", "taints": taints},
        status={"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "False"}]},
    )
    (tmp_path / "nodes.yaml").write_text(json.dumps({"kind": "List", "items": [original]}))
    (copied,) = brought_nodes.read(tmp_path / "nodes.yaml")
    assert copied == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"zone": "z"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [taints[1]], "unschedulable": False},
        "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}},
    }
