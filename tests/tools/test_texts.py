"""The check that no branch reads the text of a message, a remedy or a reason."""

import pytest

from tools.texts import places, violations

DECIDING = [
    'if "has no " in refusal.message: ...',
    "known = finding.message in texts",
    'if problem.startswith("must"): ...',
    "value = finding.message.split('\"')[1]",
    "path, _, fault = remedy.partition(': ')",
    "if _FIELD.sub('', finding.remedy): ...",
    "if re.search('GPU', sentence): ...",
    "remedy = REMEDIES[refusal.message]",
    "remedy = REMEDIES.get(reason)",
    "if new.reason not in old.reasons or old.problems != []: ...",
    'match fault:\n    case "is required": ...',
    'if text in ("planning does not know this kind", ""): ...',
    'rule = rules["planning does not know this kind"]',
    "first = message[:20]",
    'if "budget" in error["message"].lower(): ...',
    "try: ...\nexcept ValueError as error:\n    text = str(error).partition(':')[0]",
]
ASKING = [
    "if refusal.cause is Cause.NO_POOL_LIST: ...",
    'if refusal.rule == "invalid" and refusal.path.startswith("spec."): ...',
    "if note.reason is not Gap.NOT_YET: ...",
    "message = f'{message}: {remedy}'",
    'message = "; ".join(messages)',
    'shown = rows["message"]',
    "match reason:\n    case Refusal(): ...",
    "first = reasons[0]",
    "if not message or remedy is None: ...",
    'code = events["reason"] == "FailedCreate"',
]


@pytest.mark.parametrize("code", DECIDING)
def test_code_that_decides_by_a_text_is_found(code: str) -> None:
    assert places("a.py", code)


@pytest.mark.parametrize("code", ASKING)
def test_code_that_asks_for_a_cause_is_accepted(code: str) -> None:
    assert places("a.py", code) == []


def test_a_place_has_its_function_and_line() -> None:
    code = "class Reader:\n    def read(self):\n        return self.message.split()\n"
    assert places("a.py", code) == [("a.py.read", 3, "cuts a text")]


def test_the_product_decides_by_no_text_of_its_own() -> None:
    assert list(violations()) == []
