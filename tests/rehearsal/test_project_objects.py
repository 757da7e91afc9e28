"""What GKE's controllers make in the project for load balancers: made, held by a finalizer, removed or left."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pulumi
import pytest
from ml_foundations.catalog import services
from ml_foundations.catalog.tables import rows
from ml_foundations.rehearsal.cloud import project_objects
from ml_foundations.rehearsal.cloud.cluster import Cluster
from ml_foundations.rehearsal.cloud.project_objects import KINDS
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.tables import leftover_lines

from tests.support import declaring

Object = dict[str, Any]
TYPES = {
    "services": "kubernetes:core/v1:Service",
    "ingresses": "kubernetes:networking.k8s.io/v1:Ingress",
    "gateways": "kubernetes:gateway.networking.k8s.io/v1:Gateway",
}
INPUTS: dict[str, Object] = {
    "services": {
        "spec": {"type": "LoadBalancer"},
        "metadata": {"annotations": {"cloud.google.com/neg": "{}"}},
    },
    "ingresses": {"spec": {}},
    "gateways": {"spec": {"gatewayClassName": "gke-l7-rilb"}},
}


class _Api:
    """An API server with one object."""

    def __init__(self, item: Object) -> None:
        self.item = item

    def patch(self, path: str, body: Object) -> Object:
        assert path.endswith("/namespaces/ml/services/chat")
        assert body["metadata"].pop("resourceVersion") == self.item["metadata"]["resourceVersion"]
        self.item["metadata"] |= body["metadata"]
        return self.item


@pytest.fixture
def store(tmp_path: Path) -> Store:
    rehearsal = Rehearsal.of("bare", tmp_path)
    rehearsal.make()
    return Store(rehearsal)


def test_a_service_is_held_until_its_load_balancer_is_removed(store: Store) -> None:
    kept = ["example.com/own"]
    metadata: Object = {"namespace": "ml", "name": "chat", "uid": "0123456789", "finalizers": kept}
    api = _Api({"metadata": metadata | {"resourceVersion": "7"}})
    known = SimpleNamespace(api=api, project=store, properties={"network": "ml-net"})
    cluster = cast("Cluster", known)

    def follow(*, is_served: bool = True) -> bool:
        path = "/api/v1/services"
        return project_objects.follow(cluster, path, api.item, is_served=is_served)

    assert follow()
    held = [*kept, "service.kubernetes.io/load-balancer-cleanup"]
    assert api.item["metadata"]["finalizers"] == held
    names = {each["name"] for each in store.made()}
    assert "firewalls/k8s-ml-chat-01234567" in names
    assert {each["in"] for each in store.made()} == {"ml-net"}
    assert follow()
    # Of another type now: GKE removes what it made, and lets go of it.
    assert not follow(is_served=False)
    assert (api.item["metadata"]["finalizers"], store.made()) == (kept, [])
    assert follow()
    api.item["metadata"]["deletionTimestamp"] = "2026-11-27T00:00:00Z"
    assert not follow()
    assert (api.item["metadata"]["finalizers"], store.made()) == (kept, [])
    assert not follow()


def test_all_that_is_made_has_a_command_that_finds_it() -> None:
    for collection, kind in KINDS.items():
        commands = services.finding_commands([(TYPES[collection], INPUTS[collection])])
        for made in kind.made:
            word = re.sub(r"([A-Z])", lambda found: f"-{found[1].lower()}", made)
            word = "firewall-rules" if made == "firewalls" else word
            assert any(f"gcloud compute {word} list" in command for command in commands), made
        firewalls = next(command for command in commands if "firewall-rules" in command)
        names = re.search(r"name~(\S+)'", firewalls)
        assert names and re.match(names[1], kind.prefix)


def test_each_kind_of_leftover_is_told_with_its_command() -> None:
    for row in rows("leftovers.csv"):
        *path, last = row["field"].split() or [""]
        inputs: Object = {last: row["values"].split()[0] if row["values"] else "x"}
        for key in reversed(path):
            inputs = {key: inputs}
        commands = services.finding_commands([(row["type"], inputs)])
        assert row["command"] in commands, row
        assert f"  {row['command']}  # {commands[row['command']]}" in leftover_lines(commands)
    assert leftover_lines({}) == []


def _reaches(requests: list[Any], name: str) -> set[str]:
    """All that a resource waits for, also by its parents and its provider."""
    # As Pulumi's mocks make urns: the last part is the name.
    by_name = {request.name: request for request in requests}
    seen, open_ = set[str](), [name]
    while open_:
        request = by_name.get(open_.pop())
        if request is None or request.name in seen:
            continue
        seen.add(request.name)
        provider = request.provider.rpartition("::")[0]
        for urn in (*request.dependencies, provider):
            open_.append(urn.rpartition("::")[2])
    return seen - {name}


def _gateway(cluster: Any) -> None:
    from ml_foundations import InferenceGateway, InferenceService

    server = InferenceService("chat", namespace="ml", image="i", gpu="L4", cluster=cluster)
    InferenceGateway("llm", namespace="ml", servers=[server], cluster=cluster)


def _service(cluster: Any) -> None:
    import pulumi_kubernetes as k8s

    options = pulumi.ResourceOptions(provider=cluster.kubernetes_provider())
    k8s.core.v1.Service("llm-gateway", spec={"type": "LoadBalancer"}, opts=options)


@pytest.mark.parametrize("declare", [_gateway, _service])
def test_load_balancers_are_deleted_before_pools_and_network(
    declare: Callable[[Any], None],
) -> None:
    """Pulumi deletes what waits for a resource before the resource."""

    def program() -> None:
        from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool

        cluster = GkeCluster(
            "ml",
            project="acme-ml",
            location="us-central1",
            gateway_api=True,
            proxy_only_cidr="10.21.0.0/23",
            endpoint="dns",
        )
        CpuNodePool("system", cluster=cluster, machine_type="n2-standard-4", max_nodes=3)
        GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-4", max_nodes=1)
        declare(cluster)

    requests = declaring.requests(program)
    pools = {request.name for request in requests if request.type.endswith(":NodePool")}
    assert len(pools) == 2
    wanted = pools | {"ml-cluster", "ml-subnetwork", "ml-network"}
    assert wanted <= _reaches(requests, "llm-gateway")
