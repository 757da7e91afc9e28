"""The embedded kubernetes plugin, by real ``pulumi`` runs of small programs on a bare replica."""

import base64
import gzip
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from ml_foundations.catalog.removed_kinds import removal
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.access import Access, server_of
from ml_foundations.rehearsal.api import Api, ApiError, Object
from ml_foundations.rehearsal.engine import installation, stack
from ml_foundations.rehearsal.plugins.kubernetes import helm, readiness, waiting
from ml_foundations.rehearsal.plugins.kubernetes import provider as plugin
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.kubernetes.settings import Settings
from ml_foundations.rehearsal.plugins.provider import (
    CheckError,
    Diff,
    InitFailedError,
    Provider,
    Resource,
    State,
)
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES, token_of
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, write_struct
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cases import cases
from tests.support.cluster import Cluster
from tests.support.project import Project
from tests.support.waiting import until


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project"), cluster, tools)
    yield project
    project.up("")


CONFIG_MAP = """
k8s.core.v1.ConfigMap("settings", metadata={"name": "settings", "labels": {"level": "1"}}, data={"a": "ü 🚀"},
                      opts=here)
"""
LEVEL_2 = CONFIG_MAP.replace('"level": "1"', '"level": "2"')


def level_of(project: Project) -> str:
    return project.kubectl("get", "configmap", "settings")["metadata"]["labels"]["level"]


def refreshed(project: Project) -> str:
    done = project.pulumi("refresh", "--yes", "--stack", "t")
    return done.stdout + done.stderr


def exported(project: Project) -> str:
    """The state of the stack, as Pulumi shows it."""
    return project.pulumi("stack", "export", "--stack", "t").stdout


def test_create_unchanged_update_and_delete(project: Project) -> None:
    project.up(CONFIG_MAP)
    made = project.kubectl("get", "configmap", "settings")
    assert (level_of(project), made["data"]) == ("1", {"a": "ü 🚀"})
    assert "3 unchanged" in project.up(CONFIG_MAP)
    assert "1 updated" in project.up(LEVEL_2)
    assert level_of(project) == "2"
    project.up("")
    assert project.kubectl("get", "configmap", "settings") is None


