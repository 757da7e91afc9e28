"""Programs with keywords and objects: what they stand for, what waits for what, and what is refused."""

from collections.abc import Callable
from typing import Any

import ml_foundations as mlf
import pulumi
import pulumi_kubernetes as k8s
import pytest
from ml_foundations import (
    ComputeClass,
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    GpuOperator,
    StorageClasses,
    TeamNamespace,
    TrainingJob,
    TrainingQueue,
    Volume,
)
from ml_foundations.component.outputs import KnownOutput, resolve_known
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import REQUIRED

from tests.support.declaring import declared, inputs

IMAGE = "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime"


@pytest.fixture(autouse=True)
def project() -> Any:
    pulumi.runtime.set_all_config({"gcp:project": "my-project"})
    yield
    pulumi.runtime.set_all_config({})


def minimal() -> None:
    cluster = GkeCluster("minimal", location="us-central1", deletion_protection=False)
    CpuNodePool("system", cluster=cluster, machine_type="n2-standard-4", min_nodes=1, max_nodes=3)
    l4 = GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-8", max_nodes=2)
    quota: Any = {"gpus": 2, "cpu": "16", "memory": "64Gi", "storage": "1Ti"}
    research = TeamNamespace("research", cluster=cluster, **quota)
    data = Volume("data", team=research, size="500Gi", storage_class="zonal-balanced")
    TrainingJob(
        "finetune",
        team=research,
        pool=l4,
        gpus=1,
        cpu="6",
        memory="24Gi",
        image=IMAGE,
        command=["python", "/workspace/train.py"],
        mounts=[{"volume": data, "path": "/data"}],
    )


NETWORK = ["minimal-nat", "minimal-network", "minimal-router", "minimal-subnetwork"]
NODES = [
    "minimal-nodes",
    "minimal-nodes-artifactregistry.reader",
    "minimal-nodes-container.defaultNodeServiceAccount",
]
CLUSTER = ["minimal-cluster", *NETWORK, *NODES]
POLICIES = ["default-deny", "dns", "ingress", "internet", "same-namespace", "workload-identity"]
TEAM = [
    "research-limits",
    "research-namespace",
    "research-quota",
    *(f"research-network-{name}" for name in POLICIES),
]
WAITS = {
    "system-pool": CLUSTER,
    "l4-pool": [*CLUSTER, "system-pool"],
    "minimal-kubernetes": ["l4-pool", "minimal-cluster", "system-pool"],
    "research-namespace": [],
    "data-claim": TEAM,
    "finetune-job": ["data-claim", "l4-pool", *TEAM],
}
"""The children of the program, and what each waits for."""


def waits_for(request: Any) -> list[str]:
    return sorted(urn.rpartition("::")[2] for urn in request.dependencies)


def test_every_child_waits_for_what_it_uses() -> None:
    resources = declared(minimal)
    assert {name: waits_for(resources[name]) for name in WAITS} == {
        name: sorted(WAITS[name]) for name in WAITS
    }
    in_cluster = ["research-namespace", "research-quota", "data-claim", "finetune-job"]
    assert all("::minimal-kubernetes::" in resources[name].provider for name in in_cluster)


def test_objects_stand_for_plain_arguments() -> None:
    resources = declared(minimal)
    pool = inputs(resources["l4-pool"])
    assert (pool["project"], pool["location"]) == ("my-project", "us-central1")
    assert pool["cluster"] == "minimal"
    assert pool["nodeConfig"]["serviceAccount"] == "minimal-nodes@example"
    assert not resources["l4-pool"].protect
    job = inputs(resources["finetune-job"])
    pod = job["spec"]["template"]["spec"]
    assert job["metadata"]["namespace"] == "research"
    assert pod["nodeSelector"] == {labels.GKE_NODE_POOL: "l4"}
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}
    [term] = pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["NVIDIA-L4"]


def test_pools_may_keep_their_own_deletion_protection() -> None:
    def program() -> None:
        cluster = a_cluster()
        a_pool("free", cluster=cluster, deletion_protection=False)
        a_pool("kept", cluster=cluster)

    resources = declared(program)
    assert (resources["free-pool"].protect, resources["kept-pool"].protect) == (False, True)


def test_keywords_are_the_dictionary() -> None:
    args: Any = {"gpus": 2, "cpu": 16, "memory": "64Gi", "storage": "1Ti", "data": True}
    by_keyword = declared(lambda: TeamNamespace("research", **args))
    by_dictionary = declared(lambda: TeamNamespace("research", args))
    assert {name: inputs(by_keyword[name]) for name in by_keyword} == {
        name: inputs(by_dictionary[name]) for name in by_dictionary
    }


