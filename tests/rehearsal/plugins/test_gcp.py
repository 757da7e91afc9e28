"""The embedded gcp plugin: Google's checks, live clusters and pools, and what is only recorded."""

import base64
import importlib
import ipaddress
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.cloud import daemon, replica
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import gke_gcloud_auth_plugin
from ml_foundations.rehearsal.plugins.gcp import container, provider, recorded
from ml_foundations.rehearsal.plugins.gcp.errors import GoogleApiError
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.gcp.node_pool import default_pool, node_pool
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider
from ml_foundations.rehearsal.plugins.provider import CheckError, Resource, State
from ml_foundations.rehearsal.plugins.sdk import GCP
from ml_foundations.rehearsal.processes import has_ended
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, Secret, write_struct
from ml_foundations.rehearsal.report import contents
from ml_foundations.rehearsal.tools.toolchain import Tools
from pulumi.runtime import rpc

from tests.support.cases import cases
from tests.support.cluster import Cluster
from tests.support.recorded import RECORDED, unmodelled

NUMBER = recorded.project_number("acme")
PLACE = GcpLocation("acme", "us-central1", "")
CLUSTER_ID = "projects/acme/locations/us-central1/clusters/ml"
CLUSTER = {
    "name": "ml",
    "removeDefaultNodePool": True,
    "initialNodeCount": 1,
    "deletionProtection": False,
}
RESERVED = {
    "consumeReservationType": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
    "values": ["projects/shared/reservations/mine/reservationBlocks/block"],
}
NO_NODES = {"totalMinNodeCount": 0, "totalMaxNodeCount": 1}


def pool_inputs(**changes: Any) -> Properties:
    config = {
        "machineType": "g2-standard-24",
        "guestAccelerators": [{"type": "nvidia-l4", "count": 2}],
    } | changes.pop("nodeConfig", {})
    scaling = {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}
    given = {"name": "l4", "cluster": CLUSTER_ID, "autoscaling": scaling, "nodeConfig": config}
    return given | changes


def resource(token: str, name: str = "thing") -> Resource:
    return Resource(urn=f"urn:pulumi:s::p::{token}::{name}", type=token, name=name)


def provider_of(rehearsal: Rehearsal) -> GcpProvider:
    provider = GcpProvider(rehearsal)
    provider.configure({"project": "acme", "region": "us-central1"})
    return provider


@pytest.fixture
def offline(tmp_path: Any) -> GcpProvider:
    """A provider of a rehearsal that is not up: enough for whatever is only recorded."""
    rehearsal = Rehearsal.of("bare", tmp_path)
    rehearsal.make()
    return provider_of(rehearsal)


@pytest.fixture
def live(cluster: Cluster) -> Iterator[GcpProvider]:
    daemon.start(cluster.rehearsal)
    try:
        provider = provider_of(cluster.rehearsal)
        yield provider
        for found in provider._declared_of(container.CLUSTER):
            provider.delete(resource(container.CLUSTER), State(found["id"], CLUSTER, {}))
    finally:
        daemon.stop(cluster.rehearsal)


def test_a_network_with_a_load_balancer_is_not_deleted(offline: GcpProvider) -> None:
    network = resource("gcp:compute/network:Network")
    state = offline.create(network, {"name": "ml"})
    for name, of_network in (("firewalls/k8s-a", "ml"), ("firewalls/k8s-b", "other")):
        offline._store.save("made", name, {"name": name, "in": of_network})
    used = "'projects/acme/global/networks/ml' is already being used by 'firewalls/k8s-a'"
    with pytest.raises(RehearsalError, match=re.escape(used)):
        offline.delete(network, state)
    assert offline.read(network, state) is not None
    offline._store.delete("made", "firewalls/k8s-a")
    offline.delete(network, state)
    assert offline.read(network, state) is None


@pytest.mark.parametrize(
    ("config", "message"),
    cases(r"""
unknown machine: [{machineType: g2-standard-25},
  machine type 'g2-standard-25' is not in the catalog. Did you mean]
fewer GPUs: [{guestAccelerators: [{type: nvidia-l4, count: 1}]}, it has 2 of this type]
other GPUs: [{guestAccelerators: [{type: nvidia-tesla-t4, count: 1}]}, it has 2 x nvidia-l4]
unknown GPUs: [{guestAccelerators: [{type: nvidia-l5, count: 1}]},
  'type "nvidia-l5" is not in the catalog: declare it by the labels nvidia.com/gpu.product']
disk: [{diskType: hyperdisk-balanced}, cannot be used by g2-standard-24]
effect: [{taints: [{key: k, value: v, effect: NoSchedule}]}, expected effect to be one of]
label without a name: [{labels: {team/: a}}, Invalid node label key "team/"]
label with a prefix in capitals: [{labels: {Team/role: a}}, Invalid node label key "Team/role"]
label with two words: [{labels: {role: two words}}, Invalid value "two words" of node label "role"]
taint without a key: [{taints: [{value: v, effect: NO_SCHEDULE}]}, Invalid node taint key ""]
value of a taint: [{taints: [{key: k, value: -v, effect: NO_SCHEDULE}]},
  Invalid value "-v" of node taint "k"]
taint twice: [{taints: [{key: k, effect: NO_EXECUTE}, {key: k, effect: NO_EXECUTE}]},
  the same key and effect]
"""),
)
def test_a_node_config_that_gke_refuses(config: Properties, message: str) -> None:
    with pytest.raises(RehearsalError, match=message):
        node_pool(pool_inputs(nodeConfig=config), PLACE, CLUSTER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"nodeLocations": ["europe-west4-a"]},
            'Location "europe-west4-a" does not exist in region "us-central1"',
        ),
        ({"location": "mars"}, 'Location "mars" does not exist'),
        ({"name": "p" * 41}, "names have up to 40"),
        ({"autoscaling": {"minNodeCount": 3, "maxNodeCount": 1}}, "Autoscaling limits are invalid"),
        (
            {"nodeConfig": {"spot": True, "reservationAffinity": RESERVED}},
            "cannot consume a reservation",
        ),
        (
            {"nodeConfig": {"reservationAffinity": {**RESERVED, "values": []}}},
            "names exactly one reservation",
        ),
        ({"queuedProvisioning": {"enabled": True}}, "starts with 0 nodes"),
        ({"nodeConfig": {"labels": {f"{'a' * 254}/role": "a"}}}, "Invalid node label key"),
        ({"nodeConfig": {"labels": {"a" * 64: "a"}}}, "Invalid node label key"),
    ],
)
def test_what_gke_refuses(changes: Properties, message: str) -> None:
    with pytest.raises(RehearsalError, match=message):
        node_pool(pool_inputs(**changes), PLACE, CLUSTER)


