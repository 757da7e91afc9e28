"""What the README shows is true: its program is an example, and its errors are the errors."""

import re
from typing import Any

import pytest
from ml_foundations import GpuNodePool
from ml_foundations.component.errors import ArgumentsError

from tests.support.checkout import CHECKOUT
from tests.support.declaring import requests
from tests.support.stack_files import changed, refusal

TUTORIAL = (CHECKOUT / "docs" / "tutorial.md").read_text()
README = (CHECKOUT / "README.md").read_text()
PROGRAMS = (CHECKOUT / "docs" / "writing-a-program.md").read_text()


def test_the_shortest_program_is_the_minimal_example() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert program == (CHECKOUT / "examples" / "minimal" / "__main__.py").read_text()


@pytest.mark.parametrize(
    ("page", "replicas"), [(README, 8), (TUTORIAL, 5)], ids=["README", "tutorial"]
)
def test_all_errors_of_too_many_servers_are_shown(page: str, replicas: int) -> None:
    """The pages break lines, and cut an error at an ellipsis."""
    key = "teams.serving.inferenceServices.chat.replicas"
    reported = refusal(changed((key, replicas))).partition("\n\n")[0].splitlines()
    blocks = re.findall(r"```\nerror: (the stack cannot run.*?)```", page, re.DOTALL)
    [shown] = [" ".join(block.split()) for block in blocks if "serving/chat" in block]
    assert shown.count("Deployment serving/chat: ") == len(reported) - 1 == 2
    for line in reported:
        beginning = line.partition(" Written at")[0].strip()
        assert beginning in shown, line


def test_the_invalid_arguments_that_are_shown_are_reported() -> None:
    place: Any = {"project": "p", "location": "us-central1", "cluster_name": "c"}
    machines: Any = {"machine_type": "a2-highgpu-3g", "max_nodes": 0, "node_service_account": "s"}
    with pytest.raises(ArgumentsError) as refused:
        requests(lambda: GpuNodePool("a100", {**place, **machines}))
    assert str(refused.value) in PROGRAMS
