"""The GPU Operator: one driver and one advertiser in every mode, and values that the chart has."""

from typing import Any

import pulumi
import pytest
from ml_foundations import GpuOperator
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.component.spec import check
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR, driver_installer_manifest
from ml_foundations.gpu.operator import GpuOperatorSpec
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys

from tests.support.cluster import Cluster
from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of, values_of

MODES = ("operator", "cos", "ubuntu", "gke")
TOLERATIONS: Any = [{"key": "team", "operator": "Equal", "value": "ml"}]
SHARING: Any = {
    "sharing": {"four": {"replicas": 4}, "mps": {"replicas": 8, "strategy": "mps"}},
    "default_sharing": "four",
}
EVERYTHING: dict[str, Any] = {
    "tolerations": TOLERATIONS,
    "dcgm_exporter": {"service_monitor": True, "interval": "30s", "pod_labels": True},
    "node_feature_discovery": False,
    "feature_discovery": False,
    "validate_with_workload": False,
    "critical_pods": 500,
    "values": {"operator": {"logging": {"level": "debug"}}, "toolkit": {"version": "v1.20.0"}},
}
PARTITIONED: dict[str, Any] = {
    "device_plugin": SHARING,
    "mig": {"strategy": "mixed", "config": "partitionings", "default": "all-1g.5gb"},
}
DRIVER: dict[str, Any] = {
    "driver": {
        "version": "595.91.07",
        "kernel_modules": "open",
        "precompiled": True,
        "rdma": True,
        "auto_upgrade": False,
        "parallel_upgrades": 4,
    }
}


NO_WAY_AROUND = [
    {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}
]
"""Without it, a variable of a pod gives it GPUs that it does not request."""


def spec_of(**given: Any) -> GpuOperatorSpec:
    return check(GpuOperatorSpec, "GpuOperator", given)


@pytest.mark.parametrize("mode", MODES)
def test_every_value_is_a_key_of_the_chart(mode: str) -> None:
    given = (
        EVERYTHING | (PARTITIONED if mode != "gke" else {}) | (DRIVER if mode == "operator" else {})
    )
    assert not list(unknown_keys("gpu-operator", values_of(spec_of(mode=mode, **given))))
    assert not list(unknown_keys("gpu-operator", values_of(spec_of(mode=mode))))


def test_a_value_that_the_chart_does_not_have_is_found() -> None:
    assert list(unknown_keys("gpu-operator", values_of(spec_of(values={"cdi": {"default": True}}))))


@pytest.mark.parametrize("mode", MODES)
def test_gpus_have_one_driver_and_one_advertiser(mode: str) -> None:
    values = values_of(spec_of(mode=mode))
    installers = [
        name
        for name in declared(lambda: GpuOperator("x", {"mode": mode}))
        if "driver-installer" in name
    ]
    by_gke = mode == "gke"
    assert values["driver"]["enabled"] + len(installers) + by_gke == 1
    assert values["devicePlugin"]["enabled"] + by_gke == 1


@pytest.mark.parametrize("mode", ["cos", "ubuntu", "gke"])
def test_beside_googles_driver_the_operator_is_told_where_it_is(mode: str) -> None:
    values = values_of(spec_of(mode=mode))
    assert values["hostPaths"] == {"driverInstallDir": GOOGLE_DRIVER_DIR}
    assert values["toolkit"]["installDir"] == GOOGLE_DRIVER_DIR
    assert values["cdi"] == {"enabled": True}


@pytest.mark.parametrize("mode", MODES)
def test_toolkit_reads_the_file_in_every_mode(mode: str) -> None:
    toolkit = values_of(spec_of(mode=mode))["toolkit"]
    assert toolkit["env"] == [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}, *NO_WAY_AROUND]


def test_its_own_driver_is_where_the_chart_says() -> None:
    values = values_of(spec_of(mode="operator", **DRIVER))
    assert "hostPaths" not in values
    assert values["toolkit"].keys() == {"enabled", "env"}
    assert values["driver"] == {
        "enabled": True,
        "version": "595.91.07",
        "kernelModuleType": "open",
        "usePrecompiled": True,
        "rdma": {"enabled": True},
        "upgradePolicy": {"autoUpgrade": False, "maxParallelUpgrades": 4},
    }


def test_tolerations_reach_every_pod_on_gpu_nodes() -> None:
    values = values_of(spec_of(tolerations=TOLERATIONS))
    for found in (
        values["daemonsets"]["tolerations"],
        values["node-feature-discovery"]["worker"]["tolerations"],
    ):
        assert [toleration["key"] for toleration in found] == ["nvidia.com/gpu", "team"]


