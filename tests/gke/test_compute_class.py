"""ComputeClasses: their priorities in order, what is refused, and the pools and pods of a class."""

from typing import Any

import pulumi
import pytest
from ml_foundations import (
    ComputeClass,
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    TeamNamespace,
    TrainingJob,
    TrainingQueue,
    Volume,
)
from ml_foundations.component.spec import check
from ml_foundations.gke.compute_class import ComputeClassSpec

from tests.gke.building import POOL
from tests.support.declaring import declared, inputs
from tests.support.refusing import Refused, refusal, refused
from tests.support.stack_files import errors, sections, settings

LABEL = "cloud.google.com/compute-class"
TAINT = {"key": LABEL, "value": "any", "effect": "NO_SCHEDULE"}
TOLERATION = {"key": LABEL, "operator": "Equal", "value": "any", "effect": "NoSchedule"}


def class_of(**given: Any) -> dict[str, Any]:
    spec = check(ComputeClassSpec, "ComputeClass", {"compute_class": "any", **given})
    return spec.manifests()[0]


def test_pools_are_tried_in_order() -> None:
    moving = {"active_migration": True, "consolidation_delay_minutes": 5}
    made = class_of(pools=["reserved", "spot"], **moving)
    assert made["apiVersion"] == "cloud.google.com/v1"
    assert made["metadata"] == {"name": "any"}
    assert made["spec"] == {
        "priorities": [{"nodepools": ["reserved"]}, {"nodepools": ["spot"]}],
        "whenUnsatisfiable": "DoNotScaleUp",
        "activeMigration": {"optimizeRulePriority": True},
        "autoscalingPolicy": {"consolidationDelayMinutes": 5},
    }


def test_other_priorities_are_overrides() -> None:
    by_rule = [{"machineFamily": "a3", "spot": True}]
    made = class_of(pools=["a"], overrides={"ComputeClass": {"spec": {"priorities": by_rule}}})
    assert made["spec"]["priorities"] == by_rule


