"""Kinds that a user describes, by the page that says how."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.model import kind_files
from ml_foundations.planning.model.kind_files import KindError

from tests.factories import namespaced, node
from tests.support.checkout import CHECKOUT

PAGE = (CHECKOUT / "docs" / "teach-the-proof-a-kind.md").read_text()
[DESCRIPTION] = re.findall(r"<!-- kinds/pytorch_job.yaml -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
[SHOWN] = re.findall(r"```\n(PyTorchJob .*?)```", PAGE, re.DOTALL)


def pods(replicas: int) -> dict[str, Any]:
    container = {"name": "main", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


def documents(nodes: int, **spec: Any) -> list[dict[str, Any]]:
    replicas = {"Master": pods(1), "Worker": pods(3)}
    spec = {"nprocPerNode": "8", "pytorchReplicaSpecs": replicas, **spec}
    job = namespaced("kubeflow.org/v1", "PyTorchJob", "llama", spec=spec)
    job["metadata"]["namespace"] = "nlp"
    free: Any = {"cpu": "8", "memory": "8Gi", "gpu": "8"}
    return [job, *(node(name, **free) for name in "abcd"[:nodes])]


def plan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Judge the objects of a folder."""
    command = [sys.executable, "-m", "ml_foundations.planning", "all.yaml", *arguments]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "components")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def judged(
    folder: Path, shown: list[dict[str, Any]], description: str = DESCRIPTION
) -> subprocess.CompletedProcess[str]:
    """Judge objects with a description of their kind."""
    kinds = folder / "kinds"
    kinds.mkdir(exist_ok=True)
    (kinds / "pytorch_job.yaml").write_text(description)
    (folder / "all.yaml").write_text(yaml.safe_dump_all(shown))
    return plan(folder, "--kinds", "kinds")


@pytest.fixture
def without_kinds() -> Iterator[None]:
    """Other tests of this process judge without the kinds of a test."""
    yield
    kind_files.use("")


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    printed = " ".join(judged(tmp_path, documents(1)).stdout.split())
    assert " ".join(SHOWN.split()) in printed


def test_it_fits_if_each_pod_has_its_gpus(tmp_path: Path) -> None:
    assert "The stack fits" in judged(tmp_path, documents(4)).stdout
    without_workers = {"pytorchReplicaSpecs": {"Master": pods(1)}}
    assert "The stack fits" in judged(tmp_path, documents(1, **without_workers)).stdout


