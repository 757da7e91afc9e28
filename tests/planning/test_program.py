"""A program's resources as nodes and objects: clusters in all their forms, and what is not known."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from ml_foundations.component.spec import check
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.kubernetes.labels import DRA_POOL_LABELS
from ml_foundations.kubernetes.objects import RELEASE, api_object
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.input.program import (
    CLUSTER,
    CONNECTION,
    NAT,
    NETWORK,
    NODE_POOL,
    SUBNETWORK,
    Resource,
    named,
    nodes_of,
)
from ml_foundations.planning.verdict import program
from ml_foundations.planning.verdict.report import as_text
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.storage.classes import StorageClassesSpec

from tests.factories import CANNOT, FITS, GPU, OPEN, container, deployment, job, template

A100 = {"type": "nvidia-tesla-a100", "count": 2}
LEFT_TO_OPERATOR = {
    "guestAccelerators": [
        A100 | {"gpuDriverInstallationConfig": {"gpuDriverVersion": "INSTALLATION_DISABLED"}}
    ],
    "labels": {"gke-no-default-nvidia-gpu-device-plugin": "true"},
}
TESLA = {"type": "nvidia-tesla-t4", "count": 1}
SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}}


def cluster(**inputs: Any) -> Resource:
    return CLUSTER, {
        "name": "c",
        "location": "us-central1-a",
        "removeDefaultNodePool": True,
        **inputs,
    }


def pool(machine: str = "n2-standard-8", nodes: Any = 1, **config: Any) -> Resource:
    inputs = {"name": "p", "location": "us-central1-a", "nodeCount": nodes}
    return NODE_POOL, inputs | {"nodeConfig": {"machineType": machine, **config}}


def judge_program(
    resources: list[Resource], existing: Sequence[Resource] = (), **more: Any
) -> Verdicts:
    """Judge a program that declares the namespace of its workloads, too."""
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    return program.judge_program([*resources, kubernetes(team)], existing, **more)


@pytest.mark.parametrize(
    "config", [{"sandboxConfig": {"sandboxType": "gvisor"}}, {"windowsNodeConfig": {}}], ids=str
)
def test_nodes_that_are_made_otherwise_are_not_known(config: dict[str, Any]) -> None:
    assert judge_program([cluster(), pool(**config), web(1)]).stack is Verdict.UNDETERMINED


def kubernetes(manifest: dict[str, Any]) -> Resource:
    return f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", manifest


def operator(**values: Any) -> list[Resource]:
    plugin = {"config": {"default": "all", "data": {"all": yaml.safe_dump(SHARED)}}}
    toolkit = {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]}
    chosen = {"devicePlugin": plugin, "toolkit": toolkit, **values}
    release = {"chart": "gpu-operator", "values": chosen}
    return [(RELEASE, release), kubernetes(driver_installer_manifest("cos"))]


def web(cpu: int) -> Resource:
    return kubernetes(deployment("web", 1, template(containers=[container(cpu=cpu)])))


def train(gpus: int) -> Resource:
    return kubernetes(job("train", 1, template(containers=[container(gpu=gpus)])))


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([cluster(), pool(), web(7)], FITS),
        ([cluster(), pool(), web(8)], CANNOT),
        ([cluster(), web(1)], CANNOT),
        ([cluster(removeDefaultNodePool=None), web(1)], CANNOT),  # an e2-medium has 940m
        (
            [
                cluster(removeDefaultNodePool=None, nodeConfig={"machineType": "n2-standard-8"}),
                web(7),
            ],
            FITS,
        ),
        ([cluster(nodePools=[pool()[1]]), web(7)], FITS),
        ([cluster(enableAutopilot=True), web(8)], OPEN),
        ([cluster(), cluster(), pool(), web(7)], OPEN),
        ([web(1)], OPEN),
        ([pool(), web(7)], FITS),
        ([pool(), web(8)], OPEN),
        ([cluster(), pool("n9-of-tomorrow"), web(1)], OPEN),
        ([cluster(), pool(nodes=UNKNOWN), web(1)], OPEN),
        ([cluster(), pool(), ("kubernetes:apps/v1:DeploymentPatch", web(8)[1])], OPEN),
    ],
)
def test_clusters_and_their_pools(resources: list[Resource], expected: Verdict) -> None:
    assert judge_program(resources).stack is expected


@pytest.mark.parametrize(
    ("resources", "existing", "expected"),
    [
        ([train(2)], [pool("a2-highgpu-2g")], FITS),
        ([train(3)], [pool("a2-highgpu-2g")], CANNOT),
        ([train(1)], [pool()], CANNOT),
        ([web(7)], [pool()], FITS),
        ([web(8)], [pool()], OPEN),
        ([cluster(), train(2)], [pool("a2-highgpu-2g")], CANNOT),
    ],
)
def test_pools_that_exist_are_all_that_have_gpus(
    resources: list[Resource], existing: list[Resource], expected: Verdict
) -> None:
    assert judge_program(resources, existing).stack is expected


ANYWHERE = {
    "topologyKey": "topology.kubernetes.io/zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"topologySpreadConstraints": [ANYWHERE]}, OPEN),
        ({"nodeSelector": {"topology.kubernetes.io/zone": "us-central1-a"}}, OPEN),
        ({"nodeSelector": {"topology.kubernetes.io/region": "us-central1"}}, OPEN),
        ({}, FITS),
    ],
)
def test_where_a_pool_that_exists_is_may_not_be_known(
    spec: dict[str, Any], expected: Verdict
) -> None:
    somewhere = (NODE_POOL, pool(nodes=3)[1] | {"location": ""})
    pods = kubernetes(deployment("web", 2, template(containers=[container(cpu=1)], **spec)))
    assert judge_program([pods], [somewhere]).stack is expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([train(8), *operator()], FITS),
        ([train(9), *operator()], CANNOT),
        ([train(1)], CANNOT),
        ([train(1), operator()[0]], CANNOT),
        ([train(1), *operator(driver={"version": UNKNOWN})], OPEN),
        ([train(1), *operator(daemonsets={"tolerations": []})], CANNOT),
    ],
    ids=[
        "shared by four",
        "not enough",
        "no operator",
        "no driver",
        "unknown values",
        "kept off by the taint",
    ],
)
def test_the_gpu_operator_advertises_as_its_values_say(
    resources: list[Resource], expected: Verdict
) -> None:
    nodes = [cluster(), pool("a2-highgpu-2g", **LEFT_TO_OPERATOR)]
    assert (
        judge_program([*nodes, *resources]).workloads[-1 if expected is OPEN else 0].verdict
        is expected
    )


def test_the_pools_of_a_cluster_cost_what_they_cost() -> None:
    (node,) = nodes_of([cluster(), pool(nodes=2)])
    assert (node.name, node.fewest, node.count) == ("p", 2, 2)
    assert judge_program([cluster(), pool(nodes=2)]).cost.unknown == []


def quota_of_critical_pods(pods: str) -> Resource:
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": ["system-node-critical"]}
    spec = {"hard": {"pods": pods}, "scopeSelector": {"matchExpressions": [scope]}}
    metadata = {"name": "critical", "namespace": "gpu-operator"}
    return kubernetes(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    )


def in_namespace(release: list[Resource]) -> list[Resource]:
    (type_, inputs), *others = release
    return [(type_, inputs | {"namespace": "gpu-operator"}), *others]


def test_the_operators_pods_stay_within_the_critical_quota() -> None:
    nodes = [cluster(), pool(nodes=1), pool("a2-highgpu-2g", 14, **LEFT_TO_OPERATOR)]
    # 6 on each of 14 GPU nodes (the driver is off), 1 on each of 15, and 3 beside.
    some = in_namespace(operator(driver={"enabled": False}))
    enough = judge_program([*nodes, *some, quota_of_critical_pods("102")])
    assert "critical-pods" not in {finding.rule for finding in enough.findings}
    short = judge_program([*nodes, *some, quota_of_critical_pods("100")])
    assert short.stack is CANNOT
    (found,) = [finding for finding in short.findings if finding.rule == "critical-pods"]
    assert (
        "allows 100 critical pods, and the GPU Operator runs 102: 6 on each of 14 GPU nodes"
        in found.message
    )
    assert "102 or more" in found.remedy
    more = in_namespace(operator(nfd={"enabled": False}, dcgm={"enabled": True}))
    assert "runs 115: 8 on each" in str(
        judge_program([*nodes, *more, quota_of_critical_pods("100")]).findings
    )


def test_metrics_of_gpus_that_are_exported_twice_are_told() -> None:
    keeps = {"monitoringConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "DCGM"]}}
    assert "metrics-twice" in {
        f.rule for f in judge_program([cluster(**keeps), *operator()]).findings
    }
    off = operator(dcgmExporter={"enabled": False})
    assert "metrics-twice" not in {f.rule for f in judge_program([cluster(**keeps), *off]).findings}
    assert "metrics-twice" not in {f.rule for f in judge_program([cluster(), *operator()]).findings}


def test_any_second_exporter_of_metrics_is_told() -> None:
    keeps = {"monitoringConfig": {"enableComponents": ["DCGM"]}}
    monitor = [
        kubernetes(manifest)
        for manifest in check(GpuMonitorSpec, "m", {"monitor_name": "m"}).manifests()
    ]
    for resources, told in (
        ([cluster(**keeps), *monitor], ["DaemonSet m"]),
        ([cluster(), *monitor, *operator()], ["DaemonSet m", "GPU Operator"]),
        ([cluster(), *monitor], []),
    ):
        found = [
            each.object
            for each in judge_program(resources).findings
            if each.rule == "metrics-twice"
        ]
        assert found == told


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        ({}, True),
        (
            {"managerConfig": {"controllerManagerConfigYaml": "# waitForPodsReady:\nmetrics: {}"}},
            True,
        ),
        (
            {"managerConfig": {"controllerManagerConfigYaml": "waitForPodsReady: {timeout: 5m}"}},
            False,
        ),
        ({"managerConfig": {"controllerManagerConfigYaml": UNKNOWN}}, False),
    ],
)
def test_a_kueue_that_leaves_half_a_gang_on_its_nodes_is_told(
    values: dict[str, Any], is_told: bool
) -> None:
    kueue = (RELEASE, {"chart": "oci://registry.k8s.io/kueue/charts/kueue", "values": values})
    assert (
        "half-a-gang" in {each.rule for each in judge_program([cluster(), kueue]).findings}
    ) is is_told
    assert "half-a-gang" not in {each.rule for each in judge_program([cluster()]).findings}


def test_machines_that_components_refuse_are_unknown() -> None:
    assert judge_program([cluster(), pool("a4x-highgpu-4g"), web(1)]).stack is OPEN


@pytest.mark.parametrize(
    ("components", "enabled", "lost"),
    [("DCGM", False, True), ("DCGM", True, False), ("X", False, False)],
)
def test_metrics_of_gpus_that_nothing_collects_are_told(
    components: str, enabled: bool, lost: bool
) -> None:
    keeps = {
        "enableComponents": ["SYSTEM_COMPONENTS", components],
        "managedPrometheus": {"enabled": enabled},
    }
    told = judge_program([cluster(monitoringConfig=keeps)]).findings
    assert [each.severity for each in told if each.rule == "metrics-collected"] == [
        "warning"
    ] * lost


JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "gang", "namespace": "team"},
    "spec": {
        "replicatedJobs": [
            {"name": "w", "replicas": 1, "template": {"spec": {"template": template()}}}
        ]
    },
}
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets"},
}


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ([], True),
        ([(RELEASE, {"chart": "kueue"})], True),
        ([(RELEASE, {"chart": "oci://registry.k8s.io/jobset/charts/jobset"})], False),
        ([kubernetes(KIND | {"spec": {"group": "jobset.x-k8s.io"}})], False),
        ([(RELEASE, {"chart": "everything"})], False),
    ],
)
def test_a_kind_that_nothing_brings_is_refused(more: list[Resource], is_refused: bool) -> None:
    """A new cluster of GKE has no JobSet; who says which cluster exists may have it there."""
    stack = [pool(), kubernetes(JOB_SET), *more]
    found = [
        each for each in judge_program([cluster(), *stack]).findings if each.rule == "controller"
    ]
    assert [(each.object, each.severity) for each in found] == [
        ("JobSet team/gang", "error")
    ] * is_refused
    assert not [each for each in judge_program(stack).findings if each.rule == "controller"]


STANDARD = {"channel": "CHANNEL_STANDARD"}
GATEWAYS = "gatewayApiConfig CHANNEL_STANDARD (gateway_api)"


@pytest.mark.parametrize(
    ("settings", "kind", "brought_by"),
    [
        ({}, "monitoring.googleapis.com/v1 PodMonitoring", None),
        (
            {"monitoringConfig": {"managedPrometheus": {"enabled": False}}},
            "monitoring.googleapis.com/v1 PodMonitoring",
            "monitoringConfig.managedPrometheus",
        ),
        ({"monitoringConfig": UNKNOWN}, "monitoring.googleapis.com/v1 PodMonitoring", None),
        ({}, "networking.gke.io/v1 Network", "enableMultiNetworking (multi_networking)"),
        ({}, "networking.gke.io/v1 GKENetworkParamSet", "enableMultiNetworking (multi_networking)"),
        ({"enableMultiNetworking": True}, "networking.gke.io/v1 Network", None),
        ({"enableMultiNetworking": UNKNOWN}, "networking.gke.io/v1 Network", None),
        ({}, "networking.gke.io/v1 ManagedCertificate", None),
        ({}, "gateway.networking.k8s.io/v1 Gateway", GATEWAYS),
        ({}, "inference.networking.k8s.io/v1 InferencePool", GATEWAYS),
        ({}, "networking.gke.io/v1 HealthCheckPolicy", GATEWAYS),
        ({"enableAutopilot": True}, "gateway.networking.k8s.io/v1 Gateway", None),
        ({"gatewayApiConfig": UNKNOWN}, "gateway.networking.k8s.io/v1 Gateway", None),
        (
            {"gatewayApiConfig": {"channel": "CHANNEL_DISABLED"}},
            "gateway.networking.k8s.io/v1 Gateway",
            GATEWAYS,
        ),
        (
            {"gatewayApiConfig": {"channel": "CHANNEL_STANDARD"}},
            "inference.networking.k8s.io/v1 InferencePool",
            None,
        ),
        (
            {"gatewayApiConfig": STANDARD, "minMasterVersion": "1.34.0-gke.1626000"},
            "inference.networking.k8s.io/v1 InferencePool",
            None,
        ),
        (
            {"gatewayApiConfig": STANDARD, "minMasterVersion": "1.34.0-gke.1625999"},
            "inference.networking.k8s.io/v1 InferencePool",
            "minMasterVersion 1.34.0-gke.1626000",
        ),
        ({}, "autoscaling.gke.io/v1beta1 AutoscalingMetric", "releaseChannel RAPID"),
        (
            {"releaseChannel": {"channel": "RAPID"}},
            "autoscaling.gke.io/v1beta1 AutoscalingMetric",
            None,
        ),
    ],
)
def test_a_kind_that_the_clusters_settings_exclude_is_refused(
    settings: dict[str, Any], kind: str, brought_by: str | None
) -> None:
    version, _, name = kind.partition(" ")
    made = kubernetes(
        {
            "apiVersion": version,
            "kind": name,
            "metadata": {"name": "web", "namespace": "team"},
            "spec": {},
        }
    )
    found = [
        each
        for each in judge_program([cluster(**settings), made]).findings
        if each.rule == "controller"
    ]
    assert [each.remedy.partition(" of the")[0] for each in found] == [f"Set {brought_by}"] * (
        brought_by is not None
    )
    (defined, crd) = kubernetes(KIND | {"spec": {"group": version.partition("/")[0]}})
    assert "controller" not in {
        each.rule for each in judge_program([cluster(**settings), made, (defined, crd)]).findings
    }


PROXIES: Any = (SUBNETWORK, {"purpose": "REGIONAL_MANAGED_PROXY"})


@pytest.mark.parametrize(
    ("ingress_class", "more", "is_told"),
    [
        ("gce-internal", [(NETWORK, {"name": "ml"})], True),
        (
            "gce-internal",
            [(NETWORK, {"name": "ml"}), (SUBNETWORK, {"ipCidrRange": "10.0.0.0/20"})],
            True,
        ),
        ("gce-internal", [(NETWORK, {"name": "ml"}), PROXIES], False),
        ("gce-internal", [(NETWORK, {"name": "ml"}), (SUBNETWORK, {"purpose": UNKNOWN})], False),
        ("gce-internal", [], False),
        ("gce", [(NETWORK, {"name": "ml"})], False),
    ],
)
def test_an_internal_ingress_needs_addresses_for_its_proxies(
    ingress_class: str, more: list[Resource], is_told: bool
) -> None:
    metadata = {
        "name": "chat",
        "namespace": "team",
        "annotations": {"kubernetes.io/ingress.class": ingress_class},
    }
    ingress = kubernetes(
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": {}}
    )
    found = [
        each
        for each in judge_program([cluster(), pool(), ingress, *more]).findings
        if each.rule == "proxies"
    ]
    assert [(each.object, each.severity) for each in found] == [
        ("Ingress team/chat", "error")
    ] * is_told


@pytest.mark.parametrize(
    ("class_name", "more", "is_told"),
    [
        ("gke-l7-rilb", [], True),
        ("gke-l7-regional-external-managed", [], True),
        ("gke-l7-rilb", [PROXIES], False),
        ("gke-l7-global-external-managed", [], False),
    ],
)
def test_a_regional_gateway_needs_addresses_for_its_proxies(
    class_name: str, more: list[Resource], is_told: bool
) -> None:
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "llm", "namespace": "team"},
        "spec": {"gatewayClassName": class_name},
    }
    resources = [cluster(), pool(), kubernetes(gateway), (NETWORK, {"name": "ml"}), *more]
    found = [each for each in judge_program(resources).findings if each.rule == "proxies"]
    assert [(each.object, each.path, each.severity) for each in found] == [
        ("Gateway team/llm", "spec.gatewayClassName", "error")
    ] * is_told


@pytest.mark.parametrize(
    ("version", "config", "needed"),
    [
        ("1.33", {"labels": DRA_POOL_LABELS}, "1.34"),
        ("1.34", {"labels": DRA_POOL_LABELS}, None),
        ("1", {"labels": DRA_POOL_LABELS}, None),
        (None, {"labels": DRA_POOL_LABELS}, None),
        (UNKNOWN, {"labels": DRA_POOL_LABELS}, None),
        ("1.33", {}, None),
        ("1.31.9-gke.1", {"flexStart": True}, "1.32.2"),
        ("1.32", {"flexStart": True}, None),
    ],
    ids=str,
)
def test_a_cluster_begins_with_a_version_that_its_pools_know(
    version: Any, config: Any, needed: str | None
) -> None:
    found = judge_program(
        [cluster(minMasterVersion=version), pool("g2-standard-8", **config)]
    ).findings
    told = [each.message for each in found if each.rule == "version"]
    assert [f": {needed}" in each for each in told] == [True] * bool(needed)


FILESTORE, LUSTRE, GCS = (
    f"{name}.csi.storage.gke.io" for name in ("filestore", "lustre", "gcsfuse")
)
INLINE = {"name": "v", "csi": {"driver": GCS}}
CLAIMED = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
UNUSED: dict[str, Any] = {"name": "v", "emptyDir": {}}
WANTED = {
    "accessModes": ["ReadWriteMany"],
    "storageClassName": "c",
    "resources": {"requests": {"storage": "18000Gi"}},
}
EPHEMERAL = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": WANTED}}}
DATA = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "team"},
}
CLAIM = kubernetes(DATA | {"spec": WANTED})
OWN = kubernetes(
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": LUSTRE},
        "spec": {},
    }
)


@pytest.mark.parametrize(
    ("given", "more", "is_refused"),
    [
        ({"filestore": {"reserved_range": "r"}, "network": "ml"}, [], True),
        ({"lustre": {"zones": ["a"]}, "network": "projects/p/global/networks/ml"}, [], True),
        ({"filestore": {"reserved_range": "r"}, "network": "ml"}, [(CONNECTION, {})], False),
        ({"filestore": {"reserved_range": "r"}, "network": "shared"}, [], False),
        ({"filestore": {}, "network": "ml"}, [], False),
    ],
)
def test_a_new_network_has_the_access_of_its_file_systems(
    given: dict[str, Any], more: list[Resource], is_refused: bool
) -> None:
    classes = map(kubernetes, check(StorageClassesSpec, "classes", given).manifests())
    addons = on(gcpFilestore=True, lustre=True)
    verdicts = judge_program(
        [cluster(**addons), pool(), (NETWORK, {"name": "ml"}), *classes, *more]
    )
    found = [each.severity for each in verdicts.findings if each.rule == "private-access"]
    assert found == ["error"] * is_refused
    assert (verdicts.stack is CANNOT) is is_refused


def storage_class(driver: str) -> Resource:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"}}
    return kubernetes(made | {"provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer"})


def volume(driver: str) -> list[Resource]:
    source = {
        "csi": {"driver": driver, "volumeHandle": "h"},
        "claimRef": {"name": "data", "namespace": "team"},
    }
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "c",
        "capacity": {"storage": "18000Gi"},
        **source,
    }
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": spec,
    }
    return [kubernetes(made), kubernetes(DATA | {"spec": WANTED | {"volumeName": "pv"}})]


def on(**addons: Any) -> dict[str, Any]:
    return {
        "addonsConfig": {
            f"{name}CsiDriverConfig": {"enabled": value} for name, value in addons.items()
        }
    }


@pytest.mark.parametrize(
    ("settings", "mounted", "more", "setting"),
    [
        (
            {},
            CLAIMED,
            [storage_class(FILESTORE), CLAIM],
            "gcpFilestoreCsiDriverConfig (filestore of a GkeCluster)",
        ),
        ({}, CLAIMED, [storage_class(LUSTRE), CLAIM], "lustreCsiDriverConfig"),
        ({}, EPHEMERAL, [storage_class(LUSTRE)], "lustreCsiDriverConfig"),
        ({}, UNUSED, [storage_class(LUSTRE), CLAIM], "lustreCsiDriverConfig"),
        ({}, CLAIMED, volume("parallelstore.csi.storage.gke.io"), "parallelstoreCsiDriverConfig"),
        (on(gcsFuse=False), INLINE, [], "gcsFuseCsiDriverConfig"),
        (
            on(gcePersistentDisk=False),
            CLAIMED,
            volume("pd.csi.storage.gke.io"),
            "gcePersistentDiskCsiDriverConfig",
        ),
        ({}, CLAIMED, volume("pd.csi.storage.gke.io"), None),
        ({}, UNUSED, [storage_class(LUSTRE), *volume(LUSTRE)], None),
        ({}, CLAIMED, [storage_class(LUSTRE), CLAIM, OWN], None),
        (on(lustre=True), CLAIMED, [storage_class(LUSTRE), CLAIM], None),
        (on(lustre=UNKNOWN), CLAIMED, [storage_class(LUSTRE), CLAIM], None),
        ({"addonsConfig": {"lustreCsiDriverConfig": UNKNOWN}}, CLAIMED, volume(LUSTRE), None),
        ({"addonsConfig": UNKNOWN}, INLINE, [], None),
        ({"enableAutopilot": True}, INLINE, [], None),
    ],
)
def test_a_volume_needs_a_driver_that_the_cluster_enables(
    settings: dict[str, Any], mounted: dict[str, Any], more: list[Resource], setting: str | None
) -> None:
    stack = [pool(), kubernetes(deployment("web", 1, template(volumes=[mounted]))), *more]

    def remedies(*first: Resource) -> list[str]:
        verdicts = judge_program([*first, *stack])
        every = [
            *verdicts.findings,
            *(reason for each in verdicts.workloads for reason in each.reasons),
        ]
        found = {
            each.remedy for each in every if each.rule == "csi-driver" and each.severity == "error"
        }
        assert not found or verdicts.stack is CANNOT or mounted is UNUSED
        return sorted(found)

    assert [f"addonsConfig.{setting}" in each for each in remedies(cluster(**settings))] == [
        True
    ] * bool(setting)
    assert not remedies(), "who made the cluster is not known"


@pytest.mark.parametrize(
    ("identity", "spec", "expected"),
    [
        ({"workloadPool": "p.svc.id.goog"}, {}, FITS),
        (UNKNOWN, {}, FITS),
        (None, {}, CANNOT),
        (None, {"hostNetwork": True}, OPEN),
    ],
    ids=str,
)
def test_a_bucket_needs_the_workload_identity_of_its_cluster(
    identity: Any, spec: Any, expected: Verdict
) -> None:
    pods = template(volumes=[INLINE], **spec)
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    made = cluster(**on(gcsFuse=True), workloadIdentityConfig=identity)
    judged = judge_program([made, pool(nodes=2), kubernetes(deployment("web", 1, pods))])
    assert judged.stack is expected
    reasons = [reason.remedy for each in judged.workloads for reason in each.reasons]
    assert any("workloadIdentityConfig" in each for each in reasons) is (expected is not FITS)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("ANY_RESERVATION", True), ("ANY_RESERVATION_THEN_FAIL", False), (None, False)],
)
def test_a_reservation_that_is_no_limit_is_told(kind: str | None, told: bool) -> None:
    some = judge_program(
        [cluster(), pool(reservationAffinity={"consumeReservationType": kind} if kind else None)]
    )
    found = [(each.object, each.severity) for each in some.findings if each.rule == "reservation"]
    assert found == [("NodePool p", "info")] * told
    assert some.stack is FITS


def subnetwork(block: Any) -> Resource:
    ranges = [
        {"rangeName": "pods", "ipCidrRange": block},
        {"rangeName": "services", "ipCidrRange": "10.2.0.0/28"},
    ]
    return SUBNETWORK, {"ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": ranges}


@pytest.mark.parametrize(
    ("version", "storage_class", "refused"),
    [
        ("1.35.1-gke.1616000", "gcsfusecsi-serving", False),
        ("1.35.1-gke.1615999", "gcsfusecsi-serving", True),
        ("1.35.1-gke.1615999", "gcs-fuse", False),
    ],
)
def test_gkes_classes_for_buckets_need_a_version(
    version: str, storage_class: str, refused: bool
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "r1", "namespace": "ml"},
        "spec": {"storageClassName": storage_class},
    }
    stack = [
        cluster(minMasterVersion=version),
        ("kubernetes:core/v1:PersistentVolumeClaim", claim),
    ]
    found = [each.object for each in judge_program(stack).findings if each.rule == "controller"]
    assert found == ["PersistentVolumeClaim ml/r1"] * refused


@pytest.mark.parametrize(
    ("block", "of_cluster", "of_pool", "told"),
    [
        # 16 nodes of 110 pods take a /24 each.
        ("10.1.0.0/20", {}, {}, False),
        ("10.1.0.0/21", {}, {}, True),
        ("10.1.0.0/21", {"defaultMaxPodsPerNode": 64}, {}, False),
        ("10.1.0.0/21", {"defaultMaxPodsPerNode": 64}, {"maxPodsPerNode": 65}, True),
        ("10.1.0.0/24", {"defaultMaxPodsPerNode": 8}, {}, False),
        ("10.1.0.0/25", {"defaultMaxPodsPerNode": 8}, {}, True),
        (UNKNOWN, {}, {}, False),
        ("10.1.0.0/21", {"ipAllocationPolicy": {"clusterSecondaryRangeName": "others"}}, {}, False),
    ],
)
def test_nodes_that_no_addresses_are_left_for_are_told(
    block: Any, of_cluster: dict[str, Any], of_pool: dict[str, Any], told: bool
) -> None:
    type_, given = pool(nodes=16)
    named = {"ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"}} | of_cluster
    some = judge_program([cluster(**named), subnetwork(block), (type_, given | of_pool)])
    found = [(each.object, each.severity) for each in some.findings if each.rule == "addresses"]
    assert found == [("Subnetwork", "warning")] * told


@pytest.mark.parametrize(
    ("block", "told"), [("10.0.0.0/27", False), ("10.0.0.0/28", True), (UNKNOWN, False)]
)
def test_nodes_beyond_the_addresses_of_their_own_range_are_told(block: Any, told: bool) -> None:
    """Of 16 addresses Google keeps four."""
    named = {"ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"}}
    type_, given = subnetwork("10.1.0.0/16")
    some = judge_program(
        [cluster(**named), (type_, given | {"ipCidrRange": block}), pool(nodes=16)]
    )
    found = [
        (each.object, each.severity) for each in some.findings if each.rule == "node-addresses"
    ]
    assert found == [("Subnetwork", "warning")] * told


TAINTED = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
OF_GKE = [
    {"key": "components.gke.io/gke-managed-components", "value": "true", "effect": "NO_SCHEDULE"}
]
NAP = {"clusterAutoscaling": {"enabled": True}}


@pytest.mark.parametrize(
    ("settings", "more", "is_told"),
    [
        ({}, [], True),
        ({}, [pool()], False),
        ({}, [pool(taints=OF_GKE)], False),
        ({}, [pool(taints=[TAINTED[0] | {"effect": "PREFER_NO_SCHEDULE"}])], False),
        ({"removeDefaultNodePool": None}, [], False),
        (NAP, [], False),
    ],
)
def test_pods_of_gke_need_nodes_that_they_tolerate(
    settings: dict[str, Any], more: list[Resource], is_told: bool
) -> None:
    some = judge_program([cluster(**settings), pool("g2-standard-8", taints=TAINTED), *more])
    found = [(each.object, each.severity) for each in some.findings if each.rule == "system-pods"]
    assert found == [("Cluster c", "error")] * is_told
    assert (some.stack is CANNOT) is is_told


@pytest.mark.parametrize(("enabled", "is_told"), [(None, True), (True, False)])
def test_nodes_in_more_networks_need_a_cluster_that_has_them(enabled: Any, is_told: bool) -> None:
    type_, given = pool()
    more = {
        "networkConfig": {"additionalNodeNetworkConfigs": [{"network": "n", "subnetwork": "s"}]}
    }
    some = judge_program([cluster(enableMultiNetworking=enabled), (type_, given | more)])
    found = [
        (each.object, each.severity) for each in some.findings if each.rule == "multi-networking"
    ]
    assert found == [("NodePool p", "error")] * is_told


@pytest.mark.parametrize(
    ("private", "more", "is_told"),
    [(True, [], True), (True, [(NAT, {})], False), (None, [], False)],
)
def test_private_nodes_in_a_network_without_a_nat_are_told(
    private: Any, more: list[Resource], is_told: bool
) -> None:
    settings = {"privateClusterConfig": {"enablePrivateNodes": private}}
    some = judge_program([cluster(**settings), pool(), (NETWORK, {"name": "n"}), *more])
    assert [each.severity for each in some.findings if each.rule == "way-out"] == [
        "warning"
    ] * is_told
    assert "way-out" not in {
        each.rule for each in judge_program([cluster(**settings), pool()]).findings
    }


PLUGIN = kubernetes(
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(
                containers=[container(cpu=0) | {"image": "nvcr.io/nvidia/k8s-device-plugin:v1"}]
            ),
        },
    }
)


@pytest.mark.parametrize(
    ("config", "more", "by"),
    [
        ({}, operator(), ["GPU Operator"]),
        ({}, operator(devicePlugin={"enabled": False}), []),
        (LEFT_TO_OPERATOR, operator(), []),
        ({}, [PLUGIN], ["DaemonSet plugin"]),
    ],
)
def test_gpus_that_two_advertise_are_told(
    config: dict[str, Any], more: list[Resource], by: list[str]
) -> None:
    some = judge_program([cluster(), pool(), pool("a2-highgpu-2g", **config), *more])
    assert [each.object for each in some.findings if each.rule == "advertised-twice"] == by


AUTO = {"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass", "metadata": {"name": "any"}}


@pytest.mark.parametrize(
    ("settings", "more", "expected"),
    [
        ({}, [], CANNOT),
        (NAP, [], OPEN),
        ({"clusterAutoscaling": UNKNOWN}, [], OPEN),
        ({"clusterAutoscaling": {"enabled": UNKNOWN}}, [], OPEN),
        # Pools of a class are for pods that select it (test_made_nodes.py).
        ({}, [kubernetes(AUTO | {"spec": {"nodePoolAutoCreation": {"enabled": True}}})], CANNOT),
    ],
)
def test_pools_that_gke_makes_may_take_what_no_other_takes(
    settings: dict[str, Any], more: list[Resource], expected: Verdict
) -> None:
    assert judge_program([cluster(**settings), pool(), train(1), *more]).stack is expected
    assert judge_program([cluster(**settings), pool(), web(7)]).workloads[0].verdict is FITS


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"memory": "20Gi"}, CANNOT),
        ({"memory": "7Gi"}, FITS),
        ({"memory": "1Gi", "hugepages-1Gi": "20Gi"}, FITS),
        ({"memory": "1Gi", "hugepages-1Gi": "21Gi"}, CANNOT),
        ({"memory": "1Gi", "hugepages-2Mi": "2Mi"}, CANNOT),
    ],
)
def test_huge_pages_are_taken_off_the_memory_of_their_nodes(
    asked: dict[str, str], expected: Verdict
) -> None:
    pages = {"linuxNodeConfig": {"hugepagesConfig": {"hugepageSize1g": 20}}}
    held = {"name": "main", "image": "i", "resources": {"limits": {"cpu": "1", **asked}}}
    some = judge_program(
        [cluster(), pool(**pages), kubernetes(deployment("web", 1, template(containers=[held])))]
    )
    assert some.stack is expected


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(None, FITS), (2, FITS), (1, CANNOT), ("1", CANNOT), (UNKNOWN, OPEN)],
    ids=str,
)
def test_nodes_with_one_thread_on_a_core_have_half_the_cpus(
    threads: Any, expected: Verdict
) -> None:
    features = {"advancedMachineFeatures": {"threadsPerCore": threads}} if threads else {}
    assert judge_program([cluster(), pool(**features), web(5)]).stack is expected


@pytest.mark.parametrize(
    ("kind", "field", "size", "expected"),
    [
        ("ConfigMap", "data", 2**20, FITS),
        ("ConfigMap", "data", 2**20 + 1, CANNOT),
        ("Secret", "stringData", 2**20, FITS),
        ("Secret", "stringData", 2**20 + 1, CANNOT),
    ],
)
def test_a_config_map_holds_a_mebibyte(kind: str, field: str, size: int, expected: Verdict) -> None:
    made = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "c"},
        field: {"a": "x" * (size - 1), "b": "x"},
    }
    assert judge_program([cluster(), pool(), web(1), kubernetes(made)]).stack is expected


@pytest.mark.parametrize(
    ("tier", "size", "is_told"),
    [
        ("zonal", "1280Gi", False),
        ("zonal", "1100Gi", True),
        ("enterprise", "1100Gi", True),
        ("standard", "1100Gi", False),
    ],
)
def test_filestore_comes_in_steps(tier: str, size: str, is_told: bool) -> None:
    type_, made = storage_class(FILESTORE)
    wanted = kubernetes(DATA | {"spec": WANTED | {"resources": {"requests": {"storage": size}}}})
    mounting = kubernetes(deployment("web", 1, template(volumes=[CLAIMED])))
    stack = [
        cluster(**on(gcpFilestore=True)),
        pool(),
        (type_, made | {"parameters": {"tier": tier}}),
        wanted,
        mounting,
    ]
    (verdict,) = judge_program(stack).workloads
    assert [each.rule for each in verdict.warnings] == ["volume-class"] * is_told
    assert verdict.verdict is FITS


def test_filestore_with_immediate_binding_is_in_every_zone() -> None:
    """The driver limits no volume to a zone; a class that waits makes none for a node outside its topology."""
    topology = {
        "matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": ["us-central1-f"]}]
    }
    mounting = kubernetes(deployment("web", 1, template(volumes=[CLAIMED])))
    verdicts: list[Verdict] = []
    for mode in ("Immediate", "WaitForFirstConsumer"):
        made = storage_class(FILESTORE)[1] | {
            "allowedTopologies": [topology],
            "volumeBindingMode": mode,
        }
        wanted = DATA | {"spec": WANTED | {"resources": {"requests": {"storage": "1Ti"}}}}
        stack = [
            cluster(**on(gcpFilestore=True)),
            pool(),
            kubernetes(made),
            kubernetes(wanted),
            mounting,
        ]
        verdicts.append(judge_program(stack).stack)
    assert verdicts == [FITS, CANNOT]


@pytest.mark.parametrize(
    ("wanted", "inputs", "expected"),
    [
        ("standard-rwo", {}, FITS),
        ("premium-rwo", {}, FITS),
        (None, {}, FITS),
        ("standard", {}, OPEN),  # its disk is made before there is a pod
        ("others", {}, OPEN),
        ("premium-rwo", {"addonsConfig": UNKNOWN}, OPEN),
        (
            "premium-rwo",
            {"addonsConfig": {"gcePersistentDiskCsiDriverConfig": {"enabled": False}}},
            OPEN,
        ),
        ("premium-rwo", None, OPEN),  # who knows whose cluster
    ],
)
def test_gke_brings_classes_of_its_own(wanted: Any, inputs: Any, expected: Verdict) -> None:
    claim = kubernetes(
        DATA | {"spec": WANTED | {"accessModes": ["ReadWriteOnce"], "storageClassName": wanted}}
    )
    mounting = kubernetes(deployment("web", 1, template(volumes=[CLAIMED])))
    clusters = [] if inputs is None else [cluster(**inputs)]
    assert judge_program([*clusters, pool(), claim, mounting]).stack is expected


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        (None, "gpus-xxxxxxx", OPEN),
        (UNKNOWN, "node pool", OPEN),
        ("gpus-1a2b3c4", "gpus-1a2b3c4", FITS),
        ("others", "others", CANNOT),
    ],
)
def test_a_pod_may_select_a_pool_that_pulumi_names(name: Any, told: str, expected: Verdict) -> None:
    type_, inputs = pool()
    mine = named((type_, inputs | {"name": name}), "gpus")
    selector = {"cloud.google.com/gke-nodepool": "gpus-1a2b3c4"}
    web = kubernetes(deployment("web", 1, template(nodeSelector=selector)))
    found = judge_program([cluster(), mine, web])
    assert found.stack is expected
    assert [each.name for each in found.cost.pools] == [told]
    assert "None" not in as_text(found)


def test_nodes_without_the_operators_label_say_who_gives_it() -> None:
    terms = [
        {
            "matchExpressions": [
                {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}
            ]
        }
    ]
    required = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    wanted = template(containers=[container(gpu=1)], affinity=required)
    gpus = {"guestAccelerators": [{"type": "nvidia-l4", "count": 1}]}
    text = as_text(
        judge_program(
            [cluster(), pool("g2-standard-8", **gpus), kubernetes(job("train", 1, wanted))]
        )
    )
    assert (
        "(the GPU Operator gives nodes nvidia.com/gpu.product; else set accelerator_label)" in text
    )


def test_a_declared_default_class_is_newer_than_that_of_gke() -> None:
    type_, made = storage_class("x.example.com")
    default = {
        "metadata": {
            "name": "mine",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        }
    }
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "team"},
    }
    quota["spec"] = {"hard": {"mine.storageclass.storage.k8s.io/persistentvolumeclaims": "0"}}
    claim = kubernetes(
        DATA | {"spec": WANTED | {"accessModes": ["ReadWriteOnce"], "storageClassName": None}}
    )
    stack = [
        cluster(),
        pool(),
        claim,
        kubernetes(deployment("web", 1, template(volumes=[CLAIMED]))),
        kubernetes(quota),
    ]
    assert judge_program(stack).stack is FITS
    assert judge_program([*stack, (type_, made | default)]).stack is CANNOT


@pytest.mark.parametrize(
    ("of_nodes", "path"),
    [
        (
            {"labels": {"node-role.kubernetes.io/gpu": ""}},
            "nodeConfig.labels.node-role.kubernetes.io/gpu",
        ),
        ({"labels": {"kubernetes.io/role": "gpu"}}, "nodeConfig.labels.kubernetes.io/role"),
        ({"labels": {"node-restriction.kubernetes.io/gpu": "1", "team": "ML"}}, None),
        ({"resourceLabels": {"team": "ML"}}, "nodeConfig.resourceLabels.team"),
        ({"resourceLabels": {"Team": "ml"}}, "nodeConfig.resourceLabels.Team"),
        ({"resourceLabels": {"team": "ml.research"}}, "nodeConfig.resourceLabels.team"),
        ({"resourceLabels": {"team": "", "größe": "l_1-2", "owner": UNKNOWN}}, None),
        ({"tags": ["gpu-nodes", UNKNOWN, "gpu_nodes"]}, "nodeConfig.tags"),
        ({"tags": ["gpu-nodes", UNKNOWN]}, None),
        ({"tags": UNKNOWN, "flexStart": UNKNOWN}, None),
        ({"flexStart": True}, "nodeConfig.flexStart"),
        ({"machineType": "n1-standard-8", "flexStart": True, "guestAccelerators": [TESLA]}, None),
        ({"machineType": "g2-standard-8", "flexStart": True}, None),
        ({"machineType": "h4d-standard-192", "flexStart": True}, None),
        ({"machineType": "x9-standard-8", "flexStart": True}, None),
    ],
)
def test_what_google_cloud_refuses_of_a_pool_is_told(
    of_nodes: dict[str, Any], path: str | None
) -> None:
    some = judge_program([cluster(), pool(nodes=0, **of_nodes)])
    found = [
        (each.object, each.path, each.severity)
        for each in some.findings
        if each.rule == "refused-input"
    ]
    assert found == [("NodePool p", path, "error")] * bool(path)
    of_cluster = judge_program([cluster(resourceLabels={"Team": "ml"})])
    assert [each.object for each in of_cluster.findings if each.rule == "refused-input"] == [
        "Cluster c"
    ]


FLEX: dict[str, Any] = {"machineType": "g2-standard-8", "flexStart": True}
QUEUED: dict[str, Any] = {"queuedProvisioning": {"enabled": True}}
COMPACT: dict[str, Any] = {"placementPolicy": {"type": "COMPACT"}}


def of_reservation(name: Any) -> dict[str, Any]:
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": [name]}
    return {"machineType": "g2-standard-8", "reservationAffinity": affinity}


@pytest.mark.parametrize(
    ("of_nodes", "inputs", "path"),
    [
        (FLEX, {}, None),
        (FLEX | {"spot": True}, {}, "nodeConfig.spot"),
        (FLEX | {"spot": UNKNOWN}, {}, None),
        ({"spot": True}, {}, None),
        ({"spot": True}, QUEUED, "nodeConfig.spot"),
        (FLEX, {"management": {"autoRepair": True}}, "management.autoRepair"),
        (FLEX, {"management": {"autoRepair": False}}, None),
        ({}, {"management": {"autoRepair": True}}, None),
        (FLEX, {"nodeCount": 1}, "nodeCount"),
        (FLEX, QUEUED, None),
        (FLEX, QUEUED | COMPACT, "placementPolicy"),
        ({}, COMPACT, None),
        ({}, COMPACT | {"upgradeSettings": {"strategy": "BLUE_GREEN"}}, "upgradeSettings.strategy"),
        ({}, COMPACT | {"upgradeSettings": {"strategy": "SURGE"}}, None),
        (of_reservation("h100"), {}, None),
        (of_reservation("projects/p/reservations/h100/reservationBlocks/b-1"), {}, None),
        (of_reservation(UNKNOWN), {}, None),
        (
            of_reservation("h100/reservationSubBlocks/s"),
            {},
            "nodeConfig.reservationAffinity.values",
        ),
        (of_reservation("reservations/h100"), {}, "nodeConfig.reservationAffinity.values"),
    ],
)
def test_ways_to_buy_that_exclude_each_other(
    of_nodes: dict[str, Any], inputs: dict[str, Any], path: str | None
) -> None:
    type_, given = pool(nodes=0, **of_nodes)
    findings = judge_program([cluster(), (type_, {**given, **inputs})]).findings
    found = [finding.path for finding in findings if finding.rule == "refused-input"]
    assert found == [path] * bool(path)


@pytest.mark.parametrize(
    ("inputs", "of_cluster", "told"),
    [
        ({"location": "us-central1"}, {}, True),
        ({"location": "us-central1-a"}, {}, False),
        ({"location": "us-central1", "nodeLocations": ["us-central1-a"]}, {}, False),
        ({"location": "us-central1"}, {"nodeLocations": ["us-central1-a"]}, False),
    ],
)
def test_gpus_of_a_region_without_zones_are_told(
    inputs: dict[str, Any], of_cluster: dict[str, Any], told: bool
) -> None:
    type_, given = pool("a2-highgpu-2g", guestAccelerators=[A100])
    some = judge_program([cluster(**of_cluster), (type_, given | inputs)])
    found = [(each.object, each.severity) for each in some.findings if each.rule == "zones"]
    assert found == [("NodePool p", "info")] * told


def test_a_complete_cluster_makes_a_missing_metric_certain() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue"}}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 2, "metrics": [metric]}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
    }
    stack = [pool(), web(1), kubernetes(scaler | {"spec": spec})]

    def severities(*more: Resource) -> list[str]:
        return [
            f.severity
            for f in judge_program([*more, *stack]).findings
            if f.rule == "autoscaling-metric"
        ]

    assert severities(cluster()) == ["error"]
    assert severities() == ["warning"]
    assert severities(cluster(), (RELEASE, {"chart": "prometheus-adapter"})) == ["warning"]


@pytest.mark.parametrize(
    ("chart", "service", "owners"),
    [
        ("keda", ("v1beta1", "external.metrics.k8s.io"), "Service metrics/adapter and chart keda"),
        (
            "prometheus-adapter",
            ("v1beta2", "custom.metrics.k8s.io"),
            "Service metrics/adapter and chart prometheus-adapter",
        ),
        ("keda", ("v1beta2", "custom.metrics.k8s.io"), None),
        ("keda", None, None),
    ],
)
def test_an_api_of_metrics_has_one_adapter(
    chart: str, service: tuple[str, str] | None, owners: str | None
) -> None:
    resources: list[Resource] = [cluster(), (RELEASE, {"chart": chart})]
    if service:
        version, group = service
        adapter = {"namespace": "metrics", "name": "adapter"}
        spec = {"version": version, "group": group, "service": adapter}
        name = {"name": f"{version}.{group}"}
        manifest = api_object("apiregistration.k8s.io/v1", "APIService", name, spec=spec)
        # All versions of one adapter.
        resources += [kubernetes(manifest), kubernetes({**manifest, "metadata": {"name": "v9"}})]
    told = [each for each in judge_program(resources).findings if each.rule == "metrics-owner"]
    assert [each.is_error for each in told] == [True] * (owners is not None)
    assert all(
        f"several adapters serve {service and service[1]}: {owners}." in each.message
        for each in told
    )
