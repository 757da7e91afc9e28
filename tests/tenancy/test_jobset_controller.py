"""JobSetController: the chart that brings JobSet, in the version that a rehearsal runs."""

from ml_foundations.catalog import versions as _versions
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys
from ml_foundations.rehearsal.tools import groups
from ml_foundations.tenancy.jobset_controller import JobSetController

from tests.support.declaring import declared, inputs


def test_it_is_the_chart_with_the_users_values() -> None:
    made = declared(lambda: JobSetController("jobs", {"values": {"controller": {"replicas": 2}}}))
    release = inputs(made["jobs-release"])
    assert release["chart"] == "oci://registry.k8s.io/jobset/charts/jobset"
    assert (release["version"], release["namespace"], release["createNamespace"]) == (
        "0.11.1",
        "jobset-system",
        True,
    )
    assert release["values"] == {"controller": {"replicas": 2}}
    assert not list(unknown_keys("jobset", release["values"]))
    assert list(unknown_keys("jobset", {"replicas": 2}))
    assert "jobs-release" not in declared(lambda: JobSetController("jobs", {"install": False}))


def test_a_rehearsal_runs_the_same_version() -> None:
    assert groups.JOBSET.pinned("sigs.k8s.io/jobset") == f"v{_versions.JOBSET.version}"
