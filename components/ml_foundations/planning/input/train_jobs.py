"""TrainJobs as the JobSets that Kubeflow Trainer makes of them (trainer v2.2.1, pkg/runtime)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_foundations.catalog.versions import TRAINER_API
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import strategic_merge, without_nulls
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
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.input.field_catalog import Note
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.workloads import is_finished
from ml_foundations.planning.model.written import (
    WrittenField,
    WrittenFields,
    as_annotation,
    written_annotation,
)

_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_SINGLE = ("trainer", "dataset-initializer", "model-initializer")
"""The parts whose Jobs have one replica."""
_FOLLOWED_POLICIES = frozenset({"mpi", "numNodes", "torch"})
"""The fields of a runtime's mlPolicy whose effect on pods is known."""
_OF_TRAINER = {
    **{field: field for field in ("image", "command", "args")},
    "resources": "resourcesPerNode",
}
"""The fields of the trainer's container that a TrainJob sets, with its own."""
_NOT_OF_JOB_SETS = ("initializer", "runtimePatches", "trainer")
"""The fields of a TrainJob, also of a refused one without lists, that no JobSet has."""
_SOURCES = frozenset({"configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"})
"""The sources of variables that Trainer copies."""
_Runtimes = Mapping[tuple[Any, Any, Any], Manifest]


def with_job_sets(
    documents: Iterable[Manifest], refused: Callable[[Manifest, Manifest | None], Iterable[Note]]
) -> list[Manifest]:
    """Return documents with the JobSet of each TrainJob in its place; none if it has ended.

    Each has what is refused about its TrainJob with its runtime, if that is shown.
    """
    documents = list(documents)
    runtimes = _runtimes(documents)
    resolved = list[Manifest]()
    for document in documents:
        is_train_job = (document.get("apiVersion"), document["kind"]) == (TRAINER_API, "TrainJob")
        if not is_train_job:
            resolved.append(document)
        if not is_train_job or is_finished(document):
            continue
        runtime = _runtime_of(document, runtimes)
        notes = [note for note in refused(document, runtime) if note.is_error]
        if not notes:
            resolved.append(_job_set(document, runtime))
            continue
        # The parts of a refused TrainJob may have any type, so nothing is merged by lists.
        spec = section(document, "spec")
        kept = {key: spec[key] for key in ("managedBy", "runtimeRef") if key in spec}
        trainer = {key: value for key, value in section(spec, "trainer").items() if key != "env"}
        made = _job_set({**document, "spec": {**kept, "trainer": trainer}}, runtime)
        refusals = as_annotation((note.path, str(note.reason)) for note in notes)
        annotations = {**annotations_of(made), labels.REFUSED: refusals}
        if runtime is not None:
            annotations[labels.WRITTEN_FIELDS] = written_annotation(_written(document, runtime))
        metadata = {**section(made, "metadata"), "annotations": annotations}
        resolved.append({**made, "metadata": metadata})
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
    owner = f"{runtime['kind']} {name_of(runtime)}"
    spec = section(runtime, "spec")
    fields = {"spec": WrittenField("spec.template.spec", owner)}
    # What Trainer's webhook refuses names the TrainJob's own fields.
    names = {*section(train_job, "spec"), *_NOT_OF_JOB_SETS}
    fields |= {f"spec.{key}": WrittenField(f"spec.{key}") for key in sorted(names)}
    trainer = section(train_job, "spec", "trainer")
    nodes = WrittenField("spec.trainer.numNodes") if "numNodes" in trainer else None
    if nodes is None and "numNodes" in section(spec, "mlPolicy"):
        nodes = WrittenField("spec.mlPolicy.numNodes", owner)
    for index, job in enumerate(_jobs(spec)):
        fields |= _written_patches(train_job, job, f"spec.replicatedJobs[{index}]")
        step = labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP)
        path = f"spec.replicatedJobs[{index}].template.spec"
        if step in _SINGLE[1:]:
            initializer = f"spec.initializer.{step.removesuffix('-initializer')}"
            for number, container in enumerate(_containers(job)):
                if not container.get("envFrom") and container.get("name") == step:
                    secret = f"{path}.template.spec.containers[{number}].envFrom[0].secretRef"
                    fields[secret] = WrittenField(f"{initializer}.secretRef")
        if step != "trainer":
            continue
        if nodes:
            fields |= dict.fromkeys((f"{path}.parallelism", f"{path}.completions"), nodes)
        for number, container in enumerate(_containers(job)):
            if container.get("name") != "node":
                continue
            made = f"{path}.template.spec.containers[{number}]"
            if not container.get("env"):
                fields[f"{made}.env"] = WrittenField("spec.trainer.env")
            processes = f"{made}.env[PET_NPROC_PER_NODE]"
            fields[processes] = WrittenField("spec.trainer.numProcPerNode")
            for field, key in _OF_TRAINER.items():
                if trainer.get(key) not in (None, {}):
                    fields[f"{made}.{field}"] = WrittenField(f"spec.trainer.{key}")
    return fields


