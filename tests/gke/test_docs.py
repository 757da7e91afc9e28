"""The examples of docs/gke.md are complete programs: each declares its resources."""

import re
from typing import Any

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.declaring import declared

FEATURES = (CHECKOUT / "docs" / "features.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (CHECKOUT / "docs" / "gke.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, {"lab-cluster", "system-pool", "l4-pool", "research-namespace"}),
        (1, {"prod-cluster"}),
        (2, {"preprocessing-pool"}),
        (3, {"h100-pool"}),
    ],
)
def test_an_example_declares_what_it_says(index: int, expected: set[str]) -> None:
    program: Any = compile(EXAMPLES[index], f"docs/gke.md[{index}]", "exec")
    assert expected <= declared(lambda: exec(program, {})).keys()


def test_there_is_an_example_of_each_component() -> None:
    assert len(EXAMPLES) == 4
    for component in ("GkeCluster", "CpuNodePool", "GpuNodePool"):
        assert any(f"{component}(" in example for example in EXAMPLES)


def test_every_feature_of_ours_names_a_test_that_exists() -> None:
    table = FEATURES.partition("## Clusters and node pools")[2].partition("\n## ")[0]
    rows = [line.rstrip(" |").split("|") for line in table.splitlines() if line.startswith("| ")]
    cells = {row[1].strip(): row[-1].strip() for row in rows if not row[1].strip().startswith("-")}
    named = {feature: re.findall(r"\(\.\./(\S+?)\) `(test_\w+)`", cell) for feature, cell in cells.items()}
    for feature, cell in cells.items():
        if cell[0] in "✓●" and cell != "✓ same":
            assert named[feature], feature
        for file, test in named[feature]:
            assert f"def {test}(" in (CHECKOUT / file).read_text(), test


def test_what_stands_on_the_nodes_names_tests_that_exist() -> None:
    table = FEATURES.partition("## What stands on the nodes")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    named = [re.findall(r"\(\.\./(\S+?)\) `(test_\w+)`", row) for row in rows]
    assert all(named)
    for file, test in (pair for found in named for pair in found):
        assert f"def {test}(" in (CHECKOUT / file).read_text(), test


def test_every_precondition_names_a_case_that_exists() -> None:
    from tests.gke.test_node_pools import REFUSED

    table = FEATURES.partition("## Preconditions")[2].partition("\n## ")[0]
    assert set(re.findall(r'"([^"]+)"', table)) <= REFUSED.keys()
