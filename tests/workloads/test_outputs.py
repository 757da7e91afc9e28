"""Values of other resources go into workloads as Outputs, and secrets among them stay secret."""

import json
import re
from collections.abc import Callable
from typing import Any

import ml_foundations
import pulumi
import pytest
from ml_foundations.rehearsal.protocol.values import SECRET_SIGNATURE, SIGNATURE

from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal
from tests.workloads import building

SPECS = {
    "Task": {"task_name": "check"},
    "TrainingJob": {"job_name": "train"},
    "DistributedTraining": {"job_name": "gang", "nodes": 2},
    "Sweep": {"sweep_name": "search", "parameters": {"LR": {"values": [0.1, 0.01]}}},
    "ScheduledTraining": {"cron_name": "nightly", "schedule": "0 3 * * *"},
    "InferenceService": {"service_name": "chat"},
    "ShardedSet": {"set_name": "parts", "shards": 2},
}


def outputs_everywhere(output: Callable[[str], Any]) -> dict[str, Any]:
    """Arguments that are Outputs wherever they may be."""
    return {
        "namespace": output("namespace"),
        "queue": output("queue"),
        "queue_priority": output("rank"),
        "image": output("image"),
        "command": ["run", output("command")],
        "arguments": [output("argument")],
        "env": {"PLAIN": output("value")},
        "secret_env": {"KEY": {"name": output("secret"), "key": "k"}},
        "config_env": {"SETTING": {"name": output("map"), "key": "k"}},
        "env_from": [{"secret": output("all-secrets")}, {"config_map": output("all-settings")}],
        "mounts": [
            {"secret": output("mounted"), "path": "/secret"},
            {"config_map": output("settings"), "path": "/settings"},
            {"bucket": output("bucket"), "path": "/bucket"},
            {"image": output("artifact"), "path": "/model"},
        ],
        "service_account": output("account"),
        "priority_class": output("priority"),
        "image_pull_secrets": [output("registry")],
        "labels": {"label": output("label")},
        "object_labels": {"object-label": output("object-label")},
        "annotations": {"note": output("annotation")},
    }


WORDS = [
    *("namespace", "queue", "rank"),
    *("image", "command", "argument", "value", "secret", "map", "all-secrets", "all-settings"),
    *("mounted", "settings", "bucket", "artifact", "account", "priority", "registry"),
    *("label", "object-label", "annotation"),
]


@pytest.mark.parametrize("component", SPECS)
def test_outputs_go_into_every_workload(component: str) -> None:
    def program() -> None:
        arguments = outputs_everywhere(lambda text: pulumi.Output.from_input(f"{text}-of-another"))
        getattr(ml_foundations, component)("w", {**SPECS[component], **arguments})

    text = json.dumps([inputs(request) for request in declared(program).values()])
    assert [word for word in WORDS if f'"{word}-of-another"' not in text] == []


def test_outputs_go_into_what_only_servers_have() -> None:
    def program() -> None:
        caller, note, label = (pulumi.Output.from_input(f"{word}-of-another") for word in words)
        volume = {"name": "d", "size": "1Gi", "storage_class": "s", "path": "/d"}
        args: Any = SPECS["ShardedSet"] | building.WORKLOAD | {"callers": [caller]}
        args |= {"services": [{"name": "more", "annotations": {"n": note}}]}
        args |= {"volumes": [volume | {"labels": {"l": label}}]}
        ml_foundations.ShardedSet("w", args)

    words = ("caller", "note", "label")
    text = json.dumps([inputs(request) for request in declared(program).values()])
    assert [word for word in words if f'"{word}-of-another"' not in text] == []


def test_a_secret_stays_secret() -> None:
    def program() -> None:
        env = {"TOKEN": pulumi.Output.secret("hunter2")}
        ml_foundations.Task("w", building.WORKLOAD | {"env": env})

    pod = inputs(declared(program)["w-pod"])["spec"]
    values = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert values["TOKEN"][SIGNATURE] == SECRET_SIGNATURE


def test_plain_values_are_checked_as_before() -> None:
    message = refusal(building.task_spec, image="", env={"A": [1]}, labels={"l": 2})
    assert re.search(r"image: .*\n.*env\.A: .*\n.*labels\.l: ", message)