REGIONAL = {"name": "c", "location": "us-central1"}


def test_an_autopilot_cluster_is_regional_and_has_no_pools() -> None:
    pilot = REGIONAL | {"enableAutopilot": True, "initialNodeCount": 1}
    container.check_cluster(pilot, PLACE)
    assert default_pool(pilot, PLACE) is None
    with pytest.raises(RehearsalError, match="must be regional"):
        container.check_cluster(pilot | {"location": "us-central1-a"}, PLACE)


def test_a_cluster_begins_with_a_node_if_its_pool_is_removed() -> None:
    with_node = (
        {"initialNodeCount": 1},
        {"enableAutopilot": True},
        {"nodePools": [{"nodeCount": 1}]},
    )
    for given in with_node:
        container.check_cluster(REGIONAL | given, PLACE)
    with pytest.raises(RehearsalError, match="initial_node_count must be greater than zero"):
        container.check_cluster(REGIONAL | {"removeDefaultNodePool": True}, PLACE)


def test_a_recorded_database_has_an_address_to_write_into_a_url(offline: GcpProvider) -> None:
    given = {"name": "db", "databaseVersion": "MYSQL_8_0", "region": "us-central1"}
    outputs = offline.create(resource("gcp:sql/databaseInstance:DatabaseInstance"), given).outputs
    assert ipaddress.ip_address(outputs["firstIpAddress"]) in ipaddress.ip_network("203.0.113.0/24")
    assert outputs["connectionName"] == "acme:us-central1:db"
    assert outputs["ipAddresses"][0]["ipAddress"] == outputs["privateIpAddress"]


def test_labels_and_taints_that_kubernetes_takes() -> None:
    longest = {f"{'a' * 253}/{'b' * 63}": "c" * 63}
    config = {
        "labels": {"example.com/Role_1.x": "", **longest, "gpus": 2, "fast": True},
        "taints": [{"key": "example.com/only", "effect": "NO_EXECUTE"}],
    }
    pool = node_pool(pool_inputs(nodeConfig=config), PLACE, CLUSTER)
    assert pool.labels == config["labels"] | {"gpus": "2", "fast": "true"}
    assert pool.taints == ({"key": "example.com/only", "value": "", "effect": "NoExecute"},)


def test_node_counts_are_per_zone_but_for_the_totals() -> None:
    zones = ["us-central1-a", "us-central1-b"]
    total = node_pool(pool_inputs(nodeLocations=zones), PLACE, CLUSTER)
    assert (total.min_nodes, total.max_nodes, total.max_nodes_per_zone) == (1, 4, None)
    scaling = {"minNodeCount": 1, "maxNodeCount": 3}
    zonal = node_pool(pool_inputs(nodeLocations=zones, autoscaling=scaling), PLACE, CLUSTER)
    assert (zonal.min_nodes, zonal.max_nodes, zonal.max_nodes_per_zone) == (2, 6, 3)
    inputs = pool_inputs(nodeLocations=zones, nodeCount=2)
    del inputs["autoscaling"]
    fixed = node_pool(inputs, PLACE, CLUSTER)
    assert (fixed.min_nodes, fixed.max_nodes, fixed.autoscaled) == (4, 4, False)


def test_gpus_are_those_of_the_machine_where_none_are_named() -> None:
    pool = node_pool(pool_inputs(nodeConfig={"guestAccelerators": []}), PLACE, CLUSTER)
    assert pool.gpu is not None
    assert (pool.gpu.type, pool.gpu.count, pool.gpu.driver_version) == ("nvidia-l4", 2, None)


@pytest.mark.parametrize(("token", "inputs"), RECORDED.items(), ids=list(RECORDED))
def test_every_output_of_a_recorded_type_is_modelled(
    offline: GcpProvider, token: str, inputs: Properties
) -> None:
    state = offline.create(resource(token), offline.check(resource(token), {}, inputs))
    assert not unmodelled(token, state.outputs)
    assert inputs.items() <= state.outputs.items()
    again = offline.create(resource(token), inputs)
    assert again.id == state.id
    assert offline.read(resource(token), state) is not None
    offline.delete(resource(token), state)
    assert offline.read(resource(token), state) is None


