"""InferenceService(prefill=…): pods for prompts and pods for answers, and how they find each other."""

import json
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.planning import Verdict
from ml_foundations.planning.rules.network import Network, Pods
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec

from tests.factories import node
from tests.support.parts import manifest_of
from tests.support.refusing import Refused, refusal, refused
from tests.workloads.building import FABRICS, service_spec

DIVIDED: dict[str, Any] = {
    "gpus": 8,
    "gpu": "H100",
    "port": 8000,
    "arguments": ["--model=m", "-tp=8"],
    "prefill": {"replicas": 2, "gpus": 4, "arguments": ["--model=m", "-tp=4"]},
}
GROUPS = {"nodes": 2, "arguments": ["-tp=8", "-pp=2"], "prefill": {"replicas": 2}}


def made(**more: Any) -> dict[tuple[str, str], dict[str, Any]]:
    manifests = service_spec(**DIVIDED | more).manifests()
    return {(each["kind"], each["metadata"]["name"]): each for each in manifests}


def templates(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    objects = made(**more)
    decode, prefill = (objects["Deployment", name] for name in ("chat", "chat-prefill"))
    return decode["spec"]["template"], prefill["spec"]["template"]


def main(template: dict[str, Any]) -> dict[str, Any]:
    return template["spec"]["containers"][0]


def transfer(container: dict[str, Any]) -> str:
    (text,) = (word for word in container["args"] if word.startswith("--kv-transfer-config="))
    config = json.loads(text.partition("=")[2])
    assert config["kv_connector"] == "NixlConnector"
    return config["kv_role"]


def test_each_role_has_its_own_pods() -> None:
    objects = made()
    decode, prefill = objects["Deployment", "chat"], objects["Deployment", "chat-prefill"]
    assert (decode["spec"]["replicas"], prefill["spec"]["replicas"]) == (1, 2)
    for own, other in ((decode, prefill), (prefill, decode)):
        assert selects(own["spec"]["selector"], own["spec"]["template"]["metadata"]["labels"])
        assert not selects(own["spec"]["selector"], other["spec"]["template"]["metadata"]["labels"])
    gpus = [main(each["spec"]["template"])["resources"]["requests"] for each in (decode, prefill)]
    assert [amounts["nvidia.com/gpu"] for amounts in gpus] == ["8", "4"]
    assert "--model=m" in main(prefill["spec"]["template"])["args"]


def test_the_sidecar_has_the_port_of_the_service_and_vllm_another() -> None:
    decode, prefill = templates()
    (sidecar,) = decode["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert {"--port=8000", "--vllm-port=8200", "--kv-connector=nixlv2"} <= {*sidecar["args"]}
    assert "--port=8200" in main(decode)["args"]
    assert main(decode)["ports"][0] == {"name": "http", "containerPort": 8200, "protocol": "TCP"}
    assert "initContainers" not in prefill["spec"]
    assert "--port=8000" in main(prefill)["args"]
    (port,) = made()["Service", "chat"]["spec"]["ports"]
    assert port["targetPort"] == 8000
    extra = made(ports=[{"name": "grpc", "port": 9000}])["Service", "chat"]["spec"]["ports"]
    assert [port["targetPort"] for port in extra] == [8000, "grpc"]


def test_caches_move_from_prefill_to_decode() -> None:
    decode, prefill = map(main, templates())
    assert (transfer(decode), transfer(prefill)) == ("kv_consumer", "kv_producer")
    for container in (decode, prefill):
        variables = {item["name"]: item for item in container["env"]}
        host = variables["VLLM_NIXL_SIDE_CHANNEL_HOST"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert host == "status.podIP"
        assert variables["VLLM_NIXL_SIDE_CHANNEL_PORT"]["value"] == "5600"
        assert int(variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]["value"]) > 90
        assert {"name": "nixl", "containerPort": 5600, "protocol": "TCP"} in container["ports"]


def test_requests_reach_decode_pods_and_the_picker_knows_both() -> None:
    spec = service_spec(**DIVIDED)
    decode, prefill = (template["metadata"]["labels"] for template in templates())
    service = {"matchLabels": manifest_of(spec, "Service")["spec"]["selector"]}
    assert (selects(service, decode), selects(service, prefill)) == (True, False)
    server = spec.model_server
    assert server["is_divided"]
    for labels in (decode, prefill):
        assert selects({"matchLabels": server["selector"]}, labels)
    monitor = made(monitoring="google")["PodMonitoring", "chat"]["spec"]
    assert selects(monitor["selector"], prefill)
    assert "is_divided" not in service_spec().model_server


def test_each_role_may_have_several_nodes() -> None:
    objects = made(**GROUPS | {"prefill": {"nodes": 2}})
    decode, prefill = (
        objects["LeaderWorkerSet", name]["spec"]["leaderWorkerTemplate"]
        for name in ("chat", "chat-prefill")
    )
    assert "initContainers" in decode["leaderTemplate"]["spec"]
    assert "initContainers" not in decode["workerTemplate"]["spec"]
    for group in (decode, prefill):
        serving = "llm-d.ai/inference-serving"
        assert group["leaderTemplate"]["metadata"]["labels"][serving] == "true"
        assert serving not in group["workerTemplate"]["metadata"]["labels"]
        args = main(group["workerTemplate"])["args"]
        assert transfer({"args": args}) and "--headless" in args
    # Prefill of one node needs sizes of one node.
    assert "prefill.arguments: tensor, pipeline and data" in refusal(made, **GROUPS)


def test_caches_move_by_rdma_also_between_single_nodes() -> None:
    fabric = {"gpu_fabric": FABRICS["rdma"] | {"gpus_per_node": 8}}
    whole = {"prefill": {"replicas": 2}}
    for template in templates(**fabric, **whole):
        assert "networking.gke.io/interfaces" in template["metadata"]["annotations"]
        # Each interface is in its own subnetwork, and UCX would only connect those of one.
        reachable = {"name": "UCX_IB_ROCE_REACHABILITY_MODE", "value": "all"}
        assert reachable in main(template)["env"]
    tcpxo = fabric | {"gpu_fabric": FABRICS["tcpxo"] | {"gpus_per_node": 8}}
    assert "annotations" not in templates(**tcpxo, **whole)[0]["metadata"]


def test_pods_with_some_gpus_of_a_node_move_caches_by_tcp_and_say_so() -> None:
    fabric = {"gpu_fabric": FABRICS["rdma"] | {"gpus_per_node": 8}}
    whole = [*service_spec(**DIVIDED | fabric | {"prefill": {"replicas": 2}}).warnings()]
    assert not [each for each in whole if "gpus is" in each]
    (warning,) = service_spec(**DIVIDED | fabric).warnings()
    assert "gpus is 4, and its nodes have 8: only pods of whole nodes" in warning


REFUSED: list[Refused] = [
    refused("arguments[0]: --port=8000 is set by prefill", arguments=["--port=8000"]),
    refused(
        "prefill.arguments[0]: --kv-transfer", prefill={"arguments": ["--kv-transfer-config={}"]}
    ),
    refused("port: http (8200) is taken: decode pods use 8200 (vLLM) and 5600 (nixl)", port=8200),
    refused("ports: x (5600) is taken", ports=[{"name": "x", "port": 5600}]),
    refused("arguments: tensor times pipeline parallel is 3 times 1", arguments=["-tp=3"]),
    refused(
        "prefill.arguments: tensor, pipeline and data parallel sizes are 8", prefill={"gpus": 4}
    ),
    refused("prefill.arguments: tensor times pipeline parallel is 8 times 1", prefill={"nodes": 2}),
    refused("command: is a script", command=["sh", "-c", "vllm serve"]),
    refused("prefill.gpus: claims other devices than gpus", gpu_claim={}),
    refused(
        "launcher: is none, and prefill needs arguments of vLLM",
        nodes=2,
        launcher="none",
        arguments=[],
        prefill={"arguments": []},
    ),
]


@pytest.mark.parametrize(("more", "reasons"), REFUSED)
def test_what_cannot_work_is_refused(more: dict[str, Any], reasons: tuple[str, ...]) -> None:
    message = refusal(made, **more)
    assert [message.count(reason) for reason in reasons] == [1], message


@pytest.mark.parametrize(
    "more",
    [
        {"arguments": ["-tp=2", "--data-parallel-size=4"]},
        {"ports": [{"name": "x", "port": 5601}]},
        {"gpu_claim": {}, "prefill": {"replicas": 2}},
    ],
)
def test_what_works_is_accepted(more: dict[str, Any]) -> None:
    assert made(**more)


@pytest.mark.parametrize(("free", "verdict"), [(3, Verdict.FITS), (2, Verdict.CANNOT_FIT)])
def test_the_pods_of_both_roles_need_gpus(free: int, verdict: Verdict) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    nodes = [node(f"n{index}", labels, cpu="200", memory="2000Gi", gpu=8) for index in range(free)]
    manifests = service_spec(**DIVIDED | {"prefill": {"replicas": 2}}).manifests()
    found = judge_documents([*manifests, *nodes])
    assert found.stack is verdict
    assert "inference-pool" in {each.rule for each in found.findings}, "nobody sends them prompts"


def test_a_team_lets_decode_reach_prefill() -> None:
    team = {"namespace": "ml", "gpus": 8, "cpu": "64", "memory": "1Ti", "storage": "1Ti"}
    policies = check(TeamNamespaceSpec, "team", team).manifests()
    network = Network([*policies, *service_spec(**DIVIDED, callers=["web"]).manifests()])
    decode, prefill = (
        Pods("ml", template["metadata"]["labels"], spec=template["spec"])
        for template in templates()
    )
    for port in (8000, 5600):
        assert network.allows("egress", decode, prefill, port)
        assert network.allows("ingress", prefill, decode, port)
    web = Pods("web", {})
    assert network.allows("ingress", decode, web, 8000)
    assert not network.allows("ingress", decode, web, 8200)
