"""InferenceService(nodes=…): a LeaderWorkerSet, what its leaders and workers run, and what it refuses."""

from typing import Any

import pulumi
import pytest
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import node
from tests.support.parts import manifest_of
from tests.support.refusing import Refused, refusal, refused
from tests.workloads.building import FABRICS, service_spec

SIZES = ["--tensor-parallel-size=8", "--pipeline-parallel-size=2"]
VLLM = {"nodes": 2, "gpus": 8, "gpu": "H100", "port": 8000, "arguments": ["--model=m", *SIZES]}
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


def groups(**more: Any) -> dict[str, Any]:
    return manifest_of(service_spec(**VLLM | more), "LeaderWorkerSet")


def templates(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = groups(**more)["spec"]["leaderWorkerTemplate"]
    return parts["leaderTemplate"], parts["workerTemplate"]


def mains(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    leader, worker = templates(**more)
    return leader["spec"]["containers"][0], worker["spec"]["containers"][0]


def test_each_replica_is_a_group_behind_its_leader() -> None:
    made = groups(replicas=3)
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["leaderWorkerTemplate"]["size"] == 2
    rollout = made["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rollout == {"maxSurge": 0, "maxUnavailable": 1}
    kinds = {manifest["kind"] for manifest in service_spec(**VLLM).manifests()}
    assert kinds == {"LeaderWorkerSet", "Service", "PodDisruptionBudget"}
    service = manifest_of(service_spec(**VLLM), "Service")
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "chat"} | LEADER
    # The controller makes a Service with the name of the set unless each group has its own.
    assert made["metadata"]["name"] == service["metadata"]["name"]
    assert made["spec"]["networkConfig"] == {"subdomainPolicy": "UniquePerReplica"}


def test_one_node_stays_a_deployment() -> None:
    assert manifest_of(service_spec(), "Deployment")["metadata"]["name"] == "chat"
    selector = manifest_of(service_spec(), "Service")["spec"]["selector"]
    assert selector == {"app.kubernetes.io/name": "chat"}


def test_only_leaders_answer_probes_and_metrics() -> None:
    leader, worker = mains()
    probes = {"startupProbe", "readinessProbe", "livenessProbe"}
    assert probes | {"lifecycle", "ports"} <= leader.keys()
    assert not any("Probe" in key or key in ("ports", "lifecycle") for key in worker)
    monitor = manifest_of(service_spec(**VLLM, monitoring="google"), "PodMonitoring")
    assert LEADER.items() <= monitor["spec"]["selector"]["matchLabels"].items()


RANKS = [
    "--nnodes=$(LWS_GROUP_SIZE)",
    "--node-rank=$(LWS_WORKER_INDEX)",
    "--master-addr=$(LWS_LEADER_ADDRESS)",
    "--master-port=29500",
]
SCRIPT = "/vllm-workspace/examples/online_serving/multi-node-serving.sh"


def test_vllm_starts_its_own_processes() -> None:
    leader, worker = mains()
    common = ["--model=m", *SIZES, "--distributed-executor-backend=mp", *RANKS]
    assert "command" not in leader
    assert leader["args"] == common
    assert worker["args"] == [*common, "--headless"]


def test_ray_starts_before_the_server_of_the_leader() -> None:
    leader, worker = mains(launcher="vllm-ray")
    assert leader["command"][:2] == ["sh", "-c"]
    assert leader["command"][2] == (
        f"bash {SCRIPT} leader --ray_cluster_size=$LWS_GROUP_SIZE --ray_init_timeout=3600"
        ' && exec "$@"'
    )
    assert leader["args"] == ["vllm", "serve", "--model=m", *SIZES]
    assert worker["command"] == ["bash", SCRIPT]
    address = "--ray_address=$(LWS_LEADER_ADDRESS)"
    assert worker["args"] == ["worker", address, "--ray_init_timeout=3600"]


def test_each_node_runs_engines_of_its_own() -> None:
    leader, worker = mains(launcher="vllm-data-parallel", arguments=["--tensor-parallel-size", "2"])
    assert leader["args"][:4] == ["vllm", "serve", "--tensor-parallel-size", "2"]
    assert "--data-parallel-size=8" in leader["args"]
    assert "--data-parallel-size-local=4" in leader["args"]
    rank = 'exec "$@" --data-parallel-start-rank=$((LWS_WORKER_INDEX * 4))'
    assert leader["command"][2] == worker["command"][2] == rank
    assert worker["args"] == [*leader["args"], "--headless"]


def test_another_engine_gets_the_arguments_as_they_are() -> None:
    given = ["--nnodes", "$(LWS_GROUP_SIZE)", "--node-rank", "$(LWS_WORKER_INDEX)"]
    leader, worker = mains(launcher="none", arguments=given)
    assert leader["args"] == worker["args"] == given


def test_groups_are_scaled_as_a_whole() -> None:
    scaling = {"max_replicas": 3, "metric": "vllm:num_requests_waiting", "target": "5"}
    made = manifest_of(service_spec(**VLLM, autoscaling=scaling), "HorizontalPodAutoscaler")
    target = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    assert made["spec"]["scaleTargetRef"] == target | {"name": "chat"}
    by_gke = templates(autoscaling=scaling | {"served_by": "gke"})
    leader, worker = (template["metadata"]["labels"].items() for template in by_gke)
    assert leader - worker == {("ml-foundations-server", "chat")}


def test_a_group_in_a_queue_has_one_topology_domain() -> None:
    for template in templates(queue="gpus", topology="required:block"):
        assert template["metadata"]["annotations"] == {
            "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-block",
            "kueue.x-k8s.io/podset-group-name": "chat",
        }
    assert groups(queue="gpus")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_a_group_uses_the_network_between_its_gpus() -> None:
    fabric = {"gpu_fabric": FABRICS["tcpxo"] | {"gpus_per_node": 8}, "command": ["vllm", "serve"]}
    for template in templates(**fabric):
        assert "networking.gke.io/interfaces" in template["metadata"]["annotations"]
        assert template["spec"]["initContainers"][0]["name"] == "tcpxo-daemon"
    for launcher in ("vllm", "vllm-ray", "vllm-data-parallel"):
        sizes = ["-tp=8"] if launcher == "vllm-data-parallel" else SIZES
        for main in mains(**fabric, launcher=launcher, arguments=sizes):
            assert main["command"][:2] == ["bash", "-c"]
            assert main["command"][2].endswith('exec "$@"')
    del fabric["command"]
    for main in mains(**fabric):
        assert main["command"][-2:] == ["vllm", "serve"]
    assert "command" not in mains(gpu_fabric=None)[0]
    alone = service_spec(**VLLM | fabric | {"nodes": 1, "arguments": SIZES[:1]})
    assert "initContainers" not in manifest_of(alone, "Deployment")["spec"]["template"]["spec"]
    assert not list(alone.warnings())
    (warning,) = service_spec(**VLLM | fabric | {"gpus": 4, "arguments": ["-tp=8"]}).warnings()
    assert "only pods of whole nodes get the network between GPUs" in warning


WRONG: list[Refused] = [
    refused(
        "arguments: tensor times pipeline parallel is 8 times 1 = 8, but a group has 16 GPUs (2 nodes of 8); "
        "set --tensor-parallel-size=8 and --pipeline-parallel-size=2",
        arguments=["--tensor-parallel-size=8"],
    ),
    refused("is 8 times 4 = 32, but a group has 16 GPUs", arguments=["-tp", "8", "-pp=4"]),
    refused("is 1 times 1 = 1, but a group has 16 GPUs", launcher="vllm-ray", arguments=[]),
    refused(
        "which does not divide the 8 GPUs; set --tensor-parallel-size to a divisor of 8",
        launcher="vllm-data-parallel",
        arguments=["-tp=3"],
    ),
    refused(
        "arguments: tensor, pipeline and data parallel sizes are 4, 1 and 1: 4 GPUs, and a replica has 2; set gpus to 4",
        nodes=1,
        gpus=2,
        arguments=["--tensor-parallel-size=4"],
    ),
    refused(
        "sizes are 4, 2 and 2: 16 GPUs, and a replica has 8",
        nodes=1,
        arguments=["-tp=4", "-pp", "2", "--data-parallel-size=2"],
    ),
    *(
        refused("4 GPUs, and a replica has 2", nodes=1, gpus=2, arguments=arguments)
        for arguments in (
            ["--tensor_parallel_size=4"],
            ["--tensor-parallel", "4"],
            ["-tp", "4"],
            ["--tensor-parallel-size=2", "--tensor-parallel-size=4"],
            ["-pp=2", "--tensor_parallel_size", "2"],
        )
    ),
    refused(
        "4 GPUs, and a replica has 2",
        nodes=1,
        gpus=2,
        arguments=None,
        command=["bash", "-c", "vllm serve m --tensor-parallel-size 4"],
    ),
    *(
        refused(f"--tensor-parallel-size is {value!r}; set", nodes=1, arguments=[f"-tp={value}"])
        for value in ("0", "four", "-1", "")
    ),
    refused(
        "sizes are 8, 4 and 1: 32 GPUs, and a replica has 16; set gpus to 16",
        launcher="none",
        arguments=["-tp=8", "-pp=4"],
    ),
    refused("gpus: is 0, and a group of vLLM needs GPUs", gpus=0, gpu=None),
    refused(
        "arguments[2]: --nnodes=2 is set by the launcher vllm", arguments=[*SIZES, "--nnodes=2"]
    ),
    refused(
        "command: is a script, to which the launcher cannot add", command=["sh", "-c", "vllm serve"]
    ),
    refused("rendezvous_port: is 8000, which serves already", rendezvous_port=8000),
    refused(
        "and a group adds its number and a hash: set it to at most 50 characters",
        deployment_name="a" * 51,
    ),
    refused("subdomain: is set by the component", subdomain="chat"),
    refused("spread: is required, and the pods of a group belong together", spread="required"),
    refused(
        "readinessProbe: is for all pods, and workers answer no requests: set probes instead",
        pod_overrides={
            "containers": [{"name": "main", "readinessProbe": {"tcpSocket": {"port": 1}}}]
        },
    ),
    refused(
        "topology_slices: divides the pods of a workload",
        queue="q",
        topology_slices=[{"level": "block", "size": 2}],
    ),
    refused(
        "command: is required: it first reads",
        gpu_fabric=FABRICS["tcpxo"] | {"gpus_per_node": 8},
        launcher="none",
    ),
    refused("launcher: starts a group of pods, and nodes is 1", nodes=1, launcher="vllm"),
]


@pytest.mark.parametrize(("more", "reasons"), WRONG)
def test_what_cannot_start_is_refused(more: dict[str, Any], reasons: tuple[str, ...]) -> None:
    message = refusal(service_spec, **VLLM | more)
    assert not [reason for reason in reasons if reason not in message], message


@pytest.mark.parametrize(
    "more",
    [
        {"arguments": ["-tp", "16"]},
        {"arguments": ["-tp=8", "-pp", "2"]},
        {"launcher": "vllm-data-parallel", "arguments": ["-tp=8"]},
        {"deployment_name": "a" * 50},
        {"arguments": [pulumi.Output.from_input("--model=m")]},
    ],
)
def test_what_fits_together_is_accepted(more: dict[str, Any]) -> None:
    assert groups(**more)


@pytest.mark.parametrize(
    ("surge", "free", "stops"), [(True, 3, True), (True, 4, False), (False, 2, False)]
)
def test_a_rollout_with_a_surge_needs_spare_nodes_for_a_group(
    surge: bool, free: int, stops: bool
) -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    labels |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    nodes = [node(f"n{index}", labels, cpu="200", memory="2000Gi", gpu=8) for index in range(free)]
    found = judge_documents([*service_spec(**VLLM, surge=surge).manifests(), *nodes])
    assert found.stack is Verdict.FITS, [finding.message for finding in found.findings]
    rules = [finding.rule for finding in found.findings]
    assert ("rollout-surge" in rules) is stops


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tensor-parallel-size=2", "--data-parallel-size=4"],
        ["--data-parallel-size=16", "--data-parallel-size-local=8"],
        ["-tp=16", "--distributed-executor-backend=ray"],
        ["-tp=3"],
        ["-tp=16", "-tp=8"],
        ["-tp=16", "--distributed_executor_backend=ray"],
        ["-tp=$(GPUS)"],
    ],
)
def test_gpus_of_one_node_may_be_enough(arguments: list[str]) -> None:
    assert service_spec(**VLLM | {"nodes": 1, "arguments": arguments}).nodes == 1
