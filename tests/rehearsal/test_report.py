"""The report's rows: what each kind of workload comes to."""

import pytest
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.report import contents

from tests.support.cluster import Cluster

NAMESPACE = "reported"
POD = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {GPU_RESOURCE: "1"}}}]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": POD}


@pytest.fixture
def api(cluster: Cluster) -> Api:
    api = Api(Access(cluster.kubeconfig))
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return api


def rows(cluster: Cluster) -> dict[str, tuple[str, bool]]:
    """The state of each workload, and whether it keeps the rehearsal from being well."""
    seen = contents.collect(cluster.rehearsal)
    return {item.kind: (item.state, item in seen.unwell) for item in seen.workloads if item.namespace == NAMESPACE}


def test_a_suspended_cron_job_is_well(api: Api, cluster: Cluster) -> None:
    runs = {"spec": {"template": {"spec": POD | {"restartPolicy": "Never"}}}}
    spec = {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": runs}
    api.ensure(f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs", {"metadata": {"name": "nightly"}, "spec": spec})
    assert rows(cluster)["CronJob"] == ("Suspended", False)


def test_a_replica_set_of_ones_own_is_a_workload(api: Api, cluster: Cluster) -> None:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}
    api.ensure(f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets", {"metadata": {"name": "set"}, "spec": spec})
    assert rows(cluster)["ReplicaSet"] == ("Pending", True)
