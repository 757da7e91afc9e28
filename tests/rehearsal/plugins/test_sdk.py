"""What the embedded plugins know of the SDKs, beside the installed SDKs."""

from importlib.metadata import version

import pytest
from ml_foundations.rehearsal.plugins.gcp import container
from ml_foundations.rehearsal.plugins.kubernetes.rendering import COMPONENTS
from ml_foundations.rehearsal.plugins.sdk import GCP, KUBERNETES

from codegen import sdk
from tests.support.recorded import RECORDED

KINDS = [
    "apps/v1:Deployment",
    "batch/v1:Job",
    "core/v1:ConfigMapPatch",
    "core/v1:Namespace",
    "helm.sh/v3:Release",
]
TYPES = [
    container.CLUSTER,
    container.NODE_POOL,
    *RECORDED,
    *(f"kubernetes:{kind}" for kind in KINDS),
]


@pytest.mark.parametrize("package", sdk.PACKAGES)
def test_the_data_are_of_the_installed_sdk(package: str) -> None:
    """After an update: make generate."""
    written = sdk.written(package)
    assert written["version"] == version(f"pulumi-{package}")
    assert written["types"].keys() == sdk.classes(package).keys()


@pytest.mark.parametrize("token", TYPES)
def test_a_type_is_written_as_the_sdk_has_it(token: str) -> None:
    package = token.partition(":")[0]
    assert sdk.written(package)["types"][token] == sdk.described(token)


def test_what_replaces_a_resource_is_an_input() -> None:
    """After an update that drops some: python -m codegen.gcp_replacements."""
    for token in sdk.written("gcp")["types"]:
        for path in GCP[token].replaced_for:
            taken, block = GCP[token], ""
            for step in path.split("."):
                taken = GCP.block(block) if block else taken
                assert step in taken.inputs, f"{token}: {path}"
                block = taken.blocks.get(step, "")


def test_charts_and_groups_are_components_and_objects_are_not() -> None:
    components = {
        token for token, schema in KUBERNETES.schema["resources"].items() if schema["isComponent"]
    }
    assert components == COMPONENTS.keys()
    assert not any(schema["isComponent"] for schema in GCP.schema["resources"].values())


def test_a_kind_has_but_one_api_version_and_kind() -> None:
    properties = KUBERNETES["kubernetes:core/v1:ConfigMapPatch"].schema["inputProperties"]
    assert (properties["apiVersion"]["const"], properties["kind"]["const"]) == ("v1", "ConfigMap")
    assert KUBERNETES["kubernetes:helm.sh/v3:Release"].schema["inputProperties"]["chart"] == {
        "$ref": "pulumi.json#/Any"
    }
