"""Values that stand for a user's own: what is one, where it counts, and that a rehearsal accepts it."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.verdict.objects import placeholder
from ml_foundations.planning.verdict.program import judge_program

from tests.planning.test_program import cluster, kubernetes, pool


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("203.0.113.0/24", True),
        ("203.0.113.7", True),
        ("203.0.112.0/24", False),
        ("203.0.0.0/8", False),
        ("0.0.0.0/0", False),
        ("192.0.2.1/32", True),
        ("198.51.100.128/25", True),
        ("2001:db8:1::/48", True),
        ("2001:db9::/32", False),
        ("ml@example.com", True),
        ("ml@EU.Example.COM", True),
        ("ml@counterexample.com", False),
        ("ml@example.com.acme.ai", False),
        ("chat.acme.test", True),
        ("test", False),
        ("latest", False),
        ("chat.localhost", True),
        ("ml-foundations-dev", True),
        ("my-ml-foundations-dev", False),
        ("ml-foundations-dev-2", False),
        ("projects/ml-foundations-prod/locations/us/keyRings/a/cryptoKeys/b", True),
        ("projects/acme/locations/us/keyRings/ml-foundations/cryptoKeys/b", False),
        ("", False),
        (7, False),
        (UNKNOWN, False),
    ],
)
def test_what_is_a_placeholder(value: Any, is_one: bool) -> None:
    assert bool(placeholder(value)) is is_one


CIDR = {
    "masterAuthorizedNetworksConfig": {
        "cidrBlocks": [{"cidrBlock": "34.0.0.0/24"}, {"cidrBlock": "192.0.2.0/24"}]
    }
}
GROUP = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "team", "namespace": "ml", "annotations": {"see": "docs.example.com"}},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"kind": "Group", "name": "ml@example.com"}],
}


def test_every_placeholder_is_an_error_with_its_path() -> None:
    of_cluster = {
        **CIDR,
        "authenticatorGroupsConfig": {"securityGroup": "gke-security-groups@example.com"},
    }
    stack = [cluster(project="ml-foundations-dev", **of_cluster), pool(), kubernetes(GROUP)]
    found = [each for each in judge_program(stack).findings if each.rule == "placeholder"]
    assert {(each.object, each.path) for each in found} == {
        ("Cluster c", "project"),
        ("Cluster c", "masterAuthorizedNetworksConfig.cidrBlocks[1].cidrBlock"),
        ("Cluster c", "authenticatorGroupsConfig.securityGroup"),
        ("RoleBinding ml/team", "subjects[0].name"),
    }
    assert {each.severity for each in found} == {"error"}
    assert judge_program(stack).stack is Verdict.CANNOT_FIT
    assert '"192.0.2.0/24" is kept for documentation (RFC 5737)' in [each.message for each in found]


def test_a_rehearsal_accepts_them() -> None:
    stack = [cluster(**CIDR), pool()]
    assert judge_program(stack, rehearsed=True).stack is not Verdict.CANNOT_FIT
    assert "placeholder" not in {
        each.rule for each in judge_program(stack, rehearsed=True).findings
    }


@pytest.mark.parametrize("project", ["acme-ml", UNKNOWN])
def test_values_of_ones_own_and_unknown_ones_pass(project: Any) -> None:
    assert "placeholder" not in {
        each.rule for each in judge_program([cluster(project=project), pool()]).findings
    }
