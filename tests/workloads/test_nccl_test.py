"""NcclTest: the benchmark of a network between GPUs, and when it fails."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.fabric_pods import NCCL_BANDWIDTHS, NCCL_TEST_IMAGES
from ml_foundations.catalog.gpu_fabrics import GPU_FABRICS
from ml_foundations.catalog.machine_types import GPUS

from tests.support.refusing import refusal
from tests.workloads.building import container_of, nccl_spec

PRINTED = "#  size  busbw\\n 8589934592  188.73\\n# Avg bus bandwidth    : {}\\n"


def ran(tmp_path: Path, mpirun: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """What the script does in a pod, with commands in place of those of the image."""
    job = nccl_spec("tcpxo", gpu="H100-MEGA", nodes=3, **more).manifests()[-1]
    commands = tmp_path / "bin"
    commands.mkdir()
    # The second host is reached at the third attempt.
    ssh = f'echo "$@" >> {tmp_path}/ssh; case "$*" in *network-1*) [ -e {tmp_path}/up ] || {{ touch {tmp_path}/up; exit 1; }};; esac'
    for name, text in (("service", "true"), ("sleep", "true"), ("ssh", ssh), ("mpirun", mpirun)):
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    environment = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "JOB_COMPLETION_INDEX": "0",
    }
    command = container_of(job)["command"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("measured", "more", "code"),
    [
        ("188.8", {}, 0),
        ("169.9", {}, 0),
        ("169.8", {}, 1),
        ("4.1", {}, 1),
        ("4.1", {"benchmark": "all_reduce"}, 0),
        ("169.8", {"minimum_bus_bandwidth": 100}, 0),
        ("nan", {"minimum_bus_bandwidth": 100}, 1),
    ],
)
def test_it_fails_below_the_minimum(
    tmp_path: Path, measured: str, more: dict[str, Any], code: int
) -> None:
    done = ran(tmp_path, f"printf '{PRINTED.format(measured)}'", **more)
    assert done.returncode == code
    assert f"Avg bus bandwidth    : {measured}" in done.stdout
    assert ("The minimum is" in done.stdout) is bool(code)


def test_it_fails_if_the_benchmark_fails_or_measures_nothing(tmp_path: Path) -> None:
    failed = f"printf '{PRINTED.format('188.8')}'; exit 7"
    for index, mpirun in enumerate((failed, "true")):
        folder = tmp_path / str(index)
        folder.mkdir()
        assert ran(folder, mpirun).returncode in (1, 7)
        assert "touch" not in (folder / "ssh").read_text()


def test_the_first_pod_waits_for_the_others_and_counts_their_gpus(tmp_path: Path) -> None:
    done = ran(tmp_path, f"printf '{PRINTED.format('188.8')}'; echo \"$@\" > {tmp_path}/mpirun")
    assert done.returncode == 0, done.stderr
    hosts = [f"network-{index}.network slots=8" for index in range(3)]
    assert (tmp_path / "hosts").read_text().splitlines() == hosts
    calls = (tmp_path / "ssh").read_text().splitlines()
    assert len(calls) == 7, "four to find them, three to let them end"
    assert [call.split()[-3:] for call in calls[4:]] == [
        [f"network-{index}.network", "touch", f"{tmp_path}/passed"] for index in range(3)
    ]
    called = (tmp_path / "mpirun").read_text()
    assert "-np 24 " in called
    assert "-x NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY" in called
    assert "nccl-env-profile.sh" in called
    assert "all_gather_perf -b 8G -e 8G" in called


def other_pod(folder: Path) -> subprocess.Popen[bytes]:
    command = container_of(nccl_spec("managed", gpu="H200").manifests()[-1])["command"]
    quiet = command[2].replace("/scripts/container_entry.sh daemon &", "true")
    environment = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": "1", "TMPDIR": str(folder)}
    return subprocess.Popen([*command[:2], quiet], env=environment, start_new_session=True)


def test_the_other_pods_succeed_when_the_first_one_has_passed(tmp_path: Path) -> None:
    with other_pod(tmp_path) as pod:
        time.sleep(0.5)
        assert pod.poll() is None
        (tmp_path / "passed").touch()
        assert pod.wait(300) == 0


def test_the_other_pods_fail_when_they_are_stopped(tmp_path: Path) -> None:
    with other_pod(tmp_path) as pod:
        time.sleep(0.5)
        os.killpg(pod.pid, signal.SIGTERM)
        assert pod.wait(300) not in (0, None)


def test_no_pod_is_deleted_before_the_job_succeeds() -> None:
    """A success policy deletes pods, and after a conflict the Job controller finds them failed."""
    body = nccl_spec("tcpx", gpu="H100").manifests()[-1]["spec"]
    assert "successPolicy" not in body
    assert body["backoffLimit"] == 0


def test_the_time_of_the_benchmark_begins_when_all_pods_run() -> None:
    job = nccl_spec("tcpx", gpu="H100", run_seconds=600).manifests()[-1]
    assert "activeDeadlineSeconds" not in job["spec"]
    assert job["metadata"]["annotations"]["ml-foundations/run-seconds"] == "600"
    script = container_of(job)["command"][-1]
    waiting, _, running = script.partition("timeout 600 \\\nmpirun ")
    assert "until ssh" in waiting and running


@pytest.mark.parametrize(
    ("name", "gpu", "bandwidth"),
    [
        ("tcpx", "H100", 64.0),
        ("tcpxo", "H100-MEGA", 169.9),
        ("rdma", "H200", 299.0),
        ("managed", "B200", 0.0),
        ("tcpxo", ["H100-MEGA", "H200"], 0.0),
        ("tcpxo", None, 0.0),
    ],
)
def test_the_minimum_follows_from_the_known_bandwidth(
    name: str, gpu: Any, bandwidth: float
) -> None:
    spec = nccl_spec(name, gpu=gpu)
    assert spec.required_bus_bandwidth == bandwidth
    assert any("bus bandwidth" in warning for warning in spec.warnings()) == (not bandwidth)


def test_the_image_and_the_gpus_follow_from_the_network() -> None:
    for name in ("tcpx", "tcpxo", "rdma"):
        container = container_of(nccl_spec(name, gpu="H100").manifests()[-1])
        assert container["image"] == NCCL_TEST_IMAGES[name]
        # A default limit of the namespace would slow it down.
        wanted = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
        assert wanted.items() <= container["resources"]["limits"].items()
    mirrored = nccl_spec("tcpx", gpu="H100", image="mirror.example/nccl:1")
    assert container_of(mirrored.manifests()[-1])["image"] == "mirror.example/nccl:1"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gpu_fabric": None}, "gpu_fabric: is required: set gpu_network of the pool"),
        ({"nodes": 1}, "nodes: is 1, and the network is between nodes"),
        ({"gpus": 4}, "gpus: is 4, and whole nodes have 8"),
        ({"command": ["sh"]}, "command: belongs to the benchmark"),
        ({"arguments": ["-b"]}, "arguments: belongs to the benchmark"),
        ({"minimum_bus_bandwidth": 0}, "minimum_bus_bandwidth: input should be greater than 0"),
    ],
)
def test_what_is_no_test_is_refused(more: dict[str, Any], words: str) -> None:
    assert words in refusal(nccl_spec, "tcpxo", gpu="H100-MEGA", **more)


def test_every_fabric_has_an_image_and_every_bandwidth_a_gpu() -> None:
    assert NCCL_TEST_IMAGES.keys() == {fabric.kind for fabric in GPU_FABRICS.values()}
    assert NCCL_BANDWIDTHS.keys() <= GPUS.keys()
