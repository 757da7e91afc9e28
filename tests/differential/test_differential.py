"""The differential proof in little: some hundreds of cases and every regression, on one control plane."""

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from ml_foundations.planning import Verdict
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.differential import case, oracle, proof, replica, shrinking
from tests.differential.case import Case, isolated, read
from tests.differential.comparing import (
    WITHOUT,
    Comparison,
    compare,
    deciding_rules,
    verdict_on,
)
from tests.differential.edges import edges
from tests.differential.generator import batch, generate
from tests.differential.oracle import Outcome
from tests.support.checkout import CHECKOUT
from tests.support.trials import sizes

NUMBER = 0
"""The batch of this test: always the same, and none of those of ``make differential``."""

Compared = list[tuple[Case, Comparison]]


def written() -> list[Case]:
    """Return the cases that are not generated: former disagreements, and the edges of each rule."""
    regressions = map(read, sorted(proof.REGRESSIONS.glob("*.yaml")))
    return [*(part for case in regressions for part in case.parts()), *edges()]


def compare_all(cases: list[Case], folder: Path) -> Compared:
    answers = replica.try_out(cases, folder, NUMBER)
    return [(case, compare(case, outcomes)) for case, outcomes in zip(cases, answers, strict=True)]


@pytest.fixture(scope="module", params=sizes(2, 8))
def generated(
    request: pytest.FixtureRequest, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Compared:
    return compare_all(batch(NUMBER, request.param), tmp_path_factory.mktemp("generated"))


def disagreements(compared: Compared) -> list[str]:
    return [f"{comparison}\n{case}" for case, comparison in compared if not comparison.agrees]


def test_written_cases_agree_with_the_scheduler(tools: Tools, tmp_path: Path) -> None:
    wrong = disagreements(compare_all(written(), tmp_path))
    assert not wrong, f"{len(wrong)} disagreements:\n" + "\n".join(wrong[:3])


def test_generated_cases_agree_with_the_scheduler(generated: Compared) -> None:
    wrong = disagreements(generated)
    assert not wrong, f"{len(wrong)} disagreements:\n" + "\n".join(wrong[:3])


@pytest.mark.trial
def test_the_cases_are_worth_comparing() -> None:
    cases = batch(NUMBER, 8)
    verdicts = [verdict_on(case.documents) for case in cases]
    judged = zip(cases, verdicts, strict=True)
    refused = [case for case, verdict in judged if verdict is Verdict.CANNOT_FIT]
    assert len(cases) > 200
    assert 0.3 <= len(refused) / len(cases) <= 0.7
    assert verdicts.count(Verdict.UNDETERMINED) / len(cases) < 0.025  # 1.5 % of many thousands
    decided = {rule for case in refused for rule in deciding_rules(case)}
    assert decided >= WITHOUT.keys(), f"no case is decided by {WITHOUT.keys() - decided}"


def test_a_batch_is_always_the_same() -> None:
    code = "from tests.differential.generator import batch; print(*batch(3, 2), sep='---\\n')"
    command = [sys.executable, "-c", code]

    def printed(seed: str) -> bytes:
        env = os.environ | {"PYTHONHASHSEED": seed}
        return subprocess.check_output(command, cwd=CHECKOUT, env=env)

    assert printed("1") == printed("2")
    assert [str(case) for case in batch(3, 2)] != [str(case) for case in batch(4, 2)]


@pytest.mark.parametrize("module", [oracle, replica, case])
def test_the_oracle_knows_nothing_of_planning(module: object) -> None:
    tree = ast.parse(Path(str(vars(module)["__file__"])).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom)
            else []
        )
    }  # fmt: skip
    ours = {name for name in imported if name.startswith("ml_foundations")}
    assert not [name for name in ours if not name.startswith("ml_foundations.rehearsal.")]
    assert not [name for name in imported - ours if "planning" in name or "comparing" in name]


def test_a_case_can_be_written_and_read(tmp_path: Path) -> None:
    original = generate("volume-zone", 1, 1)[0]
    case.write(original, tmp_path / "case.yaml", "one line\nanother")
    assert read(tmp_path / "case.yaml") == original


def test_cases_are_kept_apart() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "one", "namespace": "case0-team"}, "spec": {}}
    node = {"kind": "Node", "metadata": {"name": "case0-pool"}}
    placed = Case("resources", isolated([node, pod])).placed("c7")
    assert placed == [
        {"kind": "Node", "metadata": {"name": "c7-pool", "labels": {"case": "c7"}}},
        {
            "kind": "Pod",
            "metadata": {"name": "one", "namespace": "c7-team"},
            "spec": {"nodeSelector": {"case": "c7"}},
        },
    ]


def test_shrinking_leaves_only_what_matters() -> None:
    original = next(case for case in generate("taints", 20, 1) if len(case.documents) > 3)
    tries: list[int] = []

    def failing(candidates: Sequence[Case]) -> list[bool]:
        tries.append(len(candidates))
        specs = [[document["spec"] for document in case.documents] for case in candidates]
        return [any(spec.get("taints") for spec in of_case) for of_case in specs]

    small = shrinking.shrink(original, failing)
    assert failing([small]) == [True]
    nodes = [document for document in small.documents if document["kind"] == "Node"]
    assert len(nodes) == 1
    assert len(nodes[0]["spec"]["taints"]) == 1
    assert len(small.workloads) == 1
    assert "tolerations" not in str(small)


def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def try_out(cases: Sequence[Case], folder: Path, number: int) -> list[list[Outcome]]:
        asked.extend(cases)
        return [[Outcome(1, created=1, scheduled=1)] for _ in cases]

    monkeypatch.setattr(replica, "try_out", try_out)
    cases = generate("taints", 8, 1)
    first = proof.Answers(tmp_path).to(1, cases[:-1])
    assert proof.Answers(tmp_path).to(1, cases) == [*first, [Outcome(1, created=1, scheduled=1)]]
    assert asked == cases, "each case is tried once"
    monkeypatch.setattr(proof, "VERSION", "v9.9.9")
    proof.Answers(tmp_path).to(1, cases)
    assert asked == cases * 2, "another Kubernetes is asked anew"


def test_the_table_counts() -> None:
    comparisons = [
        Comparison("taints", ("Pod",), "cannot-fit", False, ("taints",)),
        Comparison("taints", ("Pod",), "fits", False, ()),
        Comparison("gpus", ("Job",), "undetermined", True, ()),
    ]
    assert "3 cases on Kubernetes v" in proof.summary(comparisons)
    assert "33.3% cannot fit, 33.3% undetermined, 1 disagreements" in proof.summary(comparisons)
    lines = proof.table(comparisons).splitlines()
    assert "| taints | 2 | 1 (33.3%) | 1 | 1 | 0 | 1 |" in lines
    assert lines[-1] == "| **all** | 3 |  | 1 | 1 | 1 | 1 |"
