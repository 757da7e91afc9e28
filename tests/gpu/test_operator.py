"""The GPU Operator: one driver and one advertiser in every mode, and values that the chart has."""

from typing import Any

import pulumi
import pytest
import yaml
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
from tests.support.refusing import assert_refused

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
DRIVER: dict[str, Any] = yaml.safe_load("""
    driver:
      version: 595.91.07
      kernel_modules: open
      precompiled: true
      rdma: true
      auto_upgrade: false
      parallel_upgrades: 4
""")
NO_WAY_AROUND = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
"""Without it, a variable of a pod gives it GPUs that it does not request."""


def spec_of(**given: Any) -> GpuOperatorSpec:
    return check(GpuOperatorSpec, "GpuOperator", given)


@pytest.mark.parametrize("mode", MODES)
def test_every_value_is_a_key_of_the_chart(mode: str) -> None:
    partitioned = PARTITIONED if mode != "gke" else {}
    given = EVERYTHING | partitioned | (DRIVER if mode == "operator" else {})
    for each in (given, {}):
        assert not list(unknown_keys("gpu-operator", values_of(spec_of(mode=mode, **each))))


def test_a_value_that_the_chart_does_not_have_is_found() -> None:
    assert list(unknown_keys("gpu-operator", values_of(spec_of(values={"cdi": {"default": True}}))))


@pytest.mark.parametrize("mode", MODES)
def test_gpus_have_one_driver_and_one_advertiser(mode: str) -> None:
    values, by_gke = values_of(spec_of(mode=mode)), mode == "gke"
    children = declared(lambda: GpuOperator("x", {"mode": mode}))
    installers = [name for name in children if "driver-installer" in name]
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
    env = {"RUNTIME_CONFIG_SOURCE": "file", NO_WAY_AROUND: "false"}
    toolkit = values_of(spec_of(mode=mode))["toolkit"]
    assert toolkit["env"] == [{"name": name, "value": value} for name, value in env.items()]


def test_its_own_driver_is_where_the_chart_says() -> None:
    values = values_of(spec_of(mode="operator", **DRIVER))
    assert "hostPaths" not in values
    assert values["toolkit"].keys() == {"enabled", "env"}
    assert values["driver"] == yaml.safe_load("""
        enabled: true
        version: 595.91.07
        kernelModuleType: open
        usePrecompiled: true
        rdma: {enabled: true}
        upgradePolicy: {autoUpgrade: false, maxParallelUpgrades: 4}
    """)


def test_tolerations_reach_every_pod_on_gpu_nodes() -> None:
    values = values_of(spec_of(tolerations=TOLERATIONS))
    for pods in (values["daemonsets"], values["node-feature-discovery"]["worker"]):
        assert [each["key"] for each in pods["tolerations"]] == ["nvidia.com/gpu", "team"]


def test_the_users_values_win() -> None:
    values = values_of(spec_of(values={"driver": {"version": "1"}, "gfd": {"enabled": False}}))
    assert values["driver"].items() >= {"version": "1", "enabled": True}.items()
    assert values["gfd"] == {"enabled": False}


def plugin_config(**config: Any) -> dict[str, Any]:
    return {"values": {"devicePlugin": {"config": {"create": True, **config}}}}


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
        plugin_config(data={"a": "b"}),
        "devicePlugin.config.create needs devicePlugin.config.name",
    ),
    "config without data": (
        plugin_config(name="x"),
        "devicePlugin.config.create needs devicePlugin.config.data",
    ),
    "both custom resources": (
        {"values": {"gpuCluster": {"deployCR": True}}},
        "gpuCluster.deployCR needs clusterPolicy.deployCR: false",
    ),
}


@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    assert_refused(GpuOperatorSpec, given, reason)


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
    operator, mps = Operator.of(values_of(spec_of(device_plugin=SHARING))), {CONFIG: "mps"}
    assert operator.advertised(2, "ubuntu", {}) == 8
    assert operator.advertised(2, "ubuntu", mps) == 16
    assert operator.sharing_of(mps).strategy == "mps"
    assert operator.advertised(2, "ubuntu", {"nvidia.com/gpu.deploy.device-plugin": "false"}) == 0


CONFIG = "nvidia.com/device-plugin.config"


def test_a_simulated_node_without_a_driver_has_no_gpus() -> None:
    operator = Operator.of(values_of(spec_of(mode="cos")))
    installed = operator.with_daemon_sets([driver_installer_manifest("cos")])
    assert operator.advertised(2, "cos", {}) == 0
    assert installed.advertised(2, "cos", {}) == 2
    assert Operator.of(values_of(spec_of(mode="operator"))).advertised(2, "cos", {}) == 0


def test_the_release_comes_after_quota_and_driver() -> None:
    requests = declared(lambda: GpuOperator("x", {"mode": "cos", "namespace": "gpus"}))
    after = {urn.rpartition("::")[2] for urn in requests["x-release"].dependencies}
    assert {"x-critical-pods", "x-driver-installer"} <= after
    expected = {"namespace": "gpus", "version": "v26.7.0", "timeout": 900}
    assert inputs(requests["x-release"]).items() >= expected.items()
    assert inputs(requests["x-driver-installer"])["metadata"]["namespace"] == "kube-system"


@pytest.mark.parametrize("image", ["cos", "ubuntu"])
def test_the_installer_runs_on_driverless_gpu_nodes_only(image: Any) -> None:
    affinity = driver_installer_manifest(image)["spec"]["template"]["spec"]["affinity"]
    assert affinity["nodeAffinity"] == yaml.safe_load(f"""
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
            - matchExpressions:
                - {{key: cloud.google.com/gke-accelerator, operator: Exists}}
                - {{key: cloud.google.com/gke-gpu-driver-version, operator: DoesNotExist}}
                - {{key: cloud.google.com/gke-os-distribution, operator: In, values: [{image}]}}
    """)


@pytest.mark.parametrize("image", ["cos", "ubuntu"])
def test_the_api_server_takes_the_installer(cluster: Cluster, image: Any) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All&fieldValidation=Strict"
    Api(Access(cluster.kubeconfig)).create(path, driver_installer_manifest(image))


def test_the_api_server_takes_namespace_and_quota(cluster: Cluster) -> None:
    api, spec, path = Api(Access(cluster.kubeconfig)), spec_of(), "/api/v1/namespaces"
    strict = "?fieldValidation=Strict"
    api.create(f"{path}{strict}", manifest_of(spec, "Namespace"))
    quota = manifest_of(spec, "ResourceQuota")
    api.create(f"{path}/gpu-operator/resourcequotas{strict}", quota)
    api.delete(f"{path}/gpu-operator")