def test_a_plugin_of_the_users_own_folder_serves_the_program(
    project: Project, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded one stands for Pulumi's own: an executable of another version."""
    embedded = project.rehearsal.pulumi_home / "plugins" / "resource-kubernetes-v9999.0.0"
    own = shutil.copytree(embedded, tmp_path / "plugins" / "resource-kubernetes-v99.0.0")
    launcher = own / "pulumi-resource-kubernetes"
    launcher.write_text(launcher.read_text().replace("exec", f"touch {tmp_path / 'started'}\nexec"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    monkeypatch.setattr(project, "has_plugin", False)
    try:
        installation.install(project.rehearsal, tools, official_kubernetes=True)
        project.up(CONFIG_MAP)
        assert "3 unchanged" in project.up(CONFIG_MAP)
        assert (tmp_path / "started").exists()
    finally:
        installation.install(project.rehearsal, tools)


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


def test_an_autonamed_object_is_created_before_the_old_one_goes(project: Project) -> None:
    project.up(AUTONAMED)
    name = name_of(project)
    assert "1 replaced" in project.up(AUTONAMED.replace('"1"', '"2"'))
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


def test_the_name_is_the_one_that_the_engine_proposes(
    project: Project, autonaming: Callable[[str], None]
) -> None:
    autonaming("verbatim")
    project.up(AUTONAMED)
    assert name_of(project) == "auto"
    assert "1 replaced" in project.up(AUTONAMED.replace('"1"', '"2"'))
    assert project.kubectl("get", "configmap", "auto")["data"] == {"a": "2"}


def test_no_name_is_made_where_the_user_wants_none(
    project: Project, autonaming: Callable[[str], None]
) -> None:
    autonaming("disabled")
    assert "autonaming is disabled" in project.fails(AUTONAMED)
    project.up(CONFIG_MAP)


@pytest.mark.parametrize(("mutable", "step"), [("False", "1 replaced"), ("True", "1 updated")])
def test_config_map_content_changes_in_place_only_if_configured(
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


class ClusterOfOne:
    """Stands for the client of a cluster that has one kind, and takes any object."""

    def __init__(self, namespaced: bool = True) -> None:
        self.namespaced = namespaced
        self.created = False
        self.live: Object | None = None
        self.refusals: list[ApiError] = []
        self.deleted: list[Object] = []
        self.asked: list[dict[str, Any]] = []
        self.reads = 0

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        return self.namespaced

    def get(self, obj: Object) -> Object | None:
        self.reads += 1
        assert self.reads < 30, "it waits for too long"
        return self.live

    def is_as_created(self, live: Object) -> bool:
        return self.created

    def take_fields(self, live: Object, manager: str) -> None:
        self.created = False

    def create(self, obj: Object, **options: Any) -> Object:
        return self.apply(obj, "", created=True, **options)

    def apply(self, obj: Object, manager: str, **options: Any) -> Object:
        self.asked.append(options)
        if self.refusals:
            raise self.refusals.pop()
        self.live = obj | {"metadata": obj["metadata"] | {"uid": "1"}}
        return self.live

    def delete(self, obj: Object, policy: str) -> None:
        self.deleted.append(obj)


def provider_of(client: ClusterOfOne | None = None, **config: Any) -> KubernetesProvider:
    """A provider of this configuration; without a client it reaches no cluster."""
    provider = KubernetesProvider()
    provider.configure(config)
    if client:
        provider.__dict__["_client"] = client
    return provider


def change(kind: str, old: Properties, new: Properties, **config: Any) -> Diff:
    """What a change of a named object means to a provider; the kind is ``Pod`` or ``apps/v1 Deployment``."""
    version, _, name = kind.rpartition(" ")
    common = {"apiVersion": version or "v1", "kind": name, "metadata": {"name": "x"}}
    about = resource(f"core/v1:{name}")
    return provider_of(**config).diff(about, State("default/x", common | old, {}), common | new)


def resource(kind: str) -> Resource:
    return Resource(urn="", type=f"kubernetes:{kind}", name="x")


CONFIG_MAPS, THINGS = resource("core/v1:ConfigMap"), resource("example.org/v1:Thing")


def named(**metadata: Any) -> Properties:
    """A ConfigMap of this metadata."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", **metadata}}


@pytest.mark.parametrize(
    ("kind", "field", "option"),
    [
        ("ConfigMap", "data", "enableConfigMapMutable"),
        ("ConfigMap", "binaryData", "enableConfigMapMutable"),
        ("Secret", "data", "enableSecretMutable"),
        ("Secret", "stringData", "enableSecretMutable"),
    ],
)
def test_changed_content_replaces_unless_its_kind_is_mutable(
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
    typed = change("Secret", {"type": "a"}, {"type": "b"}, enableSecretMutable="true")
    assert typed.replaces == ["type"]


@pytest.mark.parametrize(
    ("kind", "old", "new", "replaced"),
    cases("""
image: [Pod, {spec: {containers: [{name: c, image: a}]}},
  {spec: {containers: [{name: c, image: b}]}}, "spec.containers[0].image"]
another container: [Pod, {spec: {containers: [{name: c, image: a}]}},
  {spec: {containers: [{name: c, image: a}, {name: d, image: d}]}}, "spec.containers[1]"]
first init container: [Pod, {spec: {}}, {spec: {initContainers: [{name: d, image: d}]}},
  spec.initContainers]
node: [Pod, {spec: {nodeName: a}}, {spec: {nodeName: b}}, spec.nodeName]
source: [PersistentVolume, {spec: {local: {path: /a}}}, {spec: {local: {path: /b}}},
  spec.local.path]
scopes: [ResourceQuota, {spec: {}}, {spec: {scopes: [BestEffort]}}, spec.scopes]
parameters: [storage.k8s.io/v1 StorageClass, {parameters: {type: a}}, {parameters: {}},
  parameters.type]
selector: [apps/v1 Deployment, {spec: {selector: {a: "1"}}}, {spec: {selector: {}}},
  spec.selector.a]
"""),
)
def test_an_object_is_replaced_if_the_official_plugin_does_so(
    kind: str, old: Properties, new: Properties, replaced: str
) -> None:
    assert change(kind, old, new) == Diff([replaced], [replaced], delete_before_replace=True)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    cases("""
name of a container: [Pod, {spec: {containers: [{name: c, image: a, env: []}], tolerations: []}},
  {spec: {containers: [{name: d, image: a, env: []}], tolerations: []}}]
container less: [Pod, {spec: {containers: [{name: c, image: a}, {name: d}]}},
  {spec: {containers: [{name: c, image: a}]}}]
tolerations: [Pod, {spec: {tolerations: []}}, {spec: {tolerations: [{operator: Exists}]}}]
deadline: [Pod, {spec: {}}, {spec: {activeDeadlineSeconds: 1}}]
spread: [Pod, {spec: {}}, {spec: {topologySpreadConstraints: [{maxSkew: 1}]}}]
class: [PersistentVolume, {spec: {storageClassName: a}}, {spec: {storageClassName: b}}]
scope selector: [ResourceQuota, {spec: {}}, {spec: {scopeSelector: {matchExpressions: []}}}]
selector: [apps/v1 ReplicaSet, {spec: {selector: {a: "1"}}}, {spec: {selector: {}}}]
handler: [node.k8s.io/v1 RuntimeClass, {handler: a}, {handler: b}]
claims: [resource.k8s.io/v1 ResourceClaimTemplate, {spec: {spec: {}}}, {spec: {}}]
value: [scheduling.k8s.io/v1 PriorityClass, {value: 1}, {value: 2}]
attachment: [storage.k8s.io/v1 CSIDriver, {spec: {attachRequired: true}},
  {spec: {attachRequired: false}}]
reclaim policy: [storage.k8s.io/v1 StorageClass, {reclaimPolicy: Delete}, {reclaimPolicy: Retain}]
binding mode: [storage.k8s.io/v1 StorageClass, {volumeBindingMode: Immediate},
  {volumeBindingMode: WaitForFirstConsumer}]
"""),
)
def test_other_fields_are_changed_or_refused_by_the_api_server(
    kind: str, old: Properties, new: Properties
) -> None:
    changed = change(kind, old, new)
    assert changed.changed
    assert not changed.replaces


@pytest.mark.parametrize(
    "value",
    [
        "Ready",
        "jsonpath=.status.phase",
        "jsonpath={.status.conditions[*].type}",
        "jsonpath={.status.phase",
        '["condition=Ready", "phase=Running"]',
        '["condition=Ready"',
        "[1]",
        "[]",
    ],
)
def test_an_annotation_that_cannot_be_awaited_is_refused(value: str) -> None:
    with pytest.raises(CheckError) as caught:
        provider_of().check(CONFIG_MAPS, {}, named(annotations={"pulumi.com/waitFor": value}))
    assert "pulumi.com/waitFor must be" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "annotations",
    [
        {"pulumi.com/timeoutSeconds": "600"},
        {"pulumi.com/timeoutSeconds": "10m"},
        {"pulumi.com/waitFor": "jsonpath={.metadata.labels['a.b/c']}=d"},
        {"pulumi.com/waitFor": 'jsonpath={.status.conditions[?(@.type=="Ready")].status}=True'},
        {"pulumi.com/waitFor": "condition=Ready"},
        {
            "pulumi.com/waitFor": '["condition=Ready=False", "jsonpath={ $.status.ports[0].port }=80"]'
        },
        {"pulumi.com/waitFor": "whatever", "pulumi.com/skipAwait": "true"},
        {"pulumi.com/waitFor": UNKNOWN},
        UNKNOWN,
        None,
    ],
)
def test_an_unknown_annotation_is_accepted(annotations: Any) -> None:
    inputs = provider_of().check(CONFIG_MAPS, {}, named(annotations=annotations))
    assert inputs["metadata"].get("annotations") == annotations


@pytest.mark.parametrize("path", ["metadata", "metadata.annotations", "metadata.labels", "data"])
def test_a_value_that_is_not_known_yet_survives_a_check(path: str) -> None:
    *parent, last = path.split(".")
    inputs = {parent[0]: {last: UNKNOWN}} if parent else {last: UNKNOWN}
    checked = provider_of().check(CONFIG_MAPS, {}, inputs)
    write_struct(checked)
    assert (checked[parent[0]] if parent else checked)[last] is UNKNOWN


def test_an_object_is_in_the_state_if_its_wait_fails() -> None:
    annotations = {"pulumi.com/waitFor": "[", "pulumi.com/timeoutSeconds": "soon"}
    with pytest.raises(InitFailedError) as caught:
        provider_of(ClusterOfOne()).create(CONFIG_MAPS, named(annotations=annotations))
    assert caught.value.state.id == "default/x"
    assert "pulumi.com/waitFor must be" in caught.value.reasons[0]


def test_server_side_apply_refuses_generated_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def metadata(old: Properties, new: Properties, **config: Any) -> Any:
        return provider_of(**config).check(CONFIG_MAPS, old, new)["metadata"]

    generated = {"metadata": {"generateName": "g-"}}
    with pytest.raises(CheckError, match="generateName is not supported with Server-Side Apply"):
        metadata({}, generated)
    autonamed = {"metadata": {"name": "x-1", "annotations": {"pulumi.com/autonamed": "true"}}}
    assert metadata(autonamed, generated)["name"] == "x-1"
    assert metadata({}, named(generateName="g-"))["name"] == "x"
    assert "name" not in metadata({}, generated, enableServerSideApply="false")
    monkeypatch.setenv("PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "false")
    assert "name" not in metadata({}, generated)


@pytest.mark.parametrize(
    ("client", "config", "given", "namespace"),
    [
        (ClusterOfOne(), {}, {}, "default"),
        (ClusterOfOne(), {"namespace": "team"}, {}, "team"),
        (ClusterOfOne(), {"namespace": "team"}, {"namespace": "own"}, "own"),
        (ClusterOfOne(), {"namespace": "team"}, {"namespace": UNKNOWN}, UNKNOWN),
        (None, {"namespace": "team"}, {}, "team"),
    ],
)
def test_the_inputs_say_the_namespace(client: Any, config: Any, given: Any, namespace: Any) -> None:
    inputs = provider_of(client, **config).check(CONFIG_MAPS, {}, named(**given))
    assert inputs["metadata"].get("namespace") == namespace


@pytest.mark.parametrize(
    ("identity", "old", "new", "moved"),
    [
        ("default/x", {}, {"namespace": "default"}, False),
        ("default/x", {"namespace": "default"}, {}, False),
        ("team/x", {}, {"namespace": "team"}, False),
        ("team/x", {"namespace": "team"}, {"namespace": "other"}, True),
        ("team/x", {}, {"namespace": "default"}, True),
    ],
)
def test_an_object_in_another_namespace_is_replaced(
    identity: str, old: Properties, new: Properties, moved: bool
) -> None:
    before = State(identity, named(**old), {})
    diff = provider_of().diff(CONFIG_MAPS, before, named(**new))
    # The new one can be there before the old one is gone.
    assert diff == (Diff(["metadata.namespace"], ["metadata.namespace"]) if moved else Diff())
    if not moved:
        changed = named(**new) | {"data": {"a": "1"}}
        assert provider_of().diff(CONFIG_MAPS, before, changed).delete_before_replace


def test_a_cluster_scoped_kind_has_no_namespace() -> None:
    thing = {"apiVersion": "example.org/v1", "kind": "Thing"}
    given, guessed = named() | thing, named(namespace="team") | thing
    provider = provider_of(ClusterOfOne(namespaced=False), namespace="team")
    assert "namespace" not in provider.check(THINGS, {}, given)["metadata"]
    unreached = provider_of(None, namespace="team").check(THINGS, {}, given)
    assert unreached["metadata"]["namespace"] == "team"
    assert provider.diff(THINGS, State("x", guessed, {}), given) == Diff()
    assert provider.create(THINGS, guessed).id == "x"


def test_an_object_is_found_in_the_namespace_of_its_id() -> None:
    client, old = ClusterOfOne(), State("old/x", named(), {})
    provider = provider_of(client, namespace="new")
    provider.delete(CONFIG_MAPS, old)
    assert [obj["metadata"]["namespace"] for obj in client.deleted] == ["old"]
    client.live = named(namespace="old")
    assert provider.update(CONFIG_MAPS, old, named()).id == "old/x"


NOT_THERE = ApiError(404, 'namespaces "team" not found', kind="namespaces")


@pytest.mark.parametrize(
    ("refusals", "tries"),
    [([NOT_THERE] * 2, 3), ([NOT_THERE] * 5, 3), ([ApiError(403, "forbidden")] * 5, 1)],
    ids=["a little", "not for ever", "not for anything else"],
)
def test_a_new_object_waits_a_little_for_its_namespace_or_kind(
    refusals: list[ApiError], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_RETRY_SECONDS", (0, 0))
    client = ClusterOfOne()
    client.refusals = [*refusals]
    if len(refusals) < tries:
        assert provider_of(client).create(CONFIG_MAPS, named()).id == "default/x"
    else:
        with pytest.raises(RehearsalError, match=refusals[0].message):
            provider_of(client).create(CONFIG_MAPS, named())
    assert len(client.asked) == tries


def test_what_may_have_been_made_unheard_is_taken_over() -> None:
    client = ClusterOfOne()
    provider = provider_of(client)
    client.refusals = [ApiError(500, "etcdserver: server stopped")]
    with pytest.raises(RehearsalError, match="server stopped"):
        provider.create(CONFIG_MAPS, named())
    for _ in range(2):
        assert provider.create(CONFIG_MAPS, named()).id == "default/x"
    # Created; then applied, as what may be there; then created again, as that was told.
    assert ["created" in options for options in client.asked] == [True, False, True]


def test_an_interrupt_ends_the_wait_for_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_RETRY_SECONDS", (600,))
    client = ClusterOfOne()
    client.refusals = [NOT_THERE]
    provider = provider_of(client)
    provider.cancelled.set()
    with pytest.raises(RehearsalError, match="not found"):
        provider.create(CONFIG_MAPS, named())


def test_a_deletion_waits_as_long_as_the_annotation_says() -> None:
    client = ClusterOfOne()
    client.live = named(namespace="default", uid="1")
    inputs = named(annotations={"pulumi.com/timeoutSeconds": "1"})
    with pytest.raises(RehearsalError, match="still being deleted"):
        provider_of(client).delete(CONFIG_MAPS, State("default/x", inputs, {}))
    assert waiting.seconds(inputs, 7) == 7
    assert waiting.seconds(named(annotations={"pulumi.com/timeoutSeconds": "soon"}), 0) == 600
    assert waiting.seconds({"apiVersion": "v1", "kind": "PersistentVolumeClaim"}, 0) == 600


@pytest.mark.parametrize(("available", "done"), [(None, False), (1, False), (2, True)])
def test_a_replication_controller_needs_all_its_replicas(available: int | None, done: bool) -> None:
    status = {} if available is None else {"availableReplicas": available}
    live = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {}}
    client: Any = ClusterOfOne()
    lack = readiness.missing(client, live | {"spec": {"replicas": 2}, "status": status})
    assert (lack is None) is done


def test_a_null_is_kept_where_it_means_something() -> None:
    inputs = {"spec": {"a": None, "b": [{"c": None}]}}
    assert provider_of().check(CONFIG_MAPS, {}, named() | inputs)["spec"] == {"b": [{}]}
    assert provider_of().check(THINGS, {}, named() | inputs)["spec"] == inputs["spec"]
    without, null = ({"values": values} for values in ({}, {"a": None}))
    diff = provider_of().diff(resource("helm.sh/v3:Release"), State("default/x", without, {}), null)
    assert diff == Diff(["values.a"])


def test_a_change_of_the_name_replaces(project: Project) -> None:
    project.up(CONFIG_MAP)
    other = CONFIG_MAP.replace('"name": "settings"', '"name": "other"')
    assert "1 replaced" in project.up(other)
    assert project.kubectl("get", "configmap", "settings") is None
    assert project.kubectl("get", "configmap", "other")


def test_refresh_sees_drift_and_up_restores_what_it_is_told_to(project: Project) -> None:
    """What kubectl changed is taken over; what belongs to another manager is a conflict."""
    for manager in ("kubectl-patch", "theirs"):
        project.up(CONFIG_MAP)
        project.patch("configmap", "settings", {"metadata": {"labels": {"level": "9"}}}, manager)
        assert "1 updated" in refreshed(project)
        if manager == "theirs":
            assert 'conflict with "theirs"' in project.fails(CONFIG_MAP)
            forced = '"name": "settings", "annotations": {"pulumi.com/patchForce": "true"}'
            project.up(CONFIG_MAP.replace('"name": "settings"', forced))
        else:
            project.up(CONFIG_MAP)
        assert level_of(project) == "1"


def test_an_ignored_field_stays_with_whoever_changed_it(project: Project) -> None:
    body = """
    k8s.core.v1.ConfigMap("settings", metadata={"name": "settings", "labels": {"level": "1", "other": "1"}},
                          opts=options(ignore_changes=["metadata.labels.level"]))
    """
    project.up(body)
    project.patch("configmap", "settings", {"metadata": {"labels": {"level": "9"}}})
    assert "1 updated" in project.up(body.replace('"other": "1"', '"other": "2"'))
    live = project.kubectl("get", "configmap", "settings")
    assert live["metadata"]["labels"] == {"level": "9", "other": "2"}
    project.up("")


def test_what_is_no_longer_declared_goes(project: Project) -> None:
    project.up(CONFIG_MAP)
    project.up(CONFIG_MAP.replace(', "labels": {"level": "1"}', ""))
    assert "labels" not in project.kubectl("get", "configmap", "settings")["metadata"]


def test_an_update_of_a_deleted_object_fails_until_a_refresh(project: Project) -> None:
    project.up("")
    project.up(CONFIG_MAP)
    project.kubectl("delete", "configmap", "settings")
    assert "is gone. Run pulumi refresh" in project.fails(LEVEL_2)
    refreshed(project)
    assert "1 created" in project.up(LEVEL_2)


def test_of_two_resources_of_one_name_the_second_fails(project: Project) -> None:
    project.up("")
    again = LEVEL_2.replace('("settings"', '("again"')
    assert 'configmaps "settings" already exists' in project.fails(CONFIG_MAP + again)


def test_a_list_with_equal_keys_is_created(project: Project) -> None:
    twice = '"image": "busybox", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]'
    project.up(UNAWAITED.replace('"image": "busybox"', twice))
    template = project.kubectl("get", "deployment", "stuck")["spec"]["template"]
    assert len(template["spec"]["containers"][0]["env"]) == 2
    project.up("")


def test_a_provider_may_take_over_objects_and_fields() -> None:
    client, old = ClusterOfOne(), State("default/x", named(), {})
    provider_of(client).create(CONFIG_MAPS, named())
    taking_over = provider_of(client, upsertExistingObjects="true")
    taking_over.preview(CONFIG_MAPS, None, named(name="x"))
    taking_over.create(CONFIG_MAPS, named())
    provider_of(client, enablePatchForce="true").update(CONFIG_MAPS, old, named())
    assert client.asked == [
        {"created": True, "dry_run": False},
        {"created": True, "dry_run": True},
        {"dry_run": False, "force": False},
        {"dry_run": False, "force": True},
    ]


@pytest.mark.parametrize(
    ("refusal", "tells"),
    [
        (ApiError(0, "the API server cannot be reached"), False),
        (ApiError(400, "admission webhook x does not support dry run"), False),
        (ApiError(403, "exceeded quota"), False),
        (ApiError(404, 'namespaces "team" not found', kind="namespaces"), False),
        (ApiError(409, 'configmaps "x" already exists'), False),
        (ApiError(422, "data: Invalid value"), True),
        (ApiError(500, "failed calling webhook"), True),
    ],
)
def test_a_preview_fails_only_if_the_update_would_fail(refusal: ApiError, tells: bool) -> None:
    client = ClusterOfOne()
    client.refusals = [refusal]
    if tells:
        with pytest.raises(RehearsalError, match="the API server refuses it"):
            provider_of(client).preview(CONFIG_MAPS, None, named())
    else:
        assert provider_of(client).preview(CONFIG_MAPS, None, named()) == named()


def test_a_preview_is_forced_until_objects_are_adopted() -> None:
    client, old = ClusterOfOne(), State("default/x", named(), {})
    provider = provider_of(client)
    provider.create(CONFIG_MAPS, named())
    client.created = True
    provider.preview(CONFIG_MAPS, old, named())
    provider.update(CONFIG_MAPS, old, named())
    provider.preview(CONFIG_MAPS, old, named())
    assert [asked.get("force") for asked in client.asked] == [None, True, False, False]


def test_a_refresh_shows_what_others_changed() -> None:
    client, old = ClusterOfOne(), State("default/x", named() | {"data": {"a": "1"}}, {})
    client.live = named(namespace="default", labels={"by": "webhook"}) | {"data": {"a": "2"}}
    state = provider_of(client).read(CONFIG_MAPS, old)
    assert state is not None
    assert (state.inputs["data"], state.inputs["metadata"]) == ({"a": "2"}, {"name": "x"})
    assert client.asked == []


@pytest.mark.parametrize("setting", ["renderYamlToDirectory", "helmReleaseSettings"])
def test_a_provider_setting_that_would_be_ignored_is_refused(setting: str) -> None:
    with pytest.raises(CheckError, match=f"{setting}: is not supported in a rehearsal"):
        KubernetesProvider().check_config({setting: "x"})
    KubernetesProvider().check_config({"namespace": "x"})


def kubeconfig(server: str, **user: Any) -> str:
    """A kubeconfig of one cluster, with what its user has."""
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        }
    )


HERE, THERE = kubeconfig("https://here"), kubeconfig("https://there")


def reached(kubeconfig: Any, cluster: str = "") -> Properties:
    """The inputs of a provider, which may name its cluster."""
    identified = {"clusterIdentifier": cluster} if cluster else {}
    return {"kubeconfig": kubeconfig, **identified}


@pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        ({}, reached(HERE), []),
        (reached(HERE), reached(HERE + " "), []),
        (reached(HERE), reached(THERE), ["kubeconfig"]),
        (reached(HERE), reached("broken"), []),
        (reached(HERE), reached(UNKNOWN), ["kubeconfig"]),
        (reached(HERE, "a"), reached(THERE, "a"), []),
        (reached(HERE, "a"), reached(HERE, "b"), ["clusterIdentifier"]),
        (reached(HERE), reached(HERE, "b"), []),
    ],
)
def test_a_provider_that_moves_to_another_cluster_is_replaced(
    old: Any, new: Any, replaces: list[str]
) -> None:
    assert KubernetesProvider().diff_config(old, new).replaces == replaces


def test_metadata_that_the_server_writes_is_left_to_it() -> None:
    written = {"uid": "1", "resourceVersion": "2", "creationTimestamp": "3"}
    exported = named(**written, generation=4, managedFields=[], labels={})
    metadata = provider_of().check(CONFIG_MAPS, {}, exported)["metadata"]
    assert metadata.keys() == {"name", "namespace", "labels"}


FORBIDDEN = """
k8s.core.v1.Namespace("full", metadata={"name": "full"}, opts=here)
k8s.core.v1.ResourceQuota("none", metadata={"name": "none", "namespace": "full"}, spec={"hard": {"configmaps": "1"}}, opts=here)
"""


def test_what_a_preview_forbids_may_be_allowed_at_creation(project: Project) -> None:
    project.up(FORBIDDEN)
    more = FORBIDDEN + (
        'k8s.core.v1.ConfigMap("one", metadata={"name": "one", "namespace": "full"}, opts=here)\n'
        'k8s.core.v1.ConfigMap("two", metadata={"name": "two", "namespace": "full"}, opts=here)\n'
    )
    project.program(more)
    done = project.pulumi("preview", "--stack", "t")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exceeded quota: none" in project.fails(more)
    project.up("")


def test_an_existing_object_can_only_be_imported(project: Project) -> None:
    project.kubectl("create", "configmap", "foreign", "--from-literal=a=1")
    body = 'k8s.core.v1.ConfigMap("foreign", metadata={"name": "foreign", "namespace": "default"}, data={"a": "1"}, opts='
    printed = project.fails(body + "here)")
    assert 'configmaps "foreign" already exists. Import it' in printed
    project.up(body + 'options(import_="default/foreign"))')
    assert "unchanged" in project.up(body + "here)")
    # Pulumi creates a renamed resource before it deletes the old one.
    renamed = body.replace('ConfigMap("foreign"', 'ConfigMap("renamed"')
    assert "add the old name to its aliases" in project.fails(renamed + "here)")
    assert "unchanged" in project.up(renamed + 'options(aliases=[pulumi.Alias(name="foreign")]))')


def test_a_secret_is_nowhere_in_plain(project: Project) -> None:
    project.up(
        """
        k8s.core.v1.Secret("plain", metadata={"name": "plain"}, string_data={"key": pulumi.Output.secret("hunter2")}, opts=here)
        """
    )
    state = exported(project)
    assert "hunter2" not in state
    assert "aHVudGVyMg==" not in state
    assert "3 unchanged" in refreshed(project)


def test_a_secret_with_a_changed_label_is_not_recreated(project: Project) -> None:
    body = """
    k8s.core.v1.Secret("drifts", string_data={"key": "hunter2"}, metadata={"name": "drifts", "labels": {"l": "1"},
                       "annotations": {"pulumi.com/patchForce": "true"}}, opts=here)
    """
    project.up(body)
    project.patch("secret", "drifts", {"metadata": {"labels": {"l": "9"}}})
    assert "1 updated" in refreshed(project)
    assert "1 updated" in project.up(body)
    live = project.kubectl("get", "secret", "drifts")
    assert (live["metadata"]["labels"], live["data"]) == ({"l": "1"}, {"key": "aHVudGVyMg=="})


def test_an_unmarked_or_imported_secret_is_hidden(project: Project) -> None:
    body = """
    k8s.core.v1.Secret("bare", metadata={"name": "bare", "namespace": "default"}, data={"key": "aHVudGVyMg=="}, opts=here)
    """
    project.up(body)
    state = exported(project)
    project.pulumi("state", "delete", project.urn("bare"), "--yes", "--stack", "t")
    project.up(body.replace("opts=here", 'type="Opaque", opts=options(import_="default/bare")'))
    assert "aHVudGVyMg==" not in state + exported(project)


def test_a_secret_of_pods_that_stay_unready_is_hidden(project: Project) -> None:
    hidden = '"image": "busybox", "env": [{"name": "K", "value": pulumi.Output.secret("hunter2")}]'
    project.fails(DEPLOYMENT.replace('"image": "busybox"', hidden))
    assert "hunter2" not in exported(project)


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
k8s.apps.v1.Deployment("stuck", metadata={"name": "stuck", "annotations": {"pulumi.com/timeoutSeconds": "2"}}, spec={
    "replicas": 1, "selector": {"match_labels": {"app": "stuck"}}, "template": {"metadata": {"labels": {"app": "stuck"}},
    "spec": {"containers": [{"name": "c", "image": "busybox"}], "node_selector": {"no": "such"}}}}, opts=here)
"""
SECONDS = '"pulumi.com/timeoutSeconds": "2"'
UNAWAITED = DEPLOYMENT.replace(SECONDS, '"pulumi.com/skipAwait": "true"')
LONG_AWAITED = DEPLOYMENT.replace(SECONDS, '"pulumi.com/timeoutSeconds": "600"')


def test_a_deployment_that_stays_unready_can_be_fixed(project: Project) -> None:
    assert "0/1 replicas ready" in project.fails(DEPLOYMENT)
    assert "stuck" in [r["urn"].rpartition("::")[2] for r in project.resources()]
    assert "unhealthy state" in refreshed(project)
    assert next(r for r in project.resources() if r["urn"].endswith("::stuck"))["initErrors"]
    assert "1 updated" in project.up(UNAWAITED)


JOB = """
k8s.batch.v1.Job("train", metadata={{"name": "train", "annotations": {{"pulumi.com/skipAwait": "true",
    "pulumi.com/deletionPropagationPolicy": "background"}}}}, spec={{
    "ttl_seconds_after_finished": {ttl}, "template": {{"spec": {{"restart_policy": "Never",
    "containers": [{{"name": "c", "image": "{image}"}}]}}}}}}, opts=here)
"""


def test_a_job_is_updated_if_possible_and_otherwise_replaced(project: Project) -> None:
    project.up(JOB.format(ttl=1000, image="a"))
    assert "1 updated" in project.up(JOB.format(ttl=2000, image="a"))
    assert "1 replaced" in project.up(JOB.format(ttl=2000, image="b"))
    template = project.kubectl("get", "job", "train")["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "b"


def test_a_replacement_meets_an_old_job_that_is_being_deleted(project: Project) -> None:
    held = JOB.replace('"annotations"', '"finalizers": ["example.com/hold"], "annotations"')
    project.up("")
    project.up(held.format(ttl=1000, image="a"))
    assert "object is being deleted" in project.fails(held.format(ttl=1000, image="b"))
    project.patch("job", "train", {"metadata": {"finalizers": None}})
    assert "1 replaced" in project.up(JOB.format(ttl=1000, image="b"))


def test_the_deletion_of_other_kinds_is_always_awaited() -> None:
    skipping = {"annotations": {"pulumi.com/skipAwait": "true", "pulumi.com/timeoutSeconds": "1"}}
    client = ClusterOfOne()
    client.live = named(namespace="default", uid="1")
    with pytest.raises(RehearsalError, match="still being deleted"):
        provider_of(client).delete(CONFIG_MAPS, State("default/x", named(**skipping), {}))
    job = named(**skipping) | {"apiVersion": "batch/v1", "kind": "Job"}
    provider_of(client).delete(resource("batch/v1:Job"), State("default/x", job, {}))
    assert len(client.deleted) == 2


AWAITED_JOB = """
k8s.batch.v1.Job("check", metadata={{"name": "check", "annotations": {annotations}}}, spec={{
    "active_deadline_seconds": {seconds}, "completions": {completions}, "template": {{"spec": {{"restart_policy": "Never",
    "containers": [{{"name": "c", "image": "busybox"}}], "node_selector": {{"no": "such"}}}}}}}}, opts=here)
"""


@pytest.mark.parametrize("replaced", [True, False])
def test_a_failed_job_is_recreated_only_if_configured(project: Project, replaced: bool) -> None:
    annotations = {"pulumi.com/replaceUnready": str(replaced).lower()}
    failing = AWAITED_JOB.format(annotations=annotations, seconds=1, completions=1)
    uids: list[str] = []
    for _ in range(3):
        assert "DeadlineExceeded" in project.fails(failing)
        uids.append(project.kubectl("get", "job", "check")["metadata"]["uid"])
    assert len(set(uids)) == (3 if replaced else 1)
    project.up("")


def test_a_job_that_is_complete_is_not_made_anew(project: Project) -> None:
    annotations = {"pulumi.com/replaceUnready": "true"}
    body = AWAITED_JOB.format(annotations=annotations, seconds=60, completions=0)
    longer = body.replace("60", "90")
    project.up("")
    project.up(body)
    uid = project.kubectl("get", "job", "check")["metadata"]["uid"]
    assert "3 unchanged" in project.up(body)
    assert "1 updated" in project.up(longer)
    assert project.kubectl("get", "job", "check")["metadata"]["uid"] == uid
    project.kubectl("delete", "job", "check")
    assert "3 unchanged" in project.up(longer), "a Job that cannot be read is left alone"
    refreshed(project)
    project.up("")


def test_a_refresh_ignores_zero_values_and_other_spellings(project: Project) -> None:
    body = """
    k8s.batch.v1.Job("plain", metadata={"name": "plain", "annotations": {"pulumi.com/skipAwait": "true"}}, spec={
        "template": {"spec": {"restart_policy": "Never", "host_network": False, "node_selector": {"no": "such"},
            "containers": [{"name": "c", "image": "busybox", "volume_mounts": [{"name": "v", "mount_path": "/v", "read_only": False}],
                            "resources": {"requests": {"cpu": "1000m", "memory": "2048Mi"}}}],
            "volumes": [{"name": "v", "empty_dir": {}}]}}}, opts=here)
    """
    project.up(body)
    uid = project.kubectl("get", "job", "plain")["metadata"]["uid"]
    assert "3 unchanged" in refreshed(project)
    assert "3 unchanged" in project.up(body)
    assert project.kubectl("get", "job", "plain")["metadata"]["uid"] == uid


def test_a_generated_name_is_kept(project: Project) -> None:
    path = str(project.cluster.kubeconfig)
    client_side = (
        f'k8s.Provider("mine", kubeconfig=open({path!r}).read(), enable_server_side_apply=False)'
    )
    body = AUTONAMED.replace('"labels"', '"generate_name": "g-", "labels"')
    body = body.replace("here", f"pulumi.ResourceOptions(provider={client_side})")
    project.up(body)
    name = name_of(project)
    assert name.startswith("g-")
    assert "1 updated" in project.up(body.replace('"x"', '"y"'))
    made = project.kubectl("get", "configmap", name)["metadata"]
    assert made["labels"] == {"l": "y", "app.kubernetes.io/managed-by": "pulumi"}
    assert {entry["operation"] for entry in made["managedFields"]} <= {"Update"}
    project.up("")
    assert project.kubectl("get", "configmap", name) is None


def test_a_generated_name_is_created_before_the_old_one_goes() -> None:
    old, new = ({"metadata": {"generateName": "g-"}, "data": {"k": value}} for value in "12")
    assert change("ConfigMap", old, new) == Diff(["data.k"], ["data.k"])


def test_wait_for_a_condition_of_ones_own(project: Project) -> None:
    body = """
    k8s.core.v1.ConfigMap("flag", metadata={"name": "flag", "annotations": {"pulumi.com/timeoutSeconds": "1",
        "pulumi.com/waitFor": "jsonpath={.data.ready}=yes"}}, data={"ready": "no"}, opts=here)
    """
    assert "waiting for jsonpath" in project.fails(body)
    project.up(body.replace('"no"', '"yes"'))


def served_kinds(cluster: Cluster) -> dict[tuple[str, str], bool]:
    """The kinds that the API server serves, by version and kind, and whether they are namespaced."""
    api = Api(Access(cluster.kubeconfig))
    groups = api.get("/apis")["groups"]
    versions = [version["groupVersion"] for group in groups for version in group["versions"]]
    return {
        (version, item["kind"]): item["namespaced"]
        for version in ("v1", *versions)
        for item in api.get(f"/apis/{version}" if "/" in version else f"/api/{version}")[
            "resources"
        ]
        if "/" not in item["name"]
    }


def test_namespaced_kinds_are_those_of_the_api_server(cluster: Cluster) -> None:
    served = served_kinds(cluster)
    known = {kind: KUBERNETES[token] for kind in served if (token := token_of(*kind)) in KUBERNETES}
    assert known["v1", "Pod"].is_namespaced
    assert not known["storage.k8s.io/v1", "StorageClass"].is_namespaced
    assert not {kind for kind, found in known.items() if found.is_namespaced != served[kind]}
    assert token_of("kueue.x-k8s.io/v1beta1", "ClusterQueue") not in KUBERNETES


def test_an_unsupported_kind_is_named(project: Project) -> None:
    printed = project.fails('k8s.core.v1.ConfigMapList("p", items=[], opts=here)')
    assert "kubernetes:core/v1:ConfigMapList is not supported in a rehearsal" in printed


def test_a_patch_changes_what_it_names_and_gives_it_back(project: Project) -> None:
    account = project.kubectl("create", "configmap", "theirs", "--from-literal=a=1")
    body = """
    k8s.core.v1.ConfigMapPatch("p", metadata={{"name": "theirs", "labels": {{"team": "{team}"}}}}, data={{"b": "2"}},
                               opts=here)
    """
    project.up(body.format(team="x"))
    assert project.kubectl("get", "configmap", "theirs")["data"] == {"a": "1", "b": "2"}
    assert "1 updated" in project.up(body.format(team="y"))
    assert "unchanged" in project.up(body.format(team="y"))
    assert project.kubectl("get", "configmap", "theirs")["metadata"]["labels"] == {"team": "y"}
    printed = project.fails(body.format(team="y").replace('"b": "2"', '"a": "3"'))
    assert "conflict" in printed and "pulumi.com/patchForce" in printed
    project.up("")
    left = project.kubectl("get", "configmap", "theirs")
    assert (left["data"], left["metadata"]["uid"]) == ({"a": "1"}, account["metadata"]["uid"])
    assert "labels" not in left["metadata"]
    project.kubectl("delete", "configmap", "theirs")


def test_a_patch_needs_a_name_and_server_side_apply() -> None:
    patch = Resource("urn::p", "kubernetes:core/v1:ConfigMapPatch", "p")
    with pytest.raises(CheckError, match="a patch changes an object that has a name"):
        provider_of().check(patch, {}, {})
    with pytest.raises(CheckError, match="patch resources need Server-Side Apply"):
        provider_of(enableServerSideApply="false").check(patch, {}, named())


def test_a_removed_version_is_warned_of_at_preview(project: Project) -> None:
    project.program('k8s.batch.v1beta1.CronJob("c", metadata={"name": "c"}, spec={}, opts=here)')
    warning = "batch/v1beta1/CronJob was removed in Kubernetes 1.25. Use batch/v1/CronJob instead"
    assert warning in project.pulumi("preview", "--stack", "t").stdout


def test_served_kinds_are_not_reported_as_removed(cluster: Cluster) -> None:
    assert not [kind for kind in served_kinds(cluster) if removal(*kind)]
    removed = removal("extensions/v1beta1", "PodSecurityPolicy")
    assert removed.endswith("It has no replacement")


def test_pulumi_import_prints_what_to_declare(project: Project) -> None:
    project.kubectl("create", "configmap", "found", "--from-literal=a=1")
    project.up('k8s.core.v1.ConfigMap("x", metadata={"name": "x"}, opts=here)')
    provider = f"--provider=replica={project.urn('replica')}"
    imported = ("kubernetes:core/v1:ConfigMap", "found", "default/found", provider)
    done = project.pulumi("import", *imported, "--yes", "--stack=t", "--protect=false")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Imported. Declare it" in done.stdout
    project.up("")
    assert project.kubectl("get", "configmap", "found") is None


def test_a_failing_credential_plugin_is_heard(project: Project, tmp_path: Path) -> None:
    plugin = tmp_path / "credentials"
    plugin.write_text("#!/bin/sh\necho 'please run gcloud auth login' >&2\nexit 3\n")
    plugin.chmod(0o755)
    version = "client.authentication.k8s.io/v1beta1"
    server = server_of(str(project.cluster.kubeconfig))
    text = kubeconfig(server, exec={"apiVersion": version, "command": str(plugin)})
    printed = project.fails(
        f"""
        other = k8s.Provider("other", kubeconfig={text!r})
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
    return f'k8s.helm.v3.Release("r", name="r", chart={str(folder / "tiny")!r}, namespace="default", {inputs}, opts=here)'


def test_helm_installs_upgrades_and_removes_a_local_chart(project: Project, tmp_path: Path) -> None:
    files = 'value_yaml_files=[pulumi.StringAsset("level: 4")]'
    body = release(tmp_path, CHART, f'{files}, values={{"level": 5}}')

    def made() -> Any:
        return project.kubectl("get", "configmap", "tiny")

    project.up(body.replace('"level": 5', ""))
    assert made()["data"]["level"] == "4"
    project.up(body)
    assert made()["data"]["level"] == "5"
    assert "1 updated" in project.up(body.replace('"level": 5', '"level": 6'))
    assert made()["data"]["level"] == "6"
    project.up(body.replace('"level": 5', '"level": None'))
    assert "data" not in made(), "a null removes what the chart and the file say"
    project.up("")
    assert made() is None


FAR = """
k8s.helm.v3.Release("op", name="op", chart="gpu-operator", version="v26.7.0", namespace="default",
    repository_opts={"repo": "https://127.0.0.1:9"}, values={"driver": {"enabled": False}}, opts=here)
"""


def test_a_release_reports_what_helm_installed(project: Project, tmp_path: Path) -> None:
    body = release(tmp_path, CHART, "values={}")
    project.up(body)
    [made] = [resource for resource in project.resources() if resource["type"].endswith(":Release")]
    assert made["outputs"]["resourceNames"] == {"ConfigMap/v1": ["tiny"]}
    assert made["outputs"]["status"]["revision"] == 1
    assert made["outputs"]["status"]["status"] == "deployed"
    again = body.replace('Release("r"', 'Release("again"')
    assert "the release default/r exists already" in project.fails(f"{body}\n{again}")
    project.up("")


def unreachable(monkeypatch: pytest.MonkeyPatch, network: bool) -> Helm:
    """Helm on a machine with or without a network, where the chart's own repository never answers."""
    monkeypatch.setattr(helm, "_answers", lambda _: network)

    def fails(*args: str, seconds: float) -> str:
        raise RehearsalError(f"helm {args[0]} failed: dial tcp: no such host")

    offline = Helm(Provider(), Settings({}))
    monkeypatch.setattr(offline, "_helm", fails)
    return offline


def test_a_wrong_address_of_a_chart_is_no_lack_of_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "https://charts.invalid"
    inputs = {"chart": "c", "name": "c", "namespace": "n", "repositoryOpts": {"repo": address}}
    with pytest.raises(RehearsalError, match="other chart repositories can"):
        unreachable(monkeypatch, network=True).install(Resource("", "", ""), inputs)
    obstacle = unreachable(monkeypatch, network=False)._fetch_obstacle(inputs)
    assert obstacle == f"{address} cannot be reached"


def test_a_chart_that_cannot_be_fetched_is_recorded(project: Project) -> None:
    assert "recorded, chart not installed" in project.up(FAR)
    file = project.rehearsal.releases_dir / "default.op.json"
    record = json.loads(file.read_text())
    assert (record["chart"], record["installed"]) == ("gpu-operator", False)
    assert "unchanged" in project.up(FAR)
    project.up("")
    assert not file.exists()


def test_a_value_that_only_chart_templates_read_is_known() -> None:
    assert not list(unknown_keys("gpu-operator", {"dcgmExporter": {"config": {"name": "metrics"}}}))


@pytest.mark.parametrize("command", ["preview", "up"])
def test_an_unknown_value_of_a_recorded_chart_is_refused(project: Project, command: str) -> None:
    files = 'value_yaml_files=[pulumi.StringAsset("toolkit: {versoin: 1}")], values='
    body = FAR.replace("values=", files).replace('"enabled"', '"enbled"')
    printed = project.fails(body, command)
    unknown = "values.driver.enbled: the chart gpu-operator has no such value"
    assert f"{unknown}. Did you mean driver.enabled" in printed
    assert "valueYamlFiles[0].toolkit.versoin" in printed


def test_a_release_that_helm_completed_before_a_kill_is_adopted(
    project: Project, tmp_path: Path
) -> None:
    body = release(tmp_path, CHART, 'values={"level": 5}')
    project.up(body)
    project.as_if_killed("r")
    stack.recover(project.rehearsal)
    assert project.urn("r")
    assert "3 unchanged" in project.up(body)
    assert [item["metadata"]["labels"]["version"] for item in releases(project)] == ["1"]


def test_a_release_that_helm_had_not_ended_makes_room(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The user's own cluster, for all that Helm knows.
    monkeypatch.setenv("HELM_KUBEAPISERVER", "https://127.0.0.1:9")
    body = release(tmp_path, CHART, 'values={"level": 5}')
    project.up(body)
    project.as_if_killed("r")
    secret = releases(project)[-1]
    text = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    record = json.loads(gzip.decompress(text))
    record["info"]["status"] = "pending-install"
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(record).encode())))
    pending = {"metadata": {"labels": {"status": "pending-install"}}}
    change = pending | {"data": {"release": packed.decode()}}
    project.patch("secret", secret["metadata"]["name"], change)
    stack.recover(project.rehearsal)
    assert "1 created" in project.up(body)
    assert [item["metadata"]["labels"]["status"] for item in releases(project)] == ["deployed"]


def releases(project: Project) -> list[dict[str, Any]]:
    """What Helm keeps of its releases: a Secret for each revision."""
    return project.kubectl("get", "secrets", "-l", "owner=helm")["items"]


def test_a_chart_whose_pods_stay_unready_can_be_fixed(project: Project, tmp_path: Path) -> None:
    stuck = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: stuck-chart}\n"
        "spec: {containers: [{name: c, image: busybox}], nodeSelector: {no: such}}\n"
    )
    chart = CHART | {"templates/pod.yaml": stuck}
    body = release(tmp_path, chart, 'timeout=2, values={"level": 5}')
    project.fails(body)
    assert project.urn("r")
    project.up(body.replace("timeout=2", "skip_await=True"))
    project.up("")
    assert project.kubectl("get", "pod", "stuck-chart") is None


def test_an_input_of_a_release_that_is_not_rehearsed_is_named(
    project: Project, tmp_path: Path
) -> None:
    assert "postrender" in project.fails(release(tmp_path, CHART, 'postrender="sed"'))


def updating(project: Project, pulumi: Path, body: str) -> subprocess.Popen[str]:
    """Start an update, and return when it waits for the Deployment."""
    project.program(body)
    process = subprocess.Popen(
        [pulumi, "up", "--yes", "--skip-preview", "--stack", "t", "--non-interactive"],
        cwd=project.root,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: project.kubectl("get", "deployment", "stuck") is not None)
    except BaseException:
        process.kill()
        raise
    return process


def test_an_interrupt_during_a_wait_ends_it_soon(project: Project) -> None:
    process = updating(project, project.rehearsal.bin_dir / "pulumi", LONG_AWAITED)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=500)  # The wait itself lasts 600 s.
    assert process.returncode != 0
    assert "interrupted" in printed
    project.pulumi("cancel", "--yes", "--stack", "t")


def test_up_converges_after_pulumi_was_killed_in_an_update(project: Project, tools: Tools) -> None:
    project.up("")
    process = updating(project, tools.pulumi, LONG_AWAITED)
    plugins: list[psutil.Process] = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # Some children live for a moment.
            if {"ml_foundations.rehearsal.plugins", "kubernetes"} <= {*child.cmdline()}:
                plugins.append(child)
    process.kill()
    process.wait()
    assert plugins
    assert not psutil.wait_procs(plugins, timeout=300)[1]
    uid = project.kubectl("get", "deployment", "stuck")["metadata"]["uid"]
    stack.recover(project.rehearsal)
    project.up(UNAWAITED)
    assert project.kubectl("get", "deployment", "stuck")["metadata"]["uid"] == uid
    assert "3 unchanged" in refreshed(project)
