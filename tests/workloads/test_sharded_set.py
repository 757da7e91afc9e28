"""ShardedSet: identity, rank and volumes of each shard, and what is refused."""

from typing import Any

import pytest
from ml_foundations import ShardedSet
from ml_foundations.component.outputs import resolve_known

from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of
from tests.support.refusing import Refused, refusal, refused
from tests.workloads.building import WORKLOAD, shards_spec

VOLUME: dict[str, Any] = {"name": "weights", "size": "500Gi", "path": "/weights"}
VOLUME |= {"storage_class": "zonal-ssd"}
BASE: dict[str, Any] = {"shards": 4, "volumes": [VOLUME]}


def spec(**more: Any) -> Any:
    return shards_spec(**(BASE | more))


def stateful_set(**more: Any) -> dict[str, Any]:
    return manifest_of(spec(**more), "StatefulSet")["spec"]


def container(**more: Any) -> dict[str, Any]:
    return stateful_set(**more)["template"]["spec"]["containers"][0]


def children(**more: Any) -> dict[str, Any]:
    args: Any = WORKLOAD | BASE | more
    found = declared(lambda: ShardedSet("parts", args))
    return {name.removeprefix("parts-"): request for name, request in found.items()}


WRONG: list[Refused] = [
    refused("shards", "got 0", shards=0),
    refused("\n  set_name: has 53 characters, and 52 are allowed", set_name="x" * 53),
    refused("volumes[0].path", volumes=[VOLUME | {"path": "weights"}]),
    refused(
        "2 invalid arguments",
        "volumes[1].name: weights is taken",
        "volumes[1].path: /weights is",
        volumes=[VOLUME, VOLUME],
    ),
    refused(
        "\n  mounts[0].path: /weights is taken", mounts=[{"claim": "data", "path": "/weights"}]
    ),
    refused("access_mode", "'ReadWriteOnce'", volumes=[VOLUME | {"access_mode": "ReadWriteMany"}]),
    refused(
        "timeout_seconds: is 600, but a shard may load for 900 s",
        load_seconds=900,
        timeout_seconds=600,
    ),
    refused("overrides.Deployment", "Service, StatefulSet", overrides={"Deployment": {}}),
    refused("\n  rendezvous_port: is 8080, which serves already", rendezvous_port=8080),
    refused("\n  hostname: is set by the component", "service_name", hostname="mine"),
    refused("\n  subdomain: is set by the component", "service_name", subdomain="mine"),
]


@pytest.mark.parametrize(("more", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_right_is_refused_at_preview(
    more: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = refusal(spec, **more)
    assert not [word for word in words if word not in message], message


def test_a_timeout_may_be_as_long_as_a_shard_loads() -> None:
    assert spec(load_seconds=600, timeout_seconds=600).timeout == 600


def test_shards_start_together_and_find_each_other_early() -> None:
    """One after the other, the first would wait for ever for the others (kubernetes issue 67250)."""
    assert stateful_set()["podManagementPolicy"] == "Parallel"
    service = manifest_of(spec(), "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == stateful_set()["selector"]["matchLabels"]
    assert stateful_set()["serviceName"] == service["metadata"]["name"]


def test_each_shard_learns_its_rank_from_its_ordinal() -> None:
    env = {item["name"]: item for item in container()["env"]}
    ordinal = {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}
    assert env["RANK"]["valueFrom"]["fieldRef"] == ordinal
    assert env["WORLD_SIZE"]["value"] == "4"
    assert env["MASTER_ADDR"]["value"] == "parts-0.parts"
    assert env["MASTER_PORT"]["value"] == "29500"
    own = container(env={"WORLD_SIZE": "8"})["env"]
    assert [item["value"] for item in own if item["name"] == "WORLD_SIZE"] == ["8"]


def test_each_shard_has_its_own_volume_and_keeps_it() -> None:
    found = stateful_set()
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert found["persistentVolumeClaimRetentionPolicy"] == kept
    [claim] = found["volumeClaimTemplates"]
    assert claim["metadata"] == {"name": "weights"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "zonal-ssd",
        "resources": {"requests": {"storage": "500Gi"}},
    }
    mounts = found["template"]["spec"]["containers"][0]["volumeMounts"]
    assert mounts[-1] == {"name": "weights", "mountPath": "/weights"}
    labelled = stateful_set(volumes=[VOLUME | {"labels": {"team": "ml"}}])["volumeClaimTemplates"]
    assert labelled[0]["metadata"] == {"name": "weights", "labels": {"team": "ml"}}


def test_a_shard_that_does_not_listen_lives() -> None:
    assert not [key for key in container() if key.endswith("Probe")]
    assert container(health_path="tcp")["livenessProbe"]["tcpSocket"] == {"port": "http"}
    assert {key for key in container(live_path="/live") if key.endswith("Probe")} == {
        "startupProbe",
        "livenessProbe",
    }


def test_a_set_with_data_is_protected_and_scratch_is_not() -> None:
    """Another size or name would replace it: claims keep their size, and a new name means empty volumes."""
    assert children()["set"].protect
    assert not children(data=False)["set"].protect
    assert not children(volumes=[])["set"].protect
    scratch = stateful_set(data=False)["persistentVolumeClaimRetentionPolicy"]
    assert scratch == {"whenDeleted": "Delete", "whenScaled": "Delete"}


def test_a_replacement_comes_after_the_old_set_is_gone() -> None:
    assert children()["set"].deleteBeforeReplace


@pytest.mark.parametrize(("shards", "at_once", "steps"), [(4, 1, 4), (4, 4, 1), (5, 2, 3)])
def test_pulumi_waits_for_a_rollout_of_all_shards(shards: int, at_once: int, steps: int) -> None:
    made = children(shards=shards, max_unavailable=at_once, load_seconds=600, grace_seconds=60)
    timeouts = made["set"].customTimeouts
    assert int(timeouts.update.removesuffix("s")) == steps * 660 + 1200
    assert int(timeouts.delete.removesuffix("s")) > 60


def test_shards_may_restart_together() -> None:
    assert stateful_set()["updateStrategy"] == {"type": "RollingUpdate"}
    together = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 4}}
    assert stateful_set(max_unavailable=4)["updateStrategy"] == together


def test_the_hosts_are_known_at_preview() -> None:
    def program() -> None:
        args: Any = WORKLOAD | BASE | {"shards": 2}
        made = ShardedSet("parts", args)
        assert resolve_known(made.hosts) == [
            "parts-0.parts.ml.svc.cluster.local",
            "parts-1.parts.ml.svc.cluster.local",
        ]

    declared(program)


def test_a_service_of_another_name_is_where_the_shards_meet() -> None:
    made = children(service_name="ring")
    assert inputs(made["service"])["metadata"]["name"] == "ring"
    found = inputs(made["set"])
    assert (found["metadata"]["name"], found["spec"]["serviceName"]) == ("parts", "ring")
    env = found["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "MASTER_ADDR", "value": "parts-0.ring"} in env


def test_shards_may_use_any_port_among_themselves() -> None:
    rules = inputs(children(callers=[])["network-policy"])["spec"]["ingress"]
    assert {
        "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "parts"}}}]
    } in rules
