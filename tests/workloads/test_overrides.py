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
from tests.support.refusing import refusal
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
NO_PORTS = "ports: is null, but probes and Services use the ports"
Row = tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]


def row(spec: Callable[..., Any], *parts: str, **args: Any) -> Row:
    """A component with arguments, and parts of the message that refuses them."""
    return spec, args, parts


def other_labels(kind: str) -> dict[str, Any]:
    return {kind: {"spec": {"template": {"metadata": {"labels": {NAME: "other"}}}}}}


WRONG: list[Row] = [
    row(
        job_spec,
        "6 invalid arguments",
        "\n  queue_priority: ranks a workload",
        "\n  overrides.Pod: is not a kind that is created. Set one of Job",
        "\n  overrides.Job.metdata: is not known. Did you mean metadata?",
        "\n  overrides.Job.spec: is 3; it must be a map",
        "\n  overrides.Job.metadata: is []; it must be a map",
        "\n  overrides.Job.kind: is not known. See https:",
        overrides={"Job": {"metdata": {}, "spec": 3, "kind": "Pod", "metadata": []}, "Pod": {}},
        queue_priority="a",
    ),
    row(
        job_spec,
        "\n  overrides.Job.spec.suspended: is not known. Did you mean suspend",
        "\n  overrides.Job.spec.template.metadata.labels: is ['a']; it must be a map",
        overrides={
            "Job": {"spec": {"suspended": True, "template": {"metadata": {"labels": ["a"]}}}}
        },
    ),
    row(
        gang_spec,
        "overrides.Job.spec.retries: is not",
        jobset=True,
        overrides={"Job": {"spec": {"retries": 1}}},
    ),
    row(
        gang_spec,
        "overrides.JobSet.metadata.label: is not known",
        "overrides.JobSet.status: is not",
        "JobSet.spec: is []; it must",
        jobset=True,
        overrides={"JobSet": {"metadata": {"label": {}}, "status": {}, "spec": []}},
    ),
    row(
        sweep_spec,
        "\n  overrides.ConfigMap.metadata: is 5; it must be a",
        overrides={"ConfigMap": {"metadata": 5}},
    ),
    row(
        job_spec,
        "\n  image: ",
        "\n  pod_overrides.containers[0]: is 'main'; it must be a map",
        "\n  pod_overrides.hostIPC: is {}; it must be a single value",
        "\n  pod_overrides.tolerations: is {}; it must be a list",
        "\n  pod_overrides.volumes[0].name: is required: it identifies the items of the list",
        image="",
        pod_overrides={"containers": ["main"], "hostIPC": {}, "tolerations": {}, "volumes": [{}]},
    ),
    row(
        job_spec,
        "\n  pod_overrides.hostNetwrk: is not known. Did you mean hostNetwork",
        "\n  pod_overrides.containers[0].enviroment: is not known",
        pod_overrides={"hostNetwrk": True, **main(enviroment=[])},
    ),
    row(
        job_spec,
        '\n  pod_overrides.containers[0].name: is "mian", and there is main. Name an existing one, or add',
        '\n  pod_overrides.initContainers[0].name: is "a", and there is none',
        pod_overrides={
            "containers": [{"name": "mian", "tty": True}],
            "initContainers": [{"name": "a"}],
        },
    ),
    row(
        monitor_spec,
        '[0].name: is "agent", and there is main',
        pod_overrides={"containers": [{"name": "agent"}]},
    ),
    row(
        job_spec,
        "\n  init_containers[0].imge: is not known. Did you",
        init_containers=[{"name": "a", "imge": "i"}],
    ),
    row(
        service_spec,
        f"\n  labels.{NAME}: is set by the component, whose selectors",
        labels={NAME: "other"},
    ),
    *(
        row(
            spec,
            f"\n  overrides.{kind}.spec.selector: is ",
            "override both in the same way",
            *others,
            overrides=other_labels(kind),
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
    row(
        service_spec,
        '\n  pod_overrides.containers[0].ports[0].name: is "web", but probes and the Service use',
        "set port_name instead",
        pod_overrides=main(ports=[{"containerPort": 8080, "name": "web"}]),
    ),
    *(
        row(spec, NO_PORTS, pod_overrides=main(ports=None), **others)
        for spec, others in (
            (service_spec, {"service": False}),
            (service_spec, {"probes": NO_PROBES}),
            (shards_spec, {}),
        )
    ),
]


@pytest.mark.parametrize(("spec", "args", "parts"), WRONG)
def test_what_no_object_can_have_is_told(
    spec: Callable[..., Any], args: dict[str, Any], parts: tuple[str, ...]
) -> None:
    message = refusal(spec, **args)
    assert not [part for part in parts if part not in message], message


def test_values_may_be_outputs_and_what_holds_them_may_not() -> None:
    def program() -> None:
        later: Any = pulumi.Output.from_input("later")
        made = job(
            pod_overrides={"hostname": later}, overrides={"Job": {"spec": {"managedBy": later}}}
        )
        assert pod_of(made)["hostname"] is made["spec"]["managedBy"] is later
        message = refusal(job_spec, overrides={"Job": {"spec": later}})
        assert "overrides.Job.spec: is an Output; the map must be known" in message
        message = refusal(job_spec, pod_overrides={"volumes": later})
        assert "pod_overrides.volumes: is an Output; the list must be" in message

    declared(program)


def test_labels_and_selectors_can_be_overridden_together() -> None:
    selector = {"matchLabels": {NAME: "other"}}
    overrides = other_labels("Deployment")
    overrides["Deployment"]["spec"]["selector"] = selector
    overrides["Service"] = {"spec": {"selector": {NAME: "other"}}}
    overrides["PodDisruptionBudget"] = {"spec": {"selector": selector}}
    made = manifest_of(service_spec(overrides=overrides), "Deployment")
    assert made["spec"]["selector"] == selector


def test_a_service_may_be_for_some_of_the_pods() -> None:
    first = {"apps.kubernetes.io/pod-index": "0"}
    made = manifest_of(shards_spec(overrides={"Service": {"spec": {"selector": first}}}), "Service")
    assert made["spec"]["selector"] == {NAME: "parts"} | first


ONE_GPU = {"resources": {"limits": {labels.GPU_RESOURCE: 1}}}


@pytest.mark.parametrize(
    "args",
    [
        {"init_containers": [{"name": "check", "image": "i", **ONE_GPU}]},
        {"pod_overrides": {"containers": [{"name": "b", "image": "i", **ONE_GPU}]}},
        {"pod_overrides": main(**ONE_GPU)},
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
    made = container_of(job(pod_overrides=main(securityContext=context)))
    assert "allowPrivilegeEscalation" not in made["securityContext"]
    first = {"name": "sysctl", "image": "i", "securityContext": context}
    made = pod_of(job(init_containers=[first]))
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
    [port] = service["spec"]["ports"]
    assert port["name"] == port["targetPort"] == "web"
    assert manifest_of(spec, "PodMonitoring")["spec"]["endpoints"][0]["port"] == "web"


def test_a_secret_name_is_redirected_to_secret_env() -> None:
    def program() -> None:
        message = refusal(job_spec, secret_env={"TOKEN": "hf_1234"})
        assert "secret_env.TOKEN: must be the name" in message
        assert "hf_1234" not in message

    declared(program)
