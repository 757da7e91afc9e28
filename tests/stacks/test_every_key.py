"""Keys of a stack file: each component has one with an example, and each name leads to its section."""

import copy
from functools import cache
from typing import Any

import ml_foundations
import pytest
import yaml
from ml_foundations.component.partial import models_in
from pydantic.alias_generators import to_camel
from team import SECTIONS, Team, references

from codegen import stack_page
from codegen.stack_schema import schema
from tests.support import recording
from tests.support.checkout import CHECKOUT
from tests.support.golden import GOLDEN, holds, whole
from tests.support.pages import blocks
from tests.support.stack_files import errors, sections, settings, with_changes

NEW = CHECKOUT / "tests" / "stacks" / "every_key.yaml"


@cache
def config() -> dict[str, Any]:
    return yaml.safe_load(NEW.read_text())["config"]


def given() -> dict[str, Any]:
    return {key.partition(":")[2]: value for key, value in copy.deepcopy(config()).items()}


def changed(path: str, value: Any) -> dict[str, Any]:
    return with_changes(given(), (path, value))


def test_the_resources_of_every_key_are_as_they_were() -> None:
    holds(GOLDEN / "every-key.yaml", whole(recording.changed_stack("every-key", config())))


def test_every_key_has_an_example() -> None:
    """In one of the stack files of this repository."""
    files = [sections(stack) for stack in recording.STACKS] + [given()]
    used = {key for file in files for key in file}
    # Controllers are installed without their key; pages show the other two.
    shown = {key for key in settings.KEYS if key.endswith(("Controller", "Operator"))}
    assert set(settings.KEYS) - used <= shown | {"computeClasses", "deviceClasses"}
    used = {key for file in files for team in file["teams"].values() for key in team}
    assert {to_camel(key) for key in SECTIONS} - used == {"ncclTests"}


def _shown() -> list[tuple[str, dict[str, Any]]]:
    """The blocks of the pages with sections of a stack file."""
    shown: list[tuple[str, dict[str, Any]]] = []
    for name, text in blocks("yaml"):
        for block in yaml.safe_load_all(text):
            ours = {str(key).removeprefix("ml-foundations:"): value for key, value in block.items()}
            if ours.keys() <= set(settings.KEYS):
                shown.append((name, ours))
    return shown


@pytest.mark.parametrize("name, shown", _shown(), ids=lambda value: str(value)[:40])
def test_the_keys_that_a_page_shows_exist(name: str, shown: dict[str, Any]) -> None:
    """What a block leaves out is in the rest of its stack file."""
    from jsonschema import Draft202012Validator

    config = {f"ml-foundations:{key}": value for key, value in shown.items()}
    found = Draft202012Validator(schema()).iter_errors({"config": config})
    assert not [each.message for each in found if each.validator != "required"]


def test_a_page_shows_each_key_that_names_another_section() -> None:
    """And those that come with them."""
    keys = {key for _, block in _shown() for key in block}
    keys |= {
        key for _, block in _shown() for team in block.get("teams", {}).values() for key in team
    }
    new = {"checkpointConfigurations", "modelCaches", "trainingRuntimes", "trainJobs"}
    assert new | {"rayJobs", "rayClusters", "inferenceGateways", "trainingQueue"} <= keys


def test_every_component_has_a_key_or_is_named() -> None:
    page = (CHECKOUT / "docs" / "stack-file.md").read_text()
    for name in ml_foundations.COMPONENTS:
        assert f"components/{name}.md" in page, name


def test_a_component_without_a_key_is_named() -> None:
    keys = "- `teams` ([TeamNamespace](components/TeamNamespace.md)): Teams."
    assert "[Volume](components/Volume.md)" in stack_page.without_key(keys)
    assert "TeamNamespace" not in stack_page.without_key(keys)
    assert stack_page.without_key("x") != stack_page.without_key(keys)


REFERENCES = {
    "teams.serving.inferenceServices.chat.modelCache": ("quen", "ModelCache", "Did you mean qwen"),
    "teams.serving.inferenceGateways.llm.servers": (["chat", "cod"], "InferenceService", "code"),
    "teams.nlp.trainJobs.llama.runtime": ("torhc", "TrainingRuntime", "Did you mean torch"),
}
"""Each name of another section: a wrong one, what it should be, and what the error suggests."""


