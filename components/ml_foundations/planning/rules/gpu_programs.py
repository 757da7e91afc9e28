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
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, section, texts
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.selectors import wanted_values
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.words import alternatives, names, number, verb
from ml_foundations.models.facts import MODELS, ModelFacts, catalog_model
from ml_foundations.models.launches import Launch
from ml_foundations.models.memory import GpuMemory, MemoryVerdict, budget_shares, check_memory
from ml_foundations.models.reasons import GIB, OF_EVERY_RELEASE, Cause, Reason, Severity
from ml_foundations.models.reasons import warning as warned
from ml_foundations.models.serving import Serving, has_other_release, read_container
from ml_foundations.models.sizes import check_launch, check_sizes
from ml_foundations.models.training import METHODS, SHARDINGS, Training, check_training, state_bytes
from ml_foundations.models.ways import ways
from ml_foundations.planning.api_server.defaults import admitted
from ml_foundations.planning.model.nodes import NodeClass, node_class
from ml_foundations.planning.model.resources import gpus, of_container
from ml_foundations.planning.model.workloads import PodSet, Workload, groups
from ml_foundations.planning.rules.findings import Finding, error, info, warning
from ml_foundations.planning.rules.model_storage import check_download, check_shared_memory
from ml_foundations.planning.rules.server_port import check_port
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack
from ml_foundations.planning.scheduler.filters import spec_refusals

_SET_NO_VARIABLES = ("Job", "JobSet", "CronJob", "Pod", "Deployment", "StatefulSet")
"""Kinds whose controllers set no variables of torchrun."""
_OF_TORCHRUN = ("PET_NNODES", "PET_NPROC_PER_NODE")
_BY_SEVERITY = [None, Severity.UNDETERMINED, Severity.WARNING, Severity.REFUSED]


_Candidates = Mapping[GpuMemory | None, Sequence[NodeClass]]
"""The GPUs that a container may get, with their nodes; None for GPUs that are not known."""


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
    has_other_release: bool
    """Whether the source of its program's release was not read."""

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
        is_read = not self.has_other_release or reason.cause in OF_EVERY_RELEASE
        severe = severe or (error if self.is_certain and is_read else warning)
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
            has_other_release=has_other_release(manifest),
        )
        is_faulty = False
        try:
            facts = _declared_facts(pods)
        except ReadError as fault:
            is_faulty = True
            path = f"{pods.path.removesuffix('.spec')}.metadata.annotations"
            name = str(annotations_of(pods.template).get(labels.MODEL))
            # A name with an addition is a variant, such as one in FP8, with different weights.
            is_variant = any(name.startswith(known) for known in MODELS)
            hint = "" if is_variant else did_you_mean(name, MODELS)
            remedy = f"{hint} Set {labels.MODEL} to the folder of its config.json.".strip()
            yield warning("model-memory", str(workload), path, str(fault), remedy)
            facts = None
        candidates = _candidates(container, nodes)
        if facts is not None:
            yield from _of_training(container, facts, candidates)
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
            facts = facts or catalog_model(program.model)
            for finding in _of_server(container, program, facts, candidates):
                # Why the memory is not judged is known already.
                if not is_faulty or finding.rule != "model-capacity":
                    yield finding
            listed = [node for same in candidates.values() for node in same]
            places = listed if all(candidates.values()) else []
            downloads = check_download(stack, workload, pods, manifest, program, places)
            for reason in (*downloads, *check_shared_memory(pods, manifest, program)):
                yield container.finding("model-storage", reason, "the place")
            for reason in check_port(stack, workload, pods, manifest, program):
                yield container.finding("server-arguments", reason, "--port")


def _with_variables(container: _Container) -> Manifest:
    """Return a container with the variables that a controller sets, as far as they are known."""
    workload = container.workload
    manifest = container.manifest
    if workload.kind in _SET_NO_VARIABLES:
        return manifest
    added: list[Manifest] = [{"name": name, "valueFrom": {}} for name in _OF_TORCHRUN]
    if workload.kind == "LeaderWorkerSet":
        added.append({"name": "LWS_GROUP_SIZE", "value": str(_together(container))})
    return {**manifest, "env": [*added, *items(manifest, "env")]}


