"""The second generator in little: a batch of its cases on one control plane, and what keeps it apart from the first."""

import ast
import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.differential import control_plane
from tests.differential.schema import oracle, proof, shrinking
from tests.differential.schema.comparing import compare, features
from tests.differential.schema.generator import case
from tests.differential.schema.oracle import Run
from tests.differential.schema.run import Runs
from tests.factories import cluster_wide
from tests.support.trials import sizes

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def runs(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("schema"))


def regressions() -> list[list[dict[str, Any]]]:
    paths = sorted(proof.REGRESSIONS.glob("*.yaml"))
    return [list(yaml.load_all(path.read_text(), yaml.CSafeLoader)) for path in paths]


def test_regressions_agree(runs: Runs) -> None:
    cases = regressions()
    answers = runs.of(cases, "regressions")
    wrong = [compare(*pair).wrong for pair in zip(cases, answers, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("count", sizes(20, 60))
def test_cases_settle_and_tell(count: int, runs: Runs) -> None:
    cases = [case(runs.schema(), number) for number in range(count)]
    found = [compare(*pair) for pair in zip(cases, runs.of(cases, f"test{count}"), strict=True)]
    outcomes = [comparison.outcome for comparison in found]
    assert outcomes.count("unsettled") <= 1
    fewest = min(outcomes.count(outcome) for outcome in ("runs", "waits", "refused"))
    assert fewest >= count // 10


class Busy:
    """A control plane with a controller that never rests."""

    claim_looks = 0.0

    async def is_idle(self) -> bool:
        return False


def test_of_a_case_that_never_rests_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "AT_MOST_SECONDS", 0.1)
    asked = oracle.Oracle(Busy(), None)  # pyright: ignore[reportArgumentType]
    space = {"kind": "Namespace", "metadata": {"name": "case0"}}
    cases = [oracle._instance([space], name, False) for name in "ab"]
    asked._changed["a"] = time.monotonic()
    asyncio.run(asked._settle(cases))
    assert [bool(case.run.unsettled) for case in cases] == [True, False]


def test_a_case_is_always_the_same(runs: Runs) -> None:
    assert case(runs.schema(), 7) == case(runs.schema(), 7)
    assert case(runs.schema(), 7) != case(runs.schema(), 8)


def test_cases_reach_fields_that_no_rule_is_about(runs: Runs) -> None:
    found = {name for number in range(400) for name in features(case(runs.schema(), number))}
    assert found >= {"pod.hostPID", "pod.schedulingGates", "pod.resourceClaims"}
    assert found >= {"volume.iscsi", "container.lifecycle"}
    assert found >= {"Job", "CronJob", "ReplicationController", "DaemonSet"}
    assert found >= {"ResourceSlice", "RuntimeClass"}


@pytest.mark.parametrize(
    ("verdict", "answers", "is_wrong"),
    [
        ("fits", [Run(), Run()], False),
        ("fits", [Run(), Run(waiting={"Pod case0-red/w": "no room"})], True),
        ("fits", [Run(refused={"Pod case0-red/w": "invalid"})] * 2, True),
        ("fits", [Run(), Run(unsettled="a pod starts")], False),
        ("cannot-fit", [Run(), Run(waiting={"Pod case0-red/w": "no room"})], True),
        ("cannot-fit", [Run(waiting={"Pod case0-red/w": "no room"})] * 2, False),
    ],
)
def test_what_counts_as_wrong(verdict: str, answers: list[Run], is_wrong: bool) -> None:
    offered = {"allocatable": {"cpu": "1", "pods": "10"}}
    node = cluster_wide("v1", "Node", "case0-n0", status=offered)
    resources = {"requests": {"cpu": "1" if verdict == "fits" else "2"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    pod = cluster_wide("v1", "Pod", "w", spec=spec)
    pod["metadata"]["namespace"] = "case0-red"
    comparison = compare([node, pod], answers)
    assert (comparison.verdict, bool(comparison.wrong)) == (verdict, is_wrong)


def test_shrinking_leaves_only_what_matters() -> None:
    case = [{"kind": "Pod", "spec": {"a": [1, 2], "b": {"c": 1}}}, {"kind": "Node", "spec": {}}]

    def fails(documents: list[dict[str, object]]) -> bool:
        return "2" in str(documents)

    small = shrinking.shrink(case, lambda cases: [fails(each) for each in cases], fails)
    assert small == [{"kind": "Pod", "spec": {"a": [2]}}]


@pytest.mark.parametrize("path", sorted(HERE.glob("schema/*.py")), ids=lambda path: path.stem)
def test_it_shares_nothing_with_the_first_generator(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    shared = ("tests.differential.schema.", "tests.differential.control_plane")
    ours = [name for name in imported if name.startswith("tests.")]
    assert not [name for name in ours if not name.startswith(shared)]
    if path.stem in ("oracle", "wanted", "client", "generator", "typed", "unions", "values"):
        assert not [name for name in imported if "planning" in name]


def test_flags_leave_every_decision_to_its_default() -> None:
    assert control_plane.SCHEDULER.keys() == {"podInitialBackoffSeconds", "podMaxBackoffSeconds"}
