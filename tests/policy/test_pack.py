"""The policy pack, as the CLI runs it on a program in YAML: what it reports, and that it stops a preview."""

import subprocess
from collections.abc import Callable

import pytest
import yaml

from rehearsal import environment
from rehearsal.layout import Rehearsal
from rehearsal.toolchain import Tools
from tests.conftest import Checkout, Cluster

JOB = {
    "type": "kubernetes:batch/v1:Job",
    "properties": {
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                    ],
                }
            }
        },
    },
}


@pytest.fixture
def preview(
    tools: Tools, cluster: Cluster, copy_checkout: Callable[[], Checkout]
) -> Callable[[dict[str, object]], str]:
    checkout = copy_checkout()

    def run(resources: dict[str, object]) -> str:
        project = checkout.root / "program"
        project.mkdir(exist_ok=True)
        (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "p", "runtime": "yaml", "resources": resources}))
        rehearsal = Rehearsal.of("dev", project)
        environment.install(rehearsal, tools)
        settings = environment.process_environment(rehearsal, tools) | {"KUBECONFIG": str(cluster.kubeconfig)}
        pulumi = [rehearsal.bin_dir / "pulumi", "--non-interactive", "--color=never"]
        subprocess.run([*pulumi, "stack", "select", "--create", "dev"], cwd=project, env=settings, check=True)
        command = [*pulumi, "preview", "--stack", "dev", "--policy-pack", checkout.root / "policy"]
        done = subprocess.run(command, cwd=project, env=settings, capture_output=True, text=True, check=False)
        return f"{done.returncode}\n{done.stdout}{done.stderr}"

    return run


def test_advice_is_shown_and_stops_nothing(preview: Callable[[dict[str, object]], str]) -> None:
    said = preview({"train": JOB})
    assert said.startswith("0\n"), said
    assert "image-pinned" in said
    assert "Job train: spec.template.spec.containers[0].image: pytorch has no tag. Name a tag or a digest." in said
    assert "job-deadline" in said


def test_a_mandatory_rule_stops_the_preview(preview: Callable[[dict[str, object]], str]) -> None:
    spec = JOB["properties"]["spec"]["template"]["spec"]
    privileged = {**spec["containers"][0], "image": "pytorch:1", "securityContext": {"privileged": True}}
    job = yaml.safe_load(yaml.safe_dump(JOB))
    job["properties"]["spec"]["template"]["spec"]["containers"] = [privileged]
    said = preview({"train": job})
    assert not said.startswith("0\n"), said
    assert "pod-security" in said
    assert "containers[0].securityContext.privileged: is privileged" in said
