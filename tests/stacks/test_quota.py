"""The quotas and the APIs of the shipped stacks, as ``ml-foundations quota`` prints them."""

import json
import re
import subprocess
from typing import Any

import pytest
from ml_foundations.catalog.tables import rows

from tests.support.checkout import CHECKOUT, COMMAND

BASE = {
    "artifactregistry", "binaryauthorization", "cloudresourcemanager", "compute", "container", "containersecurity",
    "iam", "iamcredentials", "logging", "monitoring",
}  # fmt: skip
"""What every GkeCluster needs."""
STACKS = {
    "dev": (BASE | {"file"}, {"NVIDIA_L4_GPUS": 4, "NVIDIA_A100_GPUS": 4}),
    "staging": (BASE | {"file"}, {"NVIDIA_T4_GPUS": 4, "PREEMPTIBLE_NVIDIA_A100_GPUS": 4}),
    "prod": (
        BASE | {"file", "cloudkms"},
        {
            "GPUS-PER-GPU-FAMILY-per-project-region gpu_family=NVIDIA_H100": 32,
            "NVIDIA_A100_80GB_GPUS": 16,
            "NVIDIA_L4_GPUS": 16,
            "EnterpriseStorageGibPerRegion": 13312,
        },
    ),
}


def quota(*arguments: str) -> str:
    command = [COMMAND, "quota", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_shipped_stack_needs(stack: str) -> None:
    apis, most = STACKS[stack]
    told: dict[str, Any] = json.loads(quota("--stack", stack, "--json"))
    assert told["apis"].keys() == {f"{api}.googleapis.com" for api in apis}
    needs = {need["name"]: need["at_most"] for need in told["quota"]}
    assert needs | most == needs
    assert not [need for need in told["quota"] if "not counted" in need["note"]]


def test_the_table_and_the_command_that_enables_the_apis() -> None:
    shown = quota("--stack", "dev")
    assert re.search(r"^us-central1 +NVIDIA_L4_GPUS +0 +4 +GPUs *$", shown, re.MULTILINE), shown
    assert re.search(
        r"^gcloud services enable \\\n( +\w+\.googleapis\.com \\\n)+ +--project PROJECT$",
        shown,
        re.MULTILINE,
    )


def test_a_stack_that_is_not_there_is_named() -> None:
    command = [COMMAND, "quota", "--stack", "none"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'no stack "none"' in done.stderr


def test_every_google_cloud_type_in_use_has_its_api() -> None:
    goldens = (CHECKOUT / "tests" / "golden").rglob("*.yaml")
    types = {
        type_ for file in goldens for type_ in re.findall(r"type: (gcp:\S+)", file.read_text())
    }
    without = [
        type_
        for type_ in types
        if not any(type_.startswith(row["type"]) for row in rows("apis.csv"))
    ]
    assert len(types) > 7
    assert not without


def test_the_walk_through_has_the_gpus_of_the_table() -> None:
    page = (CHECKOUT / "docs" / "walk-through.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| GPU quota |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")[1:]]
    for cell, (_, most) in zip(cells, STACKS.values(), strict=True):
        gpus = [count for name, count in most.items() if "NVIDIA" in name]
        assert sorted(map(int, re.findall(r"\b(\d+) (?=`)", cell))) == sorted(gpus)
