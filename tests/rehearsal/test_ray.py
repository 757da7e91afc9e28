"""The real operator of Ray beside a real control plane, brought by the component."""

import copy
import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.labels import ZONE
from ml_foundations.planning.model import workloads
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.ray_dashboard import RayDashboard
from ml_foundations.rehearsal.report.contents import collect

from tests.support.controlled import cluster_of
from tests.support.h100_replica import H100_FLAVOR
from tests.support.project import Project
from tests.support.trials import sizes
from tests.support.waiting import until

CLUSTER, GROUP, TYPE = (f"ray.io/{key}" for key in ("cluster", "group", "node-type"))
OPERATOR = (
    "from ml_foundations import RayCluster, RayJob, RayOperator, TrainingQueue\n"
    "ray = RayOperator('ray', {}, here)\n"
)
WORK: dict[str, Any] = {
    "namespace": "red",
    "image": "rayproject/ray:2.52.0-gpu",
    "workers": 2,
    "gpus": 8,
    "cpu": "8",
    "memory": "64Gi",
    "head_cpu": "1",
    "head_memory": "2Gi",
}
TOKEN: dict[str, Any] = {"ray_version": "2.52.0", "auth_options": {}}
QUEUE = {
    "flavors": [H100_FLAVOR],
    "teams": [{"namespace": "red", "cpu": "99", "memory": "8Ti", "gpus": {"h100": 16}}],
    "kinds": ["RayJob", "RayCluster"],
}


def pods(project: Project) -> list[dict[str, Any]]:
    listed = project.kubectl("get", "pods", "-n", "red")["items"]
    return [pod for pod in listed if not pod["metadata"].get("deletionTimestamp")]


def by_type(project: Project) -> Counter[str]:
    return Counter(pod["metadata"]["labels"].get(TYPE, "submitter") for pod in pods(project))


def row(project: Project) -> tuple[str, str, str]:
    [found] = [row for row in collect(project.rehearsal).workloads if row.namespace == "red"]
    return found.kind, found.state, found.reason


def test_a_cluster_has_a_head_and_workers_on_gpu_nodes(project: Project) -> None:
    body = f"{OPERATOR}RayCluster('nb', {WORK!r}, options(depends_on=[ray]))"
    project.up(body)
    until(lambda: row(project) == ("RayCluster", "Ready", "2/2 workers"))
    assert by_type(project) == {"head": 1, "worker": 2}
    workers = [pod for pod in pods(project) if pod["metadata"]["labels"][TYPE] == "worker"]
    assert len({pod["spec"]["nodeName"] for pod in workers}) == 2
    assert "updated" not in project.up(body)


