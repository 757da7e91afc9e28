"""The second generator: a case is nodes, workloads of several kinds, and what these refer to, typed from the schema.

Nothing is drawn with a verdict in mind. A document that the API server refuses is a case, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.differential.schema import unions, values
from tests.differential.schema.openapi import Schema
from tests.differential.schema.typed import Draw, Object, node_labels

POD_SPEC = "io.k8s.api.core.v1.PodSpec"
WORKLOADS = (
    "Pod", "Pod", "Pod", "Job", "Job", "Deployment", "Deployment", "Deployment", "ReplicaSet", "StatefulSet",
    "StatefulSet", "DaemonSet", "DaemonSet", "CronJob", "ReplicationController",
)  # fmt: skip
BESIDE = ("Service", "ConfigMap", "Secret", "PodDisruptionBudget", "PodTemplate", "CSIDriver")
BESIDE += ("Endpoints",)
"""Kinds that stand in a stack beside its workloads; of each, as much as the schema knows."""
DECLARED = 88
"""In a hundred: how often a case holds the object that another one refers to."""


def case(schema: Schema, number: int) -> list[Object]:
    """The documents of a case: the same ones for the same number."""
    draw = Draw(schema, f"schema-{number}")
    documents = [_namespace(draw, name) for name in values.NAMESPACES[: draw.pick(1, 1, 1, 2)]]
    spaces = [document["metadata"]["name"] for document in documents]
    documents += [_node(draw, name) for name in values.NODES[: draw.pick(1, 2, 2, 3, 3, 4)]]
    count = draw.pick(1, 1, 2, 2, 3, 4)
    workloads = [_workload(draw, index, draw.pick(*spaces)) for index in range(count)]
    for space in spaces:
        for kind, chance in (("ResourceQuota", 22), ("LimitRange", 14)):
            if draw.chance(chance):
                documents.append(_object(draw, kind, kind.lower(), space))
    if draw.chance(4):
        documents.append(_object(draw, draw.pick(*BESIDE), f"{values.CASE}-beside", spaces[0]))
    documents += workloads
    documents[len(spaces) : len(spaces)] = _referred(draw, documents, spaces)
    return [json.loads(json.dumps(_isolated(document))) for document in documents]


def _object(draw: Draw, kind: str, name: str, namespace: str | None = None) -> Object:
    """An object of a kind, with all that the schema knows of it."""
    known = draw.schema.kinds[kind]
    made = draw.object(known.type, frozenset({"metadata"}))
    metadata = _metadata(draw, name) | ({"namespace": namespace} if known.namespaced else {})
    return {"apiVersion": known.api_version, "kind": kind, "metadata": metadata} | made


def _metadata(draw: Draw, name: str) -> Object:
    of_objects = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    return {"name": name} | draw.object(of_objects, frozenset({"annotations"}))


def _namespace(draw: Draw, name: str) -> Object:
    labels = {"team": name} if draw.chance(70) else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _node(draw: Draw, name: str) -> Object:
    """A small node, which few pods fill."""
    amounts = {
        "cpu": draw.pick("1", "2", "4", "3"),
        "memory": draw.pick("2Gi", "4Gi", "8Gi"),
        "pods": draw.pick("2", "3", "5", "110", "110"),
        "ephemeral-storage": draw.pick("2Gi", "100Gi"),
    }
    if draw.chance(30):
        amounts[draw.pick(values.GPU, values.GPU, values.FPGA)] = draw.pick("1", "2", "4")
    if draw.chance(5):
        amounts["hugepages-2Mi"] = "4Mi"
    spec: Object = {}
    if draw.chance(35):
        spec["taints"] = [_taint(draw)]
    if draw.chance(5):
        spec["unschedulable"] = True
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": node_labels(draw, name)},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def _taint(draw: Draw) -> Object:
    key = draw.pick("spot", "spot", "team", values.GPU)
    effect = draw.pick("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
    value = {"value": draw.pick("x", "y", "7")} if draw.chance(70) else {}
    return {"key": key, "effect": effect} | value


# --- Workloads


def _workload(draw: Draw, index: int, namespace: str) -> Object:
    kind = draw.pick(*WORKLOADS)
    name = f"w{index}"
    made = _object(draw, kind, name, namespace)
    labels = {"app": draw.pick(*values.APPS), "w": name}
    labels |= {"tier": draw.pick("front", "back")} if draw.chance(50) else {}
    if kind == "Pod":
        made["metadata"]["labels"] = labels
        made["spec"] = _pod(draw, kind)
        return made
    template = {"metadata": {"labels": labels}, "spec": _pod(draw, kind)}
    spec = made["spec"]
    if kind == "CronJob":
        spec["jobTemplate"]["spec"]["template"] = template
        spec["jobTemplate"].pop("metadata", None)
    else:
        spec["template"] = template
    if kind not in ("Job", "CronJob"):
        # Now and then a selector that may also select another workload's pods.
        own = {"w": name} if draw.chance(95) else {"app": labels["app"]}
        spec["selector"] = own if kind == "ReplicationController" else {"matchLabels": own}
    if kind == "StatefulSet" and "volumeClaimTemplates" in spec:
        claims = draw.some("data", "logs")[:2]
        spec["volumeClaimTemplates"] = [_claim(draw, claim) for claim in claims]
    return made


def _claim(draw: Draw, name: str) -> Object:
    spec = draw.object("io.k8s.api.core.v1.PersistentVolumeClaimSpec")
    return {"metadata": {"name": name}, "spec": spec}


def _pod(draw: Draw, kind: str) -> Object:
    pod = draw.object(POD_SPEC)
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(key, ())):
            container["name"] = f"{key[0]}{index}"
            if key == "containers":
                container.pop("restartPolicy", None)
            elif draw.chance(40):
                container["restartPolicy"] = "Always"
    mounts = {volume["name"] for volume in pod.get("volumes", ())}
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        container["volumeMounts"] = [
            m for m in container.get("volumeMounts", ()) if m["name"] in mounts or draw.chance(5)
        ]
    if "resourceClaims" in pod and draw.chance(97):
        pod["containers"][0].setdefault("resources", {})["claims"] = [{"name": "dev"}]
    if kind in ("Job", "CronJob") or (kind == "Pod" and draw.chance(10)):
        pod["restartPolicy"] = draw.pick("Never", "OnFailure") if not draw.chance(1) else "Always"
    return pod


def _isolated(document: Object) -> Object:
    """Nodes and pods of a case keep to each other, by a label of theirs; planning sees it, too."""
    if document["kind"] == "Node":
        document["metadata"]["labels"]["case"] = values.CASE
    for pod in pod_specs(document):
        pod["nodeSelector"] = pod.get("nodeSelector", {}) | {"case": values.CASE}
    return document


def pod_specs(document: Any) -> Iterator[Object]:
    """The specs of pods that an object is, or makes."""
    spec = document.get("spec", {})
    match document["kind"]:
        case "Pod":
            yield spec
        case "CronJob":
            yield spec["jobTemplate"]["spec"]["template"]["spec"]
        case kind if kind in WORKLOADS:
            yield spec["template"]["spec"]
        case _:
            return


# --- What workloads refer to


def _referred(draw: Draw, documents: list[Object], spaces: list[str]) -> list[Object]:
    """The objects that others refer to, mostly; first those that others refer to in their turn."""
    made: list[Object] = []
    named = [
        (space, claim)
        for space in spaces
        for claim in values.CLAIMS
        if _mentions(documents, f'"claimName": "{claim}"')
    ]
    for space, claim in named:
        if draw.chance(DECLARED):
            made.append(_object(draw, "PersistentVolumeClaim", claim, space))
    if _mentions([*documents, *made], "storageClassName"):
        classes = [_storage_class(draw, name) for name in values.CLASSES if draw.chance(DECLARED)]
        volumes = [_volume(draw, name) for name in values.VOLUMES if draw.chance(45)]
        made[:0] = [*classes, *volumes]
    for name in values.PRIORITIES:
        if _mentions(documents, f'"priorityClassName": "{name}"') and draw.chance(DECLARED):
            made.append(_object(draw, "PriorityClass", name))
    if _mentions(documents, values.RUNTIME) and draw.chance(DECLARED):
        made.append(_object(draw, "RuntimeClass", values.RUNTIME))
    if _mentions(documents, '"robot"'):
        made += [
            _object(draw, "ServiceAccount", "robot", space)
            for space in spaces
            if draw.chance(DECLARED)
        ]
    if _mentions(documents, "resourceClaims"):
        made += _devices(draw, documents, spaces)
    return made


def _mentions(documents: list[Object], text: str) -> bool:
    return text in json.dumps(documents)


def _storage_class(draw: Draw, name: str) -> Object:
    made = _object(draw, "StorageClass", name)
    made = {key: value for key, value in made.items() if value is not None}
    if name.endswith(("late", "now")):
        made["volumeBindingMode"] = "WaitForFirstConsumer" if name.endswith("late") else "Immediate"
        made["provisioner"] = "disk.example.com"
    else:
        made["provisioner"] = "kubernetes.io/no-provisioner"
    return made


def _volume(draw: Draw, name: str) -> Object:
    made = _object(draw, "PersistentVolume", name)
    if draw.chance(30):
        made["metadata"]["labels"] = {"app": draw.pick(*values.APPS)}
    return made


def _devices(draw: Draw, documents: list[Object], spaces: list[str]) -> list[Object]:
    made = [_object(draw, "DeviceClass", values.DEVICES)] if draw.chance(DECLARED) else []
    for document in documents:
        if document["kind"] == "Node" and draw.chance(75):
            made.append(unions.resource_slice(draw, document["metadata"]["name"]))
    for space in spaces:
        for kind, name in (("ResourceClaim", "shared"), ("ResourceClaimTemplate", "each")):
            if _mentions(documents, f'"{name}"') and draw.chance(DECLARED):
                made.append(_object(draw, kind, name, space))
                spec = made[-1]["spec"]
                spec.get("spec", spec).setdefault(
                    "devices", draw.object("io.k8s.api.resource.v1.DeviceClaim")
                )
    return made
