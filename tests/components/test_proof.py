"""The proof in a program of one's own: resources that are not our components, and values that are not known yet."""

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest
import yaml
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    TeamNamespace,
    TrainingJob,
)
from ml_foundations.component.outputs import inputs_as_sent
from ml_foundations.proof import Proof
from ml_foundations.rehearsal.engine import environment, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import Checkout
from tests.support.declaring import declared
from tests.support.previewing import Said, preview


def refused_on(gpus_by_model: dict[str, int], on: str) -> str:
    """The refusal of a Job with a GPU, on a pool of its cluster or of another."""

    def program() -> None:
        place: Any = {"project": "some-project", "location": "us-central1"}
        with Proof():
            cluster = GkeCluster("here", **place)
            there = GkeCluster("there", **place)
            pools = {
                "l4": GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-8", max_nodes=1),
                "cpu": CpuNodePool(
                    "cpu", cluster=cluster, machine_type="n2-standard-8", max_nodes=1
                ),
                "far": GpuNodePool("far", cluster=there, machine_type="g2-standard-8", max_nodes=1),
            }
            quota: Any = {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti"}
            team = TeamNamespace("ml", cluster=cluster, gpus_by_model=gpus_by_model, **quota)
            pod: Any = {"image": "i", "cpu": "1", "memory": "1Gi", "gpus": 1}
            TrainingJob("train", team=team, pool=pools[on], **pod)

    with pytest.raises(pulumi.RunError) as error:
        declared(program)
    return str(error.value)


def test_gpus_of_a_team_by_model_need_a_priority_class() -> None:
    remedy = "Set priorityClassName to ml-nvidia-l4 (priority_class of our workloads, by their GPU)"
    assert remedy in refused_on({"L4": 1}, "l4")


@pytest.mark.parametrize(
    ("on", "fault"),
    [
        ("cpu", 'the nearest, "cpu", does not take it: it needs 1 nvidia.com/gpu'),
        ("far", "the node pools are l4 and cpu, not far"),
    ],
)
def test_the_pool_that_a_workload_selects_is_the_nearest(on: str, fault: str) -> None:
    assert fault in refused_on({}, on)


def overlapping(*, raw: bool) -> None:
    """A cluster, and a pool whose second network has an address of the cluster's nodes."""
    region: Any = {"location": "us-central1"}
    with Proof():
        if not raw:
            cluster = GkeCluster("ml", project="some-project", multi_networking=True, **region)
            pool: Any = {"machine_type": "a3-megagpu-8g", "max_nodes": 1}
            networks: Any = {"gpu_network": "multi-network", "gpu_network_cidr": "10.0.0.0/16"}
            zones: Any = {"zones": ["us-central1-a"]}
            GpuNodePool("gpus", cluster=cluster, **pool, **networks, **zones)
            return
        pods: Any = {"cluster_secondary_range_name": "pods"}
        made = gcp.container.Cluster("c", name="ml", ip_allocation_policy=pods, **region)
        ranges: Any = [{"range_name": "pods", "ip_cidr_range": "10.16.0.0/14"}]
        for name, block, more in (("ml", "10.0.0.0/20", ranges), ("gpus", "10.0.8.0/24", None)):
            network = gcp.compute.Network(name, name=name)
            subnetwork = gcp.compute.Subnetwork(
                name,
                name=name,
                network=network.id,
                ip_cidr_range=block,
                secondary_ip_ranges=more,
            )
            names: Any = {"network": network.name, "subnetwork": subnetwork.name}
        config: Any = {"additional_node_network_configs": [names]}
        gcp.container.NodePool("p", name="gpus", cluster=made.name, network_config=config, **region)


@pytest.mark.parametrize("raw", [True, False], ids=["resources", "components"])
def test_names_of_networks_are_known_before_the_registration(raw: bool) -> None:
    with pytest.raises(pulumi.RunError, match=r"NodePool gpus: 10\.\S* overlaps with 10\."):
        declared(lambda: overlapping(raw=raw))


PROGRAM = '''
from decimal import Decimal

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from ml_foundations.proof import Proof

proof = Proof({"node-selector": "the label comes with the next pool"}, Decimal(1000))
cluster = gcp.container.Cluster("c", name="c", location="us-central1-a", remove_default_node_pool=True, initial_node_count=1)
gcp.container.NodePool(
    "big", name="big", cluster=cluster.name, location="us-central1-a", node_count=4,
    node_config={"machine_type": "n2-standard-32", "labels": {"disk": "ssd"}},
)
here = pulumi.ResourceOptions(provider=k8s.Provider("k", kubeconfig=cluster.endpoint))

k8s.core.v1.Namespace("team", metadata={"name": "team"}, opts=here)


def server(name, replicas, cpu, **spec):
    """A Deployment in the team's namespace."""
    container = {"name": "main", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    spec = {"replicas": replicas, "selector": {"match_labels": {"app": name}}, "template": template}
    k8s.apps.v1.Deployment(name, metadata={"name": name, "namespace": "team"}, spec=spec, opts=here)


server("fits", 2, "1")
server("large", 1, {large})
server("picky", 1, "1", node_selector={"disk": "hdd"})
server("later", cluster.endpoint.apply(len), "1")
k8s.core.v1.ResourceQuota(
    "quota", metadata={"name": "quota", "namespace": "team"}, spec={"hard": {"pods": "50"}}, opts=here
)
proof.finish()
'''


LARGE = "resources, spec.template.spec.containers[0].resources.requests.cpu]"


@pytest.fixture(scope="module")
def project(tools: Tools, copy_checkout: Callable[[], Checkout]) -> Rehearsal:
    """A program whose server asks for more CPU than a node has."""
    root = copy_checkout().root / "program"
    root.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": "../.venv"}}
    (root / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "program", "runtime": runtime}))
    (root / "Pulumi.dev.yaml").write_text(
        yaml.safe_dump({"config": {"gcp:project": "some-project"}})
    )
    (root / "__main__.py").write_text(PROGRAM.replace("{large}", '"40"'))
    return Rehearsal.of("dev", root)


