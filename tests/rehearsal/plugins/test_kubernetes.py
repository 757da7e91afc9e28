"""The embedded kubernetes plugin, by real ``pulumi`` runs of small programs on a bare replica."""

import json
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal import environment, stack
from rehearsal.layout import Rehearsal
from rehearsal.toolchain import Tools
from tests.conftest import Cluster

PROLOGUE = """
import pulumi, pulumi_kubernetes as k8s
here = pulumi.ResourceOptions(provider=k8s.Provider("replica", kubeconfig=open({kubeconfig!r}).read(), cluster_identifier="x"))
def options(**more): return pulumi.ResourceOptions.merge(here, pulumi.ResourceOptions(**more))
"""


class Project:
    """A Pulumi project whose program is replaced from step to step."""

    def __init__(self, root: Path, cluster: Cluster, tools: Tools) -> None:
        self.root = root
        self.cluster = cluster
        (root / "stacks").mkdir()
        (root / "stacks" / "Pulumi.t.yaml").write_text("config: {}\n")
        (root / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
        self.rehearsal = Rehearsal.of("t", root)
        environment.install(self.rehearsal, tools)
        self.environment = environment.process_environment(self.rehearsal, tools)
        stack.create(self.rehearsal, tools)

    def program(self, body: str) -> None:
        prologue = PROLOGUE.format(kubeconfig=str(self.cluster.kubeconfig))
        (self.root / "__main__.py").write_text(prologue + textwrap.dedent(body))

    def pulumi(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.rehearsal.bin_dir / "pulumi", *args, "--non-interactive"],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def up(self, body: str, *args: str) -> str:
        self.program(body)
        done = self.pulumi("up", "--yes", "--skip-preview", "--stack", "t", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def fails(self, body: str, command: str = "up") -> str:
        self.program(body)
        done = self.pulumi(command, *(["--yes", "--skip-preview"] if command == "up" else []), "--stack", "t")
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def resources(self) -> list[dict[str, Any]]:
        return json.loads(self.pulumi("stack", "export", "--stack", "t").stdout)["deployment"]["resources"]

    def kubectl(self, *args: str) -> Any:
        done = subprocess.run(
            [self.rehearsal.bin_dir / "kubectl", "--kubeconfig", self.cluster.kubeconfig, *args, "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project"), cluster, tools)
    yield project
    project.up("")


CONFIG_MAP = """
k8s.core.v1.ConfigMap("settings", metadata={{"name": "settings"}}, data={{"level": "{level}"}}, opts=here)
"""


def test_create_unchanged_update_and_delete(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    assert project.kubectl("get", "configmap", "settings")["data"] == {"level": "1"}
    assert "3 unchanged" in project.up(CONFIG_MAP.format(level="1"))
    assert "1 updated" in project.up(CONFIG_MAP.format(level="2"))
    assert project.kubectl("get", "configmap", "settings")["data"] == {"level": "2"}
    project.up("")
    assert project.kubectl("get", "configmap", "settings") is None


def test_a_name_is_made_where_none_is_given_and_kept(project: Project) -> None:
    body = 'm = k8s.core.v1.ConfigMap("auto", data={"a": "1"}, opts=here)\npulumi.export("name", m.metadata.name)'
    project.up(body)
    name = project.pulumi("stack", "output", "name", "--stack", "t").stdout.strip()
    assert name.startswith("auto-")
    project.up(body.replace('"1"', '"2"'))
    assert project.pulumi("stack", "output", "name", "--stack", "t").stdout.strip() == name


def test_a_change_of_the_name_replaces(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    printed = project.up(CONFIG_MAP.format(level="1").replace('"name": "settings"', '"name": "other"'))
    assert "1 replaced" in printed
    assert project.kubectl("get", "configmap", "settings") is None
    assert project.kubectl("get", "configmap", "other")


def test_refresh_sees_drift_and_up_restores_what_it_is_told_to(project: Project) -> None:
    project.up(CONFIG_MAP.format(level="1"))
    patch = '{"data": {"level": "9"}}'
    project.kubectl("patch", "configmap", "settings", "--type=merge", "-p", patch)
    refreshed = project.pulumi("refresh", "--yes", "--stack", "t")
    assert "1 updated" in refreshed.stdout, refreshed.stdout + refreshed.stderr
    assert 'conflict with "kubectl-patch"' in project.fails(CONFIG_MAP.format(level="1"))
    forced = '"name": "settings", "annotations": {"pulumi.com/patchForce": "true"}'
    project.up(CONFIG_MAP.format(level="1").replace('"name": "settings"', forced))
    assert project.kubectl("get", "configmap", "settings")["data"] == {"level": "1"}


def test_what_somebody_else_deleted_is_made_again(project: Project) -> None:
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


def test_a_local_chart_is_installed_upgraded_and_removed_by_helm(project: Project, tmp_path: Path) -> None:
    for name, text in CHART.items():
        (tmp_path / "tiny" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tiny" / name).write_text(text)
    body = f'k8s.helm.v3.Release("r", name="r", chart={str(tmp_path / "tiny")!r}, namespace="default", values={{"level": 5}}, opts=here)'
    project.up(body)
    assert project.kubectl("get", "configmap", "tiny")["data"]["level"] == "5"
    assert "1 updated" in project.up(body.replace("5", "6"))
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


def test_an_unknown_value_of_a_recorded_chart_is_refused(project: Project) -> None:
    printed = project.fails(UNREACHABLE.format(values={"driver": {"enbled": False}}))
    assert "values.driver.enbled" in printed
    assert "driver.enabled" in printed


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
    wait_until(lambda: project.kubectl("get", "deployment", "stuck") is not None)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "interrupted" in printed
    project.pulumi("cancel", "--yes", "--stack", "t")


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
