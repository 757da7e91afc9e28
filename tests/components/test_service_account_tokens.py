"""No pod that a component creates gets a token of its service account, unless it asks the API server."""

from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from ml_foundations import InferenceGateway
from ml_foundations.gpu.driver_installer import driver_installer_manifest

from codegen.construction import construct
from tests.gke import networks
from tests.support import recording
from tests.support.declaring import declared, inputs

WITH_TOKEN = {
    "custom-metrics-stackdriver-adapter": "it watches pods, and asks who may read a metric",
    "chat-picker": "it watches the pods of its pool",
    "r1-picker": "it watches the pods of its pool",
    "llm-router": "it watches the names of adapters",
}
"""The service accounts of pods with a token, and what it is for."""


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    """The PodSpecs in a manifest."""
    if isinstance(value, list):
        for item in value:
            yield from pod_specs(item)
    elif isinstance(value, dict):
        if "containers" in value and "image" in value["containers"][0]:
            yield value
        for item in value.values():
            yield from pod_specs(item)


def every_component() -> list[dict[str, Any]]:
    return [inputs(request) for request in declared(construct).values()]


def network_pools() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for case in networks.POOLS:
        requests = declared(lambda case=case: networks.pool(networks.cluster(), case))
        made += map(inputs, requests.values())
    return made


def several_servers() -> list[dict[str, Any]]:
    def program() -> None:
        servers: list[Any] = []
        for name in ("chat", "r1"):
            server = {"name": name, "namespace": "nlp", "port": 8000, "health_path": "/health"}
            more = {"selector": {"app": name}, "served_models": [name]}
            servers.append(server | more | {"is_divided": name == "r1"})
        InferenceGateway("llm", namespace="nlp", servers=servers, proxy_only_cidr="10.0.0.0/23")

    return [inputs(request) for request in declared(program).values()]


def stacks_and_examples() -> list[dict[str, Any]]:
    resources = [item for stack in recording.STACKS for item in recording.stack(stack)]
    resources += [item for example in recording.EXAMPLES for item in recording.example(example)]
    return [resource["inputs"] for resource in resources]


def driver_installers() -> list[dict[str, Any]]:
    return [driver_installer_manifest("cos"), driver_installer_manifest("ubuntu")]


@pytest.mark.parametrize(
    ("source", "fewest"),
    [
        (every_component, 15),
        (network_pools, 5),
        (several_servers, 3),
        (stacks_and_examples, 30),
        (driver_installers, 2),
    ],
)
def test_a_pod_has_a_token_only_if_it_uses_one(source: Any, fewest: int) -> None:
    pulumi.runtime.set_all_config({"gcp:project": "my-project"})
    try:
        manifests = source()
    finally:
        pulumi.runtime.set_all_config({})
    specs = list(pod_specs(manifests))
    assert len(specs) >= fewest
    for spec in specs:
        if spec.get("automountServiceAccountToken") is not False:
            assert spec.get("serviceAccountName") in WITH_TOKEN, spec