@pytest.fixture(scope="module")
def said(project: Rehearsal, tools: Tools) -> Said:
    return preview(project.project, tools)


def errors(said: Said) -> list[str]:
    (message,) = [
        text for text in said.of("error") if "the stack cannot run as it is declared" in text
    ]
    errors, _, details = message.partition("\n\n")
    assert details.startswith("Quota ")
    return errors.splitlines()[1:]


def test_a_preview_fails_with_every_finding_at_once(said: Said) -> None:
    assert not said.ok
    assert [text.rpartition(" [")[2] for text in errors(said)] == [
        LARGE,
        "monthly-budget, monthly_budget]",
    ]
    assert not any("Traceback" in text for text in said.of("error"))


def test_an_accepted_rule_is_shown_with_its_reason(said: Said) -> None:
    (accepted,) = [text for text in said.of("warning") if text.startswith("accepted")]
    assert accepted.startswith(
        "accepted, because the label comes with the next pool: Deployment team/picky:"
    )


def test_what_is_not_known_before_the_registration_is_not_shown_with_errors(said: Said) -> None:
    assert not [text for text in said.of("warning") if "[unknown-value" in text]


def test_what_fits_is_not_mentioned(said: Said) -> None:
    assert not any("team/fits" in item["message"] for item in said.diagnostics)


def test_the_engine_gets_nothing_of_a_refused_program(said: Said) -> None:
    assert said.created == []


def test_without_a_preview_a_refused_program_creates_nothing(
    said: Said, project: Rehearsal
) -> None:
    done = stack.pulumi(project, "up", "--yes", "--skip-preview")
    refused(done.stdout + done.stderr, project)


def test_a_refused_inline_program_creates_nothing(
    said: Said, project: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.project)
    for key, value in environment.process_environment(project).items():
        monkeypatch.setenv(key, value)
    body = (project.project / "__main__.py").read_text()
    inline = pulumi.automation.select_stack(
        "dev", project_name="program", program=lambda: exec(body, {})
    )
    with pytest.raises(pulumi.automation.CommandError) as caught:
        inline.up()
    refused(str(caught.value), project)


def refused(text: str, project: Rehearsal) -> None:
    """Assert that a command said once what is wrong, and left nothing but the stack."""
    assert "Deployment team/large: " in text, text
    assert LARGE in text
    assert "Traceback" not in text
    state = json.loads(stack.pulumi(project, "stack", "export").stdout)
    assert [item["type"] for item in state["deployment"]["resources"]] == ["pulumi:pulumi:Stack"]