TOPIC_MEMBER = "gcp:pubsub/topicIAMMember:TopicIAMMember"
SECRET_VERSION = "gcp:secretmanager/secretVersion:SecretVersion"
RECORD_SET = "gcp:dns/recordSet:RecordSet"
GRANT = {"role": "r", "member": "m"}


@pytest.mark.parametrize(
    ("token", "one", "other"),
    cases(f"""
topic: [{TOPIC_MEMBER}, {{role: r, member: m, topic: a}}, {{role: r, member: m, topic: b}}]
secret: ["gcp:secretmanager/secretIamMember:SecretIamMember",
  {{role: r, member: m, secretId: a}}, {{role: r, member: m, secretId: b}}]
condition: [{TOPIC_MEMBER}, {{role: r, member: m, topic: a}},
  {{role: r, member: m, topic: a, condition: {{title: office hours}}}}]
zone: ["gcp:compute/disk:Disk", {{name: d, zone: us-central1-a}}, {{name: d, zone: us-central1-b}}]
type: [{RECORD_SET}, {{managedZone: z, name: a., type: A}}, {{managedZone: z, name: a.,
  type: AAAA}}]
# Google numbers the versions of a secret itself.
version: [{SECRET_VERSION}, {{secret: s, secretData: x}}, {{secret: s, secretData: x}}]
"""),
)
def test_two_recorded_resources_have_two_ids(
    offline: GcpProvider, token: str, one: Properties, other: Properties
) -> None:
    first, second = (
        offline.create(resource(token, name), inputs) for name, inputs in (("a", one), ("b", other))
    )
    assert first.id != second.id
    offline.delete(resource(token, "b"), second)
    assert offline.read(resource(token, "a"), first) is not None


@pytest.mark.parametrize(
    ("token", "inputs", "identity"),
    cases("""
of a zone: ["gcp:compute/disk:Disk", {name: d, zone: us-central1-a},
  projects/acme/zones/us-central1-a/disks/d]
of a project: ["gcp:logging/projectSink:ProjectSink", {name: s}, projects/acme/sinks/s]
global: ["gcp:compute/network:Network", {name: net}, projects/acme/global/networks/net]
short: ["gcp:projects/service:Service", {service: a.googleapis.com}, acme/a.googleapis.com]
member: ["gcp:pubsub/topicIAMMember:TopicIAMMember", {role: r, member: m, topic: a,
  condition: {title: hours}}, acme/a/r/m/hours]
"""),
)
def test_ids_are_those_of_google(
    offline: GcpProvider, token: str, inputs: Properties, identity: str
) -> None:
    assert offline.create(resource(token), inputs).id == identity


def test_a_second_resource_of_one_id_is_refused_as_google_does(offline: GcpProvider) -> None:
    network, service = "gcp:compute/network:Network", "gcp:projects/service:Service"
    offline.create(resource(network, "a"), {"name": "net"})
    # The engine did not live to hear of the first one.
    offline.create(resource(network, "a"), {"name": "net", "description": "again"})
    with pytest.raises(
        GoogleApiError, match=r"Already exists: projects/acme/global/networks/net.*aliases"
    ):
        offline.create(resource(network, "b"), {"name": "net"})
    for name in "ab":
        offline.create(resource(service, name), {"service": "container.googleapis.com"})
        offline.create(resource(TOPIC_MEMBER, name), GRANT | {"topic": "t"})


@pytest.mark.parametrize(
    ("replaces", "token", "old", "new"),
    cases(f"""
topic of a grant: [true, {TOPIC_MEMBER},
  {{role: r, member: m, topic: a}}, {{role: r, member: m, topic: b}}]
members of a grant: [false, "gcp:pubsub/topicIAMBinding:TopicIAMBinding", {{members: [a]}},
  {{members: [b]}}]
secret of a version: [true, {SECRET_VERSION}, {{secret: a}}, {{secret: b}}]
switch of a version: [false, {SECRET_VERSION}, {{enabled: true}}, {{enabled: false}}]
account of a key: [true, "gcp:serviceaccount/key:Key", {{serviceAccountId: a}},
  {{serviceAccountId: b}}]
place of a bucket: [true, "gcp:storage/bucket:Bucket", {{location: US}}, {{location: EU}}]
type of a machine: [false, "gcp:compute/instance:Instance",
  {{machineType: e2-medium}}, {{machineType: e2-small}}]
title of a project: [false, "gcp:organizations/project:Project", {{name: Shown}},
  {{name: Shown so}}]
network of a subnetwork: [true, "gcp:compute/subnetwork:Subnetwork", {{network: a}}, {{network: b}}]
range of a subnetwork: [false, "gcp:compute/subnetwork:Subnetwork",
  {{ipCidrRange: 10.0.0.0/20}}, {{ipCidrRange: 10.0.0.0/16}}]
mode of a network: [true, "gcp:compute/network:Network",
  {{autoCreateSubnetworks: true}}, {{autoCreateSubnetworks: false}}]
# The provider's schema has it as one that is updated in place.
networks of a cluster: [false, {container.CLUSTER}, {{name: a}}, {{name: a,
  enableMultiNetworking: true}}]
"""),
)
def test_what_replaces_a_recorded_resource(
    offline: GcpProvider, replaces: bool, token: str, old: Properties, new: Properties
) -> None:
    diff = offline.diff(resource(token), State("i", old, {}), new)
    assert diff.changed
    assert bool(diff.replaces) is replaces


