"""The tables of kinds and fields that older clusters lack, against what Kubernetes publishes of the oldest minor version.

The judge is the OpenAPI in the module of that version: it needs no control plane.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ml_foundations.catalog.pools import CLUSTER as CLUSTER_TYPE
from ml_foundations.catalog.tables import rows
from ml_foundations.planning.input.field_catalog import schema
from ml_foundations.planning.rules.field_versions import _fields, _kinds, versions
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.groups import Group

from tests.support.checkout import CHECKOUT
from tests.support.goldens import objects
from tests.support.stacks import stack_of

OLDEST = Group(
    "oldest-kubernetes",
    {},
    minutes=0.5,
    folder=CHECKOUT / "tests" / "planning" / "oldest-kubernetes",
    copies={"openapi": ("k8s.io/kubernetes", "api/openapi-spec/v3")},
)
CLUSTER = {"name": "ml", "releaseChannel": {"channel": "EXTENDED"}, "minMasterVersion": "1.30"}
OF_NO_POD = {
    *(("authorization.v1.ResourceAttributes", f"{name}Selector") for name in ("field", "label")),
    *(("coordination.v1.LeaseSpec", name) for name in ("preferredHolder", "strategy")),
    ("discovery.v1.EndpointHints", "forNodes"),
    ("core.v1.NodeRuntimeHandlerFeatures", "userNamespaces"),
    ("core.v1.NodeSystemInfo", "swap"),
    ("core.v1.PodCondition", "observedGeneration"),
}
"""Later fields that users do not write: of a status, and of objects that decide nothing about pods."""
BELOW_LATER_FIELDS = {
    ("core.v1.PodResourceClaim", "resourceClaimName"),
    ("core.v1.PodResourceClaim", "resourceClaimTemplateName"),
    ("core.v1.ResourceClaim", "request"),
}
"""Fields of DRA. The tables have the fields that lead to them."""


class OpenApi:
    """The kinds and types that an API server publishes."""

    def __init__(self) -> None:
        self.types: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, dict[str, Any]] = {}
        for file in (toolchain.build(OLDEST) / "openapi").glob("*_openapi.json"):
            self.types |= json.loads(file.read_text()).get("components", {}).get("schemas", {})
        for type_ in self.types.values():
            for kind in type_.get("x-kubernetes-group-version-kind", ()):
                version = "/".join(filter(None, (kind["group"], kind["version"])))
                self.kinds[f"{version} {kind['kind']}"] = type_

    def has_group(self, kind: str) -> bool:
        """Return whether the group of a kind is built in. Others are those of definitions."""
        group = kind.rpartition("/")[0]
        return any(known.rpartition("/")[0] == group for known in self.kinds)

    def lacks(self, value: Any, type_: dict[str, Any], path: str = "") -> Iterator[str]:
        """Yield the paths of the fields of a value that a type does not have."""
        for part in type_.get("allOf", ()):
            type_ = part
        type_ = self.types[type_["$ref"].rpartition("/")[2]] if "$ref" in type_ else type_
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.lacks(item, type_["items"], f"{path}[{index}]")
        elif isinstance(value, dict) and "properties" in type_:
            for key, item in value.items():
                at = f"{path}.{key}".removeprefix(".")
                if key in type_["properties"]:
                    yield from self.lacks(item, type_["properties"][key], at)
                else:
                    yield at


@pytest.fixture(scope="module")
def oldest() -> OpenApi:
    return OpenApi()


def test_it_is_the_oldest_that_a_release_channel_has() -> None:
    minors = [row["oldest"] for row in rows("release_channels.csv")]
    oldest = min(minors, key=lambda minor: int(minor.partition(".")[2]))
    assert OLDEST.pinned("k8s.io/kubernetes").startswith(f"v{oldest}.")


def test_the_tables_have_each_kind_that_it_lacks(oldest: OpenApi) -> None:
    built_in = {kind for kind in schema()["kinds"] if oldest.has_group(kind)}
    assert len(built_in) > 60
    assert built_in - oldest.kinds.keys() == set(_kinds())


def test_the_tables_have_each_field_that_it_lacks(oldest: OpenApi) -> None:
    compared, unknown = 0, set[tuple[str, str]]()
    for name, fields in schema()["types"].items():
        published = oldest.types.get(f"io.k8s.api.{name}")
        if published is None or name.endswith("Status"):
            continue
        compared += len(fields)
        later = fields.keys() - published.get("properties", {}).keys()
        unknown |= {(name, field) for field in later}
    assert compared > 1000
    assert unknown - _fields().keys() - OF_NO_POD - BELOW_LATER_FIELDS == set()


def test_the_proof_finds_what_it_lacks_of_declared_objects(
    oldest: OpenApi,
) -> None:
    compared = 0
    for where, manifest in objects():
        findings = list(versions(stack_of([manifest], (CLUSTER_TYPE, CLUSTER))))
        kind = f"{manifest['apiVersion']} {manifest['kind']}"
        if kind in oldest.kinds:
            compared += 1
            lacking = [*oldest.lacks(manifest, oldest.kinds[kind])]
            found = [finding.path for finding in findings]
            assert all(any(path.startswith(at) for at in found) for path in lacking), where
        elif oldest.has_group(kind):
            compared += 1
            assert [finding.path for finding in findings] == ["apiVersion"], where
    assert compared > 300
