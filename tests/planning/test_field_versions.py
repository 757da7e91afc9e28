"""Kinds and fields that an older minor version of Kubernetes lacks, against a cluster's version."""

import subprocess
from typing import Any

import pytest
from ml_foundations.catalog.tables import rows
from ml_foundations.planning.input.field_catalog import has_field, schema
from ml_foundations.planning.input.program import CLUSTER
from ml_foundations.planning.rules import field_versions
from ml_foundations.planning.rules.field_versions import _fields, _steps, versions
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.rehearsal.tools import groups

from codegen import feature_gates
from tests.factories import Manifest, namespaced
from tests.support.stacks import stack_of

PACKAGE = "ml_foundations.planning.api_server"
WEIGHTS = {"volumes": [{"name": "w", "image": {"reference": "registry.example/w@sha256:0"}}]}
CONTAINERS: list[Any] = [{"name": "main", "image": "i"}]


def cluster(version: str = "", channel: str = "REGULAR") -> Manifest:
    least = {"name": "ml", "releaseChannel": {"channel": channel}}
    return least | ({"minMasterVersion": version} if version else {})


def pod(**spec: Any) -> Manifest:
    return namespaced("v1", "Pod", "p", spec={"containers": CONTAINERS, **spec})


def found(manifest: Manifest, *clusters: Manifest) -> list[Finding]:
    return list(versions(stack_of([manifest], *((CLUSTER, cluster) for cluster in clusters))))


@pytest.mark.parametrize(
    ("version", "severities"),
    [
        ("1.34", [Severity.ERROR]),
        ("1.34.1-gke.1829001", [Severity.ERROR]),
        ("", [Severity.WARNING]),
        ("1.35", []),
        ("1.35.0-gke.1171000", []),
        ("1.36", []),
    ],
)
def test_a_volume_of_an_image_needs_a_version(version: str, severities: list[Severity]) -> None:
    template = {"metadata": {}, "spec": {"containers": CONTAINERS, **WEIGHTS}}
    deployment = namespaced("apps/v1", "Deployment", "d", spec={"template": template})
    findings = found(deployment, cluster(version))
    assert [finding.severity for finding in findings] == severities
    for finding in findings:
        assert finding.path == "spec.template.spec.volumes[0].image"
        assert "needs Kubernetes 1.35 (ImageVolume)" in finding.message
        assert "refuses the object" in finding.message
        assert "1.35 or later" in finding.remedy


def test_a_field_that_is_dropped_keeps_nothing_from_running() -> None:
    [finding] = found(pod(resources={"limits": {"cpu": "1"}}), cluster("1.33"))
    assert finding.severity is Severity.WARNING
    assert "drops the field" in finding.message


@pytest.mark.parametrize(
    ("version", "severities"),
    [("1.33", [Severity.ERROR]), ("", [Severity.WARNING]), ("1.34", [])],
)
def test_a_kind_needs_a_version(version: str, severities: list[Severity]) -> None:
    claim = namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "gpu", spec={})
    assert [each.severity for each in found(claim, cluster(version))] == severities


def test_the_channel_decides_without_a_version() -> None:
    manifest = pod(hostUsers=False)
    assert found(manifest, cluster()) == []
    [finding] = found(manifest, cluster(channel="EXTENDED"))
    assert "its release channel still has older ones" in finding.message


def test_an_unseen_cluster_or_one_of_several_is_not_judged() -> None:
    assert found(pod(**WEIGHTS)) == []
    assert found(pod(**WEIGHTS), cluster("1.30"), cluster("1.36")) == []


def test_a_program_is_judged() -> None:
    workload = ("kubernetes:core/v1:Pod", pod(**WEIGHTS))
    verdicts = judge_program([(CLUSTER, cluster("1.34")), workload])
    assert "version" in {finding.rule for finding in verdicts.findings if finding.is_error}
    later = judge_program([(CLUSTER, cluster("1.35")), workload])
    assert "version" not in {finding.rule for finding in later.findings}


def value_with(type_: str, field: str, within: str, seen: frozenset[str]) -> Any:
    """The smallest value of a type in which a field of a type below it is set; None without one."""
    if within == type_:
        return {field: {"set": True}}
    for key, below in schema()["types"].get(within, {}).items():
        item = below.strip("[]{}")
        if item in seen or key == "status":
            continue
        if value := value_with(type_, field, item, seen | {item}):
            return {key: [value] if below.startswith("[") else value}
    return None


def test_each_gated_field_is_found_in_an_object() -> None:
    """A row whose type no kind leads to would be a rule that never speaks."""
    kinds = {kind: type_ for kind, type_ in schema()["kinds"].items() if type_ in _steps()}
    introduced = {row["kind"] for row in rows("introduced_kinds.csv", PACKAGE)}
    newest = cluster("1.29", channel="EXTENDED")
    outside = set[tuple[str, str]]()
    for type_, field in _fields():
        for kind, root in kinds.items():
            value = value_with(type_, field, root, frozenset({root}))
            if value is None or kind in introduced:
                continue
            version, _, name = kind.partition(" ")
            manifest: Any = {"apiVersion": version, "kind": name, "metadata": {"name": "x"}}
            [finding] = [
                each for each in found(manifest | value, newest) if each.path.endswith(field)
            ]
            assert finding.message, (kind, field)
            break
        else:
            outside.add((type_.partition(".")[0], field))
    # Those of DRA are in kinds that are introduced later than their version; others are in a status.
    assert {group for group, _ in outside} <= {"resource", "core", "storage"}
    assert {field for group, field in outside if group != "resource"} <= {"message", "errorCode"}


def test_each_row_names_a_field_of_the_schema() -> None:
    for row in rows("gated_fields.csv", PACKAGE):
        assert row["field"] in schema()["types"][row["type"]], row
        assert row["gate"], row
    for row in rows("introduced_kinds.csv", PACKAGE):
        assert row["kind"] in schema()["kinds"], row
    assert has_field("Pod", "spec.volumes[].image")


def test_the_version_of_a_gate_is_the_first_from_which_it_stays_on() -> None:
    text = """
	Late: {
		{Version: version.MustParse("1.31"), Default: false, PreRelease: featuregate.Alpha},
		{Version: version.MustParse("1.33"), Default: true, PreRelease: featuregate.Beta},
	},

	TakenBack: {
		{Version: version.MustParse("1.33"), Default: true, PreRelease: featuregate.Beta},
		{Version: version.MustParse("1.35"), Default: false, PreRelease: featuregate.Beta},
	},
"""
    assert feature_gates.on_since(text) == {"Late": 33, "TakenBack": None}


def test_the_tables_are_those_of_the_pinned_kubernetes() -> None:
    """A new gate in the code that drops fields needs its fields, or an entry that it has none."""
    try:
        is_there = feature_gates.module("k8s.io/kubernetes").is_dir()
    except (FileNotFoundError, subprocess.CalledProcessError):
        is_there = False
    if not is_there:
        pytest.skip("the source of Kubernetes is not on this machine")
    for path, text in feature_gates.files().items():
        assert path.read_text() == text, path


def test_what_a_later_version_has_on_is_not_known() -> None:
    spec = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}
    stateful_set = namespaced("apps/v1", "StatefulSet", "s", spec=spec)
    [finding] = found(stateful_set, cluster("1.36"))
    assert "before Kubernetes 1.37, MaxUnavailableStatefulSet is off by default" in finding.message
    assert not found(stateful_set, cluster("1.37"))
    _, minor, _ = groups.KUBERNETES.pinned("k8s.io/kubernetes").split(".")
    assert f"1.{int(minor) + 1}" == field_versions._NEXT
