"""GpuMonitor: on every GPU node and no other, and NVIDIA's own manifest made with it."""

from typing import Any

import pulumi
import pytest
from ml_foundations.component.spec import check
from ml_foundations.gpu.monitor import GpuMonitor, GpuMonitorSpec

from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of
from tests.support.refusing import assert_refused


def spec(**more: Any) -> Any:
    return check(GpuMonitorSpec, "GpuMonitor dcgm", {"monitor_name": "dcgm"} | more)


def pod(**more: Any) -> dict[str, Any]:
    return manifest_of(spec(**more), "DaemonSet")["spec"]["template"]["spec"]


def children(**more: Any) -> dict[str, Any]:
    args: Any = more
    found = declared(lambda: GpuMonitor("dcgm", args))
    return {name.removeprefix("dcgm-"): request for name, request in found.items()}


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"driver": "nouveau"}, ["driver", "'google', 'operator' or 'none'"]),
    ({"port": 0, "monitoring": "google"}, ["\n  monitoring: is google, but port is 0"]),
    ({"host_paths": [{"path": "var/log"}]}, ["host_paths[0].path"]),
    ({"host_paths": [{"path": "/a"}, {"path": "/a"}]}, ["host_paths[1].path: /a is taken"]),
    ({"max_unavailable": "0"}, ["max_unavailable"]),
    ({"create_namespace": False, "overrides": {"Namespace": {}}}, ["overrides.Namespace"]),
    ({"gpu": "B52"}, ["gpu", "is not in the catalog"]),
]


@pytest.mark.parametrize(("more", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_cannot_be_right_is_refused_at_preview(more: dict[str, Any], words: list[str]) -> None:
    assert_refused(GpuMonitorSpec, {"monitor_name": "dcgm"} | more, *words)


def terms(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The terms of the node affinity of a pod."""
    affinity = pod["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_its_pods_want_a_gpu_node_and_tolerate_every_taint() -> None:
    """NVIDIA's chart tolerates nothing, and runs nowhere (dcgm-exporter issue 731)."""
    found = pod()
    assert found["tolerations"] == [{"operator": "Exists"}]
    gpus = {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}
    assert terms(found) == [{"matchExpressions": [gpus]}]
    l4 = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}
    assert l4 in terms(pod(gpu="L4"))[0]["matchExpressions"]


def test_it_takes_no_gpu() -> None:
    assert "nvidia.com/gpu" not in str(pod()["containers"][0]["resources"])


def test_no_version_is_in_the_selector() -> None:
    """A selector cannot change, so that each new version would replace the DaemonSet."""
    old, new = (
        manifest_of(spec(image=f"i:{tag}"), "DaemonSet")["spec"]["selector"] for tag in ("1", "2")
    )
    assert old == new == {"matchLabels": {"app.kubernetes.io/name": "dcgm"}}


def test_its_namespace_allows_what_the_pods_need() -> None:
    made = children()
    labels = inputs(made["namespace"])["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert inputs(made["critical-pods"])["spec"]["hard"] == {"pods": "1k"}
    assert pod()["priorityClassName"] == "system-node-critical"
    assert "critical-pods" not in children(critical=False)
    assert "namespace" not in children(namespace="kube-system", create_namespace=False)


@pytest.mark.parametrize(
    ("driver", "privileged", "runtime"),
    [("google", True, None), ("operator", None, "nvidia"), ("none", None, None)],
)
def test_the_driver_decides_how_gpus_are_reached(
    driver: str, privileged: bool | None, runtime: str | None
) -> None:
    found = pod(driver=driver)
    assert found["containers"][0]["securityContext"].get("privileged") is privileged
    assert found.get("runtimeClassName") == runtime
    mounts = {mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
    assert ("/usr/local/nvidia" in mounts) == (driver == "google")


def test_changed_files_reach_the_pods() -> None:
    one, two = (
        manifest_of(spec(files={"a.conf": text}), "DaemonSet")["spec"]["template"]
        for text in ("1", "2")
    )
    assert one["metadata"]["annotations"] != two["metadata"]["annotations"]
    assert one["spec"] == two["spec"]
    made = children(files={"a.conf": "1"})
    assert inputs(made["files"])["data"] == {"a.conf": "1"}


def test_a_log_collector() -> None:
    logs = {
        "image": "fluent/fluent-bit:4.1",
        "driver": "none",
        "port": 0,
        "host_paths": [{"path": "/var/log"}],
        "files": {"fluent-bit.yaml": "pipeline: {}"},
        "arguments": ["--config=/etc/monitor/fluent-bit.yaml"],
        "memory": "256Mi",
    }
    found = pod(**logs)
    [container] = found["containers"]
    assert "DCGM" not in str(found)
    assert "ports" not in container
    assert "service" not in children(**logs)
    mount = {"name": "host-0", "mountPath": "/var/log", "readOnly": True}
    assert mount in container["volumeMounts"]


def test_an_image_that_another_resource_makes() -> None:
    image = pulumi.Output.from_input("built:1")
    container = pod(image=image, driver="none")["containers"][0]
    assert container["image"] is image
    assert "DCGM" not in str(container["env"])


def test_dcgm_exporter_of_nvidia() -> None:
    """NVIDIA/dcgm-exporter, dcgm-exporter.yaml (2.2.9-2.4.1), with the version out of the selector."""
    name, image = "dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:2.2.9-2.4.1-ubuntu18.04"
    labels = {"app.kubernetes.io/version": "2.4.1"}
    of_pods = {"template": {"metadata": {"labels": labels}}}
    plain = {"allowPrivilegeEscalation": None, "capabilities": None}
    found = spec(
        monitor_name=name,
        namespace="default",
        create_namespace=False,
        image=image,
        driver="none",
        critical=False,
        container_name=name,
        pod_overrides={"containers": [{"name": name, "securityContext": plain}]},
        overrides={
            "DaemonSet": {"metadata": {"labels": labels}, "spec": of_pods},
            "Service": {"metadata": {"labels": labels}},
        },
    )
    manifest, service = manifest_of(found, "DaemonSet"), manifest_of(found, "Service")
    all_labels = {"app.kubernetes.io/name": name} | labels
    assert manifest["metadata"] == {"name": name, "namespace": "default", "labels": all_labels}
    assert manifest["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert manifest["spec"]["template"]["metadata"]["labels"] == all_labels
    pod = manifest["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert (main["name"], main["image"]) == (name, image)
    env = {item["name"]: item.get("value") for item in main["env"]}
    expected = {"DCGM_EXPORTER_LISTEN": ":9400", "DCGM_EXPORTER_KUBERNETES": "true"}
    assert env.items() >= expected.items()
    assert [(port["name"], port["containerPort"]) for port in main["ports"]] == [("metrics", 9400)]
    assert main["securityContext"] == {"runAsNonRoot": False, "runAsUser": 0}
    [mount], [volume] = main["volumeMounts"], pod["volumes"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/lib/kubelet/pod-resources", True)
    assert volume == {"name": mount["name"], "hostPath": {"path": mount["mountPath"]}}
    assert service["metadata"]["labels"] == all_labels
    ports = [(port["name"], port["port"]) for port in service["spec"]["ports"]]
    assert ports == [("metrics", 9400)]


@pytest.mark.parametrize(
    ("more", "name"), [({}, "dcgm"), ({"namespace": "monitoring"}, "monitoring")], ids=str
)
def test_the_namespace_is_named_after_the_monitor(more: dict[str, Any], name: str) -> None:
    assert manifest_of(spec(**more), "Namespace")["metadata"]["name"] == name
