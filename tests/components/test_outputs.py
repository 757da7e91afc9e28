"""Inputs before they are registered: in the names that the provider will see, unknown where they must wait."""

from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest
from ml_foundations.component.outputs import KnownOutput, inputs_as_sent
from ml_foundations.kubernetes.trees import UNKNOWN

from tests.support.declaring import declared, inputs

VARIABLE: Any = {"name": "KEEP_me", "value": "x"}
CONTAINER = k8s.core.v1.ContainerArgs(name="c", image_pull_policy="Always", env=[VARIABLE])
POD_LABELS = {"app.kubernetes.io/name": "x", "snake_case": "stays", "camelCase": "stays"}
JOB: Any = {"backoff_limit": 1, "template": {"spec": None}}
TAINT: Any = {"key": "k"}


def typed() -> None:
    spec = k8s.core.v1.PodSpecArgs(
        containers=[CONTAINER], node_selector={"node_type": "x"}, host_network=True
    )
    k8s.core.v1.Pod(
        "r", metadata=k8s.meta.v1.ObjectMetaArgs(name="p", labels=POD_LABELS), spec=spec
    )


def keywords() -> None:
    container: Any = {"name": "c", "image_pull_policy": "Always"}
    container |= {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    spec: Any = {"containers": [container], "node_name": "n"}
    k8s.core.v1.Pod("r", metadata={"labels": POD_LABELS}, spec=spec)


def camel_case() -> None:
    container = {"name": "c", "imagePullPolicy": "Always"}
    spec: Any = {"nodeSelector": {"node_type": "x"}, "containers": [container]}
    k8s.core.v1.Pod("r", metadata={"labels": POD_LABELS}, spec=spec)


def one_object() -> None:
    k8s.batch.v1.Job("r", k8s.batch.v1.JobInitArgs(spec=JOB))


def custom() -> None:
    spec = {"snake_case": [{"more_of_it": 1.5}], "camelCase": None}
    k8s.apiextensions.CustomResource(
        "r", api_version="a/v1", kind="K", metadata={"name": "n"}, spec=spec
    )


def cloud() -> None:
    nodes = gcp.container.NodePoolNodeConfigArgs(
        machine_type="m", labels={"a_b": "c"}, taints=[TAINT]
    )
    gcp.container.NodePool(
        "r", cluster=pulumi.Output.from_input("c"), node_config=nodes, node_count=3
    )


@pytest.mark.parametrize("program", [typed, keywords, camel_case, one_object, custom, cloud])
def test_inputs_are_told_as_the_registration_will_send_them(program: Any) -> None:
    found: list[dict[str, Any]] = []

    def watched() -> None:
        pulumi.runtime.register_stack_transformation(
            lambda args: found.append(inputs_as_sent(type(args.resource), args.props))
        )
        program()

    assert found == [without_nulls(inputs(declared(watched)["r"]))]


def without_nulls(tree: Any) -> Any:
    """What a provider gets: Pulumi drops nulls."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return [without_nulls(item) for item in tree] if isinstance(tree, list) else tree


def test_what_must_wait_is_unknown_and_can_still_be_awaited() -> None:
    found: dict[str, Any] = {}

    def program() -> None:
        quota = k8s.core.v1.ResourceQuota("q", metadata={"name": "q"})
        resolved = pulumi.Output.from_input({"now": "known"})
        data = {
            "now": resolved["now"].apply(str),
            "later": quota.metadata.name,
            "secret": pulumi.Output.secret("s"),
            "unknown": pulumi.Output.from_input(pulumi.output.UNKNOWN),
            "plain": pulumi.Output.from_input("p"),
        }
        found.update(inputs_as_sent(k8s.core.v1.ConfigMap, {"data": data, "immutable": None}))
        pulumi.export("name", quota.metadata.name)

    declared(program)
    unknown = dict.fromkeys(["now", "later", "secret", "unknown"], UNKNOWN)
    assert found == {"data": unknown | {"plain": "p"}}


def test_a_missing_key_of_an_item_names_the_component() -> None:
    def program() -> None:
        output = KnownOutput({"a": [{"b": 1}]}, [], "StorageClasses disks: classes")
        next(iter(output["a"].apply(lambda items: items)))["c"]

    with pytest.raises(pulumi.RunError, match='StorageClasses disks: classes: there is no key "c"'):
        declared(program)
