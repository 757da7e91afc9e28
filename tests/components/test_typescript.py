"""The example in TypeScript, by the compiler, against the SDK that Pulumi generates from the components' schema."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rehearsal import toolchain
from rehearsal.toolchain import Group
from tests.conftest import CHECKOUT

GENERATOR = Group(
    "sdk-nodejs", {"sdk-nodejs": "sdk-nodejs"}, minutes=1.5, folder=CHECKOUT / "tests" / "components" / "sdk-nodejs"
)
SDK = "sdks/ml-foundations"

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js with npm is not installed")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its SDK, as ``pulumi package add`` and ``pulumi install`` leave it."""
    folder = tmp_path_factory.mktemp("typescript") / "example"
    shutil.copytree(CHECKOUT / "examples" / "typescript", folder)
    generator = toolchain.build(GENERATOR) / "sdk-nodejs"
    run(folder, str(generator), str(CHECKOUT / "components" / "schema.json"), SDK)
    run(folder, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", f"./{SDK}")
    compiled = compile_(folder / SDK, folder)
    assert compiled.returncode == 0, compiled.stdout
    return folder


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def compile_(project: Path, example: Path) -> subprocess.CompletedProcess[str]:
    compiler = example / "node_modules" / ".bin" / "tsc"
    return subprocess.run([compiler, "-p", project], capture_output=True, text=True, check=False)


def test_the_example_type_checks(example: Path) -> None:
    compiled = compile_(example, example)
    assert compiled.returncode == 0, compiled.stdout


def test_a_wrong_argument_does_not(example: Path) -> None:
    program = example / "index.ts"
    right = program.read_text()
    program.write_text(right.replace("gpus: 4", 'gpus: "four"'))
    try:
        assert "Type 'string' is not assignable to type 'number'" in compile_(example, example).stdout
    finally:
        program.write_text(right)
