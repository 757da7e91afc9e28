"""Controllers that refuse an object in their loops: KubeRay, and Kubeflow Trainer when it makes the JobSet of a TrainJob.

An answer is what the controller has written after its look at the object, however late that is: a slow machine has the same
answers as a fast one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from tests.differential.acceptance.generator import Object, Schema
from tests.differential.acceptance.proof import Server

KINDS = ("RayCluster", "RayJob", "RayService", "TrainJob")
UNANSWERED = "its controller does not answer"
"""It fails again and again at something that it makes of an object, without an event; or another controller answers."""
MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
TRANSIENT = re.compile("already exists|not found|could not find the requested resource")
"""Failures of a look at a cache that is behind, or at a kind that is just served: the controller tries again."""
STOPPED = ("Suspending", "Suspended", "Failed", "Complete")
"""States of a RayJob in which it makes no cluster."""
COUNTS = ("replicas", "minReplicas", "maxReplicas", "numOfHosts")
FEW = 5
SECONDS, PAUSE = 120, 0.3


async def refused(
    server: Server, schema: Schema, document: Object, name: str
) -> tuple[str, list[Object]]:
    """Create an object, by a name if it has the usual one, and delete it once its controller has answered.

    Returns the words of a refusal, and the JobSet that the controller made.
    """
    document = _small(copy.deepcopy(document))
    if document["metadata"]["name"] == "o":
        document["metadata"]["name"] = name
    deadline = time.monotonic() + SECONDS
    created, words = await server.create(schema, document, "?fieldValidation=Strict")
    while created is None and not words:  # an object of another seed has its name
        if time.monotonic() > deadline:
            return UNANSWERED, []
        await asyncio.sleep(PAUSE)
        created, words = await server.create(schema, document, "?fieldValidation=Strict")
    if created is None:
        return words, []
    spec = created.get("spec") or {}
    if spec.get("managedBy") == MULTI_KUEUE and created["kind"] != "TrainJob":
        await server.delete(_path(schema, created))
        return UNANSWERED, []
    deadline = time.monotonic() + SECONDS
    seen = [created]
    try:
        while time.monotonic() < deadline:
            words, seen = await _answer(server, schema, created)
            if words is not None:
                return words, [made for made in seen if made["kind"] == "JobSet"]
            await asyncio.sleep(PAUSE)
        return UNANSWERED, []
    finally:
        for made in seen:
            await server.delete(_path(schema, made))


async def _answer(
    server: Server, schema: Schema, created: Object
) -> tuple[str | None, list[Object]]:
    """What a controller reports of an object, and the objects to delete; no words if it has not come to it."""
    about = await server.find(_path(schema, created))
    if about is None:
        return None, [created]
    status, events = about.get("status") or {}, f"involvedObject.uid={about['metadata']['uid']}"
    words = _refusal(status)
    namespace = about["metadata"]["namespace"]
    path = f"/api/v1/namespaces/{namespace}/events?fieldSelector={events}"
    for event in (await server.read(path))["items"]:
        if event["type"] == "Warning" and not TRANSIENT.search(event["message"]):
            words = words or event["message"]
    if words:
        return words, [about]
    if about["kind"] == "JobSet" or _is_accepted(about, status):
        return "", [about]
    for made in _made(about, status):
        words, seen = await _answer(server, schema, made)
        return words, [*seen, about]
    return None, [about]


def _refusal(status: Object) -> str:
    """The words in the status of an object that KubeRay refuses."""
    if status.get("jobDeploymentStatus") == "ValidationFailed":
        return status["message"]
    for condition in status.get("conditions") or ():
        is_refusal = condition["type"] == "ReplicaFailure" or condition["reason"] == (
            "ValidationFailed"
        )
        if is_refusal and not TRANSIENT.search(condition["message"]):
            return condition["message"]
    return ""


def _is_accepted(about: Object, status: Object) -> bool:
    """Whether KubeRay has made the pods of a RayCluster, of which it makes the head's first, or none are to be made."""
    if about["kind"] == "RayJob":
        state = status.get("jobDeploymentStatus")
        return state in STOPPED or bool(state and about["spec"].get("clusterSelector"))
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    suspended = conditions.get("RayClusterSuspended", {}).get("status") == "True"
    head = conditions.get("HeadPodReady", {"reason": "HeadPodNotFound"})["reason"]
    return about["kind"] == "RayCluster" and (suspended or head != "HeadPodNotFound")


def _made(about: Object, status: Object) -> Iterator[Object]:
    """The object that a controller makes of one to answer for it."""
    metadata = {"namespace": about["metadata"]["namespace"]}
    if about["kind"] == "TrainJob":
        metadata["name"] = about["metadata"]["name"]
        yield {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    pending = status.get("pendingServiceStatus") or {}
    name = status.get("rayClusterName") or pending.get("rayClusterName")
    if name:
        metadata["name"] = name
        yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata}


def _path(schema: Schema, document: Object) -> str:
    metadata = document["metadata"]
    path = f"{schema.paths[document['apiVersion'], document['kind']]}/{metadata['name']}"
    return path.replace("{namespace}", metadata["namespace"])


def _small(document: Object) -> Object:
    """The object with few pods, in the same order of their counts: else its controller is busy with them for hours."""
    if document["kind"] == "TrainJob":
        document.setdefault("spec", {})["suspend"] = True  # its JobSet is asked, not its pods
        return document
    many = sorted({number for *_, number in _counts(document) if number > FEW})
    for holder, key, number in [*_counts(document)]:
        if number > FEW:
            holder[key] = FEW + 1 + many.index(number)
    return document


def _counts(value: Any) -> Iterator[tuple[Object, str, int]]:
    """The counts of pods in a value that the API server accepts, each with what holds it."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key in COUNTS and isinstance(below, int | float):
                yield value, key, int(below)
            yield from _counts(below)
    elif isinstance(value, list):
        for item in value:
            yield from _counts(item)


def message(words: str) -> str:
    """The message in an answer of the API server, or the words of a controller."""
    return json.loads(words)["message"] if words.startswith("{") else words
