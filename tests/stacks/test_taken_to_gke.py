"""What our stacks and examples name is there when they are taken to GKE: scripts, models, homes, file servers."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.workloads.pod import WorkloadSpec
from pydantic.alias_generators import to_camel
from team import SECTIONS

from tests.support import recording
from tests.support.checkout import CHECKOUT
from tests.support.recording import EXAMPLES, STACKS

PROGRAMS = [*(("stack", name) for name in STACKS), *(("example", name) for name in EXAMPLES)]


def resources(kind: str, name: str) -> list[dict[str, Any]]:
    return recording.stack(name) if kind == "stack" else recording.example(name)


def pods(kind: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods of the teams' workloads, by the names of what makes them."""
    for resource in resources(kind, name):
        manifest = resource["inputs"]
        if manifest.get("kind") in ("CronJob", "Deployment", "Job", "Pod", "StatefulSet"):
            spec = manifest["spec"]
            job = spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec
            yield (
                manifest["metadata"]["name"],
                job["template"]["spec"] if "template" in job else job,
            )


def places(container: dict[str, Any]) -> set[str]:
    return {mount["mountPath"] for mount in container.get("volumeMounts", [])}


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_scripts_and_models_come_with_the_pod_or_from_outside(kind: str, name: str) -> None:
    found = list(pods(kind, name))
    # Its pods are those of a TrainJob and a RayJob.
    assert found or name == "ray-and-trainjob"
    for workload, pod in found:
        container = pod["containers"][0]
        words = [*container.get("command", []), *container.get("args", [])]
        assert words, f"{workload} leaves its command to the image"
        scripts = [word for word in words if word.endswith(".py")]
        assert set(scripts) <= places(container), f"{workload}: no image has {scripts}"
        models = [word.partition("=")[2] for word in words if word.startswith("--model-id=")]
        models += container["args"][:1] if "vllm-openai" in container["image"] else []
        assert not [model for model in models if model.startswith("/")], (
            f"{workload}: nobody put a model there"
        )
        revisions = [word for word in words if re.fullmatch("--revision=[0-9a-f]{40}", word)]
        assert len(revisions) == len(models), f"{workload}: its model may change under its name"


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_who_is_no_user_of_the_image_has_a_home_to_write_to(kind: str, name: str) -> None:
    for workload, pod in pods(kind, name):
        container = pod["containers"][0]
        env = {item["name"]: item.get("value") for item in container.get("env", [])}
        # Root has its own in each image.
        is_of_image = not pod["securityContext"].get("runAsUser")
        assert is_of_image or env["HOME"] in places(container), workload


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_no_server_is_named_that_only_an_example_has(kind: str, name: str) -> None:
    assert ".internal" not in json.dumps(resources(kind, name))


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_vllm_finds_the_driver_where_gke_mounts_it(kind: str, name: str) -> None:
    """From 0.9 on its image does not look there (vllm issue 18859); the GPU Operator mounts it where it looks."""
    charts = [str(resource["inputs"].get("chart")) for resource in resources(kind, name)]
    by_operator = "gpu-operator" in charts
    for workload, pod in pods(kind, name):
        container = pod["containers"][0]
        env = {item["name"]: item.get("value", "") for item in container.get("env", [])}
        if "vllm-openai" in container["image"]:
            is_named = "/usr/local/nvidia/lib64" in env.get("LD_LIBRARY_PATH", "").split(":")
            assert is_named is not by_operator, workload


def test_pages_with_the_drivers_path_name_the_device_plugin() -> None:
    patterns = [(folder, end) for folder in FOLDERS for end in ("md", "py", "yaml")]
    files = [file for folder, end in patterns for file in folder.rglob(f"*.{end}")]
    named = {file: text for file in files if "LD_LIBRARY_PATH" in (text := file.read_text())}
    assert named
    assert not [file for file, text in named.items() if "GKE's own device plugin" not in text]


FOLDERS = [CHECKOUT / "docs", CHECKOUT / "examples", CHECKOUT / "stacks"]
WALK_THROUGH = (CHECKOUT / "docs" / "walk-through.md").read_text()


@pytest.mark.parametrize("name", STACKS)
def test_the_walk_through_describes_each_workload_of_a_stack(name: str) -> None:
    assert f"(../stacks/Pulumi.{name}.yaml)" in WALK_THROUGH
    of_stack = rf"^- \*\*{name}\.\*\* (.*?)(?=^- \*\*|\n\n)"
    (told,) = re.findall(of_stack, WALK_THROUGH, re.MULTILINE | re.DOTALL)
    teams = recording.stack_file(name)["ml-foundations:teams"].values()
    sections = [to_camel(key) for key, spec in SECTIONS.items() if issubclass(spec, WorkloadSpec)]
    made = {each for team in teams for section in sections for each in team.get(section, {})}
    assert made and not {each for each in made if f"`{each}`" not in told}


def test_the_walk_through_has_every_example() -> None:
    rows = [line for line in WALK_THROUGH.splitlines() if line.startswith("| [")]
    for folder in sorted(path.parent for path in (CHECKOUT / "examples").glob("*/Pulumi.yaml")):
        (row,) = [line for line in rows if f"(../examples/{folder.name}/" in line]
        assert all(cell.strip() for cell in row.strip("|").split("|")), row
    assert "Not rehearsed" in WALK_THROUGH
