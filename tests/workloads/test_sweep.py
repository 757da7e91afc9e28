"""Sweep: grids and samples, and the parameters of each index."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ml_foundations import Sweep
from ml_foundations.workloads.parameters import Parameter, sample

from tests.support.declaring import declared
from tests.workloads.building import WORKLOAD, container_of, pod_of, searched, sweep_spec


def test_a_grid_is_every_combination() -> None:
    rates, names = [0.1, 0.01], ["adam", "sgd"]
    spec = sweep_spec(parameters={"LR": {"values": rates}, "OPT": {"values": names}})
    assert spec.combinations == [{"LR": rate, "OPT": name} for rate in rates for name in names]


RANGES = {
    "LR": Parameter.model_validate({"low": 1e-5, "high": 1e-1, "scale": "log"}),
    "DROPOUT": Parameter.model_validate({"low": 0, "high": 0.5}),
    "LAYERS": Parameter.model_validate({"low": 2, "high": 5, "integer": True}),
    "HEADS": Parameter.model_validate({"low": 1, "high": 64, "integer": True, "scale": "log"}),
    "OPT": Parameter.model_validate({"values": ["adam", "sgd"]}),
}


def test_a_seed_repeats_its_sample_and_extends_it() -> None:
    assert sample(RANGES, 20, 7) == sample(RANGES, 50, 7)[:20]
    assert sample(RANGES, 20, 7) != sample(RANGES, 20, 8)


def test_the_sample_of_a_seed_is_the_same_on_every_machine() -> None:
    first = sample(RANGES, 1, 0)[0]
    assert first == {
        "LR": pytest.approx(0.0238609, rel=1e-4),
        "DROPOUT": pytest.approx(0.378977, rel=1e-4),
        "LAYERS": 3,
        "HEADS": 3,
        "OPT": "sgd",
    }


def test_a_sample_keeps_to_its_ranges_types_and_scale() -> None:
    trials = sample(RANGES, 4000, 1)
    rates = [float(trial["LR"]) for trial in trials]
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    # Half of a log scale from 1e-5 to 1e-1 is below 1e-3.
    assert 0.45 < sum(rate < 1e-3 for rate in rates) / len(rates) < 0.55
    layers = [trial["LAYERS"] for trial in trials]
    assert {type(number) for number in layers} == {int}
    # The ends of a range of whole numbers are as likely as what is between them.
    assert all(0.2 < layers.count(number) / len(layers) < 0.3 for number in (2, 3, 4, 5))
    assert {1, 64} <= {trial["HEADS"] for trial in trials} <= set(range(1, 65))
    assert {trial["OPT"] for trial in trials} == {"adam", "sgd"}


def test_whole_numbers_are_the_same_in_every_language() -> None:
    """The engine carries all numbers as floats."""
    parameters = {"BATCH": {"values": [16.0, 32.0]}, "LR": {"values": [0.5, True, "a"]}}
    assert [each["BATCH"] for each in sweep_spec(parameters=parameters).combinations[:1]] == [16]
    whole, real = ({"BATCH": {"values": [number]}} for number in (16, 16.0))
    assert searched(parameters=real) == searched(parameters=whole)


def test_each_index_gets_its_own_parameters(tmp_path: Path) -> None:
    """The container's own command is run, with the files where the volume would have them."""
    parameters = {
        "LR": {"values": [0.1, 1e-05]},
        "NOTE": {"values": ['it\'s $HOME; "quoted"']},
        "AMP": {"values": [True]},
    }
    config_map, job = searched(
        parameters=parameters,
        command=["sh", "-c", 'echo "$LR|$NOTE|$AMP"; cat "$SWEEP_PARAMETERS"'],
    )
    for name, content in config_map["data"].items():
        (tmp_path / name).write_text(content)
    command = [part.replace("/etc/sweep", str(tmp_path)) for part in container_of(job)["command"]]
    for index, rate in enumerate(("0.1", "1e-05")):
        environment = os.environ | {"JOB_COMPLETION_INDEX": str(index)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        shown, _, file = done.stdout.partition("\n")
        assert shown == f'{rate}|it\'s $HOME; "quoted"|true'
        assert json.loads(file) == {"LR": float(rate), "NOTE": 'it\'s $HOME; "quoted"', "AMP": True}


def test_the_job_mounts_the_parameters_that_it_is_made_of() -> None:
    config_map, job = searched(parallelism=2)
    name = config_map["metadata"]["name"]
    assert pod_of(job)["volumes"][-1] == {"name": "sweep", "configMap": {"name": name}}
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 2)
    assert searched(image="other")[0]["metadata"]["name"] == name
    assert searched(parameters={"LR": {"values": [0.1, 0.2]}})[0]["metadata"]["name"] != name


@pytest.mark.parametrize(
    ("args", "counted"),
    [
        ({}, {"backoffLimitPerIndex": 1}),
        (
            {"backoff_limit_per_index": 0, "max_failed_indexes": 1},
            {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1},
        ),
        ({"backoff_limit": 4}, {"backoffLimitPerIndex": 1, "backoffLimit": 4}),
    ],
)
def test_failures_are_counted_for_each_trial(args: dict[str, Any], counted: dict[str, int]) -> None:
    spec = searched(**args)[1]["spec"]
    fields = ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")
    assert {field: spec[field] for field in fields if field in spec} == counted


def test_the_parameters_are_there_before_the_job() -> None:
    args: Any = WORKLOAD | {"command": ["c"], "parameters": {"A": {"values": [1]}}}
    requests = declared(lambda: Sweep("x", args))
    assert any(urn.endswith("::x-parameters") for urn in requests["x-job"].dependencies)
