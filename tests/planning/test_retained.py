"""What outlives a deleted stack: named with its reason and its price, and nothing else."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from ml_foundations.planning.input.program import Resource, is_kept
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.retained import Retained

from tests.factories import (
    Manifest,
    cluster_wide,
    namespace,
    namespaced,
    resource,
    stateful_set,
    template,
)
from tests.planning.test_cost import PD, priced, with_class

PRICE = Decimal("0.17") * 100
"""100 GiB of pd-ssd in us-central1 for a month."""
SIZE = "100 GiB of pd-ssd"
CLAIM, OWN = f"claim team/data ({SIZE})", f"claim parts of StatefulSet team/shards ({SIZE})"
BY_CLASS = "its class has reclaimPolicy Retain"


def program(*manifests: Manifest) -> list[Resource]:
    return [*map(resource, manifests)]


def retained(*manifests: Manifest, kept: Any = ()) -> list[Retained]:
    found = judge_program(program(*manifests), kept=program(*kept)).retained
    return [replace(each, per_month=each.per_month and round(each.per_month, 2)) for each in found]


def stack(policy: str = "Delete") -> list[Manifest]:
    """A node, a class with a reclaim policy, and a claim."""
    nodes, made, claim = with_class("us-central1", PD, {"type": "pd-ssd"}, "100Gi")
    return [nodes, made | {"reclaimPolicy": policy}, claim]


def shards(policy: str | None) -> Manifest:
    claims = [{"metadata": {"name": "parts"}, "spec": stack()[2]["spec"]}]
    retention = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}}
    more = {} if policy is None else retention
    return stateful_set("shards", 2, template(), volumeClaimTemplates=claims, **more)


def test_a_claim_that_goes_with_the_stack_is_not_named() -> None:
    assert retained(*stack()) == []
    assert "After pulumi destroy" not in report.as_summary(judge_program(program(*stack())))


def test_a_class_may_retain_volumes() -> None:
    assert retained(*stack("Retain")) == [Retained(CLAIM, BY_CLASS, PRICE)]


def test_pulumi_may_retain_a_claim() -> None:
    *others, claim = stack()
    expected = [Retained(CLAIM, "Pulumi keeps the claim (retain_on_delete)", PRICE)]
    assert retained(*others, claim, kept=[claim]) == expected
    for kind, name in (("PersistentVolumeClaim", "other"), ("Secret", "data")):
        assert retained(*others, claim, kept=[namespaced("v1", kind, name, spec={})]) == []


@pytest.mark.parametrize(
    ("policy", "kept", "is_lost"),
    [
        ("Delete", ["claim"], True),
        ("Delete", ["claim", "namespace"], False),
        ("Delete", [], False),
        ("Retain", ["claim"], False),
    ],
)
def test_a_namespace_that_is_deleted_takes_kept_claims_along(
    policy: str, kept: list[str], is_lost: bool
) -> None:
    objects, team = stack(policy), namespace()
    left = program(*({"claim": objects[-1], "namespace": team}[each] for each in kept))
    findings = judge_program(program(team, *objects), kept=left).findings
    found = [(each.severity, each.object) for each in findings if each.rule == "namespace-data"]
    assert found == [("warning", "PersistentVolumeClaim team/data")] * is_lost
    alone = judge_program(program(*objects), kept=left)
    assert "namespace-data" not in {each.rule for each in alone.findings}


def test_a_protected_namespace_keeps_its_protected_claims() -> None:
    assert is_kept("kubernetes:core/v1:Namespace", retained=None, protected=True)
    assert not is_kept("kubernetes:core/v1:PersistentVolumeClaim", retained=None, protected=True)
    assert is_kept("kubernetes:core/v1:PersistentVolumeClaim", retained=True, protected=None)


@pytest.mark.parametrize(("policy", "stays"), [(None, True), ("Retain", True), ("Delete", False)])
def test_a_stateful_set_retains_the_claims_of_its_pods(policy: str | None, stays: bool) -> None:
    nodes, made, _ = stack()
    expected = [Retained(OWN, "a StatefulSet keeps the claims of its pods", PRICE * 2)]
    assert retained(nodes, made, shards(policy)) == expected * stays


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("Delete", False)])
def test_snapshots_may_be_retained(policy: str, stays: bool) -> None:
    fields = {"driver": PD, "deletionPolicy": policy}
    made = cluster_wide("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "s", **fields)
    kept = Retained("snapshots of class s", "the class has deletionPolicy Retain", None)
    assert retained(stack()[0], made) == [kept] * stays


def test_the_dearest_five_are_shown_by_name() -> None:
    nodes, made, claim = stack("Retain")

    def named(name: str, **spec: Any) -> Manifest:
        metadata = {"namespace": "team", "name": name}
        return claim | {"metadata": metadata, "spec": claim["spec"] | spec}

    claims = [named(f"c{number}") for number in range(6)]
    dear = named("dear", resources={"requests": {"storage": "1Ti"}})
    shown = report.as_summary(judge_program(program(nodes, made, *claims, dear)))
    assert "After pulumi destroy, this stays on Google Cloud for 276 USD a month:\n" in shown
    assert f"  claim team/dear (1024 GiB of pd-ssd), 174 USD: {BY_CLASS}\n" in shown
    assert f"  claim team/c3 ({SIZE}), 17 USD: {BY_CLASS}\n  and 2 more" in shown
    assert "team/c4" not in shown


def test_a_price_that_is_not_known_is_said() -> None:
    nodes, made, claim = with_class("us-central1", PD, {"type": "hyperdisk-throughput"}, "2Ti")
    resources = program(nodes, made | {"reclaimPolicy": "Retain"}, claim)
    shown = report.as_summary(judge_program(resources))
    assert "(2048 GiB of hyperdisk-throughput), an unknown price: its class" in shown
    assert priced("n", "n2-standard-8")["kind"] == "Node"