def refused(program: Callable[[], Any]) -> str:
    """The message of what a program raises."""
    with pytest.raises((pulumi.RunError, TypeError)) as error:
        declared(program)
    return str(error.value)


def a_cluster() -> GkeCluster:
    return GkeCluster("c", location="us-central1")


def a_team(name: str = "research", **more: Any) -> TeamNamespace:
    return TeamNamespace(name, **{"gpus": 1, "cpu": "1", "memory": "1Gi", "storage": "1Gi"} | more)


def a_volume(**more: Any) -> Volume:
    return Volume("v", **{"namespace": "n", "size": "1Gi", "storage_class": "s"} | more)


def a_pool(name: str = "l4", **more: Any) -> GpuNodePool:
    given = more if "cluster" in more else {"cluster": a_cluster()} | more
    return GpuNodePool(name, machine_type="g2-standard-8", **{"max_nodes": 1} | given)


def a_job(**more: Any) -> TrainingJob:
    return TrainingJob("train", **{"image": IMAGE} | more)


def own_provider() -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(provider=k8s.Provider("own"))


REFUSED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "both forms": (
        lambda: TeamNamespace("t", {"gpus": 1}, gpus=1),  # pyright: ignore
        ["TeamNamespace t", "as a dictionary or as keywords, not both"],
    ),
    "options in place of arguments": (
        lambda: TeamNamespace("t", pulumi.ResourceOptions()),  # pyright: ignore
        ["TeamNamespace t", "Pass the options as opts="],
    ),
    "an object of another type": (
        lambda: a_pool(cluster=a_team()),
        ["cluster: must be a GkeCluster, not <TeamNamespace>"],
    ),
    "a name in place of an object": (
        lambda: a_job(team="research"),
        ["team: must be a TeamNamespace, not 'research'"],
    ),
    "an object in place of a name": (
        lambda: a_job(namespace=a_team()),
        ["namespace: must be a text, not <TeamNamespace>. Pass its output namespace"],
    ),
    "an object in place of a mount": (
        lambda: a_job(namespace="n", mounts=[a_volume()]),
        ['mounts[0]: must be a mapping, not <Volume>. Pass it as {"volume": …}'],
    ),
    "an object in place of a list": (
        lambda: ComputeClass("c", pools=a_pool()),  # pyright: ignore
        ["1 invalid argument:\n  pools: must be a list, not <GpuNodePool>. Write it in brackets"],
    ),
    "a name in place of all that an object sets": (
        lambda: a_pool(cluster="c"),
        ["1 invalid argument:\n  cluster: must be a GkeCluster, not 'c'"],
    ),
    "a mapping in place of options": (
        lambda: a_job(namespace="n", foo=1, opts={"protect": True}),
        ["opts: must be pulumi.ResourceOptions(…), not {'protect': True}", "foo: is not known"],
    ),
    "no name": (
        lambda: GpuNodePool(cluster=a_cluster(), machine_type="g2-standard-8", max_nodes=1),  # pyright: ignore
        ["1 invalid argument:\n  name: must be a text, not ''. Write GpuNodePool(\"my-name\", …)"],
    ),
    "a key that an output has not": (
        lambda: a_volume(storage_class=StorageClasses("disks").classes["datasets"], sise=1),
        ['StorageClasses disks: classes: there is no key "datasets". Known: ', "sise: "],
    ),
    "a label that contradicts the pool's": (
        lambda: a_job(namespace="n", pool=a_pool(), node_selector={labels.GKE_NODE_POOL: "t4"}),
        [
            f"node_selector.{labels.GKE_NODE_POOL}: is 't4', and pool sets 'l4'. Leave it out or pool"
        ],
    ),
    "an object and what it sets": (
        lambda: a_pool(location="us-east1", max_nodes=0),
        ["location: is set, and cluster sets it too. Leave out location or cluster", "max_nodes"],
    ),
    "a team and a namespace": (
        lambda: a_job(team=a_team(), namespace="other"),
        ["namespace: is set, and team sets it too. Leave out namespace or team"],
    ),
    "a volume and a claim": (
        lambda: a_job(mounts=[{"path": "/a", "volume": a_volume(), "claim": "c"}], namespace="n"),
        ["mounts[0].claim: is set, and volume sets it too"],
    ),
    "neither a team nor a namespace": (a_job, ["namespace: is required. Set namespace or team"]),
    "a cluster and a team": (
        lambda: a_job(team=a_team(), cluster=a_cluster()),
        ["cluster: is set, and team gives the Kubernetes provider too. Leave out cluster"],
    ),
    "a cluster and a provider": (
        lambda: GpuOperator("o", cluster=a_cluster(), opts=own_provider()),
        ["cluster: is set, and opts has a Kubernetes provider. Leave out cluster or the provider"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_combinations_are_refused(case: str) -> None:
    program, messages = REFUSED[case]
    found = refused(program)
    assert not [message for message in messages if message not in found], found


def test_a_program_adds_labels_and_tolerations_to_those_of_the_pool() -> None:
    def program() -> None:
        pool = a_pool()
        spare: Any = {"key": "spare", "operator": "Exists"}
        more: Any = {"node_selector": {"disk": "ssd"}, "tolerations": [*pool.tolerations, spare]}
        a_job(namespace="n", pool=pool, gpus=1, **more)

    pod = inputs(declared(program)["train-job"])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {labels.GKE_NODE_POOL: "l4", "disk": "ssd"}
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["nvidia.com/gpu", "spare"]


def test_the_project_is_required_without_configuration() -> None:
    pulumi.runtime.set_all_config({})
    expected = "project: is required. Set gcp:project in the stack file (Pulumi.<stack>.yaml)"
    assert expected in refused(a_cluster)


COMPONENTS: dict[str, Callable[[], Any]] = {
    "GkeCluster": a_cluster,
    "GpuNodePool": a_pool,
    "TeamNamespace": a_team,
    "StorageClasses": lambda: StorageClasses("storage"),
    "Volume": a_volume,
    "TrainingJob": lambda: a_job(namespace="n"),
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_what_is_published_carries_the_children(name: str) -> None:
    found: dict[str, Any] = {}

    def program() -> None:
        component = COMPONENTS[name]()
        outputs = {
            key: value for key, value in vars(component).items() if isinstance(value, pulumi.Output)
        }
        outputs.pop("urn", None)
        children = set(component.children.values())
        assert children
        for key, output in outputs.items():
            found[key] = output.resources()
        found["children"] = children

    async def resolved() -> None:
        program()
        for key, value in found.items():
            if key != "children":
                assert await value & found["children"], key

    declared(lambda: pulumi.Output.from_input(resolved()))
    assert len(found) > 1


def test_known_outputs_are_known_at_once() -> None:
    def program() -> None:
        team = a_team()
        assert isinstance(team.namespace, KnownOutput)
        assert resolve_known({"namespace": team.namespace}) == {"namespace": "research"}
        assert resolve_known(team.namespace.apply(lambda name: f"{name}.svc")) == "research.svc"
        pool = a_pool()
        twice = pool.gpus_per_node.apply(lambda count: 2 * count)
        a_team("other", gpus=twice)

    resources = declared(program)
    assert inputs(resources["other-quota"])["spec"]["hard"]["requests.nvidia.com/gpu"] == "2"
    assert "l4-pool" in waits_for(resources["other-quota"])


def test_children_are_attributes() -> None:
    def program() -> None:
        job = a_job(namespace="n")
        assert job.job is job.children["job"]
        volume = a_volume()
        assert volume.claim is volume.children["claim"]
        assert volume.persistent_volume is None
        pulumi.export("uid", job.job.id)

    declared(program)


def test_queues_accept_pools_and_teams() -> None:
    def program() -> None:
        cluster = a_cluster()
        team = a_team(cluster=cluster)
        pool = a_pool(cluster=cluster, flex_start=True, queued_provisioning=True)
        TrainingQueue(
            "queue",
            cluster=cluster,
            flavors=[{"name": "l4", "pool": pool}],
            teams=[{"team": team, "cpu": 4, "memory": "16Gi", "gpus": {"l4": 1}}],
        )

    resources = declared(program)
    flavor = inputs(resources["queue-l4-flavor"])["spec"]
    assert flavor["nodeLabels"][labels.GKE_NODE_POOL] == "l4"
    assert {"l4-pool", "research-namespace"} <= set(waits_for(resources["queue-l4-flavor"]))
    assert "queue-requests-check" in resources


def test_the_cluster_names_the_network_of_file_systems() -> None:
    def program() -> None:
        StorageClasses("storage", cluster=a_cluster(), filestore={"tiers": ["zonal"]})

    assert inputs(declared(program)["storage-filestore-zonal"])["parameters"]["network"] == "c"


def test_the_provider_is_declared_once() -> None:
    def program() -> None:
        cluster = a_cluster()
        assert cluster.kubernetes_provider() is cluster.kubernetes_provider()

    declared(program)


def test_every_name_of_the_package_is_there() -> None:
    for name in mlf.__all__:
        assert getattr(mlf, name) is not None
