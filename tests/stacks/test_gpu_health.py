"""The monitor of the prod stack prints what DCGM reports of a GPU that is not well, and nothing else."""

import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT

SCRIPT = (CHECKOUT / "stacks" / "scripts" / "gpu_health.sh").read_text()
TOOLS = """
NODE_NAME=gpu-1
sleep() {{ checks=$((${{checks:-0}} + 1)); [ $checks -lt 5 ]; }}
nv-hostengine() {{ exec sleep 60 > /dev/null; }}
trap 'kill $(jobs -p) 2> /dev/null' EXIT
dcgmi() {{ [ "$*" = "health --set a" ] || echo "{answer}"; }}
"""


def printed(tmp_path: Path, answer: str, driver: bool = True) -> str:
    device = tmp_path / "nvidiactl"
    device.touch() if driver else None
    script = TOOLS.format(answer=answer) + SCRIPT.replace("/dev/nvidiactl", str(device))
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.parametrize(
    "answer", ["| Overall Health            | Healthy |", "Overall Health: Healthy"]
)
def test_it_is_quiet_while_all_gpus_are_well(answer: str, tmp_path: Path) -> None:
    assert printed(tmp_path, answer) == ""


@pytest.mark.parametrize(
    "answer", ["| Overall Health | Failure |", "Overall Health: Warning", "Error: no engine"]
)
def test_it_prints_what_is_wrong(answer: str, tmp_path: Path) -> None:
    found = printed(tmp_path, answer)
    assert found.startswith(f"unhealthy GPU on gpu-1\n{answer}\n")


def test_it_waits_for_the_driver(tmp_path: Path) -> None:
    assert printed(tmp_path, "", driver=False) == "waiting for the driver on gpu-1\n"
