"""A search for hyperparameters as one Indexed Job, of which each index tries its own."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, NotRequired

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import check
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import overridden, without_none
from ml_foundations.workloads.awaited import AwaitedArgs, AwaitedSettings, AwaitedSpec, await_annotations, declare_job
from ml_foundations.workloads.gpu_claim import declare_claim_template
from ml_foundations.workloads.job import JobArgs, container_fields, hostname_errors, job_fields, object_metadata
from ml_foundations.workloads.naming import named_by_content
from ml_foundations.workloads.parameters import (
    VARIABLE,
    Parameter,
    ParameterArgs,
    Value,
    grid,
    grid_size,
    sample,
    text,
)
from ml_foundations.workloads.pod import app_labels
from ml_foundations.workloads.pod_template import pod_template

VOLUME = "sweep"
DIRECTORY = "/etc/sweep"
FILE_VARIABLE = "SWEEP_PARAMETERS"
MAX_TRIALS = 10_000
MAX_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB (Kubernetes, "ConfigMaps"), its metadata included."""
SCRIPT = f"""set -a
. {DIRECTORY}/$JOB_COMPLETION_INDEX.env
{FILE_VARIABLE}={DIRECTORY}/$JOB_COMPLETION_INDEX.json
set +a
exec "$@"
"""
"""A manifest cannot give an index variables of its own: a shell reads them, and becomes the user's command."""


class SweepArgs(AwaitedArgs, JobArgs):
    """Arguments of a Sweep."""

    parameters: dict[str, ParameterArgs]
    """The hyperparameters, by the names of their environment variables."""
    samples: NotRequired[int]
    """How many combinations to draw at random; by default all combinations of the values are tried."""
    seed: NotRequired[int]
    """What the random sample is made from: the same seed gives the same sample. Default 0."""
    parallelism: NotRequired[int]
    """Trials that run at once, and so the most GPUs in use, divided by gpus; default 1."""
    backoff_limit_per_index: NotRequired[int]
    """Failures of a trial that are retried; default 1."""
    max_failed_indexes: NotRequired[int]
    """Trials that may fail before the Sweep stops; by default all."""
    backoff_limit: NotRequired[int]
    """Failures of all trials together that are retried; by default each trial's count for itself."""
    sweep_name: NotRequired[str]
    """The Job's name; default is the component's."""


class SweepSettings(AwaitedSettings):
    """What a stack file says about a Sweep."""

    parameters: dict[str, Parameter] = Field(min_length=1)
    samples: int | None = Field(None, ge=1, le=MAX_TRIALS)
    seed: int = 0
    parallelism: int = Field(1, ge=0)
    backoff_limit_per_index: int = Field(1, ge=0)
    max_failed_indexes: int | None = Field(None, ge=0)

    @property
    @override
    def own_kinds(self) -> tuple[str, ...]:
        return ("Job", "ConfigMap")

    @property
    @override
    def own_paths(self) -> set[str]:
        return {DIRECTORY}

    @property
    @override
    def own_volumes(self) -> set[str]:
        return {VOLUME}

    @property
    @override
    def retries(self) -> int | None:
        """Failures count for each trial by itself, unless the user caps them all."""
        return self.backoff_limit

    @property
    @override
    def may_hang(self) -> str | None:
        return super().may_hang or "backoff_limit_per_index"

    @property
    def trial_count(self) -> int:
        """How many combinations are tried."""
        return grid_size(self.parameters) if self.samples is None else self.samples

    @property
    def trials(self) -> list[dict[str, Value]]:
        """The parameters of each index."""
        if self.samples is None:
            return grid(self.parameters)
        return sample(self.parameters, self.samples, self.seed)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if not self.command:
            yield "command", "is required: a shell of the image puts the parameters into its environment"
        if self.restart_policy != "Never":
            yield "restart_policy", "failures count for each trial, which takes Never"
        for name, parameter in self.parameters.items():
            if not VARIABLE.fullmatch(name):
                yield f"parameters.{name}", "is no name of an environment variable: letters, digits and _"
            if parameter.values is None and self.samples is None:
                yield f"parameters.{name}", "is a range, of which a grid has no end: give samples, or values"
        if self.trial_count > MAX_TRIALS:
            yield "parameters", f"make {self.trial_count} combinations, and {MAX_TRIALS} are allowed; give samples"
        elif (size := sum(map(len, _files(self).values()))) > MAX_BYTES:
            yield "parameters", f"take {size} bytes, and a ConfigMap holds {MAX_BYTES}; try fewer combinations"
        if self.max_failed_indexes is not None and self.max_failed_indexes > self.trial_count:
            yield "max_failed_indexes", f"is {self.max_failed_indexes}, and there are {self.trial_count} trials"


