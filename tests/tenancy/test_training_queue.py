"""TrainingQueue: flavors, quotas and borrowing as Kueue wants them, and what is refused."""

from typing import Any, get_args

import pytest
import yaml
from ml_foundations.catalog import versions as _versions
from ml_foundations.component.spec import check
from ml_foundations.kinds.kind_files import package_kinds
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys
from ml_foundations.rehearsal.tools import groups
from ml_foundations.tenancy.training_queue import QueuedKind, TrainingQueue, TrainingQueueSpec

from tests.support.declaring import declared, inputs
from tests.support.parts import values_of
from tests.support.refusing import assert_refused

H100: dict[str, Any] = {
    "name": "h100",
    "gpu": "H100",
    "node_selector": {"cloud.google.com/gke-nodepool": "h100"},
    "tolerations": [{"key": "team", "value": "research"}],
}
L4: dict[str, Any] = {"name": "l4", "gpu": "L4"}
RESEARCH = {"namespace": "research", "cpu": "100", "memory": "1Ti", "gpus": {"h100": 8}}
BASE: dict[str, Any] = {"cohort": "ml", "flavors": [H100, L4], "teams": [RESEARCH]}


def spec(**more: Any) -> Any:
    return check(TrainingQueueSpec, "TrainingQueue ml", BASE | more)


def cluster_queue(team: dict[str, Any] = RESEARCH, **more: Any) -> dict[str, Any]:
    [found] = of_kind("ClusterQueue", teams=[team], **more)
    return found["spec"]


def of_kind(kind: str, **more: Any) -> list[dict[str, Any]]:
    return [manifest for manifest in spec(**more).manifests() if manifest["kind"] == kind]