def test_what_the_engine_tells_is_judged_again(project: Rehearsal, tools: Tools) -> None:
    (project.project / "__main__.py").write_text(
        PROGRAM.replace("{large}", 'cluster.name.apply(lambda _: "40")').replace(
            "Decimal(1000)", "None"
        )
    )
    said = preview(project.project, tools)
    assert not said.ok
    assert [text.rpartition(" [")[2] for text in errors(said)] == [LARGE]
    assert "large" in said.created


POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {
        "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}
        ]
    },
}
"""The API server refuses it: a request above its limit."""


def refused_pod(**options: Any) -> None:
    proof = Proof()
    k8s.core.v1.Pod("p", **POD, opts=pulumi.ResourceOptions(**options))
    proof.finish()


def test_nothing_of_a_refused_program_is_registered() -> None:
    seen: list[str] = []

    def program() -> None:
        pulumi.runtime.register_stack_transformation(lambda args: seen.append(args.name))
        pulumi.export("name", "plain")
        refused_pod()

    with pytest.raises(pulumi.RunError, match="request-above-limit"):
        declared(program)
    assert seen == ["p"]


@pytest.mark.parametrize(
    "error", [ValueError("oh"), pulumi.RunError("oh"), SystemExit(1)], ids=repr
)
def test_nothing_of_a_program_that_fails_is_registered(error: BaseException) -> None:
    seen: list[str] = []
    registered: list[str] = []

    def program() -> None:
        pulumi.runtime.register_stack_transformation(lambda args: seen.append(args.name))
        with Proof():
            k8s.core.v1.ConfigMap("c", metadata={"name": "c"}).urn.apply(registered.append)
            raise error

    with pytest.raises(type(error)) as caught:
        declared(program)
    assert caught.value is error
    assert (seen, registered) == (["c"], [])


