"""Which Jobs have pods that talk to each other."""

from typing import Any

import pytest
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.planning.model.peers import talk
from ml_foundations.planning.rules.network_policies import network_policies

from tests.factories import Manifest, namespaced
from tests.support.stacks import stack_of

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
    findings = [*network_policies(stack_of([made, policy]))]
    assert [finding.path for finding in findings] == ["metadata.labels"] * is_closed


OF_JOB_SET = (
    *("jobset-name", "jobset-uid", "replicatedjob-name", "replicatedjob-replicas", "job-index"),
    *("global-replicas", "job-key", "job-global-index", "job-group-index", "group-name"),
    *("group-replicas", "restart-attempt"),
)
OF_JOB = ("controller-uid", "job-name", "batch.kubernetes.io/job-completion-index")
ADDED = [(kind, key) for kind in sorted(SEVERAL) for key in described_kinds()[kind].own_labels]
ADDED += [("JobSet", f"jobset.sigs.k8s.io/{key}") for key in OF_JOB_SET]
ADDED += [(kind, key) for kind in ("Job", "JobSet") for key in OF_JOB]
LAUNCHER = {"name": "c", "command": ["torchrun", "--nnodes=2", "train.py"]}
GROUP = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [LAUNCHER]}}}


def of_kind(kind: str) -> Manifest:
    """An object with several pods that reach each other."""
    if kind == "Job":
        return namespaced("batch/v1", kind, "it", spec={**GROUP, "completionMode": "Indexed"})
    if kind == "JobSet":
        jobs = [{"name": "w", "template": {"spec": {**GROUP, "completionMode": "Indexed"}}}]
        return namespaced("jobset.x-k8s.io/v1alpha2", kind, "it", spec={"replicatedJobs": jobs})
    return namespaced(f"{described_kinds()[kind].group}/v1", kind, "it", spec=SEVERAL[kind])


@pytest.mark.parametrize(("kind", "key"), sorted(ADDED))
@pytest.mark.parametrize("wanted", [{"operator": "Exists"}, {"operator": "In", "values": ["0"]}])
def test_pods_have_the_labels_that_controllers_add(
    kind: str, key: str, wanted: dict[str, Any]
) -> None:
    named = key.endswith(("jobset-name", "replicatedjob-name", "job-name")) and kind != "RayJob"
    own = {"matchExpressions": [{"key": key, **wanted}]}
    only = {"podSelector": {}, "ingress": [{"from": [{"podSelector": own}]}]}
    policy = namespaced("networking.k8s.io/v1", "NetworkPolicy", "p", spec=only)
    # Which pod has which index, and names with random letters, nobody knows before.
    is_other = wanted["operator"] == "In" and named
    assert ([*network_policies(stack_of([of_kind(kind), policy]))] == []) is not is_other
    deny = namespaced("networking.k8s.io/v1", "NetworkPolicy", "p", spec={"podSelector": own})
    is_denied = wanted["operator"] == "Exists" or key.endswith("worker-index")  # the leader's is 0
    assert ([*network_policies(stack_of([of_kind(kind), deny]))] != []) is is_denied
