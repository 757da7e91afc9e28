"""Training that cannot work is refused, all at once, with the field and the way out."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from tests.support.refusing import Refused, refusal, refused
from tests.workloads.building import cron_spec, gang_spec, job_spec, sweep_spec, task_spec

GPU_CONTAINER = {"name": "probe", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}

LAYERS = [
    {"level": "block", "size": 8},
    {"level": "sub-block", "size": 3},
    {"level": "block", "size": 3},
    {"level": "host", "size": 1},
]

Spec = Callable[..., Any]
WRONG: dict[Spec, list[Refused]] = {
    job_spec: [
        refused(
            "\n  queue_priority: ranks a workload in its queue, but there is no",
            queue_priority="high",
        ),
        refused(
            "\n  topology: is read by Kueue, but there is no queue; set queue, or leave it out",
            topology="required:block",
        ),
        refused(
            '\n  topology: there is no level "". Set block, sub-block, host, hostname or the key of',
            queue="q",
            topology="required",
        ),
        refused(
            "\n  topology: is best:block; set it to required:LEVEL, preferred:LEVEL or unconstrained",
            queue="q",
            topology="best:block",
        ),
        refused(
            '\n  topology: there is no level "subblock". Did you mean sub-block?',
            queue="q",
            topology="preferred:subblock",
        ),
        refused(
            "\n  topology_slices[2].size: input should be greater than or equal to 1",
            queue="q",
            topology_slices=[*LAYERS[:2], {"level": "block", "size": 0}, LAYERS[3]],
        ),
        refused(
            "\n  topology_slices: has 4 layers; Kueue accepts 3",
            "\n  topology_slices[1].size: is 3, and must divide the size of the layer before (8)",
            "\n  topology_slices[2].level: block is taken",
            queue="q",
            topology_slices=LAYERS,
        ),
        refused("\n  gpus: is 0, but there is a gpu_claim", gpu_claim={}),
        refused("\n  method: needs model; set model, or leave it out", method="full"),
        refused("\n  sharding: needs method; set method, or leave it out", sharding="zero3"),
        refused("\n  model:", model="/models/mine"),
        refused(
            "1 invalid argument:",
            "\n  gpus: is 0, but there is a gpu_claim",
            gpu="L4",
            gpu_claim={},
            side_containers=[GPU_CONTAINER],
        ),
        refused(
            "\n  gpu_claim.template: already selects",
            gpus=1,
            gpu_claim={"template": "t", "device_class": "gpu.nvidia.com"},
        ),
        refused(
            "\n  gpu_claim.template: already selects",
            gpus=1,
            gpu_claim={"template": "t", "selectors": ["x"]},
        ),
        refused(
            "\n  requests.nvidia.com/gpu: is set by gpus alone", requests={"nvidia.com/gpu": "1"}
        ),
        refused("\n  requests.cpu: is set by cpu alone", requests={"cpu": "1"}),
        refused("\n  requests.memory: is set by memory alone", requests={"memory": "1Gi"}),
        refused("\n  limits.memory: is 1Gi, below the request (64Gi)", limits={"memory": "1Gi"}),
        refused(
            "\n  mounts[0].path: has no source; set exactly one of claim, secret",
            mounts=[{"path": "/a"}],
        ),
        refused("has claim and bucket", mounts=[{"path": "/a", "claim": "a", "bucket": "bbb"}]),
        refused(
            "\n  mounts[0].name: is required with volume",
            mounts=[{"path": "/a", "volume": {"emptyDir": {}}}],
        ),
        refused(
            "mount_options: are for a bucket",
            mounts=[{"path": "/a", "claim": "a", "mount_options": "x"}],
        ),
        refused(
            "\n  mounts[0].attributes: are for a bucket",
            mounts=[{"path": "/a", "claim": "a", "attributes": {"fileCacheCapacity": "1Gi"}}],
        ),
        refused(
            "\n  mounts[1].name: two volumes are called a",
            mounts=[{"path": "/a", "claim": "a"}, {"path": "/b", "secret": "a"}],
        ),
        refused("\n  env_from[0].secret: set either secret or config_map", env_from=[{}]),
        refused(
            "\n  env_from[0].secret: set either secret or config_map",
            env_from=[{"secret": "a", "config_map": pulumi.Output.from_input("b")}],
        ),
        refused(
            '\n  tolerations[0].value: is "ml", but the operator Exists accepts no value',
            tolerations=[{"key": "team", "operator": "Exists", "value": "ml"}],
        ),
        refused(
            "\n  overrides.Deployment: is not a kind that is created",
            "Set one of Job",
            overrides={"Deployment": {}},
        ),
        refused("\n  backoff_limit_per_index: requires indexed: true", backoff_limit_per_index=1),
        refused("\n  success_rules: requires indexed: true", success_rules=[{"succeededCount": 1}]),
        refused("\n  max_failed_indexes: requires backoff_limit_per_index", max_failed_indexes=1),
        refused(
            "\n  max_failed_indexes: is 2, above completions (1)",
            indexed=True,
            backoff_limit_per_index=1,
            max_failed_indexes=2,
        ),
        refused(
            "2 invalid arguments",
            "\n  fail_on_exit_codes: requires restart_policy Never",
            "\n  backoff_limit_per_index: requires restart",
            restart_policy="OnFailure",
            fail_on_exit_codes=[1],
            indexed=True,
            backoff_limit_per_index=1,
        ),
        refused(
            "\n  pod_failure_rules: requires restart_policy Never, not OnFailure",
            "\n  ignore_disruptions: requires restart_policy Never, not OnFailure",
            restart_policy="OnFailure",
            pod_failure_rules=[{"action": "Ignore"}],
            ignore_disruptions=True,
        ),
        refused(
            "\n  fail_on_exit_codes: [0] are not exit codes of a failure", fail_on_exit_codes=[0, 3]
        ),
        refused(
            "\n  grace_seconds: is 600; the whole Job may run 600",
            grace_seconds=600,
            active_deadline_seconds=600,
        ),
        refused(
            "\n  wait_for_completion: a queued Job starts when", wait_for_completion=True, queue="q"
        ),
        refused(
            "\n  ttl_seconds_after_finished: a Job that is waited for must not delete itself",
            wait_for_completion=True,
            ttl_seconds_after_finished=0,
        ),
        refused(
            "\n  active_deadline_seconds: is required, because Pulumi does not see failures by fail_on_exit_codes",
            wait_for_completion=True,
            fail_on_exit_codes=[1],
        ),
        refused(
            "\n  active_deadline_seconds: is required, because Pulumi does not see failures by backoff_limit_per_index",
            wait_for_completion=True,
            indexed=True,
            backoff_limit_per_index=0,
        ),
        refused(
            "\n  job_name: is too long for the host names of its pods",
            "-10",
            "65 characters, and 63 are allowed",
            job_name="x" * 62,
            indexed=True,
            completions=11,
        ),
        refused(
            "4 invalid arguments",
            "\n  gpus:",
            "\n  job_name:",
            "\n  shared_memory:",
            "\n  queue_priority:",
            gpu="H100",
            job_name="x" * 63,
            indexed=True,
            shared_memory="1Ti",
            queue_priority="high",
        ),
    ],
    gang_spec: [
        refused(
            "\n  topology_slices[0].size: is 4, and must divide nodes (6)",
            queue="q",
            nodes=6,
            topology_slices=[{"level": "host", "size": 4}],
        ),
        refused("\n  nodes:", "greater than or equal to 1", nodes=0),
        refused("\n  job_name: is too long", "64 characters", job_name="x" * 62),
        refused("\n  job_name: is too long", "-workers-0-1-xxxxx", job_name="x" * 46, jobset=True),
        refused(
            "\n  processes_per_node: is for torchrun, and launcher is env",
            launcher="env",
            processes_per_node=2,
        ),
        refused("\n  max_restarts: requires jobset: true", max_restarts=1),
        refused(
            "\n  ignore_disruptions: leaves the other pods waiting",
            jobset=True,
            ignore_disruptions=True,
        ),
        refused(
            "\n  wait_for_completion: Pulumi does not know", jobset=True, wait_for_completion=True
        ),
        refused(
            "\n  overrides.JobSet: is not a kind that is created",
            "Service, Job",
            overrides={"JobSet": {}},
        ),
    ],
    sweep_spec: [
        refused("\n  command: is required", command=None),
        refused("\n  command: is required", command=[]),
        refused("\n  parameters:", "at least 1", parameters={}),
        refused(
            "\n  parameters.L-R: is not a name of an environment",
            parameters={"L-R": {"values": [1]}},
        ),
        refused("\n  parameters.LR.values: is empty", parameters={"LR": {"values": []}}),
        refused(
            "\n  parameters.LR.values: set either values, or low and high", parameters={"LR": {}}
        ),
        refused(
            "\n  parameters.LR.values: set either values",
            parameters={"LR": {"values": [1], "low": 1}},
        ),
        refused(
            "\n  parameters.LR.values: set either values",
            parameters={"LR": {"values": [1], "high": 1}},
        ),
        refused("\n  parameters.LR.low: low and high go together", parameters={"LR": {"low": 1}}),
        refused("\n  parameters.LR.low: low and high go together", parameters={"LR": {"high": 1}}),
        refused(
            "\n  parameters.LR.low: is 2, and must be below",
            parameters={"LR": {"low": 2, "high": 2}},
        ),
        refused(
            "\n  parameters.LR.low: is 0, but must be above 0",
            parameters={"LR": {"low": 0, "high": 1, "scale": "log"}},
        ),
        refused(
            "\n  parameters.N.integer: low and high must be whole",
            parameters={"N": {"low": 0.5, "high": 2, "integer": True}},
        ),
        refused(
            "\n  parameters.LR: is a range, but a grid needs values",
            parameters={"LR": {"low": 1, "high": 2}},
        ),
        refused(
            "\n  parameters: make 10000000000 combinations, and 10000 are allowed; set samples",
            parameters={name: {"values": list(range(100))} for name in "ABCDE"},
        ),
        refused(
            "\n  parameters: have",
            "a ConfigMap holds 1048576",
            parameters={"PROMPT": {"values": ["x" * 1000]}, "N": {"values": list(range(600))}},
        ),
        refused("\n  max_failed_indexes: is 3, and there are 2 trials", max_failed_indexes=3),
        refused("\n  restart_policy: failures count for each trial", restart_policy="OnFailure"),
        refused(
            "mounts[0].path: /etc/sweep is taken", mounts=[{"claim": "sweep", "path": "/etc/sweep"}]
        ),
        refused("\n  active_deadline_seconds: is required", wait_for_completion=True),
    ],
    cron_spec: [
        refused("\n  cron_name: has 53 characters, and 52 are allowed", cron_name="x" * 53),
        refused("\n  schedule:", "has 4 fields, not five", schedule="0 3 * *"),
        refused("\n  schedule:", 'the hour "24" is not within 0 to 23', schedule="0 24 * * *"),
        refused("\n  schedule:", "never comes", schedule="0 0 30 2 *"),
        refused("\n  schedule:", "has 6 fields", schedule="TZ=UTC 0 3 * * *"),
        refused("\n  time_zone: is not a time zone of the IANA database", time_zone="CET-1"),
        refused("\n  starting_deadline_seconds:", "10", starting_deadline_seconds=9),
        refused(
            "\n  active_deadline_seconds: is 21600, and",
            "comes every 21600 seconds: a run must end before",
            schedule="0 */6 * * *",
            active_deadline_seconds=21600,
        ),
        refused(
            "\n  grace_seconds: is 54, but a run may last 54",
            schedule="* * * * *",
            grace_seconds=54,
        ),
    ],
    task_spec: [
        refused("\n  wait_for_completion: a queued Task", wait_for_completion=True, queue="q"),
        refused(
            "\n  overrides.Job: is not a kind that is created",
            "Set one of Pod",
            overrides={"Job": {}},
        ),
    ],
}


def _id(value: Any) -> str:
    return getattr(value, "__name__", str(value))[:40]


@pytest.mark.parametrize(
    ("spec", "args", "words"),
    [(spec, *row) for spec, rows in WRONG.items() for row in rows],
    ids=_id,
)
def test_wrong_arguments_are_refused_with_the_way_out(
    spec: Spec, args: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = refusal(spec, **args)
    assert not [word for word in words if word not in message], message


ACCEPTED: dict[Spec, list[dict[str, Any]]] = {
    job_spec: [
        dict(indexed=True, backoff_limit_per_index=1, completions=2, max_failed_indexes=2),
        dict(grace_seconds=599, active_deadline_seconds=600),
        dict(wait_for_completion=True),
        dict(wait_for_completion=True, fail_on_exit_codes=[1], active_deadline_seconds=600),
    ],
    cron_spec: [
        dict(schedule="0 */6 * * *", active_deadline_seconds=21599),
        dict(schedule="* * * * *", grace_seconds=53),
    ],
    task_spec: [dict(queue="q"), dict(wait_for_completion=True)],
    sweep_spec: [
        dict(max_failed_indexes=2),
        dict(samples=1, parameters={"LR": {"low": 0.001, "high": 0.002, "scale": "log"}}),
        dict(samples=1, parameters={"LR": {"low": 0, "high": 0.001}}),
    ],
}


@pytest.mark.parametrize(
    ("spec", "args"), [(spec, args) for spec, rows in ACCEPTED.items() for args in rows], ids=_id
)
def test_arguments_within_the_rules_are_accepted(spec: Spec, args: dict[str, Any]) -> None:
    spec(**args)
