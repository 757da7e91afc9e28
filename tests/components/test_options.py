"""Pulumi's options, given to each component and to its parent: none is lost on the way to the children."""

from collections.abc import Callable, Iterator
from functools import cache
from inspect import signature
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pytest
from google.protobuf import json_format
from ml_foundations import InferenceService
from ml_foundations.component.base import Component

from codegen.construction import construct
from tests.support.declaring import declared, requests

Options = Callable[[], pulumi.ResourceOptions]
OWN = "given"
"""The name of what the options name."""


def random_pet() -> pulumi.CustomResource:
    return pulumi.CustomResource("random:index/randomPet:RandomPet", OWN)


def unchanged(_: Any) -> None:
    return None


INHERITED: dict[str, Options] = {
    "protect": lambda: pulumi.ResourceOptions(protect=True),
    "retain_on_delete": lambda: pulumi.ResourceOptions(retain_on_delete=True),
    "deleted_with": lambda: pulumi.ResourceOptions(deleted_with=random_pet()),
}
"""What a child has of its parent, unless it has its own (Pulumi, pkg/resource/deploy, inheritFromParent)."""
PROVIDERS: dict[str, Options] = {
    "provider": lambda: pulumi.ResourceOptions(provider=gcp.Provider(OWN)),
    "providers": lambda: pulumi.ResourceOptions(
        providers=[gcp.Provider(OWN), pulumi.ProviderResource("random", OWN)]
    ),
}
OF_ONE: dict[str, Options] = {
    "delete_before_replace": lambda: pulumi.ResourceOptions(delete_before_replace=True),
    "ignore_changes": lambda: pulumi.ResourceOptions(ignore_changes=["spec"]),
    "version": lambda: pulumi.ResourceOptions(version="1.2.3"),
    "additional_secret_outputs": lambda: pulumi.ResourceOptions(additional_secret_outputs=["a"]),
    "custom_timeouts": lambda: pulumi.ResourceOptions(
        custom_timeouts=pulumi.CustomTimeouts(create="1h")
    ),
    "replace_on_changes": lambda: pulumi.ResourceOptions(replace_on_changes=["*"]),
    "replacement_trigger": lambda: pulumi.ResourceOptions(replacement_trigger="1"),
    "plugin_download_url": lambda: pulumi.ResourceOptions(plugin_download_url="https://e.example"),
    "replace_with": lambda: pulumi.ResourceOptions(replace_with=[random_pet()]),
    "hide_diffs": lambda: pulumi.ResourceOptions(hide_diffs=["spec"]),
    "import_": lambda: pulumi.ResourceOptions(import_="an-id"),
    "env_var_mappings": lambda: pulumi.ResourceOptions(env_var_mappings={"A": "B"}),
    "hooks": lambda: pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_create=[])),
    # The engine hands these on: it knows a child's former name by its parent's.
    "aliases": lambda: pulumi.ResourceOptions(aliases=[pulumi.Alias(name="former")]),
    "transforms": lambda: pulumi.ResourceOptions(transforms=[unchanged]),
}
"""What Pulumi gives to no child, here: a child's request is the same with it."""
ELSEWHERE = {"parent", "depends_on", "transformations"}
"""Options with a test of their own."""
REFUSED = {"id", "urn", "state_migrations"}
"""Options that Pulumi refuses: those that make a component one that exists, and one that needs a later engine."""
PLACES = ("component", "parent")


