"""Fixes name fields of objects that users wrote: all kinds of workloads, and what keeps them out."""

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    GPU,
    Manifest,
    anti_affinity,
    claim,
    cluster_wide,
    namespaced,
    node,
    quota,
    workload,
)
from tests.support.cluster_objects import kueue, mounted, namespace, taint, volume

KEY = "example.com/pool"
CONTAINER = {"name": "node", "image": "registry.example/a:1", "resources": {"limits": {GPU: "8"}}}
PODS: Manifest = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
ENDING: Manifest = {**PODS, "spec": {**PODS["spec"], "restartPolicy": "Never"}}
SELECTOR = {"selector": {"matchLabels": {"app": "a"}}}
GANG = {"ml-foundations/gang": "true"}
HEAD: Manifest = {"spec": {"containers": [{"name": "head", "image": "registry.example/a:1"}]}}
STEP = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
_PATH = re.compile(
    r"(?<![\w.])((?:spec|scheduling|metadata)\.[^\s,()]*\w\]?)(?: of (\w+) ([\w-]+))?"
)


def of_job_set(**job: Any) -> Manifest:
    replicated = {"name": "node", "replicas": job.pop("replicas", 1)}
    return {"replicatedJobs": [{**replicated, "template": {"spec": {**job, "template": ENDING}}}]}


def ray(**group: Any) -> Manifest:
    workers = {"groupName": "gpu", "rayStartParams": {}, "template": PODS, "maxReplicas": 9}
    head = {"rayStartParams": {}, "template": HEAD}
    return {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [workers | group]}


def train_job(trainer: Manifest, policy: Manifest) -> list[Manifest]:
    job = {"name": "node", "template": {"metadata": STEP, "spec": {"template": PODS}}}
    made = {"spec": {"replicatedJobs": [job]}}
    spec = {"mlPolicy": {"torch": {}, **policy}, "template": made}
    version = "trainer.kubeflow.org/v1alpha1"
    runtime = cluster_wide(version, "ClusterTrainingRuntime", "torch", spec=spec)
    own = {"runtimeRef": {"name": "torch"}, "trainer": trainer}
    return [workload(version, "TrainJob", "a", own), runtime]


def annotated(manifest: Manifest, **more: str) -> Manifest:
    manifest["metadata"]["annotations"] = {**GANG, **more}
    return manifest


JOB_SET, LWS = "jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1"


def job(parallelism: int) -> list[Manifest]:
    spec = {"parallelism": parallelism, "completions": 4, "template": ENDING}
    return [annotated(workload("batch/v1", "Job", "a", spec))]


def job_set(**fields: Any) -> list[Manifest]:
    return [annotated(workload(JOB_SET, "JobSet", "a", of_job_set(**fields)))]


def groups(size: int, replicas: int = 1, **templates: Manifest) -> list[Manifest]:
    parts = {"size": size, "workerTemplate": PODS, **templates}
    spec = {"replicas": replicas, "leaderWorkerTemplate": parts}
    return [workload(LWS, "LeaderWorkerSet", "a", spec)]


def ray_cluster(**group: Any) -> list[Manifest]:
    return [workload("ray.io/v1", "RayCluster", "a", ray(**group))]


FOUR = {"replicas": 4, "template": PODS, **SELECTOR}
RAY_JOB = {"entrypoint": "a", "rayClusterSpec": ray(replicas=4), "shutdownAfterJobFinishes": True}
KINDS: dict[str, list[Manifest]] = {
    "Deployment": [workload("apps/v1", "Deployment", "a", FOUR)],
    "StatefulSet": [workload("apps/v1", "StatefulSet", "a", FOUR)],
    "Job": job(parallelism=4),
    "Job-completions": job(parallelism=9),
    "JobSet-replicas": job_set(replicas=4),
    "JobSet-pods": job_set(parallelism=4, completions=4),
    "JobSet-both": job_set(replicas=2, parallelism=2, completions=2),
    "LeaderWorkerSet-replicas": groups(2, replicas=4),
    "LeaderWorkerSet-size": groups(4),
    "LeaderWorkerSet-leader": groups(4, leaderTemplate=HEAD),
    "RayCluster-replicas": ray_cluster(replicas=4),
    "RayCluster-least": ray_cluster(replicas=1, minReplicas=4),
    "RayCluster-hosts": ray_cluster(replicas=1, numOfHosts=4),
    "RayJob": [workload("ray.io/v1", "RayJob", "a", RAY_JOB)],
    "TrainJob": train_job({"numNodes": 4}, {}),
    "TrainJob-runtime": train_job({}, {"numNodes": 4}),
    "TrainJob-resources": train_job(
        {"numNodes": 4, "resourcesPerNode": CONTAINER["resources"]}, {}
    ),
}


def templates(tree: Any) -> list[Manifest]:
    """Return the pods' specs with GPUs in an object."""
    if isinstance(tree, list):
        return [spec for item in tree for spec in templates(item)]
    if not isinstance(tree, dict):
        return []
    found = [tree] if CONTAINER in tree.get("containers", []) else []
    return found + [spec for value in tree.values() for spec in templates(value)]


def edited(documents: list[Manifest], **fields: Any) -> list[Manifest]:
    documents = copy.deepcopy(documents)
    for spec in templates(documents):
        spec.update(fields)
    return documents


def nodes(count: int, gpus: int = 8, **labels: str) -> list[Manifest]:
    return [
        node(f"n{n}", {KEY: "there", **labels}, gpu=str(gpus), cpu="99", memory="999Gi")
        for n in range(count)
    ]