GPUS = {"limits": {"nvidia.com/gpu": "8"}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, "fits"), ({"side": True}, "fits"), ({"side": True, "own": GPUS}, "cannot fit")],
)
def test_a_controller_may_add_containers_under_a_condition(
    more: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """A sidecar with GPUs: an object may set its resources."""
    added = (
        "{container: {name: s, image: i}, when: spec.side=True, fields_from: {resources: spec.own}}"
    )
    description = DESCRIPTION.replace("count: spec", f"containers: [{added}]\n    count: spec", 1)
    printed = judged(tmp_path, documents(4, **more), description).stdout
    assert f"The stack {expected}" in printed, printed


def test_a_field_that_is_not_described_is_undetermined(tmp_path: Path) -> None:
    printed = judged(tmp_path, documents(4, elasticPolicy={"minReplicas": 1})).stdout
    assert "PyTorchJob nlp/llama is undetermined" in printed
    assert "spec.elasticPolicy: the description of its kind has no such field" in printed


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("count:", "cuont:", "pods[0].cuont is not a key of a description. Did you mean count?"),
        ("harmless:", "harmles:", "harmles is not a key of a description. Did you mean harmless?"),
        ("version: v1", "", "version is required, as in apiVersion: group/version"),
        ("group: kubeflow.org", "", "group is required, as in apiVersion: group/version"),
        ("version: v1", "version: 1", "version must be text (numbers in quotes), not 1"),
        ("pods:", "pod:", "pods is required: a list with the templates of the kind's pods"),
        ("- template", "- tmplate", "pods[0].template is required: a list of paths, such as"),
        ("template: [", "template: [1, ", "pods[0].template[0] must be a path, such as"),
        ("template: [", "template: ['spec.x[].y', ", "pods[0].template must be names with dots"),
        (
            "count: spec",
            "count: " + "spec." * 32 + "n # ",
            "pods[0].count must be names with dots between them, at most 32",
        ),
        ("count: spec", "count: 2 # ", "pods[0].count must be a path, such as spec.replicas"),
        ("count: spec", "bounds: [spec.x] # ", "pods[0].bounds must be two paths"),
        ("count: spec", "unless: spec", "pods[0].unless must be a path and values, such as"),
        ("count: spec", "sets: each # ", "pods[0].sets must be '', 'one' or 'per replica'"),
        ("labels: {", "labels: {a: 1, ", "pods[0].labels.a must be text (numbers in quotes)"),
        ("count: spec", "containers: [{when: a=b}] # ", "pods[0].containers[0].container is requi"),
        ("count: spec", "containers: [{container: {}}] # ", "pods[0].containers[0].when is requir"),
        (
            "count: spec",
            "containers: [{container: {}, when: a}] # ",
            "pods[0].containers: when must be a path and values",
        ),
        (
            "count: spec",
            "containers: [{container: {}, when: a=b, fields_from: {image: 'x[0]'}}] # ",
            "pods[0].containers: fields_from must be names with dots",
        ),
        (
            "ends: kind=",
            "ends: kind: ",
            "cannot be read: mapping values are not allowed in this context, at line 5",
        ),
        (DESCRIPTION, "", "kind is required"),
        (DESCRIPTION, "[a]", "the file must be a mapping, not a list"),
        ("kind: PyTorchJob", "kind: Job", "kind: Job is known already, from planning"),
    ],
)
def test_an_invalid_description_is_refused(
    before: str, after: str, error: str, tmp_path: Path, without_kinds: None
) -> None:
    assert before in DESCRIPTION
    file = tmp_path / "pytorch_job.yaml"
    file.write_text(DESCRIPTION.replace(before, after, 1))
    with pytest.raises(KindError, match=re.escape(f"{file}: {error}")):
        kind_files.use(str(tmp_path))


def test_an_invalid_description_ends_the_program(tmp_path: Path) -> None:
    judged(tmp_path, documents(4))
    (tmp_path / "kinds" / "torch.yaml").write_text(DESCRIPTION)
    done = judged(tmp_path, documents(4))
    assert done.returncode == 2
    known = "kind: PyTorchJob is known already, from kinds/pytorch_job.yaml"
    assert done.stderr == f"error: kinds/torch.yaml: {known}\n"


def test_a_template_that_an_object_lacks_is_undetermined(tmp_path: Path) -> None:
    description = DESCRIPTION.replace(
        "template: [spec.pytorchReplicaSpecs.Master", "template: [spec.x"
    )
    printed = judged(tmp_path, documents(4), description).stdout
    assert "the description of its kind has no such field" in printed


INCOMPLETE = documents(4)
for role in ("Master", "Worker"):
    of_role = INCOMPLETE[0]["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    del of_role["containers"][0]["image"]
    of_role["containers"][0]["volumeMounts"] = [{"name": "added", "mountPath": "/a"}]


def test_a_controller_may_complete_a_template(tmp_path: Path) -> None:
    """Nothing refuses an object of a definition for its template; who describes a kind may not know what is added."""
    for done, cause in (
        (
            judged(tmp_path, INCOMPLETE),
            "image must be given, unless its controller completes the template",
        ),
        (plan(tmp_path), "planning does not know this kind"),
    ):
        assert "is undetermined" in done.stdout
        assert cause in done.stdout
        assert "refuses" not in done.stdout
