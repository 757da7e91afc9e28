"""Resources that make what an earlier one makes: the second creation fails."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest
from ml_foundations import CpuNodePool, GkeCluster, Proof
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.clusters import PROVIDER, Declared
from ml_foundations.planning.input.node_pools import RANDOM
from ml_foundations.planning.input.program import BUCKET, CLUSTER, NODE_POOL
from ml_foundations.planning.verdict.clusters import judge_clusters

from tests.factories import CANNOT, Manifest, cluster_wide, namespaced
from tests.support.declaring import declared
from tests.support.findings import of_rule

UPSERT = {"upsertExistingObjects": "true"}
RENDER = {"renderYamlToDirectory": "manifests"}


def config_map(name: Any = "a", **metadata: Any) -> Manifest:
    made = namespaced("v1", "ConfigMap", name)
    return {**made, "metadata": {**made["metadata"], **metadata}}


def within(provider: str, *manifests: Manifest) -> list[Declared]:
    """Objects of a provider, by its urn."""
    objects: list[Declared] = []
    for index, item in enumerate(manifests):
        resource = f"kubernetes:{item['apiVersion']}:{item['kind']}", item
        objects.append(Declared(resource, f"{provider}{index}", f"{provider}{index}", provider))
    return objects


def provider(name: str, **inputs: Any) -> Declared:
    return Declared((PROVIDER, {"kubeconfig": "of a cluster", **inputs}), name, name)


def pool(key: str, cluster: Any = "c", sources: Any = (), **inputs: Any) -> Declared:
    given = {"name": "p", "location": "us-east1-b", "cluster": cluster, **inputs}
    return Declared((NODE_POOL, given), key, key, sources=sources)


def cluster(key: str, name: str | None = "c", provider: str = "") -> Declared:
    return Declared((CLUSTER, {"name": name, "location": "us-east1-b"}), key, key, provider)


A, B = cluster("a", name=None), cluster("b", name=None)

TWICE = {
    "equal objects": within("", config_map(), config_map()),
    "objects that differ": within("", config_map(), config_map(labels={"a": "b"})),
    "two versions": within(
        "",
        namespaced("autoscaling/v1", "HorizontalPodAutoscaler", "a"),
        namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "a"),
    ),
    "objects of a provider": [provider("p"), *within("p", config_map(), config_map())],
    "pools": [cluster("c"), pool("one"), pool("two")],
    "clusters": [cluster("one"), cluster("two")],
    "buckets, if objects may be overwritten": [
        Declared((PROVIDER, UPSERT), "", ""),
        *(Declared((BUCKET, {"name": "b"}), key, key) for key in ("one", "two")),
    ],
    "buckets": [Declared((BUCKET, {"name": "b"}), key, key) for key in ("one", "two")],
}
ONCE = {
    "two names": within("", config_map(), config_map("b")),
    "two namespaces": within("", config_map(), config_map(namespace="b")),
    "a namespace of the provider": within("", config_map(namespace="default"), config_map(namespace=None)),
    "two groups": within("", namespaced("a.dev/v1", "Queue", "a"), namespaced("b.dev/v1", "Queue", "a")),
    "unknown names": within("", config_map(UNKNOWN), config_map(UNKNOWN)),
    "unknown namespaces": within("", config_map(namespace=UNKNOWN), config_map(namespace=UNKNOWN)),
    "unknown metadata": within("", {**config_map(), "metadata": UNKNOWN}, config_map()),
    "names of Pulumi": within("", config_map(f"a{RANDOM}x"), config_map(f"a{RANDOM}x")),
    "generated names": within("", config_map(None, generateName="a"), config_map(None, generateName="a")),
    "two providers": [
        *(provider("p"), *within("p", config_map())),
        *(provider("q"), *within("q", config_map())),
    ],
    "a provider that is not shown": within("p", config_map(), config_map()),
    "invalid namespaces": within("", config_map(namespace=["b"]), config_map(namespace=["b"])),
    "a provider that overwrites": [provider("p", **UPSERT), *within("p", config_map(), config_map())],
    "a provider that writes files": [provider("p", **RENDER), *within("p", config_map(), config_map())],
    "the default provider, which overwrites": [
        provider("urn:pulumi:s::p::pulumi:providers:kubernetes::default_4_34_2", **UPSERT),
        *within("", config_map(), config_map()),
    ],
    "an object in the list twice": within("", config_map()) * 2,
    "pools of two clusters": [A, B, pool("one", UNKNOWN, ["a"]), pool("two", UNKNOWN, ["b"])],
    "pools of unknown clusters": [pool("one", UNKNOWN, ["ref"]), pool("two", UNKNOWN, ["ref"])],
    "pools in two places": [pool("one"), pool("two", location="us-east1-c")],
    "pools with names of Pulumi": [pool("one", name=f"p{RANDOM}"), pool("two", name=f"p{RANDOM}")],
    "clusters of two projects": [cluster("one", provider="p"), cluster("two", provider="q")],
}  # fmt: skip


def namespaces(**options: Any) -> Callable[[], None]:
    """A program that makes a Namespace twice, with a provider."""

    def program() -> None:
        with Proof():
            provider = k8s.Provider("p", kubeconfig="of a cluster", **options)
            for name in ("a", "b"):
                opts = pulumi.ResourceOptions(provider=provider)
                k8s.core.v1.Namespace(name, metadata={"name": "ml"}, opts=opts)

    return program


def told(resources: list[Declared]) -> list[str]:
    verdicts = judge_clusters(resources)
    found = of_rule(verdicts, "declared-twice")
    assert not found or verdicts.stack is CANNOT
    return [finding.object for finding in found]


@pytest.mark.parametrize("resources", TWICE.values(), ids=TWICE)
def test_what_two_resources_make_is_refused(resources: list[Declared]) -> None:
    assert len(told(resources)) == 1


@pytest.mark.parametrize("resources", ONCE.values(), ids=ONCE)
def test_what_one_resource_makes_is_not_refused(resources: list[Declared]) -> None:
    assert not told(resources)


def test_a_variable_lets_each_provider_overwrite_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy pack and a dry run see no default provider."""
    monkeypatch.setenv("PULUMI_K8S_UPSERT_EXISTING_OBJECTS", "true")
    assert not told(within("", config_map(), config_map()))
    assert not told([provider("p"), *within("p", config_map(), config_map())])


