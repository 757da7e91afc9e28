"""The program on a cluster that is there already: no cluster, no node pools, everything above them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.checkout import CHECKOUT

RECORD = CHECKOUT / "tests" / "support" / "record.py"


def recorded(config: dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(yaml.safe_dump({"config": config}))
    done = subprocess.run([sys.executable, RECORD, "lab", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_the_program_makes_what_is_above_the_cluster(tmp_path: Path) -> None:
    dev = yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.dev.yaml").read_text())["config"]
    cluster = {"ml-foundations:cluster": {"name": "lab", "kubeconfig": "/clusters/lab", "context": "lab-admin"}}
    found = recorded(dev | cluster, tmp_path)
    assert not [item for item in found if item["type"].startswith("gcp:")]
    provider = next(item for item in found if item["type"] == "pulumi:providers:kubernetes")
    assert provider["inputs"]["kubeconfig"] == "/clusters/lab"
    assert provider["inputs"]["context"] == "lab-admin"
    assert provider["inputs"]["clusterIdentifier"] == "lab"
    ours = {item["name"] for item in found}
    assert {"gpu-operator-release", "research-finetune-job", "serving-chat-deployment"} <= ours
