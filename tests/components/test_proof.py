"""The proof in a program of one's own: resources that are not our components, and values that are not known yet."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import Checkout
from tests.support.previewing import Said, preview

PROGRAM = '''
from decimal import Decimal

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from ml_foundations.proof import Proof

proof = Proof({"node-selector": "the label comes with the next pool"}, Decimal(1000))
cluster = gcp.container.Cluster("c", name="c", location="us-central1-a", remove_default_node_pool=True, initial_node_count=1)
gcp.container.NodePool(
    "big", name="big", cluster=cluster.name, location="us-central1-a", node_count=4,
    node_config={"machine_type": "n2-standard-32", "labels": {"disk": "ssd"}},
)
here = pulumi.ResourceOptions(provider=k8s.Provider("k", kubeconfig=cluster.endpoint))


def server(name, replicas, cpu, **spec):
    """A Deployment in the team's namespace."""
    container = {"name": "main", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    spec = {"replicas": replicas, "selector": {"match_labels": {"app": name}}, "template": template}
    k8s.apps.v1.Deployment(name, metadata={"name": name, "namespace": "team"}, spec=spec, opts=here)


server("fits", 2, "1")
server("large", 1, "40")
server("picky", 1, "1", node_selector={"disk": "hdd"})
server("later", cluster.endpoint.apply(len), "1")
k8s.core.v1.ResourceQuota(
    "quota", metadata={"name": "quota", "namespace": "team"}, spec={"hard": {"pods": "50"}}, opts=here
)
proof.finish()
'''


@pytest.fixture(scope="module")
def said(tools: Tools, copy_checkout: Callable[[], Checkout]) -> Said:
    project = copy_checkout().root / "program"
    return preview(written(project), tools)


def written(project: Path) -> Path:
    project.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": "../.venv"}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "program", "runtime": runtime}))
    (project / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": {"gcp:project": "some-project"}}))
    (project / "__main__.py").write_text(PROGRAM)
    return project


def test_what_can_never_run_fails_the_preview_with_every_finding(said: Said) -> None:
    assert not said.ok
    findings = [text for text in said.of("error") if text.endswith("]")]
    assert [text.rpartition(" [")[2] for text in sorted(findings)] == [
        "resources, spec.template.spec.containers[0].resources.requests.cpu]",
        "monthly-budget, monthly_budget]",
    ]
    assert any(
        "the stack cannot run as it is declared: 2 finding(s) above say why" in text for text in said.of("error")
    )
    assert not any("Traceback" in text for text in said.of("error"))


def test_an_accepted_rule_is_shown_with_its_reason(said: Said) -> None:
    (accepted,) = [text for text in said.of("warning") if text.startswith("accepted")]
    assert accepted.startswith("accepted, because the label comes with the next pool: Deployment team/picky:")


def test_what_is_not_known_yet_is_undetermined_and_no_error(said: Said) -> None:
    (unknown,) = [text for text in said.of("warning") if "[unknown-value" in text]
    assert unknown.startswith("Deployment team/later: spec.replicas is not known yet")


def test_what_fits_is_not_mentioned(said: Said) -> None:
    assert not any("team/fits" in item["message"] for item in said.diagnostics)
