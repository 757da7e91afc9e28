"""Every manifest of our stacks, examples and tests passes the API server's own validation, field by field."""

from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.plugins.kubernetes.client import Client, UnknownKindError

from tests.support import recording
from tests.support.cluster import Cluster
from tests.support.recording import EXAMPLES, STACKS
from tests.workloads.building import CASES
from tests.workloads.public import OURS

Manifest = dict[str, Any]

BROUGHT = {"ClusterQueue", "JobSet", "LocalQueue", "ResourceFlavor"}
"""Kinds of Kueue and JobSet, whose webhooks judge them in test_queue.py."""


def manifests() -> Iterator[tuple[str, Manifest]]:
    """Where a manifest comes from, and the manifest."""
    programs = {f"stack {name}": recording.stack(name) for name in STACKS}
    programs |= {f"example {name}": recording.example(name) for name in EXAMPLES}
    for name, resources in programs.items():
        declared = (resource["inputs"] for resource in resources if resource["type"].startswith("kubernetes:"))
        yield from ((name, manifest) for manifest in declared if "kind" in manifest)
    for case, made in CASES.items():
        yield from ((f"case {case}", manifest) for manifest in made)
    for name, (make, typed, overrides) in OURS.items():
        yield from ((f"public {name}", manifest) for manifest in make(**typed, **overrides).manifests())


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    api = Api(Access(cluster.kubeconfig))
    Addons(api).reconcile()
    for namespace in {manifest["metadata"].get("namespace") for _, manifest in manifests()} - {None}:
        api.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return Client(api)


def refusal(client: Client, manifest: Manifest) -> str:
    try:
        client.apply(manifest, "tests", dry_run=True, force=True)
    except UnknownKindError as error:
        return "" if manifest["kind"] in BROUGHT else str(error)
    except ApiError as error:
        return str(error)
    return ""


def test_the_api_server_takes_every_manifest(client: Client) -> None:
    found = list(manifests())
    assert len(found) > 300
    refused = [(name, m["kind"], m["metadata"]["name"], said) for name, m in found if (said := refusal(client, m))]
    assert not refused


def test_it_would_refuse_a_wrong_one(client: Client) -> None:
    [job] = CASES["preprocessing"]
    wrong = {**job, "spec": {**job["spec"], "completionMode": "NonIndexed", "parallelism": -1, "misspelt": 1}}
    assert "misspelt" in refusal(client, wrong)
    del wrong["spec"]["misspelt"]
    assert "parallelism" in refusal(client, wrong)