def _written_patches(train_job: Manifest, job: Manifest, path: str) -> WrittenFields:
    """Return the fields of a Job of a JobSet that patches of the TrainJob set, with the patches."""
    fields: dict[str, WrittenField] = {}
    for index, patch in enumerate(mappings(section(train_job, "spec"), "runtimePatches")):
        for number, change in enumerate(_jobs(section(patch, "trainingRuntimeSpec"))):
            if change.get("name") == job.get("name"):
                spec = f"trainingRuntimeSpec.template.spec.replicatedJobs[{number}]"
                for key in section(change, "template", "spec", "template", "spec"):
                    below = f"template.spec.template.spec.{key}"
                    written = WrittenField(f"spec.runtimePatches[{index}].{spec}.{below}")
                    fields[f"{path}.{below}"] = written
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
    spec = section(train_job, "spec")
    reference = section(train_job, "spec", "runtimeRef")
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
    patches = [section(patch, "trainingRuntimeSpec") for patch in mappings(spec, "runtimePatches")]
    jobs: list[Manifest] = []
    for job in _jobs(section(runtime, "spec")):
        for patch in patches:
            for change in _jobs(patch):
                if change.get("name") == job.get("name"):
                    job = strategic_merge(job, without_nulls(change))
        jobs.append(_with_trainer(job, spec, section(runtime, "spec")))
    metadata = {**section(train_job, "metadata")}
    of_planning = {
        labels.MADE_FROM: "TrainJob",
        labels.WRITTEN_FIELDS: written_annotation(_written(train_job, runtime)),
    }
    if {"torch", "mpi"} & section(runtime, "spec", "mlPolicy").keys():
        # The processes of torchrun, and those of mpirun, wait for each other.
        of_planning[labels.GANG] = "true"
    # A JobSet has the annotations of the runtime's template. Those of a TrainJob are Kueue's.
    of_template = annotations_of(template)
    for patch in patches:
        of_template = {**of_template, **annotations_of(section(patch, "template"))}
    metadata["annotations"] = {**annotations_of(train_job), **of_template, **of_planning}
    body = {**section(template, "spec"), "replicatedJobs": jobs}
    return api_object("jobset.x-k8s.io/v1alpha2", "JobSet", metadata, spec=body)


def _not_followed(spec: Manifest) -> str:
    """Return what planning does not follow of a TrainJob's spec; "" if it follows it."""
    for key in ("runtimeRef", *spec):
        if UNKNOWN in (spec.get(key), *section(spec, "runtimeRef").values()):
            return f"spec.{key} is not known yet"
    if any(unknown_paths(spec.get("runtimePatches"))):
        return "spec.runtimePatches are not known yet"
    manager = spec.get("managedBy")
    return f"spec.managedBy: {manager} decides about it" if manager else ""


def _runtime_not_followed(runtime: Manifest) -> str:
    """Return what planning does not follow of a runtime's spec; "" if it follows it."""
    for policy in sorted(section(runtime, "mlPolicy").keys() - _FOLLOWED_POLICIES):
        return f"its runtime has an mlPolicy {policy}, which planning does not follow"
    if runtime.get("podGroupPolicy"):
        return "its runtime has a podGroupPolicy: another scheduler decides"
    return "" if _jobs(runtime) else "its runtime has no replicatedJobs"


def _jobs(spec: Manifest) -> list[Manifest]:
    """Return the Jobs in the spec of a runtime, or in a patch of it."""
    return mappings(section(spec, "template", "spec"), "replicatedJobs")


