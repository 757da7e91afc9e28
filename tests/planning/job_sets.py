"""JobSets with exclusive topology, and the racks of nodes that they run on, for tests."""

from typing import Any

PREFIX = "alpha.jobset.sigs.k8s.io/"


def node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": allocatable},
    }


def job_set(name: str, jobs: int, pods: int, cpu: str = "1", **annotations: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": resources}],
    }
    job = {"parallelism": pods, "completions": pods, "template": {"spec": spec}}
    template = {
        "metadata": {
            "annotations": {f"{PREFIX}{key}": value for key, value in annotations.items()}
        },
        "spec": job,
    }
    replicated = [{"name": "w", "replicas": jobs, "template": template}]
    metadata = {"name": name, "annotations": {"ml-foundations/gang": "true"}}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return {**kind, "spec": {"replicatedJobs": replicated}}


RACKS = [node(f"n{rack}{number}", {"rack": f"r{rack}"}) for rack in range(2) for number in range(2)]
ALONE = {"exclusive-topology": "rack"}
