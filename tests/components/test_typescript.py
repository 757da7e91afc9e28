"""The example in TypeScript, by the compiler, against the SDK that Pulumi generates from the components' schema."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.groups import Group
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT

GENERATOR = Group(
    "sdk-nodejs",
    {"sdk-nodejs": "sdk-nodejs"},
    minutes=1.5,
    folder=CHECKOUT / "tests" / "components" / "sdk-nodejs",
)
SDK = "sdks/ml-foundations"
UNREACHABLE = re.compile(r"code (E40[37]|EAI_AGAIN|ECONN\w+|ENOTFOUND|ETIMEDOUT)")
"""What npm says where it cannot reach its registry."""

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None, reason="Node.js with npm is not installed"
)


@pytest.fixture(scope="module")
def example(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its SDK, as ``pulumi package add`` and ``pulumi install`` leave it."""
    folder = tmp_path_factory.mktemp("typescript") / "example"
    shutil.copytree(CHECKOUT / "examples" / "typescript", folder)
    try:
        generator = toolchain.build(GENERATOR) / "sdk-nodejs"
    except RehearsalError as error:
        if "cannot be reached" in str(error):
            pytest.skip(str(error))
        raise
    done = run(folder, str(generator), str(CHECKOUT / "components" / "schema.json"), SDK)
    assert done.returncode == 0, done.stderr
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock")
    done = run(folder, "npm", "install", *quiet, f"./{SDK}")
    if UNREACHABLE.search(done.stderr):
        pytest.skip(f"npm's registry cannot be reached: {done.stderr}")
    assert done.returncode == 0, done.stderr
    compiled = compile_(folder / SDK, folder)
    assert compiled.returncode == 0, compiled.stdout
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def compile_(project: Path, example: Path) -> subprocess.CompletedProcess[str]:
    return run(example, "node_modules/.bin/tsc", "-p", str(project))


def test_the_example_type_checks(example: Path) -> None:
    compiled = compile_(example, example)
    assert compiled.returncode == 0, compiled.stdout


def test_a_wrong_argument_does_not(example: Path) -> None:
    program = example / "index.ts"
    right = program.read_text()
    program.write_text(right.replace("gpus: 4", 'gpus: "four"'))
    try:
        wrong = "Type 'string' is not assignable to type 'Input<number"
        assert wrong in compile_(example, example).stdout
    finally:
        program.write_text(right)
