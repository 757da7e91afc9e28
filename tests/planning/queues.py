"""Kueue's objects, and workloads that wait in its queues, for tests."""

from typing import Any

from tests.factories import (
    GPU,
    Manifest,
    container,
    deployment,
    job,
    namespaced,
    pod,
    pool,
    template,
)
from tests.support.cluster_objects import kueue, using

FLAVOR = kueue(
    "ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, tolerations=[{"operator": "Exists"}]
)
LOCAL = namespaced(
    "kueue.x-k8s.io/v1beta2", "LocalQueue", "training", spec={"clusterQueue": "team"}
)


def queue_of(group: Manifest, name: str = "team", **spec: Any) -> Manifest:
    """A ClusterQueue with one group of resources."""
    given = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": [group]} | spec
    return kueue("ClusterQueue", name, **given)


def cluster_queue(name: str = "team", gpus: int = 16, **quota: int) -> Manifest:
    resources = [{"name": GPU, "nominalQuota": gpus, **quota}]
    flavors = [{"name": "h100", "resources": resources}]
    return queue_of({"coveredResources": [GPU], "flavors": flavors}, name)


def cohort(name: str, gpus: int, parent: str | None = None, **quota: int) -> Manifest:
    """A Cohort with its own GPUs."""
    groups = cluster_queue(gpus=gpus, **quota)["spec"]["resourceGroups"]
    above = {"parentName": parent} if parent else {}
    return kueue("Cohort", name, resourceGroups=groups, **above)


def of_cohort(name: str, queue: Manifest) -> Manifest:
    """A queue in another cohort."""
    queue["spec"]["cohortName"] = name
    return queue


BORROWING: list[tuple[list[Manifest], bool]] = [
    ([cluster_queue()], False),
    ([cluster_queue(), cluster_queue("other", 8)], True),
    ([cluster_queue(borrowingLimit=7), cluster_queue("other", 8)], False),
    ([cluster_queue(), cluster_queue("other", 8, lendingLimit=7)], False),
    ([cluster_queue(), of_cohort("others", cluster_queue("other", 8))], False),
    ([cluster_queue(), cohort("all", 8)], True),
    ([cluster_queue(), cohort("all", 7)], False),
    ([cluster_queue(borrowingLimit=7), cohort("all", 8)], False),
    ([cluster_queue(), cohort("all", 0, "root"), cohort("root", 8)], True),
    ([cluster_queue(), cohort("all", 4, "root"), cohort("root", 3)], False),
    ([cluster_queue(), cohort("all", 0, "root", borrowingLimit=7), cohort("root", 8)], False),
    ([cluster_queue(), cohort("all", 0, "root"), cohort("others", 8, "root")], True),
    ([cluster_queue(), cohort("all", 0, "root"), cohort("others", 8, "root", lendingLimit=7)], False),
    ([cluster_queue(), cohort("all", 0, "root"), cohort("others", 0, "root"), of_cohort("others", cluster_queue("other", 8))], True),
    ([cluster_queue(), cohort("all", 0, "root"), cohort("others", 4, "root", lendingLimit=7), of_cohort("others", cluster_queue("other", 8))], False),
]  # fmt: skip
"""ClusterQueues and Cohorts, and whether 24 GPUs are available in the ClusterQueue with a quota of 16."""


def queued(pods: int) -> Manifest:
    return waiting(job("train", pods, using(gpu=8), gang=True))


def flavor(name: str, gpus: int = 8) -> list[Manifest]:
    """A flavor with a node of so many GPUs."""
    made = kueue("ResourceFlavor", name, nodeLabels={"gpu": name})
    return [made, pool(name, 1, {"gpu": name}, gpu=str(gpus))]


def offering(*flavors: str, name: str = "team", gpus: int = 8, **spec: Any) -> Manifest:
    """A queue with as many GPUs of each flavor."""
    resources = [{"name": GPU, "nominalQuota": gpus}]
    offered = [{"name": each, "resources": resources} for each in flavors]
    return queue_of({"coveredResources": [GPU], "flavors": offered}, name, **spec)


def waiting(made: Manifest, queue: str = "training") -> Manifest:
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return made


def ring(*replicas: int) -> Manifest:
    """A JobSet of pods with 8 GPUs each."""
    made = job("ring", 1, using(gpu=8))["spec"] | {"completions": 1}
    jobs = [
        {"name": f"j{index}", "replicas": count, "template": {"spec": made}}
        for index, count in enumerate(replicas)
    ]
    spec = {"replicatedJobs": jobs}
    return waiting(namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "ring", spec=spec))


def server(name: str, gpus: int, queue: str = "training") -> Manifest:
    pods = using({"app": name}, gpu=gpus)
    return waiting(deployment(name, 1, pods, strategy={"type": "Recreate"}), queue)


def configured(text: str) -> Manifest:
    """The ConfigMap that Kueue reads."""
    data = {"controller_manager_config.yaml": text}
    return namespaced("v1", "ConfigMap", "kueue-manager-config", data=data)


GROUP, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


def member(
    name: str, count: Any = None, group: Any = "ring", *, by_annotation: bool = False
) -> Manifest:
    made = waiting(pod(name, template({}, [container(gpu=8)], restartPolicy="Never")))
    annotations = {} if count is None else {COUNT: count}
    if by_annotation:
        annotations[GROUP] = group
    elif group:
        made["metadata"]["labels"][GROUP] = group
    made["metadata"]["annotations"] = annotations
    return made


def pod_group(pods: int, count: Any) -> list[Manifest]:
    return [member(f"w{index}", count) for index in range(pods)]
