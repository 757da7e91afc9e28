"""Values that the API server takes and that no container runs with."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.rules.values import wrong_image
from ml_foundations.planning.verdict.program import judge_documents, judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    Manifest,
    daemon_set,
    deployment,
    limit_range,
    node,
    resource,
    template,
    webhook,
)

NODE = node("n")


def server(
    replicas: int = 1, resources: Manifest | None = None, image: Any = "nginx", **spec: Any
) -> Manifest:
    main = {"name": "main", "image": image, "resources": resources or {}}
    return deployment("web", replicas, template(**{"containers": [main], **spec}))


def judged(*stack: Manifest) -> Verdicts:
    return judge_documents([*stack, NODE])


def told(verdicts: Verdicts) -> list[tuple[str, str]]:
    prefix = "spec.template.spec."
    found = [each for each in verdicts.findings if each.rule == "impossible-value"]
    return [(each.severity, each.path.removeprefix(prefix)) for each in found]


MEMORY = "containers[0].resources.limits.memory"


@pytest.mark.parametrize(
    ("memory", "expected", "severities"),
    [
        ("27", Verdict.CANNOT_FIT, ["error"]),
        (27, Verdict.CANNOT_FIT, ["error"]),
        ("27m", Verdict.CANNOT_FIT, ["error"]),
        ("1023Ki", Verdict.CANNOT_FIT, ["error"]),
        ("1Mi", Verdict.FITS, ["warning"]),
        ("5.9Mi", Verdict.FITS, ["warning"]),
        ("6Mi", Verdict.FITS, []),
        ("0", Verdict.FITS, []),
    ],
)
def test_memory_that_no_container_starts_with(
    memory: Any, expected: Verdict, severities: list[str]
) -> None:
    verdicts = judged(server(resources={"limits": {"memory": memory}}))
    assert told(verdicts) == [(severity, MEMORY) for severity in severities]
    assert verdicts.stack is verdicts.workloads[0].verdict is expected


def test_the_number_of_bytes_is_shown() -> None:
    verdicts = judged(server(resources={"limits": {"memory": "27m"}}))
    messages = [each.message for each in verdicts.findings if each.rule == "impossible-value"]
    assert messages[0].startswith("limits.memory is 27m, which is 0.027 bytes")


@pytest.mark.parametrize(
    ("workload", "path"),
    [
        (server(resources={"requests": {"memory": "27"}}), "containers[0].resources.requests.memory"),
        (server(resources={"limits": {"ephemeral-storage": "20"}}), "containers[0].resources.limits.ephemeral-storage"),
        (server(volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": "8"}}]), "volumes[0].emptyDir.sizeLimit"),
    ],
)  # fmt: skip
def test_amounts_that_are_only_suspicious(workload: Manifest, path: str) -> None:
    assert told(judged(workload)) == [("warning", path)]


AGENT = daemon_set("agent", template(containers=[{"name": "main"}]))


@pytest.mark.parametrize(
    "stack",
    [
        [server(), limit_range({"type": "Container", "default": {"memory": "27"}})],
        [server(initContainers=[{"name": "i", "resources": {"limits": {"memory": "27"}}}])],
        [AGENT, limit_range({"type": "Container", "max": {"memory": "27"}})],
    ],
)
def test_defaults_and_other_containers(stack: list[Manifest]) -> None:
    assert "error" in [severity for severity, _ in told(judged(*stack))]


@pytest.mark.parametrize(
    "image",
    [
        "nginx",
        "nginx:1.27",
        "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        "Team/app",
        "localhost:5000/a_b/c__d/e-f.g:V1",
        "[fd00::1]:5000/app",
        "nvcr.io/nvidia/pytorch:25.06-py3@sha256:" + "0" * 64,
        "auto",
    ],
)
def test_images_with_valid_names(image: str) -> None:
    assert wrong_image(image) == ""


UNREADABLE = "does not read as host/repository:tag@digest"


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("", "is empty"),
        ("pytorch/pytorch 2.13", "has a space"),
        ("pytorch/PyTorch:2.13", "has upper case in the repository"),
        ("MyImage", "has upper case in the repository"),
        ("gcr.io/$PROJECT/app", "has a placeholder that nobody has filled in"),
        ("nginx:", UNREADABLE),
        ("nginx@sha256:12", UNREADABLE),
        ("https://nvcr.io/nvidia/pytorch", UNREADABLE),
    ],
)
def test_images_that_no_node_reads(image: str, why: str) -> None:
    assert wrong_image(image) == why
    for key in ("containers", "initContainers"):
        verdicts = judged(server(**{key: [{"name": "x", "image": image}]}))
        assert told(verdicts) == [("error", f"{key}[0].image")]
        assert verdicts.stack is Verdict.CANNOT_FIT


def test_the_name_of_an_image_that_is_mounted() -> None:
    volumes = [{"name": "model", "image": {"reference": "team/My Model"}}]
    assert told(judged(server(volumes=volumes))) == [("error", "volumes[0].image.reference")]


@pytest.mark.parametrize(
    "workload",
    [
        server(0, image="a b"),
        server(image=UNKNOWN),
        server(image=None),
        server(volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": UNKNOWN}}]),
    ],
)
def test_nothing_runs_or_is_known(workload: Manifest) -> None:
    assert told(judged(workload)) == []


WRONG = server(image="a b")


def test_what_a_webhook_may_change_is_not_certain() -> None:
    verdicts = judged(WRONG, webhook("pods"))
    assert [severity for severity, _ in told(verdicts)] == ["warning"]
    assert verdicts.stack is Verdict.UNDETERMINED


def test_an_accepted_value_is_shown_and_decides_nothing() -> None:
    resources = [resource(WRONG), resource(NODE)]
    assert judge_program(resources).stack is Verdict.CANNOT_FIT
    verdicts = judge_program(resources, accepted=["impossible-value"])
    assert [severity for severity, _ in told(verdicts)] == ["error"]
    assert verdicts.stack is Verdict.FITS
