"""Findings about NetworkPolicies: both ends of a way, DNS, and the metadata server."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import CLUSTER
from ml_foundations.planning.rules.network import Network
from ml_foundations.planning.verdict.program import judge_documents, judge_program

from tests.factories import (
    Manifest,
    container,
    deployment,
    in_namespace,
    namespace,
    namespaced,
    resource,
    template,
)

NAME = "kubernetes.io/metadata.name"
DENY = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
DNS = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}],
}
CHAT = {"app": "chat"}


def policy(place: str, name: str, **spec: Any) -> Manifest:
    made = namespaced(
        "networking.k8s.io/v1", "NetworkPolicy", name, spec={"podSelector": {}, **spec}
    )
    return in_namespace(place, made)


def named(*names: str) -> Manifest:
    expression = {"key": NAME, "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


def pods_of(namespace: str, **labels: str) -> Manifest:
    return {**named(namespace), "podSelector": {"matchLabels": labels}}


def block(cidr: str, *left_out: str) -> Manifest:
    return {"ipBlock": {"cidr": cidr, "except": list(left_out)}}


def egress(*peers: Manifest, **rule: Any) -> Manifest:
    return {"policyTypes": ["Egress"], "egress": [{"to": [*peers], **rule}]}


def ingress(*peers: Manifest, **rule: Any) -> Manifest:
    return {"policyTypes": ["Ingress"], "ingress": [{"from": [*peers], **rule}]}


def workload(name: str, place: str, labels: dict[str, str], **of_container: Any) -> Manifest:
    pods = template(labels=labels, containers=[container(cpu=1) | of_container])
    return in_namespace(place, deployment(name, 1, pods))


def closed(place: str, *policies: Manifest) -> list[Manifest]:
    """A namespace that is closed except for DNS and what the policies open."""
    opened = {f"open-{index}": each for index, each in enumerate(policies)}
    named = {"deny": DENY, "dns": DNS, **opened}
    return [namespace(place), *(policy(place, name, **each) for name, each in named.items())]


def server(*policies: Manifest) -> list[Manifest]:
    """A server in the namespace serving, closed but for what the policies open, and a Service for it."""
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"selector": CHAT, "ports": [{"port": 80, "targetPort": "http"}]}
    service = in_namespace("serving", namespaced("v1", "Service", "chat", spec=spec))
    pods = workload("chat", "serving", CHAT, ports=ports)
    return [*closed("serving", *policies), service, pods]


def caller(*policies: Manifest, url: str | None = "http://chat.serving/v1") -> list[Manifest]:
    """A workload in the namespace research, closed but for what the policies open."""
    env = [{"name": "URL", "value": url}] if url else []
    pods = workload("train", "research", {"app": "train"}, env=env)
    return [*closed("research", *policies), pods]


def messages(objects: list[Manifest]) -> list[str]:
    findings = judge_documents(objects).findings
    return [f"{each.object}: {each.message}" for each in findings if each.rule == "network-policy"]


ADMITS = {"podSelector": {"matchLabels": CHAT}} | ingress(named("research"), ports=[{"port": 8080}])
TO_SERVING = egress(named("serving"))


def test_caller_that_is_let_in_must_be_let_out() -> None:
    assert messages(server(ADMITS) + caller(url=None)) == [
        "NetworkPolicy serving/open-0: it lets pods of research in, and the network policies of research let none out "
        "to it"
    ]
    assert messages(server(ADMITS) + caller(TO_SERVING, url=None)) == []


PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]


@pytest.mark.parametrize(
    ("opened", "is_open"),
    [
        (egress(named("serving")), True),
        (egress({"namespaceSelector": {"matchLabels": {NAME: "serving"}}}), True),
        (egress(pods_of("serving", app="chat")), True),
        (egress(pods_of("serving", app="other")), False),
        (egress(named("other")), False),
        (egress(named("serving"), ports=[{"port": 8080}]), True),
        (egress(named("serving"), ports=[{"port": 8000, "endPort": 9000}]), True),
        (egress(named("serving"), ports=[{"port": 80}]), False),
        (egress({"podSelector": {}}), False),
        ({"policyTypes": ["Egress"], "egress": [{}]}, True),
        (egress({"ipBlock": {"cidr": "10.16.0.0/14"}}), True),
        (egress({"ipBlock": {"cidr": "203.0.113.0/24"}}), False),
        (egress(block("0.0.0.0/0", *PRIVATE)), True),
        # The policy of a team for the internet covers no pods.
        (egress(block("0.0.0.0/0", *PRIVATE, "100.64.0.0/10", "169.254.0.0/16")), False),
        (egress(UNKNOWN), True),
    ],
)
def test_egress_policy_decides_whether_a_server_is_reached(opened: Manifest, is_open: bool) -> None:
    found = messages(server(ADMITS) + caller(opened))
    assert any("let nothing out to it" in each for each in found) is not is_open


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
    closed = "its environment names serving/chat, whose network policies do not let it in"
    found = messages(server() + caller(TO_SERVING, url=url))
    assert found == [f"Deployment research/train: {closed}"] * is_reported


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        (
            server(ADMITS) + caller(),
            "Add an egress rule for namespace serving in research (egress_namespaces of a TeamNamespace).",
        ),
        (
            server() + caller(TO_SERVING, url="http://chat.serving"),
            "Add an ingress rule for namespace research (callers of chat).",
        ),
    ],
)
def test_remedies_name_rules_before_arguments(objects: list[Manifest], remedy: str) -> None:
    findings = judge_documents(objects).findings
    assert remedy in [each.remedy for each in findings if each.rule == "network-policy"]


def test_open_namespaces_need_nothing() -> None:
    opened = [namespace("research"), workload("train", "research", {"app": "train"})]
    assert messages([*opened, *server(ADMITS)]) == []


def test_namespace_that_is_not_declared_is_not_judged() -> None:
    assert messages(server(ingress(named("gmp-system")))) == []


@pytest.mark.parametrize(
    ("opened", "is_reported"),
    [
        ([], True),
        ([DNS], False),
        ([egress(pods_of("kube-system", **{"k8s-app": "kube-dns"}))], False),
        ([egress({"ipBlock": {"cidr": "169.254.20.10/32"}})], False),
        ([egress(pods_of("kube-system", **{"k8s-app": "other"}))], True),
    ],
)
def test_pods_reach_dns(opened: list[Manifest], is_reported: bool) -> None:
    policies = [
        policy("research", f"p{index}", **each) for index, each in enumerate([DENY, *opened])
    ]
    found = messages([*policies, workload("train", "research", {})])
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
    account = in_namespace("research", namespaced("v1", "ServiceAccount", "default"))
    if annotated:
        google = {"iam.gke.io/gcp-service-account": "a@p.iam.gserviceaccount.com"}
        account["metadata"]["annotations"] = google
    found = messages([account, *caller(*opened, url=None)])
    assert any("metadata server" in each for each in found) is is_reported


def test_policies_select_the_pods_of_a_cron_job() -> None:
    spec = {"jobTemplate": {"spec": {"template": template(containers=[container()])}}}
    nightly = in_namespace("research", namespaced("batch/v1", "CronJob", "nightly", spec=spec))
    [message] = messages([policy("research", "deny", **DENY), nightly])
    assert "close the way to DNS" in message


def test_pods_on_the_network_of_their_node_have_no_policies() -> None:
    pods = workload("agent", "research", {})
    pods["spec"]["template"]["spec"]["hostNetwork"] = True
    assert messages([policy("research", "deny", **DENY), pods]) == []


def test_calls_are_listed_with_whether_they_are_open() -> None:
    def texts(*opened: Manifest) -> list[str]:
        return [call.text for call in Network(server(ADMITS) + caller(*opened)).calls()]

    closed = "research may not call it, its own network policies close the way"
    assert texts(TO_SERVING) == ["serving/open-0: research may call it"]
    assert texts() == [f"serving/open-0: {closed}"]


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
    cluster = (CLUSTER, {"name": "ml", "location": "us-central1", **inputs})
    declared = map(resource, server(ADMITS) + caller(url=None))
    rules = {each.rule for each in judge_program([cluster, *declared]).findings}
    assert ("network-policy" in rules) is is_reported
