"""A hyperparameter search as one Indexed Job: each index tries its own combination."""

import json
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import named_by_content
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import SweepComponent
from ml_foundations.workloads.files import MAX_CONFIG_MAP_BYTES, config_map_bytes
from ml_foundations.workloads.job import AwaitedSpec
from ml_foundations.workloads.parameters import (
    VARIABLE,
    Parameter,
    Value,
    grid,
    grid_size,
    sample,
    text,
)

_DIRECTORY = "/etc/sweep"
_VOLUME = "sweep"
_MAX_TRIALS = 10_000
_SCRIPT = f"""set -a
. {_DIRECTORY}/$JOB_COMPLETION_INDEX.env
SWEEP_PARAMETERS={_DIRECTORY}/$JOB_COMPLETION_INDEX.json
set +a
exec "$@"
"""
"""A manifest cannot give an index separate variables: a shell reads them, and becomes the user's
command."""


class SweepSpec(AwaitedSpec):
    """Arguments of a Sweep."""

    name_field = "sweep_name"

    parameters: dict[str, Parameter] = Field(min_length=1)
    """The hyperparameters, by the names of their environment variables."""
    samples: int | None = Field(None, ge=1, le=_MAX_TRIALS)
    """The number of random combinations to try. By default, all combinations of the values are
    tried."""
    seed: int = 0
    """The seed of the random sample. The same seed makes the same sample. The default is 0."""
    parallelism: int = Field(1, ge=0)
    """Trials that run at once, each with gpus GPUs. The default is 1."""
    backoff_limit_per_index: int = Field(1, ge=0)
    """Failures of a trial that are retried. The default is 1."""
    max_failed_indexes: int | None = Field(None, ge=0)
    """Trials that may fail before the Sweep stops. By default, all."""
    backoff_limit: int | None = Field(None, ge=0)
    """Failures of all trials together that are retried. By default, only the failures of each trial
    are limited."""
    sweep_name: Name
    """The Job's name. By default, the name of the component."""

    @property
    @override
    def own_mounts(self) -> list[dict[str, Any]]:
        return [*super().own_mounts, {"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True}]

    @property
    @override
    def own_volumes(self) -> list[dict[str, Any]]:
        name = _config_map(self)["metadata"]["name"]
        return [*super().own_volumes, {"name": _VOLUME, "configMap": {"name": name}}]

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
    def trials(self) -> int:
        """The number of combinations that are tried."""
        return grid_size(self.parameters) if self.samples is None else self.samples

    @property
    def combinations(self) -> list[dict[str, Value]]:
        """The parameters of each index."""
        if self.samples is None:
            return list(islice(grid(self.parameters), _MAX_TRIALS))
        return sample(self.parameters, self.samples, self.seed)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.max_failed_indexes is not None and self.max_failed_indexes > self.trials:
            reason = f"is {self.max_failed_indexes}, and there are {self.trials} trials"
            yield "max_failed_indexes", reason
        if self.restart_policy != "Never":
            yield "restart_policy", "failures count for each trial, which requires Never"
        if not self.command:
            reason = "is required: a shell of the image adds the parameters to its environment"
            yield "command", reason
        for name, parameter in self.parameters.items():
            if not VARIABLE.fullmatch(name):
                reason = "is not a name of an environment variable: letters, digits and _"
                yield f"parameters.{name}", reason
            if parameter.values is None and self.samples is None:
                reason = "is a range, but a grid needs values; set samples, or values"
                yield f"parameters.{name}", reason
        if self.trials > _MAX_TRIALS:
            reason = f"make {self.trials} combinations, and {_MAX_TRIALS} are allowed; set samples"
            yield "parameters", reason
        elif (size := config_map_bytes(_files(self))) > MAX_CONFIG_MAP_BYTES:
            limit = f"a ConfigMap holds {MAX_CONFIG_MAP_BYTES}"
            reason = f"have {size} bytes, but {limit}; try fewer combinations"
            yield "parameters", reason
        yield from self.hostname_errors(f"-{self.trials - 1}")

    @override
    def workload_children(self, depends_on: list[str]) -> Iterator[ChildResource]:
        yield ChildResource("parameters", _config_map(self))
        indexes = {
            "completionMode": "Indexed",
            "completions": self.trials,
            "parallelism": self.parallelism,
            "backoffLimitPerIndex": self.backoff_limit_per_index,
            "maxFailedIndexes": self.max_failed_indexes,
        }
        command = ["/bin/sh", "-c", _SCRIPT, "sweep", *(self.command or [])]
        body = self.job_body(indexes, self.template(container={"command": command}))
        yield self.job_child(body, ["parameters", *depends_on])


class Sweep(SweepComponent[SweepSpec]):
    """Trials of hyperparameters: a grid, or a random sample that a seed repeats.

    A shell of the image (/bin/sh) starts the command of each trial, with its parameters as
    environment variables. The parameters are also in a JSON file, whose path is in
    SWEEP_PARAMETERS. A change of the parameters ends the Sweep and starts a new one.
    """

    sweep_name: KnownOutput[str]
    """The Job's name."""
    namespace: pulumi.Output[str]
    """Its namespace."""
    trials: KnownOutput[int]
    """The number of trials."""
    job = Child("job")
    """The Job."""


def _config_map(spec: SweepSpec) -> dict[str, Any]:
    """Return the parameters, two files for each index."""
    manifest = api_object("v1", "ConfigMap", spec.unnamed_metadata, data=_files(spec))
    # The name follows from the content, so other parameters make another Job.
    return named_by_content(manifest, f"{spec.workload_name}-parameters", "data", spec.overrides)


def _files(spec: SweepSpec) -> dict[str, str]:
    """Return two files for each index: variables for a shell, and the same as JSON."""
    files: dict[str, str] = {}
    for index, trial in enumerate(spec.combinations):
        lines = (f"{name}={shlex.quote(text(value))}\n" for name, value in trial.items())
        files[f"{index}.env"] = "".join(lines)
        files[f"{index}.json"] = json.dumps(trial)
    return files
