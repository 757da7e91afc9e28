"""Planning refuses what the real webhooks and operators refuse, and nothing else, of edited objects of every kind."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.judges import edits, judging, rules
from tests.judges.judging import Judgement
from tests.support.trials import sizes

FIRST = 20_000


@pytest.fixture(scope="module", params=sizes(150, 400))
def judgements(
    request: pytest.FixtureRequest, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Judgement]]:
    folder: Path = tmp_path_factory.mktemp("judges")
    with judging.running(folder) as rehearsal:
        yield asyncio.run(judging.judge(rehearsal, range(FIRST, FIRST + request.param)))


def test_they_agree_on_edited_objects(judgements: list[Judgement]) -> None:
    wrong = [judgement for judgement in judgements if judgement.is_wrong]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_third_is_accepted_and_most_are_decided(judgements: list[Judgement]) -> None:
    accepted = sum(not judgement.words for judgement in judgements)
    assert accepted >= len(judgements) // 3
    assert sum(judgement.is_decided for judgement in judgements) > len(judgements) * 3 // 4


@pytest.mark.parametrize("document", edits.valid(), ids=lambda document: document["kind"])
def test_planning_accepts_the_objects_without_edits(document: edits.Object) -> None:
    assert judging.compared(0, document, "").errors == ()


def test_a_rule_is_found_by_its_message() -> None:
    found = [
        rule for rule in rules.rules() if "must divide" in rule.text or "reserved" in rule.text
    ]
    words = 'metadata.spec[3].groupName: Forbidden: "head" is reserved for the head group'
    assert [rule.file for rule in found if rule.is_met_by([words])] == [
        "kueue raycluster_webhook.go"
    ]
