"""Programs whose objects come from YAML, kustomizations and charts, by real ``pulumi`` runs on a bare replica."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ml_foundations.rehearsal.plugins.kubernetes.rendering import (
    COMPONENTS,
    Renderer,
    decode,
    read,
    release_of,
)
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cases import cases
from tests.support.cluster import Cluster
from tests.support.project import Project

MAPS = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}-a, annotations: {{since: 2026-01-01}}}}
---
# nothing
---
apiVersion: v1
kind: List
items: [{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}-b}}}}]
"""
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: tiny\nversion: 1.0.0\n",
    "values.yaml": "name: x\n",
    "templates/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.name }}}\n",
    "templates/hook.yaml": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n"
        "  name: {{ .Values.name }}-hook\n  annotations: {helm.sh/hook: pre-install}\n"
    ),
}
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.rendered.example.com}
spec:
  group: rendered.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"""
IN_ANY_ORDER = f"""
apiVersion: rendered.example.com/v1
kind: Gadget
metadata: {{name: gadget, namespace: rendered}}
---
{DEFINITION}
---
apiVersion: v1
kind: Secret
metadata: {{name: key, namespace: rendered}}
stringData: {{key: hunter2-rendered}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: rendered}}
"""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project"), cluster, tools)
    yield project
    project.up("")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    written = {
        "maps.yaml": MAPS.format(name="file"),
        "base/kustomization.yaml": "resources: [map.yaml]\nnamePrefix: pre-\n",
        "base/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kust}\n",
    } | {f"tiny/{name}": text for name, text in CHART.items()}
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def made(project: Project) -> set[str]:
    """The ConfigMaps of the program that there are in the cluster."""
    resources = [r for r in project.resources() if r["type"].endswith(":ConfigMap")]
    known = {resource["outputs"]["metadata"]["name"] for resource in resources}
    assert all(project.kubectl("get", "configmap", name) for name in known)
    return known


def test_functions_behind_config_files_and_charts_are_answered(
    project: Project, files: Path
) -> None:
    program = f"""
    from pulumi_kubernetes.helm.v3 import Chart, LocalChartOpts
    k8s.yaml.ConfigFile("file", {str(files / "maps.yaml")!r}, opts=here)
    k8s.yaml.ConfigGroup("group", yaml=[{MAPS.format(name="group")!r}], opts=here)
    k8s.kustomize.Directory("kustomized", {str(files / "base")!r}, opts=here)
    Chart("chart", LocalChartOpts(path={str(files / "tiny")!r}, values={{"name": "v3"}}), opts=here)
    """
    project.up(program)
    assert made(project) == {"file-a", "file-b", "group-a", "group-b", "pre-kust", "v3", "v3-hook"}
    assert "unchanged" in project.up(program)
    project.clear()


def test_components_of_version_2_are_made_of_their_objects(project: Project, files: Path) -> None:
    program = f"""
    from pulumi_kubernetes.helm.v4 import Chart
    from pulumi_kubernetes.yaml.v2 import ConfigFile, ConfigGroup
    from pulumi_kubernetes.kustomize.v2 import Directory
    file = ConfigFile("file", file={str(files / "maps.yaml")!r}, opts=here)
    name = k8s.core.v1.ConfigMap("one", metadata={{"name": "one"}}, opts=here).metadata.name
    group = ConfigGroup("group", yaml=name.apply(lambda n: {IN_ANY_ORDER!r}), skip_await=True,
                objs=[{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "obj"}}}}], opts=here)
    Directory("kustomized", directory={str(files / "base")!r}, opts=here)
    Chart("chart", chart={str(files / "tiny")!r}, values={{"name": "v4"}}, opts=here)
    pulumi.export("names", file.resources.apply(lambda found: len(found)))
    """
    assert "names: 2" in project.up(program)
    # The chart's hook is left out.
    assert made(project) == {"file-a", "file-b", "one", "obj", "pre-kust", "v4"}
    names = {resource["urn"].rpartition("::")[2] for resource in project.resources()}
    group = {"group:rendered/gadget", "group:rendered"}
    assert {"file:default/file-a", "chart:default/v4", *group} <= names
    annotations = project.kubectl("get", "configmap", "obj")["metadata"]["annotations"]
    assert annotations["pulumi.com/skipAwait"] == "true"
    assert "hunter2-rendered" not in json.dumps(project.resources())
    project.up(program)
    assert "hunter2-rendered" not in json.dumps(project.resources())
    project.clear()


def test_a_chart_out_of_reach_is_recorded(project: Project) -> None:
    printed = project.up(
        """
        from pulumi_kubernetes.helm.v4 import Chart
        Chart("far", chart="far", repository_opts={"repo": "https://charts.invalid"}, opts=here)
        """
    )
    assert "the chart far is only recorded, its objects are missing" in printed
    [record] = project.rehearsal.releases_dir.glob("*.chart.json")
    assert json.loads(record.read_text())["instead"]


def test_a_wrong_component_is_one_sentence(project: Project) -> None:
    printed = project.fails('k8s.yaml.v2.ConfigFile("f", file="/no/such.yaml", opts=here)')
    assert "/no/such.yaml cannot be read: No such file or directory" in printed
    assert "ml_foundations/rehearsal" not in printed


def test_objects_that_wait_for_each_other_are_named(project: Project) -> None:
    text = "\n---\n".join(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
        f"  annotations: {{config.kubernetes.io/depends-on: /namespaces/default/ConfigMap/{awaited}}}"
        for name, awaited in (("one", "other"), ("other", "one"))
    )
    printed = project.fails(f'k8s.yaml.v2.ConfigGroup("g", yaml={text!r}, opts=here)')
    assert "ConfigMap default/one depends on itself (config.kubernetes.io/depends-on)" in printed


def test_a_component_that_a_rehearsal_does_not_know_is_named(project: Project) -> None:
    unknown = 'pulumi.ComponentResource("kubernetes:no/v1:Such", "x", {}, here, remote=True)'
    assert "kubernetes:no/v1:Such is not supported in a rehearsal" in project.fails(unknown)


@pytest.mark.parametrize(
    ("what", "given", "said"),
    cases(r"""
