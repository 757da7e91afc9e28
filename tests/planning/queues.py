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

FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "h100"},
    "spec": {"nodeLabels": {"gpu": "h100"}, "tolerations": [{"operator": "Exists"}]},
}
LOCAL = namespaced(
    "kueue.x-k8s.io/v1beta2", "LocalQueue", "training", spec={"clusterQueue": "team"}
)


def cluster_queue(name: str = "team", gpus: int = 16, **quota: int) -> Manifest:
    resources = [{"name": GPU, "nominalQuota": gpus, **quota}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": resources}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": [group]},
    }


def cohort(name: str, gpus: int, parent: str | None = None, **quota: int) -> Manifest:
    """A Cohort with its own GPUs."""
    groups = cluster_queue(gpus=gpus, **quota)["spec"]["resourceGroups"]
    spec = {"resourceGroups": groups} | ({"parentName": parent} if parent else {})
    return {**FLAVOR, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


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
    train = job("train", pods, template(containers=[container(gpu=8)]), gang=True)
    train["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    return train


def flavor(name: str, gpus: int = 8) -> list[Manifest]:
    """A flavor with a node of so many GPUs."""
    made = {**FLAVOR, "metadata": {"name": name}, "spec": {"nodeLabels": {"gpu": name}}}
    return [made, pool(name, 1, {"gpu": name}, gpu=str(gpus))]


def offering(*flavors: str, name: str = "team", gpus: int = 8, **spec: Any) -> Manifest:
    """A queue with as many GPUs of each flavor."""
    made = cluster_queue(name)
    offered = [
        {"name": each, "resources": [{"name": GPU, "nominalQuota": gpus}]} for each in flavors
    ]
    return {
        **made,
        "spec": {
            **made["spec"],
            "resourceGroups": [{"coveredResources": [GPU], "flavors": offered}],
            **spec,
        },
    }


def waiting(made: Manifest, queue: str = "training") -> Manifest:
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return made


def ring(*replicas: int) -> Manifest:
    """A JobSet of pods with 8 GPUs each."""
    made = job("ring", 1, template(containers=[container(gpu=8)]))["spec"] | {"completions": 1}
    jobs = [
        {"name": f"j{index}", "replicas": count, "template": {"spec": made}}
        for index, count in enumerate(replicas)
    ]
    return waiting(
        namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "ring", spec={"replicatedJobs": jobs})
    )


def server(name: str, gpus: int, queue: str = "training") -> Manifest:
    return waiting(
        deployment(
            name, 1, template({"app": name}, [container(gpu=gpus)]), strategy={"type": "Recreate"}
        ),
        queue,
    )


def configured(text: str) -> Manifest:
    """The ConfigMap that Kueue reads."""
    return namespaced(
        "v1", "ConfigMap", "kueue-manager-config", data={"controller_manager_config.yaml": text}
    )


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
