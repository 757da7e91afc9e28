"""ComputeClasses: which pools their priorities match, and what the proof refuses about them."""

from typing import Any

import pytest
from ml_foundations.catalog.compute_classes import conditions, differences, matched
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, Resource
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import CANNOT, FITS, Manifest, cluster_wide, container, job, resource, template
from tests.support.cluster_objects import namespace

LABEL = "cloud.google.com/compute-class"
TAINT = {"key": LABEL, "value": "any", "effect": "NO_SCHEDULE"}
L4 = {"type": "nvidia-l4", "count": 1}
L4 |= {"gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"}}


def cluster(**inputs: Any) -> Resource:
    given = {"name": "c", "location": "us-central1", "removeDefaultNodePool": True}
    return CLUSTER, given | inputs


TEAM = resource(namespace())


def pool_of_class(name: str, zones: Any = None, **config: Any) -> Manifest:
    own = {"labels": {LABEL: "any"}, "taints": [TAINT], "guestAccelerators": [L4]}
    return {
        "name": name,
        "location": "us-central1",
        "nodeLocations": zones or ["us-central1-a"],
        "autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 2},
        "nodeConfig": {"machineType": "g2-standard-8", **own, **config},
    }


def class_of(*priorities: Any, **spec: Any) -> Manifest:
    spec = {"priorities": priorities, **spec}
    return cluster_wide("cloud.google.com/v1", "ComputeClass", "any", spec=spec)


OF_P = class_of({"nodepools": ["p"]})
ANYWAY = class_of({"nodepools": ["p"]}, whenUnsatisfiable="ScaleUpAnyway")
FLEX_START = {"flexStart": {"enabled": True}}
IN_A, IN_B = ({"location": {"zones": [f"us-central1-{zone}"]}} for zone in "ab")
LATEST = {"gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"}}
NO_RESERVATION = {"consumeReservationType": "NO_RESERVATION"}


SPECIFIC = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["r"]}
BLOCK = SPECIFIC | {"values": ["projects/p/reservations/r/reservationBlocks/b"]}
NAMED = {"affinity": "Specific", "specific": [{"name": "r"}]}
IN_ZONE = {"affinity": "Specific", "specific": [{"name": "r", "zones": ["us-central1-b"]}]}
OF_BLOCK = {"name": "r", "project": "p", "reservationBlock": {"name": "b"}}
NAMED_BLOCK = {"affinity": "Specific", "specific": [OF_BLOCK]}

EQUAL: dict[str, tuple[Manifest, Manifest, Manifest]] = {
    # A priority, a pool that equals it, and one that does not.
    "machineType": ({"machineType": "g2-standard-8"}, {}, {"machineType": "g2-standard-16"}),
    "machineFamily": ({"machineFamily": "g2"}, {}, {"machineType": "a2-highgpu-1g"}),
    "spot": ({"spot": True}, {"spot": True}, {}),
    "no spot": ({"spot": False}, {}, {"spot": True}),
    "flexStart": (FLEX_START, {"flexStart": True}, {}),
    "maxRunDurationSeconds": (
        {"maxRunDurationSeconds": 3600},
        {"maxRunDuration": "3600s"},
        {"maxRunDuration": "3601s"},
    ),
    "gpu": (
        {"gpu": {"type": "nvidia-l4", "count": 1}},
        {},
        {"guestAccelerators": [L4 | {"count": 2}]},
    ),
    "driver": (
        {"gpu": {"type": "nvidia-l4", "count": 1, "driverVersion": "default"}},
        {},
        {"guestAccelerators": [L4 | LATEST]},
    ),
    "zones": (IN_A, {}, {"zones": ["us-central1-b"]}),
    "more zones": (
        {"location": {"zones": ["us-central1-b", "us-central1-a"]}},
        {"zones": ["us-central1-a", "us-central1-b"]},
        {},
    ),
    "reservation": ({"reservations": NAMED}, {"reservationAffinity": SPECIFIC}, {}),
    "block": (
        {"reservations": NAMED_BLOCK},
        {"reservationAffinity": BLOCK},
        {"reservationAffinity": SPECIFIC},
    ),
    "reservation in a zone": (
        {"reservations": IN_ZONE},
        {"reservationAffinity": SPECIFIC, "zones": ["us-central1-b"]},
        {"reservationAffinity": SPECIFIC},
    ),
    "no reservation": (
        {"reservations": {"affinity": "None"}},
        {"reservationAffinity": NO_RESERVATION},
        {"reservationAffinity": SPECIFIC},
    ),
    "nodepools": ({"nodepools": ["x", "p"]}, {}, {"name": "q"}),
}


def test_a_reservation_of_the_own_project_has_no_project() -> None:
    own = {**pool_of_class("p", reservationAffinity=SPECIFIC), "project": "p"}
    named = {"affinity": "Specific", "specific": [{"name": "r", "project": "p"}]}
    assert not differences({"reservations": named}, own)
    assert differences({"reservations": named}, {**own, "project": "q"})


