"""The manifests of training, as they were when somebody last read them: UPDATE_GOLDEN=1 writes the files anew."""

import os
from pathlib import Path

import pytest
import yaml

from tests.workloads.building import CASES

GOLDEN = Path(__file__).parents[1] / "golden" / "workloads"


@pytest.mark.parametrize("case", CASES)
def test_the_manifests_are_as_they_were(case: str) -> None:
    path = GOLDEN / f"{case}.yaml"
    made = yaml.safe_dump_all(CASES[case], sort_keys=False, width=110)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made)
    assert made == path.read_text(), f"{path.name} differs; read it, then UPDATE_GOLDEN=1"


def test_every_golden_is_made() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} >= set(CASES)
