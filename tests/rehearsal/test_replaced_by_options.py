"""The options for which an update replaces a resource, one by one."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.engine.dry_run import DryRun, Options
from ml_foundations.rehearsal.replacements import replacements

CONFIG = "kubernetes:core/v1:ConfigMap"
JOBS = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"
NETWORK, CLUSTER = "gcp:compute/network:Network", "gcp:container/cluster:Cluster"
PROVIDER = "pulumi:providers:kubernetes"


def job_set(nodes: Any, name: str = "a") -> tuple[str, Any]:
    spec = {"replicatedJobs": [{"name": "w", "replicas": nodes}], "suspend": True}
    manifest = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    return JOBS, manifest | {"metadata": {"name": name, "namespace": "ml"}}


def found(old: Any, new: Any, before: Any = None, after: Any = None) -> dict[str, list[str]]:
    """What is replaced, of resources by urn and of their options by urn."""
    after = after or before or {}
    options = [
        {urn: given.get(urn, Options()) for urn in run}
        for run, given in ((old, before or after), (new, after))
    ]
    return replacements(DryRun(old, options=options[0]), DryRun(new, options=options[1]))


NODES = "spec.replicatedJobs[0].replicas"


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        (Options(), []),
        (Options(replaced=["spec"]), [NODES]),
        (Options(replaced=["spec.replicatedJobs[*].replicas"]), [NODES]),
        (Options(replaced=["*"]), [NODES]),
        (Options(replaced=["spec.replicatedJobs[1]"]), []),
        (Options(replaced=["spec.replicated"]), []),
        (Options(replaced=["spec"], ignored=["spec.replicatedJobs"]), []),
    ],
)
def test_paths(options: Options, paths: list[str]) -> None:
    assert found({"a": job_set(4)}, {"a": job_set(6)}, {"a": options}) == (
        {"a": paths} if paths else {}
    )


def test_a_trigger_and_what_is_replaced_with_another() -> None:
    same = {"a": job_set(4), "b": job_set(4, "b")}
    before = {"a": Options(replacement_trigger=1), "b": Options(replace_with=["a"])}
    after = before | {"a": Options(replacement_trigger=2)}
    assert found(same, same, before, after) == {
        "a": ["replacement_trigger"],
        "b": ["replace_with"],
    }


def test_what_a_replaced_resource_computes_is_new() -> None:
    def network(name: str) -> Any:
        cluster = {"name": "c", "network": UNKNOWN, "location": "us-central1"}
        return {"n": (NETWORK, {"name": name}), "c": (CLUSTER, cluster)}

    options = {"c": Options(sources={"network": ["n"]})}
    assert found(network("x"), network("x"), options) == {}
    assert found(network("x"), network("y"), options) == {"n": ["name"], "c": ["network"]}


def test_what_depends_on_a_resource_that_goes_first() -> None:
    """Any value of a property that depends on it may change (calculateDependentReplacements of the engine)."""

    def objects(text: str) -> Any:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
        return {
            "c": (CONFIG, manifest | {"data": {"a": text}}),
            "a": job_set(4),
            "b": job_set(4, "b"),
        }

    options = {"a": Options(replaced=["spec"], sources={"spec": ["c"]}, deletes_first=True)}
    options["b"] = Options(replaced=["spec"], sources={"metadata": ["c"]})
    assert found(objects("x"), objects("y"), options) == {"c": ["data.a"], "a": ["spec"]}
    first = options | {"c": Options(deletes_first=False)}
    assert found(objects("x"), objects("y"), first) == {"c": ["data.a"]}


def test_another_cluster_replaces_what_is_in_it() -> None:
    def objects(cluster: str) -> Any:
        provider = {"kubeconfig": UNKNOWN, "clusterIdentifier": cluster}
        return {"p": (PROVIDER, provider), "a": job_set(4)}

    options = {"a": Options(provider="p")}
    assert found(objects("x"), objects("y"), options) == {
        "p": ["clusterIdentifier"],
        "a": ["provider"],
    }
