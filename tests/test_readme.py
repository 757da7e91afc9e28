"""What the README shows is true: its program is an example, and its errors are the errors."""

import re

import pytest
from ml_foundations import GpuNodePool
from ml_foundations.component.errors import ArgumentsError

from tests.support.checkout import CHECKOUT
from tests.support.declaring import requests

README = (CHECKOUT / "README.md").read_text()
PROGRAMS = (CHECKOUT / "docs" / "writing-a-program.md").read_text()


def test_the_shortest_program_is_the_minimal_example() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert program == (CHECKOUT / "examples" / "minimal" / "__main__.py").read_text()


def test_the_invalid_arguments_that_are_shown_are_reported() -> None:
    place = {
        "project": "p",
        "location": "us-central1",
        "cluster_name": "c",
        "node_service_account": "s",
    }
    with pytest.raises(ArgumentsError) as refused:
        requests(
            lambda: GpuNodePool("a100", {**place, "machine_type": "a2-highgpu-3g", "max_nodes": 0})
        )
    assert str(refused.value) in PROGRAMS