def in_queue(documents: list[Manifest]) -> list[Manifest]:
    documents = copy.deepcopy(documents)
    documents[0]["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "q"
    quotas = [{"name": name, "nominalQuota": "9999Gi"} for name in ("cpu", "memory", GPU)]
    flavors = [{"name": "f", "resources": quotas}]
    group = {"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}
    return [
        *documents,
        kueue("ResourceFlavor", "f", nodeLabels={KEY: "elsewhere"}),
        kueue("ClusterQueue", "c", namespaceSelector={}, resourceGroups=[group]),
        namespaced("kueue.x-k8s.io/v1beta2", "LocalQueue", "q", spec={"clusterQueue": "c"}),
        namespace(),
    ]


def with_runtime_class(documents: list[Manifest]) -> list[Manifest]:
    scheduling = {"nodeSelector": {KEY: "elsewhere"}}
    of_class = cluster_wide(
        "node.k8s.io/v1", "RuntimeClass", "r", handler="r", scheduling=scheduling
    )
    return [*edited(documents, runtimeClassName="r"), of_class]


def with_volume(documents: list[Manifest]) -> list[Manifest]:
    many: Any = {"mode": "ReadWriteMany"}
    kept = volume("p", **many, storageClassName="b", nfs={"server": "a", "path": "/"})
    return [*edited(documents, **mounted()), kept, claim(**many, storageClassName="")]


def with_init_container(documents: list[Manifest]) -> list[Manifest]:
    resources = {"requests": {GPU: "16"}, "limits": {GPU: "16"}}
    return edited(
        documents, initContainers=[{"name": "first", "image": "a", "resources": resources}]
    )


def tainted(count: int) -> list[Manifest]:
    return [{**one, "spec": {"taints": [taint("t")]}} for one in nodes(count)]


FEW = quota(hard={f"requests.{GPU}": "8"})


CAUSES: dict[str, Any] = {
    "count": lambda documents: [*documents, *nodes(2)],
    "count-of-one": lambda documents: [*documents, *nodes(1)],
    "labels": lambda documents: [*edited(documents, nodeSelector={KEY: "elsewhere"}), *nodes(9)],
    "resources": lambda documents: [*documents, *nodes(9, gpus=4)],
    "init-container": lambda documents: [*with_init_container(documents), *nodes(9)],
    "flavor": lambda documents: [*in_queue(documents), *nodes(9)],
    "runtime-class": lambda documents: [*with_runtime_class(documents), *nodes(9)],
    "volume": lambda documents: [*with_volume(documents), *nodes(9)],
    "taint": lambda documents: [*documents, *tainted(9)],
    "spread": lambda documents: [*edited(documents, affinity=anti_affinity(KEY, "a")), *nodes(9)],
    "quota": lambda documents: [*documents, *nodes(9), FEW, namespace()],
}


def at(tree: Any, path: str) -> bool:
    """Return whether a path leads to a field; keys with dots count as one."""
    if not path:
        return True
    if isinstance(tree, list):
        index, _, rest = path[1:].partition("]")
        return path[0] == "[" and int(index) < len(tree) and at(tree[int(index)], rest.lstrip("."))
    if not isinstance(tree, dict):
        return False
    return any(
        path.startswith(key)
        and path[len(key) : len(key) + 1] in ("", ".", "[")
        and at(value, path[len(key) :].lstrip("."))
        for key, value in tree.items()
    )


def named(documents: list[Manifest], finding: Finding) -> list[tuple[str, Manifest]]:
    """Return the fields that a finding names, each with the object that has to have it."""
    kind, _, name = finding.object.partition(" ")
    texts = [finding.path.partition(" of ")[0] and finding.path, finding.remedy, finding.message]
    fields: list[tuple[str, Manifest]] = []
    for path, of_kind, of_name in _PATH.findall(" ; ".join(texts)):
        wanted = (of_kind, of_name) if of_kind else (kind, name.rpartition("/")[2])
        [owner] = [one for one in documents if (one["kind"], one["metadata"]["name"]) == wanted]
        fields.append((path, owner))
    return fields


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fix_names_fields_that_the_user_wrote(kind: str, cause: str) -> None:
    documents = CAUSES[cause](copy.deepcopy(KINDS[kind]))
    verdicts = judge_documents(documents)
    (item,) = [one for one in verdicts.workloads]
    errors = [one for one in item.reasons if one.is_error]
    assert errors, item
    for finding in errors:
        for path, owner in named(documents, finding):
            # Tolerations may be added, also to a pod that has no template.
            is_added = path.endswith(".tolerations")
            assert is_added or at(owner, path), f"{path} of {owner['kind']}: {finding}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_number_of_pods_is_low_enough(kind: str) -> None:
    documents = [*copy.deepcopy(KINDS[kind]), *nodes(2)]
    (item,) = judge_documents(documents).workloads
    [finding, *_] = [one for one in item.reasons if "lower" in one.remedy]
    fields, count = re.findall(r"lower (.*) to (\d+)", finding.remedy)[0]
    for path, owner in named(documents, replace(finding, path="", message="", remedy=fields)):
        put(owner, path, int(count))
    (item,) = judge_documents(documents).workloads
    assert item.verdict == "fits", item.reasons


def put(tree: Any, path: str, value: int) -> None:
    *parents, last = re.findall(r"[\w-]+", path)
    for key in parents:
        tree = tree[int(key) if isinstance(tree, list) else key]
    tree[last] = value