def gpu_flavors(team: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The GPU quota of each flavor of a team."""
    _, *groups = cluster_queue(team)["resourceGroups"]
    flavors = [flavor for group in groups for flavor in group["flavors"]]
    return {flavor["name"]: flavor["resources"][0] for flavor in flavors}


NO_GPUS = [RESEARCH | {"gpus": {}}]
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"teams": []}, ["teams", "at least 1"]),
    ({"teams": [RESEARCH, RESEARCH]}, ["\n  teams[1].namespace: research has a queue already"]),
    (
        {"teams": [RESEARCH | {"gpus": {"h200": 8}}]},
        [
            '\n  teams[0].gpus.h200: there is no flavor "h200". Did you mean h100? Known: h100 and l4'
        ],
    ),
    ({"teams": [RESEARCH | {"gpus": {"h100": -1}}]}, ["gpus.h100: is -1"]),
    (
        {"teams": [RESEARCH | {"lend_gpus": {"h100": 9}}]},
        ["lend_gpus.h100: is 9, more than its own (8)"],
    ),
    (
        {"borrowing": False, "teams": [RESEARCH | {"borrow_gpus": {"h100": 8}}]},
        ["teams[0].borrow_gpus: has no effect", "borrowing is false"],
    ),
    ({"flavors": [H100, {"name": "any"}]}, ["flavors[1].gpu: is required, or node_selector"]),
    ({"install": False, "ready_seconds": 60}, ["ready_seconds: is for an installed Kueue"]),
    ({"install": False, "values": {"a": 1}}, ["values: is for an installed Kueue"]),
    ({"flavors": [H100, H100]}, ["\n  flavors[1].name: h100 is taken"]),
    (
        {"topology": ["block", "subblock"]},
        ['\n  topology[1]: there is no level "subblock". Did you mean sub-block?'],
    ),
    (
        {"topology": ["block", "cloud.google.com/gce-topology-block"]},
        ["topology[1]: cloud.google.com/gce-topology-block is taken"],
    ),
    (
        {"topology": ["hostname", "block"]},
        ["\n  topology: has hostname, the smallest domain, before others; put it last"],
    ),
    (
        {"flavors": [L4 | {"topology": ["hostname"]}], "teams": NO_GPUS},
        ["flavors[0].topology: is for a queue with a topology; set topology"],
    ),
    ({"flavors": [H100 | {"name": "compute"}], "teams": NO_GPUS}, ["compute is taken"]),
    ({"flavors": [H100 | {"gpu": "B52"}]}, ["flavors[0].gpu", "is not in the catalog"]),
    ({"reclaim": "always"}, ["reclaim", "'never', 'lower_priority' or 'any'"]),
    ({"overrides": {"Queue": {}}}, ["overrides.Queue", "ResourceFlavor, ClusterQueue, LocalQueue"]),
]


@pytest.mark.parametrize(("more", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_right_is_refused_at_preview(more: dict[str, Any], words: list[str]) -> None:
    assert_refused(TrainingQueueSpec, BASE | more, *words)


def test_a_flavor_says_all_that_pods_are_told_apart_by() -> None:
    """Kueue compares affinity with the labels of flavors: without the model, an L4's Job could be sent to H100s.

    Its scheduler does not see tolerations that a webhook adds later, so that the flavor has them.
    """
    compute, h100, l4 = of_kind("ResourceFlavor")
    assert compute["spec"] == {}
    assert h100["spec"] == yaml.safe_load("""
        nodeLabels:
          nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
          cloud.google.com/gke-accelerator: nvidia-h100-80gb
          cloud.google.com/gke-nodepool: h100
        tolerations: [{key: team, operator: Equal, value: research}]
    """)
    assert l4["spec"]["nodeLabels"]["nvidia.com/gpu.product"] == "NVIDIA-L4"


@pytest.mark.parametrize(
    ("gpu", "accelerator", "partition"),
    [
        ("H100-MEGA", "nvidia-h100-mega-80gb", None),
        ("nvidia-h100-mega-80gb", "nvidia-h100-mega-80gb", None),
        ("NVIDIA-H100-80GB-HBM3", None, None),  # A3 High and A3 Mega have this label
        ("A100-MIG-1g.5gb", "nvidia-tesla-a100", "1g.5gb"),
    ],
)
def test_a_flavor_has_the_labels_of_its_accelerator(
    gpu: str, accelerator: str | None, partition: str | None
) -> None:
    _, h100, _ = of_kind("ResourceFlavor", flavors=[H100 | {"gpu": gpu}, L4])
    labels = h100["spec"]["nodeLabels"]
    assert labels.get("cloud.google.com/gke-accelerator") == accelerator
    assert labels.get("cloud.google.com/gke-gpu-partition-size") == partition


def test_a_team_has_cpu_and_memory_anywhere_and_gpus_by_flavor() -> None:
    assert cluster_queue()["resourceGroups"] == yaml.safe_load("""
        - coveredResources: [cpu, memory]
          flavors:
            - name: compute
              resources: [{name: cpu, nominalQuota: "100"}, {name: memory, nominalQuota: 1Ti}]
        - coveredResources: [nvidia.com/gpu]
          flavors:
            - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: "8"}]}
    """)


@pytest.mark.parametrize(
    ("more", "quotas"),
    [
        ({"gpus": {}}, {}),
        ({"gpus": {"l4": 4}}, {"l4": {"nominalQuota": "4"}}),
        (
            {"gpus": {"h100": 8}, "borrow_gpus": {"h100": 16, "l4": 2}, "lend_gpus": {"h100": 4}},
            {
                "h100": {"nominalQuota": "8", "borrowingLimit": "16", "lendingLimit": "4"},
                # Who only borrows has a quota too, of nothing.
                "l4": {"nominalQuota": "0", "borrowingLimit": "2"},
            },
        ),
    ],
)
def test_quotas_and_borrowing(more: dict[str, Any], quotas: dict[str, Any]) -> None:
    found = gpu_flavors(RESEARCH | more)
    assert found == {name: {"name": "nvidia.com/gpu", **quota} for name, quota in quotas.items()}


def test_cpu_and_memory_are_borrowed_up_to_a_limit() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, batch/kueue-cohort/cq-team-a.yaml, on nodes of one kind."""
    quota = {"cpu": "10", "memory": "10Gi", "borrow_cpu": "5", "borrow_memory": "15Gi"}
    found = cluster_queue({"namespace": "team-a", **quota}, cohort="all-teams")
    assert found["cohortName"] == "all-teams"
    assert found["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    [group] = found["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory"]
    assert group["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "10", "borrowingLimit": "5"},
        {"name": "memory", "nominalQuota": "10Gi", "borrowingLimit": "15Gi"},
    ]


def test_teams_of_a_cohort_lend_and_reclaim() -> None:
    found = cluster_queue()
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    assert (found["cohortName"], found["preemption"]) == ("ml", preemption)
    alone = cluster_queue(borrowing=False, preempt="never")
    assert "cohortName" not in alone
    assert alone["preemption"] == {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}


def test_only_the_team_gets_into_its_queue() -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "research"}}
    assert cluster_queue()["namespaceSelector"] == selector
    [local] = of_kind("LocalQueue")
    assert local["metadata"].items() >= {"namespace": "research", "name": "training"}.items()
    assert local["spec"] == {"clusterQueue": "research"}


