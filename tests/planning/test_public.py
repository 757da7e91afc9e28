"""Cases from public reports and manifests, each with what a real cluster does with them."""

from pathlib import Path

import pytest
from ml_foundations.planning.input.documents import read
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.report import as_text

CASES = Path(__file__).with_name("public")


@pytest.mark.parametrize(
    ("name", "verdict", "rules"),
    [
        # A DaemonSet has as many pods as there are nodes.
        ("autoscaler-of-a-daemon-set", "fits", {"autoscaling-target"}),
        ("autoscaler-target-missing", "fits", {"autoscaling-target"}),
        ("autoscaler-target-of-another-group", "fits", {"autoscaling-target"}),
        ("autoscaler-target-of-another-kind", "fits", {"autoscaling-target"}),
        ("budget-keeps-a-share", "fits", {"eviction-budget"}),
        ("budget-keeps-all", "fits", {"eviction-budget"}),
        # With more replicas than the least, a pod may be evicted.
        ("budget-of-an-autoscaled-server", "fits", set[str]()),
        ("budget-share-of-a-bare-pod", "fits", {"eviction-budget"}),
        # Jobs have no scale, of which the controller takes the share.
        ("budget-share-of-a-job", "fits", {"eviction-budget"}),
        ("budgets-overlap", "fits", {"eviction-budget"}),
        # The pods run; devices of a driver whose slices are not shown may be anywhere.
        ("claimed-networks", "undetermined", {"beyond-planning"}),
        ("class-makes-pools", "undetermined", {"beyond-planning"}),
        ("class-of-namespace", "fits", set[str]()),
        ("class-selected", "fits", set[str]()),
        ("cohort-own-quota", "fits", set[str]()),
        ("daemonset-no-toleration", "fits", {"daemon-set-without-nodes"}),
        ("dra-class-missing", "undetermined", {"beyond-planning"}),
        ("dra-count-above-node", "cannot-fit", {"resources"}),
        ("dra-live-with-slice", "fits", set[str]()),
        ("dra-pool-from-zero", "undetermined", {"beyond-planning"}),
        ("dra-selectors-match-none", "cannot-fit", {"resources"}),
        ("dra-slice-of-many-nodes", "undetermined", {"beyond-planning"}),
        # Two devices on each node (kubernetes issue 127554).
        ("dra-slices-shown", "fits", set[str]()),
        ("dra-template-missing", "undetermined", {"beyond-planning"}),
        # One pod is enough to start with, and the others join.
        ("elastic-launcher-takes-turns", "fits", {"runs-in-turns"}),
        # The pod that runs is evicted, and its anti-affinity with it.
        ("evicted-by-taint", "fits", set[str]()),
        # A group of three pods needs a rack alone, and each rack has one node.
        ("exclusive-group-above-rack", "cannot-fit", {"pod-affinity"}),
        # Three groups need a rack each, and there are two.
        ("exclusive-groups-few-racks", "cannot-fit", {"nodes"}),
        ("exclusive-jobs-few-racks", "cannot-fit", {"nodes"}),
        # Kueue gives the pods the labels of the flavor, which no node has.
        ("flavor-of-other-label-job-set", "cannot-fit", {"node-selector", "queue-capacity"}),
        ("flavor-of-other-pool", "cannot-fit", {"node-selector", "queue-capacity"}),
        # The gang never runs while the server does.
        ("gang-beside-a-server", "cannot-fit", {"lost-work", "quota-sum"}),
        ("gang-by-launcher", "cannot-fit", {"lost-work", "nodes"}),
        ("gang-by-mpi", "cannot-fit", {"lost-work", "nodes"}),
        ("gang-by-names", "cannot-fit", {"lost-work", "nodes"}),
        ("gang-of-a-jobset", "cannot-fit", {"lost-work", "nodes"}),
        # The one that comes first ends, and makes room for the other.
        ("gangs-wait-for-a-quota", "undetermined", {"lost-work", "quota-sum"}),
        ("gangs-wait-for-nodes", "undetermined", {"competition", "lost-work"}),
        ("group-with-dns-only", "fits", {"network-policy"}),
        ("group-with-its-own-network", "fits", set[str]()),
        # The selector is too wide: the pods of a second Deployment have no such port.
        ("inference-pool-of-all-servers", "fits", {"endpoint-picker", "inference-pool"}),
        # The port or the selector is wrong.
        ("inference-pool-of-other-server", "fits", {"endpoint-picker", "inference-pool"}),
        # A container may listen on a port that it does not declare.
        ("inference-pool-of-undeclared-port", "fits", set[str]()),
        # The pods listen on another port.
        ("inference-pool-wrong-port", "fits", {"inference-pool", "public-paths"}),
        # An Ingress names a port of the Service, not of its pods.
        ("ingress-port-of-pods", "fits", {"route-backend"}),
        # The second pod never starts: another node has the disk.
        ("inline-disk-replicas", "cannot-fit", {"rollout-surge", "volume-access"}),
        ("jobset-denied-by-its-labels", "fits", {"network-policy"}),
        # Four pods run, and two more when these have ended.
        ("jobset-in-turns", "undetermined", {"nodes", "runs-in-turns"}),
        # torchrun starts one process, which uses one of 8 GPUs.
        (
            "jobset-long-name",
            "cannot-fit",
            {"gpu-network", "invalid", "lost-work", "server-arguments"},
        ),
        ("jobset-open-to-its-labels", "fits", set[str]()),
        ("jobset-under-deny-all", "fits", {"network-policy"}),
        ("jobset-with-dns-only", "fits", {"network-policy"}),
        ("leader-worker-set-claims", "fits", set[str]()),
        # The API server refuses the StatefulSet that is made of it.
        ("leader-worker-set-claims-without-modes", "cannot-fit", {"invalid"}),
        # Kueue assigns a domain to each group (kueue issue 8666).
        ("leader-worker-set-in-racks", "fits", set[str]()),
        # Size without the leader is divided (lws PR 1008).
        ("leader-worker-set-subgroups", "fits", set[str]()),
        ("leader-worker-size-short", "cannot-fit", {"nodes"}),
        # The node controller taints it.
        ("node-not-ready", "cannot-fit", {"taint"}),
        # No node is in the networks of the pods' interfaces.
        ("nodes-without-networks", "cannot-fit", {"resources"}),
        ("picker-of-another-kind", "fits", {"endpoint-picker"}),
        ("picker-port-missing", "fits", {"endpoint-picker"}),
        ("picker-service-missing", "fits", {"endpoint-picker"}),
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
        # One replica has two hosts, and there is one node.
        ("ray-hosts-short", "cannot-fit", {"nodes"}),
        # Its RayCluster's name would have 54 characters.
        ("ray-job-long-name", "cannot-fit", {"invalid"}),
        ("ray-job-open-to-its-cluster", "fits", set[str]()),
        ("ray-job-suspended-for-good", "cannot-fit", {"invalid"}),
        ("ray-least-replicas-short", "cannot-fit", {"nodes"}),
        ("ray-redis-with-fault-tolerance", "fits", set[str]()),
        ("ray-redis-without-fault-tolerance", "cannot-fit", {"invalid"}),
        ("ray-service", "fits", set[str]()),
        ("ray-service-timeout-in-words", "cannot-fit", {"invalid"}),
        ("ray-submitter-in-head", "fits", set[str]()),
        ("ray-with-dns-only", "fits", {"network-policy"}),
        # The queue has too little quota, and no node has the memory.
        ("refused-by-queue-and-nodes", "cannot-fit", {"queue-quota", "resources"}),
        # The access mode decides, not the room.
        ("rollout-keeps-claim-of-one-pod", "fits", {"rollout-disk"}),
        ("rollout-keeps-disk", "fits", {"rollout-disk"}),
        ("rollout-keeps-disk-by-default", "fits", {"rollout-disk"}),
        ("rollout-keeps-inline-disk", "fits", {"rollout-disk"}),
        # Old and new pods of the rollout have different hashes.
        ("rollout-match-label-keys", "fits", set[str]()),
        ("rollout-releases-disk", "fits", set[str]()),
        ("route-into-namespace-with-grant", "fits", set[str]()),
        ("route-into-namespace-without-grant", "fits", {"route-backend"}),
        ("route-to-missing-pool", "fits", {"route-backend"}),
        ("route-to-pool-of-alpha-group", "fits", {"route-backend"}),
        ("route-to-pool-with-port", "fits", {"health-check", "public-paths"}),
        ("route-to-pool-without-group", "fits", {"route-backend"}),
        # A backend of weight 0 gets no requests.
        ("route-without-weight", "fits", set[str]()),
        # The RuntimeClass selects nodes that there are not.
        ("runtime-class-of-other-pool", "cannot-fit", {"node-selector"}),
        ("runtime-without-node-container", "cannot-fit", {"invalid"}),
        ("topology-node-not-ready", "cannot-fit", {"queue-capacity", "queue-topology", "taint"}),
        ("topology-template-untolerant", "cannot-fit", {"queue-capacity", "queue-topology"}),
        # The API server refuses the Topology.
        ("topology-without-levels", "cannot-fit", {"invalid", "queue-capacity", "queue-topology"}),
        ("train-job-long-name", "cannot-fit", {"invalid"}),
        # The TrainJob asks for three nodes of two.
        ("train-job-more-nodes", "cannot-fit", {"gpu-network", "lost-work", "nodes"}),
        # Its runtime does.
        ("train-job-nodes-of-runtime", "cannot-fit", {"lost-work", "nodes"}),
        # The patch is no pod of its own.
        ("train-job-patched", "fits", set()),
        ("train-job-reserved-variable", "cannot-fit", {"invalid"}),
        ("train-job-resources-per-node", "cannot-fit", {"resources"}),
        ("train-job-without-initializer", "cannot-fit", {"invalid"}),
        ("trainjob-under-deny-all", "fits", {"network-policy"}),
        # The volume is kept for a claim of another namespace.
        ("volume-kept-for-other-claim", "cannot-fit", {"volume-binding"}),
        # The classes of claim and volume differ.
        ("volume-of-other-class", "cannot-fit", {"volume-binding"}),
        ("volume-smaller-than-claim", "cannot-fit", {"volume-binding"}),
    ],
)
def test_the_verdict_is_what_a_cluster_does(name: str, verdict: str, rules: set[str]) -> None:
    found = judge_documents(read((CASES / f"{name}.yaml").read_text(), name))
    assert found.stack == verdict
    assert {each.rule for each in found.findings} == rules


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (
            "dra-count-above-node",
            "Lower count to 2 in spec.spec.devices.requests[0].exactly of ResourceClaimTemplate g.",
        ),
        (
            "dra-selectors-match-none",
            "selectors of spec.spec.devices.requests[0].exactly of ResourceClaimTemplate g match",
        ),
        ("exclusive-group-above-rack", "lower spec.leaderWorkerTemplate.size to 1."),
        ("exclusive-groups-few-racks", "Lower spec.replicas to 2, or add nodes"),
        ("exclusive-jobs-few-racks", "Lower spec.replicatedJobs[0].replicas to 2"),
        ("flavor-of-other-label-job-set", "spec.nodeLabels.example.com/kind of ResourceFlavor h"),
        ("flavor-of-other-pool", "cloud.google.com/gke-nodepool of ResourceFlavor h"),
        ("inference-pool-of-other-server", "select the pods of Deployment ml/chat."),
        ("inference-pool-wrong-port", "Set spec.targetPorts to 8000, which they declare."),
        ("leader-worker-size-short", "lower spec.leaderWorkerTemplate.size to 2."),
        ("nodes-without-networks", "networks/vpc3 and 5 more."),
        ("ray-hosts-short", "lower spec.workerGroupSpecs[0].numOfHosts to 1."),
        ("ray-least-replicas-short", "lower spec.workerGroupSpecs[0].minReplicas to 1."),
        ("runtime-class-of-other-pool", "cloud.google.com/gke-nodepool of RuntimeClass gpu"),
        ("train-job-more-nodes", "lower spec.trainer.numNodes to 2."),
        ("train-job-nodes-of-runtime", "spec.mlPolicy.numNodes of TrainingRuntime torchy to 2."),
        ("volume-kept-for-other-claim", "Correct its claimRef."),
        ("volume-of-other-class", "Change one of both, or name the claim in its claimRef."),
        ("volume-smaller-than-claim", "Change one of both."),
    ],
)
def test_the_fix_names_the_field_that_decides(name: str, remedy: str) -> None:
    found = judge_documents(read((CASES / f"{name}.yaml").read_text(), name))
    errors = [finding for finding in found.findings if finding.is_error]
    assert remedy in errors[0].remedy
    assert all(len(finding.message) < 600 for finding in errors)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.iterdir()))
def test_the_text_has_the_severity_of_each_finding(name: str) -> None:
    found = judge_documents(read((CASES / f"{name}.yaml").read_text(), name))
    lines = as_text(found).splitlines()
    for finding in found.of_stack:
        mark = "" if finding.severity is Severity.INFO else f"{finding.severity}: "
        assert any(line.startswith(f"{mark}{finding.object}: ") for line in lines)