def mend(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
    limits = {"cpu": "2"}
    mended = {
        "containers": [
            {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
        ]
    }
    return pulumi.ResourceTransformationResult(args.props | {"spec": mended}, args.opts)


@pytest.mark.parametrize("follows", [False, True])
def test_a_later_stack_transformation_may_fix_an_early_finding(follows: bool) -> None:
    def program() -> None:
        if not follows:
            pulumi.runtime.register_stack_transformation(mend)
        with Proof():
            if follows:
                pulumi.runtime.register_stack_transformation(mend)
            k8s.core.v1.Pod("p", **POD)

    assert "p" in declared(program)


def test_the_first_look_ignores_an_incomplete_program() -> None:
    def brings_yaml() -> None:
        proof = Proof()
        k8s.core.v1.Pod("p", **POD)
        k8s.yaml.v2.ConfigGroup("more", yaml="")
        proof.finish()

    assert "p" in declared(brings_yaml)


class ByDeclarations(Proof):
    """Learns from the program what else transforms tell, which mocks do not call."""

    async def _judge_registered(self) -> str:
        for args in self._declared:
            await args.resource.urn.future()
            sent = inputs_as_sent(type(args.resource), args.props)
            provider = args.resource.get_provider(args.type_)
            opts = pulumi.ResourceOptions.merge(
                args.opts, pulumi.ResourceOptions(provider=provider)
            )
            custom = isinstance(args.resource, pulumi.CustomResource)
            await self._collect(
                pulumi.ResourceTransformArgs(custom, args.type_, args.name, sent, opts)
            )
        return await super()._judge_registered()


class OfAnotherProcess(Proof):
    """Learns from Pulumi of an object that this process does not declare, such as a chart's."""

    async def _judge_registered(self) -> str:
        inputs = {"apiVersion": "v1", "kind": "Pod", **POD}
        opts = pulumi.ResourceOptions()
        pod = pulumi.ResourceTransformArgs(True, "kubernetes:core/v1:Pod", "p", inputs, opts)
        await self._collect(pod)
        return await super()._judge_registered()


def test_objects_that_another_process_declares_are_judged() -> None:
    def program() -> None:
        with OfAnotherProcess():
            k8s.core.v1.ConfigMap("c")

    with pytest.raises(pulumi.RunError, match="Pod default/p"):
        declared(program)


def test_objects_that_pulumi_names_are_found_by_their_names() -> None:
    """The namespace refuses the pod; that it is the pod's is told by the name that came with it."""
    spec: Any = {
        "containers": [{"name": "c", "image": "i", "security_context": {"privileged": True}}]
    }

    def program() -> None:
        with ByDeclarations():
            level = {"pod-security.kubernetes.io/enforce": "baseline"}
            namespace = k8s.core.v1.Namespace("mine", metadata={"labels": level})
            place: Any = {"namespace": namespace.metadata.name}
            k8s.core.v1.Pod("p", metadata=place, spec=spec)

    with pytest.raises(
        pulumi.RunError, match=r"Pod mine-1a2b3c4d/p-1a2b3c4d: .* Pod Security baseline"
    ):
        declared(program)


@pytest.mark.parametrize("name", ["pool-1a2b3c4", "pool-7654321"])
def test_a_pool_that_pulumi_names_is_known_by_that_name(name: str) -> None:
    def program() -> None:
        with ByDeclarations():
            gcp.container.Cluster(
                "c", location="europe-west4-a", remove_default_node_pool=True, initial_node_count=1
            )
            gcp.container.NodePool("pool", cluster="c", location="europe-west4-a", node_count=1)
            selector: Any = {"cloud.google.com/gke-nodepool": name}
            small: Any = {"containers": [{"name": "c", "image": "i"}]}
            k8s.core.v1.Pod("p", metadata={"name": "p"}, spec={"node_selector": selector, **small})

    if name == "pool-1a2b3c4":
        declared(program)
    else:
        with pytest.raises(
            pulumi.RunError, match='"pool-1a2b3c4", does not take it: node selector'
        ):
            declared(program)


def test_a_refused_object_without_a_name_shows_its_resource() -> None:
    def program() -> None:
        with Proof():
            k8s.core.v1.Pod("nameless", spec=POD["spec"])

    with pytest.raises(pulumi.RunError, match="Pod default/nameless-xxxxxxxx: "):
        declared(program)


FAILS = """
import pulumi_kubernetes as k8s
from ml_foundations.proof import Proof

with Proof():
    k8s.core.v1.ConfigMap("c", metadata={"name": "c"})
    raise LookupError("no such data")
"""


def test_a_failing_program_reports_its_error(project: Rehearsal, tools: Tools) -> None:
    (project.project / "__main__.py").write_text(FAILS)
    said = preview(project.project, tools)
    assert not said.ok
    assert said.created == []
    (error,) = [text for text in said.of("error") if "no such data" in text]
    assert "While processing" not in error
    assert 'raise LookupError("no such data")' in error


MENDS = """
import pulumi

def mend(args):
    if args.name == "large":
        args.props["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    return pulumi.ResourceTransformResult(args.props, args.opts)
"""
OF_ALL = (
    "proof = Proof(",
    MENDS + "pulumi.runtime.register_resource_transform(mend)\nproof = Proof(",
)
OF_ONE = ("cluster.endpoint))", "cluster.endpoint), transforms=[mend])")


@pytest.mark.parametrize("change", [OF_ALL, OF_ONE], ids=["of all resources", "of a resource"])
def test_what_a_transform_mends_is_not_refused(
    project: Rehearsal, tools: Tools, change: tuple[str, str]
) -> None:
    program = PROGRAM.replace("{large}", '"40"').replace("Decimal(1000)", "None").replace(*change)
    (project.project / "__main__.py").write_text(program if change is OF_ALL else MENDS + program)
    said = preview(project.project, tools)
    assert said.ok, said.diagnostics
    assert "large" in said.created


def test_an_error_names_the_line_and_the_component_that_it_comes_from() -> None:
    box = {"name": "m", "image": "i", "resources": {"requests": {"cpu": "9"}}}

    def program() -> None:
        with Proof():
            team = TeamNamespace("research", gpus=1, cpu="1", memory="1Gi", storage="1Gi")
            TrainingJob("train", team=team, image="i", cpu="8", memory="1Gi")
            k8s.core.v1.Pod(
                "p", metadata={"name": "p", "namespace": team.namespace}, spec={"containers": [box]}
            )

    with pytest.raises(pulumi.RunError) as refused:
        declared(program)
    lines = str(refused.value).splitlines()
    assert lines[lines.index("") + 1].startswith("Quota research/team-quota leaves ")
    job = next(line for line in lines if line.startswith("  Job research/train: "))
    pod = next(line for line in lines if line.startswith("  Pod research/p: "))
    start = program.__code__.co_firstlineno
    assert f" Written at test_proof.py:{start + 3} (TrainingJob train). [" in job
    assert f" Written at test_proof.py:{start + 4}. [" in pod


def test_a_refused_training_does_not_lack_the_networks_of_its_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings = list[str]()
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)

    def program() -> None:
        with Proof():
            cluster = GkeCluster("lab", location="us-east4", multi_networking=True)
            pool = GpuNodePool(
                "h100",
                cluster=cluster,
                zones=["us-east4-b"],
                machine_type="a3-megagpu-8g",
                max_nodes=2,
                gpu_network="auto",
            )
            team = TeamNamespace(
                "research",
                cluster=cluster,
                pod_security="privileged",
                gpus=64,
                cpu="1k",
                memory="8Ti",
                storage="1Ti",
            )
            DistributedTraining(
                "llama", team=team, pool=pool, nodes=4, gpus=8, image="i:1", command=["a"]
            )

    pulumi.runtime.set_all_config({"gcp:project": "some-project"})
    with pytest.raises(pulumi.RunError, match=r"room for 2 of the 4 pods that must run"):
        declared(program)
    assert not [text for text in warnings if "interfaces need nodes" in text]


def app(name: str, cpu: str, provider: pulumi.ProviderResource) -> None:
    """A namespace and a Pod in it, which have the same names in each cluster."""
    opts = pulumi.ResourceOptions(provider=provider)
    namespace = k8s.core.v1.Namespace(f"{name}-team", metadata={"name": "team"}, opts=opts)
    container: Any = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    k8s.core.v1.Pod(
        f"{name}-web",
        metadata={"name": "web", "namespace": "team"},
        spec={"containers": [container]},
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[namespace])),
    )