def is_after(request: Any, name: str) -> bool:
    return any(urn.endswith(f"::{name}") for urn in request.dependencies)


def test_queues_come_after_what_they_need_and_go_before_it() -> None:
    """Kueue keeps a flavor while a queue has it, and a queue while something runs in it."""
    args: Any = {"flavors": [H100], "teams": [RESEARCH]}
    made = declared(lambda: TrainingQueue("ml", args))
    kueue, flavor = made["ml-kueue"], made["ml-h100-flavor"]
    queues = cluster_queue, _ = made["ml-research-cluster-queue"], made["ml-research-queue"]
    assert flavor.type == "kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor"
    assert kueue.type == "kubernetes:helm.sh/v3:Release"
    assert is_after(flavor, "ml-kueue")
    assert is_after(cluster_queue, "ml-h100-flavor")
    assert is_after(made["ml-research-queue"], "ml-research-cluster-queue")
    for queue in queues:
        annotations = inputs(queue)["metadata"]["annotations"]
        assert annotations == {"pulumi.com/waitFor": "condition=Active"}
    assert "ml-kueue" not in declared(lambda: TrainingQueue("ml", args | {"install": False}))


QUEUED = L4 | {"name": "h200", "gpu": "H200", "queued_provisioning": True}


def test_nodes_of_a_queued_pool_are_asked_for_all_at_once() -> None:
    """GKE makes such nodes for a ProvisioningRequest of its class alone; Kueue makes one by an AdmissionCheck."""
    teams = [RESEARCH | {"gpus": {"h100": 8, "h200": 16}}]
    args: Any = {"flavors": [H100, QUEUED], "teams": teams}
    [config] = of_kind("ProvisioningRequestConfig", **args)
    [check] = of_kind("AdmissionCheck", **args)
    assert config["spec"] == yaml.safe_load("""
        provisioningClassName: queued-provisioning.gke.io
        managedResources: [nvidia.com/gpu]
        podSetUpdates:
          nodeSelector:
            - key: autoscaling.gke.io/provisioning-request
              valueFromProvisioningClassDetail: ResizeRequestName
    """)
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig"}
    assert check["spec"] == {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": parameters | {"name": config["metadata"]["name"]},
    }
    checks = [{"name": check["metadata"]["name"], "onFlavors": ["h200"]}]
    [queue] = of_kind("ClusterQueue", **args)
    assert queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": checks}
    [other] = of_kind("ClusterQueue", **args | {"teams": [RESEARCH]})
    assert "admissionChecksStrategy" not in other["spec"], "its flavors are not queued"
    assert not of_kind("AdmissionCheck")
    made = declared(lambda: TrainingQueue("ml", args))
    assert is_after(made["ml-research-cluster-queue"], "ml-requests-check")
    assert is_after(made["ml-requests-check"], "ml-requests")


def kueue_values(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of Kueue's chart, and the configuration of its manager in them."""
    values = values_of(spec(**more))
    return values, yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])


def test_the_rehearsal_runs_the_declared_version_of_a_chart() -> None:
    values, config = kueue_values()
    assert not list(unknown_keys("kueue", values))
    [port] = values["webhookService"]["ports"]
    assert port["targetPort"] == config["webhook"]["port"] == 10250, (
        "GKE's control plane reaches that, and 443"
    )
    assert config["waitForPodsReady"] == {"timeout": "1200s"}, "half of a gang gives its nodes back"
    assert config["integrations"]["frameworks"] == ["batch/job", "jobset.x-k8s.io/jobset"]
    teams = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["research"]}
    assert config["managedJobsNamespaceSelector"] == {"matchExpressions": [teams]}
    disruption_budget = {"enabled": True, "minAvailable": 1}
    assert values["controllerManager"] == {"replicas": 2, "podDisruptionBudget": disruption_budget}
    assert groups.KUEUE.pinned("sigs.k8s.io/kueue") == f"v{_versions.KUEUE.version}"