def _files(stack: Stack, container: _Container) -> Mapping[str, str]:
    """Return the texts of the ConfigMaps that a container mounts, by path."""
    mounts = items(container.manifest, "volumeMounts")
    files: dict[str, str] = {}
    for volume in items(section(container.pods.template, "spec"), "volumes"):
        projected = items(section(volume, "projected"), "sources")
        contents: dict[str, str] = {}
        for source in (section(part, "configMap") for part in (volume, *projected)):
            key = container.workload.namespace, str(source.get("name"))
            data = section(stack.config_maps.get(key, {}), "data")
            paths = {str(item.get("key")): str(item.get("path")) for item in items(source, "items")}
            for name in data.keys() & (paths or data).keys():
                contents[paths.get(name, name)] = str(data[name])
        for mount in mounts:
            part = str(mount.get("subPath") or "").strip("/")
            if mount.get("name") == volume.get("name") and "subPathExpr" not in mount:
                for path, text in contents.items():
                    # A subPath is a file, or a folder with files.
                    if f"{path}/".startswith(f"{part}/" if part else ""):
                        place = f"{mount.get('mountPath')}/{path.removeprefix(part).lstrip('/')}"
                        files[place.replace("//", "/").rstrip("/")] = text
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
    container: _Container, serving: Serving, facts: ModelFacts | None, candidates: _Candidates
) -> Iterator[Finding]:
    partitions = [
        node for gpu in candidates if gpu and gpu.is_partition for node in candidates[gpu]
    ]
    are_all = all(gpu and gpu.is_partition for gpu in candidates)
    pods = _together(container)
    sizes = check_sizes(
        serving,
        facts,
        gpus=container.gpus,
        pods=pods,
        is_partition=bool(candidates) and are_all,
        capability=_best_capability(candidates),
    )
    known = [reason for reason in serving.reasons if reason.severity is not Severity.UNDETERMINED]
    shared = _shared(container, serving, candidates)
    if partitions and not are_all and serving.tensor > 1:
        key = labels.GKE_PARTITION_SIZE
        path = serving.paths.get("tensor", "")
        place = _place(partitions).removesuffix(", ")
        yield container.finding(
            "server-arguments",
            warned(Cause.SOME_PARTITIONS, serving.tensor, key, path, place=place),
            "tensor",
        )
    for reason in (*known, *sizes, *shared):
        yield container.finding("server-arguments", reason, "--tensor-parallel-size")
    is_refused = any(reason.severity is Severity.REFUSED for reason in (*known, *sizes))
    # Without a replica, the container only answers requests.
    if not is_refused and serving.data_local != 0:
        yield from _of_memory(container, serving, facts, candidates)


def _best_capability(candidates: _Candidates) -> tuple[int, int] | None:
    """Return the compute capability that no candidate exceeds, None if one is not known."""
    capabilities = [gpu.compute_capability if gpu else None for gpu in candidates]
    return None if None in capabilities else max(filter(None, capabilities), default=None)


def _of_training(
    container: _Container, facts: ModelFacts, candidates: _Candidates
) -> Iterator[Finding]:
    """Yield whether a training that names its method has the memory for its model."""
    annotations = annotations_of(container.pods.template)
    method = annotations.get(labels.TRAINING_METHOD)
    sharding = annotations.get(labels.TRAINING_SHARDING, "")
    pods = _together(container)
    if method not in METHODS or sharding not in ("", *SHARDINGS) or pods is None:
        return
    training = Training(method=method, sharding=sharding, pods=pods, gpus=container.gpus)
    states = state_bytes(training, facts)
    if states is None or not candidates or None in candidates:
        return
    gpu = max(filter(None, candidates), key=lambda candidate: candidate.high)
    if reason := check_training(training, facts, gpu, states):
        yield container.finding("model-memory", reason, "sharding")
        return
    low = float(states.low) / GIB
    high = float(states.high or 0) / GIB
    size = f"{low:.1f} to {high:.1f} GiB" if high else f"at least {low:.1f} GiB"
    message = (
        f"weights, gradients and optimizer have {size} on each of its {gpu.name} GPUs, which have "
        f"{float(gpu.high):.1f} GiB; activations are not counted"
    )
    yield info("model-capacity", str(container.workload), container.path, message, "")


