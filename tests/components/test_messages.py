"""Messages about arguments: nearest names in the user's own spelling, a page in place of long lists, no Output as text."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_foundations
import pulumi
import pytest
from ml_foundations import Volume
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.partial import models_in
from ml_foundations.component.spec import Spec, check
from ml_foundations.kubernetes.spelling import nearest_names
from ml_foundations.planning.rules.built_in import RULES
from ml_foundations.planning.rules.findings import error, warning
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.proof import Proof
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from codegen.objects import LEAST
from tests.support.checkout import CHECKOUT
from tests.support.obeyed import obeyed
from tests.support.stack_files import changed, errors

COMPONENTS = sorted(ml_foundations.COMPONENTS)
A_POD = {"namespace": "ml", "image": "i", "cpu": "1", "memory": "1Gi"}
A_TRAINING = A_POD | {"job_name": "x"}
A_SERVICE = A_POD | {"deployment_name": "x"}
A_JOB = "teams.research.trainingJobs.finetune"


def spec_of(component: str) -> type[Spec]:
    return getattr(ml_foundations, component).spec_type()


def message(component: str, **args: Any) -> str:
    with pytest.raises(ArgumentsError) as refused:
        check(spec_of(component), f"{component} x", args)
    return str(refused.value)


def reason(text: str, path: str) -> str:
    (found,) = re.findall(rf"^  (?:ml-foundations:)?{re.escape(path)}: (.*)$", text, re.MULTILINE)
    return found


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_camel_case_argument_is_answered_with_the_right_one(component: str) -> None:
    page = f"docs/components/{component}.md"
    assert (CHECKOUT / page).exists()
    text = message(component, **{to_camel(name): "x" for name in spec_of(component).model_fields})
    for name in spec_of(component).model_fields:
        if to_camel(name) != name:
            assert (
                f"\n  {to_camel(name)}: is not known. Did you mean {name}? See {page}"
                in f"{text}\n"
            ), name


def test_a_stack_file_in_snake_case_is_answered_in_camel_case() -> None:
    names = [name for name in spec_of("TrainingJob").model_fields if to_camel(name) != name]
    text = errors(changed(*((f"{A_JOB}.{name}", "x") for name in names)))
    for name in names:
        answer = f"is not known. Did you mean {to_camel(name)}? See docs/components/TrainingJob.md"
        assert reason(text, f"{A_JOB}.{name}") == answer


NEAR = [
    ("TrainingJob", "sharedMemory", ["shared_memory"]),
    ("TrainingJob", "SHARED-MEMORY", ["shared_memory"]),
    ("TrainingJob", "shm_size", ["shared_memory"]),
    ("TrainingJob", "gpu_count", ["gpu", "gpus", "gpu_claim"]),
    ("TrainingJob", "lables", ["labels"]),
    ("TrainingJob", "args", ["arguments"]),
    ("TrainingJob", "deadline", ["active_deadline_seconds"]),
    ("DistributedTraining", "nproc_per_node", ["processes_per_node", "nodes", "node_selector"]),
    ("InferenceService", "replica", ["replicas"]),
    ("Volume", "storge", ["storage_class"]),
    ("TrainingJob", "foo", []),
]


@pytest.mark.parametrize(("component", "name", "near"), NEAR, ids=lambda value: str(value))
def test_the_nearest_names_are_those_that_people_mean(
    component: str, name: str, near: list[str]
) -> None:
    assert nearest_names(name, spec_of(component).model_fields) == near


def test_a_hostile_name_has_its_nearest_names_at_once() -> None:
    assert nearest_names("a: b\n" * 100_000, ["model"]) == []
    assert nearest_names("model", ["a: b\n" * 100_000]) == []
    # There are more ways to abbreviate these words than anybody can try.
    assert nearest_names("a" * 100, ["aaa-" * 60]) == ["aaa-" * 60]


def test_unknown_arguments_get_three_names_and_a_page() -> None:
    text = message(
        "TrainingJob",
        gpu_count=1,
        foo=1,
        shareProcessNamespace=True,
        mounts=[{"mountPath": "/data"}],
    )
    see = "See docs/components/TrainingJob.md"
    assert text.startswith("TrainingJob x: ")
    assert reason(text, "gpu_count") == f"is not known. Did you mean gpu, gpus or gpu_claim? {see}"
    assert reason(text, "foo") == f"is not known. {see}"
    assert reason(text, "mounts[0].mountPath").endswith(see)
    assert f"It is a field of the PodSpec: put it into pod_overrides. {see}" in reason(
        text, "shareProcessNamespace"
    )


def test_a_misspelt_object_is_answered_in_python_only() -> None:
    assert reason(message("TrainingJob", teem=1), "teem").startswith(
        "is not known. Did you mean team? "
    )
    assert "team?" not in reason(errors(changed((f"{A_JOB}.teem", 1))), f"{A_JOB}.teem")


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("teams.research.quta", "docs/stack-file.md"),
        ("teams.research.quota.gpsu", "docs/stack-file.md"),
        ("cluster.nam", "docs/components/GkeCluster.md"),
        ("nodePools.l4.max_nodes", "docs/components/GpuNodePool.md"),
        ("nodePools.system.maxNode", "docs/components/CpuNodePool.md"),
        ("proof.acept", "docs/stack-file.md"),
        (f"{A_JOB}.hostIPC", "docs/components/TrainingJob.md"),
        (
            f"{A_JOB}.podOverrides.hostNetwrk",
            "https://kubernetes.io/docs/reference/kubernetes-api/",
        ),
    ],
)
def test_an_unknown_key_is_answered_with_its_sections_page(path: str, page: str) -> None:
    assert reason(errors(changed((path, {}))), path).endswith(f"? See {page}")
    assert page.startswith("https:") or (CHECKOUT / page).exists()


def test_a_section_named_like_an_argument_keeps_its_path() -> None:
    """A pool may be called max_nodes: it is a name of the user, not an argument of GpuNodePool."""
    text = errors(
        changed(
            ("nodePools.max_nodes", {"machineType": "n2-standard-8", "maxNodes": 1, "min_node": 0})
        )
    )
    assert reason(text, "nodePools.max_nodes.min_node").startswith(
        "is not known. Did you mean minNodes,"
    )


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 invalid argument:"), (2, "2 invalid arguments:")]
)
def test_invalid_arguments_are_counted_in_words(count: int, words: str) -> None:
    args = A_TRAINING | {f"foo{index}": 1 for index in range(count)}
    assert message("TrainingJob", **args).startswith(f"TrainingJob x: {words}\n")


def test_the_value_is_shown_once() -> None:
    text = message("GpuNodePool", disk_size_gb=1, machine_type="a2-nope")
    assert reason(text, "disk_size_gb") == "input should be greater than or equal to 10 (got 1)"
    assert reason(text, "machine_type").count("'a2-nope'") == 1


def test_an_empty_text_and_a_refused_key_have_their_place() -> None:
    text = message("TrainingJob", image="")
    assert reason(text, "image") == "must not be empty"
    text = message("StorageClasses", disks={"A b": {}})
    assert reason(text, "disks.A b").endswith("(got 'A b')")
    assert "is ''; a name" in message("TrainingJob", mounts=[{"path": "/data", "bucket": ""}])


def test_no_message_lists_more_than_five_names() -> None:
    known = {*spec_of("TrainingJob").model_fields}
    texts = [
        message("TrainingJob", foo=1, gpu="B52"),
        message("GkeCluster", monitoring=["foo"]),
        message("StorageClasses", disks={"mine": {"type": "foo"}}),
        errors(changed(("proof.accept", {"foo": "x"}))),
        errors(changed(("teams.research.volumes.raw-data.storageClass", "foo"))),
    ]
    for line in "\n".join(texts).splitlines():
        assert len(known.intersection(re.findall(r"\w+", line))) <= 5, line
        assert len(RULES.keys() & re.findall(r"[\w-]+", line)) <= 5, line
        assert line.count(",") <= 5, line


def test_a_misspelt_value_is_answered_with_the_nearest() -> None:
    text = message("GkeCluster", monitoring=["STATEFUL_SET"])
    see = "See docs/components/GkeCluster.md"
    assert (
        reason(text, "monitoring[0]")
        == f"'STATEFUL_SET' is not known. Did you mean STATEFULSET? {see}"
    )


def refused_outputs() -> Iterator[str]:
    """Yield the messages about each argument with an Output in it, of components and of what they consist of."""
    output = pulumi.Output.from_input("1")
    yield from messages_about(output)
    yield message(
        "TrainingJob",
        **A_TRAINING,
        pod_overrides={"hostNetwork": [output], "containers": {"a": output}},
    )
    selector = {"spec": {"selector": {"matchLabels": {"app": output}}}}
    yield message("InferenceService", **A_SERVICE, overrides={"Deployment": selector})


def messages_about(given: Any) -> Iterator[str]:
    """Yield the messages about each argument that is a value, or has it in a list or a mapping."""
    for component in COMPONENTS:
        for name, field in spec_of(component).model_fields.items():
            nested = [
                {key: given for key in model.model_fields} for model in models_in(field.annotation)
            ]
            for value in (
                given,
                [given],
                {"a": given},
                *nested,
                nested,
                {"a": [*nested, given][0]},
            ):
                try:
                    check(spec_of(component), component, {name: value})
                except ArgumentsError as error:
                    yield str(error)


@pytest.mark.parametrize("given", [Volume.__new__(Volume), object(), (print,), " @"])
def test_a_message_is_in_words(given: Any) -> None:
    """It has no address of an object, no pattern, and no type of pydantic's."""
    texts = [*messages_about(given)]
    assert len(texts) > 1000
    raw = re.compile(" at 0x|match pattern|valid dictionary or instance|<built-in")
    assert not [line for text in texts for line in text.splitlines() if raw.search(line)]