def test_what_keeps_its_id_is_gone_before_its_replacement_comes(offline: GcpProvider) -> None:
    dataset = resource("gcp:bigquery/dataset:Dataset")
    inputs = {"datasetId": "runs", "location": "US"}
    made = offline.create(dataset, inputs)
    assert offline.diff(dataset, made, inputs | {"location": "EU"}).delete_before_replace
    assert not offline.diff(dataset, made, inputs | {"datasetId": "others"}).delete_before_replace


def test_a_replaced_resource_keeps_its_replacement(offline: GcpProvider) -> None:
    version = resource(SECRET_VERSION)
    old, new = (offline.create(version, {"secret": secret, "secretData": "x"}) for secret in "ab")
    offline.delete(version, old)
    assert offline.read(version, new) is not None


def test_secrets_are_not_written_down_and_are_not_lost(offline: GcpProvider) -> None:
    given = {"secret": "s", "secretData": "hunter2", "labels": {"list": ["a", "b"]}}
    hidden = {"secretData": Secret("hunter2"), "labels": {"list": [Secret("a"), "b"]}}
    about = replace(resource(SECRET_VERSION), message_inputs=write_struct(given | hidden))
    state = offline.create(about, given)
    assert state.outputs["secretData"] == "hunter2"
    [written] = offline._store.recorded()
    shown = {"secretData": "[secret]", "labels": {"list": ["[secret]", "b"]}}
    assert shown.items() <= written["inputs"].items()
    assert "hunter2" not in str(written)
    read = offline.read(about, state)
    assert read is not None
    assert (read.inputs, read.outputs) == (state.inputs, state.outputs)


def test_a_service_account(offline: GcpProvider) -> None:
    state = offline.create(resource(recorded.ACCOUNT), {"accountId": "trainer"})
    email = "trainer@acme.iam.gserviceaccount.com"
    assert state.id == state.outputs["name"] == f"projects/acme/serviceAccounts/{email}"
    assert (state.outputs["email"], state.outputs["member"]) == (email, f"serviceAccount:{email}")


def test_an_output_that_is_not_modelled_is_found() -> None:
    missing = unmodelled(container.CLUSTER, {"endpoint": "1.2.3.4"})
    assert "masterVersion" in missing
    assert "endpoint" not in missing


def test_names_are_made_as_the_provider_makes_them(offline: GcpProvider) -> None:
    cluster = resource(container.CLUSTER, "Prod")
    made = offline.check(cluster, {}, {})
    assert made["name"].startswith("prod-")
    assert len(made["name"]) == len("prod-") + 7
    assert offline.check(cluster, made, {})["name"] == made["name"]
    assert offline.check(cluster, made, {"name": "mine"}) == {"name": "mine"}
    long = offline.check(resource(container.NODE_POOL, "p" * 60), {}, {"cluster": "ml"})
    assert len(long["name"]) == 40


def test_a_prefix_begins_the_name(offline: GcpProvider) -> None:
    pool = resource(container.NODE_POOL)
    prefixed = {"cluster": "ml", "namePrefix": "l4-"}
    made = offline.check(pool, {}, prefixed)
    assert re.fullmatch("l4-[0-9a-f]{26}", made["name"])
    assert offline.check(pool, made, prefixed)["name"] == made["name"]
    assert offline.check(pool, {}, prefixed | {"namePrefix": UNKNOWN})["name"] is UNKNOWN
    other = offline.check(pool, made, prefixed | {"namePrefix": "a-"})
    diff = offline.diff(pool, State("i", made, {}), other)
    assert diff.replaces == ["namePrefix"]
    assert not diff.delete_before_replace


def test_names_are_made_as_the_user_has_them_made(offline: GcpProvider) -> None:
    pool = resource(container.NODE_POOL)
    proposed = replace(pool, proposed_name="Team-" + "p" * 60)
    given = {"cluster": "ml"}
    made = offline.check(proposed, {}, given)
    assert made["name"] == "team-" + "p" * 35
    assert offline.check(replace(pool, proposed_name="other"), made, given)["name"] == made["name"]
    unnamed = replace(pool, must_be_named=True)
    with pytest.raises(CheckError, match="autonaming is disabled"):
        offline.check(unnamed, {}, given)
    assert offline.check(unnamed, {}, given | {"name": "mine"}) == given | {"name": "mine"}


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(r"""
name: [{nodeCfg: {}},
  'nodeCfg: gcp:container/nodePool:NodePool has no property of this name.*Did you mean nodeConf']
nested: [{nodeConfig: {machineTyp: x}},
  'nodeConfig.machineTyp: nodeConfig has no .*Did you mean machineType']
page: [{nodeConfig: {machineTyp: x}},
  'Did you mean machineType.*\? See https://www.pulumi.com/registry/packages/gcp/api-docs/']
in a list: [{nodeConfig: {guestAccelerators: [{type: nvidia-l4, cuont: 1}]}},
  'nodeConfig.guestAccelerators\[0\].cuont: .*nodeConfig.guestAccelerators\[0\].count: is required']
no list: [{nodeConfig: {guestAccelerators: {type: nvidia-l4}}},
  'guestAccelerators: must be a list of blocks']
no block: [{nodeConfig: n2-standard-4}, 'nodeConfig: must be a block of properties']
no block in a list: [{nodeConfig: {taints: [a]}},
  'nodeConfig.taints\[0\]: must be a block of properties']
list: [{autoscaling: [{minNodeCount: 0}]}, 'autoscaling: must be a single block, not a list']
"""),
)
def test_inputs_unknown_to_the_sdk_are_refused_at_any_depth(
    offline: GcpProvider, changes: Properties, said: str
) -> None:
    pool = resource(container.NODE_POOL)
    with pytest.raises(CheckError, match=said):
        offline.check(pool, {}, pool_inputs() | changes)
    unknown = pool_inputs() | {"nodeConfig": {"taints": UNKNOWN, "guestAccelerators": [UNKNOWN]}}
    assert offline.check(pool, {}, unknown) == unknown


