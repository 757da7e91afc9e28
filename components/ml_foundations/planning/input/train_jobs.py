"""TrainJobs as the JobSets that Kubeflow Trainer makes of them (trainer v2.2.1, pkg/runtime)."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_foundations.catalog.versions import TRAINER_API
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    api_object,
    items,
    labels_of,
    mappings,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.input.field_catalog import Note
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.workloads import is_finished
from ml_foundations.planning.model.written import WrittenField, WrittenFields, as_annotation

_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_SINGLE = ("trainer", "dataset-initializer", "model-initializer")
"""The parts whose Jobs have one replica."""
_FOLLOWED_POLICIES = frozenset({"numNodes", "torch"})
"""The fields of a runtime's mlPolicy whose effect on pods is known."""
_OF_TRAINER = {
    **{field: field for field in ("image", "command", "args")},
    "resources": "resourcesPerNode",
}
"""The fields of the trainer's container that a TrainJob sets, with its own."""
_Runtimes = Mapping[tuple[Any, Any, Any], Manifest]


def with_job_sets(
    documents: Iterable[Manifest], refused: Callable[[Manifest, Manifest | None], Iterable[Note]]
) -> list[Manifest]:
    """Return documents with the JobSet of each TrainJob in its place; none if it has ended.

    Each has what is refused about its TrainJob with its runtime, if that is shown.
    """
    documents = list(documents)
    runtimes, resolved = _runtimes(documents), list[Manifest]()
    for document in documents:
        is_train_job = (document.get("apiVersion"), document["kind"]) == (TRAINER_API, "TrainJob")
        if not is_train_job:
            resolved.append(document)
        if not is_train_job or is_finished(document):
            continue
        runtime = _runtime_of(document, runtimes)
        notes = [note for note in refused(document, runtime) if note.is_error]
        faults = json.dumps([(note.path, note.reason) for note in notes])
        made = _job_set(document, runtime)
        annotations = {**annotations_of(made), labels.REFUSED: faults}
        metadata = {**section(made, "metadata"), "annotations": annotations}
        resolved.append({**made, "metadata": metadata} if notes else made)
    return resolved


def written_fields(documents: Iterable[Manifest]) -> dict[str, WrittenFields]:
    """Return for each TrainJob the fields of its JobSet with those that users wrote."""
    documents = list(documents)
    written: dict[str, WrittenFields] = {}
    runtimes = _runtimes(documents)
    for document in documents:
        if document.get("apiVersion") == TRAINER_API and document["kind"] == "TrainJob":
            runtime = _runtime_of(document, runtimes)
            written[full_name(document)] = _written(document, runtime) if runtime else {}
    return written


def _written(train_job: Manifest, runtime: Manifest) -> WrittenFields:
    owner, spec = f"{runtime['kind']} {name_of(runtime)}", section(runtime, "spec")
    fields = {"spec": WrittenField("spec.template.spec", owner)}
    # What Trainer's webhook refuses names the TrainJob's own fields.
    fields |= {f"spec.{key}": WrittenField(f"spec.{key}") for key in section(train_job, "spec")}
    trainer = section(train_job, "spec", "trainer")
    nodes = WrittenField("spec.trainer.numNodes") if "numNodes" in trainer else None
    if nodes is None and "numNodes" in section(spec, "mlPolicy"):
        nodes = WrittenField("spec.mlPolicy.numNodes", owner)
    for index, job in enumerate(mappings(section(spec, "template", "spec"), "replicatedJobs")):
        if labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP) != "trainer":
            continue
        path = f"spec.replicatedJobs[{index}].template.spec"
        if nodes:
            fields |= dict.fromkeys((f"{path}.parallelism", f"{path}.completions"), nodes)
        containers = items(section(job, "template", "spec", "template", "spec"), "containers")
        for number, container in enumerate(containers):
            for field, key in _OF_TRAINER.items() if container.get("name") == "node" else ():
                if trainer.get(key):
                    made = f"{path}.template.spec.containers[{number}].{field}"
                    fields[made] = WrittenField(f"spec.trainer.{key}")
    return fields


def _runtimes(documents: Iterable[Manifest]) -> _Runtimes:
    runtimes: dict[tuple[Any, Any, Any], Manifest] = {}
    for document in documents:
        if document.get("apiVersion") == TRAINER_API and document["kind"] != "TrainJob":
            is_of_cluster = document["kind"] == _CLUSTER_RUNTIME
            namespace = "" if is_of_cluster else namespace_of(document)
            runtimes[document["kind"], namespace, name_of(document)] = document
    return runtimes