def test_no_message_writes_an_output_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    """Pulumi would print a warning about it, and the text would be an address in memory."""
    texts = [*refused_outputs()]
    assert len(texts) > 1000
    assert not [text for text in texts if "pulumi.output" in text or "Calling __str__" in text]
    assert "Output" not in capfd.readouterr().err


A_PLACE = {
    "project": "some-project",
    "location": "us-central1",
    "cluster_name": "c",
    "node_service_account": "s",
    "max_nodes": 1,
}
REQUIRED: dict[str, dict[str, Any]] = {
    **LEAST,
    "GkeCluster": {"project": "some-project", "location": "us-central1"},
    "CpuNodePool": {**A_PLACE, "machine_type": "n2-standard-8"},
    "GpuNodePool": {**A_PLACE, "machine_type": "g2-standard-8"},
    "ComputeClass": {"pools": ["p"]},
    "CheckpointConfiguration": {
        "project": "some-project",
        "bucket": "my-checkpoints",
        "in_memory_volume_size": "8Gi",
        "node_selector": {"pool": "l4"},
    },
    "MetricsAdapter": {"project": "some-project"},
    "TeamNamespace": {"gpus": 1, "cpu": "1", "memory": "1Gi", "storage": "1Gi"},
    "Volume": {"namespace": "ml", "size": "1Gi"},
}


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_argument_that_is_an_output_is_written_as_text(
    component: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in a message nor in an object: Pulumi would print a warning before the error."""
    spec, written = spec_of(component), list[str]()
    least = {spec.name_field or "": "x", **REQUIRED.get(component, {})}
    least.pop("", None)
    check(spec, component, least).declared_children()
    output = pulumi.Output.from_input("1")
    for name in spec.model_fields:
        monkeypatch.setattr(pulumi.Output, "__str__", lambda _, name=name: written.append(name))
        with suppress(ArgumentsError):
            checked = check(spec, component, {**least, name: output})
            checked.declared_children()
            list(checked.warnings())
    assert written == []


ROOMS = ("component", "gke", "gpu", "storage", "tenancy", "workloads")
AVOIDED = re.compile(
    r"\b(is told|tells?|says?|takes?|stands?|brings?|comes? with|beside|of (?:its|your) own|where|give|wrong|way out)\b"
)
"""Words that the style replaces: accept, set, add, is in, next to, if, separate, invalid, fix."""


def texts_of(module: Path) -> Iterator[str]:
    """Yield the sentences in a module that are no docstrings, which are the texts of its messages."""
    tree = ast.parse(module.read_text())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in statements
        ):
            yield from [node.value] if " " in node.value else []


@pytest.mark.parametrize("room", [*ROOMS, "stacks"])
def test_messages_use_the_words_of_the_style(room: str) -> None:
    package = Path(ml_foundations.__file__).parent
    folder = CHECKOUT / "stacks" if room == "stacks" else package / room
    texts = [text for module in folder.glob("*.py") for text in texts_of(module)]
    assert len(texts) > 5
    assert not [text for text in texts if AVOIDED.search(text)]


EVIL = "\x1b[31m\u202e\r\n::error::pwn\n##[error]<{%x%}>"


def test_names_and_values_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Pulumi gets to print has no control character and no command of a CI system."""
    with pytest.raises(ArgumentsError) as refused:
        given = {EVIL: EVIL, "job_name": EVIL, "env": {EVIL: 1}, "cpu": EVIL}
        check(spec_of("TrainingJob"), f"TrainingJob {EVIL}", A_TRAINING | given)
    texts = [str(refused.value)]
    for name in ("info", "warn"):
        monkeypatch.setattr(pulumi.log, name, texts.append)
    proof = Proof.__new__(Proof)
    proof._accepted, proof._monthly_budget = {"accepted": EVIL}, None
    proof._locations, proof._declared, proof._lines = {EVIL: EVIL}, [], []
    findings = [make("accepted", EVIL, EVIL, EVIL, EVIL) for make in (error, warning)]
    proof._report(replace(judge(()), reasons=tuple(findings)))
    with pytest.raises(pulumi.RunError) as ended:
        proof._report(replace(judge(()), reasons=(error("other", EVIL, EVIL, EVIL, EVIL),)))
    texts.append(str(ended.value))
    assert len(texts) == 6
    for text in texts:
        assert not obeyed(text)
        assert "\\x1b[31m\\u202e\\r" in text or text.startswith(("proof: ", "accept "))


@pytest.mark.parametrize(
    ("memory", "fault"),
    [
        ("48", "48 bytes. Did you mean 48Gi?"),
        (7, "7Gi"),
        ("48m", "48m bytes. Did you mean 48Gi?"),
        ("500u", "500u bytes. Did you mean 500Gi?"),
    ],
)
def test_a_memory_without_a_unit_is_bytes(memory: Any, fault: str) -> None:
    assert fault in reason(message("TrainingJob", **A_TRAINING | {"memory": memory}), "memory")


def test_a_unit_of_bytes_is_not_one_of_kubernetes() -> None:
    found = reason(message("TrainingJob", **A_TRAINING | {"memory": "48GB"}), "memory")
    assert "'48GB' is not a Kubernetes quantity. Did you mean 48Gi?" in found


def _bucket_types(model: type[Spec] = Spec) -> Iterator[Any]:
    for of in model.__subclasses__():
        if "bucket" in of.model_fields:
            yield pytest.param(of.model_fields["bucket"].rebuild_annotation(), id=of.__name__)
        yield from _bucket_types(of)


@pytest.mark.parametrize("type_", [*_bucket_types()])
def test_a_bucket_has_a_name_that_cloud_storage_allows(type_: Any) -> None:
    adapter = TypeAdapter[Any](type_)
    for bucket in ("my_bucket.example", "1-models", "a" * 63, "_"):
        assert adapter.validate_python(bucket) == bucket
    for bucket in ("gs://my-models", "My-models", "ab", "-models", "a" * 64):
        with pytest.raises(ValidationError, match=f"is '{bucket}'; a name of a bucket has 3 to 63"):
            adapter.validate_python(bucket)


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("python train.py", "['python', 'train.py']"),
        ("sh -c 'a b'", "['sh', '-c', 'a b']"),
        ("it's", '["it\'s"]'),
    ],
)
def test_a_command_in_one_text_is_shown_by_its_words(command: str, written: str) -> None:
    told = reason(message("TrainingJob", **A_TRAINING | {"command": command}), "command")
    assert told.endswith(f"Write {written}")