def _declared_facts(pods: PodSet) -> ModelFacts | None:
    """Return the facts about the model that an annotation names, None if there is none.

    Raises:
        ReadError: The catalog lacks the model, and there is no such folder.
    """
    name = annotations_of(pods.template).get(labels.MODEL)
    if not isinstance(name, str):
        return None
    if facts := catalog_model(name):
        return facts
    # Manifests of others must not name files elsewhere.
    if name[:1] == "/" or ".." in name.split("/"):
        raise ReadError(f"{name!r:.200} is not a folder below the current one")
    return ModelFacts.named(name)


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
        verdict = verdicts[gpu]
        unknown: list[str] = []
        for judged in verdict.reasons:
            if judged.severity is Severity.UNDETERMINED:
                option = _option(container.manifest, judged.path) or "the command"
                unknown.append(judged.sentences(option)[0])
            elif judged not in reported:
                if verdicts[ranked[0]].severity is not Severity.REFUSED:
                    # Pods may be placed on GPUs that are too small, if others are large enough.
                    judged = replace(judged, severity=Severity.WARNING)
                is_error = judged.severity is Severity.REFUSED
                has_ways = is_error and serving.engine == "vllm"
                has_ways &= judged.cause is not Cause.DEFAULT_BATCH
                dtype = " --dtype=bfloat16" if judged.cause is Cause.DTYPE_OF_MODEL else ""
                ways_out = _ways_out(serving, facts, dtype) if facts and has_ways else ""
                finding = container.finding("model-memory", judged, "--max-model-len", ways_out)
                place = _place(candidates[gpu])
                yield replace(finding, message=f"{place}{finding.message}")
        if verdict.severity is Severity.REFUSED:
            continue
        part = " in full" if verdict.weights else ""
        message = f"its memory is not judged{part}: {'; '.join(unknown)}" if unknown else ""
        fix = f"Set {labels.MODEL} to its name or to the folder of its config.json."
        remedy = "" if facts else fix
        if facts and verdict.requests and verdict.requests.high:
            message = _capacity(container, facts, serving, gpu, verdict)
            message = "; ".join((message, *unknown))
        if message and (gpu is ranked[0] or not unknown):
            about = str(container.workload)
            yield info("model-capacity", about, container.path, message, remedy)


def _place(nodes: Sequence[NodeClass]) -> str:
    """Return where a message holds, such as "in pool l4, ", or nothing without nodes."""
    if not nodes:
        return ""
    named = names(node.name for node in nodes)
    if not all(node.is_template for node in nodes):
        return f"on {named}, "
    return f"in {verb(len(nodes), 'pool', 'pools')} {named}, "


def _ways_out(serving: Serving, facts: ModelFacts, further: str) -> str:
    """Return the cheapest way to serve a model as it is, and in FP8, with further options."""
    fitting = ways(
        facts,
        context=serving.max_length,
        requests=1,
        machines=MACHINE_TYPES.values(),
        release=serving.release,
    )
    texts: dict[str, str] = {}
    for way in fitting:
        option = "" if not way.quantization else f" --quantization={way.quantization}"
        text = f"--tensor-parallel-size={way.tensor}{option}{further} on {way.machine}"
        texts.setdefault(way.quantization, text)
    return alternatives(texts.values()) if texts else ""


def _shared(container: _Container, serving: Serving, candidates: _Candidates) -> Iterator[Reason]:
    """Yield whether pods certainly get the same GPU, and want more than all of its memory."""
    share, _ = budget_shares(serving)
    pods = container.pods.count
    nodes = [node for same in candidates.values() for node in same]
    if serving.engine != "vllm" or share * 2 <= 1 or not nodes or not all(candidates.values()):
        return
    count = 0
    for node in nodes:
        if node.labels.get(labels.GKE_SHARING_STRATEGY) != "time-sharing":
            return
        clients = whole_number(node.labels.get(labels.GKE_SHARED_CLIENTS), 1)
        count += node.count * gpus(node.allocatable) // clients
    if count < pods:
        path = serving.paths.get("utilization", "")
        yield warned(Cause.SHARED_UTILIZATION, share, count, path, pods=pods)