def test_the_users_values_win() -> None:
    values = values_of(spec_of(values={"driver": {"version": "1"}, "gfd": {"enabled": False}}))
    assert (values["driver"]["version"], values["driver"]["enabled"], values["gfd"]) == (
        "1",
        True,
        {"enabled": False},
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "driver beside Google's": (
        {"mode": "cos", "driver": {}},
        "driver: is the operator's, but the mode cos installs Google's",
    ),
    "two advertisers": (
        {"mode": "gke", "device_plugin": {"enabled": True}},
        "device_plugin: in the mode gke, GKE's device plugin",
    ),
    "two advertisers by a value": (
        {"mode": "gke", "values": {"devicePlugin": {"enabled": True}}},
        "values: devicePlugin.enabled is true",
    ),
    "sharing by both": ({"mode": "gke", "device_plugin": SHARING}, "set it on the node pool"),
    "MIG by both": ({"mode": "gke", "mig": {}}, "mig: it partitions GPUs"),
    "two drivers by a value": (
        {"mode": "ubuntu", "values": {"driver": {"enabled": True}}},
        "values: driver.enabled is true, but in the mode ubuntu",
    ),
    "unknown default": (
        {"device_plugin": {"default_sharing": "x"}},
        'device_plugin.default_sharing: is "x"',
    ),
    "shared by nobody": (
        {"device_plugin": {"enabled": False, "sharing": {"a": {"replicas": 2}}}},
        "device_plugin.sharing: is done by the device plugin",
    ),
    "one client": (
        {"device_plugin": {"sharing": {"a": {"replicas": 1}}}},
        "replicas: input should be greater",
    ),
    "monitor of nothing": (
        {"dcgm_exporter": {"enabled": False, "service_monitor": True}},
        "dcgm_exporter.service_monitor: is for the exporter",
    ),
    "NRI without CDI": (
        {"values": {"cdi": {"enabled": False, "nriPluginEnabled": True}}},
        "cdi.nriPluginEnabled needs cdi.enabled",
    ),
    "NRI without toolkit": (
        {"toolkit": False, "values": {"cdi": {"nriPluginEnabled": True}}},
        "cdi.nriPluginEnabled needs toolkit.enabled",
    ),
    "config without a name": (
        {"values": {"devicePlugin": {"config": {"create": True, "data": {"a": "b"}}}}},
        "devicePlugin.config.create needs devicePlugin.config.name",
    ),
    "config without data": (
        {"values": {"devicePlugin": {"config": {"create": True, "name": "x"}}}},
        "devicePlugin.config.create needs devicePlugin.config.data",
    ),
    "both custom resources": (
        {"values": {"gpuCluster": {"deployCR": True}}},
        "gpuCluster.deployCR needs clusterPolicy.deployCR: false",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(case: str) -> None:
    given, reason = REFUSED[case]
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec_of(**given)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"cdi": {"nriPluginEnabled": True}},
        {"devicePlugin": {"config": {"create": True, "name": "x", "data": {"a": "b"}}}},
        {"gpuCluster": {"deployCR": True}, "clusterPolicy": {"deployCR": False}},
        {"cdi": {"nriPluginEnabled": True}, "toolkit": pulumi.Output.from_input({"enabled": True})},
    ],
)
def test_values_that_go_together_are_allowed(values: dict[str, Any]) -> None:
    assert spec_of(values=values).chart_values


def test_the_rehearsal_reads_the_sharing_that_we_write() -> None:
    operator = Operator.of(values_of(spec_of(device_plugin=SHARING)))
    assert operator.advertised(2, "ubuntu", {}) == 8
    assert operator.advertised(2, "ubuntu", {"nvidia.com/device-plugin.config": "mps"}) == 16
    assert operator.sharing_of({"nvidia.com/device-plugin.config": "mps"}).strategy == "mps"
    assert operator.advertised(2, "ubuntu", {"nvidia.com/gpu.deploy.device-plugin": "false"}) == 0


def test_a_simulated_node_without_a_driver_has_no_gpus() -> None:
    operator = Operator.of(values_of(spec_of(mode="cos")))
    assert operator.advertised(2, "cos", {}) == 0
    assert (
        operator.with_daemon_sets([driver_installer_manifest("cos")]).advertised(2, "cos", {}) == 2
    )
    assert Operator.of(values_of(spec_of(mode="operator"))).advertised(2, "cos", {}) == 0


def test_the_release_comes_after_quota_and_driver() -> None:
    requests = declared(lambda: GpuOperator("x", {"mode": "cos", "namespace": "gpus"}))
    after = {urn.rpartition("::")[2] for urn in requests["x-release"].dependencies}
    assert {"x-critical-pods", "x-driver-installer"} <= after
    release = inputs(requests["x-release"])
    assert (release["namespace"], release["version"], release["timeout"]) == (
        "gpus",
        "v26.7.0",
        900,
    )
    assert inputs(requests["x-driver-installer"])["metadata"]["namespace"] == "kube-system"


@pytest.mark.parametrize("image", ["cos", "ubuntu"])
def test_the_installer_runs_on_driverless_gpu_nodes_only(image: Any) -> None:
    spec = driver_installer_manifest(image)["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [
        {
            "matchExpressions": [
                {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"},
                {"key": "cloud.google.com/gke-gpu-driver-version", "operator": "DoesNotExist"},
                {
                    "key": "cloud.google.com/gke-os-distribution",
                    "operator": "In",
                    "values": [image],
                },
            ]
        }
    ]


@pytest.mark.parametrize("image", ["cos", "ubuntu"])
def test_the_api_server_takes_the_installer(cluster: Cluster, image: Any) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All&fieldValidation=Strict"
    Api(Access(cluster.kubeconfig)).create(path, driver_installer_manifest(image))


def test_the_api_server_takes_namespace_and_quota(cluster: Cluster) -> None:
    api, spec = Api(Access(cluster.kubeconfig)), spec_of()
    api.create("/api/v1/namespaces?fieldValidation=Strict", manifest_of(spec, "Namespace"))
    api.create(
        "/api/v1/namespaces/gpu-operator/resourcequotas?fieldValidation=Strict",
        manifest_of(spec, "ResourceQuota"),
    )
    api.delete("/api/v1/namespaces/gpu-operator")
