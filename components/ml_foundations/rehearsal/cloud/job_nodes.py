"""The nodes where the pods of Jobs ended, for the report: a pod is deleted with its node."""

from collections.abc import Mapping

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import labels_of, name_of
from ml_foundations.rehearsal.api import owners
from ml_foundations.rehearsal.cloud.autoscaler import is_finished
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller


class JobNodeRecorder(Controller):
    """Records by uid of a Job, the nodes where its pods ended, with their pools."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._jobs = cluster.watch("/apis/batch/v1/jobs")
        self._job_nodes: Mapping[str, Mapping[str, str]] = cluster.store.get("ran_on", {})

    def reconcile(self) -> None:
        """Record the pods that have ended, and forget the Jobs that are gone."""
        nodes = self.cluster.nodes.items()
        pools = {name_of(node): labels_of(node).get(labels.GKE_NODE_POOL, "") for node in nodes}
        jobs = {job["metadata"]["uid"] for job in self._jobs.items()}
        job_nodes = {uid: dict(self._job_nodes.get(uid, {})) for uid in jobs}
        removed = self.cluster.removed_pods
        gone = [removed.popleft() for _ in range(len(removed))]
        for pod in filter(is_finished, [*self.cluster.pods, *gone]):
            if node := pod["spec"].get("nodeName"):
                for uid in owners(pod) & jobs:
                    job_nodes[uid].setdefault(node, pools.get(node, ""))
        if job_nodes != self._job_nodes:
            self.cluster.store.put("ran_on", job_nodes)
            self._job_nodes = job_nodes