def test_a_patch_changes_an_object_of_another_resource() -> None:
    made, patch = within("", config_map(), config_map())
    type_, inputs = patch.resource
    assert not told([made, replace(patch, resource=(f"{type_}Patch", inputs))])


def test_what_is_in_a_repeated_namespace_is_not_told_again() -> None:
    made = [cluster_wide("v1", "Namespace", "ml"), config_map(namespace="ml"), config_map()]
    assert told(within("", *made, *made)) == ["Namespace ml", "ConfigMap team/a"]


def test_a_third_resource_is_named_with_the_first() -> None:
    made = [provider("x"), *within("x", *[config_map()] * 3)]
    found = of_rule(judge_clusters(made), "declared-twice")
    assert [finding.object for finding in found] == ["ConfigMap team/a"] * 2
    assert [finding.message[:24] for finding in found] == [
        "the resources x0 and x1 ",
        "the resources x0 and x2 ",
    ]


def test_a_program_that_makes_an_object_twice_is_refused() -> None:
    words = "Namespace ml: the resources a and b both make it, and the second creation fails"
    with pytest.raises(pulumi.RunError, match=words):
        declared(namespaces())


@pytest.mark.parametrize(
    "options",
    [{"upsert_existing_objects": True}, {"render_yaml_to_directory": "manifests"}],
    ids=str,
)
def test_a_provider_of_a_program_may_overwrite_objects(options: dict[str, Any]) -> None:
    assert {"a", "b"} <= declared(namespaces(**options)).keys()


def test_a_provider_that_is_made_before_the_block_may_overwrite_objects() -> None:
    def program() -> None:
        provider = k8s.Provider("p", kubeconfig="of a cluster", upsert_existing_objects=True)
        with Proof():
            for name in ("a", "b"):
                opts = pulumi.ResourceOptions(provider=provider)
                k8s.core.v1.Namespace(name, metadata={"name": "ml"}, opts=opts)

    assert {"a", "b"} <= declared(program).keys()


def test_what_a_program_reads_or_imports_is_not_made() -> None:
    def program() -> None:
        with Proof():
            k8s.core.v1.Namespace("a", metadata={"name": "ml"})
            imported = pulumi.ResourceOptions(import_="ml")
            k8s.core.v1.Namespace("b", metadata={"name": "ml"}, opts=imported)
            for name in ("c", "d"):
                gcp.storage.Bucket.get(name, "b", name="b")

    assert {"a", "b"} <= declared(program).keys()


def test_the_default_provider_of_a_program_may_overwrite_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program() -> None:
        with Proof():
            for name in ("a", "b"):
                k8s.core.v1.Namespace(name, metadata={"name": "ml"})

    with pytest.raises(pulumi.RunError, match="declared-twice"):
        declared(program)
    pulumi.runtime.set_config("kubernetes:upsertExistingObjects", "true")
    try:
        assert {"a", "b"} <= declared(program).keys()
    finally:
        pulumi.runtime.set_all_config({})
    monkeypatch.setenv("PULUMI_K8S_UPSERT_EXISTING_OBJECTS", "true")
    assert {"a", "b"} <= declared(program).keys()
    assert {"a", "b"} <= declared(namespaces()).keys()


def test_components_whose_pools_have_one_name_are_refused() -> None:
    def program() -> None:
        with Proof():
            cluster = GkeCluster("ml", project="some-project", location="us-central1")
            for name in ("a", "b"):
                sizes: Any = {"machine_type": "n2-standard-8", "max_nodes": 1}
                CpuNodePool(name, cluster=cluster, pool_name="cpu", **sizes)

    with pytest.raises(pulumi.RunError, match="NodePool cpu: the resources a-pool and b-pool"):
        declared(program)