def test_each_name_of_a_section_is_tried() -> None:
    named = {
        (to_camel(key), to_camel(r.argument)) for key in SECTIONS for r in references(SECTIONS[key])
    }
    tried = {(path.split(".")[2], path.split(".")[4]) for path in REFERENCES}
    assert named - {("shardedSets", "modelCache")} == tried


@pytest.mark.parametrize("path", REFERENCES)
def test_a_name_without_a_section_is_the_only_error(path: str) -> None:
    value, what, nearest = REFERENCES[path]
    index = "[1]" if isinstance(value, list) else ""
    [count, line] = errors(changed(path, value)).splitlines()
    assert count == "1 invalid value:"
    assert f"ml-foundations:{path}{index}: there is no {what} " in line
    assert nearest in line


def test_a_section_with_an_error_makes_no_second_error_where_it_is_named() -> None:
    for path in (
        "teams.serving.inferenceServices.code.port",
        "teams.serving.modelCaches.coder.size",
        "teams.nlp.trainingRuntimes.torch.gpus",
    ):
        [_, line] = errors(changed(path, "x y")).splitlines()
        assert line.startswith(f"  ml-foundations:{path}: "), line


def test_what_a_section_publishes_is_what_its_component_gives_a_program() -> None:
    found = settings.parse(given())
    serving, nlp = found.teams["serving"], found.teams["nlp"]
    [gateway] = serving.inference_gateways.values()
    service = serving.inference_services["chat"]
    assert gateway.servers[0].model_dump(exclude_unset=True) == service.model_server
    cache = serving.model_caches["coder"]
    assert serving.inference_services["code"].model_cache is not None
    assert serving.inference_services["code"].model_cache.claim == cache.claim_name
    assert nlp.train_jobs["llama"].runtime == "torch"


def test_a_runtime_in_networks_gives_its_prefix_to_its_jobs() -> None:
    found = given()
    found["nodePools"]["h100"] |= {"machineType": "a3-megagpu-8g", "gpuNetwork": "auto"}
    del found["nodePools"]["spot"], found["trainingQueue"]
    found["teams"]["nlp"]["trainingRuntimes"]["torch"]["gpu"] = "H100-MEGA"
    found["teams"]["nlp"] |= {"podSecurity": "privileged"}
    found["teams"]["nlp"]["queue"]["gpus"] = {"h100": 16}
    assert settings.parse(given()).teams["nlp"].train_jobs["llama"].command_prefix == []
    nlp = settings.parse(found).teams["nlp"]
    prefix = nlp.training_runtimes["torch"].command_prefix
    assert prefix
    assert nlp.train_jobs["llama"].command_prefix == prefix


@pytest.mark.parametrize(
    "path",
    [
        f"teams.{team}.{key}.{name}.namespace"
        for team, has in given()["teams"].items()
        for key in map(to_camel, SECTIONS)
        for name in has.get(key, {})
    ],
)
def test_a_namespace_follows_from_the_team(path: str) -> None:
    found = errors(changed(path, "elsewhere"))
    assert f"{path}: is elsewhere, but follows from" in found
    assert "leave it out" in found


def test_arguments_in_place_of_a_name_stay() -> None:
    """A server outside of the stack file, and weights that are no cache of it."""
    server = {"name": "other", "namespace": "serving", "selector": {"app": "o"}, "port": 80}
    server |= {"healthPath": "/health", "servedModels": ["other"]}
    found = settings.parse(changed("teams.serving.inferenceGateways.llm.servers", ["chat", server]))
    [gateway] = found.teams["serving"].inference_gateways.values()
    assert [each.name for each in gateway.servers] == ["chat", "other"]
    mount = {"claim": "qwen", "path": "/models", "fuse": True}
    path = "teams.serving.inferenceServices.chat.modelCache"
    chat = settings.parse(changed(path, mount)).teams["serving"].inference_services["chat"]
    assert chat.model_cache is not None
    assert chat.model_cache.claim == "qwen"


def refused(path: str, value: Any, message: str) -> tuple[str, Any, str]:
    """A path in the file, a wrong value there, and what the error says."""
    return path, value, message