def test_what_another_version_of_the_sdk_may_know_is_a_warning(offline: GcpProvider) -> None:
    said: list[str] = []
    offline.log = lambda about, severity, message: said.append(f"{severity}: {message}")
    offline.configure({"project": "acme", "version": "9.0.0"})
    given = pool_inputs(nodeConfig={"later": True})
    assert offline.check(resource(container.NODE_POOL), {}, given) == given
    assert said[0].startswith("warning: nodeConfig.later: ")
    assert "The program uses pulumi-gcp 9.0.0" in said[0]


def test_an_unknown_type_is_refused(offline: GcpProvider) -> None:
    with pytest.raises(CheckError, match="not a resource type"):
        offline.check(resource("gcp:container/nope:Nope"), {}, {})


def test_a_refresh_finds_forced_upgrades_of_flex_start_nodes() -> None:
    asked = {"upgradeSettings": {"strategy": "SURGE", "maxSurge": 1}}
    plain = Pool(name="p", machine_type="g2-standard-24", cluster="c")
    flex = replace(plain, flex_start=True)
    assert container.inputs_at_refresh(asked, flex)["upgradeSettings"]["strategy"] == "SHORT_LIVED"
    assert container.inputs_at_refresh({}, flex) == {}
    assert container.inputs_at_refresh(asked, plain) == asked


PARTITIONED = {"type": "nvidia-l4", "count": 2, "gpuPartitionSize": "x"}