def _containers(job: Manifest) -> list[Manifest]:
    return items(section(job, "template", "spec", "template", "spec"), "containers")


def _with_trainer(job: Manifest, spec: Manifest, runtime: Manifest) -> Manifest:
    """Return a Job of a runtime with the fields that a TrainJob sets."""
    step = labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP)
    body = section(job, "template", "spec")
    pods = section(body, "template")
    trainer = section(spec, "trainer")
    policy = section(runtime, "mlPolicy")
    count: Any = body.get("parallelism", 1)
    nodes: Any = trainer.get("numNodes")
    if step == "trainer" and "mlPolicy" in runtime:
        count = policy.get("numNodes", 1)
    # An MPI runtime has its launcher in the step of the trainer, which may be one of the nodes.
    is_with_launcher = section(policy, "mpi").get("runLauncherAsNode") is True
    is_node = job.get("name") == "node" if "mpi" in policy else step == "trainer"
    if is_node and nodes is not None:
        count = max(nodes - 1, 1) if is_with_launcher and isinstance(nodes, int) else nodes
    changes: dict[str, Manifest] = {}
    if is_mapping(resources := trainer.get("resourcesPerNode")):
        # Trainer copies no claims (plugins/jobset/builder.go).
        copied = {key: resources[key] for key in ("limits", "requests") if resources.get(key)}
        trainer = {**trainer, "resourcesPerNode": copied}
    if step == "trainer" or (is_with_launcher and is_node):
        fields = _OF_TRAINER if step == "trainer" else {"resources": "resourcesPerNode"}
        # An empty image replaces that of the runtime, too: Trainer asks whether it is given.
        given = {key for key, value in trainer.items() if value not in (None, {})}
        changes["node"] = {field: trainer[key] for field, key in fields.items() if key in given}
        env = items(trainer, "env")
        if "torch" in policy and "trainer" in spec:
            env = [*env, *_of_torchrun(count, trainer.get("numProcPerNode", "auto"))]
        if env:
            changes["node"] = {**changes["node"], "env": env}
    if step in _SINGLE[1:]:
        initializer = section(spec, "initializer", step.removesuffix("-initializer"))
        changes[step] = {"env": initializer["env"]} if initializer.get("env") else {}
        if secret := initializer.get("secretRef"):
            changes[step] = {**changes[step], "envFrom": [{"secretRef": secret}]}
    if changes:
        containers = [_changed(container, changes) for container in _containers(job)]
        pods = {**pods, "spec": {**section(pods, "spec"), "containers": containers}}
    made = {**body, "template": pods, "parallelism": count, "completions": count}
    single = {"replicas": 1} if step in _SINGLE else {}
    return {**job, **single, "template": {**section(job, "template"), "spec": made}}


def _of_torchrun(nodes: Any, processes: Any) -> list[Manifest]:
    """Return the variables that are torchrun's sizes (plugins/torch/torch.go)."""
    sizes = {"PET_NNODES": nodes, "PET_NPROC_PER_NODE": processes}
    return [
        {"name": name, "value": str(size) if isinstance(size, int) else size}
        for name, size in sizes.items()
    ]


def _changed(container: Manifest, changes: Mapping[str, Manifest]) -> Manifest:
    """Return a container with the fields that a TrainJob sets, and its variables and Secrets."""
    change = changes.get(str(container.get("name")), {})
    lists: dict[str, list[Manifest]] = {}
    if variables := items(change, "env"):
        names = [variable.get("name") for variable in variables]
        kept = [item for item in items(container, "env") if item.get("name") not in names]
        lists["env"] = [*kept, *map(_copied, variables)]
    if secrets := items(change, "envFrom"):
        lists["envFrom"] = [*items(container, "envFrom"), *secrets]
    return {**container, **change, **lists}


def _copied(variable: Manifest) -> Manifest:
    """Return a variable as Trainer copies it (pkg/apply/apply.go EnvVar)."""
    if variable.get("valueFrom") is None:
        return variable
    source: dict[str, Any] = {}
    for key in _SOURCES & section(variable, "valueFrom").keys():
        reference = section(variable, "valueFrom", key)
        source[key] = {name: value for name, value in reference.items() if name != "apiVersion"}
    return {"name": variable.get("name"), "valueFrom": source}