def test_the_operator_gives_the_token_of_a_cluster_to_its_pods(project: Project) -> None:
    project.up(f"{OPERATOR}RayCluster('nb', {WORK | TOKEN!r}, options(depends_on=[ray]))")
    until(lambda: row(project) == ("RayCluster", "Ready", "2/2 workers"))
    assert [*project.kubectl("get", "secret", "nb", "-n", "red")["data"]] == ["auth_token"]
    for pod in pods(project):
        env = {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        reference = {"name": "nb", "key": "auth_token"}
        assert env["RAY_AUTH_TOKEN"]["valueFrom"] == {"secretKeyRef": reference}


def queued(*names: str) -> str:
    jobs = ""
    for name in names:
        job = WORK | {"entrypoint": ["python", "score.py"], "queue": "training"}
        job |= TOKEN if name == "b" else {}
        jobs += f"RayJob('{name}', {job!r}, options(depends_on=[ray, queue]))\n"
    return f"{OPERATOR}queue = TrainingQueue('ml', {QUEUE!r}, options(depends_on=[ray]))\n{jobs}"


def test_jobs_in_a_queue_run_one_after_the_other(project: Project) -> None:
    """Kueue starts a head, its workers and its submitter together, and the next job after its end."""
    dashboard = RayDashboard(cluster_of(Mock(), rehearsal=project.rehearsal))
    project.up(queued("a", "b"))

    def states() -> list[str]:
        dashboard.reconcile()
        return [row.state for row in collect(project.rehearsal).workloads if row.kind == "RayJob"]

    most = 0

    def have_ended() -> bool:
        nonlocal most
        seen = states()
        most = max(most, seen.count("Running"))
        return seen == ["Completed", "Completed"]

    until(have_ended)
    # A look may miss the moment in which one runs, and would not miss two that run for long.
    assert most <= 1, "the queue has the GPUs of one job"
    until(lambda: not by_type(project)["worker"])


def random_cluster(random: Random) -> dict[str, Any]:
    """The spec of a RayCluster with any of the fields that decide about its pods."""

    def template() -> dict[str, Any]:
        requests = {"cpu": f"{random.randint(1, 400)}m", "memory": f"{random.randint(1, 400)}Mi"}
        container = {"name": "ray", "image": "i", "resources": {"requests": requests}}
        # In SidecarMode, a head is not started again, and kwok would end it.
        stays = {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}
        metadata = {"labels": {"own": random.choice("abc")}, "annotations": stays}
        pod: dict[str, Any] = {"metadata": metadata}
        pod["spec"] = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
        if random.random() < 0.3:
            init = copy.deepcopy(container) | {"name": "init"}
            pod["spec"]["initContainers"] = [init]
        return pod

    groups: list[dict[str, Any]] = []
    for index in range(random.randint(0, 2)):
        group: dict[str, Any] = {"groupName": f"g{index}", "rayStartParams": {}}
        group["template"] = template()
        group |= {"minReplicas": 0, "maxReplicas": 3}
        ranges = {
            **{"replicas": (0, 4), "minReplicas": (0, 1)},
            **{"maxReplicas": (1, 3), "numOfHosts": (1, 2)},
        }
        for field, (least, most) in ranges.items():
            if random.random() < 0.6:
                group[field] = random.randint(least, most)
        groups.append(group)
    head = {"rayStartParams": {}, "template": template()}
    cluster: dict[str, Any] = {"headGroupSpec": head, "workerGroupSpecs": groups}
    if random.random() < 0.5:
        cluster["enableInTreeAutoscaling"] = random.random() < 0.8
        own = {"requests": {"cpu": "7m", "memory": "9Mi"}}
        cluster["autoscalerOptions"] = random.choice([{}, {"resources": own}])
    return cluster


def random_object(random: Random, kind: str, index: int) -> dict[str, Any]:
    spec = random_cluster(random)
    if kind == "RayJob":
        spec = {"entrypoint": "sleep 1", "rayClusterSpec": spec}
        mode = random.choice([None, "K8sJobMode", "InteractiveMode", "SidecarMode"])
        if mode:
            spec["submissionMode"] = mode
        if mode == "InteractiveMode":
            del spec["entrypoint"]
    if kind == "RayService":
        spec = {"rayClusterConfig": spec, "serveConfigV2": "applications: []"}
    metadata = {"name": f"r{index}", "namespace": "red"}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def planned(document: dict[str, Any]) -> Counter[str]:
    """What planning thinks of the pods: requests and labels."""
    found = workloads.workload(document, {}, lambda _: "0")
    counts = Counter[str]()
    for group in found.pods:
        known = {key: value for key, value in group.labels.items() if key != CLUSTER}
        counts[_shown(group.spec, known)] += group.count
    return +counts


def made(document: dict[str, Any], everything: list[dict[str, Any]]) -> Counter[str]:
    """What the operator has made for an object, with the labels that planning knows."""
    found = workloads.workload(document, {}, lambda _: "0")
    differing = workloads.differing_labels(found) | {ZONE, CLUSTER}
    counts, name = Counter[str](), document["metadata"]["name"]
    for pod in everything:
        labels = pod["metadata"]["labels"]
        owner = labels.get(CLUSTER, labels.get("batch.kubernetes.io/job-name", ""))
        if owner == name or owner.rpartition("-")[0] == name:
            own = {key: value for key, value in labels.items() if key not in differing}
            counts[_shown(pod["spec"], own)] += 1
            [reference] = pod["metadata"]["ownerReferences"]
            assert reference["kind"] == ("RayCluster" if CLUSTER in labels else "Job")
    return counts


def _shown(spec: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    requests = [
        container.get("resources", {}).get("requests", {})
        for field in ("initContainers", "containers")
        for container in spec.get(field, [])
    ]
    return json.dumps([requests, labels], sort_keys=True)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
@pytest.mark.parametrize("count", sizes(10, 200))
def test_the_operator_makes_what_planning_thinks(project: Project, kind: str, count: int) -> None:
    """Pods, their requests, labels and owners, and the Services that quotas count."""
    project.up(OPERATOR)
    random, api = Random(f"{kind}{count}"), Api(Access(project.cluster.kubeconfig))
    path = f"/apis/ray.io/v1/namespaces/red/{kind.lower()}s"
    described = described_kinds()[kind]
    for first in range(0, count, 20):
        documents = [
            random_object(random, kind, index) for index in range(first, min(first + 20, count))
        ]
        try:
            for document in documents:
                api.create(path, document)
            for document in documents:
                until(
                    lambda item=document: made(item, pods(project)) == planned(item),
                    f"{json.dumps(document)}: planning thinks {planned(document)}",
                )
                wanted = described.objects_created(document, 1)["services"]
                # That of the job comes when a user submits it.
                wanted -= document["spec"].get("submissionMode") == "InteractiveMode"
                # Those of Serve come once its applications run.
                wanted -= 2 * (kind == "RayService")
                until(
                    lambda item=document, wanted=wanted: services(project, item) == wanted,
                    f"{json.dumps(document)}: {wanted} Services",
                )
        finally:
            for document in documents:
                api.delete(f"{path}/{document['metadata']['name']}")
        until(lambda: not pods(project))


def services(project: Project, document: dict[str, Any]) -> int:
    """The number of Services of an object, and of its RayCluster."""
    count, name = 0, document["metadata"]["name"]
    for service in project.kubectl("get", "services", "-n", "red")["items"]:
        cluster = service["spec"].get("selector", {}).get(CLUSTER, "")
        count += cluster == name or cluster.rpartition("-")[0] == name
    return count