def _capacity(
    container: _Container,
    facts: ModelFacts,
    serving: Serving,
    gpu: GpuMemory,
    verdict: MemoryVerdict,
) -> str:
    """Return how many requests each replica holds at once, and all of them."""
    workload = container.workload
    # If something is not counted, only the upper bounds hold.
    is_counted = not any(item.severity is Severity.UNDETERMINED for item in verdict.reasons)

    def held(replicas: int) -> str:
        low, high = (int((bound or 0) * replicas) for bound in verdict.requests or (0, 0))
        least = "at most " if not is_counted else "" if low == high else f"{low:,} to "
        return f"{least}{high:,}"

    pods = 1 if workload.is_finite or gpu.is_shared else container.pods.count
    ceiling = 0 if gpu.is_shared else workload.ceiling or 0
    if not workload.groups:
        # Pods of several nodes are one replica.
        pods = max(1, pods // serving.nodes)
        ceiling //= serving.nodes
    replicas = workload.groups or pods
    low, high = (float(bound or 0) / GIB for bound in verdict.cache or (0, 0))
    least = f"{low:.1f} to" if is_counted else "at most"
    message = (
        f"each replica of {facts.name} with TP {serving.tensor} has {least} {high:.1f} GiB of KV "
        f"cache on each GPU: {held(1)} requests of {verdict.length:,} tokens at once "
        f"on {number(container.gpus, gpu.name)}"
    )
    if replicas > 1:
        message += f", {replicas} replicas for {held(replicas)}"
    if ceiling > replicas:
        message += f", and the autoscaler's {ceiling} for {held(ceiling)}"
    return message


def _candidates(container: _Container, nodes: Sequence[NodeClass]) -> _Candidates:
    """Return the GPUs of the nodes where the pods can be placed, or those that they select."""
    spec = admitted(container.pods.spec, ())
    # The GPUs that the pods select by the labels of nodes, as alternatives.
    further_keys = (labels.GKE_PARTITION_SIZE, labels.GKE_SHARING_STRATEGY)
    further = {key: next(iter(wanted_values(spec, key)), None) for key in further_keys}
    selected: dict[GpuMemory | None, list[NodeClass]] = {}
    for key in (labels.GKE_ACCELERATOR, labels.GPU_PRODUCT):
        for value in wanted_values(spec, key):
            selected[_gpu_of({key: value, **further})] = []
    if not selected and wanted_values(spec, labels.COMPUTE_CLASS):
        return {None: []}
    # A queue's flavor may have further tolerations.
    ignored = ("taint",) if container.workload.queue else ()
    candidates: dict[GpuMemory | None, list[NodeClass]] = {}
    for node in nodes:
        if node.unknown or node.made_by:
            # Whatever node it is, it has the labels that the pods select.
            for gpu in selected or (None,):
                candidates.setdefault(gpu, [])
            continue
        refusals = spec_refusals(spec, node)
        is_refused = any(item.certain and item.rule not in ignored for item in refusals)
        if not is_refused and gpus(node.allocatable) >= container.gpus:
            candidates.setdefault(_gpu_of(node.labels), []).append(node)
    return candidates or selected


def _gpu_of(node_labels: Mapping[str, Any]) -> GpuMemory | None:
    """Return the GPUs of nodes with some labels, or None if they are not known."""
    machine = MACHINE_TYPES.get(str(node_labels.get(labels.INSTANCE_TYPE)))
    if machine and machine.has_part_of_gpu:
        return None
    model = gpu_model(str(node_labels.get(labels.GKE_ACCELERATOR)), node_labels)
    if model is not None:
        partition = node_labels.get(labels.GKE_PARTITION_SIZE)
        if partition not in (None, *model.mig_profiles):
            return None
        is_shared = bool(node_labels.get(labels.GKE_SHARING_STRATEGY))
        return GpuMemory.of(Accelerator((model,), partition, is_shared))
    try:
        return GpuMemory.of(accelerator(str(node_labels.get(labels.GPU_PRODUCT))))
    except UnknownNameError:
        return None


def _option(container: Manifest, path: str) -> str:
    """Return the option at a field of a command, such as --dtype; else the field.

    It is empty for the script of a shell, which has several options.
    """
    matched = re.fullmatch(r"(command|args)\[(\d+)\]", path)
    words: list[Any] = container.get(matched[1], []) if matched else []
    end = int(matched[2]) + 1 if matched else 0
    if matched and matched[1] == "args":
        command = texts(container, "command")
        words = [*command, *words]
        end += len(command)
    for word in reversed(words[max(0, end - 2) : end]):
        if isinstance(word, str) and re.fullmatch(r"-[a-z]*c", word):
            return ""
        if isinstance(word, str) and re.match(r"--?[a-z]", word):
            return word.partition("=")[0]
    return path
