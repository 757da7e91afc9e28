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
from ml_foundations.kinds import kind_files
from ml_foundations.kinds.kind_files import KindError
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.report import as_json

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
        ("kind: PyTorchJob", "kind: Job", "kind: Job is known already, from ML Foundations"),
        ("name_label:", "embeds: {spec.a: Job} # ", "embeds.spec.a must be RayCluster, not"),
        ("name_label:", "embeds: {spec.a: RayJob} # ", "embeds.spec.a must be RayCluster, not"),
        ("name_label:", "embeds: {spec.a: RayService} # ", "embeds.spec.a must be RayCluster, not"),
        (
            "name_label:",
            "constraints: [{field: a}] # ",
            "constraints[0].field is not a key of a description. Did you mean fields?",
        ),
        (
            "count: spec",
            "containers: [{fields_form: {}}] # ",
            "pods[0].containers[0].fields_form is not a key of a description. Did you mean fields_from?",
        ),
        ("name_label:", "states: {Done: 1} # ", "states.Done must be text (numbers in quotes)"),
        ("name_label:", "constraints: [{must: 1}] # ", "constraints[0].must must be text"),
        ("name_label:", "queue: {framework: [a]} # ", "queue.framework is not a key of a"),
        ("name_label:", "adopts: Pod # ", "adopts is for kinds whose pods planning computes"),
        ("name_label:", "unknown: {why: ['spec.a[0]']} # ", "unknown must be names with dots"),
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


def test_the_folder_has_descriptions(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents(4)))
    (tmp_path / "kinds").mkdir()
    assert plan(tmp_path, "--kinds", "kinds").stderr == (
        "error: kinds: it has no file that describes a kind (.yaml or .yml)\n"
    )
    (tmp_path / "kinds" / "pytorch_job.yml").write_text(DESCRIPTION)
    assert plan(tmp_path, "--kinds", "kinds").stderr == ""
    missing = "error: none: No such file or directory\n"
    assert plan(tmp_path, "--kinds", "none").stderr == missing


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


@pytest.mark.parametrize(
    ("field", "expected"),
    [("note", "The stack fits"), ("mode", "it may need more"), ("x", "has no such field")],
)
def test_a_field_in_items_of_a_list_may_be_harmless(
    field: str, expected: str, tmp_path: Path
) -> None:
    description = """
        {kind: Gang, group: example.com, version: v1, harmless: ['spec.groups[].note'],
         unknown: {it may need more: ['spec.groups[].mode']},
         pods: [{each: spec.groups, template: [template], count: replicas}]}
    """
    gang = namespaced("example.com/v1", "Gang", "g", spec={"groups": [{**pods(1), field: "a"}]})
    printed = judged(tmp_path, [gang, *documents(1)[1:]], description).stdout
    assert expected in printed, printed


RAY_SERVICE = Path(kind_files.__file__).with_name("ray_service.yaml")


def ray_services() -> Iterator[list[dict[str, Any]]]:
    """Stacks with a RayService that fits, that does not, and with other fields."""
    group = {"groupName": "g", "numOfHosts": 2, "minReplicas": 0, "maxReplicas": 9, **pods(1)}
    head = {"template": {"spec": {"containers": [{"name": "h", "image": "i:1"}]}}}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [group]}
    fields: list[dict[str, Any]] = [
        {},
        {"serveConfigV2": "a"},
        {"rayClusterDeletionDelaySeconds": -1},
        {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}},
        {"upgradeStrategy": {"clusterUpgradeOptions": {"gatewayClassName": "a"}}},
        {"rayClusterConfig": {"headGroupSpec": head, "workerGroupSpecs": 1}},
        {"rayClusterConfig": {**cluster, "headGroupSpec": {**head, "labels": {"a": "b"}}}},
        {"x": 1},
    ]
    for more in fields:
        spec = {"rayClusterConfig": cluster, **more}
        for name in ("s", "long" * 12):
            service = namespaced("ray.io/v1", "RayService", name, spec=spec)
            yield [service, *documents(2)[1:]]
            yield [service, *documents(1)[1:]]
    queued = namespaced("ray.io/v1", "RayService", "q", spec={"rayClusterConfig": cluster})
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    yield [queued, *documents(2)[1:]]


@pytest.mark.parametrize(("nodes", "expected"), [(2, "fits"), (1, "cannot fit")])
def test_a_kind_may_embed_a_ray_cluster(nodes: int, expected: str, tmp_path: Path) -> None:
    description = """
        {kind: Fleet, group: example.com, version: v1, embeds: {spec.of.ray: RayCluster},
         pods: [{template: [spec.main], unless: spec.main=None}]}
    """
    group = {"groupName": "g", "numOfHosts": 2, **pods(1), "maxReplicas": 1, "rayStartParams": {}}
    head = {"template": {"spec": {"containers": [{"name": "h", "image": "i:1"}]}}}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [group], "rayVersion": "2.9.0"}
    fleet = namespaced("example.com/v1", "Fleet", "f", spec={"of": {"ray": cluster}})
    printed = judged(tmp_path, [fleet, *documents(nodes)[1:]], description).stdout
    assert f"The stack {expected}" in printed, printed


def said(folder: str) -> list[dict[str, Any]]:
    """What the proof says of them, with the kinds of a folder."""
    kind_files.package_kinds.cache_clear()
    kind_files.use(folder)
    return [{**as_json(judge_documents(stack)), "judged_with": []} for stack in ray_services()]


def test_a_users_copy_of_a_file_of_the_package_judges_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_kinds: None
) -> None:
    of_the_package = said("")
    files = [file for file in RAY_SERVICE.parent.glob("*.yaml") if file != RAY_SERVICE]
    others = [yaml.safe_load(file.read_text()) for file in files]
    (tmp_path / RAY_SERVICE.name).write_text(RAY_SERVICE.read_text())
    with monkeypatch.context() as without:
        without.setattr(
            kind_files, "_descriptions", lambda: {kind["kind"]: kind for kind in others}
        )
        of_the_copy = said(str(tmp_path))
    kind_files.package_kinds.cache_clear()
    assert of_the_copy == of_the_package
    assert len({stack["stack"]["verdict"] for stack in of_the_package}) == 3
