"""The embedded kubernetes plugin, by real ``pulumi`` runs of small programs on a bare replica."""

import base64
import gzip
import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rehearsal import stack
from rehearsal.layout import Rehearsal
from rehearsal.plugins.kubernetes.helm import unknown_keys
from rehearsal.plugins.kubernetes.provider import KubernetesProvider
from rehearsal.plugins.servicer import UNKNOWN, Diff, Properties, Resource, State
from rehearsal.toolchain import Tools
from tests.conftest import Cluster
from tests.rehearsal.project import Project
from tests.waiting import until


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project"), cluster, tools)
    yield project
    project.up("")


CONFIG_MAP = """
k8s.core.v1.ConfigMap("settings", metadata={{"name": "settings", "labels": {{"level": "{level}"}}}}, data={{"a": "1"}},
                      opts=here)
"""


def level_of(project: Project) -> str:
    return project.kubectl("get", "configmap", "settings")["metadata"]["labels"]["level"]


def test_create_unchanged_update_and_delete(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    made = project.kubectl("get", "configmap", "settings")
    assert (level_of(project), made["data"]) == ("1", {"a": "1"})
    assert "3 unchanged" in project.up(CONFIG_MAP.format(level="1"))
    assert "1 updated" in project.up(CONFIG_MAP.format(level="2"))
    assert level_of(project) == "2"
    project.up("")
    assert project.kubectl("get", "configmap", "settings") is None


AUTONAMED = """
m = k8s.core.v1.ConfigMap("auto", metadata={"labels": {"l": "x"}}, data={"a": "1"}, opts=here)
pulumi.export("name", m.metadata.name)
"""


def name_of(project: Project) -> str:
    """The name that the program exports."""
    return project.pulumi("stack", "output", "name", "--stack", "t").stdout.strip()


def test_a_name_is_made_where_none_is_given_and_kept(project: Project) -> None:
    project.up(AUTONAMED)
    name = name_of(project)
    assert name.startswith("auto-")
    assert "1 updated" in project.up(AUTONAMED.replace('"x"', '"y"'))
    assert name_of(project) == name


def test_an_autonamed_object_whose_content_changes_is_made_before_the_old_one_goes(project: Project) -> None:
    project.up(AUTONAMED)
    name = name_of(project)
    replaced = AUTONAMED.replace('"1"', '"2"')
    assert "1 replaced" in project.up(replaced)
    assert name_of(project) != name
    assert project.kubectl("get", "configmap", name) is None
    assert project.kubectl("get", "configmap", name_of(project))["data"] == {"a": "2"}


@pytest.fixture
def autonaming(project: Project) -> Iterator[Callable[[str], None]]:
    """Sets the mode of pulumi:autonaming for one test."""
    project.up("")
    command = ("--path", "pulumi:autonaming.mode")

    def set_(mode: str) -> None:
        done = project.pulumi("config", "set", *command, mode, "--stack", "t")
        assert done.returncode == 0, done.stderr

    yield set_
    project.pulumi("config", "rm", "--path", "pulumi:autonaming", "--stack", "t")


def test_the_name_is_the_one_that_the_engine_proposes(project: Project, autonaming: Callable[[str], None]) -> None:
    autonaming("verbatim")
    project.up(AUTONAMED)
    assert name_of(project) == "auto"
    assert "1 replaced" in project.up(AUTONAMED.replace('"1"', '"2"'))
    assert project.kubectl("get", "configmap", "auto")["data"] == {"a": "2"}


def test_no_name_is_made_where_the_user_wants_none(project: Project, autonaming: Callable[[str], None]) -> None:
    autonaming("disabled")
    assert "autonaming is disabled" in project.fails(AUTONAMED)
    project.up(CONFIG_MAP.format(level="1"))


@pytest.mark.parametrize(("mutable", "step"), [("False", "1 replaced"), ("True", "1 updated")])
def test_the_content_of_a_config_map_changes_in_place_only_where_the_provider_is_told_so(
    project: Project, mutable: str, step: str
) -> None:
    path = str(project.cluster.kubeconfig)
    body = f"""
    mine = k8s.Provider("mine", kubeconfig=open({path!r}).read(), enable_config_map_mutable={mutable})
    k8s.core.v1.ConfigMap("content", metadata={{"name": "content"}}, data={{"a": "1"}},
                          opts=pulumi.ResourceOptions(provider=mine))
    """
    project.up("")
    project.up(body)
    assert step in project.up(body.replace('"1"', '"2"'))
    assert project.kubectl("get", "configmap", "content")["data"] == {"a": "2"}


def change(kind: str, old: Properties, new: Properties, **config: Any) -> Diff:
    """What a change of a named object means to a provider of this configuration."""
    provider = KubernetesProvider()
    provider.configure(config)
    common = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}}
    resource = Resource(urn="", type=f"kubernetes:core/v1:{kind}", name="x")
    return provider.diff(resource, State("default/x", common | old, {}), common | new, [])


