"""Findings about NetworkPolicies: both ends of a way, DNS, and the metadata server."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.verdict.network_policies import Network
from ml_foundations.planning.verdict.program import judge_documents, judge_program

from tests.factories import Manifest, container, deployment, template

NAME = "kubernetes.io/metadata.name"
DENY = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
DNS = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}],
}
CHAT = {"app": "chat"}


def policy(namespace: str, name: str, **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    spec = {"podSelector": {}, **spec}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": spec,
    }


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def named(*names: str) -> Manifest:
    return {
        "namespaceSelector": {
            "matchExpressions": [{"key": NAME, "operator": "In", "values": list(names)}]
        }
    }


def egress(*peers: Manifest, **rule: Any) -> Manifest:
    return {"policyTypes": ["Egress"], "egress": [{"to": [*peers], **rule}]}


def ingress(*peers: Manifest, **rule: Any) -> Manifest:
    return {"policyTypes": ["Ingress"], "ingress": [{"from": [*peers], **rule}]}


def workload(name: str, place: str, labels: dict[str, str], **of_container: Any) -> Manifest:
    made = deployment(
        name, 1, template(labels=labels, containers=[container(cpu=1) | of_container])
    )
    made["metadata"]["namespace"] = place
    return made


def server(**policies: Manifest) -> list[Manifest]:
    """A server in the namespace serving, closed but for what the policies open, and a Service for it."""
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"selector": CHAT, "ports": [{"port": 80, "targetPort": "http"}]}
    metadata = {"name": "chat", "namespace": "serving"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    closed = [policy("serving", "deny", **DENY), policy("serving", "dns", **DNS)]
    opened = [policy("serving", name, **each) for name, each in policies.items()]
    pods = workload("chat", "serving", CHAT, ports=ports)
    return [namespace("serving"), service, *closed, *opened, pods]


def caller(*policies: Manifest, url: str | None = "http://chat.serving/v1") -> list[Manifest]:
    """A workload in the namespace research, closed but for what the policies open."""
    env = [{"name": "URL", "value": url}] if url else []
    closed = [policy("research", "deny", **DENY), policy("research", "dns", **DNS)]
    opened = [policy("research", f"open-{index}", **each) for index, each in enumerate(policies)]
    return [
        namespace("research"),
        *closed,
        *opened,
        workload("train", "research", {"app": "train"}, env=env),
    ]


def messages(objects: list[Manifest]) -> list[str]:
    findings = judge_documents(objects).findings
    return [f"{each.object}: {each.message}" for each in findings if each.rule == "network-policy"]


ADMITS = {
    "podSelector": {"matchLabels": CHAT},
    **ingress(named("research"), ports=[{"port": 8080}]),
}
TO_SERVING = egress(named("serving"))


def test_caller_that_is_let_in_must_be_let_out() -> None:
    closed = server(callers=ADMITS) + caller(url=None)
    assert messages(closed) == [
        "NetworkPolicy serving/callers: it lets pods of research in, and the network policies of research let none out "
        "to it"
    ]
    assert messages(server(callers=ADMITS) + caller(TO_SERVING, url=None)) == []


@pytest.mark.parametrize(
    ("opened", "is_open"),
    [
        (egress(named("serving")), True),
        (egress({"namespaceSelector": {"matchLabels": {NAME: "serving"}}}), True),
        (egress({**named("serving"), "podSelector": {"matchLabels": CHAT}}), True),
        (egress({**named("serving"), "podSelector": {"matchLabels": {"app": "other"}}}), False),
        (egress(named("other")), False),
        (egress(named("serving"), ports=[{"port": 8080}]), True),
        (egress(named("serving"), ports=[{"port": 8000, "endPort": 9000}]), True),
        (egress(named("serving"), ports=[{"port": 80}]), False),
        (egress({"podSelector": {}}), False),
        ({"policyTypes": ["Egress"], "egress": [{}]}, True),
        (egress({"ipBlock": {"cidr": "10.16.0.0/14"}}), True),
        (egress({"ipBlock": {"cidr": "203.0.113.0/24"}}), False),
        (
            egress(
                {
                    "ipBlock": {
                        "cidr": "0.0.0.0/0",
                        "except": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
                    }
                }
            ),
            True,
        ),
        (egress(UNKNOWN), True),
    ],
)
def test_egress_policy_decides_whether_a_server_is_reached(opened: Manifest, is_open: bool) -> None:
    found = messages(server(callers=ADMITS) + caller(opened))
    assert any("let nothing out to it" in each for each in found) is not is_open


def test_internet_policy_of_a_team_covers_no_pods() -> None:
    private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"]
    internet = egress({"ipBlock": {"cidr": "0.0.0.0/0", "except": private}})
    assert any(
        "let nothing out to it" in each
        for each in messages(server(callers=ADMITS) + caller(internet))
    )


@pytest.mark.parametrize(
    ("url", "is_reported"),
    [
        ("http://chat.serving", True),
        ("http://chat.serving.svc.cluster.local:80/v1", True),
        ("http://chat.serving:8080", False),
        ("http://chat", False),
        ("https://huggingface.co", False),
        ("s3://chat.serving", False),
    ],
)
def test_the_configured_server_must_accept_the_caller(url: str, is_reported: bool) -> None:
    found = messages(server() + caller(TO_SERVING, url=url))
    assert (
        found
        == [
            "Deployment research/train: its environment names serving/chat, whose network policies do not let it in"
        ]
        * is_reported
    )


def test_open_namespaces_need_nothing() -> None:
    objects = [
        namespace("research"),
        workload("train", "research", {"app": "train"}),
        *server(callers=ADMITS),
    ]
    assert messages(objects) == []


def test_namespace_that_is_not_declared_is_not_judged() -> None:
    assert messages(server(callers={"podSelector": {}, **ingress(named("gmp-system"))})) == []


@pytest.mark.parametrize(
    ("opened", "is_reported"),
    [
        ([], True),
        ([DNS], False),
        (
            [
                egress(
                    {
                        **named("kube-system"),
                        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                    }
                )
            ],
            False,
        ),
        ([egress({"ipBlock": {"cidr": "169.254.20.10/32"}})], False),
        (
            [
                egress(
                    {**named("kube-system"), "podSelector": {"matchLabels": {"k8s-app": "other"}}}
                )
            ],
            True,
        ),
    ],
)
def test_pods_reach_dns(opened: list[Manifest], is_reported: bool) -> None:
    closed = [
        policy("research", "deny", **DENY),
        *(policy("research", "open", **each) for each in opened),
    ]
    found = messages([*closed, workload("train", "research", {})])
    assert any("close the way to DNS" in each for each in found) is is_reported


@pytest.mark.parametrize(
    ("opened", "annotated", "is_reported"),
    [
        ([], True, True),
        ([], False, False),
        ([egress({"ipBlock": {"cidr": "169.254.169.252/32"}}, ports=[{"port": 988}])], True, False),
        ([egress({"ipBlock": {"cidr": "169.254.169.254/32"}}, ports=[{"port": 80}])], True, False),
        ([egress({"ipBlock": {"cidr": "169.254.169.254/32"}}, ports=[{"port": 8080}])], True, True),
    ],
)
def test_pods_with_a_google_account_reach_the_metadata_server(
    opened: list[Manifest], annotated: bool, is_reported: bool
) -> None:
    annotations = (
        {"iam.gke.io/gcp-service-account": "a@p.iam.gserviceaccount.com"} if annotated else {}
    )
    metadata = {"name": "default", "namespace": "research", "annotations": annotations}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    found = messages(
        [account, *(policy("research", "open", **each) for each in opened), *caller(url=None)]
    )
    assert any("metadata server" in each for each in found) is is_reported


def test_pods_on_the_network_of_their_node_have_no_policies() -> None:
    pods = workload("agent", "research", {})
    pods["spec"]["template"]["spec"]["hostNetwork"] = True
    assert messages([policy("research", "deny", **DENY), pods]) == []


def test_calls_are_listed_with_whether_they_are_open() -> None:
    def texts(*opened: Manifest) -> list[str]:
        return [call.text for call in Network(server(callers=ADMITS) + caller(*opened)).calls()]

    assert texts(TO_SERVING) == ["serving/callers: research may call it"]
    assert texts() == [
        "serving/callers: research may not call it, its own network policies close the way"
    ]


@pytest.mark.parametrize(
    ("inputs", "is_reported"),
    [
        ({}, False),
        ({"networkPolicy": {"enabled": False}}, False),
        ({"networkPolicy": {"enabled": True}}, True),
        ({"datapathProvider": "ADVANCED_DATAPATH"}, True),
        ({"datapathProvider": UNKNOWN}, True),
        ({"enableAutopilot": True}, True),
    ],
)
def test_policies_count_where_the_cluster_enforces_them(
    inputs: dict[str, Any], is_reported: bool
) -> None:
    objects = server(callers=ADMITS) + caller(url=None)
    of_cluster = (
        "gcp:container/cluster:Cluster",
        {"name": "ml", "location": "us-central1", **inputs},
    )
    declared = [(f"kubernetes:{each['apiVersion']}:{each['kind']}", each) for each in objects]
    rules = {each.rule for each in judge_program([of_cluster, *declared]).findings}
    assert ("network-policy" in rules) is is_reported
