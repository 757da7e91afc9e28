"""Cases from public reports and manifests, each with what a real cluster does with them."""

from pathlib import Path

import pytest
from ml_foundations.planning.input.documents import read
from ml_foundations.planning.verdict.program import judge_documents

CASES = Path(__file__).with_name("public")


@pytest.mark.parametrize(
    ("name", "verdict", "rules"),
    [
        # The pods run; devices of a driver whose slices are not shown may be anywhere.
        ("claimed-networks", "undetermined", {"beyond-planning"}),
        ("class-makes-pools", "undetermined", {"beyond-planning"}),
        ("class-of-namespace", "fits", set[str]()),
        ("class-selected", "fits", set[str]()),
        ("cohort-own-quota", "fits", set[str]()),
        ("daemonset-no-toleration", "fits", {"daemon-set-without-nodes"}),
        ("dra-live-with-slice", "fits", set[str]()),
        ("dra-pool-from-zero", "undetermined", {"beyond-planning"}),
        # Two devices on each node (kubernetes issue 127554).
        ("dra-slices-shown", "fits", set[str]()),
        # The pod that runs is evicted, and its anti-affinity with it.
        ("evicted-by-taint", "fits", set[str]()),
        # The second pod never starts: another node has the disk.
        ("inline-disk-replicas", "cannot-fit", {"rollout-surge", "volume-access"}),
        # Four pods run, and two more when these have ended.
        ("jobset-in-turns", "undetermined", {"nodes", "runs-in-turns"}),
        ("leader-worker-set-claims", "fits", set[str]()),
        # Kueue assigns a domain to each group (kueue issue 8666).
        ("leader-worker-set-in-racks", "fits", set[str]()),
        # Size without the leader is divided (lws PR 1008).
        ("leader-worker-set-subgroups", "fits", set[str]()),
        # Kueue waits for the third pod (kueue issue 2208).
        ("pod-group-incomplete", "cannot-fit", {"queue"}),
        ("pool-without-ports", "cannot-fit", {"invalid"}),
        # Kueue creates no Workload.
        ("queue-priority-missing", "undetermined", {"queue"}),
        # Kueue counts the template, without the sidecar of the bucket.
        ("queue-with-bucket", "fits", set[str]()),
        ("queued-ray-group-named-head", "cannot-fit", {"queue", "queue-capacity"}),
        ("queued-ray-job-keeps-cluster", "cannot-fit", {"queue", "queue-capacity"}),
        ("quota-bare-gpu", "fits", {"quota-name"}),
        ("quota-limits-gpu", "fits", {"quota-name"}),
        # The autoscaler's sidecar does not fit next to the head (ray PR 58568).
        ("ray-autoscaler-without-room", "cannot-fit", {"taint"}),
        # Its RayCluster's name would have 54 characters.
        ("ray-job-long-name", "cannot-fit", {"invalid"}),
        ("ray-job-suspended-for-good", "cannot-fit", {"invalid"}),
        ("ray-submitter-in-head", "fits", set[str]()),
        # The queue has too little quota, and no node has the memory.
        ("refused-by-queue-and-nodes", "cannot-fit", {"queue-quota", "resources"}),
        # Old and new pods of the rollout have different hashes.
        ("rollout-match-label-keys", "fits", set[str]()),
        ("route-to-pool-with-port", "fits", {"health-check", "public-paths"}),
        ("runtime-without-node-container", "cannot-fit", {"invalid"}),
        ("topology-template-untolerant", "cannot-fit", {"queue-capacity", "queue-topology"}),
        ("train-job-reserved-variable", "cannot-fit", {"invalid"}),
        ("train-job-without-initializer", "cannot-fit", {"invalid"}),
    ],
)
def test_the_verdict_is_what_a_cluster_does(name: str, verdict: str, rules: set[str]) -> None:
    found = judge_documents(read((CASES / f"{name}.yaml").read_text(), name))
    assert found.stack == verdict
    assert {each.rule for each in found.findings} == rules