WRONG = {
    "a key of no component": refused(
        "teams.nlp.rayJobs", {"a": {"entrypont": []}}, "a.entrypont: is not"
    ),
    "no workers of Ray": refused(
        "teams.rays.rayJobs.score.workers", -1, "rays.rayJobs.score.workers"
    ),
    "the command of Ray": refused(
        "teams.rays.rayJobs.score.command", ["x"], "rayJobs.score.command: is for"
    ),
    "a token of an old Ray": refused(
        "teams.rays.rayClusters.explore.rayVersion", "2.40.0", "authOptions"
    ),
    "a runtime with a queue": refused(
        "teams.nlp.trainingRuntimes.torch.queue", "training", "torch.queue"
    ),
    "another queue": refused(
        "teams.nlp.trainJobs.llama.queue", "q", "llama.queue: the team has no queue q"
    ),
    "a far bucket": refused(
        "teams.serving.modelCaches.qwen.bucketLocation",
        "us-east4",
        "modelCaches.qwen.bucketLocation: is us-east4, and the cluster is in us-central1",
    ),
    "weights without their class": refused(
        "storage.datasetZones", [], "coder.size: needs the class weights"
    ),
    "no addresses for proxies": refused(
        "cluster.proxyOnlyCidr", None, "inferenceGateways.llm.proxyOnlyCidr"
    ),
    "an add-on that is off": refused(
        "cluster.gatewayApi", False, "cluster.gatewayApi: is false, but teams"
    ),
    "another add-on": refused(
        "cluster.multiTierCheckpointing", False, "cluster.multiTierCheckpointing: is"
    ),
    "no bucket": refused(
        "checkpointConfigurations.memory.bucket", None, "memory.bucket: is required"
    ),
    "a name of its place": refused(
        "checkpointConfigurations.memory.configurationName",
        "x",
        "memory.configurationName: is x, but follows from its place in the file, here memory",
    ),
    "a second JobSet": refused(
        "trainerController.values",
        {"jobset": {"install": True}},
        "trainerController.values.jobset.install: would install",
    ),
    "a flavor of no pool": refused(
        "trainingQueue.flavors.spott",
        {"topology": ["hostname"]},
        'trainingQueue.flavors.spott: there is no GPU pool "spott". Did you mean spot',
    ),
    "an unknown level": refused(
        "trainingQueue.flavors.spot.topology", ["rack"], "flavors.spot.topology[0]"
    ),
    "a topology of a flavor alone": refused(
        "trainingQueue.topology", [], "flavors.spot.topology: is for a"
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_the_path_in_the_file(case: str) -> None:
    path, value, expected = WRONG[case]
    assert expected in errors(changed(path, value))


def test_a_flavor_has_its_own_topology() -> None:
    queues = settings.parse(given()).queues
    assert queues is not None
    levels = {flavor.name: flavor.topology for flavor in queues.flavors}
    assert levels == {"h100": [], "spot": ["hostname"], "l4": []}


def test_kinds_in_a_queue_are_those_that_kueue_manages() -> None:
    found = given()
    del found["trainingQueue"]
    for section, name in (("rayJobs", "score"), ("rayClusters", "explore")):
        found["teams"]["rays"][section][name]["queue"] = "training"
    found["teams"]["rays"]["queue"] = {"cpu": "60", "memory": "500Gi", "gpus": {"l4": 8}}
    queues = settings.parse(found).queues
    assert queues is not None
    assert queues.kinds == ["Job", "JobSet", "RayCluster", "RayJob", "TrainJob"]


def test_controllers_are_there_for_those_who_use_them() -> None:
    found = settings.parse(given())
    assert (found.ray, found.trainer, found.job_sets) != (None, None, None)
    without = given()
    for section in ("rayJobs", "rayClusters"):
        del without["teams"]["rays"][section]
    for section in ("trainJobs", "trainingRuntimes", "distributedTrainings"):
        del without["teams"]["nlp"][section]
    found = settings.parse(without)
    assert (found.ray, found.trainer, found.job_sets) == (None, None, None)


def test_an_existing_cluster_gets_no_add_ons() -> None:
    found = given()
    found["cluster"] = {"name": "own", "context": "own"}
    found["teams"]["serving"]["inferenceGateways"]["llm"]["proxyOnlyCidr"] = "10.21.0.0/23"
    found["teams"]["serving"]["modelCaches"]["qwen"]["location"] = "us-central1"
    assert settings.parse(found).teams["serving"].inference_gateways


def test_every_section_of_a_team_is_a_component() -> None:
    """Each is one class, by name: what names it in another section finds it."""
    for field in Team.model_fields.values():
        assert len(models_in(field.annotation)) <= 1