def _runtime_of(train_job: Manifest, runtimes: _Runtimes) -> Manifest | None:
    """Return the runtime that a TrainJob names; None if it is not shown."""
    reference = section(train_job, "spec", "runtimeRef")
    kind = reference.get("kind", _CLUSTER_RUNTIME)
    namespace = "" if kind == _CLUSTER_RUNTIME else namespace_of(train_job)
    return runtimes.get((str(kind), str(namespace), str(reference.get("name"))))


def _job_set(train_job: Manifest, runtime: Manifest | None) -> Manifest:
    """Return the JobSet of a TrainJob, or the TrainJob with why planning does not know it."""
    spec, reference = section(train_job, "spec"), section(train_job, "spec", "runtimeRef")
    why = _not_followed(spec)
    if not why and runtime is None:
        kind = reference.get("kind", _CLUSTER_RUNTIME)
        why = f"the {kind} {reference.get('name')} of spec.runtimeRef is not shown"
    why = why or _runtime_not_followed(section(runtime or {}, "spec"))
    if runtime is None or why:
        annotations = {**annotations_of(train_job), labels.UNRESOLVED: why}
        metadata = train_job.get("metadata")
        with_why = is_mapping(metadata) and {**metadata, "annotations": annotations}
        return {**train_job, "metadata": with_why or metadata}
    template = section(runtime, "spec", "template")
    jobs: list[Manifest] = []
    for job in mappings(section(template, "spec"), "replicatedJobs"):
        jobs.append(_with_trainer(job, spec, section(runtime, "spec")))
    metadata = {**section(train_job, "metadata")}
    own = {
        labels.MADE_FROM: "TrainJob",
        labels.WRITTEN_FIELDS: as_annotation(_written(train_job, runtime)),
    }
    if "torch" in section(runtime, "spec", "mlPolicy"):
        # The processes of torchrun wait for each other.
        own[labels.GANG] = "true"
    # A JobSet has the annotations of the runtime's template. Those of a TrainJob are Kueue's.
    metadata["annotations"] = {**annotations_of(train_job), **annotations_of(template), **own}
    body = {**section(template, "spec"), "replicatedJobs": jobs}
    return api_object("jobset.x-k8s.io/v1alpha2", "JobSet", metadata, spec=body)


def _not_followed(spec: Manifest) -> str:
    """Return what planning does not follow of a TrainJob's spec; "" if it follows it."""
    for key in ("runtimeRef", *spec):
        if UNKNOWN in (spec.get(key), *section(spec, "runtimeRef").values()):
            return f"spec.{key} is not known yet"
    if spec.get("runtimePatches"):
        return "spec.runtimePatches change what its runtime makes"
    manager = spec.get("managedBy")
    return f"spec.managedBy: {manager} decides about it" if manager else ""


def _runtime_not_followed(runtime: Manifest) -> str:
    """Return what planning does not follow of a runtime's spec; "" if it follows it."""
    for policy in sorted(section(runtime, "mlPolicy").keys() - _FOLLOWED_POLICIES):
        return f"its runtime has an mlPolicy {policy}, which planning does not follow"
    if runtime.get("podGroupPolicy"):
        return "its runtime has a podGroupPolicy: another scheduler decides"
    has_jobs = bool(items(section(runtime, "template", "spec"), "replicatedJobs"))
    return "" if has_jobs else "its runtime has no replicatedJobs"


def _with_trainer(job: Manifest, spec: Manifest, runtime: Manifest) -> Manifest:
    """Return a Job of a runtime with the fields that a TrainJob sets."""
    step = labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP)
    body = section(job, "template", "spec")
    pods = section(body, "template")
    trainer = section(spec, "trainer")
    count: Any = body.get("parallelism", 1)
    if step == "trainer":
        if "mlPolicy" in runtime:
            count = section(runtime, "mlPolicy").get("numNodes", 1)
        count = trainer.get("numNodes", count)
        containers = [
            _of_trainer(container, trainer)
            for container in items(section(pods, "spec"), "containers")
        ]
        pods = {**pods, "spec": {**section(pods, "spec"), "containers": containers}}
    made = {**body, "template": pods, "parallelism": count, "completions": count}
    single = {"replicas": 1} if step in _SINGLE else {}
    return {**job, **single, "template": {**section(job, "template"), "spec": made}}


def _of_trainer(container: Manifest, trainer: Manifest) -> Manifest:
    """Return a container of the trainer's pods with the fields that a TrainJob sets."""
    if container.get("name") != "node":
        return container
    own = {field: trainer[key] for field, key in _OF_TRAINER.items() if trainer.get(key)}
    return {**container, **own}
