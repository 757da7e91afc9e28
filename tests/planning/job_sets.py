"""JobSets with exclusive topology, and the racks of nodes that they run on, for tests."""

from tests.factories import Manifest, cluster_wide, node

PREFIX = "alpha.jobset.sigs.k8s.io/"


def job_set(name: str, jobs: int, pods: int, cpu: str = "1", **annotations: str) -> Manifest:
    """A gang without a namespace; the keywords are annotations of its Jobs."""
    main = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    made = {"restartPolicy": "Never", "containers": [main]}
    job = {"parallelism": pods, "completions": pods, "template": {"spec": made}}
    metadata = {"annotations": {f"{PREFIX}{key}": value for key, value in annotations.items()}}
    replicated = {"name": "w", "replicas": jobs, "template": {"metadata": metadata, "spec": job}}
    gang = {"name": name, "annotations": {"ml-foundations/gang": "true"}}
    spec = {"replicatedJobs": [replicated]}
    return cluster_wide("jobset.x-k8s.io/v1alpha2", "JobSet", name, metadata=gang, spec=spec)


RACKS = [
    node(f"n{rack}{number}", {"rack": f"r{rack}"}, memory="8Gi")
    for rack in range(2)
    for number in range(2)
]
ALONE = {"exclusive-topology": "rack"}
