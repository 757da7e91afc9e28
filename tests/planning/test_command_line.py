"""``python -m ml_foundations.planning``: its input, its output and its exit codes."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.__main__ import main
from ml_foundations.planning.input.documents import UnreadableError, read

from tests.factories import Manifest, container, deployment, job, node, pool, template

KEYS = {"workloads", "stack", "cost", "quota", "judged_with"}
OF_WORKLOAD = {
    *("kind", "namespace", "name", "verdict", "gpus"),
    *("reasons", "warnings", "information"),
}
OF_FINDING = {"rule", "object", "path", "message", "remedy"}


def run(tmp_path: Path, *documents: Any, arguments: tuple[str, ...] = ("--json",)) -> int:
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return main([str(file), *arguments])


@pytest.mark.parametrize(
    ("workload", "code"),
    [
        (deployment("web", 4, template()), 0),
        (deployment("web", 5, template()), 1),
        (deployment("web", 1, template(schedulerName="custom")), 3),
        (deployment("web", -1, template()), 2),
    ],
)
def test_exit_codes(tmp_path: Path, workload: Manifest, code: int) -> None:
    assert run(tmp_path, workload, pool("p", 1)) == code


def test_json_has_the_keys_of_the_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, job("sweep", 9, template()), deployment("web", 9, template()), pool("p", 1))
    result = json.loads(capsys.readouterr().out)
    assert result.keys() == KEYS
    assert [set(item) for item in result["workloads"]] == [OF_WORKLOAD] * 2
    assert set(result["stack"]) == {"verdict", "reasons", "information"}
    sweep, web = result["workloads"]
    verdicts = [item["verdict"] for item in (sweep, web, result["stack"])]
    assert verdicts == ["fits", "cannot-fit", "cannot-fit"]
    findings = [*sweep["warnings"], *web["reasons"], *result["stack"]["reasons"]]
    assert [set(finding) for finding in findings] == [OF_FINDING] * 3
    amounts = {"per_hour_min": 0.0, "per_hour_max": None}
    of_pools = {"unknown": ["p"], "pools": {"p": amounts}}
    others = {"storage": {}, "platform": {}, "teams": {}}
    assert result["cost"] == {"currency": "USD", **amounts, **of_pools, **others}


def test_what_is_good_to_know_has_its_own_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = {"image": "vllm/vllm-openai:v0.31.0", "args": ["--model=Qwen/Qwen3-8B"]}
    llm = deployment("llm", 2, template(containers=[{**container(gpu=1), **image}]))
    documents = (
        llm,
        pool("h100", 2, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, gpu=8),
    )
    run(tmp_path, *documents)
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    (known,) = workload["information"]
    assert known["rule"] == "model-capacity"
    assert (workload["reasons"], workload["warnings"]) == ([], [])
    sentence = f"{known['message']}. [model-capacity]"
    run(tmp_path, *documents, arguments=())
    assert f"\n  info: {sentence}\n" in capsys.readouterr().out
    run(tmp_path, *documents, arguments=("--format", "markdown"))
    (section,) = re.findall(r"Information</summary>\n\n(.*)\n", capsys.readouterr().out)
    assert section.startswith("- Deployment team/llm: each replica of Qwen3-8B with TP 1 has ")


def test_nodes_of_google_cloud_bring_their_quotas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "g2-standard-8",
        "topology.kubernetes.io/region": "us-central1",
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        "cloud.google.com/gke-accelerator-count": "1",
    }
    run(tmp_path, pool("l4", 3, labels), node("mine"))
    needs = {need.pop("name"): need for need in json.loads(capsys.readouterr().out)["quota"]}
    l4 = {"region": "us-central1", "at_least": 0, "at_most": 3, "unit": "GPUs", "note": ""}
    assert needs.pop("NVIDIA_L4_GPUS") == l4
    assert needs.keys() == {"CPUS", "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS", "INSTANCES"}


def test_a_list_as_kubectl_prints_it_is_its_items(tmp_path: Path) -> None:
    nodes = {"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b")]}
    assert run(tmp_path, nodes, deployment("web", 8, template())) == 0
    assert run(tmp_path, nodes, deployment("web", 9, template())) == 1


def test_standard_input_and_text() -> None:
    text = yaml.safe_dump_all([deployment("web", 5, template()), pool("p", 1)])
    command = [sys.executable, "-m", "ml_foundations.planning", "-"]
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout.startswith("Deployment team/web cannot fit\n  each pod needs 1 cpu; ")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"spec": {"replicas": "two"}}, "spec.replicas: must be a whole number of at least 0, not 'two'"),
        ({"spec": {"template": None}}, "spec.template: is required"),
        ({"spec": []}, "spec: must be a mapping, not []"),
        ({"metadata": {"name": None}}, "metadata.name: is required"),
        ({"kind": None}, "kind: is required"),
        ({"apiVersion": 1}, "apiVersion: must be a string in quotes, not 1"),
        ({"spec": {"template": template(containers=[{"name": "main", "resources": {"requests": {"cpu": "1x"}}}])}},
         "spec.template.spec.containers[0].resources.requests.cpu: '1x' is not a Kubernetes quantity, such as 500m, 2 or 16Gi"),
        ({"spec": {"template": template(nodeSelector={"cores": 8})}},
         "spec.template.spec.nodeSelector.cores: must be a string in quotes, not 8"),
        ({"spec": {"template": template(affinity=[])}}, "spec.template.spec.affinity: must be a mapping, not []"),
    ],
)  # fmt: skip
def test_unreadable_input_names_file_document_and_field(change: Manifest, problem: str) -> None:
    wrong = deployment("web", 1, template())
    for key, value in change.items():
        wrong[key] = {**wrong[key], **value} if isinstance(value, dict) else value
    with pytest.raises(UnreadableError) as caught:
        read(yaml.safe_dump_all([node("a"), wrong]), "stack.yaml")
    assert caught.value.errors == [f"stack.yaml: document 2: {problem}"]


LIST = "{apiVersion: v1, kind: List, items: [3]}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "must be a Kubernetes object, not a list"),
        (LIST, "items[0]: must be a Kubernetes object, not a number"),
    ],
)
def test_what_is_no_object_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(text, "stack.yaml")
    assert caught.value.errors == [f"stack.yaml: document 1: {problem}"]


@pytest.mark.parametrize(
    ("name", "shown"), [("my ünread.yaml", "my ünread.yaml"), ("-", "standard input")]
)
def test_what_is_no_yaml_is_told_by_file_and_line(
    name: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my ünread.yaml").write_text("a: b: c")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: b: c")))
    assert main([name]) == 2
    told = "mapping values are not allowed in this context, at line 1, column 5"
    assert capsys.readouterr().err == f"error: {shown}: {told}\n"


def test_a_name_may_be_left_to_the_api_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unnamed = job("x", 1, template()) | {"metadata": {"generateName": "train-", "namespace": "ml"}}
    assert run(tmp_path, unnamed, unnamed, pool("p", 1), arguments=()) == 0
    shown = capsys.readouterr().out
    assert "Job ml/train-xxxx1 fits" in shown
    assert "Job ml/train-xxxx2 fits" in shown
    wrong = unnamed | {"metadata": {"generateName": "Train_"}}
    assert run(tmp_path, wrong, pool("p", 1), arguments=()) == 1


def test_every_problem_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / f"{name}.yaml") for name in ("missing", "broken", "wrong")]
    wrong = pool("p", 1)
    wrong["metadata"]["annotations"] = {"ml-foundations/max-nodes": 4}
    Path(files[1]).write_text("a: [")
    Path(files[2]).write_text(yaml.safe_dump(wrong))
    assert main(files) == 2
    lines = capsys.readouterr().err.splitlines()
    for line, file in zip(lines, files, strict=True):
        assert line.startswith(f"error: {file}: ")
    field = "metadata.annotations.ml-foundations/max-nodes"
    fix = 'must be a whole number below a billion in quotes, such as "4", not 4'
    assert lines[2].endswith(f"{field}: {fix}")


def test_it_loads_neither_pulumi_nor_a_client_nor_the_catalog() -> None:
    code = (
        "import sys, ml_foundations.planning.__main__ as m; m.main(['/dev/null']);"
        "print([n for n in sys.modules if n.startswith(('pulumi', 'kubernetes', 'pydantic', 'ml_foundations.gke'))])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines()[-1] == "[]"
