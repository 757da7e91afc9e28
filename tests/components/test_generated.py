"""One table of components: what is generated from it and from the specs is current, and names every one of them."""

import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Literal, NotRequired

import ml_foundations
import pulumi
import pytest
from ml_foundations import typed_args
from ml_foundations.component.base import Child, Component
from ml_foundations.typed_args import Known
from pydantic.alias_generators import to_snake

from codegen.construction import construct
from codegen.package_schema import attribute_docstrings, nested_specs
from tests.support.checkout import CHECKOUT
from tests.support.declaring import component_host, declared
from tests.support.style import AVOIDED

NAMES = sorted(ml_foundations.COMPONENTS)
SCHEMA = json.loads((CHECKOUT / "components" / "schema.json").read_text())


def test_all_that_is_generated_is_current() -> None:
    check = [sys.executable, "-m", "codegen", "--check"]
    done = subprocess.run(check, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_type_checkers_see_what_the_package_exports() -> None:
    text = Path(ml_foundations.__file__).with_suffix(".pyi").read_text()
    imports = re.findall(
        r"^from ml_foundations\.(\S+) import (?:\(\s+)?(\w+) as \2(?:,\s+\))?$", text, re.MULTILINE
    )
    exported = ml_foundations.COMPONENTS | ml_foundations.OTHERS
    assert {name: module for module, name in imports} == exported


@pytest.mark.parametrize("name", NAMES)
def test_a_component_and_its_arguments_can_be_imported(name: str) -> None:
    assert issubclass(getattr(ml_foundations, name), Component)
    assert getattr(ml_foundations, f"{name}Args").__name__ == f"{name}Args"


def test_a_star_brings_them_all() -> None:
    found: dict[str, object] = {}
    exec("from ml_foundations import *", found)
    arguments = {f"{name}Args" for name in NAMES}
    assert found.keys() - {"__builtins__"} == {*NAMES, *arguments, *ml_foundations.OTHERS}


def test_host_schema_and_pages_have_every_component() -> None:
    assert sorted(SCHEMA["resources"]) == [f"ml-foundations:index:{name}" for name in NAMES]
    hosted = json.loads(component_host().Host().schema)
    assert sorted(hosted["resources"]) == sorted(SCHEMA["resources"])
    index = (CHECKOUT / "docs" / "components" / "README.md").read_text()
    assert re.findall(r"^\| \[(\w+)\]", index, re.MULTILINE) == NAMES
    written = {path.name for path in (CHECKOUT / "docs" / "components").glob("*.md")}
    others = {"README.md", "node-pool.md", "pod.md", "rules.md", "types.md"}
    assert written == others | {f"{name}.md" for name in NAMES}


def test_every_typed_dict_has_the_arguments_of_its_spec() -> None:
    components = [getattr(ml_foundations, name).spec_type() for name in NAMES]
    for spec in [*components, *nested_specs(components)]:
        typed = getattr(typed_args, f"{spec.__name__.removesuffix('Spec')}Args")
        own_name = getattr(spec, "name_field", None)
        fields = {
            name: field.is_required() and name != own_name
            for name, field in spec.model_fields.items()
        }
        fields.pop("name" if own_name == "name" else "", None)
        replaced = {target for argument in spec.objects.values() for target in argument.outputs}
        optional = replaced | getattr(spec, "config_defaults", {}).keys()
        assert typed.__annotations__.keys() == fields.keys() | spec.objects.keys(), spec
        required = {name for name, is_required in fields.items() if is_required} - optional
        assert typed.__required_keys__ == required, spec


def test_what_the_configuration_sets_is_not_required_in_other_languages() -> None:
    """YAML and typed languages refuse a program that leaves out a required input."""
    configured = {name: getattr(ml_foundations, name).spec_type().config_defaults for name in NAMES}
    assert sum(map(bool, configured.values())) >= 5
    for name, settings in configured.items():
        described = SCHEMA["resources"][f"ml-foundations:index:{name}"]
        assert settings.keys() <= described["inputProperties"].keys()
        assert not settings.keys() & set(described.get("requiredInputs", ())), name


ENDPOINT = Literal["dns", "private", "public"]
TOLERATIONS = list[typed_args.TolerationArgs]
LIMITS = dict[str, str | int | float | None]


@pytest.mark.parametrize(
    ("typed", "key", "kind"),
    [
        (typed_args.GkeClusterArgs, "endpoint", NotRequired[Known[ENDPOINT]]),
        (typed_args.WorkloadArgs, "cpu", NotRequired[Known[str | int | float]]),
        (typed_args.WorkloadArgs, "gpu", NotRequired[Known[str | list[str]]]),
        (typed_args.TrainingJobArgs, "image", pulumi.Input[str]),
        (typed_args.WorkloadArgs, "namespace", NotRequired[pulumi.Input[str]]),
        (typed_args.WorkloadArgs, "pool", NotRequired["GpuNodePool | CpuNodePool"]),
        (typed_args.MountArgs, "volume", NotRequired["Volume | dict[str, Any]"]),
        (typed_args.WorkloadArgs, "env", NotRequired[dict[str, pulumi.Input[str]]]),
        (typed_args.WorkloadArgs, "node_selector", NotRequired[Known[dict[str, str]]]),
        (typed_args.WorkloadArgs, "tolerations", NotRequired[Known[TOLERATIONS]]),
        (typed_args.WorkloadArgs, "mounts", NotRequired[list[typed_args.MountArgs]]),
        (typed_args.WorkloadArgs, "limits", NotRequired[Known[LIMITS]]),
        (typed_args.WorkloadArgs, "pod_overrides", NotRequired[dict[str, Any]]),
        (typed_args.MachineShapeArgs, "vcpus", Known[int]),
    ],
)
def test_typed_arguments_are_exact(typed: Any, key: str, kind: object) -> None:
    assert typed.__annotations__[key] == kind


def test_typed_arguments_inherit_as_their_specs_do() -> None:
    text = Path(typed_args.__file__).read_text()
    bases = dict(re.findall(r"^class (\w+)\((.+)\):$", text, re.MULTILINE))
    assert bases["JobArgs"] == "WorkloadArgs"
    assert bases["TrainingJobArgs"] == "TrainedModelArgs, CompletionsArgs, AwaitedArgs"
    assert bases["TeamNamespaceArgs"] == "TenancyArgs, TeamQuotaArgs"
    assert bases["MaintenanceWindowArgs"] == "TypedDict", "its base is private"


@pytest.mark.parametrize("name", NAMES)
def test_the_host_finds_every_output_of_the_schema(name: str) -> None:
    outputs = SCHEMA["resources"][f"ml-foundations:index:{name}"].get("properties", {})
    annotated = getattr(ml_foundations, name).__annotations__
    public = {key for key in annotated if not key.startswith("_")}
    assert {to_snake(key) for key in outputs} == public


def test_output_fields_have_their_schema_names_in_python() -> None:
    """The host translates the names of outputs and of an object's fields, but no names in lists."""
    properties = [entry.get("properties", {}).values() for entry in SCHEMA["resources"].values()]
    outputs = json.dumps([output for each in properties for output in each if "$ref" not in output])
    for name in set(re.findall(r'"#/types/([^"]+)"', outputs)):
        properties = SCHEMA["types"][name]["properties"]
        assert [key for key in properties if key != to_snake(key)] == []


def page_of(component: str) -> str:
    return (CHECKOUT / "docs" / "components" / f"{component}.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_and_output_is_on_its_components_page(name: str) -> None:
    entry = SCHEMA["resources"][f"ml-foundations:index:{name}"]
    arguments, _, rest = page_of(name).partition("\n## Arguments\n")[2].partition("\n## ")
    outputs = rest.partition("Outputs\n")[2].partition("\n## ")[0]
    for text, properties in (
        (arguments, entry["inputProperties"]),
        (outputs, entry.get("properties", {})),
    ):
        for key, value in properties.items():
            spelled = f"`{key}`" if to_snake(key) == key else f"`{to_snake(key)}` / `{key}`"
            described = re.escape(" ".join(value["description"].split()))
            line = rf"^- {spelled} \(.+\): {described}$"
            assert len(re.findall(line, text, re.MULTILINE)) == 1, key


@pytest.mark.parametrize("name", NAMES)
def test_objects_and_children_are_on_their_components_page(name: str) -> None:
    component = getattr(ml_foundations, name)
    arguments, _, rest = page_of(name).partition("\n## Arguments\n")[2].partition("\n## ")
    objects = component.spec_type().objects
    assert re.findall(r"^- `(\w+)` \(.*Python only\): ", arguments, re.MULTILINE) == [*objects]
    for argument in objects.values():
        assert all(re.search(rf"\b{target}\b", argument.description) for target in argument.outputs)
        assert not argument.gives_provider or "or a Kubernetes provider in `opts`" in arguments
    children = rest.partition("Children\n")[2].partition("\n## ")[0]
    declared_children = [key for key, value in vars(component).items() if isinstance(value, Child)]
    assert re.findall(r"^- `(\w+)`: ", children, re.MULTILINE) == declared_children


def test_objects_of_nested_arguments_are_on_their_page() -> None:
    nested = nested_specs(getattr(ml_foundations, name).spec_type() for name in NAMES)
    pages = "\n".join(path.read_text() for path in (CHECKOUT / "docs" / "components").glob("*.md"))
    with_objects = [spec for spec in nested if spec.objects]
    assert with_objects
    for spec in with_objects:
        own = rf"^## {spec.__name__}Args\n(.*?)(?=^#|\Z)"
        (section,) = re.findall(own, pages, re.MULTILINE | re.DOTALL)
        shown = re.findall(r"^- `(\w+)` \(.*Python only\): ", section, re.MULTILINE)
        assert shown == [*spec.objects]


def test_every_page_shows_a_construction_that_works() -> None:
    pulumi.runtime.set_all_config({"gcp:project": "my-project"})
    try:
        found = {request.type.rpartition(":")[2] for request in declared(construct).values()}
    finally:
        pulumi.runtime.set_all_config({})
    assert found >= {*NAMES}
    source = inspect.getsource(construct)
    for name in NAMES:
        shown = re.search(r"^```python\n(.*?)```$", page_of(name), re.MULTILINE | re.DOTALL)
        program = shown[1] if shown else ""
        imported, _, statement = program.partition("\n\n")
        assert imported == f"from ml_foundations import {name}"
        assert statement.strip() in textwrap.dedent(source.partition('"""\n')[2])


def test_descriptions_use_the_words_of_the_style() -> None:
    components = [getattr(ml_foundations, name) for name in NAMES]
    specs = [component.spec_type() for component in components]
    texts = [
        argument.description
        for spec in [*specs, *nested_specs(specs)]
        for argument in spec.objects.values()
    ]
    texts += [text for component in components for text in attribute_docstrings(component).values()]
    for entry in [*SCHEMA["resources"].values(), *SCHEMA["types"].values()]:
        properties = entry.get("inputProperties", {}) | entry.get("properties", {})
        texts += [entry["description"], *(value["description"] for value in properties.values())]
    assert len(texts) > 300
    vague = ("Whether", "Where")
    assert not [text for text in texts if AVOIDED.search(text) or text.startswith(vague)]