class _SweepSpec(SweepSettings, AwaitedSpec):
    sweep_name: Name

    @property
    def workload_name(self) -> str:
        return self.sweep_name

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        yield from hostname_errors("sweep_name", self.sweep_name, self.trial_count)


class Sweep(pulumi.ComponentResource):
    """Trials of hyperparameters: a grid, or a random sample that a seed repeats.

    Each trial finds its parameters in the environment of its command, which a shell of the image (/bin/sh) starts, and
    in the JSON file that SWEEP_PARAMETERS names. Another choice of parameters ends the Sweep and starts a new one.
    Give it a kubernetes provider in its options.
    """

    sweep_name: str
    """The Job's name."""
    namespace: str
    """Its namespace."""
    trials: int
    """How many combinations are tried."""

    def __init__(self, name: str, args: SweepArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the parameters and the Job."""
        spec = check(_SweepSpec, f"Sweep {name}", {"sweep_name": name, **args})
        super().__init__("ml-foundations:index:Sweep", name, {}, opts)
        parameters = k8s.core.v1.ConfigMap(
            f"{name}-parameters", **arguments(config_map_manifest(spec)), opts=child_options(self)
        )
        after = [parameters, *declare_claim_template(self, name, spec)]
        declare_job(self, name, spec, job_manifest(spec), after)
        self.sweep_name = spec.workload_name
        self.namespace = spec.namespace
        self.trials = spec.trial_count
        self.register_outputs({"sweep_name": self.sweep_name, "namespace": self.namespace, "trials": self.trials})


def config_map_manifest(spec: _SweepSpec) -> dict[str, Any]:
    """The parameters: two files an index. The name tells the content, so that other parameters make another Job."""
    files = _files(spec)
    manifest = overridden(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": spec.namespace, "labels": app_labels(spec)},
            "data": files,
        },
        spec.overrides,
    )
    manifest["metadata"]["name"] = named_by_content(f"{spec.workload_name}-parameters", manifest["data"])
    return manifest


def job_manifest(spec: _SweepSpec) -> dict[str, Any]:
    """The Indexed Job."""
    fields = {
        "completionMode": "Indexed",
        "completions": spec.trial_count,
        "parallelism": spec.parallelism,
        "backoffLimitPerIndex": spec.backoff_limit_per_index,
        "maxFailedIndexes": spec.max_failed_indexes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": object_metadata(spec, await_annotations(spec)),
        "spec": without_none({**fields, **job_fields(spec), "template": _template(spec)}),
    }


def _template(spec: _SweepSpec) -> dict[str, Any]:
    started = {"command": ["/bin/sh", "-c", SCRIPT, "sweep", *(spec.command or [])]}
    template = pod_template(spec, spec.restart_policy, container_fields(spec) | started)
    pod = template["spec"]
    name = config_map_manifest(spec)["metadata"]["name"]
    pod["volumes"] = [*pod.get("volumes", []), {"name": VOLUME, "configMap": {"name": name}}]
    container = next(item for item in pod["containers"] if item["name"] == spec.container_name)
    mount = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    container["volumeMounts"] = [*container.get("volumeMounts", []), mount]
    return template


def _files(spec: SweepSettings) -> dict[str, str]:
    """Of each index: a file that a shell reads, and the same as JSON."""
    files: dict[str, str] = {}
    for index, trial in enumerate(spec.trials):
        lines = (f"{name}={shlex.quote(text(value))}\n" for name, value in trial.items())
        files[f"{index}.env"] = "".join(lines)
        files[f"{index}.json"] = json.dumps(trial)
    return files