class Around(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tests:index:Around", name, {}, opts)


def made(options: Options, place: str = "component") -> list[Any]:
    """The requests of a program with every component, each with the options or below a parent with them.

    No argument of a component protects anything.
    """
    plain = Component.__init__

    def program() -> None:
        given = options()
        if place == "parent":
            given = pulumi.ResourceOptions(parent=Around("around", given))

        def init(self: Any, name: str, args: Any = None, opts: Any = None, **more: Any) -> None:
            guards = {"data", "deletion_protection"} & self.spec_type().model_fields.keys()
            args, more = {**(args or more), **dict.fromkeys(guards, False)}, {}
            plain(self, name, args, pulumi.ResourceOptions.merge(opts, given), **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Component, "__init__", init)
            construct()

    pulumi.runtime.set_all_config({"gcp:project": "ml-project-1"})
    try:
        return requests(program)
    finally:
        pulumi.runtime.set_all_config({})


@cache
def plainly() -> list[Any]:
    return made(pulumi.ResourceOptions)


def children(found: list[Any]) -> Iterator[Any]:
    """The resources of components, but for the providers that a cluster has."""
    for request in found:
        if request.custom and "ml-foundations:index" in request.parent:
            yield request


def of_children(found: list[Any]) -> dict[str, dict[str, Any]]:
    """What each child is registered with, by name, without where."""
    shown: dict[str, dict[str, Any]] = {}
    for request in children(found):
        shown[request.name] = json_format.MessageToDict(request)
        for key in ("parent", "sourcePosition", "stackTrace", "provider", "dependencies"):
            shown[request.name].pop(key, None)
        shown[request.name].pop("propertyDependencies", None)
        shown[request.name].pop(
            "object"
        )  # the kubeconfig of an unknown cluster is a text of its own
    return shown


def test_every_option_is_tried() -> None:
    tried = {*INHERITED, *PROVIDERS, *OF_ONE, *ELSEWHERE, *REFUSED}
    assert tried == {*signature(pulumi.ResourceOptions).parameters}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("option", INHERITED)
def test_children_inherit(option: str, place: str) -> None:
    found = made(INHERITED[option], place)
    field = {"retain_on_delete": "retainOnDelete", "deleted_with": "deletedWith"}.get(
        option, option
    )

    def inherited(request: Any) -> Any:
        value = getattr(request, field)
        has_own = value if field == "deletedWith" else request.HasField(field)
        above = next((one for one in found if is_parent(one, request)), None)
        return value if has_own or above is None else inherited(above)

    of = list(children(found))
    assert len({request.parent.split("::")[2].rpartition("$")[2] for request in of}) > 30
    assert [request.name for request in of if not inherited(request)] == []


def is_parent(one: Any, request: Any) -> bool:
    *_, types, name = request.parent.split("::")
    return (one.type, one.name) == (types.rpartition("$")[2], name)


def test_no_child_is_registered_with_false() -> None:
    for request in children(plainly()):
        assert request.deleteBeforeReplace or not request.deleteBeforeReplaceDefined, request.name
        # The SDK sends no protect as false.
        assert request.retainOnDelete or not request.HasField("retainOnDelete"), request.name


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("option", PROVIDERS)
def test_children_have_the_provider_of_their_package(option: str, place: str) -> None:
    own = list(children(made(PROVIDERS[option], place)))
    plain = children(plainly())
    assert sorted(request.name for request in own) == sorted(request.name for request in plain)
    packages = {"gcp"} | ({"random"} if option == "providers" else set())
    for request in own:
        package = request.type.partition(":")[0]
        if package == "kubernetes":
            assert "::ml-kubernetes::" in request.provider, request.name
        elif package in packages:
            assert f"::{OWN}::" in request.provider, request.name


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("option", OF_ONE)
def test_the_options_of_one_resource_change_no_child(option: str, place: str) -> None:
    found = made(OF_ONE[option], place)
    assert of_children(found) == of_children(plainly())
    if place == "component" and option not in ("env_var_mappings", "hooks"):  # of other resources
        components = [request for request in found if request.type.startswith("ml-foundations:")]
        field = {"import_": "importId", "aliases": "aliases"}.get(option, option)
        assert components
        assert all(sent(request, field) for request in components)


def sent(request: Any, field: str) -> bool:
    first, *rest = field.split("_")
    names = {field, first + "".join(part.title() for part in rest)}
    shown = json_format.MessageToDict(request)
    return any(shown.get(name) or shown.get(name.replace("Url", "URL")) for name in names)


@pytest.mark.parametrize("place", PLACES)
def test_dependencies_come_first(place: str) -> None:
    found = made(lambda: pulumi.ResourceOptions(depends_on=[random_pet()]), place)
    holders = [
        request
        for request in found
        if request.type.startswith("tests:" if place == "parent" else "ml-foundations:")
    ]
    assert holders
    assert all(any(urn.endswith(f"::{OWN}") for urn in one.dependencies) for one in holders)


@pytest.mark.parametrize("place", PLACES)
def test_transformations_see_every_child(place: str) -> None:
    seen: list[str] = []

    def see(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        seen.append(args.name)
        protected = pulumi.ResourceOptions(protect=True)
        return pulumi.ResourceTransformationResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, protected)
        )

    found = list(children(made(lambda: pulumi.ResourceOptions(transformations=[see]), place)))
    assert {request.name for request in found} <= {*seen}
    assert all(request.protect for request in found)


def test_a_queued_server_is_deleted_first() -> None:
    """Its LeaderWorkerSet is replaced under its name, whatever surge says about the rollout."""
    server: Any = {"namespace": "ml", "image": "i", "gpus": 8, "gpu": "H200", "launcher": "none"}
    found = declared(lambda: InferenceService("r1", **server, nodes=2, surge=True, queue="q"))
    assert found["r1-groups"].deleteBeforeReplace