@pytest.mark.parametrize(
    ("change", "replaces"),
    [
        ({"nodeConfig": {"labels": {"a": "b"}}}, False),
        ({"nodeConfig": {"machineType": "g2-standard-48"}}, False),
        ({"autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 9}}, False),
        ({"nodeConfig": {"spot": True}}, True),
        ({"nodeConfig": {"guestAccelerators": [{"type": "nvidia-l4", "count": 4}]}}, True),
        ({"location": "us-central1-a"}, True),
        ({"nodeConfig": {"guestAccelerators": UNKNOWN}}, True),
        ({"nodeConfig": {"guestAccelerators": []}}, True),
        ({"nodeConfig": {"guestAccelerators": [PARTITIONED]}}, True),
        ({"nodeConfig": {"shieldedInstanceConfig": {"enableSecureBoot": True}}}, True),
        ({"nodeConfig": {"resourceLabels": {"a": "b"}}}, False),
    ],
)
def test_what_replaces_a_pool(offline: GcpProvider, change: Properties, replaces: bool) -> None:
    before = State("i", pool_inputs(), {})
    diff = offline.diff(resource(container.NODE_POOL), before, pool_inputs(**change))
    assert diff.changed
    assert bool(diff.replaces) is replaces
    assert diff.delete_before_replace is replaces


@pytest.mark.parametrize(
    ("replaces", "token", "block", "path"),
    cases(f"""
range of a pool: [true, {container.NODE_POOL}, {{networkConfig: {{podRange: pods}}}},
  networkConfig.podRange]
nodes of a pool: [false, {container.NODE_POOL},
  {{networkConfig: {{enablePrivateNodes: true}}}}, networkConfig.enablePrivateNodes]
nodes of a cluster: [true, {container.CLUSTER}, {{nodeConfig: {{spot: true}}}}, nodeConfig.spot]
empty: [false, {container.CLUSTER}, {{privateClusterConfig: {{}}}}, privateClusterConfig]
"""),
)
def test_a_block_that_appears_or_goes_changes_what_is_in_it(
    offline: GcpProvider, replaces: bool, token: str, block: Properties, path: str
) -> None:
    for old, new in (({}, block), (block, {})):
        diff = offline.diff(resource(token), State("i", old, {}), new)
        assert (diff.changed, diff.replaces) == ([path], [path] if replaces else [])


def test_the_same_inputs_are_no_change(offline: GcpProvider) -> None:
    pool = resource(container.NODE_POOL)
    assert not offline.diff(pool, State("i", pool_inputs(), {}), pool_inputs()).changed


def test_a_preview_knows_no_computed_output(offline: GcpProvider) -> None:
    outputs = offline.preview(resource(container.CLUSTER), None, CLUSTER)
    assert outputs["name"] == "ml"
    for key in ("endpoint", "masterAuth", "selfLink", "location"):
        assert outputs[key] is UNKNOWN


def test_no_project_is_an_error(tmp_path: Path) -> None:
    unconfigured = GcpProvider(Rehearsal.of("x", tmp_path))
    with pytest.raises(RehearsalError, match="project: required field is not set"):
        unconfigured.create(resource(recorded.ACCOUNT), {"accountId": "a"})


def test_a_cluster_is_live(live: GcpProvider, cluster: Cluster) -> None:
    state = live.create(resource(container.CLUSTER), CLUSTER)
    assert state.id == CLUSTER_ID
    assert not unmodelled(container.CLUSTER, state.outputs)
    endpoint = state.outputs["endpoint"]
    assert state.outputs["privateClusterConfig"]["privateEndpoint"] == endpoint
    dns = state.outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    assert dns["endpoint"] == endpoint
    authority = base64.b64decode(state.outputs["masterAuth"]["clusterCaCertificate"]).decode()
    context = ssl.create_default_context(cadata=authority)
    found = configuration.credentials(cluster.rehearsal)
    context.load_cert_chain(found.cert, found.key)
    with urllib.request.urlopen(f"https://{endpoint}/version", context=context) as answer:
        assert json.load(answer)["major"] == "1"


def test_a_pool_becomes_nodes_follows_updates_and_goes(live: GcpProvider, cluster: Cluster) -> None:
    live.create(resource(container.CLUSTER), CLUSTER)
    pool = resource(container.NODE_POOL)
    created = live.create(pool, pool_inputs())
    assert created.id == f"{CLUSTER_ID}/nodePools/l4"
    assert not unmodelled(container.NODE_POOL, created.outputs)
    assert contents.collect(cluster.rehearsal).pools[0]["gpus"] == 2
    assert live.read(pool, State(created.id, {}, {})) == created
    changed = pool_inputs(
        autoscaling={"totalMinNodeCount": 2, "totalMaxNodeCount": 4},
        nodeConfig={"labels": {"a": "b"}},
    )
    live.update(pool, created, changed)
    assert contents.collect(cluster.rehearsal).pools[0]["nodes"] == 2
    live.delete(pool, created)
    assert contents.collect(cluster.rehearsal).pools == []
    assert live.read(pool, created) is None


def test_nodes_are_read_only_when_enough_are_ready(
    offline: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def existing(_: Rehearsal, pool: str) -> list[Any]:
        reads.append(pool)
        return []

    monkeypatch.setattr(provider, "_nodes", existing)
    monkeypatch.setattr(offline, "_wait", lambda *waits: waits[-1]())
    declared = Pool(name="l4", cluster="ml", machine_type="g2-standard-8", initial_nodes=2)
    pool = replace(declared, max_nodes=2, zones=("us-central1-a",))
    for ready in (1, 2):
        offline._store.put("ready", {"l4": ready})
        offline._wait_for_nodes(resource(container.NODE_POOL), pool)
        assert len(reads) == ready - 1


def test_gke_taints_a_gpu_pool_only_beside_another_pool(live: GcpProvider) -> None:
    live.create(resource(container.CLUSTER), CLUSTER)
    cpu = {"machineType": "n2-standard-4", "guestAccelerators": []}
    for name, config in (("first", {}), ("cpu", cpu), ("second", {})):
        inputs = pool_inputs(name=name, autoscaling=NO_NODES, nodeConfig=config)
        live.create(resource(container.NODE_POOL, name), inputs)
    taints = {name: pool.automatic_gpu_taint for name, pool in live._store.pools().items()}
    assert taints == {"first": False, "cpu": False, "second": True}


@pytest.mark.parametrize(
    ("given", "path"),
    cases("""
# pulumi/pulumi-gcp#2881: the default, said aloud, is a conflict as well.
default: [{enableAutopilot: false, removeDefaultNodePool: true}, enableAutopilot]
nested: [{enableAutopilot: true, addonsConfig: {networkPolicyConfig: {disabled: false}}},
  addonsConfig.networkPolicyConfig]
addresses: [{clusterIpv4Cidr: 10.0.0.0/14, ipAllocationPolicy: {}}, clusterIpv4Cidr]
"""),
)
def test_inputs_that_exclude_each_other(offline: GcpProvider, given: Properties, path: str) -> None:
    cluster = resource(container.CLUSTER)
    with pytest.raises(CheckError) as raised:
        offline.check(cluster, {}, given)
    assert [failed for failed, _ in raised.value.failures] == [path]
    assert "Leave one out" in raised.value.failures[0][1]
    for key in given:
        offline.check(cluster, {}, {**given, key: UNKNOWN})


def test_a_pool_with_labels_that_google_refuses_is_refused(offline: GcpProvider) -> None:
    for config in (
        {"labels": {"node-role.kubernetes.io/gpu": ""}},
        {"resourceLabels": {"Team": "ml"}},
    ):
        with pytest.raises(CheckError, match=r"nodeConfig\.\w+\.(node-role|Team)"):
            offline.check(resource(container.NODE_POOL), {}, pool_inputs() | {"nodeConfig": config})


def test_conflicts_and_missing_clusters(live: GcpProvider) -> None:
    with pytest.raises(GoogleApiError, match=f"Error 404: Not found: {CLUSTER_ID}"):
        live.create(resource(container.NODE_POOL), pool_inputs())
    live.create(resource(container.CLUSTER), CLUSTER)
    with pytest.raises(GoogleApiError, match="Error 409: Already exists"):
        live.create(resource(container.CLUSTER, "other"), CLUSTER)
    with pytest.raises(RehearsalError, match="deletion_protection"):
        live.delete(resource(container.CLUSTER), State(CLUSTER_ID, {"name": "ml"}, {}))


def test_two_clusters_of_one_name_are_two_in_different_places(
    live: GcpProvider, cluster: Cluster
) -> None:
    states = [
        live.create(resource(container.CLUSTER, place), CLUSTER | {"location": place})
        for place in ("us-central1-a", "europe-west4")
    ]
    pool = resource(container.NODE_POOL)
    for state in reversed(states):
        live.create(pool, pool_inputs(cluster=state.id, autoscaling=NO_NODES))
    for output in ("endpoint", "masterAuth"):
        assert states[0].outputs[output] != states[1].outputs[output]
    live.delete(resource(container.CLUSTER), states[0])
    [other] = [each for each in cluster.rehearsal.replicas if each.cluster]
    assert Store(other).pools().keys() == {"l4"}, "the pool of the other cluster is gone"
    gone = "Not found: projects/acme/locations/us-central1-a/clusters/ml"
    with pytest.raises(GoogleApiError, match=gone):
        live.create(resource(container.NODE_POOL, "b"), pool_inputs(name="b", cluster=states[0].id))
    found = live.invoke(whole("container/getCluster"), {"name": "ml", "location": "europe-west4"})
    assert found["endpoint"] == states[1].outputs["endpoint"]
    certificates = found["masterAuths"][0]["clientCertificateConfigs"]
    assert certificates[0] == {"issueClientCertificate": False}
    # A cluster that is made later gets the replica that is free.
    third = live.create(resource(container.CLUSTER, "third"), CLUSTER | {"name": "third"})
    assert third.outputs["endpoint"] == states[0].outputs["endpoint"]
    live.delete(resource(container.CLUSTER), states[1])
    assert not other.replica_dir.exists()


def test_a_replica_whose_cluster_was_never_made_goes(
    live: GcpProvider, cluster: Cluster, tools: Tools
) -> None:
    other = cluster.rehearsal.for_cluster("projects/acme/locations/us-central1/clusters/never")
    replica.start(other, tools)
    begun = [process.find() for process in (*kwok.processes(other), daemon.process(other))]
    replica.resume(cluster.rehearsal, tools)
    assert not other.replica_dir.exists()
    assert all(process and has_ended(process) for process in begun)


@pytest.mark.parametrize(
    ("function", "arguments", "answer"),
    cases(f"""
client: [organizations/getClientConfig, {{}}, {{project: acme, region: us-central1}}]
own project: [organizations/getProject, {{}},
  {{projectId: acme, id: projects/acme, number: "{NUMBER}"}}]
other project: [organizations/getProject, {{projectId: other}}, {{projectId: other}}]
zones: [compute/getZones, {{}},
  {{names: [us-central1-a, us-central1-b, us-central1-c, us-central1-f]}}]
zones elsewhere: [compute/getZones, {{region: europe-west1}},
  {{names: [europe-west1-b, europe-west1-c, europe-west1-d]}}]
default network: [compute/getNetwork, {{name: default}},
  {{id: projects/acme/global/networks/default}}]
default subnetwork: [compute/getSubnetwork, {{name: default, region: europe-west4}},
  {{id: projects/acme/regions/europe-west4/subnetworks/default}}]
own network: [compute/getNetwork, {{name: net}}, {{id: projects/acme/global/networks/net,
  name: net}}]
versions: [container/getEngineVersions, {{location: us-central1, versionPrefix: 1.2.}},
  {{validNodeVersions: []}}]
image: [container/getRegistryImage, {{name: app, tag: v1}}, {{imageUrl: "gcr.io/acme/app:v1"}}]
repository: [container/getRegistryRepository, {{region: eu}}, {{repositoryUrl: eu.gcr.io/acme}}]
default account: [compute/getDefaultServiceAccount, {{}},
  {{email: {NUMBER}-compute@developer.gserviceaccount.com}}]
own account: [serviceaccount/getAccount, {{accountId: trainer}},
  {{email: trainer@acme.iam.gserviceaccount.com}}]
policy: [organizations/getIAMPolicy, {{bindings: [{{role: r, members: [m]}}]}},
  {{policyData: '{{"bindings": [{{"role": "r", "members": ["m"]}}]}}'}}]
"""),
)
def test_look_ups_are_answered(
    offline: GcpProvider, function: str, arguments: Properties, answer: Properties
) -> None:
    offline.create(resource("gcp:compute/network:Network"), {"name": "net"})
    offline.create(resource(recorded.ACCOUNT), {"accountId": "trainer"})
    found = offline.invoke(whole(function), arguments)
    assert answer.items() <= found.items()
    read_by_the_sdk(function, found)


def read_by_the_sdk(function: str, found: Properties) -> Any:
    """A result as the SDK makes it for a program: it checks the types."""
    service, _, name = function.partition("/")
    module = importlib.import_module(f"pulumi_gcp.{service}")
    kind = getattr(module, f"{name[0].upper()}{name[1:]}Result")
    return rpc.translate_output_properties(found, lambda name: name, kind)


def look_up_of(token: str) -> str:
    """The function that looks up a type, if the SDK has it: ``compute/getNetwork``."""
    return re.sub(
        r"/(\w)(\w+):.*",
        lambda found: f"/get{found[1].upper()}{found[2]}",
        token.removeprefix("gcp:"),
    )


def whole(function: str) -> str:
    return f"gcp:{function}:{function.partition('/')[2]}"


@pytest.mark.parametrize(
    "token", [one for one in RECORDED if whole(look_up_of(one)) in GCP.schema["functions"]]
)
def test_what_was_recorded_is_looked_up(offline: GcpProvider, token: str) -> None:
    made = offline.create(resource(token), RECORDED[token])
    found = offline.invoke(whole(look_up_of(token)), {})
    assert found["id"] == made.id
    read_by_the_sdk(look_up_of(token), found)


def test_a_cluster_is_looked_up(offline: GcpProvider, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CERTIFICATE")
    there = configuration.Credentials("https://1.2.3.4", tmp_path / "ca.crt", tmp_path, tmp_path)
    taint = {"key": "k", "value": "v", "effect": "NO_SCHEDULE"}
    config = {"machineType": "e2-medium", "taints": [taint]}
    outputs = container.cluster_outputs({**CLUSTER, "nodeConfig": config}, PLACE, there)
    entry = {"type": container.CLUSTER, "id": CLUSTER_ID, "outputs": outputs}
    offline._store.save("clusters", CLUSTER_ID, entry)
    answer = offline.invoke(whole("container/getCluster"), {"name": "ml"})
    found = read_by_the_sdk("container/getCluster", answer)
    assert (found.endpoint, found.network) == ("1.2.3.4", "projects/acme/global/networks/default")
    assert base64.b64decode(found.master_auths[0].cluster_ca_certificate) == b"CERTIFICATE"
    assert found.node_configs[0].machine_type == "e2-medium"
    assert found.node_configs[0].taints[0].key == "k"


def test_the_newest_version_of_gke_is_that_of_the_replica(offline: GcpProvider) -> None:
    found = offline.invoke(whole("container/getEngineVersions"), {"location": "us-central1-a"})
    assert found["latestMasterVersion"] == container._GKE_VERSION
    assert found["releaseChannelDefaultVersion"]["REGULAR"] == container._GKE_VERSION
    assert "us-central1" in offline.invoke(whole("compute/getRegions"), {})["names"]


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    cases("""
object: [compute/getNetwork, {name: none}, "Not found: gcp:compute/network:Network with name none"]
function: [compute/getMachineTypes, {},
  'getMachineTypes: a rehearsal does not answer this function']
fix: [iam/getRule, {name: r}, Pass the value to the program as configuration]
"""),
)
def test_a_look_up_that_finds_nothing_says_so(
    offline: GcpProvider, function: str, arguments: Properties, said: str
) -> None:
    with pytest.raises(RehearsalError, match=said):
        offline.invoke(whole(function), arguments)


@pytest.mark.parametrize(
    ("token", "identity", "program"),
    cases(f"""
network: [{recorded.NETWORK}, projects/acme/global/networks/default,
  {{name: default, autoCreateSubnetworks: true}}]
network by its name: [{recorded.NETWORK}, default, {{name: default}}]
subnetwork: [{recorded.SUBNETWORK}, projects/acme/regions/europe-west4/subnetworks/default,
  {{name: default, network: default, region: europe-west4}}]
account: [{recorded.ACCOUNT},
  projects/acme/serviceAccounts/{NUMBER}-compute@developer.gserviceaccount.com,
  {{accountId: {NUMBER}-compute}}]
"""),
)
def test_a_projects_initial_objects_are_imported_unchanged(
    offline: GcpProvider, token: str, identity: str, program: Properties
) -> None:
    found = offline.read(resource(token), State(identity, {}, {}))
    assert found is not None
    assert found.id.endswith(identity)
    assert not offline.diff(resource(token), found, program).changed
    assert offline.diff(resource(token), found, program | {"description": "other"}).changed
    assert offline.read(resource(token), State(f"{identity}-2", {}, {})) is None


def test_what_the_engine_did_not_hear_of_is_found_by_its_urn(
    live: GcpProvider, cluster: Cluster
) -> None:
    made = [
        (resource(container.CLUSTER), CLUSTER),
        (resource(container.NODE_POOL), pool_inputs()),
        (resource("gcp:compute/network:Network"), {"name": "net"}),
    ]
    states = {about.urn: live.create(about, inputs) for about, inputs in made}
    found = {entry["urn"]: entry["id"] for entry in Store(cluster.rehearsal).resources()}
    assert found == {urn: state.id for urn, state in states.items()}
    for about, _ in made:
        assert live.read(about, State(found[about.urn], {}, {})) == states[about.urn]


@pytest.mark.parametrize("version", gke_gcloud_auth_plugin.API_VERSIONS)
def test_the_exec_plugin_gives_a_credential(cluster: Cluster, version: str) -> None:
    asked = json.dumps({"apiVersion": version})
    answer = exec_plugin(cluster.rehearsal, KUBERNETES_EXEC_INFO=asked)
    assert answer.returncode == 0, answer.stderr
    credential = json.loads(answer.stdout)
    assert (credential["apiVersion"], credential["kind"]) == (version, "ExecCredential")

    def default_namespace(user: Any) -> Any:
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = user
        return Api(Access(yaml.safe_dump(kubeconfig))).get("/api/v1/namespaces/default")

    assert default_namespace(credential["status"])
    with pytest.raises(ApiError, match="Unauthorized"):
        default_namespace({"token": "another"})


def test_the_exec_plugin_says_that_the_rehearsal_is_down(tmp_path: Any) -> None:
    answer = exec_plugin(Rehearsal.of("dev", tmp_path))
    assert answer.returncode != 0
    assert "the rehearsal of dev is not up. Start it: ml-foundations up" in answer.stderr


def test_the_exec_plugin_refuses_other_versions(tmp_path: Any) -> None:
    with pytest.raises(RehearsalError, match="v1alpha1 is not supported"):
        gke_gcloud_auth_plugin.credential(Rehearsal.of("x", tmp_path), '{"apiVersion": "v1alpha1"}')


def exec_plugin(rehearsal: Rehearsal, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ml_foundations.rehearsal.plugins.gke_gcloud_auth_plugin"],
        env=os.environ | {"ML_FOUNDATIONS_REHEARSAL": str(rehearsal.root)} | env,
        capture_output=True,
        text=True,
        check=False,
    )