@pytest.mark.parametrize(
    ("kind", "field", "option"),
    [
        ("ConfigMap", "data", "enableConfigMapMutable"),
        ("ConfigMap", "binaryData", "enableConfigMapMutable"),
        ("Secret", "data", "enableSecretMutable"),
        ("Secret", "stringData", "enableSecretMutable"),
    ],
)
def test_changed_content_replaces_unless_its_kind_is_mutable_and_the_object_is_not_immutable(
    kind: str, field: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = ({field: {"k": value}} for value in ("MQ==", "Mg=="))
    path = "data.k" if kind == "Secret" else f"{field}.k"
    replaced = Diff([path], [path], delete_before_replace=True)
    assert change(kind, old, new) == replaced
    assert change(kind, old, new, **{option: "true"}) == Diff([path])
    immutable = {"immutable": True}
    assert change(kind, old | immutable, new | immutable, **{option: "true"}) == replaced
    other = "enableSecretMutable" if kind == "ConfigMap" else "enableConfigMapMutable"
    assert change(kind, old, new, **{other: "true"}) == replaced
    monkeypatch.setenv(f"PULUMI_K8S_ENABLE_{kind.upper()}_MUTABLE", "true")
    assert change(kind, old, new) == Diff([path])
    assert change(kind, old, new, **{option: "false"}) == replaced


def test_a_secret_is_compared_as_the_api_server_keeps_it() -> None:
    plain, encoded = {"stringData": {"k": "1"}}, {"data": {"k": "MQ=="}}
    assert change("Secret", plain, encoded) == Diff()
    assert change("Secret", encoded, plain | {"data": {"k": "Mg=="}}) == Diff()
    assert change("Secret", plain, {"stringData": {"k": UNKNOWN}}).replaces == ["data.k"]
    assert "stringData" in change("Secret", plain, {"stringData": UNKNOWN}).replaces
    assert change("Secret", {"type": "a"}, {"type": "b"}, enableSecretMutable="true").replaces == ["type"]


def test_a_change_of_the_name_replaces(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    printed = project.up(CONFIG_MAP.format(level="1").replace('"name": "settings"', '"name": "other"'))
    assert "1 replaced" in printed
    assert project.kubectl("get", "configmap", "settings") is None
    assert project.kubectl("get", "configmap", "other")


def test_refresh_sees_drift_and_up_restores_what_it_is_told_to(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    project.patch("configmap", "settings", {"metadata": {"labels": {"level": "9"}}})
    refreshed = project.pulumi("refresh", "--yes", "--stack", "t")
    assert "1 updated" in refreshed.stdout, refreshed.stdout + refreshed.stderr
    assert 'conflict with "kubectl-patch"' in project.fails(CONFIG_MAP.format(level="1"))
    forced = '"name": "settings", "annotations": {"pulumi.com/patchForce": "true"}'
    project.up(CONFIG_MAP.format(level="1").replace('"name": "settings"', forced))
    assert level_of(project) == "1"


def test_an_ignored_field_stays_with_whoever_changed_it(project: Project) -> None:
    body = """
    k8s.core.v1.ConfigMap("settings", metadata={{"name": "settings", "labels": {{"level": "1", "other": "{other}"}}}},
                          opts=options(ignore_changes=["metadata.labels.level"]))
    """
    project.up(body.format(other="1"))
    project.patch("configmap", "settings", {"metadata": {"labels": {"level": "9"}}})
    assert "1 updated" in project.up(body.format(other="2"))
    assert project.kubectl("get", "configmap", "settings")["metadata"]["labels"] == {"level": "9", "other": "2"}
    project.up("")


def test_what_somebody_else_deleted_is_made_again(project: Project) -> None:
    project.up("")
    project.up(CONFIG_MAP.format(level="1"))
    project.kubectl("delete", "configmap", "settings")
    project.pulumi("refresh", "--yes", "--stack", "t")
    assert "1 created" in project.up(CONFIG_MAP.format(level="1"))


def test_an_object_that_exists_is_not_taken_over_but_can_be_imported(project: Project) -> None:
    project.kubectl("create", "configmap", "foreign", "--from-literal=a=1")
    body = (
        'k8s.core.v1.ConfigMap("foreign", metadata={"name": "foreign", "namespace": "default"}, data={"a": "1"}, opts='
    )
    printed = project.fails(body + "here)")
    assert "default/foreign already exists" in printed
    project.up(body + 'options(import_="default/foreign"))')
    assert "unchanged" in project.up(body + "here)")


def test_a_secret_is_nowhere_in_plain(project: Project) -> None:
    project.up(
        """
        k8s.core.v1.Secret("plain", metadata={"name": "plain"}, string_data={"key": pulumi.Output.secret("hunter2")}, opts=here)
        """
    )
    exported = project.pulumi("stack", "export", "--stack", "t").stdout
    assert "hunter2" not in exported
    assert "aHVudGVyMg==" not in exported
    assert "3 unchanged" in project.pulumi("refresh", "--yes", "--stack", "t").stdout


def test_a_secret_of_which_somebody_changed_only_a_label_is_not_made_anew(project: Project) -> None:
    body = """
    k8s.core.v1.Secret("drifts", string_data={"key": "hunter2"}, metadata={"name": "drifts", "labels": {"l": "1"},
                       "annotations": {"pulumi.com/patchForce": "true"}}, opts=here)
    """
    project.up(body)
    project.patch("secret", "drifts", {"metadata": {"labels": {"l": "9"}}})
    assert "1 updated" in project.pulumi("refresh", "--yes", "--stack", "t").stdout
    assert "1 updated" in project.up(body)
    live = project.kubectl("get", "secret", "drifts")
    assert (live["metadata"]["labels"], live["data"]) == ({"l": "1"}, {"key": "aHVudGVyMg=="})


def test_a_secret_that_nobody_marked_is_hidden_too_and_so_is_an_imported_one(project: Project) -> None:
    body = """
    k8s.core.v1.Secret("bare", metadata={"name": "bare", "namespace": "default"}, data={"key": "aHVudGVyMg=="}, opts=here)
    """
    project.up(body)
    state = project.pulumi("stack", "export", "--stack", "t").stdout
    project.pulumi("state", "delete", project.urn("bare"), "--yes", "--stack", "t")
    project.up(body.replace("here", 'options(import_="default/bare")'))
    assert "aHVudGVyMg==" not in state + project.pulumi("stack", "export", "--stack", "t").stdout


def test_a_secret_in_the_environment_of_pods_that_never_get_ready_is_hidden(project: Project) -> None:
    secret = DEPLOYMENT.replace('"image": "busybox"', '"image": "busybox", "env": [{{"name": "K", "value": SECRET}}]')
    project.fails('SECRET = pulumi.Output.secret("hunter2")\n' + secret.format(opts="here"))
    assert "hunter2" not in project.pulumi("stack", "export", "--stack", "t").stdout


def test_the_api_server_judges_at_preview(project: Project) -> None:
    printed = project.fails(
        """
        k8s.core.v1.ResourceQuota("q", metadata={"name": "q", "namespace": "default"},
                                  spec={"hard": {"pods": "-1"}}, opts=here)
        """,
        "preview",
    )
    assert "spec.hard[pods]: Invalid value" in printed
    assert "Traceback" not in printed


def test_preview_of_an_object_in_a_namespace_to_come(project: Project) -> None:
    project.up(
        """
        space = k8s.core.v1.Namespace("space", metadata={"name": "space"}, opts=here)
        k8s.core.v1.ConfigMap("inside", metadata={"name": "inside", "namespace": "space"}, data={"a": "1"},
                              opts=options(depends_on=[space]))
        """
    )
    assert project.kubectl("get", "configmap", "inside", "-n", "space")


DEPLOYMENT = """
k8s.apps.v1.Deployment("stuck", metadata={{"name": "stuck", "annotations": {{"pulumi.com/timeoutSeconds": "2"}}}}, spec={{
    "replicas": 1, "selector": {{"match_labels": {{"app": "stuck"}}}}, "template": {{"metadata": {{"labels": {{"app": "stuck"}}}},
    "spec": {{"containers": [{{"name": "c", "image": "busybox"}}], "node_selector": {{"no": "such"}}}}}}}}, opts={opts})
"""


def test_a_deployment_that_does_not_get_ready_is_in_the_state_and_can_be_mended(project: Project) -> None:
    printed = project.fails(DEPLOYMENT.format(opts="here"))
    assert "0/1 replicas ready" in printed
    assert "stuck" in [r["urn"].rpartition("::")[2] for r in project.resources()]
    printed = project.up(
        DEPLOYMENT.format(opts="here").replace('"pulumi.com/timeoutSeconds": "2"', '"pulumi.com/skipAwait": "true"')
    )
    assert "1 updated" in printed


JOB = """
k8s.batch.v1.Job("train", metadata={{"name": "train", "annotations": {{"pulumi.com/skipAwait": "true",
    "pulumi.com/deletionPropagationPolicy": "background"}}}}, spec={{
    "ttl_seconds_after_finished": {ttl}, "template": {{"spec": {{"restart_policy": "Never",
    "containers": [{{"name": "c", "image": "{image}"}}]}}}}}}, opts=here)
"""


def test_a_job_is_updated_where_it_can_be_and_replaced_where_it_must(project: Project) -> None:
    project.up(JOB.format(ttl=1000, image="a"))
    assert "1 updated" in project.up(JOB.format(ttl=2000, image="a"))
    printed = project.up(JOB.format(ttl=2000, image="b"))
    assert "1 replaced" in printed
    assert project.kubectl("get", "job", "train")["spec"]["template"]["spec"]["containers"][0]["image"] == "b"


def test_a_job_that_is_not_awaited_is_replaced_though_its_deletion_takes_a_while(project: Project) -> None:
    foreground = JOB.replace(',\n    "pulumi.com/deletionPropagationPolicy": "background"', "")
    assert foreground != JOB
    project.up("")
    project.up(foreground.format(ttl=1000, image="a"))
    assert "1 replaced" in project.up(foreground.format(ttl=1000, image="b"))


AWAITED_JOB = """
k8s.batch.v1.Job("check", metadata={{"name": "check", "annotations": {annotations}}}, spec={{
    "active_deadline_seconds": {seconds}, "completions": {completions}, "template": {{"spec": {{"restart_policy": "Never",
    "containers": [{{"name": "c", "image": "busybox"}}], "node_selector": {{"no": "such"}}}}}}}}, opts=here)
"""


@pytest.mark.parametrize("replaced", [True, False])
def test_a_failed_job_is_made_anew_where_it_says_so_and_otherwise_stays(project: Project, replaced: bool) -> None:
    annotations = {"pulumi.com/replaceUnready": str(replaced).lower()}
    failing = AWAITED_JOB.format(annotations=annotations, seconds=1, completions=1)
    uids: list[str] = []
    for _ in range(3):
        assert "DeadlineExceeded" in project.fails(failing)
        uids.append(project.kubectl("get", "job", "check")["metadata"]["uid"])
    assert len(set(uids)) == (3 if replaced else 1)
    project.up("")


def test_a_job_that_is_complete_is_not_made_anew(project: Project) -> None:
    body = AWAITED_JOB.format(annotations={"pulumi.com/replaceUnready": "true"}, seconds=60, completions=0)
    project.up("")
    project.up(body)
    uid = project.kubectl("get", "job", "check")["metadata"]["uid"]
    assert "3 unchanged" in project.up(body)
    assert "1 updated" in project.up(body.replace("60", "90"))
    assert project.kubectl("get", "job", "check")["metadata"]["uid"] == uid
    project.kubectl("delete", "job", "check")
    assert "3 unchanged" in project.up(body.replace("60", "90")), "a Job that cannot be read is left alone"
    project.pulumi("refresh", "--yes", "--stack", "t")
    project.up("")


def test_a_refresh_of_declared_zero_values_and_other_spellings_changes_nothing(project: Project) -> None:
    body = """
    k8s.batch.v1.Job("plain", metadata={"name": "plain", "annotations": {"pulumi.com/skipAwait": "true"}}, spec={
        "template": {"spec": {"restart_policy": "Never", "host_network": False, "node_selector": {"no": "such"},
            "containers": [{"name": "c", "image": "busybox", "volume_mounts": [{"name": "v", "mount_path": "/v", "read_only": False}],
                            "resources": {"requests": {"cpu": "1000m", "memory": "2048Mi"}}}],
            "volumes": [{"name": "v", "empty_dir": {}}]}}}, opts=here)
    """
    project.up(body)
    uid = project.kubectl("get", "job", "plain")["metadata"]["uid"]
    assert "3 unchanged" in project.pulumi("refresh", "--yes", "--stack", "t").stdout
    assert "3 unchanged" in project.up(body)
    assert project.kubectl("get", "job", "plain")["metadata"]["uid"] == uid


def test_a_generated_name_is_kept(project: Project) -> None:
    body = AUTONAMED.replace('"labels"', '"generate_name": "g-", "labels"')
    project.up(body)
    name = name_of(project)
    assert name.startswith("g-")
    assert "1 updated" in project.up(body.replace('"x"', '"y"'))
    assert project.kubectl("get", "configmap", name)["metadata"]["labels"] == {"l": "y"}
    project.up("")
    assert project.kubectl("get", "configmap", name) is None


def test_an_object_of_a_generated_name_is_made_before_the_old_one_goes() -> None:
    old, new = ({"metadata": {"generateName": "g-"}, "data": {"k": value}} for value in "12")
    assert change("ConfigMap", old, new) == Diff(["data.k"], ["data.k"])


def test_wait_for_a_condition_of_ones_own(project: Project) -> None:
    body = """
    k8s.core.v1.ConfigMap("flag", metadata={"name": "flag", "annotations": {"pulumi.com/timeoutSeconds": "1",
        "pulumi.com/waitFor": "jsonpath={.data.ready}=yes"}}, data={"ready": "no"}, opts=here)
    """
    assert "waiting for jsonpath" in project.fails(body)
    project.up(body.replace('"no"', '"yes"'))


def test_an_unsupported_kind_is_named(project: Project) -> None:
    printed = project.fails('k8s.core.v1.ConfigMapPatch("p", metadata={"name": "x"}, opts=here)')
    assert "kubernetes:core/v1:ConfigMapPatch is not supported in a rehearsal" in printed


def test_a_failing_credential_plugin_is_heard(project: Project, tmp_path: Path) -> None:
    plugin = tmp_path / "credentials"
    plugin.write_text("#!/bin/sh\necho 'please run gcloud auth login' >&2\nexit 3\n")
    plugin.chmod(0o755)
    kubeconfig = json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [
                {
                    "name": "u",
                    "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(plugin)}},
                }
            ],
        }
    )
    printed = project.fails(
        f"""
        other = k8s.Provider("other", kubeconfig={kubeconfig!r})
        k8s.core.v1.ConfigMap("m", metadata={{"name": "m"}}, opts=pulumi.ResourceOptions(provider=other))
        """
    )
    assert "failed with code 3: please run gcloud auth login" in printed


CHART = {
    "Chart.yaml": "apiVersion: v2\nname: tiny\nversion: 1.0.0\n",
    "values.yaml": "level: 1\n",
    "templates/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tiny}\ndata: {level: {{ .Values.level | quote }}}\n",
}


def release(folder: Path, chart: dict[str, str], inputs: str) -> str:
    """A program that releases a chart, which is written to a folder."""
    for name, text in chart.items():
        (folder / "tiny" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tiny" / name).write_text(text)
    return (
        f'k8s.helm.v3.Release("r", name="r", chart={str(folder / "tiny")!r}, namespace="default", {inputs}, opts=here)'
    )


def test_a_local_chart_is_installed_upgraded_and_removed_by_helm(project: Project, tmp_path: Path) -> None:
    body = release(tmp_path, CHART, 'value_yaml_files=[pulumi.StringAsset("level: 4")], values={"level": 5}')
    project.up(body.replace('"level": 5', ""))
    assert project.kubectl("get", "configmap", "tiny")["data"]["level"] == "4"
    project.up(body)
    assert project.kubectl("get", "configmap", "tiny")["data"]["level"] == "5"
    assert "1 updated" in project.up(body.replace('"level": 5', '"level": 6'))
    assert project.kubectl("get", "configmap", "tiny")["data"]["level"] == "6"
    project.up("")
    assert project.kubectl("get", "configmap", "tiny") is None


UNREACHABLE = """
k8s.helm.v3.Release("op", name="op", chart="gpu-operator", version="v26.7.0", namespace="default",
    repository_opts={{"repo": "https://127.0.0.1:9"}}, values={values}, opts=here)
"""


def test_a_chart_that_cannot_be_fetched_is_recorded_and_said_to_be(project: Project) -> None:
    printed = project.up(UNREACHABLE.format(values={"driver": {"enabled": False}}))
    assert "recorded, chart not installed" in printed
    record = json.loads((project.rehearsal.releases_dir / "default.op.json").read_text())
    assert record["chart"] == "gpu-operator"
    assert record["installed"] is False
    assert "unchanged" in project.up(UNREACHABLE.format(values={"driver": {"enabled": False}}))
    project.up("")
    assert not (project.rehearsal.releases_dir / "default.op.json").exists()


def test_a_value_that_only_the_templates_of_a_chart_read_is_known() -> None:
    assert not list(unknown_keys("gpu-operator", {"dcgmExporter": {"config": {"name": "metrics"}}}))


@pytest.mark.parametrize("command", ["preview", "up"])
def test_an_unknown_value_of_a_recorded_chart_is_refused(project: Project, command: str) -> None:
    body = UNREACHABLE.format(values={"driver": {"enbled": False}})
    printed = project.fails(
        body.replace("values=", 'value_yaml_files=[pulumi.StringAsset("toolkit: {versoin: 1}")], values='), command
    )
    assert "values.driver.enbled: the chart gpu-operator has no such value. Near: driver.enabled" in printed
    assert "valueYamlFiles[0].toolkit.versoin" in printed


def test_a_release_that_helm_had_ended_when_pulumi_was_killed_is_adopted(
    project: Project, tools: Tools, tmp_path: Path
) -> None:
    body = release(tmp_path, CHART, 'values={"level": 5}')
    project.up(body)
    as_if_killed(project, "r")
    stack.recover(replace_kubeconfig(project), tools)
    assert project.urn("r")
    assert "3 unchanged" in project.up(body)
    assert [item["metadata"]["labels"]["version"] for item in releases(project)] == ["1"]


def test_a_release_that_helm_had_not_ended_makes_room(project: Project, tools: Tools, tmp_path: Path) -> None:
    body = release(tmp_path, CHART, 'values={"level": 5}')
    project.up(body)
    as_if_killed(project, "r")
    secret = releases(project)[-1]
    record = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    record["info"]["status"] = "pending-install"
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(record).encode()))).decode()
    project.patch("secret", secret["metadata"]["name"], {"data": {"release": packed}})
    stack.recover(replace_kubeconfig(project), tools)
    assert not releases(project)
    assert "1 created" in project.up(body)


