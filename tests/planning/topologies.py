"""Nodes in blocks and racks, queues with a topology, and workloads that ask for it, for tests."""

from typing import Any

from tests.factories import (
    Manifest,
    cluster_wide,
    container,
    deployment,
    job,
    namespaced,
    node,
    pod,
    stateful_set,
    template,
)
from tests.planning.queues import FLAVOR, LOCAL, cluster_queue, waiting

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)
KUEUE = "kueue.x-k8s.io/podset-"


def topology(*levels: str, name: str = "racks") -> Manifest:
    found = [{"nodeLabel": level} for level in levels or LEVELS]
    return cluster_wide("kueue.x-k8s.io/v1beta2", "Topology", name, spec={"levels": found})


def queue(*levels: str, gpus: int = 1000) -> list[Manifest]:
    """A queue whose one flavor has a topology, with its LocalQueue."""
    flavor = {**FLAVOR, "spec": {**FLAVOR["spec"], "topologyName": "racks"}}
    return [topology(*levels), flavor, LOCAL, cluster_queue(gpus=gpus)]


def racks(*sizes: int, block: str = "b0", **labels: str) -> list[Manifest]:
    """Nodes of 8 GPUs in racks of these sizes, all in one block."""
    found: list[Manifest] = []
    for rack, size in enumerate(sizes):
        for number in range(size):
            own = {"gpu": "h100", BLOCK: block, RACK: f"{block}-r{rack}", **labels}
            found.append(node(f"{block}-r{rack}-n{number}", own, gpu="8"))
    return found


def asking(count: int, *, gpus: int = 8, name: str = "train", **annotations: Any) -> Manifest:
    """A gang in the queue; the keywords are Kueue's annotations about sets of pods."""
    pods = template({"app": name}, [container(gpu=gpus)])
    pods["metadata"]["annotations"] = {
        f"{KUEUE}{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    return waiting(job(name, count, pods, gang=True))


def with_leader(workers: int, *, level: str = RACK, leader: Manifest | None = None) -> Manifest:
    """A JobSet of a leader and its workers, in one group."""
    jobs: list[Manifest] = []
    for name, count, spec in (("leader", 1, leader or {}), ("workers", workers, {})):
        pods = template({"app": name}, [container(gpu=8)], restartPolicy="Never", **spec)
        pods["metadata"]["annotations"] = {
            f"{KUEUE}required-topology": level,
            f"{KUEUE}group-name": "ring",
        }
        made = {"parallelism": count, "completions": count, "template": pods}
        jobs.append({"name": name, "replicas": 1, "template": {"spec": made}})
    spec: dict[str, Any] = {"replicatedJobs": jobs}
    made = waiting(namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "ring", spec=spec))
    made["metadata"]["annotations"] = {"ml-foundations/gang": "true"}
    return made


def in_rack(gpus: int = 8) -> Manifest:
    made = template({"app": "web"}, [container(gpu=gpus)])
    made["metadata"]["annotations"] = {f"{KUEUE}required-topology": RACK}
    return made


def of_kind(kind: str, count: int) -> Manifest:
    """A workload whose sets of so many pods each ask for one rack."""
    if kind == "Pod":
        return pod("web", in_rack())
    if kind == "Deployment":
        return deployment("web", count, in_rack(), strategy={"type": "Recreate"})
    if kind == "StatefulSet":
        return stateful_set("web", count, in_rack())
    group = {"groupName": "g", "replicas": count, "maxReplicas": count, "template": in_rack()}
    group["rayStartParams"] = {}  # without it, Kueue writes null, which the API server refuses
    head = {"rayStartParams": {}, "template": template({"app": "web"}, [container(gpu=0)])}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [{**group, "minReplicas": count}]}
    own = {"entrypoint": "e", "shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode"}
    own |= {"rayClusterSpec": cluster}
    spec = own if kind == "RayJob" else {"rayClusterConfig": cluster}
    return namespaced("ray.io/v1", kind, "web", spec=cluster if kind == "RayCluster" else spec)
