"""ConfigMaps and Secrets that a pod refers to: without them no container starts, as on any cluster."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from ml_foundations.rehearsal.cloud.kubelet import Kubelet
from ml_foundations.rehearsal.report import contents

from tests.support.controlled import cluster_of
from tests.support.simulation import Cloud, clean
from tests.support.waiting import until

DEFAULT = "/api/v1/namespaces/default"
KEY_B = {"name": "there", "items": [{"key": "b", "path": "b"}]}


def of_secret(name: str, key: str, **more: Any) -> dict[str, Any]:
    """The environment of a container with a variable from a Secret."""
    reference = {"name": name, "key": key, **more}
    return {"env": [{"name": "A", "valueFrom": {"secretKeyRef": reference}}]}


SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "map-volume": (
        {"volumes": [{"name": "v", "configMap": {"name": "later"}}]},
        'MountVolume.SetUp failed for volume "v" : configmap "later" not found',
    ),
    "secret-volume": (
        {"volumes": [{"name": "v", "secret": {"secretName": "later"}}]},
        'MountVolume.SetUp failed for volume "v" : secret "later" not found',
    ),
    "key-volume": (
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": KEY_B}]}}]},
        'MountVolume.SetUp failed for volume "v" : references non-existent secret key: b',
    ),
    "pull-secret": (
        {"imagePullSecrets": [{"name": "later"}]},
        "Unable to retrieve some image pull secrets (later); attempting to pull the image may not succeed.",
    ),
    "all-env": (
        {"envFrom": [{"configMapRef": {"name": "later"}}]},
        'Error: configmap "later" not found',
    ),
    "one-env": (of_secret("later", "b"), 'Error: secret "later" not found'),
    "key-env": (of_secret("there", "b"), "Error: couldn't find key b in Secret default/there"),
}
"""What a pod refers to, and the kubelet's words while it is not there."""
HARMLESS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "optional": {
        **of_secret("later", "b", optional=True),
        "volumes": [{"name": "v", "configMap": {"name": "later", "optional": True}}],
    },
    "there": of_secret("there", "a"),
}


@pytest.mark.parametrize(
    ("seconds", "conditions", "is_shown"),
    [
        (60, [], True),
        (1, [], False),
        (60, [{"type": "PodReadyToStartContainers", "status": "False"}], False),
    ],
)
def test_a_pod_that_kwok_missed_is_shown_to_it_again(
    seconds: int, conditions: list[dict[str, str]], is_shown: bool
) -> None:
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
    status = {"phase": "Pending", "conditions": [scheduled, *conditions]}
    metadata = {"name": "p", "namespace": "default"}
    pod = {"metadata": metadata, "spec": {"nodeName": "gke-1"}, "status": status}
    api = Mock()
    Kubelet(cluster_of(api, pods=[pod])).reconcile()
    asked = [call.args[0] for call in api.patch.call_args_list]
    assert (f"{DEFAULT}/pods/p" in asked) == is_shown


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    yield plain_gke
    clean(plain_gke)
    for path in ("configmaps/later", "secrets/later", "secrets/there"):
        plain_gke.api.delete(f"{DEFAULT}/{path}")


def pod(name: str, given: dict[str, Any], **labels: str) -> dict[str, Any]:
    of_pod = {key: given[key] for key in ("volumes", "imagePullSecrets") if key in given}
    of_container = {key: given[key] for key in given.keys() - of_pod.keys()}
    containers = [{"name": "main", "image": "i", **of_container}]
    spec = {"containers": containers, "tolerations": [{"operator": "Exists"}], **of_pod}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def kept(path: str, name: str, *keys: str) -> tuple[str, dict[str, Any]]:
    return f"{DEFAULT}/{path}", {"metadata": {"name": name}, "data": dict.fromkeys(keys, "")}


def test_containers_start_after_their_config_maps_and_secrets(cloud: Cloud) -> None:
    cloud.api.create(*kept("secrets", "there", "a"))
    waiting = {name: given for name, (given, _) in SOURCES.items()}
    for name, given in (waiting | HARMLESS).items():
        cloud.api.create(f"{DEFAULT}/pods", pod(name, given))
    of_chart = pod("of-a-chart", SOURCES["all-env"][0], **{"helm.sh/chart": "web-1.0"})
    cloud.api.create(f"{DEFAULT}/pods", of_chart)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cloud.pods()}

    running = dict.fromkeys([*HARMLESS, "of-a-chart"], "Running")
    until(lambda: phases() == running | dict.fromkeys(SOURCES, "Pending"))

    def reasons() -> dict[str, str]:
        rows = contents.collect(cloud.rehearsal).workloads
        return {row.name: row.reason for row in rows if row.name in SOURCES}

    until(lambda: reasons() == {name: said for name, (_, said) in SOURCES.items()})

    cloud.api.create(*kept("configmaps", "later", "a"))
    cloud.api.create(*kept("secrets", "later", "b"))
    cloud.api.patch(f"{DEFAULT}/secrets/there", {"data": {"b": ""}})
    until(lambda: phases() == running | dict.fromkeys(SOURCES, "Running"))
    assert not any(reasons().values())
