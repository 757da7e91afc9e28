"""Every resource of every stack and example, as it was when somebody last read it."""

import pytest

from tests.gke.networks import POOLS
from tests.support import recording
from tests.support.golden import GOLDEN, difference, holds, whole
from tests.support.recording import EXAMPLES, STACKS
from tests.workloads.building import CASES

BASE = "dev"
"""The stack that is shown whole; of the others is shown what differs from it."""


@pytest.mark.parametrize("stack", STACKS)
def test_the_resources_of_a_stack_are_as_they_were(stack: str) -> None:
    found, base = recording.stack(stack), recording.stack(BASE)
    text = whole(found) if stack == BASE else difference(stack, found, BASE, base)
    holds(GOLDEN / f"{stack}.yaml", text)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_resources_of_an_example_are_as_they_were(example: str) -> None:
    holds(GOLDEN / "examples" / f"{example}.yaml", whole(recording.example(example)))


def test_no_golden_is_stale() -> None:
    made = [
        *STACKS,
        *(f"examples/{name}" for name in EXAMPLES),
        *(f"workloads/{case}" for case in CASES),
        *(f"gke/{case}" for case in POOLS),
        "workloads/inference-gateway",
        "every-key",
    ]
    there = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.*")}
    assert there == {f"{name}.yaml" for name in made}


def test_a_difference_is_shown_unless_it_is_the_stacks_own_name() -> None:
    def resource(name: str, **inputs: object) -> dict[str, object]:
        return {"type": "t", "name": name, "inputs": inputs}

    base = [
        resource("dev-pool", cluster="dev", size=1, zones=["a", "b"], spot=True),
        resource("same"),
        resource("gone", x=1),
    ]
    other = [
        resource("prod-pool", cluster="prod", size=2, zones=["a", "c"], zone="a"),
        resource("same"),
        resource("new", y=2),
    ]
    assert (
        difference("prod", other, "dev", base)
        == """\
added:
- inputs: {y: 2}
  name: new
  type: t
changed:
  t prod-pool:
    inputs.size: {dev: 1, prod: 2}
    inputs.spot: {dev: true}
    inputs.zone: {prod: a}
    inputs.zones[1]: {dev: b, prod: c}
removed: [t gone]
"""
    )
