"""The policy pack, as the CLI runs it on a program in YAML: what it reports, and that it stops a preview."""

import subprocess
from collections.abc import Callable

import pytest
import yaml
from ml_foundations.rehearsal.engine import environment, installation, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import Checkout
from tests.support.cluster import Cluster
from tests.support.previewing import write
from tests.support.stack_files import sections

JOB = {
    "type": "kubernetes:batch/v1:Job",
    "properties": {
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "pytorch",
                            "resources": {"limits": {"nvidia.com/gpu": "1"}},
                        }
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
        (project / "Pulumi.yaml").write_text(
            yaml.safe_dump({"name": "p", "runtime": "yaml", "resources": resources})
        )
        rehearsal = Rehearsal.of("dev", project)
        installation.install(rehearsal, tools)
        rehearsal.kubeconfig.write_text(cluster.kubeconfig.read_text())
        settings = environment.process_environment(rehearsal)
        subprocess.run(
            [*pulumi(rehearsal), "stack", "select", "--create", "dev"],
            cwd=project,
            env=settings,
            check=True,
        )
        return judged(rehearsal, checkout, settings)

    return run


def pulumi(rehearsal: Rehearsal) -> list[str]:
    return [str(rehearsal.bin_dir / "pulumi"), "--non-interactive", "--color=never"]


def judged(rehearsal: Rehearsal, checkout: Checkout, settings: dict[str, str]) -> str:
    """Exit code and words of a preview with the policy pack."""
    command = [
        *pulumi(rehearsal),
        "preview",
        "--stack",
        "dev",
        "--policy-pack",
        str(checkout.root / "policy"),
    ]
    done = subprocess.run(
        command, cwd=rehearsal.project, env=settings, capture_output=True, text=True, check=False
    )
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_advice_is_shown_and_stops_nothing(preview: Callable[[dict[str, object]], str]) -> None:
    said = preview({"train": JOB})
    assert said.startswith("0\n"), said
    assert "image-pinned" in said
    assert (
        "Job train: spec.template.spec.containers[0].image: pytorch has no tag. Name a tag or a digest."
        in said
    )
    assert "job-deadline" in said


def test_a_mandatory_rule_stops_the_preview(preview: Callable[[dict[str, object]], str]) -> None:
    spec = JOB["properties"]["spec"]["template"]["spec"]
    privileged = {
        **spec["containers"][0],
        "image": "pytorch:1",
        "securityContext": {"privileged": True},
    }
    job = yaml.safe_load(yaml.safe_dump(JOB))
    job["properties"]["spec"]["template"]["spec"]["containers"] = [privileged]
    said = preview({"train": job})
    assert not said.startswith("0\n"), said
    assert "pod-security" in said
    assert "containers[0].securityContext.privileged: breaks Pod Security baseline" in said


QUOTA = {
    "type": "kubernetes:core/v1:ResourceQuota",
    "properties": {
        "metadata": {"name": "quota", "namespace": "ml"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    },
}


def test_the_proof_stops_the_preview_of_a_yaml_program(
    preview: Callable[[dict[str, object]], str],
) -> None:
    said = preview({"train": JOB, "quota": QUOTA})
    assert not said.startswith("0\n"), said
    assert (
        "error quota: Job ml/train: it needs 1 requests.nvidia.com/gpu, and ResourceQuota quota leaves 0"
        in said
    )
    assert "Raise requests.nvidia.com/gpu of ResourceQuota quota to 1, or ask for less." in said


def test_nothing_is_proved_if_the_nodes_are_unknown(
    preview: Callable[[dict[str, object]], str],
) -> None:
    said = preview({"train": JOB})
    assert said.startswith("0\n"), said
    assert "warning unknown-value: Job ml/train:" in said


def test_the_pack_sees_the_pools_of_a_program(
    tools: Tools, copy_checkout: Callable[[], Checkout]
) -> None:
    """The stack file accepts what the pack does not."""
    checkout = copy_checkout()
    given = sections()
    gang = {"image": "i:1", "nodes": 4, "gpu": "A100", "gpus": 2, "cpu": "8", "memory": "64Gi"}
    given["teams"]["research"]["distributedTrainings"] = {"align": gang}
    given["teams"]["research"]["quota"]["gpus"] = 16  # for align and finetune together
    write(checkout, given | {"proof": {"accept": {"nodes": "a reservation comes in May"}}})
    rehearsal = Rehearsal.of("dev", checkout.root)
    installation.install(rehearsal, tools)
    stack.create(rehearsal)
    said = judged(rehearsal, checkout, environment.process_environment(rehearsal))
    assert not said.startswith("0\n"), said
    assert "error nodes: Job research/align: each pod needs 2 nvidia.com/gpu" in said
    assert said.count("error ") == 1 + said.count("an unhandled error "), said


def test_each_cluster_is_judged_by_its_provider(
    preview: Callable[[dict[str, object]], str],
) -> None:
    resources: dict[str, object] = {}
    for name, machine in (("east", "e2-standard-4"), ("west", "e2-standard-16")):
        place = f"us-{name}1-b"
        made = {"name": name, "location": place, "removeDefaultNodePool": True}
        config = {"machineType": machine}
        pool = {
            "cluster": f"${{{name}.id}}",
            "location": place,
            "nodeCount": 1,
            "nodeConfig": config,
        }
        limits = {"requests": {"cpu": "8"}}
        pod = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i:1", "resources": limits}]},
        }
        resources |= {
            name: {
                "type": "gcp:container:Cluster",
                "properties": {**made, "initialNodeCount": 1, "project": "acme-ml"},
            },
            f"{name}-pool": {
                "type": "gcp:container:NodePool",
                "properties": {**pool, "project": "acme-ml"},
            },
            f"{name}-there": {
                "type": "pulumi:providers:kubernetes",
                "properties": {"kubeconfig": f"${{{name}.endpoint}}"},
            },
            f"{name}-web": {
                "type": "kubernetes:core/v1:Pod",
                "properties": pod,
                "options": {"provider": f"${{{name}-there}}"},
            },
        }
    said = preview(resources)
    assert "Pod default/web in cluster us-east1-b/east" in said
    assert "Pod default/web in cluster us-west1-b/west" not in said
