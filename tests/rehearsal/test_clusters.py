"""A program with two clusters: each has a replica of its own, and the same app runs in both."""

import json
import re
from pathlib import Path

import pytest
from ml_foundations.planning.input.clusters import clusters_of
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud import replica
from ml_foundations.rehearsal.engine.dry_run import dry_run
from ml_foundations.rehearsal.layout import Rehearsal

from tests.rehearsal.test_any_program import KUBECONFIG, rehearse
from tests.support.processes import processes_naming
from tests.support.waiting import until

PROGRAM = (
    KUBECONFIG
    + """
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "gke-gcloud-auth-plugin"}}
for place in PLACES:
    at = gcp.Provider(place, region=place, project="acme")
    opts = pulumi.ResourceOptions(provider=at)
    made = gcp.container.Cluster(
        place, name="apps", location=f"{place}-b", remove_default_node_pool=True, initial_node_count=1,
        deletion_protection=False, opts=opts,
    )
    gpu = {"type": "nvidia-l4", "count": 1, "gpu_driver_installation_config": {"gpu_driver_version": "DEFAULT"}}
    nodes = gcp.container.NodePool(
        place, name="l4", cluster=made.id, node_count=1, opts=opts,
        node_config={"machine_type": "g2-standard-8", "guest_accelerators": [gpu]},
    )
    there = pulumi.ResourceOptions(provider=k8s.Provider(place, kubeconfig=kubeconfig(made, user)), depends_on=[nodes])
    labels = {"app": "chat"}
    container = {"name": "c", "image": "chat:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    deployment = {"selector": {"match_labels": labels}, "template": template}
    k8s.apps.v1.Deployment(f"{place}-chat", metadata={"name": "chat"}, spec=deployment, opts=there)
    service = {"selector": labels, "ports": [{"port": 80}], "type": "LoadBalancer"}
    k8s.core.v1.Service(f"{place}-chat", metadata={"name": "chat"}, spec=service, opts=there)
"""
)
PLACES = ("us-central1", "europe-west4")


@pytest.mark.usefixtures("tools")
def test_the_same_app_in_two_clusters(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: apps\nruntime: python\n")
    program = tmp_path / "__main__.py"
    program.write_text(f"PLACES = {PLACES}\n{PROGRAM}")
    rehearsal = Rehearsal.of("dev", tmp_path)
    try:
        done = rehearse(tmp_path, "up")
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(rehearse(tmp_path, "report", "--json").stdout)
        titles = {f"{place}-b/apps" for place in PLACES}
        pools = {(row["name"], row["nodes"], row["gpus_in_use"]) for row in report["pools"]}
        assert pools == {(f"{title}/l4", 1, 1) for title in titles}
        apps = {(row["namespace"], row["name"], row["state"]) for row in report["workloads"]}
        assert apps == {(f"{title}/default", "chat", "Ready") for title in titles}
        for title in titles:
            assert f"{title}/default" in done.stdout
        [other] = [each for each in rehearsal.replicas if each.cluster]
        assert f"kube-apiserver of {other.cluster}" in rehearse(tmp_path, "status").stdout

        again = rehearse(tmp_path, "up")
        assert "unchanged" in again.stdout
        assert not re.search(r"\d (created|updated|replaced|deleted)", again.stdout)

        # After a stop, which here is a kill, the next one starts both.
        for process in replica.processes(rehearsal):
            process.stop()
        again = rehearse(tmp_path, "up")
        assert again.returncode == 0, again.stdout + again.stderr
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        for each in rehearsal.replicas:
            api = Api(Access(each.kubeconfig))

            def is_ready(api: Api = api) -> bool:
                [deployment] = api.get(deployments)["items"]
                return deployment["status"].get("readyReplicas") == 1

            until(is_ready)

        # One goes, with all that is its own.
        left = "europe-west4" if "us-central1" in other.cluster else "us-central1"
        program.write_text(f"PLACES = ({left!r},)\n{PROGRAM}")
        done = rehearse(tmp_path, "up")
        assert done.returncode == 0, done.stdout + done.stderr
        assert not other.replica_dir.exists()
        assert not processes_naming(other.replica_dir)
        report = json.loads(rehearse(tmp_path, "report", "--json").stdout)
        assert {row["name"] for row in report["pools"]} == {"l4"}
    finally:
        rehearse(tmp_path, "down")
    assert not processes_naming(rehearsal.root)
    assert not rehearsal.root.parent.exists()


def test_a_dry_run_knows_the_cluster_of_each_object(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: apps\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    program = PROGRAM.replace("made.master_auth", "made.location")  # nobody fills it in
    (tmp_path / "__main__.py").write_text(f"PLACES = {PLACES}\n{program}")
    found = dry_run(Rehearsal.of("dev", tmp_path))
    homes = clusters_of(found.declared) or {}
    kinds = ("Deployment", "Service", "NodePool", "Cluster")
    for place in PLACES:
        urns = [urn for urn, title in homes.items() if title == f"cluster {place}-b/apps"]
        assert sorted(str(urn).split("::")[2].rpartition(":")[2] for urn in urns) == sorted(kinds)
