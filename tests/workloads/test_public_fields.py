"""What 12 more public manifests of GPU workloads say, our arguments can say: nine fields in ten, and all with overrides."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.support.checkout import CHECKOUT
from tests.workloads.fields import fields_of, unsaid
from tests.workloads.public import OURS

PUBLIC: Mapping[str, Any] = yaml.safe_load(
    (CHECKOUT / "tests" / "workloads" / "public_fields.yaml").read_text()
)


def missing(name: str, **overrides: Any) -> list[str]:
    """The fields of a public manifest that ours does not have, or with another value."""
    make, typed, _ = OURS[name]
    return unsaid(PUBLIC[name]["fields"], fields_of(make(**typed, **overrides).manifests()))


def test_typed_arguments_say_nine_fields_in_ten() -> None:
    total = sum(len(fields) for public in PUBLIC.values() for fields in public["fields"].values())
    unsaid_fields = {name: missing(name) for name in PUBLIC}
    said = 1 - sum(map(len, unsaid_fields.values())) / total
    assert total > 300
    assert said >= 0.9, unsaid_fields


@pytest.mark.parametrize("name", PUBLIC)
def test_overrides_say_the_rest(name: str) -> None:
    assert not missing(name, **OURS[name][2])


def test_a_field_counts_by_its_value() -> None:
    public = {"pod": {"spec.containers[main].resources.limits.memory": "1Gi", "spec.hostname": "a"}}
    ours = {
        "pod": {"spec.containers[main].resources.limits.memory": "1024Mi", "spec.hostname": "b"}
    }
    assert unsaid(public, ours) == ["pod spec.hostname: 'b', not 'a'"]
    assert len(unsaid(public, {})) == 2


def test_the_public_manifests_are_other_than_the_compared_ones() -> None:
    sources = [public["source"] for public in PUBLIC.values()]
    assert len(set(sources)) == 12
    assert all(len(source.partition("@")[2].partition(":")[0]) == 40 for source in sources)
    compared = "".join(
        path.read_text() for path in (CHECKOUT / "tests" / "workloads").glob("manifests/*.yaml")
    )
    assert not [source for source in sources if source.rpartition(":")[2] in compared]