@pytest.mark.parametrize(
    ("kinds", "frameworks"),
    [
        (["Job"], ["batch/job"]),
        (["Deployment", "StatefulSet"], ["pod", "deployment", "statefulset"]),
        (["Job", "Pod"], ["batch/job", "pod"]),
    ],
)
def test_kueue_manages_the_kinds_that_are_named(kinds: list[str], frameworks: list[str]) -> None:
    _, config = kueue_values(kinds=kinds)
    assert config["integrations"]["frameworks"] == frameworks


LEVELS = ["block", "sub-block", "example.com/rack", "hostname"]


def test_a_topology_is_in_each_flavor_of_gpus() -> None:
    [made] = of_kind("Topology", topology=LEVELS)
    assert made["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert made["metadata"]["name"] == "ml"
    assert [level["nodeLabel"] for level in made["spec"]["levels"]] == [
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "example.com/rack",
        "kubernetes.io/hostname",
    ]
    compute, *gpus = of_kind("ResourceFlavor", topology=LEVELS)
    assert "topologyName" not in compute["spec"]
    assert [flavor["spec"]["topologyName"] for flavor in gpus] == ["ml", "ml"]
    assert of_kind("Topology") == []


def test_a_flavor_may_have_fewer_levels() -> None:
    flavors = [H100, L4 | {"topology": ["hostname"]}]
    made = of_kind("Topology", topology=LEVELS, flavors=flavors)
    assert [topology["metadata"]["name"] for topology in made] == ["ml", "ml-l4"]
    assert made[1]["spec"]["levels"] == [{"nodeLabel": "kubernetes.io/hostname"}]
    _, *gpus = of_kind("ResourceFlavor", topology=LEVELS, flavors=flavors)
    names = [flavor["spec"]["topologyName"] for flavor in gpus]
    assert names == ["ml", "ml-l4"]


def test_one_flavor_has_all_resources_of_a_pod_with_a_topology() -> None:
    """Kueue refuses a flavor without topology for any resource that a pod with one requests."""
    [group] = cluster_queue(topology=LEVELS)["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu"]
    [flavor] = group["flavors"]
    assert flavor["name"] == "h100"
    quotas = {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
    assert quotas == {"cpu": "100", "memory": "1Ti", "nvidia.com/gpu": "8"}


def test_a_team_without_gpus_has_no_topology() -> None:
    team = RESEARCH | {"gpus": {}}
    [group] = cluster_queue(team, topology=LEVELS)["resourceGroups"]
    assert [flavor["name"] for flavor in group["flavors"]] == ["compute"]


def test_flavors_are_deleted_before_their_topology() -> None:
    parts = {part.suffix: part for part in spec(topology=LEVELS).children()}
    assert parts["h100-flavor"].depends_on == ["topology"]
    assert parts["topology"].depends_on == ["kueue"]
    assert "topology" in parts["research-cluster-queue"].depends_on


@pytest.mark.parametrize(("levels", "warned"), [(LEVELS, False), (LEVELS[:-1], True), ([], False)])
def test_a_topology_without_host_names_warns(levels: list[str], warned: bool) -> None:
    assert [text.partition(":")[0] for text in spec(topology=levels).warnings()] == (
        ["the last level of topology is example.com/rack"] if warned else []
    )


NEXT, STOP = "TryNextFlavor", "MayStopSearch"


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (["borrow"], None),
        ([], {"whenCanBorrow": NEXT, "whenCanPreempt": NEXT}),
        (["preempt"], {"whenCanBorrow": NEXT, "whenCanPreempt": STOP}),
        (["preempt", "borrow"], {"whenCanBorrow": STOP, "whenCanPreempt": STOP}),
    ],
)
def test_what_is_tried_before_the_next_flavor(before: list[str], found: Any) -> None:
    assert cluster_queue(before_next_flavor=before).get("flavorFungibility") == found


def test_a_flavor_of_a_class_needs_no_model() -> None:
    flavor = {"name": "h100", "compute_class": "any"}
    _, made, _ = of_kind("ResourceFlavor", flavors=[flavor, L4])
    assert made["metadata"]["name"] == "h100"
    assert made["spec"]["nodeLabels"] == {"cloud.google.com/compute-class": "any"}
    assert [item["value"] for item in made["spec"]["tolerations"]] == ["any"]


def test_each_kind_that_kueue_queues_may_be_in_kinds() -> None:
    """The finding on a workload in a queue says to add its kind."""
    kinds = package_kinds().items()
    queued = {name for name, kind in kinds if kind.queue and kind.queue.frameworks}
    assert queued == set(get_args(QueuedKind))
