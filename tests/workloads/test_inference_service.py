"""InferenceService: what it makes, what it refuses, and manifests that people really use, made with it."""

from typing import Any

import pytest
from ml_foundations import InferenceService

from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of
from tests.support.refusing import Refused, refusal, refused
from tests.workloads.building import WORKLOAD
from tests.workloads.building import service_spec as spec


def deployment(**more: Any) -> dict[str, Any]:
    return manifest_of(spec(**more), "Deployment")


def pod(**more: Any) -> dict[str, Any]:
    return deployment(**more)["spec"]["template"]["spec"]


def container(**more: Any) -> dict[str, Any]:
    return pod(**more)["containers"][0]


def children(**more: Any) -> dict[str, Any]:
    args: Any = WORKLOAD | more
    found = declared(lambda: InferenceService("chat", args))
    return {name.removeprefix("chat-"): request for name, request in found.items()}


def test_an_api_key_is_random_and_comes_from_a_secret() -> None:
    found = children(api_key_env="VLLM_API_KEY")
    assert found["api-key"].type == "random:index/randomPassword:RandomPassword"
    assert inputs(found["api-key"]) == {"length": 32, "special": False}
    secret = inputs(found["api-key-secret"])
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "chat-api-key")
    assert {"data", "stringData"} <= set(found["api-key-secret"].additionalSecretOutputs)
    main = inputs(found["deployment"])["spec"]["template"]["spec"]["containers"][0]
    (variable,) = [each for each in main["env"] if each["name"] == "VLLM_API_KEY"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "chat-api-key", "key": "key"}}
    # Health is asked without a key.
    assert "httpHeaders" not in str(main["readinessProbe"])


def test_without_an_api_key_nothing_is_made_for_it() -> None:
    assert not {"api-key", "api-key-secret"} & children().keys()


