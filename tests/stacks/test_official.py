"""Every stack passes a preview on Pulumi's own plugins, without a cloud: no error, and no warning of ours."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import Checkout
from tests.support.official import needs_all
from tests.support.stack_files import with_own_values

DUMMY = {
    "GOOGLE_OAUTH_ACCESS_TOKEN": "dummy",
    "GOOGLE_PROJECT": "dummy",
    "PULUMI_CONFIG_PASSPHRASE": "",
    "PULUMI_GCP_DISABLE_GLOBAL_PROJECT_WARNING": "true",
    "KUBECONFIG": "/nowhere",
}


@needs_all
@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_preview(stack: str, copy_checkout: Callable[[], Checkout], tmp_path: Path) -> None:
    checkout = copy_checkout()
    settings = os.environ | DUMMY | {"PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    file = checkout.root / "stacks" / f"Pulumi.{stack}.yaml"
    file.write_text(with_own_values(file.read_text()))

    def pulumi(*args: str) -> subprocess.CompletedProcess[str]:
        command = ["pulumi", *args, "--stack", stack, "--non-interactive"]
        return subprocess.run(
            command, cwd=checkout.root, env=settings, capture_output=True, text=True, check=False
        )

    subprocess.run(["pulumi", "stack", "init", stack], cwd=checkout.root, env=settings, check=True)
    done = pulumi("preview", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    preview = json.loads(done.stdout)
    assert {step["op"] for step in preview["steps"]} == {"create"}
    assert [
        item for item in preview.get("diagnostics", []) if item.get("severity") == "error"
    ] == []
