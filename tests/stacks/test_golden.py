"""Every resource of every stack, as it was when somebody last read it: UPDATE_GOLDEN=1 writes the files anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_the_resources_of_a_stack_are_as_they_were(stack: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE.parent / "support" / "record.py"), stack],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    path = GOLDEN / f"{stack}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(done.stdout)
    assert done.stdout == path.read_text(), f"{path.name} differs; read it, then UPDATE_GOLDEN=1"
    assert done.stderr == "", "the program warns"
