"""LeaderWorkerSetController: the chart that brings LeaderWorkerSet, in the version that a rehearsal runs."""

from ml_foundations.catalog import versions as _versions
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys
from ml_foundations.rehearsal.tools import groups
from ml_foundations.tenancy.leader_worker_set_controller import LeaderWorkerSetController

from tests.support.declaring import declared, inputs


def test_it_is_the_chart_with_the_users_values() -> None:
    made = declared(lambda: LeaderWorkerSetController("lws", {"values": {"replicaCount": 2}}))
    release = inputs(made["lws-release"])
    assert release["chart"] == "oci://registry.k8s.io/lws/charts/lws"
    assert (release["version"], release["namespace"], release["createNamespace"]) == (
        "0.9.0",
        "lws-system",
        True,
    )
    assert release["values"] == {"replicaCount": 2}
    assert not list(unknown_keys("lws", release["values"]))
    assert list(unknown_keys("lws", {"replicas": 2}))
    assert "lws-release" not in declared(
        lambda: LeaderWorkerSetController("lws", {"install": False})
    )


def test_a_rehearsal_runs_the_same_version() -> None:
    assert groups.LWS.pinned("sigs.k8s.io/lws") == f"v{_versions.LWS.version}"
