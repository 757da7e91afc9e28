"""A program's resources as nodes and objects: clusters in all their forms, and what is not known."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from ml_foundations.component.spec import check
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.kubernetes.labels import DRA_POOL_LABELS
from ml_foundations.kubernetes.objects import RELEASE
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

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    OPEN,
    Manifest,
    claim,
    cluster_wide,
    container,
    daemon_set,
    deployment,
    job,
    namespaced,
    node_affinity,
    quota,
    resource,
    spread,
    template,
)
from tests.support.cluster_objects import (
    PD,
    autoscaler,
    claim_spec,
    namespace,
    storage_class,
    volume,
)
from tests.support.findings import objects, of_rule

A100 = {"type": "nvidia-tesla-a100", "count": 2}
WITHOUT_DRIVER = {"gpuDriverInstallationConfig": {"gpuDriverVersion": "INSTALLATION_DISABLED"}}
LEFT_TO_OPERATOR = {
    "guestAccelerators": [A100 | WITHOUT_DRIVER],
    "labels": {"gke-no-default-nvidia-gpu-device-plugin": "true"},
}
LEFT_TO_OPERATOR = {
    "guestAccelerators": [
        A100 | {"gpuDriverInstallationConfig": {"gpuDriverVersion": "INSTALLATION_DISABLED"}}
    ],
    "labels": {"gke-no-default-nvidia-gpu-device-plugin": "true"},
}
TESLA = {"type": "nvidia-tesla-t4", "count": 1}
SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}}


def cluster(**inputs: Any) -> Resource:
    given = {"name": "c", "location": "us-central1-a", "removeDefaultNodePool": True}
    return CLUSTER, given | inputs


def pool(machine: str = "n2-standard-8", nodes: Any = 1, **config: Any) -> Resource:
    inputs = {"name": "p", "location": "us-central1-a", "nodeCount": nodes}
    return NODE_POOL, inputs | {"nodeConfig": {"machineType": machine, **config}}


def judge_program(
    resources: list[Resource], existing: Sequence[Resource] = (), **more: Any
) -> Verdicts:
    """Judge a program that declares the namespace of its workloads, too."""
    return program.judge_program([*resources, resource(namespace())], existing, **more)


def reported(rule: str, *resources: Resource) -> list[tuple[str, str]]:
    """Return the objects that a rule is about, each with the severity."""
    return objects(judge_program([*resources]), rule)


def operator(**values: Any) -> list[Resource]:
    plugin = {"config": {"default": "all", "data": {"all": yaml.safe_dump(SHARED)}}}
    toolkit = {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]}
    chosen = {"devicePlugin": plugin, "toolkit": toolkit, **values}
    release = {"chart": "gpu-operator", "values": chosen}
    return [(RELEASE, release), resource(driver_installer_manifest("cos"))]


def serving(**spec: Any) -> Resource:
    """A Deployment; the keywords are fields of its pods."""
    return resource(deployment("web", 1, template(**spec)))


def web(cpu: int) -> Resource:
    return serving(containers=[container(cpu=cpu)])


def train(gpus: int) -> Resource:
    return resource(job("train", 1, template(containers=[container(gpu=gpus)])))


KEPT_POOL: Manifest = {"removeDefaultNodePool": None}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([cluster(), pool(), web(7)], FITS),
        ([cluster(), pool(), web(8)], CANNOT),
        ([cluster(), web(1)], CANNOT),
        ([cluster(**KEPT_POOL), web(1)], CANNOT),  # an e2-medium has 940m
        ([cluster(**KEPT_POOL, nodeConfig={"machineType": "n2-standard-8"}), web(7)], FITS),
        ([cluster(nodePools=[pool()[1]]), web(7)], FITS),
        ([cluster(enableAutopilot=True), web(8)], OPEN),
        ([cluster(), cluster(), pool(), web(7)], OPEN),
        ([web(1)], OPEN),
        ([pool(), web(7)], FITS),
        ([pool(), web(8)], OPEN),
        ([cluster(), pool("n9-of-tomorrow"), web(1)], OPEN),
        # Components refuse this machine.
        ([cluster(), pool("a4x-highgpu-4g"), web(1)], OPEN),
        ([cluster(), pool(sandboxConfig={"sandboxType": "gvisor"}), web(1)], OPEN),
        ([cluster(), pool(windowsNodeConfig={}), web(1)], OPEN),
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


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"topologySpreadConstraints": [spread()]}, OPEN),
        ({"nodeSelector": {"topology.kubernetes.io/zone": "us-central1-a"}}, OPEN),
        ({"nodeSelector": {"topology.kubernetes.io/region": "us-central1"}}, OPEN),
        ({}, FITS),
    ],
)
def test_where_a_pool_that_exists_is_may_not_be_known(spec: Manifest, expected: Verdict) -> None:
    somewhere = (NODE_POOL, pool(nodes=3)[1] | {"location": ""})
    pods = resource(deployment("web", 2, template(containers=[container(cpu=1)], **spec)))
    assert judge_program([pods], [somewhere]).stack is expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param([train(8), *operator()], FITS, id="shared by four"),
        pytest.param([train(9), *operator()], CANNOT, id="not enough"),
        pytest.param([train(1)], CANNOT, id="no operator"),
        pytest.param([train(1), operator()[0]], CANNOT, id="no driver"),
        pytest.param([train(1), *operator(driver={"version": UNKNOWN})], OPEN, id="unknown values"),
        pytest.param(
            [train(1), *operator(daemonsets={"tolerations": []})],
            CANNOT,
            id="kept off by the taint",
        ),
    ],
)
def test_the_gpu_operator_advertises_as_its_values_say(
    resources: list[Resource], expected: Verdict
) -> None:
    judged = judge_program([cluster(), pool("a2-highgpu-2g", **LEFT_TO_OPERATOR), *resources])
    assert judged.workloads[-1 if expected is OPEN else 0].verdict is expected


def test_the_pools_of_a_cluster_cost_what_they_cost() -> None:
    (node,) = nodes_of([cluster(), pool(nodes=2)])
    assert (node.name, node.fewest, node.count) == ("p", 2, 2)
    assert judge_program([cluster(), pool(nodes=2)]).cost.unknown == []


def quota_of_critical_pods(pods: str) -> Resource:
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": ["system-node-critical"]}
    made = quota("critical", {"pods": pods}, scopeSelector={"matchExpressions": [scope]})
    made["metadata"]["namespace"] = "gpu-operator"
    return resource(made)


def in_namespace(release: list[Resource]) -> list[Resource]:
    (type_, inputs), *others = release
    return [(type_, inputs | {"namespace": "gpu-operator"}), *others]


def test_the_operators_pods_stay_within_the_critical_quota() -> None:
    def judged(release: list[Resource], pods: str) -> Verdicts:
        nodes = [cluster(), pool(nodes=1), pool("a2-highgpu-2g", 14, **LEFT_TO_OPERATOR)]
        return judge_program([*nodes, *in_namespace(release), quota_of_critical_pods(pods)])

    # 6 on each of 14 GPU nodes (the driver is off), 1 on each of 15, and 3 beside.
    some = operator(driver={"enabled": False})
    assert of_rule(judged(some, "102"), "critical-pods") == []
    short = judged(some, "100")
    assert short.stack is CANNOT
    (found,) = of_rule(short, "critical-pods")
    words = "allows 100 critical pods, and the GPU Operator runs 102: 6 on each of 14 GPU nodes"
    assert words in found.message
    assert "102 or more" in found.remedy
    more = operator(nfd={"enabled": False}, dcgm={"enabled": True})
    assert "runs 115: 8 on each" in str(judged(more, "100").findings)


MONITOR = [*map(resource, check(GpuMonitorSpec, "m", {"monitor_name": "m"}).manifests())]


@pytest.mark.parametrize(
    ("components", "more", "told"),
    [
        (["SYSTEM_COMPONENTS", "DCGM"], operator(), ["GPU Operator"]),
        (["SYSTEM_COMPONENTS", "DCGM"], operator(dcgmExporter={"enabled": False}), []),
        ([], operator(), []),
        (["DCGM"], MONITOR, ["DaemonSet m"]),
        ([], [*MONITOR, *operator()], ["DaemonSet m", "GPU Operator"]),
        ([], MONITOR, []),
    ],
)
def test_a_second_exporter_of_metrics_is_told(
    components: list[str], more: list[Resource], told: list[str]
) -> None:
    given = cluster(monitoringConfig={"enableComponents": components} if components else None)
    assert [about for about, _ in reported("metrics-twice", given, *more)] == told


@pytest.mark.parametrize(
    ("configuration", "is_told"),
    [
        (None, True),
        ("# waitForPodsReady:\nmetrics: {}", True),
        ("waitForPodsReady: {timeout: 5m}", False),
        (UNKNOWN, False),
    ],
)
def test_a_kueue_that_leaves_half_a_gang_on_its_nodes_is_told(
    configuration: Any, is_told: bool
) -> None:
    manager = {"managerConfig": {"controllerManagerConfigYaml": configuration}}
    values = {} if configuration is None else manager
    kueue = (RELEASE, {"chart": "oci://registry.k8s.io/kueue/charts/kueue", "values": values})
    assert bool(reported("half-a-gang", cluster(), kueue)) is is_told
    assert not reported("half-a-gang", cluster())


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
    told = reported("metrics-collected", cluster(monitoringConfig=keeps))
    assert [severity for _, severity in told] == ["warning"] * lost


REPLICATED = {"name": "w", "replicas": 1, "template": {"spec": {"template": template()}}}
JOB_SET = namespaced(
    "jobset.x-k8s.io/v1alpha2", "JobSet", "gang", spec={"replicatedJobs": [REPLICATED]}
)


def kind_of(group: str) -> Resource:
    """The definition of a kind of a group."""
    version = "apiextensions.k8s.io/v1"
    return resource(
        cluster_wide(version, "CustomResourceDefinition", "jobsets", spec={"group": group})
    )


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ([], True),
        ([(RELEASE, {"chart": "kueue"})], True),
        ([(RELEASE, {"chart": "oci://registry.k8s.io/jobset/charts/jobset"})], False),
        ([kind_of("jobset.x-k8s.io")], False),
        ([(RELEASE, {"chart": "everything"})], False),
    ],
)
def test_a_kind_that_nothing_brings_is_refused(more: list[Resource], is_refused: bool) -> None:
    """A new cluster of GKE has no JobSet; who says which cluster exists may have it there."""
    stack = [pool(), resource(JOB_SET), *more]
    refusals = [("JobSet team/gang", "error")] * is_refused
    assert reported("controller", cluster(), *stack) == refusals
    assert not reported("controller", *stack)


MONITORING, METRIC = (
    "monitoring.googleapis.com/v1 PodMonitoring",
    "autoscaling.gke.io/v1beta1 AutoscalingMetric",
)
NETWORKS, PARAMETERS = "networking.gke.io/v1 Network", "networking.gke.io/v1 GKENetworkParamSet"
GATEWAY, POOL = (
    "gateway.networking.k8s.io/v1 Gateway",
    "inference.networking.k8s.io/v1 InferencePool",
)
MULTI = "enableMultiNetworking (multi_networking)"
UNMANAGED = {"managedPrometheus": {"enabled": False}}


def with_gateways(channel: str = "STANDARD", **more: Any) -> Manifest:
    """The settings of a cluster with Gateways."""
    return {"gatewayApiConfig": {"channel": f"CHANNEL_{channel}"}, **more}


GATEWAYS = "gatewayApiConfig CHANNEL_STANDARD (gateway_api)"


@pytest.mark.parametrize(
    ("settings", "kind", "brought_by"),
    [
        ({}, MONITORING, None),
        ({"monitoringConfig": UNMANAGED}, MONITORING, "monitoringConfig.managedPrometheus"),
        ({"monitoringConfig": UNKNOWN}, MONITORING, None),
        ({}, NETWORKS, MULTI),
        ({}, PARAMETERS, MULTI),
        ({"enableMultiNetworking": True}, NETWORKS, None),
        ({"enableMultiNetworking": UNKNOWN}, NETWORKS, None),
        ({}, "networking.gke.io/v1 ManagedCertificate", None),
        ({}, GATEWAY, GATEWAYS),
        ({}, POOL, GATEWAYS),
        ({}, "networking.gke.io/v1 HealthCheckPolicy", GATEWAYS),
        ({"enableAutopilot": True}, GATEWAY, None),
        ({"gatewayApiConfig": UNKNOWN}, GATEWAY, None),
        (with_gateways("DISABLED"), GATEWAY, GATEWAYS),
        (with_gateways(), POOL, None),
        (with_gateways(minMasterVersion="1.34.0-gke.1626000"), POOL, None),
        (
            with_gateways(minMasterVersion="1.34.0-gke.1625999"),
            POOL,
            "minMasterVersion 1.34.0-gke.1626000",
        ),
        ({}, METRIC, "releaseChannel RAPID"),
        ({"releaseChannel": {"channel": "RAPID"}}, METRIC, None),
    ],
)
def test_a_kind_that_the_clusters_settings_exclude_is_refused(
    settings: Manifest, kind: str, brought_by: str | None
) -> None:
    version, _, name = kind.partition(" ")
    stack = [cluster(**settings), resource(namespaced(version, name, "web", spec={}))]
    found = of_rule(judge_program(stack), "controller")
    fixes = [f"Set {brought_by}"] if brought_by else []
    assert [each.remedy.partition(" of the")[0] for each in found] == fixes
    assert not reported("controller", *stack, kind_of(version.partition("/")[0]))


PROXIES: Any = (SUBNETWORK, {"purpose": "REGIONAL_MANAGED_PROXY"})
OWN_NETWORK: Any = (NETWORK, {"name": "ml"})


@pytest.mark.parametrize(
    ("ingress_class", "more", "is_told"),
    [
        ("gce-internal", [OWN_NETWORK], True),
        ("gce-internal", [OWN_NETWORK, (SUBNETWORK, {"ipCidrRange": "10.0.0.0/20"})], True),
        ("gce-internal", [OWN_NETWORK, PROXIES], False),
        ("gce-internal", [OWN_NETWORK, (SUBNETWORK, {"purpose": UNKNOWN})], False),
        ("gce-internal", [], False),
        ("gce", [OWN_NETWORK], False),
    ],
)
def test_an_internal_ingress_needs_addresses_for_its_proxies(
    ingress_class: str, more: list[Resource], is_told: bool
) -> None:
    ingress = namespaced("networking.k8s.io/v1", "Ingress", "chat", spec={})
    ingress["metadata"]["annotations"] = {"kubernetes.io/ingress.class": ingress_class}
    found = reported("proxies", cluster(), pool(), resource(ingress), *more)
    assert found == [("Ingress team/chat", "error")] * is_told


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
    version, spec = "gateway.networking.k8s.io/v1", {"gatewayClassName": class_name}
    gateway = resource(namespaced(version, "Gateway", "llm", spec=spec))
    verdicts = judge_program([cluster(), pool(), gateway, OWN_NETWORK, *more])
    assert objects(verdicts, "proxies") == [("Gateway team/llm", "error")] * is_told
    paths = [each.path for each in of_rule(verdicts, "proxies")]
    assert paths == ["spec.gatewayClassName"] * is_told


DRA: Manifest = {"labels": DRA_POOL_LABELS}


@pytest.mark.parametrize(
    ("version", "config", "needed"),
    [
        ("1.33", DRA, "1.34"),
        ("1.34", DRA, None),
        ("1", DRA, None),
        (None, DRA, None),
        (UNKNOWN, DRA, None),
        ("1.33", {}, None),
        ("1.31.9-gke.1", {"flexStart": True}, "1.32.2"),
        ("1.32", {"flexStart": True}, None),
    ],
    ids=str,
)
def test_a_cluster_begins_with_a_version_that_its_pools_know(
    version: Any, config: Any, needed: str | None
) -> None:
    given = [cluster(minMasterVersion=version), pool("g2-standard-8", **config)]
    found = of_rule(judge_program(given), "version")
    assert [f": {needed}" in each.message for each in found] == [True] * bool(needed)


FILESTORE, LUSTRE, GCS = (
    f"{name}.csi.storage.gke.io" for name in ("filestore", "lustre", "gcsfuse")
)
INLINE = {"name": "v", "csi": {"driver": GCS}}
CLAIMED = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
UNUSED: Manifest = {"name": "v", "emptyDir": {}}
WANTED = claim_spec("18000Gi", "ReadWriteMany", storageClassName="c")
EPHEMERAL = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": WANTED}}}
OWN = resource(cluster_wide("storage.k8s.io/v1", "CSIDriver", LUSTRE, spec={}))


def claiming(size: str = "18000Gi", mode: str = "ReadWriteMany", **spec: Any) -> Resource:
    return resource(claim("data", mode, size, **{"storageClassName": "c"} | spec))


CLAIM = claiming()


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
    given: Manifest, more: list[Resource], is_refused: bool
) -> None:
    classes = map(resource, check(StorageClassesSpec, "classes", given).manifests())
    made = cluster(**on(gcpFilestore=True, lustre=True))
    verdicts = judge_program([made, pool(), OWN_NETWORK, *classes, *more])
    found = [each.severity for each in of_rule(verdicts, "private-access")]
    assert found == ["error"] * is_refused
    assert (verdicts.stack is CANNOT) is is_refused


def of_class(driver: str, **fields: Any) -> Resource:
    """A StorageClass c of a driver."""
    return resource(storage_class("c", driver, **fields))


def existing(driver: str) -> list[Resource]:
    """A volume of a driver, and the claim that has it."""
    source: Any = {
        "csi": {"driver": driver, "volumeHandle": "h"},
        "claimRef": {"name": "data", "namespace": "team"},
    }
    made = volume(mode="ReadWriteMany", size="18000Gi", storageClassName="c", **source)
    return [resource(made), claiming(volumeName="pv")]


def on(**addons: Any) -> Manifest:
    configs = {f"{name}CsiDriverConfig": {"enabled": value} for name, value in addons.items()}
    return {"addonsConfig": configs}


@pytest.mark.parametrize(
    ("settings", "mounted", "more", "setting"),
    [
        (
            {},
            CLAIMED,
            [of_class(FILESTORE), CLAIM],
            "gcpFilestoreCsiDriverConfig (filestore of a GkeCluster)",
        ),
        ({}, CLAIMED, [of_class(LUSTRE), CLAIM], "lustreCsiDriverConfig"),
        ({}, EPHEMERAL, [of_class(LUSTRE)], "lustreCsiDriverConfig"),
        ({}, UNUSED, [of_class(LUSTRE), CLAIM], "lustreCsiDriverConfig"),
        ({}, CLAIMED, existing("parallelstore.csi.storage.gke.io"), "parallelstoreCsiDriverConfig"),
        (on(gcsFuse=False), INLINE, [], "gcsFuseCsiDriverConfig"),
        (on(gcePersistentDisk=False), CLAIMED, existing(PD), "gcePersistentDiskCsiDriverConfig"),
        ({}, CLAIMED, existing(PD), None),
        ({}, UNUSED, [of_class(LUSTRE), *existing(LUSTRE)], None),
        ({}, CLAIMED, [of_class(LUSTRE), CLAIM, OWN], None),
        (on(lustre=True), CLAIMED, [of_class(LUSTRE), CLAIM], None),
        (on(lustre=UNKNOWN), CLAIMED, [of_class(LUSTRE), CLAIM], None),
        ({"addonsConfig": {"lustreCsiDriverConfig": UNKNOWN}}, CLAIMED, existing(LUSTRE), None),
        ({"addonsConfig": UNKNOWN}, INLINE, [], None),
        ({"enableAutopilot": True}, INLINE, [], None),
    ],
)
def test_a_volume_needs_a_driver_that_the_cluster_enables(
    settings: Manifest, mounted: Manifest, more: list[Resource], setting: str | None
) -> None:
    def remedies(*first: Resource) -> set[str]:
        verdicts = judge_program([*first, pool(), serving(volumes=[mounted]), *more])
        reasons = [reason for each in verdicts.workloads for reason in each.reasons]
        every = [*verdicts.findings, *reasons]
        found = {each.remedy for each in every if each.rule == "csi-driver" and each.is_error}
        assert not found or verdicts.stack is CANNOT or mounted is UNUSED
        return found

    found = [f"addonsConfig.{setting}" in each for each in remedies(cluster(**settings))]
    assert found == [True] * bool(setting)
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
    identity: Any, spec: Manifest, expected: Verdict
) -> None:
    pods = template(volumes=[INLINE], **spec)
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    made = cluster(**on(gcsFuse=True), workloadIdentityConfig=identity)
    judged = judge_program([made, pool(nodes=2), resource(deployment("web", 1, pods))])
    assert judged.stack is expected
    reasons = [reason.remedy for each in judged.workloads for reason in each.reasons]
    assert any("workloadIdentityConfig" in each for each in reasons) is (expected is not FITS)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("ANY_RESERVATION", True), ("ANY_RESERVATION_THEN_FAIL", False), (None, False)],
)
def test_a_reservation_that_is_no_limit_is_told(kind: str | None, told: bool) -> None:
    affinity = {"consumeReservationType": kind} if kind else None
    some = judge_program([cluster(), pool(reservationAffinity=affinity)])
    assert objects(some, "reservation") == [("NodePool p", "info")] * told
    assert some.stack is FITS


def subnetwork(block: Any) -> Resource:
    ranges = [
        {"rangeName": "pods", "ipCidrRange": block},
        {"rangeName": "services", "ipCidrRange": "10.2.0.0/28"},
    ]
    return SUBNETWORK, {"ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": ranges}


@pytest.mark.parametrize(
    ("version", "name", "refused"),
    [
        ("1.35.1-gke.1616000", "gcsfusecsi-serving", False),
        ("1.35.1-gke.1615999", "gcsfusecsi-serving", True),
        ("1.35.1-gke.1615999", "gcs-fuse", False),
    ],
)
def test_gkes_classes_for_buckets_need_a_version(version: str, name: str, refused: bool) -> None:
    found = reported(
        "controller", cluster(minMasterVersion=version), claiming(storageClassName=name)
    )
    assert [about for about, _ in found] == ["PersistentVolumeClaim team/data"] * refused


def ranged(name: str) -> Manifest:
    return {"ipAllocationPolicy": {"clusterSecondaryRangeName": name}}


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
        ("10.1.0.0/21", ranged("others"), {}, False),
    ],
)
def test_nodes_that_no_addresses_are_left_for_are_told(
    block: Any, of_cluster: Manifest, of_pool: Manifest, told: bool
) -> None:
    type_, given = pool(nodes=16)
    made = cluster(**ranged("pods") | of_cluster)
    found = reported("addresses", made, subnetwork(block), (type_, given | of_pool))
    assert found == [("Subnetwork", "warning")] * told


@pytest.mark.parametrize(
    ("block", "told"), [("10.0.0.0/27", False), ("10.0.0.0/28", True), (UNKNOWN, False)]
)
def test_nodes_beyond_the_addresses_of_their_own_range_are_told(block: Any, told: bool) -> None:
    """Of 16 addresses Google keeps four."""
    type_, given = subnetwork("10.1.0.0/16")
    own = type_, given | {"ipCidrRange": block}
    found = reported("node-addresses", cluster(**ranged("pods")), own, pool(nodes=16))
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
    settings: Manifest, more: list[Resource], is_told: bool
) -> None:
    some = judge_program([cluster(**settings), pool("g2-standard-8", taints=TAINTED), *more])
    found = [(each.object, each.severity) for each in some.findings if each.rule == "system-pods"]
    assert found == [("Cluster c", "error")] * is_told
    assert (some.stack is CANNOT) is is_told


@pytest.mark.parametrize(("enabled", "is_told"), [(None, True), (True, False)])
def test_nodes_in_more_networks_need_a_cluster_that_has_them(enabled: Any, is_told: bool) -> None:
    type_, given = pool()
    networks = [{"network": "n", "subnetwork": "s"}]
    more = {"networkConfig": {"additionalNodeNetworkConfigs": networks}}
    made = cluster(enableMultiNetworking=enabled)
    found = reported("multi-networking", made, (type_, given | more))
    assert found == [("NodePool p", "error")] * is_told


@pytest.mark.parametrize(
    ("private", "more", "is_told"),
    [(True, [], True), (True, [(NAT, {})], False), (None, [], False)],
)
def test_private_nodes_in_a_network_without_a_nat_are_told(
    private: Any, more: list[Resource], is_told: bool
) -> None:
    nodes = [cluster(privateClusterConfig={"enablePrivateNodes": private}), pool()]
    found = reported("way-out", *nodes, OWN_NETWORK, *more)
    assert [severity for _, severity in found] == ["warning"] * is_told
    assert not reported("way-out", *nodes)


PLUGIN = resource(
    daemon_set(
        "plugin",
        template(containers=[{"name": "p", "image": "nvcr.io/nvidia/k8s-device-plugin:v1"}]),
    )
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
    config: Manifest, more: list[Resource], by: list[str]
) -> None:
    nodes = [cluster(), pool(), pool("a2-highgpu-2g", **config)]
    assert [about for about, _ in reported("advertised-twice", *nodes, *more)] == by


CLASS_OF_NODES = resource(
    cluster_wide(
        "cloud.google.com/v1",
        "ComputeClass",
        "any",
        spec={"nodePoolAutoCreation": {"enabled": True}},
    )
)


@pytest.mark.parametrize(
    ("settings", "more", "expected"),
    [
        ({}, [], CANNOT),
        (NAP, [], OPEN),
        ({"clusterAutoscaling": UNKNOWN}, [], OPEN),
        ({"clusterAutoscaling": {"enabled": UNKNOWN}}, [], OPEN),
        # Pools of a class are for pods that select it (test_made_nodes.py).
        ({}, [CLASS_OF_NODES], CANNOT),
    ],
)
def test_pools_that_gke_makes_may_take_what_no_other_takes(
    settings: Manifest, more: list[Resource], expected: Verdict
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
    asked: Manifest, expected: Verdict
) -> None:
    pages = {"linuxNodeConfig": {"hugepagesConfig": {"hugepageSize1g": 20}}}
    holding = serving(containers=[container(cpu=1, **asked)])
    assert judge_program([cluster(), pool(**pages), holding]).stack is expected


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


@pytest.mark.parametrize(("kind", "field"), [("ConfigMap", "data"), ("Secret", "stringData")])
@pytest.mark.parametrize(("size", "expected"), [(2**20, FITS), (2**20 + 1, CANNOT)])
def test_a_config_map_holds_a_mebibyte(kind: str, field: str, size: int, expected: Verdict) -> None:
    made = resource(cluster_wide("v1", kind, "c", **{field: {"a": "x" * (size - 1), "b": "x"}}))
    assert judge_program([cluster(), pool(), web(1), made]).stack is expected


def with_filestore(size: str, **of_the_class: Any) -> Verdicts:
    """The verdicts on a server that mounts a file system."""
    made = [of_class(FILESTORE, **of_the_class), claiming(size), serving(volumes=[CLAIMED])]
    return judge_program([cluster(**on(gcpFilestore=True)), pool(), *made])


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
    (verdict,) = with_filestore(size, parameters={"tier": tier}).workloads
    assert [each.rule for each in verdict.warnings] == ["volume-class"] * is_told
    assert verdict.verdict is FITS


@pytest.mark.parametrize(
    ("mode", "expected"), [("Immediate", FITS), ("WaitForFirstConsumer", CANNOT)]
)
def test_filestore_with_immediate_binding_is_in_every_zone(mode: str, expected: Verdict) -> None:
    """The driver limits no volume to a zone; a class that waits makes none for a node outside its topology."""
    zones = [{"key": "topology.gke.io/zone", "values": ["us-central1-f"]}]
    topologies = [{"matchLabelExpressions": zones}]
    judged = with_filestore("1Ti", allowedTopologies=topologies, volumeBindingMode=mode)
    assert judged.stack is expected


@pytest.mark.parametrize(
    ("wanted", "inputs", "expected"),
    [
        ("standard-rwo", {}, FITS),
        ("premium-rwo", {}, FITS),
        (None, {}, FITS),
        ("standard", {}, OPEN),  # its disk is made before there is a pod
        ("others", {}, OPEN),
        ("premium-rwo", {"addonsConfig": UNKNOWN}, OPEN),
        ("premium-rwo", on(gcePersistentDisk=False), OPEN),
        ("premium-rwo", None, OPEN),  # who knows whose cluster
    ],
)
def test_gke_brings_classes_of_its_own(wanted: Any, inputs: Any, expected: Verdict) -> None:
    disk = claiming(mode="ReadWriteOnce", storageClassName=wanted)
    clusters = [] if inputs is None else [cluster(**inputs)]
    judged = judge_program([*clusters, pool(), disk, serving(volumes=[CLAIMED])])
    assert judged.stack is expected


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
    selecting = serving(nodeSelector={"cloud.google.com/gke-nodepool": "gpus-1a2b3c4"})
    found = judge_program([cluster(), mine, selecting])
    assert found.stack is expected
    assert [each.name for each in found.cost.pools] == [told]
    assert "None" not in as_text(found)


def test_nodes_without_the_operators_label_say_who_gives_it() -> None:
    product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}
    wanted = template(containers=[container(gpu=1)], affinity=node_affinity(product))
    gpus = {"guestAccelerators": [{"type": "nvidia-l4", "count": 1}]}
    stack = [cluster(), pool("g2-standard-8", **gpus), resource(job("train", 1, wanted))]
    words = "(the GPU Operator gives nodes nvidia.com/gpu.product; else set accelerator_label of our workloads)"
    assert words in as_text(judge_program(stack))


def test_a_declared_default_class_is_newer_than_that_of_gke() -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    mine = of_class("x.example.com", metadata={"name": "mine", "annotations": default})
    none = quota(hard={"mine.storageclass.storage.k8s.io/persistentvolumeclaims": "0"})
    disk = claiming(mode="ReadWriteOnce", storageClassName=None)
    stack = [cluster(), pool(), disk, serving(volumes=[CLAIMED]), resource(none)]
    assert judge_program(stack).stack is FITS
    assert judge_program([*stack, mine]).stack is CANNOT


ROLE = "node-role.kubernetes.io/gpu"


def labeled(key: str, value: Any) -> Manifest:
    """The nodes of a pool whose machines have a label of Google Cloud."""
    return {"resourceLabels": {key: value}}


@pytest.mark.parametrize(
    ("of_nodes", "path"),
    [
        ({"labels": {ROLE: ""}}, f"labels.{ROLE}"),
        ({"labels": {"kubernetes.io/role": "gpu"}}, "labels.kubernetes.io/role"),
        ({"labels": {"node-restriction.kubernetes.io/gpu": "1", "team": "ML"}}, None),
        ({"labels": {"a/b/c": "x"}}, "labels.a/b/c"),
        ({"labels": {"a..b/c": "x"}}, "labels.a..b/c"),
        ({"labels": {"größe": UNKNOWN}}, "labels.größe"),
        ({"labels": {"team": "a b"}}, "labels.team"),
        ({"labels": {"example.com/a_B.c": "", "team": UNKNOWN}}, None),
        ({"taints": [{"key": "a b", "effect": "NO_SCHEDULE"}]}, "taints[0]"),
        ({"taints": [{"key": "a", "value": "-", "effect": "NO_SCHEDULE"}]}, "taints[0]"),
        ({"taints": [{"key": UNKNOWN, "value": UNKNOWN, "effect": "NO_SCHEDULE"}]}, None),
        (labeled("team", "ML"), "resourceLabels.team"),
        (labeled("Team", "ml"), "resourceLabels.Team"),
        (labeled("team", "ml.research"), "resourceLabels.team"),
        ({"resourceLabels": {"team": "", "größe": "l_1-2", "owner": UNKNOWN}}, None),
        ({"tags": ["gpu-nodes", UNKNOWN, "gpu_nodes"]}, "tags"),
        ({"tags": ["gpu-nodes", UNKNOWN]}, None),
        ({"tags": UNKNOWN, "flexStart": UNKNOWN}, None),
        ({"flexStart": True}, "flexStart"),
        ({"machineType": "n1-standard-8", "flexStart": True, "guestAccelerators": [TESLA]}, None),
        ({"machineType": "g2-standard-8", "flexStart": True}, None),
        ({"machineType": "h4d-standard-192", "flexStart": True}, None),
        ({"machineType": "x9-standard-8", "flexStart": True}, None),
    ],
)
def test_what_google_cloud_refuses_of_a_pool_is_told(of_nodes: Manifest, path: str | None) -> None:
    some = judge_program([cluster(), pool(nodes=0, **of_nodes)])
    assert objects(some, "refused-input") == [("NodePool p", "error")] * bool(path)
    paths = [each.path for each in of_rule(some, "refused-input")]
    assert paths == [f"nodeConfig.{path}"] * bool(path)


def test_what_google_cloud_refuses_of_a_cluster_is_told() -> None:
    found = reported("refused-input", cluster(**labeled("Team", "ml")))
    assert [about for about, _ in found] == ["Cluster c"]


FLEX: Manifest = {"machineType": "g2-standard-8", "flexStart": True}
QUEUED: Manifest = {"queuedProvisioning": {"enabled": True}}
COMPACT: Manifest = {"placementPolicy": {"type": "COMPACT"}}
VALUES = "nodeConfig.reservationAffinity.values"


def of_reservation(name: Any) -> Manifest:
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
        (of_reservation("h100/reservationSubBlocks/s"), {}, VALUES),
        (of_reservation("reservations/h100"), {}, VALUES),
    ],
)
def test_ways_to_buy_that_exclude_each_other(
    of_nodes: Manifest, inputs: Manifest, path: str | None
) -> None:
    type_, given = pool(nodes=0, **of_nodes)
    some = judge_program([cluster(), (type_, given | inputs)])
    assert [each.path for each in of_rule(some, "refused-input")] == [path] * bool(path)


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
    inputs: Manifest, of_cluster: Manifest, told: bool
) -> None:
    type_, given = pool("a2-highgpu-2g", guestAccelerators=[A100])
    found = reported("zones", cluster(**of_cluster), (type_, given | inputs))
    assert found == [("NodePool p", "info")] * told


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ([cluster()], "error"),
        ([], "warning"),
        ([cluster(), (RELEASE, {"chart": "prometheus-adapter"})], "warning"),
    ],
)
def test_a_complete_cluster_makes_a_missing_metric_certain(
    more: list[Resource], severity: str
) -> None:
    type_, server = web(1)
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue"}}}
    scaler = resource(autoscaler(server, maxReplicas=2, metrics=[metric]))
    found = reported("autoscaling-metric", *more, pool(), (type_, server), scaler)
    assert [each for _, each in found] == [severity]


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
    version, group = service or ("", "")
    adapter = {"namespace": "metrics", "name": "adapter"}
    spec = {"version": version, "group": group, "service": adapter}
    # All versions of one adapter.
    for name in (f"{version}.{group}", "v9") if service else ():
        made = cluster_wide("apiregistration.k8s.io/v1", "APIService", name, spec=spec)
        resources.append(resource(made))
    found = of_rule(judge_program(resources), "metrics-owner")
    assert [each.is_error for each in found] == [True] * (owners is not None)
    assert all(f"several adapters serve {group}: {owners}." in each.message for each in found)
