"""Training that cannot work is refused, all at once, with the field and the way out."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from tests.workloads.building import cron_spec, gang_spec, job_spec, sweep_spec, task_spec

GPU_CONTAINER = {"name": "probe", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}

WRONG: list[tuple[Callable[..., Any], dict[str, Any], list[str]]] = [
    (
        job_spec,
        {"queue_priority": "high"},
        ["\n  queue_priority: ranks a workload in its queue, but there is no"],
    ),
    (
        job_spec,
        {"topology": "required:block"},
        ["\n  topology: is read by Kueue, but there is no queue; set queue, or leave it out"],
    ),
    (
        job_spec,
        {"queue": "q", "topology": "required"},
        ['\n  topology: there is no level "". Set block, sub-block, host, hostname or the key of'],
    ),
    (
        job_spec,
        {"queue": "q", "topology": "best:block"},
        ["\n  topology: is best:block; set it to required:LEVEL, preferred:LEVEL or unconstrained"],
    ),
    (
        job_spec,
        {"queue": "q", "topology": "preferred:subblock"},
        ['\n  topology: there is no level "subblock". Did you mean sub-block?'],
    ),
    (
        job_spec,
        {
            "queue": "q",
            "topology_slices": [
                {"level": "block", "size": 8},
                {"level": "sub-block", "size": 3},
                {"level": "block", "size": 0},
                {"level": "host", "size": 1},
            ],
        },
        ["\n  topology_slices[2].size: input should be greater than or equal to 1"],
    ),
    (
        job_spec,
        {
            "queue": "q",
            "topology_slices": [
                {"level": "block", "size": 8},
                {"level": "sub-block", "size": 3},
                {"level": "block", "size": 3},
                {"level": "host", "size": 1},
            ],
        },
        [
            "\n  topology_slices: has 4 layers; Kueue accepts 3",
            "\n  topology_slices[1].size: is 3, and must divide the size of the layer before (8)",
            "\n  topology_slices[2].level: block is taken",
        ],
    ),
    (
        gang_spec,
        {"queue": "q", "nodes": 6, "topology_slices": [{"level": "host", "size": 4}]},
        ["\n  topology_slices[0].size: is 4, and must divide nodes (6)"],
    ),
    (job_spec, {"gpu_claim": {}}, ["\n  gpus: is 0, but there is a gpu_claim"]),
    (
        job_spec,
        {"gpu": "L4", "gpu_claim": {}, "side_containers": [GPU_CONTAINER]},
        ["1 invalid argument:", "\n  gpus: is 0, but there is a gpu_claim"],
    ),
    (
        job_spec,
        {"gpus": 1, "gpu_claim": {"template": "t", "device_class": "gpu.nvidia.com"}},
        ["\n  gpu_claim.template: already selects"],
    ),
    (
        job_spec,
        {"gpus": 1, "gpu_claim": {"template": "t", "selectors": ["x"]}},
        ["\n  gpu_claim.template: already selects"],
    ),
    (
        job_spec,
        {"requests": {"nvidia.com/gpu": "1"}},
        ["\n  requests.nvidia.com/gpu: is set by gpus alone"],
    ),
    (job_spec, {"requests": {"cpu": "1"}}, ["\n  requests.cpu: is set by cpu alone"]),
    (job_spec, {"requests": {"memory": "1Gi"}}, ["\n  requests.memory: is set by memory alone"]),
    (
        job_spec,
        {"limits": {"memory": "1Gi"}},
        ["\n  limits.memory: is 1Gi, below the request (64Gi)"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a"}]},
        ["\n  mounts[0].path: has no source; set exactly one of claim, secret"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a", "claim": "a", "bucket": "bbb"}]},
        ["has claim and bucket"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a", "volume": {"emptyDir": {}}}]},
        ["\n  mounts[0].name: is required with volume"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a", "claim": "a", "mount_options": "x"}]},
        ["mount_options: are for a bucket"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a", "claim": "a", "attributes": {"fileCacheCapacity": "1Gi"}}]},
        ["\n  mounts[0].attributes: are for a bucket"],
    ),
    (
        job_spec,
        {"mounts": [{"path": "/a", "claim": "a"}, {"path": "/b", "secret": "a"}]},
        ["\n  mounts[1].name: two volumes are called a"],
    ),
    (job_spec, {"env_from": [{}]}, ["\n  env_from[0].secret: set either secret or config_map"]),
    (
        job_spec,
        {"env_from": [{"secret": "a", "config_map": pulumi.Output.from_input("b")}]},
        ["\n  env_from[0].secret: set either secret or config_map"],
    ),
    (
        job_spec,
        {"tolerations": [{"key": "team", "operator": "Exists", "value": "ml"}]},
        ['\n  tolerations[0].value: is "ml", but the operator Exists accepts no value'],
    ),
    (
        job_spec,
        {"overrides": {"Deployment": {}}},
        ["\n  overrides.Deployment: is not a kind that is created", "Set one of Job"],
    ),
    (
        job_spec,
        {"backoff_limit_per_index": 1},
        ["\n  backoff_limit_per_index: requires indexed: true"],
    ),
    (
        job_spec,
        {"success_rules": [{"succeededCount": 1}]},
        ["\n  success_rules: requires indexed: true"],
    ),
    (
        job_spec,
        {"max_failed_indexes": 1},
        ["\n  max_failed_indexes: requires backoff_limit_per_index"],
    ),
    (
        job_spec,
        {"indexed": True, "backoff_limit_per_index": 1, "max_failed_indexes": 2},
        ["\n  max_failed_indexes: is 2, above completions (1)"],
    ),
    (
        job_spec,
        {
            "restart_policy": "OnFailure",
            "fail_on_exit_codes": [1],
            "indexed": True,
            "backoff_limit_per_index": 1,
        },
        [
            "2 invalid arguments",
            "\n  fail_on_exit_codes: requires restart_policy Never",
            "\n  backoff_limit_per_index: requires restart",
        ],
    ),
    (
        job_spec,
        {
            "restart_policy": "OnFailure",
            "pod_failure_rules": [{"action": "Ignore"}],
            "ignore_disruptions": True,
        },
        [
            "\n  pod_failure_rules: requires restart_policy Never, not OnFailure",
            "\n  ignore_disruptions: requires restart_policy Never, not OnFailure",
        ],
    ),
    (
        job_spec,
        {"fail_on_exit_codes": [0, 3]},
        ["\n  fail_on_exit_codes: [0] are not exit codes of a failure"],
    ),
    (
        job_spec,
        {"grace_seconds": 600, "active_deadline_seconds": 600},
        ["\n  grace_seconds: is 600; the whole Job may run 600"],
    ),
    (
        job_spec,
        {"wait_for_completion": True, "queue": "q"},
        ["\n  wait_for_completion: a queued Job starts when"],
    ),
    (
        job_spec,
        {"wait_for_completion": True, "ttl_seconds_after_finished": 0},
        ["\n  ttl_seconds_after_finished: a Job that is waited for must not delete itself"],
    ),
    (
        job_spec,
        {"wait_for_completion": True, "fail_on_exit_codes": [1]},
        [
            "\n  active_deadline_seconds: is required, because Pulumi does not see failures by fail_on_exit_codes"
        ],
    ),
    (
        job_spec,
        {"wait_for_completion": True, "indexed": True, "backoff_limit_per_index": 0},
        [
            "\n  active_deadline_seconds: is required, because Pulumi does not see failures by backoff_limit_per_index"
        ],
    ),
    (
        job_spec,
        {"job_name": "x" * 62, "indexed": True, "completions": 11},
        [
            "\n  job_name: is too long for the host names of its pods",
            "-10",
            "65 characters, and 63 are allowed",
        ],
    ),
    (gang_spec, {"nodes": 0}, ["\n  nodes:", "greater than or equal to 1"]),
    (gang_spec, {"job_name": "x" * 62}, ["\n  job_name: is too long", "64 characters"]),
    (
        gang_spec,
        {"job_name": "x" * 46, "jobset": True},
        ["\n  job_name: is too long", "-workers-0-1-xxxxx"],
    ),
    (
        gang_spec,
        {"launcher": "env", "processes_per_node": 2},
        ["\n  processes_per_node: is for torchrun, and launcher is env"],
    ),
    (gang_spec, {"max_restarts": 1}, ["\n  max_restarts: requires jobset: true"]),
    (
        gang_spec,
        {"jobset": True, "ignore_disruptions": True},
        ["\n  ignore_disruptions: leaves the other pods waiting"],
    ),
    (
        gang_spec,
        {"jobset": True, "wait_for_completion": True},
        ["\n  wait_for_completion: Pulumi does not know"],
    ),
    (
        gang_spec,
        {"overrides": {"JobSet": {}}},
        ["\n  overrides.JobSet: is not a kind that is created", "Service, Job"],
    ),
    (sweep_spec, {"command": None}, ["\n  command: is required"]),
    (sweep_spec, {"command": []}, ["\n  command: is required"]),
    (sweep_spec, {"parameters": {}}, ["\n  parameters:", "at least 1"]),
    (
        sweep_spec,
        {"parameters": {"L-R": {"values": [1]}}},
        ["\n  parameters.L-R: is not a name of an environment"],
    ),
    (sweep_spec, {"parameters": {"LR": {"values": []}}}, ["\n  parameters.LR.values: is empty"]),
    (
        sweep_spec,
        {"parameters": {"LR": {}}},
        ["\n  parameters.LR.values: set either values, or low and high"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"values": [1], "low": 1}}},
        ["\n  parameters.LR.values: set either values"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"values": [1], "high": 1}}},
        ["\n  parameters.LR.values: set either values"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"low": 1}}},
        ["\n  parameters.LR.low: low and high go together"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"high": 1}}},
        ["\n  parameters.LR.low: low and high go together"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"low": 2, "high": 2}}},
        ["\n  parameters.LR.low: is 2, and must be below"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"low": 0, "high": 1, "scale": "log"}}},
        ["\n  parameters.LR.low: is 0, but must be above 0"],
    ),
    (
        sweep_spec,
        {"parameters": {"N": {"low": 0.5, "high": 2, "integer": True}}},
        ["\n  parameters.N.integer: low and high must be whole"],
    ),
    (
        sweep_spec,
        {"parameters": {"LR": {"low": 1, "high": 2}}},
        ["\n  parameters.LR: is a range, but a grid needs values"],
    ),
    (
        sweep_spec,
        {"parameters": {name: {"values": list(range(100))} for name in "ABCDE"}},
        ["\n  parameters: make 10000000000 combinations, and 10000 are allowed; set samples"],
    ),
    (
        sweep_spec,
        {"parameters": {"PROMPT": {"values": ["x" * 1000]}, "N": {"values": list(range(600))}}},
        ["\n  parameters: have", "a ConfigMap holds 1048576"],
    ),
    (
        sweep_spec,
        {"max_failed_indexes": 3},
        ["\n  max_failed_indexes: is 3, and there are 2 trials"],
    ),
    (
        sweep_spec,
        {"restart_policy": "OnFailure"},
        ["\n  restart_policy: failures count for each trial"],
    ),
    (
        sweep_spec,
        {"mounts": [{"claim": "sweep", "path": "/etc/sweep"}]},
        ["mounts[0].path: /etc/sweep is taken"],
    ),
    (sweep_spec, {"wait_for_completion": True}, ["\n  active_deadline_seconds: is required"]),
    (cron_spec, {"cron_name": "x" * 53}, ["\n  cron_name: has 53 characters, and 52 are allowed"]),
    (cron_spec, {"schedule": "0 3 * *"}, ["\n  schedule:", "has 4 fields, not five"]),
    (
        cron_spec,
        {"schedule": "0 24 * * *"},
        ["\n  schedule:", 'the hour "24" is not within 0 to 23'],
    ),
    (cron_spec, {"schedule": "0 0 30 2 *"}, ["\n  schedule:", "never comes"]),
    (cron_spec, {"schedule": "TZ=UTC 0 3 * * *"}, ["\n  schedule:", "has 6 fields"]),
    (cron_spec, {"time_zone": "CET-1"}, ["\n  time_zone: is not a time zone of the IANA database"]),
    (cron_spec, {"starting_deadline_seconds": 9}, ["\n  starting_deadline_seconds:", "10"]),
    (
        cron_spec,
        {"schedule": "0 */6 * * *", "active_deadline_seconds": 21600},
        [
            "\n  active_deadline_seconds: is 21600, and",
            "comes every 21600 seconds: a run must end before",
        ],
    ),
    (
        cron_spec,
        {"schedule": "* * * * *", "grace_seconds": 54},
        ["\n  grace_seconds: is 54, but a run may last 54"],
    ),
    (
        task_spec,
        {"wait_for_completion": True, "queue": "q"},
        ["\n  wait_for_completion: a queued Task"],
    ),
    (
        task_spec,
        {"overrides": {"Job": {}}},
        ["\n  overrides.Job: is not a kind that is created", "Set one of Pod"],
    ),
    (
        job_spec,
        {
            "gpu": "H100",
            "job_name": "x" * 63,
            "indexed": True,
            "shared_memory": "1Ti",
            "queue_priority": "high",
        },
        [
            "4 invalid arguments",
            "\n  gpus:",
            "\n  job_name:",
            "\n  shared_memory:",
            "\n  queue_priority:",
        ],
    ),
]


@pytest.mark.parametrize(
    ("spec", "args", "words"), WRONG, ids=lambda value: getattr(value, "__name__", str(value))[:40]
)
def test_wrong_arguments_are_refused_with_the_way_out(
    spec: Callable[..., Any], args: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec(**args)
    for word in words:
        assert word in str(caught.value), str(caught.value)


ACCEPTED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (
        job_spec,
        {"indexed": True, "backoff_limit_per_index": 1, "completions": 2, "max_failed_indexes": 2},
    ),
    (job_spec, {"grace_seconds": 599, "active_deadline_seconds": 600}),
    (job_spec, {"wait_for_completion": True}),
    (
        job_spec,
        {"wait_for_completion": True, "fail_on_exit_codes": [1], "active_deadline_seconds": 600},
    ),
    (cron_spec, {"schedule": "0 */6 * * *", "active_deadline_seconds": 21599}),
    (cron_spec, {"schedule": "* * * * *", "grace_seconds": 53}),
    (task_spec, {"queue": "q"}),
    (task_spec, {"wait_for_completion": True}),
    (sweep_spec, {"max_failed_indexes": 2}),
    (
        sweep_spec,
        {"samples": 1, "parameters": {"LR": {"low": 0.001, "high": 0.002, "scale": "log"}}},
    ),
    (sweep_spec, {"samples": 1, "parameters": {"LR": {"low": 0, "high": 0.001}}}),
]


@pytest.mark.parametrize(
    ("spec", "args"), ACCEPTED, ids=lambda value: getattr(value, "__name__", str(value))[:40]
)
def test_arguments_within_the_rules_are_accepted(
    spec: Callable[..., Any], args: dict[str, Any]
) -> None:
    spec(**args)
