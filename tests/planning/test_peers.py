"""Which Jobs have pods that talk to each other."""

from typing import Any

import pytest
from ml_foundations.planning.model.kind_files import described_kinds
from ml_foundations.planning.model.peers import talk
from ml_foundations.planning.verdict.network_policies import network_findings

from tests.factories import Manifest, namespaced

INDEXED = {"completionMode": "Indexed", "completions": 4}


def job(command: str, env: Any = (), subdomain: str = "", **spec: Any) -> Manifest:
    container = {"command": ["sh", "-c", command], "env": list(env)}
    pod = {"containers": [container], "subdomain": subdomain}
    return {"parallelism": 4, **spec, "template": {"spec": pod}}


@pytest.mark.parametrize(
    ("spec", "is_gang"),
    [
        (job("train"), False),
        (job("train", subdomain="t", **INDEXED), True),
        (job("train", subdomain="t", completionMode="Indexed", completions=8), False),
        (job("train", subdomain="t"), False),
        (job("torchrun --nnodes=4 t.py"), True),
        (job("torchrun --nnodes 4 t.py"), True),
        (job("torchrun --nnodes=2:4 t.py"), False),
        (job("torchrun --nnodes=1 t.py"), False),
        (job("torchrun t.py", [{"name": "PET_NNODES", "value": "4"}]), True),
        (job("accelerate launch --num_machines 4 t.py"), True),
        (job("mpirun -np 32 --hostfile /etc/hosts t"), True),
        (job("mpirun -np 8 t"), False),
        (job("torchrun --nnodes=4 t.py") | {"parallelism": 1}, False),
    ],
)
def test_pods_that_talk_are_a_gang(spec: Manifest, is_gang: bool) -> None:
    assert talk(spec) is is_gang


DNS = {"egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}
EACH_OTHER = [{"podSelector": {}}]
OPEN = {"ingress": [{"from": EACH_OTHER}], "egress": [*DNS["egress"], {"to": EACH_OTHER}]}
POD = {"spec": {"containers": [{"name": "c"}]}}
SEVERAL: dict[str, Manifest] = {
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": POD}},
    "RayCluster": {
        "headGroupSpec": {"template": POD},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": POD}],
    },
}
SEVERAL["RayJob"] = {"rayClusterSpec": SEVERAL["RayCluster"]}
SEVERAL["RayService"] = {"rayClusterConfig": SEVERAL["RayCluster"]}


@pytest.mark.parametrize("kind", sorted(described_kinds()))
@pytest.mark.parametrize(("rules", "is_closed"), [(DNS, True), (OPEN, False)])
def test_pods_of_a_kind_reach_each_other(kind: str, rules: Manifest, is_closed: bool) -> None:
    made = namespaced(f"{described_kinds()[kind].group}/v1", kind, "it", spec=SEVERAL[kind])
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], **rules}
    policy = namespaced("networking.k8s.io/v1", "NetworkPolicy", "p", spec=spec)
    findings = [*network_findings([made, policy])]
    assert [finding.path for finding in findings] == ["metadata.labels"] * is_closed