def as_if_killed(project: Project, name: str) -> None:
    """Make the state as it was while a resource was being created."""
    path = stack.state_file(project.rehearsal)
    state = json.loads(path.read_text())
    latest = state["checkpoint"]["latest"]
    made = next(resource for resource in latest["resources"] if resource["urn"].endswith(f"::{name}"))
    latest["resources"].remove(made)
    pending = {key: value for key, value in made.items() if key not in ("id", "outputs")}
    latest["pending_operations"] = [{"resource": pending, "type": "creating"}]
    path.write_text(json.dumps(state))


def releases(project: Project) -> list[dict[str, Any]]:
    """What Helm keeps of its releases: a Secret for each revision."""
    return project.kubectl("get", "secrets", "-l", "owner=helm")["items"]


def test_a_chart_whose_pods_never_get_ready_is_in_the_state_and_can_be_mended(project: Project, tmp_path: Path) -> None:
    stuck = """
        apiVersion: v1
        kind: Pod
        metadata: {name: stuck-chart}
        spec: {containers: [{name: c, image: busybox}], nodeSelector: {no: such}}
        """
    body = release(tmp_path, CHART | {"templates/pod.yaml": textwrap.dedent(stuck)}, 'timeout=2, values={"level": 5}')
    project.fails(body)
    assert project.urn("r")
    project.up(body.replace("timeout=2", "skip_await=True"))
    project.up("")
    assert project.kubectl("get", "pod", "stuck-chart") is None


