"""The user's last word: what it reaches, and what is told of it before anything exists."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from ml_foundations.component.spec import check
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.kubernetes import labels

from tests.support.declaring import declared
from tests.support.parts import manifest_of
from tests.workloads.building import (
    container_of,
    gang_spec,
    job,
    job_spec,
    pod,
    pod_of,
    service_spec,
    shards_spec,
    sweep_spec,
)

NAME = "app.kubernetes.io/name"


def monitor_spec(**more: Any) -> GpuMonitorSpec:
    return check(GpuMonitorSpec, "GpuMonitor", {"monitor_name": "dcgm"} | more)


def main(**fields: Any) -> dict[str, Any]:
    """Overrides of the container."""
    return {"containers": [{"name": "main", **fields}]}


NO_PROBES = dict.fromkeys(("startup", "readiness", "liveness"))

WRONG: list[tuple[Callable[..., Any], dict[str, Any], list[str]]] = [
    (
        job_spec,
        {
            "overrides": {
                "Job": {"metdata": {}, "spec": 3, "kind": "Pod", "metadata": []},
                "Pod": {},
            },
            "queue_priority": "a",
        },
        [
            "6 invalid arguments",
            "\n  queue_priority: ranks a workload",
            "\n  overrides.Pod: is not a kind that is created. Set one of Job",
            "\n  overrides.Job.metdata: is not known. Did you mean metadata?",
            "\n  overrides.Job.spec: is 3; it must be a map",
            "\n  overrides.Job.metadata: is []; it must be a map",
            "\n  overrides.Job.kind: is not known. See https:",
        ],
    ),
    (
        job_spec,
        {
            "overrides": {
                "Job": {"spec": {"suspended": True, "template": {"metadata": {"labels": ["a"]}}}}
            }
        },
        [
            "\n  overrides.Job.spec.suspended: is not known. Did you mean suspend",
            "\n  overrides.Job.spec.template.metadata.labels: is ['a']; it must be a map",
        ],
    ),
    (
        gang_spec,
        {"jobset": True, "overrides": {"Job": {"spec": {"retries": 1}}}},
        ["overrides.Job.spec.retries: is not"],
    ),
    (
        gang_spec,
        {
            "jobset": True,
            "overrides": {"JobSet": {"metadata": {"label": {}}, "status": {}, "spec": []}},
        },
        [
            "overrides.JobSet.metadata.label: is not known",
            "overrides.JobSet.status: is not",
            "JobSet.spec: is []; it must",
        ],
    ),
    (
        sweep_spec,
        {"overrides": {"ConfigMap": {"metadata": 5}}},
        ["\n  overrides.ConfigMap.metadata: is 5; it must be a"],
    ),
    (
        job_spec,
        {
            "image": "",
            "pod_overrides": {
                "containers": ["main"],
                "hostIPC": {},
                "tolerations": {},
                "volumes": [{}],
            },
        },
        [
            "\n  image: ",
            "\n  pod_overrides.containers[0]: is 'main'; it must be a map",
            "\n  pod_overrides.hostIPC: is {}; it must be a single value",
            "\n  pod_overrides.tolerations: is {}; it must be a list",
            "\n  pod_overrides.volumes[0].name: is required: it identifies the items of the list",
        ],
    ),
    (
        job_spec,
        {"pod_overrides": {"hostNetwrk": True, **main(enviroment=[])}},
        [
            "\n  pod_overrides.hostNetwrk: is not known. Did you mean hostNetwork",
            "\n  pod_overrides.containers[0].enviroment: is not known",
        ],
    ),
    (
        job_spec,
        {
            "pod_overrides": {
                "containers": [{"name": "mian", "tty": True}],
                "initContainers": [{"name": "a"}],
            }
        },
        [
            '\n  pod_overrides.containers[0].name: is "mian", and there is main. Name an existing one, or add',
            '\n  pod_overrides.initContainers[0].name: is "a", and there is none',
        ],
    ),
    (
        monitor_spec,
        {"pod_overrides": {"containers": [{"name": "agent"}]}},
        ['[0].name: is "agent", and there is main'],
    ),
    (
        job_spec,
        {"init_containers": [{"name": "a", "imge": "i"}]},
        ["\n  init_containers[0].imge: is not known. Did you"],
    ),
    (
        service_spec,
        {"labels": {NAME: "other"}},
        [f"\n  labels.{NAME}: is set by the component, whose selectors"],
    ),
    *(
        (
            spec,
            {
                "overrides": {
                    kind: {"spec": {"template": {"metadata": {"labels": {NAME: "other"}}}}}
                }
            },
            [f"\n  overrides.{kind}.spec.selector: is ", "override both in the same way", *others],
        )
        for spec, kind, others in (
            (
                shards_spec,
                "StatefulSet",
                ["overrides.Service.spec.selector", "overrides.PodDisruptionBudget.spec.sel"],
            ),
            (service_spec, "Deployment", ["3 invalid arguments"]),
            (monitor_spec, "DaemonSet", ["overrides.Service.spec.selector"]),
        )
    ),
    (
        service_spec,
        {"pod_overrides": main(ports=[{"containerPort": 8080, "name": "web"}])},
        [
            '\n  pod_overrides.containers[0].ports[0].name: is "web", but probes and the Service use',
            "set port_name instead",
        ],
    ),
    *(
        (
            spec,
            {"pod_overrides": main(ports=None)} | others,
            ["ports: is null, but probes and Services use the ports"],
        )
        for spec, others in (
            (service_spec, {"service": False}),
            (service_spec, {"probes": NO_PROBES}),
            (shards_spec, {}),
        )
    ),
]


@pytest.mark.parametrize(("spec", "args", "parts"), WRONG)
def test_what_no_object_can_have_is_told(
    spec: Callable[..., Any], args: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec(**args)
    for part in parts:
        assert part in str(caught.value)


def test_values_may_be_outputs_and_what_holds_them_may_not() -> None:
    def program() -> None:
        later: Any = pulumi.Output.from_input("later")
        made = job(
            pod_overrides={"hostname": later}, overrides={"Job": {"spec": {"managedBy": later}}}
        )
        assert pod_of(made)["hostname"] is made["spec"]["managedBy"] is later
        with pytest.raises(
            pulumi.InputPropertiesError,
            match=r"overrides\.Job\.spec: is an Output; the map must be known",
        ):
            job_spec(overrides={"Job": {"spec": later}})
        with pytest.raises(
            pulumi.InputPropertiesError,
            match=r"pod_overrides\.volumes: is an Output; the list must be",
        ):
            job_spec(pod_overrides={"volumes": later})

    declared(program)


def test_labels_and_selectors_can_be_overridden_together() -> None:
    selector = {"matchLabels": {NAME: "other"}}
    overrides = {
        "Deployment": {
            "spec": {"selector": selector, "template": {"metadata": {"labels": {NAME: "other"}}}}
        },
        "Service": {"spec": {"selector": {NAME: "other"}}},
        "PodDisruptionBudget": {"spec": {"selector": selector}},
    }
    assert (
        manifest_of(service_spec(overrides=overrides), "Deployment")["spec"]["selector"] == selector
    )


def test_a_service_may_be_for_some_of_the_pods() -> None:
    first = {"apps.kubernetes.io/pod-index": "0"}
    made = manifest_of(shards_spec(overrides={"Service": {"spec": {"selector": first}}}), "Service")
    assert made["spec"]["selector"] == {NAME: "parts"} | first


@pytest.mark.parametrize(
    "args",
    [
        {
            "init_containers": [
                {"name": "check", "image": "i", "resources": {"limits": {labels.GPU_RESOURCE: 1}}}
            ]
        },
        {
            "pod_overrides": {
                "containers": [
                    {"name": "b", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                ]
            }
        },
        {"pod_overrides": main(resources={"limits": {"nvidia.com/gpu": 1}})},
    ],
    ids=["an init container", "a side container", "the container"],
)
def test_gpus_of_any_container_bring_the_pod_to_gpu_nodes(args: dict[str, Any]) -> None:
    made = pod_of(job(**args))
    assert "affinity" not in made
    assert [item["key"] for item in made["tolerations"]] == [labels.GPU_TAINT_KEY]
    [term] = pod_of(job(**args, gpu="L4"))["affinity"]["nodeAffinity"].values()
    assert term["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["NVIDIA-L4"]


def test_null_removes_what_a_kind_of_workload_adds() -> None:
    assert pod()["spec"]["activeDeadlineSeconds"] == 600
    assert "activeDeadlineSeconds" not in pod(pod_overrides={"activeDeadlineSeconds": None})["spec"]


@pytest.mark.parametrize(
    "context", [{"privileged": True}, {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}]
)
def test_privileges_drop_the_default_that_contradicts_them(
    context: dict[str, Any],
) -> None:
    """Kubernetes refuses allowPrivilegeEscalation: false beside either (pkg/apis/core/validation)."""
    assert (
        "allowPrivilegeEscalation"
        not in container_of(job(pod_overrides=main(securityContext=context)))["securityContext"]
    )
    made = pod_of(
        job(init_containers=[{"name": "sysctl", "image": "i", "securityContext": context}])
    )
    assert "allowPrivilegeEscalation" not in made["initContainers"][0]["securityContext"]
    assert made["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


def test_ports_that_nothing_knows_may_go() -> None:
    args = {"service": False, "probes": NO_PROBES, "pod_overrides": main(ports=None)}
    assert "ports" not in container_of(manifest_of(service_spec(**args), "Deployment"))


def test_the_port_has_one_name_everywhere() -> None:
    spec = service_spec(port_name="web", monitoring="google")
    deployment, service = manifest_of(spec, "Deployment"), manifest_of(spec, "Service")
    container = container_of(deployment)
    assert container["ports"][0]["name"] == container["startupProbe"]["httpGet"]["port"] == "web"
    assert (service["spec"]["ports"][0]["name"], service["spec"]["ports"][0]["targetPort"]) == (
        "web",
        "web",
    )
    assert manifest_of(spec, "PodMonitoring")["spec"]["endpoints"][0]["port"] == "web"


def test_a_secret_name_is_redirected_to_secret_env() -> None:
    def program() -> None:
        with pytest.raises(
            pulumi.InputPropertiesError, match=r"secret_env\.TOKEN: must be the name"
        ) as caught:
            job_spec(secret_env={"TOKEN": "hf_1234"})
        assert "hf_1234" not in str(caught.value)

    declared(program)