def made(config: Manifest) -> Manifest:
    config = dict(config)
    return pool_of_class(config.pop("name", "p"), config.pop("zones", None), **config)


@pytest.mark.parametrize("case", EQUAL)
def test_a_priority_matches_what_equals_it(case: str) -> None:
    priority, equal, other = EQUAL[case]
    assert not differences(priority, made(equal))
    assert len(differences(priority, made(other))) == 1


@pytest.mark.parametrize("field", ["machineType", "spot", "guestAccelerators", "flexStart"])
def test_what_is_not_known_may_match(field: str) -> None:
    priority = {"machineFamily": "a3", "spot": True, "flexStart": {"enabled": True}}
    priority |= {"gpu": {"type": "x", "count": 2}}
    whole = set(differences(priority, pool_of_class("p")))
    assert len(whole) == 4
    assert set(differences(priority, pool_of_class("p", **{field: UNKNOWN}))) < whole


def test_the_first_priority_that_matches_counts() -> None:
    manifest = class_of({"spot": True}, {"nodepools": ["p"]}, {"machineFamily": "g2"})
    assert matched(manifest, pool_of_class("p")) == 1
    assert matched(manifest, pool_of_class("q")) == 2
    assert matched(manifest, pool_of_class("q", spot=True)) == 0
    assert matched(manifest, pool_of_class("q", machineType="n2-standard-8")) is None


def test_priorities_have_the_zones_of_the_defaults() -> None:
    defaults = {"priorityDefaults": {"location": {"zones": ["us-central1-b"]}}}
    manifest = class_of({"machineFamily": "g2"}, {"nodepools": ["p"]}, **defaults)
    assert matched(manifest, pool_of_class("p")) == 1
    assert matched(manifest, pool_of_class("p", ["us-central1-b"])) == 0


NO_GROUPS = "NapDisabledAndNoMatchingNodegroups"
CREATED: Manifest = {"nodePoolAutoCreation": {"enabled": True}}


@pytest.mark.parametrize(
    ("manifest", "pools", "expected"),
    [
        (OF_P, [pool_of_class("p")], []),
        (OF_P, [], ["NodePoolNotExist", NO_GROUPS]),
        (OF_P, [{**pool_of_class("p"), "autoscaling": None}], ["NodePoolNotExist"]),
        (OF_P, [pool_of_class("p", labels={})], ["CrdLabelNotMatching", NO_GROUPS]),
        (OF_P, [pool_of_class("p", taints=[])], ["TaintMissing"]),
        (
            OF_P,
            [pool_of_class("p", taints=[TAINT | {"value": "other"}])],
            ["TaintValueNotMatching"],
        ),
        (OF_P, [pool_of_class("p"), pool_of_class("q")], ["NodepoolWillNeverScaleUp"]),
        (ANYWAY, [pool_of_class("p"), pool_of_class("q")], []),
        (class_of({"spot": True}, **CREATED), [], []),
        (class_of({"spot": True}), [], [NO_GROUPS]),
    ],
)
def test_conditions_are_those_of_the_autoscaler(
    manifest: Manifest, pools: list[Manifest], expected: list[str]
) -> None:
    assert [condition.reason for condition in conditions(manifest, pools)] == expected


def declared(manifest: Manifest, *pools: Manifest, **inputs: Any) -> Verdicts:
    resources: list[Resource] = [(NODE_POOL, pool) for pool in pools]
    return judge_program([cluster(**inputs), *resources, resource(manifest)])


def of_classes(verdicts: Verdicts) -> list[Finding]:
    rules = ("compute-class", "compute-class-pool", "scale-up-anyway", "version")
    return [finding for finding in verdicts.findings if finding.rule in rules]


def running(refused: int, right: int, **priority: Any) -> Manifest:
    """A class whose nodes run too long or too shortly, and one whose nodes just do not."""
    both = []
    for seconds in (refused, right):
        pool = pool_of_class("p", flexStart="flexStart" in priority, maxRunDuration=f"{seconds}s")
        both.append([class_of({"maxRunDurationSeconds": seconds, **priority}), pool])
    words = f"maxRunDurationSeconds is {refused}, and such nodes run"
    return {f"{refused} seconds": ("compute-class", words, *both)}