def own_clusters() -> list[pulumi.ProviderResource]:
    """Two clusters of our component, whose pool has nodes of 4 and of 16 CPUs."""
    providers: list[pulumi.ProviderResource] = []
    for name, place, machine in PLACES:
        made = GkeCluster(name, project="acme-ml", location=place, node_service_account=NODES)
        CpuNodePool(f"{name}-cpu", cluster=made, machine_type=machine, max_nodes=3)
        providers.append(made.kubernetes_provider())
    return providers


def clusters_of_others() -> list[pulumi.ProviderResource]:
    """The same in a program that uses no component, with kubeconfigs that it writes."""
    providers: list[pulumi.ProviderResource] = []
    for name, place, machine in PLACES:
        made = gcp.container.Cluster(
            name, name=name, location=place, remove_default_node_pool=True, initial_node_count=1
        )
        gcp.container.NodePool(
            name,
            cluster=made.id,
            location=place,
            node_count=1,
            node_config={"machine_type": machine},
        )
        text = made.endpoint.apply(lambda address: f"kubeconfig of {address}")
        providers.append(k8s.Provider(name, kubeconfig=text))
    return providers


NODES = "nodes@acme-ml.iam.gserviceaccount.com"
PLACES = (("east", "us-east1", "e2-standard-4"), ("west", "us-west1", "e2-standard-16"))


@pytest.mark.parametrize("cpu", ["1", "8"])
@pytest.mark.parametrize("clusters", [own_clusters, clusters_of_others])
def test_each_cluster_is_judged_by_its_provider(
    clusters: Callable[[], list[pulumi.ProviderResource]], cpu: str
) -> None:
    """Of a component, also before anything is registered."""
    registered: list[str] = []

    def program() -> None:
        with ByDeclarations():
            east, west = clusters()
            east.urn.apply(registered.append)
            app("east", cpu, east)
            app("west", "8", west)

    if cpu == "1":
        assert "west-web" in declared(program)
        return
    with pytest.raises(pulumi.RunError) as caught:
        declared(program)
    assert "Pod team/web in cluster us-east1/east" in str(caught.value)
    assert "us-west1/west" not in str(caught.value)
    assert bool(registered) == (clusters is clusters_of_others)


def test_a_second_provider_is_of_a_cluster_that_exists() -> None:
    """Its objects find neither the nodes nor the namespaces of the program's own cluster."""

    def program() -> None:
        with ByDeclarations():
            made = GkeCluster(
                "east", project="acme-ml", location="us-east1", node_service_account=NODES
            )
            CpuNodePool("cpu", cluster=made, machine_type="e2-standard-4", max_nodes=3)
            app("east", "1", made.kubernetes_provider())
            old = k8s.Provider("old", kubeconfig="kubeconfig of old")
            opts = pulumi.ResourceOptions(provider=old)
            pod: Any = {"containers": [{"name": "c", "image": "i"}], "service_account_name": "a"}
            place: Any = {"name": "p", "namespace": "there"}
            k8s.core.v1.Pod("p", metadata=place, spec=pod, opts=opts)

    assert "p" in declared(program)