REFUSED: dict[str, Refused] = {
    "nothing": refused("pools: is required"),
    "no pools": refused("pools: ", pools=[]),
    "a pool twice": refused("pools[1]", pools=["a", "a"]),
    "a name of GKE": refused("keeps for itself", pools=["a"], compute_class="gke-any"),
    "a name of Autopilot": refused("keeps for itself", pools=["a"], compute_class="autopilot2"),
    "a long delay": refused("1440", pools=["a"], consolidation_delay_minutes=1441),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(case: str) -> None:
    given, (words,) = REFUSED[case]
    assert words in refusal(class_of, **given)


@pytest.fixture
def project() -> Any:
    pulumi.runtime.set_all_config({"gcp:project": "my-project"})
    yield
    pulumi.runtime.set_all_config({})


@pytest.mark.usefixtures("project")
def test_pools_and_pods_of_a_class_find_each_other() -> None:
    def program() -> None:
        cluster = GkeCluster("ml", location="us-central1")
        CpuNodePool("system", cluster=cluster, machine_type="n2-standard-8", max_nodes=4)
        common: Any = {"cluster": cluster, "machine_type": "g2-standard-8", "max_nodes": 2}
        spot = GpuNodePool("spot", compute_class="any", spot=True, **common)
        GpuNodePool("late", compute_class="any", **common)
        found = ComputeClass("any", cluster=cluster, pools=[spot, "late"])
        team = TeamNamespace("nlp", cluster=cluster, gpus=2, cpu="8", memory="64Gi", storage="1Ti")
        TrainingJob("a", team=team, image="i", gpus=1, compute_class=found.compute_class)
        TrainingQueue(
            "queue",
            cluster=cluster,
            flavors=[{"name": "l4", "gpu": "L4", "compute_class": found.compute_class}],
            teams=[{"team": team, "cpu": "8", "memory": "64Gi", "gpus": {"l4": 2}}],
        )

    made = declared(program)
    priorities = inputs(made["any-class"])["spec"]["priorities"]
    assert priorities == [{"nodepools": ["spot"]}, {"nodepools": ["late"]}]
    node = inputs(made["spot-pool"])["nodeConfig"]
    assert node["labels"][LABEL] == "any"
    assert TAINT in node["taints"]
    pod = inputs(made["a-job"])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {LABEL: "any"}
    assert TOLERATION in pod["tolerations"]
    flavor = inputs(made["queue-l4-flavor"])["spec"]
    assert flavor["nodeLabels"][LABEL] == "any"
    assert flavor["tolerations"] == [TOLERATION]
    # The class waits for its pools, and the job for the class.
    waits = "\n".join(made["any-class"].dependencies)
    assert "spot-pool" in waits
    assert "any-class" in "\n".join(made["a-job"].dependencies)


@pytest.mark.usefixtures("project")
def test_only_pools_are_ways_to_buy() -> None:
    def program() -> None:
        ComputeClass("any", pools=[Volume("v", namespace="a", size="1Gi")])  # pyright: ignore

    expected = "pools[0]: must be a GpuNodePool or a CpuNodePool, not <Volume>"
    assert expected in refusal(declared, program)


def test_a_pool_without_a_class_has_neither_label_nor_taint() -> None:
    node = inputs(declared(lambda: GpuNodePool("x", POOL))["x-pool"])["nodeConfig"]
    assert LABEL not in node["labels"]
    assert [taint["key"] for taint in node["taints"]] == ["nvidia.com/gpu"]


def with_class(**compute_class: Any) -> dict[str, Any]:
    return {**sections(), "computeClasses": {"any": compute_class}}


def test_a_stack_file_gives_the_pools_of_a_class_the_class() -> None:
    found = settings.parse(with_class(pools=["a100", "l4"]))
    assert found.node_pools["l4"].compute_class == "any"
    assert found.compute_classes["any"].compute_class == "any"
    assert found.locations["ComputeClass any"] == "ml-foundations:computeClasses.any"


def test_a_stack_file_names_pools_and_classes_that_exist() -> None:
    words = errors(with_class(pools=["l5"]))
    assert 'computeClasses.any.pools[0]: there is no node pool "l5". Did you mean l4?' in words
    file = with_class(pools=["l4"])
    file["nodePools"]["l4"]["computeClass"] = "many"
    words = errors(file)
    assert "computeClasses.any.pools[0]: nodePools.l4 has the computeClass many" in words
    assert 'nodePools.l4.computeClass: there is no ComputeClass "many"' in words
    file = with_class(pools=["l4"])
    file["teams"]["research"]["trainingJobs"]["finetune"]["computeClass"] = "ny"
    assert 'finetune.computeClass: there is no ComputeClass "ny". Did you mean any?' in errors(file)
    file["teams"]["research"]["trainingJobs"]["finetune"]["computeClass"] = "any"
    assert settings.parse(file)


def test_the_pools_of_a_class_are_one_flavor_of_the_queues() -> None:
    file = with_class(pools=["a100"])
    file["teams"]["research"]["queue"] = {"cpu": "8", "memory": "64Gi", "gpus": {"any": 1}}
    found = settings.parse(file)
    assert found.queues is not None
    by_name = {flavor.name: flavor for flavor in found.queues.flavors}
    assert by_name.keys() == {"any", "l4"}
    assert (by_name["any"].compute_class, by_name["any"].node_selector) == ("any", {})
    assert by_name["any"].gpu is not None
    assert found.locations["ResourceFlavor any"] == "ml-foundations:computeClasses.any"
    file["computeClasses"]["any"]["pools"].append("l4")
    mixed = settings.parse(file).queues
    assert mixed is not None
    assert [flavor.gpu for flavor in mixed.flavors] == [None], "A100 and L4 have no common label"
