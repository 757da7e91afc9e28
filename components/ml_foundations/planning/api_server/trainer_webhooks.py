"""What the webhooks of Kubeflow Trainer refuse about TrainJobs and their runtimes.

Follows pkg/webhooks and pkg/runtime/framework/plugins of trainer v2.2.1, without what is about
changes of a TrainJob, and Volcano.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.catalog.versions import TRAINER_API
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    labels_of,
    mappings,
    name_of,
    section,
    text_of,
    texts,
)
from ml_foundations.kubernetes.text_formats import DOMAIN_PATH
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.kubernetes.words import shown
from ml_foundations.planning.api_server import constraints, definitions
from ml_foundations.planning.input.field_catalog import Note
from ml_foundations.planning.model import workloads

RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_GROUPS = (TRAINER_API.partition("/")[0],)
_NODE = "node"
_INITIALIZERS = {"dataset": "dataset-initializer", "model": "model-initializer"}
"""The Jobs and containers of a runtime, by the field of a TrainJob that needs them."""
_CONTAINERS = {"trainer": _NODE, **{name: name for name in _INITIALIZERS.values()}}
"""The container of the Jobs of each step (trainingruntime_webhook.go)."""
_JOBS = "spec.template.spec.replicatedJobs"
_RESERVED: Mapping[str, frozenset[str]] = {
    "torch": frozenset(
        f"PET_{name}"
        for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    ),
    "xgboost": frozenset(
        f"DMLC_{name}" for name in ("TRACKER_URI", "TRACKER_PORT", "TASK_ID", "NUM_WORKER")
    ),
}
"""The variables that Trainer sets itself, by policy (pkg/constants/constants.go)."""
_LABELS = constraints.parse("labels")
_TORCHTUNE = ["tune", "run"]
_SEVERAL_NODES = "llama3.3-70b"
_MODELS = ("llama3.2-1b", "llama3.2-3b", _SEVERAL_NODES, "qwen2.5-1.5b")
"""The models that TorchTune knows, at the end of a runtime's name (pkg/constants/constants.go)."""
_QUANTIZED = "model.quantize_base"
"""The argument for QLoRA."""
_NOT_QUANTIZED = "qwen2.5-1.5b"
_ON_ONE_GPU = ("llama3.2-1b", "llama3.2-3b")


def of_runtime(runtime: Manifest) -> Iterator[Note]:
    """Yield what is refused about a runtime (trainingruntime_webhook.go validateReplicatedJobs)."""
    for index, job in enumerate(_jobs(runtime)):
        path = f"{_JOBS}[{index}]"
        name = _CONTAINERS.get(str(labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP)))
        if name is None:
            continue
        if job.get("replicas", 1) != 1:
            yield Note(f"{path}.replicas", f"must be 1, not {job['replicas']}")
        if name not in _containers(job, "containers") and not any(unknown_paths(job)):
            path = f"{path}.template.spec.template.spec.containers"
            yield Note(path, f"must have a container with the name {name}")


def of_train_job(train_job: Manifest, runtime: Manifest | None) -> Iterator[Note]:
    """Yield what is refused about a TrainJob with its runtime, which may not be shown."""
    if workloads.is_stored(train_job):
        return
    yield from definitions.violations(train_job)
    reference = section(train_job, "spec", "runtimeRef")
    for field, served in (("kind", RUNTIMES), ("apiGroup", _GROUPS)):
        value = reference.get(field)
        if value not in (None, UNKNOWN, *served):
            problem = f"must be {' or '.join(served)}, not {shown(value)}"
            yield Note(f"spec.runtimeRef.{field}", problem)
    if runtime is None:
        return
    is_new = not workloads.is_stored(runtime)
    notes = (*definitions.violations(runtime), *of_runtime(runtime)) if is_new else ()
    if any(note.is_error for note in notes):
        refused = f"the API server refuses {runtime['kind']} {name_of(runtime)}"
        yield Note("spec.runtimeRef", f"must name a runtime that exists: {refused}")
    yield from _of_policy(train_job, runtime)
    yield from _of_initializers(train_job, runtime)
    yield from _of_patches(train_job, runtime)


def _of_policy(train_job: Manifest, runtime: Manifest) -> Iterator[Note]:
    trainer = section(train_job, "spec", "trainer")
    policy = section(runtime, "spec", "mlPolicy")
    for name, reserved in _RESERVED.items():
        for index, variable in enumerate(mappings(trainer, "env") if name in policy else ()):
            if text_of(variable, "name") in reserved:
                problem = f"must not be {variable['name']}, which Trainer sets itself"
                yield Note(f"spec.trainer.env[{index}].name", problem)
    several = isinstance(nodes := trainer.get("numNodes", 1), int) and nodes > 1
    has_both = {"launcher", _NODE} <= _jobs_by_name(runtime).keys()
    if several and section(policy, "mpi").get("runLauncherAsNode") and not has_both:
        problem = "must be 1 for an MPI runtime without the Jobs launcher and node"
        yield Note("spec.trainer.numNodes", problem)
    if "torch" in policy and trainer.get("command") == _TORCHTUNE:
        yield from _of_torchtune(name_of(runtime), several=several)
        arguments = " ".join(texts(trainer, "args"))
        if nodes == 1 and _QUANTIZED in arguments and "model.use_dora" not in arguments:
            yield from _of_quantized(trainer, runtime)
    for job in _jobs(runtime) if "flux" in policy else ():
        if job.get("name") == _NODE and "flux-installer" in _containers(job, "initContainers"):
            yield Note("spec.runtimeRef", "must name a runtime without a container flux-installer")


