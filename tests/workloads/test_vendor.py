"""Trainings in the network between GPUs differ from Google's NCCL tests only as vendor.yaml lists."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workloads.building import FABRICS, gang, on_fabric, pod_of, template_of

VENDOR: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("vendor.yaml").read_text())


def of_container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Facts about a container, but not about the rendezvous of a training."""
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume = sources[mount["name"]]
        memory = "memory" if volume.get("emptyDir", {}).get("medium") else "empty"
        yield f"mount {mount['mountPath']}", volume.get("hostPath", {}).get("path", memory)
    for variable in container["env"]:
        if not variable["name"].startswith("PET_"):
            yield f"env {variable['name']}", variable["value"]
    security = container["securityContext"]
    yield "user", str(security.get("runAsUser", pod["securityContext"]["runAsUser"]))
    yield "escalation", "allowed" if security.get("allowPrivilegeEscalation", True) else "none"
    yield "capabilities", " ".join(security.get("capabilities", {}).get("add", []))


def of_annotations(annotations: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in annotations.items():
        name = key.partition("/")[2]
        if name == "default-interface":
            yield "default interface", value
        elif name == "interfaces":
            pairs = [f"{each['interfaceName']}={each['network']}" for each in json.loads(value)]
            yield "interfaces", " ".join(pairs)
        else:
            paths = [each["path"].removeprefix("/dev/") for each in yaml.safe_load(value)]
            yield "devices", " ".join(paths)


def facts(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The facts about a training that vendor.yaml has of Google's manifests."""
    template = template_of(manifests[-1])
    pod = pod_of(manifests[-1])
    yield from of_annotations(template["metadata"].get("annotations", {}))
    (main,) = pod["containers"]
    yield from of_container(main, pod)
    yield "gpus", main["resources"]["limits"]["nvidia.com/gpu"]
    if main["command"][0] == "bash":
        yield "script", main["command"][2].partition("; . ")[2].partition(";")[0]
    for claim in pod.get("resourceClaims", []):
        assert claim["resourceClaimTemplateName"] == manifests[0]["metadata"]["name"]
        (request,) = manifests[0]["spec"]["spec"]["devices"]["requests"]
        yield "claim", f"{request['exactly']['count']} of {request['exactly']['deviceClassName']}"
    for daemon in pod.get("initContainers", []):
        for name, value in of_container(daemon, pod):
            yield f"daemon {name}", value
        # The vendor names it by tag alone.
        yield "daemon image", daemon["image"].partition("@")[0]
        yield "daemon is", "a sidecar" if daemon.get("restartPolicy") == "Always" else "a container"
        yield "daemon command", " ".join([*daemon["command"], *daemon["args"]])
        for field, name in (("startupProbe", "startup probe"), ("resources", "resources")):
            if field in daemon:
                yield f"daemon {name}", str(daemon[field])


@pytest.mark.parametrize("name", FABRICS)
def test_every_difference_from_the_vendors_manifest_is_listed(name: str) -> None:
    vendor = VENDOR[name]
    ours, theirs = dict(facts(gang(**on_fabric(name)))), vendor["facts"]
    differing = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
    of_all = {key: reason for key, reason in VENDOR["of all"].items() if key in differing}
    assert differing == {*vendor["differs"], *of_all}
    assert not vendor["differs"].keys() & of_all.keys()


def test_every_reason_that_is_for_all_is_needed() -> None:
    made = {key for name in FABRICS for key, _ in facts(gang(**on_fabric(name)))}
    assert VENDOR["of all"].keys() <= made
