"""Types of which exactly one field may be set, and those that name parts of a pod."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tests.differential.schema import values
from tests.differential.schema.typed import RULES, STRANGE, Draw, Object, Rule, rule

VOLUME_TYPE = "io.k8s.api.core.v1.Volume"
VOLUME_SOURCE_TYPE = "io.k8s.api.core.v1.PersistentVolumeSpec"
CLAIM = "persistentVolumeClaim"
USUAL_SOURCES = ("emptyDir", CLAIM, "ephemeral", CLAIM, "hostPath", "configMap")
DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")


def _one(draw: Draw, type_name: str, field: str) -> Object:
    node = draw.schema.fields(type_name)[field]
    return {field: draw.field(f"{type_name.rsplit('.', 1)[-1]}.{field}", node)}


def _sources(draw: Draw, type_name: str, without: Sequence[str]) -> list[str]:
    """The fields that refer to a type of their own: the members of a union."""
    return [
        name for name, node in draw.schema.fields(type_name).items()
        if name not in without and name.lower() != "name" and "allOf" in node
    ]  # fmt: skip


@rule("Volume")
def _volume(draw: Draw) -> Object:
    name = draw.pick("one", "two", "three")
    usual = draw.chance(92)
    sources = USUAL_SOURCES if usual else (*_sources(draw, VOLUME_TYPE, ()), *DISKS, *DISKS)
    made = {"name": name} | _one(draw, VOLUME_TYPE, draw.pick(*sources))
    if draw.chance(STRANGE):
        made |= {"emptyDir": {}}
    return made


@rule("PersistentVolumeSpec")
def _persistent_volume(draw: Draw) -> Object:
    fields = draw.schema.fields(VOLUME_SOURCE_TYPE)
    made: Object = {}
    for name in (
        *("capacity", "accessModes", "storageClassName", "nodeAffinity", "volumeMode"),
        *("claimRef", "mountOptions"),
    ):
        if draw.chance(values.CHANCE.get(f"PersistentVolumeSpec.{name}", 6)):
            made[name] = draw.field(f"PersistentVolumeSpec.{name}", fields[name])
    if not made.get("storageClassName"):
        # A volume without a class is any case's: this one waits for its own claim.
        made["claimRef"] = _claim_reference(draw)
    made["persistentVolumeReclaimPolicy"] = draw.pick("Retain", "Retain", "Delete")
    return made | draw.pick(
        {"hostPath": {"path": "/data"}},
        _one(draw, VOLUME_SOURCE_TYPE, "csi"),
        {"nfs": {"server": "s", "path": "/"}},
    )


@rule("PersistentVolumeSpec.claimRef")
def _claim_reference(draw: Draw) -> Object:
    return {"namespace": values.NAMESPACES[0], "name": draw.pick(*values.CLAIMS)}


@rule("PersistentVolumeClaimTemplate")
def _claim_template(draw: Draw) -> Object:
    return {"spec": draw.object("io.k8s.api.core.v1.PersistentVolumeClaimSpec")}


@rule("VolumeNodeAffinity")
def _volume_affinity(draw: Draw) -> Object:
    return {"required": {"nodeSelectorTerms": [RULES["NodeSelectorTerm"](draw)]}}


@rule("TypedLocalObjectReference", "TypedObjectReference")
def _data_source(draw: Draw) -> Object:
    return {"kind": "PersistentVolumeClaim", "name": draw.pick(*values.CLAIMS)}


@rule("StorageClass.allowedTopologies")
def _topologies(draw: Draw) -> list[Object]:
    return [{"matchLabelExpressions": [{"key": values.ZONE, "values": draw.some(*values.ZONES)}]}]


@rule("DeploymentStrategy")
def _strategy(draw: Draw) -> Object:
    if draw.chance(40):
        return {"type": "Recreate"}
    last = (0, 0) if draw.chance(10) else (1, 1)
    surge, missing = draw.pick((0, 1), (1, 0), ("25%", "25%"), (0, "50%"), last)
    rolling = {"maxSurge": surge, "maxUnavailable": missing}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


@rule("StatefulSetUpdateStrategy", "DaemonSetUpdateStrategy")
def _update_strategy(draw: Draw) -> Object:
    return {"type": draw.pick("OnDelete", "RollingUpdate")}


@rule("JobSpec.completionMode")
def _completion_mode(draw: Draw) -> str:
    return draw.pick("Indexed", "NonIndexed")


@rule("PodFailurePolicy")
def _failure_policy(draw: Draw) -> Object:
    codes = {"operator": "In", "values": [draw.integer(1, 9)]}
    return {"rules": [{"action": draw.pick("FailJob", "Ignore", "Count"), "onExitCodes": codes}]}


@rule("SuccessPolicy")
def _success_policy(draw: Draw) -> Object:
    return {"rules": [draw.pick({"succeededCount": 1}, {"succeededIndexes": "0"})]}


@rule("Probe", "LifecycleHandler")
def _handler(draw: Draw) -> Object:
    return draw.pick(
        {"exec": {"command": ["true"]}}, {"httpGet": {"port": 80}}, {"tcpSocket": {"port": 80}}
    )


@rule("EnvVarSource")
def _env_source(draw: Draw) -> Object:
    return draw.pick(
        {"fieldRef": {"fieldPath": "metadata.name"}},
        {"configMapKeyRef": {"name": "settings", "key": "a"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
    )


@rule("EnvVar")
def _env(draw: Draw) -> Object:
    name = draw.pick("HOME", "MODE")
    if draw.chance(70):
        return {"name": name, "value": "x"}
    return {"name": name, "valueFrom": _env_source(draw)}


@rule("VolumeMount")
def _mount(draw: Draw) -> Object:
    return {"name": draw.pick("one", "two"), "mountPath": draw.pick("/mnt/a", "/mnt/b")}


@rule("VolumeDevice")
def _device(draw: Draw) -> Object:
    return {"name": draw.pick("one", "two"), "devicePath": "/dev/x"}


@rule("ContainerResizePolicy")
def _resize(draw: Draw) -> Object:
    name = draw.pick("cpu", "memory")
    return {"resourceName": name, "restartPolicy": draw.pick("NotRequired", "RestartContainer")}


@rule("LimitRangeSpec.limits")
def _limits(draw: Draw) -> list[Object]:
    items = [RULES["LimitRangeItem"](draw) for _ in range(draw.pick(1, 1, 2))]
    return list({item["type"]: item for item in items}.values())


@rule("ServiceSpec")
def _service(draw: Draw) -> Object:
    return {"ports": [{"port": 80}], "selector": {"app": draw.pick(*values.APPS)}}


@rule("PodDNSConfig")
def _dns(draw: Draw) -> Object:
    return draw.pick({"nameservers": ["10.0.0.10"]}, {"searches": ["example.com"]})


@rule("Capabilities")
def _capabilities(draw: Draw) -> Object:
    return {"drop": ["ALL"]} | ({"add": ["NET_BIND_SERVICE"]} if draw.chance(50) else {})


@rule("WindowsSecurityContextOptions")
def _windows(draw: Draw) -> Object:
    return {"runAsUserName": "user"} | ({"hostProcess": True} if draw.chance(20) else {})


@rule("Sysctl")
def _sysctl(draw: Draw) -> Object:
    return {"name": draw.pick("kernel.shm_rmid_forced", "net.core.somaxconn"), "value": "1"}


def _always(value: Any) -> Rule:
    return lambda _draw: copy.deepcopy(value)


CONSTANT: dict[str, Any] = {
    "HostAlias": {"ip": "10.0.0.9", "hostnames": ["other"]},
    "SeccompProfile": {"type": "RuntimeDefault"},
    "AppArmorProfile": {"type": "RuntimeDefault"},
    "SELinuxOptions": {"level": "s0:c1,c2"},
    "StorageClass.parameters": None,
    "StorageClass.mountOptions": None,
}
RULES.update({name: _always(value) for name, value in CONSTANT.items()})


# --- Devices


@rule("PodResourceClaim")
def _pod_claim(draw: Draw) -> Object:
    source = draw.pick({"resourceClaimName": "shared"}, {"resourceClaimTemplateName": "each"})
    return {"name": "dev"} | (source if not draw.chance(STRANGE) else {})


@rule("DeviceRequest")
def _device_request(draw: Draw) -> Object:
    exact = "io.k8s.api.resource.v1.ExactDeviceRequest"
    exactly = draw.object(exact, frozenset({"adminAccess", "allocationMode"}))
    if draw.chance(15):
        exactly.pop("count", None)
        exactly["allocationMode"] = "All"
    if draw.chance(8):
        wanted = {"name": "sub", "deviceClassName": values.DEVICES, "count": draw.pick(1, 2)}
        return {"name": "dev", "firstAvailable": [wanted]}
    return {"name": draw.pick("dev", "dev", "more"), "exactly": exactly}


@rule("DeviceClaim")
def _device_claim(draw: Draw) -> Object:
    requests = [_device_request(draw)] if draw.chance(97) else []
    constraint = {"matchAttribute": f"{values.DRIVER}/model"}
    return {"requests": requests} | ({"constraints": [constraint]} if draw.chance(10) else {})


@rule("DeviceSelector")
def _device_selector(draw: Draw) -> Object:
    return {"cel": {"expression": draw.pick(*values.POOLS["CELDeviceSelector.expression"])}}


@rule("DeviceClassSpec")
def _device_class(draw: Draw) -> Object:
    """Of this case's driver alone: every other case's devices are on the same control plane."""
    own = {"cel": {"expression": f'device.driver == "{values.DRIVER}"'}}
    return {"selectors": [own]} | ({"extendedResourceName": values.FPGA} if draw.chance(5) else {})


def resource_slice(draw: Draw, node: str) -> Object:
    """The devices that one node offers."""
    devices = [
        {
            "name": f"d{index}",
            "attributes": {"model": {"string": draw.pick("x1", "x2")}},
            "capacity": {"memory": {"value": draw.pick("8Gi", "16Gi")}},
        }
        for index in range(draw.pick(1, 2, 2))
    ]
    if draw.chance(8):
        devices[0]["taints"] = [{"key": "spot", "value": "x", "effect": "NoSchedule"}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": values.DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    made: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return made | {"metadata": {"name": f"{node}-devices"}, "spec": spec}