FLEX_OR_P = class_of({"spot": True, **FLEX_START}, {"nodepools": ["p"]})
WITHOUT_GPUS = pool_of_class("p", machineType="n2-standard-8", guestAccelerators=None)
NOT_SPOT = class_of({"spot": True, "flexStart": {"enabled": False}})
CASES: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    # The rule, a word of the message, a class with pools that breaks it, and one that does not.
    "no such pool": (
        "compute-class",
        "the node pool spt does not exist",
        [class_of({"nodepools": ["p"]}, {"nodepools": ["spt"]}), pool_of_class("p")],
        [OF_P, pool_of_class("p")],
    ),
    "unequal zones": (
        "compute-class",
        "p has another location.zones",
        [class_of(IN_B, {"nodepools": ["p"]}), pool_of_class("p")],
        [class_of(IN_A), pool_of_class("p")],
    ),
    "unequal in two": (
        "compute-class",
        "p has another spot and flexStart",
        [FLEX_OR_P, pool_of_class("p")],
        [class_of({"spot": True}), pool_of_class("p", spot=True)],
    ),
    "a pool without a priority": (
        "compute-class",
        "q matches no priority, so it never grows",
        [OF_P, pool_of_class("p"), pool_of_class("q")],
        [class_of({"nodepools": ["p", "q"]}), pool_of_class("p"), pool_of_class("q")],
    ),
    "no label": (
        "compute-class-pool",
        "lacks the label",
        [OF_P, pool_of_class("p", labels={})],
        [OF_P, pool_of_class("p")],
    ),
    "no taint": (
        "compute-class-pool",
        "lacks the taint",
        [OF_P, pool_of_class("p", taints=[])],
        [OF_P, pool_of_class("p")],
    ),
    "spot and flex-start": (
        "compute-class",
        "flexStart excludes spot",
        [FLEX_OR_P, pool_of_class("p")],
        [NOT_SPOT, pool_of_class("p", spot=True)],
    ),
    **running(599, 600, **FLEX_START),
    **running(604801, 604800, **FLEX_START),
    **running(29, 30),
    **running(10368001, 10368000),
    "other nodes": (
        "scale-up-anyway",
        "pods with GPUs still wait",
        [ANYWAY, pool_of_class("p")],
        [class_of({"nodepools": ["p"]}, whenUnsatisfiable="DoNotScaleUp"), pool_of_class("p")],
    ),
    "other nodes without GPUs": (
        "scale-up-anyway",
        "pods with GPUs still wait",
        [ANYWAY, pool_of_class("p")],
        [ANYWAY, WITHOUT_GPUS],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_proof_refuses_what_never_has_nodes(case: str) -> None:
    rule, words, broken, right = CASES[case]
    found = of_classes(declared(*broken))
    assert rule in {finding.rule for finding in found}
    assert words in "\n".join(finding.message for finding in found)
    assert not of_classes(declared(*right))


def test_a_priority_that_is_not_known_is_not_judged() -> None:
    assert not of_classes(declared(class_of({"nodepools": [UNKNOWN]}), pool_of_class("p")))
    unknown_zone = {"name": "p", "nodeLocations": UNKNOWN}
    assert not of_classes(declared(class_of(IN_B), pool_of_class("p") | unknown_zone))


def test_pools_that_gke_makes_or_that_are_not_shown_may_match() -> None:
    manifest = class_of({"nodepools": ["p"]}, {"spot": True}, {"nodepools": ["theirs"]})
    nap = {"clusterAutoscaling": {"enabled": True}}
    assert not of_classes(declared(manifest, pool_of_class("p"), **nap))
    assert not of_classes(declared(class_of({"spot": True}, **CREATED)))
    created = class_of({"nodepools": ["p"]}, {"spot": True}, **CREATED)
    assert not of_classes(declared(created, pool_of_class("p")))
    on_existing = judge_program([(NODE_POOL, pool_of_class("p")), resource(manifest)])
    assert not of_classes(on_existing)


@pytest.mark.parametrize(("begins", "is_old"), [("1.30.2", True), ("1.30.3-gke.1451000", False)])
def test_classes_need_a_cluster_that_has_them(begins: str, is_old: bool) -> None:
    found = of_classes(declared(OF_P, pool_of_class("p"), minMasterVersion=begins))
    assert [finding.rule for finding in found] == ["version"] * is_old


def train(name: str, *tolerations: dict[str, str]) -> Resource:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists"}
    spec = {"nodeSelector": {LABEL: name}, "tolerations": [gpu, *tolerations]}
    return resource(job("train", 1, template(containers=[container(gpu=1)], **spec)))


OF_CLASS = {"key": LABEL, "value": "any", "effect": "NoSchedule"}


def test_pods_of_a_class_run_on_its_pools_alone() -> None:
    plain = pool_of_class("q", labels={}, taints=[])
    pools = [(NODE_POOL, pool_of_class("p")), (NODE_POOL, plain)]
    given = [cluster(), TEAM, *pools, resource(OF_P)]
    assert judge_program([*given, train("any", OF_CLASS)]).stack is FITS
    # GKE adds the toleration to pods that select the class.
    assert judge_program([*given, train("any")]).stack is FITS
    verdicts = judge_program([*given, train("ny", OF_CLASS)])
    assert verdicts.stack is CANNOT
    assert "did you mean any?" in "\n".join(finding.message for finding in verdicts.findings)
