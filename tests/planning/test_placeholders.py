"""Values that stand for a user's own: what is one, where it counts, and that a rehearsal accepts it."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.rules.objects import placeholder
from ml_foundations.planning.verdict.program import judge_program

from tests.factories import namespaced, resource
from tests.planning.test_program import cluster, pool


@pytest.mark.parametrize(
    "value",
    [
        *("203.0.113.0/24", "203.0.113.7", "192.0.2.1/32", "198.51.100.128/25", "2001:db8:1::/48"),
        *("ml@example.com", "ml@EU.Example.COM", "chat.acme.test", "chat.localhost"),
        *(
            "ml-foundations-dev",
            "projects/ml-foundations-prod/locations/us/keyRings/a/cryptoKeys/b",
        ),
    ],
)
def test_what_is_a_placeholder(value: str) -> None:
    assert placeholder(value)


@pytest.mark.parametrize(
    "value",
    [
        *("203.0.112.0/24", "203.0.0.0/8", "0.0.0.0/0", "2001:db9::/32", "ml@counterexample.com"),
        *(
            "ml@example.com.acme.ai",
            "test",
            "latest",
            "my-ml-foundations-dev",
            "ml-foundations-dev-2",
        ),
        *("projects/acme/locations/us/keyRings/ml-foundations/cryptoKeys/b", "", 7, UNKNOWN),
    ],
)
def test_what_is_none(value: Any) -> None:
    assert not placeholder(value)


BLOCKS = [{"cidrBlock": "34.0.0.0/24"}, {"cidrBlock": "192.0.2.0/24"}]
CIDR = {"masterAuthorizedNetworksConfig": {"cidrBlocks": BLOCKS}}
RBAC = "rbac.authorization.k8s.io"
EDIT = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
SUBJECTS = [{"kind": "Group", "name": "ml@example.com"}]
GROUP = namespaced(f"{RBAC}/v1", "RoleBinding", "team", roleRef=EDIT, subjects=SUBJECTS)
GROUP["metadata"]["annotations"] = {"see": "docs.example.com"}


def test_every_placeholder_is_an_error_with_its_path() -> None:
    groups = {"securityGroup": "gke-security-groups@example.com"}
    of_cluster = {"project": "ml-foundations-dev", "authenticatorGroupsConfig": groups, **CIDR}
    verdicts = judge_program([cluster(**of_cluster), pool(), resource(GROUP)])
    found = [each for each in verdicts.findings if each.rule == "placeholder"]
    assert {(each.object, each.path) for each in found} == {
        ("Cluster c", "project"),
        ("Cluster c", "masterAuthorizedNetworksConfig.cidrBlocks[1].cidrBlock"),
        ("Cluster c", "authenticatorGroupsConfig.securityGroup"),
        ("RoleBinding team/team", "subjects[0].name"),
    }
    assert {each.severity for each in found} == {"error"}
    assert verdicts.stack is Verdict.CANNOT_FIT
    assert '"192.0.2.0/24" is kept for documentation (RFC 5737)' in [each.message for each in found]


def test_a_rehearsal_accepts_them() -> None:
    verdicts = judge_program([cluster(**CIDR), pool()], rehearsed=True)
    assert verdicts.stack is not Verdict.CANNOT_FIT
    assert "placeholder" not in {each.rule for each in verdicts.findings}


@pytest.mark.parametrize("project", ["acme-ml", UNKNOWN])
def test_values_of_ones_own_and_unknown_ones_pass(project: Any) -> None:
    findings = judge_program([cluster(project=project), pool()]).findings
    assert "placeholder" not in {each.rule for each in findings}
