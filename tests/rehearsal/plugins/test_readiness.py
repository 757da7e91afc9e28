"""What the embedded kubernetes plugin waits for: services and ingresses over simulated pods."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.kubernetes import readiness
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node, project_over

WEB = """
web = k8s.apps.v1.Deployment("web", metadata={"name": "web"}, spec={"replicas": 2, "selector": {"match_labels": {"app": "web"}},
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}, opts=here)
k8s.core.v1.Service("web", metadata={"name": "web"}, spec={"selector": {"app": "web"}, "ports": [{"port": 80}]},
    opts=options(depends_on=[web]))
"""

STATEFUL = """
service = k8s.core.v1.Service("db", metadata={"name": "db"}, spec={"selector": {"app": "db"}, "ports": [{"port": 80}]}, opts=here)
k8s.apps.v1.StatefulSet("db", metadata={"name": "db"}, spec={"service_name": service.metadata["name"], "replicas": 1,
    "selector": {"match_labels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}, opts=here)
"""

INGRESS = """
k8s.networking.v1.Ingress("front", metadata={"name": "front", "annotations": {"pulumi.com/timeoutSeconds": "2"}}, spec={"rules": [
    {"http": {"paths": [{"path": "/", "path_type": "Prefix", "backend": {"service": {"name": "none", "port": {"number": 80}}}}]}}]},
    opts=here)
"""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    with project_over(
        cluster, tools, tmp_path_factory.mktemp("project"), fake_node("worker", {})
    ) as project:
        yield project


def test_a_service_over_a_ready_deployment_has_endpoints(project: Project) -> None:
    project.up(WEB)
    pods = project.kubectl("get", "pods", "-l", "app=web")["items"]
    selector = "kubernetes.io/service-name=web"
    slices = project.kubectl("get", "endpointslices", "-l", selector)["items"]
    endpoints = [endpoint for item in slices for endpoint in item["endpoints"]]
    addresses = {address for endpoint in endpoints for address in endpoint["addresses"]}
    assert addresses == {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 2


def test_a_stateful_set_may_refer_to_its_service(project: Project) -> None:
    project.up(STATEFUL)


def test_an_ingress_to_a_missing_service_is_not_ready(project: Project) -> None:
    assert "an unavailable target: there is no service none" in project.fails(INGRESS)
    project.up("")


class Answers:
    """Stands for a cluster in which these objects are all that there is to see."""

    def __init__(self, *found: Object) -> None:
        self.found = list(found)

    def list(self, *kind: str, **query: str) -> list[Object]:
        return self.found

    def get(self, obj: Object) -> Object | None:
        named = {item["metadata"]["name"]: item for item in self.found}
        return named.get(obj["metadata"]["name"])


def lack(live: Object, *found: Object) -> str:
    client: Any = Answers(*found)
    missing = readiness.missing(client, live)
    return missing.reason if missing else ""


def service(created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Object:
    metadata = {"name": "s", "namespace": "default", "creationTimestamp": created}
    selecting = {"selector": {"a": "b"}} | spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": selecting}


def endpoints(**conditions: bool) -> Object:
    return {"endpoints": [{"conditions": {"ready": True}}, {"conditions": conditions}]}


def test_a_service_waits_only_for_its_own_pods() -> None:
    assert lack(service(), endpoints(ready=True)) == ""
    assert lack(service(), endpoints(ready=False, terminating=True)) == ""
    assert "not ready" in lack(service(), endpoints(ready=False))
    assert lack(service(clusterIP="None"), endpoints(ready=False)) == ""
    assert lack(service(selector={})) == ""
    assert lack(service(), {"endpoints": None}) == "", "nothing has come to an old service"
    assert lack(service(datetime.now(UTC).isoformat())) == "no pod is behind the service"
    balanced = lack(service(type="LoadBalancer"), endpoints(ready=True))
    assert balanced == "the load balancer has no address"


INGRESS_RULES = """
- host: x
- http:
    paths:
    - backend: {service: {name: a}}
    - backend: {service: {name: b}}
    - backend: {resource: {kind: Bucket}}
"""


def test_an_ingress_waits_for_an_address_and_its_services() -> None:
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": "d"}}
    live = kind | {"spec": {"rules": yaml.safe_load(INGRESS_RULES)}}
    a, b = ({"metadata": {"name": name}} for name in "ab")
    assert lack(live | status, a, b) == ""
    assert lack(live, a, b) == "the ingress has no address"
    assert lack(live | status, a).endswith("there is no service b")
    live["spec"]["ingressClassName"] = "nginx"
    why = "the ingress has no address: it comes from the controller of the class nginx"
    assert lack(live, a, b) == why


class Held:
    """Stands for a cluster with pods of a workload and some warnings."""

    def __init__(self, pods: list[Object], events: list[Object]) -> None:
        self.found = {"Pod": pods, "Event": events}

    def list(self, version: str, kind: str, namespace: str, **query: str) -> list[Object]:
        return self.found[kind]


def test_the_last_warning_of_a_stuck_pod_is_its_reason() -> None:
    def pod(name: str, phase: str) -> Object:
        metadata = {"name": name, "namespace": "default", "uid": name}
        return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase}}

    def event(name: str, message: str, minute: int) -> Object:
        last = {"reason": "Failed", "lastTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
        return {"involvedObject": {"uid": name}, "message": message, **last}

    events = [
        event("a", "a disk is in use", 2),
        event("a", "no Secret yet", 1),
        event("b", "it was slow", 1),
    ]
    client: Any = Held([pod("a", "Pending"), pod("b", "Running")], events)
    metadata = {"name": "d", "namespace": "default"}
    spec = {"selector": {"matchLabels": {"app": "a"}}}
    live = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    assert readiness.reasons(client, live) == ["pod a: Failed: a disk is in use"]
