"""What the README shows is true: its program runs, its files exist, its error is the error."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()

HARNESS = """
import asyncio
import pulumi
from pulumi.runtime.stack import run_pulumi_func

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args):
        print(args.typ)
        return args.name, args.inputs
    def call(self, args):
        raise AssertionError(args.token)

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
pulumi.runtime.set_mocks(Mocks())
source = open({path!r}).read()

async def program():
    await run_pulumi_func(lambda: exec(source, {{}}))

loop.run_until_complete(program())
"""


def test_the_shortest_program_declares_what_it_says(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(block)
    code = HARNESS.format(path=str(program))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"kubernetes:core/v1:Namespace", "kubernetes:batch/v1:Job"} <= set(done.stdout.split())


def test_every_link_leads_to_a_file() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_error_that_is_shown_is_the_error() -> None:
    from ml_foundations.component.spec import check
    from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec

    given = {"pool_name": "a100", "project": "p", "location": "us-central1", "cluster_name": "c"}
    given |= {"node_service_account": "s", "machine_type": "a2-highgpu-3g", "max_nodes": 0}
    try:
        check(GpuNodePoolSpec, "GpuNodePool a100", given)
    except Exception as error:
        assert str(error) in README