def _of_torchtune(runtime: str, *, several: bool) -> Iterator[Note]:
    """Yield what TorchTune does not do with the model of a runtime (torchtune.go)."""
    model = runtime.partition("-")[2].lower()
    if model not in _MODELS:
        problem = f"must end with a model of TorchTune: {', '.join(_MODELS)}"
        yield Note("spec.runtimeRef.name", problem)
    elif several and model != _SEVERAL_NODES:
        yield Note("spec.trainer.numNodes", f"must be 1 for {model} with TorchTune")


def _of_quantized(trainer: Manifest, runtime: Manifest) -> Iterator[Note]:
    """Yield what TorchTune does not do with QLoRA on one node (torchtune.go)."""
    model = name_of(runtime).partition("-")[2].lower()
    if model == _NOT_QUANTIZED:
        problem = f"must not be of {model} with {_QUANTIZED} in spec.trainer.args"
        yield Note("spec.runtimeRef.name", problem)
    resources = section(trainer, "resourcesPerNode")
    for job in _jobs(runtime) if trainer.get("resourcesPerNode") is None else ():
        step = labels_of(section(job, "template")).get(labels.TRAIN_JOB_STEP)
        for container in mappings(_pods(job), "containers"):
            if (job.get("name") == _NODE or step == "trainer") and container.get("name") == _NODE:
                resources = resources or section(container, "resources")
    amounts = {**section(resources, "limits"), **section(resources, "requests")}
    gpus = [amount for name, amount in amounts.items() if "gpu" in name.lower()]
    is_single = trainer.get("numProcPerNode") == 1 or str(next(iter(gpus), 0)) == "1"
    if model in _ON_ONE_GPU and not is_single and not any(unknown_paths(resources)):
        problem = f"must be 1, or resourcesPerNode one GPU, for {model} with {_QUANTIZED}"
        yield Note("spec.trainer.numProcPerNode", problem)


def _of_initializers(train_job: Manifest, runtime: Manifest) -> Iterator[Note]:
    """Yield initializers without their Job in the runtime (plugins/jobset/jobset.go Validate)."""
    jobs = _jobs_by_name(runtime)
    for field, name in _INITIALIZERS.items():
        if section(train_job, "spec", "initializer").get(field) is None:
            continue
        job = jobs.get(name, {})
        if name not in (*_containers(job, "initContainers"), *_containers(job, "containers")):
            needed = f"must have the Job {name} with a container of that name in the runtime"
            yield Note(f"spec.initializer.{field}", needed)


def _of_patches(train_job: Manifest, runtime: Manifest) -> Iterator[Note]:
    """Yield patches of what the runtime lacks (plugins/jobset/jobset.go Validate)."""
    jobs = _jobs_by_name(runtime)
    for index, patch in enumerate(mappings(section(train_job, "spec"), "runtimePatches")):
        path = f"spec.runtimePatches[{index}]"
        manager = patch.get("manager")
        if manager is not UNKNOWN and not DOMAIN_PATH.matches(str(manager)):
            yield Note(f"{path}.manager", "must be a name with a domain, such as example.com/me")
        # Trainer gives them to the JobSet, which the API server then refuses.
        of_job_set = section(patch, "trainingRuntimeSpec", "template", "metadata").get("labels")
        if not _LABELS.is_met(of_job_set or {}):
            field = f"{path}.trainingRuntimeSpec.template.metadata.labels"
            yield Note(field, f"must {_LABELS.requirement}")
        spec = section(patch, "trainingRuntimeSpec", "template", "spec")
        for job in mappings(spec, "replicatedJobs"):
            name = text_of(job, "name")
            if name not in jobs:
                yield Note(path, f"must not patch the Job {name}, which is not there")
                continue
            # Trainer merges the patch first. A container that the runtime lacks has no image then.
            for container in mappings(_pods(job), "containers"):
                named = container.get("name")
                if container.get("env") and named in _CONTAINERS.values():
                    problem = f"must not set env of the container {named}; set spec.trainer.env"
                    yield Note(path, problem)


def _jobs(runtime: Manifest) -> list[Manifest]:
    return mappings(section(runtime, "spec", "template", "spec"), "replicatedJobs")


def _jobs_by_name(runtime: Manifest) -> dict[str, Manifest]:
    return {text_of(job, "name"): job for job in _jobs(runtime)}


def _containers(job: Manifest, key: str) -> list[Any]:
    return [container.get("name") for container in mappings(_pods(job), key)]


def _pods(job: Manifest) -> Manifest:
    return section(job, "template", "spec", "template", "spec")
