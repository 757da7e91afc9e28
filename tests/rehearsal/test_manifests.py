"""Every manifest of our stacks, examples and tests passes the API server's own validation, field by field."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.plugins.kubernetes.client import Client

from tests.support import judged, recording
from tests.support.checkout import CHECKOUT
from tests.support.cluster import Cluster
from tests.support.recording import EXAMPLES, STACKS
from tests.workloads.building import CASES

Manifest = dict[str, Any]

TESTS = [f"tests/{room}" for room in ("workloads", "storage", "tenancy", "gpu")]
"""The tests whose components' manifests are judged, all of them: a plugin notes them."""


def of_programs() -> Iterator[tuple[str, Manifest]]:
    """Where a manifest of our stacks and examples comes from, and the manifest."""
    programs = {f"stack {name}": recording.stack(name) for name in STACKS}
    programs |= {f"example {name}": recording.example(name) for name in EXAMPLES}
    for name, resources in programs.items():
        for resource in resources:
            if resource["type"].startswith("kubernetes:") and "kind" in resource["inputs"]:
                yield name, resource["inputs"]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Manifest]]:
    """Those of our programs, and what the components make in other tests."""
    noted = tmp_path_factory.mktemp("noted") / "manifests"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not replica", "-p", "no:cacheprovider"]
    options = ["-p", "tests.support.collecting", *TESTS]
    done = subprocess.run(
        [*command, *options],
        cwd=CHECKOUT,
        env=os.environ | {"MANIFESTS": str(noted)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    found = [json.loads(line) for line in noted.read_text().splitlines()]
    return [*of_programs(), *((each["test"], each["manifest"]) for each in found)]


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return judged.prepared(Api(Access(cluster.kubeconfig)))


def test_the_api_server_takes_every_manifest(
    client: Client, manifests: list[tuple[str, Manifest]]
) -> None:
    assert len(manifests) > 600
    tests = {name.partition("::")[0] for name, _ in manifests}
    names = ("test_public_manifests", "test_overrides", "test_pod")
    assert {f"tests/workloads/{name}.py" for name in names} <= tests
    names_of_all = [name for name, _ in manifests]
    said = judged.refusals(client, (manifest for _, manifest in manifests))
    judged_all = zip(names_of_all, said, strict=True)
    refused = [f"{name}: {words}" for name, words in judged_all if words]
    assert not refused, "\n".join(refused)


def test_it_would_refuse_a_wrong_one(client: Client) -> None:
    [job] = CASES["preprocessing"]
    spec = {**job["spec"], "completionMode": "NonIndexed", "parallelism": -1, "misspelt": 1}
    wrong = {**job, "spec": spec}
    assert "misspelt" in judged.refusals(client, [wrong])[0]
    del wrong["spec"]["misspelt"]
    assert "parallelism" in judged.refusals(client, [wrong])[0]