no text: ["kubernetes:yaml:decode", {}, "kubernetes:yaml:decode needs text"]
text: ["kubernetes:yaml:decode", {text: "a: ["}, the YAML cannot be read]
kind: ["kubernetes:yaml:decode", {text: "apiVersion: v1\nkind: 3"}, kind is a text]
metadata: ["kubernetes:yaml:decode", {text: "apiVersion: v1\nkind: A\nmetadata: [a]"},
  metadata a map]
no folder: ["kubernetes:kustomize:directory", {}, needs directory]
folder: ["kubernetes:kustomize:directory", {directory: /no/such}, kustomize /no/such failed]
no options: ["kubernetes:helm:template", {}, needs jsonOpts]
no file: ["kubernetes:yaml/v2:ConfigFile", {}, needs file]
text of a group: ["kubernetes:yaml/v2:ConfigGroup", {yaml: "a: b: c"}, the YAML cannot be read]
file of a group: ["kubernetes:yaml/v2:ConfigGroup", {files: [/]},
  "/ cannot be read: Is a directory"]
object of a group: ["kubernetes:yaml/v2:ConfigGroup",
  {objs: [{apiVersion: v1, kind: A, metadata: x}]}, metadata a map]
no folder of version 2: ["kubernetes:kustomize/v2:Directory", {}, needs directory]
no chart: ["kubernetes:helm.sh/v4:Chart", {name: c}, needs chart]
"""),
)
def test_a_wrong_call_is_a_sentence(
    what: str, given: dict[str, object], said: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(tools.kubectl).parent), prepend=os.pathsep)
    renderer = Renderer(lambda *_: "", "default", lambda _: True)
    with pytest.raises(RehearsalError, match=said):
        renderer.render(what, "r", given) if what in COMPONENTS else renderer.call(what, given)


def test_dates_are_text_and_lists_are_their_items() -> None:
    found = decode(MAPS.format(name="x"))
    assert [obj["metadata"]["name"] for obj in found] == ["x-a", "x-b"]
    assert found[0]["metadata"]["annotations"]["since"] == "2026-01-01"


def test_manifests_of_a_url_are_refused() -> None:
    with pytest.raises(RehearsalError, match="fetches no manifests"):
        read("https://example.invalid/a.yaml")


def test_options_of_a_chart_as_inputs_of_a_release() -> None:
    fetched = {"version": "1", "ca_file": "ca"}
    given = {"chart": "c", "repo": "r", "fetch_opts": fetched, "release_name": "n"}
    expected = {"chart": "r/c", "version": "1", "repositoryOpts": {"caFile": "ca"}}
    assert expected.items() <= release_of(given).items()
