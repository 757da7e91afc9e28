"""The findings on containers with GPUs: their arguments, GPUs and models, in sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ml_foundations.catalog.machine_types import (
    MACHINE_TYPES,
    Accelerator,
    UnknownNameError,
    accelerator,
    gpu_model,
)
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, section
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.selectors import wanted_values
from ml_foundations.kubernetes.words import alternatives, names, number
from ml_foundations.models.facts import MODELS, ModelFacts
from ml_foundations.models.launches import Launch
from ml_foundations.models.memory import GpuMemory, MemoryVerdict, check_memory
from ml_foundations.models.reasons import Reason, Severity
from ml_foundations.models.serving import Serving, read_container
from ml_foundations.models.sizes import check_launch, check_sizes
from ml_foundations.models.ways import ways
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.model.nodes import NodeClass, node_class
from ml_foundations.planning.model.resources import gpus, of_container
from ml_foundations.planning.model.workloads import PodSet, Workload, groups
from ml_foundations.planning.rules.findings import Finding, error, info, warning
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack
from ml_foundations.planning.scheduler.filters import spec_refusals

_SET_NO_VARIABLES = ("Job", "JobSet", "CronJob", "Pod", "Deployment", "StatefulSet")
"""Kinds whose controllers set no variables of torchrun."""
_OF_TORCHRUN = ("PET_NNODES", "PET_NPROC_PER_NODE")
_BY_SEVERITY = [None, Severity.UNDETERMINED, Severity.WARNING, Severity.REFUSED]


_Candidates = Mapping[GpuMemory | None, Sequence[str]]
"""The GPUs that a container may get, with their node pools; None for GPUs that are not known."""


@dataclass(frozen=True)
class _Container:
    """A container with GPUs."""

    workload: Workload
    pods: PodSet
    path: str
    manifest: Manifest
    gpus: int
    is_certain: bool
    """Whether pods are created as they are declared."""

    def finding(self, rule: str, reason: Reason, it: str, ways_out: str = "") -> Finding:
        """Return a reason as a finding: an error if it is certain.

        Args:
            rule: The name of the rule.
            reason: The reason.
            it: What to change if no argument leads to the reason.
            ways_out: How else to serve the model.
        """
        message, remedy = reason.sentences(_option(self.manifest, reason.path) or it)
        if ways_out:
            remedy = f"{remedy}, or use {ways_out}." if remedy else f"Use {ways_out}."
        elif remedy:
            remedy = f"{remedy}."
        path = f"{self.path}.{reason.path}".removesuffix(".")
        severe = {Severity.UNDETERMINED: info, Severity.WARNING: warning}.get(reason.severity)
        severe = severe or (error if self.is_certain else warning)
        return severe(rule, str(self.workload), path, message, remedy)


def findings(
    stack: Stack, programs: Iterable[tuple[JudgedWorkload, PodSet, int]]
) -> Iterable[Finding]:
    """Return the findings on containers, each by its workload, its pods and its index."""
    # The leader and the workers of a group often have the same program.
    by_message: dict[tuple[str, str], Finding] = {}
    for finding in _findings(stack, programs):
        by_message.setdefault((finding.object, finding.message), finding)
    return by_message.values()


def _findings(
    stack: Stack, programs: Iterable[tuple[JudgedWorkload, PodSet, int]]
) -> Iterator[Finding]:
    nodes = [*stack.nodes, *map(node_class, stack.of_kind("Node"))]
    is_changed = any(item["kind"].startswith("Mutating") for item in stack.objects)
    for judged, pods, index in programs:
        workload = judged.workload
        manifest = items(section(pods.template, "spec"), "containers")[index]
        count = gpus(of_container(manifest, "requests"))
        if not count:
            continue
        may_change = is_changed and any(item.rule == "unknown-admission" for item in judged.reasons)
        container = _Container(
            workload,
            pods,
            path=f"{pods.path}.containers[{index}]",
            manifest=manifest,
            gpus=count,
            is_certain=workload.kind in groups() and not may_change,
        )
        program = read_container(_with_variables(container), _files(stack, container))
        if isinstance(program, Reason):
            is_known = program.severity is not Severity.UNDETERMINED
            rule = "server-arguments" if is_known else "model-capacity"
            yield container.finding(rule, program, "the command")
        elif isinstance(program, Launch):
            it = "--nproc-per-node" if program.launcher == "torchrun" else "--num-processes"
            for reason in check_launch(program, gpus=count, pods=_together(container)):
                yield container.finding("server-arguments", reason, it)
        elif isinstance(program, Serving):
            yield from _of_server(container, program, nodes)


def _with_variables(container: _Container) -> Manifest:
    """Return a container with the variables that a controller sets, as far as they are known."""
    workload = container.workload
    manifest = container.manifest
    is_made = labels.MADE_FROM in annotations_of(workload.manifest)
    if workload.kind in _SET_NO_VARIABLES and not is_made:
        return manifest
    added: list[Manifest] = [{"name": name, "valueFrom": {}} for name in _OF_TORCHRUN]
    if workload.kind == "LeaderWorkerSet":
        added.append({"name": "LWS_GROUP_SIZE", "value": str(_together(container))})
    return {**manifest, "env": [*added, *items(manifest, "env")]}


def _files(stack: Stack, container: _Container) -> Mapping[str, str]:
    """Return the texts of the ConfigMaps that a container mounts, by path."""
    folders: dict[Any, str] = {}
    for mount in items(container.manifest, "volumeMounts"):
        if "subPath" not in mount:
            folders[mount.get("name")] = str(mount.get("mountPath")).rstrip("/")
    files: dict[str, str] = {}
    for volume in items(section(container.pods.template, "spec"), "volumes"):
        key = container.workload.namespace, str(section(volume, "configMap").get("name"))
        if volume.get("name") in folders:
            for name, text in section(stack.config_maps.get(key, {}), "data").items():
                files[f"{folders[volume.get('name')]}/{name}"] = str(text)
    return files


def _together(container: _Container) -> int | None:
    """Return how many pods run a program together, or None if not known."""
    workload = container.workload
    pods = container.pods
    if workload.groups:
        return sum(pod_set.count for pod_set in workload.pods) // workload.groups
    if workload.kind in ("Deployment", "ReplicaSet"):
        return 1
    # Of several Jobs with several pods each, any of them may belong together.
    factors = [count.number for count in pods.counts if count.number > 1]
    is_one = workload.kind in ("Job", "JobSet", "StatefulSet") and len(workload.pods) == 1
    return pods.count if is_one and len(factors) < 2 else None


def _of_server(
    container: _Container, serving: Serving, nodes: Sequence[NodeClass]
) -> Iterator[Finding]:
    facts = MODELS.get(serving.model or "")
    if folder := annotations_of(container.pods.template).get(labels.MODEL_FOLDER):
        try:
            facts = _facts_from(folder)
        except ReadError as fault:
            path = f"{container.pods.path.removesuffix('.spec')}.metadata.annotations"
            message = f"the facts about its model cannot be read: {fault}"
            remedy = f"Correct {labels.MODEL_FOLDER}."
            yield warning("model-memory", str(container.workload), path, message, remedy)
            return
    candidates = _candidates(container, nodes)
    is_partition = any(gpu and gpu.is_partition for gpu in candidates)
    pods = _together(container)
    sizes = check_sizes(serving, facts, gpus=container.gpus, pods=pods, is_partition=is_partition)
    refused = [reason for reason in serving.reasons if reason.severity is not Severity.UNDETERMINED]
    for reason in (*refused, *sizes):
        yield container.finding("server-arguments", reason, "--tensor-parallel-size")
    if not any(reason.severity is Severity.REFUSED for reason in (*refused, *sizes)):
        yield from _of_memory(container, serving, facts, candidates)


def _facts_from(folder: Any) -> ModelFacts:
    """Return the facts in a folder of the project.

    Raises:
        ReadError: The files cannot be read, or are outside of the project.
    """
    # Manifests of others must not name files elsewhere.
    if not isinstance(folder, str) or folder.startswith("/") or ".." in folder.split("/"):
        raise ReadError(f"{folder!r:.200} is not a folder below the current one")
    return ModelFacts.from_folder(folder)


def _of_memory(
    container: _Container, serving: Serving, facts: ModelFacts | None, candidates: _Candidates
) -> Iterator[Finding]:
    verdicts: dict[GpuMemory, MemoryVerdict] = {}
    for gpu in candidates:
        if gpu is None:
            return  # its GPU is not known
        verdicts[gpu] = check_memory(serving, facts, gpu)
    ranked = sorted(verdicts, key=lambda gpu: _BY_SEVERITY.index(verdicts[gpu].severity))
    reported = [*serving.reasons]
    for gpu in ranked:
        best = verdicts[ranked[0]]
        unknown: list[str] = []
        for judged in verdicts[gpu].reasons:
            is_refused = judged.severity is Severity.REFUSED
            if judged.severity is Severity.UNDETERMINED:
                unknown.append(judged.sentences(_option(container.manifest, judged.path))[0])
            elif judged not in reported and (gpu is ranked[0] or is_refused):
                if best.severity is not Severity.REFUSED:
                    # Pods may be placed on GPUs that are too small, if others are large enough.
                    judged = replace(judged, severity=Severity.WARNING)
                is_error = judged.severity is Severity.REFUSED
                ways_out = _ways_out(serving, facts) if facts and is_error else ""
                finding = container.finding("model-memory", judged, "--max-model-len", ways_out)
                on = names(candidates[gpu])
                on = f"on {on}, " if candidates[gpu] else ""
                yield replace(finding, message=f"{on}{finding.message}")
        if gpu is not ranked[0]:
            continue
        message = f"its memory is not judged: {'; '.join(unknown)}" if unknown else ""
        remedy = "" if facts else f"Name the folder of its config.json: {labels.MODEL_FOLDER}."
        if best.requests and best.requests.high and best.severity is not Severity.REFUSED:
            message = _capacity(container, gpu, best)
        if message:
            about = str(container.workload)
            yield info("model-capacity", about, container.path, message, remedy)


def _ways_out(serving: Serving, facts: ModelFacts) -> str:
    """Return the cheapest way to serve a model as it is, and in FP8."""
    machines = MACHINE_TYPES.values()
    fitting = ways(facts, context=serving.max_length, requests=1, machines=machines)
    texts: dict[str, str] = {}
    for way in fitting:
        option = "" if not way.quantization else f" --quantization={way.quantization}"
        text = f"--tensor-parallel-size={way.tensor}{option} on {way.machine}"
        texts.setdefault(way.quantization, text)
    return alternatives(texts.values()) if texts else ""


def _capacity(container: _Container, gpu: GpuMemory, verdict: MemoryVerdict) -> str:
    """Return how many requests each replica holds at once, and all of them."""
    workload = container.workload
    requests = verdict.requests

    def held(replicas: int) -> str:
        low, high = (int((bound or 0) * replicas) for bound in requests or (0, 0))
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    replicas = workload.groups or (1 if workload.is_finite else container.pods.count)
    message = (
        f"each replica has KV cache for {held(1)} requests of {verdict.length:,} tokens at once "
        f"on {number(container.gpus, gpu.name)}"
    )
    if replicas > 1:
        message += f", {replicas} replicas for {held(replicas)}"
    if workload.ceiling and workload.ceiling > replicas:
        message += f", and the autoscaler's {workload.ceiling} for {held(workload.ceiling)}"
    return message


def _candidates(container: _Container, nodes: Sequence[NodeClass]) -> _Candidates:
    """Return the GPUs of the nodes where the pods can be placed, or those that they select."""
    spec = admitted(container.pods.spec, ())
    selected = _selected(spec)
    if not selected and wanted_values(spec, labels.COMPUTE_CLASS):
        return {None: []}
    # A queue's flavor may have further tolerations.
    ignored = ("taint",) if container.workload.queue else ()
    candidates: dict[GpuMemory | None, list[str]] = {}
    for node in nodes:
        if node.unknown or node.made_by:
            # Whatever node it is, it has the labels that the pods select.
            for gpu in selected or (None,):
                candidates.setdefault(gpu, [])
            continue
        refusals = spec_refusals(spec, node)
        is_refused = any(item.certain and item.rule not in ignored for item in refusals)
        if not is_refused and gpus(node.allocatable) >= container.gpus:
            candidates.setdefault(_gpu_of(node.labels), []).append(node.name)
    return candidates or selected


def _selected(spec: Manifest) -> _Candidates:
    """Return the GPUs that a pod selects by the labels of nodes, as alternatives."""
    keys = (labels.GKE_PARTITION_SIZE, labels.GKE_SHARING_STRATEGY)
    further = {key: next(iter(wanted_values(spec, key)), None) for key in keys}
    candidates: dict[GpuMemory | None, list[str]] = {}
    for key in (labels.GKE_ACCELERATOR, labels.GPU_PRODUCT):
        for value in wanted_values(spec, key):
            candidates[_gpu_of({key: value, **further})] = []
    return candidates


def _gpu_of(node_labels: Mapping[str, Any]) -> GpuMemory | None:
    """Return the GPUs of nodes with some labels, or None if they are not known."""
    machine = MACHINE_TYPES.get(str(node_labels.get(labels.INSTANCE_TYPE)))
    if machine and machine.has_part_of_gpu:
        return None
    model = gpu_model(str(node_labels.get(labels.GKE_ACCELERATOR)), node_labels)
    if model is not None:
        partition = node_labels.get(labels.GKE_PARTITION_SIZE)
        is_shared = bool(node_labels.get(labels.GKE_SHARING_STRATEGY))
        return GpuMemory.of(Accelerator((model,), partition, is_shared))
    try:
        return GpuMemory.of(accelerator(str(node_labels.get(labels.GPU_PRODUCT))))
    except UnknownNameError:
        return None


def _option(container: Manifest, path: str) -> str:
    """Return the option at a field of a command, such as --dtype; else the field."""
    matched = re.fullmatch(r"(command|args)\[(\d+)\]", path)
    words: list[Any] = container.get(matched[1], []) if matched else []
    end = int(matched[2]) + 1 if matched else 0
    for word in reversed(words[max(0, end - 2) : end]):
        if isinstance(word, str) and re.match(r"--?[a-z]", word):
            return word.partition("=")[0]
    return path
