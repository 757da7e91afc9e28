"""The examples of docs/gke.md are complete programs: each declares its resources."""

import re

import yaml

from tests.gke.test_node_pools import REFUSED
from tests.support import programs
from tests.support.checkout import CHECKOUT

FEATURES = (CHECKOUT / "docs" / "features.md").read_text()
TESTED_FEATURES = yaml.safe_load((CHECKOUT / "tests" / "gke" / "features.yaml").read_text())
PAGE = CHECKOUT / "docs" / "gke.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_program_declares_what_the_page_says() -> None:
    declared = {request.name for request in programs.run(PAGE)}
    pools = {"system-pool", "l4-pool", "preprocessing-pool", "h100-pool"}
    assert {"lab-cluster", "prod-cluster", "research-namespace", *pools} <= declared


def test_there_is_an_example_of_each_component() -> None:
    assert len(EXAMPLES) == 5
    for component in ("GkeCluster", "CpuNodePool", "GpuNodePool", "ComputeClass"):
        assert any(f"{component}(" in example for example in EXAMPLES)


def test_every_feature_of_ours_has_tests_that_exist() -> None:
    table, _, rest = FEATURES.partition("\n## On the nodes")
    rows = [row for row in table.splitlines() if row.startswith("| ") and "this package" not in row]
    ours = [row.split(" | ")[0][2:] for row in rows if not row.rstrip(" |").endswith("\N{EN DASH}")]
    ours += re.findall(r"^- (.*)$", rest.partition("\n## ")[0], re.MULTILINE)
    assert len(ours) > 30, "the table is read"
    assert ours == [row["feature"] for row in TESTED_FEATURES]
    known = {
        name
        for file in (CHECKOUT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    for row in TESTED_FEATURES:
        assert row["tests"], row
        assert known >= set(row["tests"]), row


def test_every_precondition_names_a_case_that_exists() -> None:
    rows = yaml.safe_load((CHECKOUT / "tests" / "gke" / "preconditions.yaml").read_text())
    cases = [case for row in rows for case in row.get("cases", [])]
    assert cases
    assert not [case for case in cases if case not in REFUSED]