def test_its_model_is_an_annotation() -> None:
    server = deployment(model="models/mine", annotations={"team": "a"})
    annotations = server["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"ml-foundations/model": "models/mine", "team": "a"}
    groups = manifest_of(spec(model="models/mine", nodes=2, launcher="none"), "LeaderWorkerSet")
    for role in ("leaderTemplate", "workerTemplate"):
        metadata = groups["spec"]["leaderWorkerTemplate"][role]["metadata"]
        assert metadata["annotations"]["ml-foundations/model"] == "models/mine"


WRONG: list[Refused] = [
    refused(
        "\n  grace_seconds: is 45, and a pod needs 45 to stop", "drain_seconds 30", grace_seconds=45
    ),
    refused("model: must be a name in the catalog", model="/models/mine"),
    refused("replicas: is 0, but autoscaling and several nodes need 1", replicas=0, nodes=2),
    refused(
        "replicas: is 0, but autoscaling and several nodes need 1",
        replicas=0,
        autoscaling={"max_replicas": 3, "cpu_percent": 80},
    ),
    refused("grace_seconds: is 60, and a pod needs 615", drain_seconds=600),
    refused(
        "progress_seconds: is 600, but the model may load for 601 s",
        load_seconds=601,
        progress_seconds=600,
    ),
    refused("timeout_seconds: is 1799, but a rollout may pause for 1800 s", timeout_seconds=1799),
    refused(
        "2 invalid arguments",
        "\n  progress_seconds:",
        "\n  grace_seconds:",
        load_seconds=900,
        progress_seconds=60,
        grace_seconds=5,
    ),
    refused(
        "\n  autoscaling.metric: is required: set cpu_percent, or metric",
        autoscaling={"max_replicas": 3},
    ),
    refused(
        "\n  autoscaling.target: metric and target go together",
        autoscaling={"max_replicas": 3, "metric": "queue"},
    ),
    refused(
        "\n  autoscaling.target: metric and target go together",
        autoscaling={"max_replicas": 3, "cpu_percent": 80, "target": 5},
    ),
    refused(
        "\n  autoscaling: max_replicas is 3, below replicas (4)",
        replicas=4,
        autoscaling={"max_replicas": 3, "cpu_percent": 80},
    ),
    refused(
        "\n  api_key_env: KEY is also a variable that you set", api_key_env="KEY", env={"KEY": "a"}
    ),
    refused("\n  ports[0]: http (9000) is taken", ports=[{"name": "http", "port": 9000}]),
    refused("\n  ports[0]: grpc (8080) is taken", ports=[{"name": "grpc", "port": 8080}]),
    refused(
        "ports[0].name", "15 are allowed", ports=[{"name": "far-too-long-for-a-port", "port": 1}]
    ),
    refused(
        '\n  metrics_port: there is no port "metrics". Known: http',
        monitoring="google",
        metrics_port="metrics",
    ),
    refused("spread", "'preferred', 'required' or 'none'", spread="zone"),
    refused(
        "\n  overrides.Deploymnt: is not a kind that is created",
        "Deployment, Service",
        overrides={"Deploymnt": {}},
    ),
    refused(
        "\n  overrides.NetworkPolicy: is not a kind that is created",
        overrides={"NetworkPolicy": {}},
    ),
    refused("callers[0]", "lower case", callers=["Web"]),
    refused(
        '\n  services[0].ports.grpc: there is no port "grpc". Known: http',
        services=[{"name": "x", "ports": {"grpc": 1}}],
    ),
    refused(
        "services[0].headless",
        "not NodePort",
        services=[{"name": "x", "headless": True, "type": "NodePort"}],
    ),
    refused("\n  services[0].name: chat is taken", services=[{"name": "chat"}]),
]


@pytest.mark.parametrize(("more", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_right_is_refused_at_preview(
    more: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = refusal(spec, **more)
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    "more",
    [
        {"load_seconds": 600, "progress_seconds": 600},
        {"timeout_seconds": 1800},
        {"replicas": 3, "autoscaling": {"max_replicas": 3, "cpu_percent": 80}},
    ],
    ids=str,
)
def test_arguments_within_the_rules_are_accepted(more: dict[str, Any]) -> None:
    spec(**more)


@pytest.mark.parametrize("load", [1, 10, 605, 7201])
@pytest.mark.parametrize("replicas", [0, 1, 2, 9])
@pytest.mark.parametrize("surge", [True, False])
def test_a_rollout_fails_after_the_load_time(load: int, replicas: int, surge: bool) -> None:
    made = children(load_seconds=load, replicas=replicas, surge=surge)["deployment"]
    found = inputs(made)["spec"]
    probe = found["template"]["spec"]["containers"][0]["startupProbe"]
    startup = probe["periodSeconds"] * probe["failureThreshold"]
    waits = int(made.customTimeouts.update.removesuffix("s"))
    assert startup >= max(load, 3600)
    assert load + 1200 <= found["progressDeadlineSeconds"] < waits, (
        "the node, its driver and the image come first"
    )
    assert waits >= replicas * load
    assert made.customTimeouts.create == made.customTimeouts.update


def test_deleting_waits_longer_than_pods_may_take_to_end() -> None:
    made = children(grace_seconds=900)["deployment"]
    assert int(made.customTimeouts.delete.removesuffix("s")) > 900


def test_probes_wait_for_the_model_and_forgive_a_busy_server() -> None:
    found = container(load_seconds=605, health_path="/v2/health/ready", live_path="/v2/health/live")
    ready = {"httpGet": {"path": "/v2/health/ready", "port": "http"}, "timeoutSeconds": 5}
    live = {"httpGet": {"path": "/v2/health/live", "port": "http"}, "timeoutSeconds": 5}
    assert found["startupProbe"] == ready | {"periodSeconds": 10, "failureThreshold": 360}
    assert found["readinessProbe"] == ready | {"periodSeconds": 5, "failureThreshold": 3}
    assert found["livenessProbe"] == live | {"periodSeconds": 10, "failureThreshold": 10}
    assert container(health_path="tcp")["readinessProbe"]["tcpSocket"] == {"port": "http"}


def test_a_stopping_pod_serves_until_all_know_and_then_drains() -> None:
    found = pod(deregister_seconds=30, drain_seconds=90, grace_seconds=130)
    assert found["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 30}}}
    assert found["terminationGracePeriodSeconds"] == 130
    assert "lifecycle" not in container(deregister_seconds=0)


def rolling(surge: int, unavailable: int) -> dict[str, Any]:
    rollout = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": rollout}


@pytest.mark.parametrize(
    ("more", "strategy"),
    [
        ({}, {"type": "Recreate"}),
        ({"replicas": 3}, rolling(0, 1)),
        ({"replicas": 9, "max_unavailable": 3}, rolling(0, 3)),
        ({"autoscaling": {"max_replicas": 2, "cpu_percent": 80}}, rolling(0, 1)),
        ({"surge": True}, rolling(1, 0)),
    ],
)
def test_a_rollout_needs_a_spare_gpu_only_if_configured(
    more: dict[str, Any], strategy: dict[str, Any]
) -> None:
    assert deployment(**more)["spec"]["strategy"] == strategy
    # Under a new name, old and new are two Deployments: the same holds for them.
    assert children(**more)["deployment"].deleteBeforeReplace is not more.get("surge", False)


def test_the_autoscaler_alone_sets_the_number_of_pods() -> None:
    scaling = {"max_replicas": 8, "metric": "vllm_num_requests_waiting", "target": "5"}
    made = children(replicas=2, autoscaling=scaling)
    assert list(made["deployment"].ignoreChanges) == ["spec.replicas"]
    assert inputs(made["deployment"])["spec"]["replicas"] == 2, (
        "without a number, a new Deployment starts with one pod"
    )
    found = inputs(made["autoscaler"])["spec"]
    assert (found["minReplicas"], found["maxReplicas"]) == (2, 8)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    assert found["scaleTargetRef"] == target
    assert found["behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 300}}
    assert not children(replicas=2)["deployment"].ignoreChanges


def test_scaling_leaves_the_pods_as_they_are() -> None:
    one, many = (deployment(replicas=count)["spec"]["template"] for count in (1, 5))
    assert one == many


def test_pods_spread_over_zones_and_nodes_for_each_rollout() -> None:
    found = pod()["topologySpreadConstraints"]
    keys = [item["topologyKey"] for item in found]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert {item["whenUnsatisfiable"] for item in found} == {"ScheduleAnyway"}
    assert all(item["matchLabelKeys"] == ["pod-template-hash"] for item in found)
    required = pod(spread="required")["topologySpreadConstraints"]
    assert {item["whenUnsatisfiable"] for item in required} == {"DoNotSchedule"}
    assert "topologySpreadConstraints" not in pod(spread="none")


def test_a_drain_ignores_pods_that_are_not_ready() -> None:
    found = inputs(children(max_unavailable=2, replicas=4)["disruption-budget"])["spec"]
    assert found == {
        "maxUnavailable": 2,
        "selector": {"matchLabels": {"app.kubernetes.io/name": "chat"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert "disruption-budget" not in children(disruption_budget=False)


def test_only_named_callers_reach_the_declared_ports() -> None:
    made = children(callers=["web"], ports=[{"name": "grpc", "port": 9000}])
    rules = inputs(made["network-policy"])["spec"]["ingress"]
    assert rules[0] == {
        "from": [
            {"podSelector": {}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}},
        ],
        "ports": [{"port": 8080, "protocol": "TCP"}, {"port": 9000, "protocol": "TCP"}],
    }
    assert "network-policy" not in children()


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("google", "kubernetes:monitoring.googleapis.com/v1:PodMonitoring"),
        ("prometheus", "kubernetes:monitoring.coreos.com/v1:ServiceMonitor"),
    ],
)
def test_one_switch_tells_the_monitoring_system(system: str, kind: str) -> None:
    made = children(
        monitoring=system, ports=[{"name": "metrics", "port": 8002}], metrics_port="metrics"
    )
    assert made["monitoring"].type == kind
    found = inputs(made["monitoring"])["spec"]
    assert found["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "30s"}]
    # A ServiceMonitor selects the Service by its labels, a PodMonitoring the pods by theirs.
    labels = found["selector"]["matchLabels"].items()
    assert labels <= inputs(made["service"])["metadata"]["labels"].items()
    assert labels <= inputs(made["deployment"])["spec"]["template"]["metadata"]["labels"].items()
    assert "monitoring" not in children()


def test_a_service_named_like_the_server_adds_no_variables() -> None:
    """A Service named vllm would set VLLM_PORT, which the server takes for its own setting."""
    assert pod(service_name="vllm")["enableServiceLinks"] is False


def test_overrides_are_applied_last_and_null_removes_a_field() -> None:
    own = {
        "name": "main",
        "imagePullPolicy": "Always",
        "startupProbe": None,
        "livenessProbe": {"httpGet": None, "exec": {"command": ["true"]}},
    }
    overrides = {"spec": {"minReadySeconds": 30, "strategy": {"rollingUpdate": None}}}
    found = deployment(
        pod_overrides={"priorityClassName": "serving", "containers": [own]},
        overrides={"Deployment": overrides},
    )["spec"]
    main = found["template"]["spec"]["containers"][0]
    assert main["imagePullPolicy"] == "Always"
    assert "startupProbe" not in main
    assert "httpGet" not in main["livenessProbe"]
    assert found["template"]["spec"]["priorityClassName"] == "serving"
    assert found["minReadySeconds"] == 30
    balanced = spec(overrides={"Service": {"spec": {"type": "LoadBalancer"}}})
    assert manifest_of(balanced, "Service")["spec"]["type"] == "LoadBalancer"


def test_an_autoscaler_finds_a_deployment_of_another_name() -> None:
    made = children(deployment_name="chat-v2", autoscaling={"max_replicas": 2, "cpu_percent": 80})
    assert inputs(made["deployment"])["metadata"]["name"] == "chat-v2"
    assert inputs(made["autoscaler"])["spec"]["scaleTargetRef"]["name"] == "chat-v2"
    assert inputs(made["service"])["metadata"]["name"] == "chat"


def test_gke_reads_the_metric_from_the_pods() -> None:
    name, metric = "vllm-num-requests-waiting", "vllm:num_requests_waiting"
    scaling = {"max_replicas": 4, "metric": metric, "target": "5", "served_by": "gke"}
    made = children(autoscaling=scaling)
    read = inputs(made["autoscaling-metric"])["spec"]["metrics"][0]["pod"]
    gauge = {"name": name, "prometheusMetricName": metric}
    assert read["containers"] == [
        {"endpoint": {"port": 8080, "path": "/metrics"}, "metrics": [{"gauge": gauge}]}
    ]
    labels = inputs(made["deployment"])["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= read["selector"]["matchLabels"].items()
    assert not any(set(name) & set("./") for name in read["selector"]["matchLabels"]), (
        "GKE takes no such label"
    )
    (source,) = inputs(made["autoscaler"])["spec"]["metrics"]
    assert source["pods"]["metric"]["name"] == f"autoscaling.gke.io|chat|{name}"
    by_cpu = {"max_replicas": 4, "cpu_percent": 80, "served_by": "gke"}
    message = refusal(spec, autoscaling=by_cpu)
    assert "autoscaling.served_by: names who serves the metric" in message


def test_a_server_may_have_other_services_or_none() -> None:
    internal = {
        "name": "chat-internal",
        "type": "LoadBalancer",
        "ports": {"http": 443},
        "annotations": {"networking.gke.io/load-balancer-type": "Internal"},
    }
    made = children(service=False, services=[internal, {"name": "chat-peers", "headless": True}])
    assert "service" not in made
    balancer = inputs(made["service-chat-internal"])
    assert balancer["metadata"]["annotations"]["networking.gke.io/load-balancer-type"] == "Internal"
    assert balancer["spec"]["type"] == "LoadBalancer"
    assert balancer["spec"]["ports"] == [
        {"name": "http", "port": 443, "targetPort": "http", "protocol": "TCP"}
    ]
    assert inputs(made["service-chat-peers"])["spec"]["clusterIP"] == "None"
    assert spec(service=False).url == ""


@pytest.mark.parametrize(
    ("given", "needs_key"),
    [
        ({}, False),
        ({"api_key_env": "VLLM_API_KEY"}, True),
        ({"secret_env": {"VLLM_API_KEY": {"name": "keys", "key": "vllm"}}}, True),
    ],
)
def test_a_gateway_knows_whether_a_server_needs_a_key(
    given: dict[str, Any], needs_key: bool
) -> None:
    assert spec(**given).model_server.get("needs_key", False) == needs_key
