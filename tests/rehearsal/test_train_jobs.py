"""The real controllers of Kubeflow Trainer and JobSet beside a real control plane, brought by the components."""

import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from kubernetes import client
from ml_foundations.kinds.kind_files import kind_named
from ml_foundations.planning.input.train_jobs import with_job_sets
from ml_foundations.planning.model import workloads
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.project import Project
from tests.support.trials import sizes
from tests.support.waiting import until

CONTROLLER = (
    "from ml_foundations import JobSetController, TrainerController\n"
    "jobset = JobSetController('jobset', {}, here)\n"
    "trainer = TrainerController('trainer', {}, options(depends_on=[jobset]))\n"
)
JOB_SET_LABEL = kind_named("JobSet").name_label
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
API = "trainer.kubeflow.org/v1alpha1"


def test_its_webhooks_stop_no_pods_of_others_when_it_is_down(
    project: Project, tools: Tools
) -> None:
    """They match TrainJobs and runtimes alone. It finds its certificate in a folder of this rehearsal."""
    project.up(CONTROLLER)
    processes = {process.name: process for process in controllers.processes(project.rehearsal)}
    core = client.CoreV1Api(project.cluster.api)
    pod: Any = {
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    }
    processes["kubeflow-trainer"].stop()
    try:
        for namespace in ("red", "default", "kube-system"):
            core.create_namespaced_pod(namespace, pod)
            core.delete_namespaced_pod("probe", namespace, grace_period_seconds=0)
        runtime = {"apiVersion": API, "kind": "TrainingRuntime", "metadata": {"name": "torch"}}
        job = {"name": "node", "template": {"spec": {"template": pod}}}
        runtime["spec"] = {"template": {"spec": {"replicatedJobs": [job]}}}
        custom = client.CustomObjectsApi(project.cluster.api)
        with pytest.raises(client.ApiException, match="failed calling webhook"):
            custom.create_namespaced_custom_object(
                "trainer.kubeflow.org", "v1alpha1", "red", "trainingruntimes", runtime
            )
    finally:
        controllers.resume(project.rehearsal, tools)


def random_job(random: Random, index: int) -> list[dict[str, Any]]:
    """A TrainJob and its runtime with any of the fields that decide about its pods."""

    def requests() -> dict[str, str]:
        return {"cpu": f"{random.randint(1, 9)}m", "memory": f"{random.randint(1, 9)}Mi"}

    container = {"name": "node", "image": "i", "resources": {"requests": requests()}}
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    template: dict[str, Any] = {"metadata": {"labels": {"own": random.choice("abc")}}, "spec": pod}
    body: dict[str, Any] = {"template": template}
    made = {"metadata": {"labels": {STEP: "trainer"}}, "spec": body}
    if random.random() < 0.3:
        body["parallelism"] = random.randint(1, 3)
    spec: dict[str, Any] = {
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": made}]}}
    }
    if random.random() < 0.3:
        spec["template"]["metadata"] = {"labels": {"common": random.choice("xy")}}
    if random.random() < 0.7:
        policy: dict[str, Any] = {"torch": {}} if random.random() < 0.7 else {}
        if random.random() < 0.7:
            policy["numNodes"] = random.randint(1, 3)
        if policy:
            spec["mlPolicy"] = policy
    trainer: dict[str, Any] = {}
    if random.random() < 0.6:
        trainer["numNodes"] = random.randint(1, 3)
    if random.random() < 0.5:
        trainer["resourcesPerNode"] = {"requests": requests()}
    name = {"name": f"t{index}", "namespace": "red"}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": f"t{index}"}
    job = {"runtimeRef": reference} | ({"trainer": trainer} if trainer else {})
    return [
        {"apiVersion": API, "kind": "TrainingRuntime", "metadata": name, "spec": spec},
        {"apiVersion": API, "kind": "TrainJob", "metadata": name, "spec": job},
    ]


def planned(documents: list[dict[str, Any]]) -> Counter[str]:
    """What planning thinks of the pods: requests and labels."""
    [job_set] = [
        item for item in with_job_sets(documents, lambda *_: ()) if item["kind"] == "JobSet"
    ]
    found = workloads.workload(job_set, {}, lambda _: "0")
    counts = Counter[str]()
    for pods in found.pods:
        counts[_shown(pods.spec, pods.labels)] += pods.count
    return +counts


def made(project: Project, documents: list[dict[str, Any]]) -> Counter[str]:
    """What the controllers have made, with the labels that planning knows."""
    [job_set] = [
        item for item in with_job_sets(documents, lambda *_: ()) if item["kind"] == "JobSet"
    ]
    found = workloads.workload(job_set, {}, lambda _: "0")
    # JobSet also adds labels whose values follow from these.
    known = found.pods[0].labels.keys()
    name, counts = job_set["metadata"]["name"], Counter[str]()
    listed = project.kubectl("get", "pods", "-n", "red", "-l", f"{JOB_SET_LABEL}={name}")
    for pod in listed["items"]:
        own = {key: value for key, value in pod["metadata"]["labels"].items() if key in known}
        counts[_shown(pod["spec"], own)] += 1
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
    return counts


def is_created(api: Api, path: str, document: dict[str, Any]) -> bool:
    """Create an object. Trainer's webhook may not have seen the runtime of a TrainJob yet."""
    try:
        api.create(f"{path}/{document['kind'].lower()}s", document)
    except ApiError as error:
        assert "must be created before the TrainJob" in str(error)
        return False
    return True


def _shown(spec: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    requests = [container["resources"]["requests"] for container in spec["containers"]]
    return json.dumps([requests, dict(labels)], sort_keys=True)


@pytest.mark.parametrize("count", sizes(12, 200))
def test_the_controllers_make_what_planning_thinks(project: Project, count: int) -> None:
    """Pods, their requests, labels and owners."""
    project.up(CONTROLLER)
    random, api = Random(count), Api(Access(project.cluster.kubeconfig))
    path = f"/apis/{API}/namespaces/red"
    for first in range(0, count, 20):
        jobs = [random_job(random, index) for index in range(first, min(first + 20, count))]
        try:
            for documents in jobs:
                for document in documents:
                    until(lambda document=document: is_created(api, path, document))
            for documents in jobs:
                until(
                    lambda documents=documents: made(project, documents) == planned(documents),
                    f"{json.dumps(documents)}: planning thinks {planned(documents)}",
                )
        finally:
            for documents in jobs:
                for document in reversed(documents):
                    name = document["metadata"]["name"]
                    api.delete(f"{path}/{document['kind'].lower()}s/{name}")
        until(lambda: not project.kubectl("get", "pods", "-n", "red", "-l", JOB_SET_LABEL)["items"])
