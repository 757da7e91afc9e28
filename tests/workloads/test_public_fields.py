"""What 12 more public manifests of GPU workloads say, our arguments can say: nine fields in ten, and all with overrides."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.support.checkout import CHECKOUT
from tests.workloads.fields import used
from tests.workloads.public import OURS

PUBLIC: Mapping[str, Any] = yaml.safe_load((CHECKOUT / "tests" / "workloads" / "public_fields.yaml").read_text())


def unsaid(name: str, **overrides: Any) -> list[str]:
    """The fields of a public manifest that ours does not have."""
    make, typed, _ = OURS[name]
    ours = used(make(**typed, **overrides).manifests())
    fields: Mapping[str, list[str]] = PUBLIC[name]["fields"]
    return [f"{kind} {path}" for kind, paths in fields.items() for path in paths if path not in ours.get(kind, ())]


def test_typed_arguments_say_nine_fields_in_ten() -> None:
    total = sum(len(paths) for public in PUBLIC.values() for paths in public["fields"].values())
    missing = {name: unsaid(name) for name in PUBLIC}
    said = 1 - sum(map(len, missing.values())) / total
    assert total > 250
    assert said >= 0.9, missing


@pytest.mark.parametrize("name", PUBLIC)
def test_overrides_say_the_rest(name: str) -> None:
    assert not unsaid(name, **OURS[name][2])


def test_the_manifests_are_named_and_are_others_than_those_compared_value_by_value() -> None:
    sources = [public["source"] for public in PUBLIC.values()]
    assert len(set(sources)) == 12
    assert all(len(source.partition("@")[2].partition(":")[0]) == 40 for source in sources)
    compared = "".join(path.read_text() for path in (CHECKOUT / "tests" / "workloads").glob("test_public_*.py"))
    assert not [source for source in sources if source.rpartition(":")[2] in compared]