def test_an_input_of_a_release_that_is_not_rehearsed_is_named(project: Project, tmp_path: Path) -> None:
    assert "postrender" in project.fails(release(tmp_path, CHART, 'postrender="sed"'))


def test_an_interrupt_during_a_wait_ends_it_soon(project: Project) -> None:
    project.program(DEPLOYMENT.format(opts="here").replace('"2"', '"600"'))
    process = subprocess.Popen(
        [project.rehearsal.bin_dir / "pulumi", "up", "--yes", "--skip-preview", "--stack", "t", "--non-interactive"],
        cwd=project.root,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until(lambda: project.kubectl("get", "deployment", "stuck") is not None)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "interrupted" in printed
    project.pulumi("cancel", "--yes", "--stack", "t")


def test_pulumi_killed_during_an_update_leaves_no_process_and_the_next_up_converges(
    project: Project, tools: Tools
) -> None:
    project.up("")
    body = DEPLOYMENT.format(opts="here").replace('"2"', '"600"')
    project.program(body)
    process = subprocess.Popen(
        [tools.pulumi, "up", "--yes", "--skip-preview", "--stack", "t", "--non-interactive"],
        cwd=project.root,
        env=project.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: project.kubectl("get", "deployment", "stuck") is not None)
    plugins = [
        p for p in psutil.Process(process.pid).children(recursive=True) if "rehearsal.plugins.kubernetes" in p.cmdline()
    ]
    process.kill()
    process.wait()
    assert plugins
    assert not psutil.wait_procs(plugins, timeout=10)[1]
    uid = project.kubectl("get", "deployment", "stuck")["metadata"]["uid"]
    stack.recover(replace_kubeconfig(project), tools)
    project.up(body.replace('"pulumi.com/timeoutSeconds": "600"', '"pulumi.com/skipAwait": "true"'))
    assert project.kubectl("get", "deployment", "stuck")["metadata"]["uid"] == uid
    assert "3 unchanged" in project.pulumi("refresh", "--yes", "--stack", "t").stdout


def replace_kubeconfig(project: Project) -> Rehearsal:
    """The project's rehearsal, whose kubeconfig leads to the shared replica."""
    project.rehearsal.kubeconfig.unlink(missing_ok=True)
    project.rehearsal.kubeconfig.symlink_to(project.cluster.kubeconfig)
    return project.rehearsal
