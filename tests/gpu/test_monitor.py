"""GpuMonitor: on every GPU node and no other, and NVIDIA's own manifest made with it."""

from typing import Any

import pulumi
import pytest
from ml_foundations.component.spec import check
from ml_foundations.gpu.monitor import GpuMonitor, GpuMonitorSpec

from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of


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
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        spec(**more)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_its_pods_want_a_gpu_node_and_tolerate_every_taint() -> None:
    """NVIDIA's chart tolerates nothing, and runs nowhere (dcgm-exporter issue 731)."""
    found = pod()
    assert found["tolerations"] == [{"operator": "Exists"}]
    [term] = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {
        "matchExpressions": [{"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}]
    }
    only = pod(gpu="L4")["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]} in (
        only["nodeSelectorTerms"][0]["matchExpressions"]
    )


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
    assert inputs(made["namespace"])["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "privileged"
    }
    quota = inputs(made["critical-pods"])["spec"]
    assert quota["hard"] == {"pods": "1k"}
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
    assert "DCGM" not in str(found)
    assert "ports" not in found["containers"][0]
    assert "service" not in children(**logs)
    assert {"name": "host-0", "mountPath": "/var/log", "readOnly": True} in found["containers"][0][
        "volumeMounts"
    ]


def test_an_image_that_another_resource_makes() -> None:
    image = pulumi.Output.from_input("built:1")
    container = pod(image=image, driver="none")["containers"][0]
    assert container["image"] is image
    assert "DCGM" not in str(container["env"])


def test_dcgm_exporter_of_nvidia() -> None:
    """NVIDIA/dcgm-exporter, dcgm-exporter.yaml (2.2.9-2.4.1), with the version out of the selector."""
    labels = {"app.kubernetes.io/version": "2.4.1"}
    found = spec(
        monitor_name="dcgm-exporter",
        namespace="default",
        create_namespace=False,
        image="nvcr.io/nvidia/k8s/dcgm-exporter:2.2.9-2.4.1-ubuntu18.04",
        driver="none",
        critical=False,
        container_name="dcgm-exporter",
        pod_overrides={
            "containers": [
                {
                    "name": "dcgm-exporter",
                    "securityContext": {"allowPrivilegeEscalation": None, "capabilities": None},
                }
            ]
        },
        overrides={
            "DaemonSet": {
                "metadata": {"labels": labels},
                "spec": {"template": {"metadata": {"labels": labels}}},
            },
            "Service": {"metadata": {"labels": labels}},
        },
    )
    manifest = manifest_of(found, "DaemonSet")
    all_labels = {"app.kubernetes.io/name": "dcgm-exporter"} | labels
    assert manifest["metadata"] == {
        "name": "dcgm-exporter",
        "namespace": "default",
        "labels": all_labels,
    }
    assert manifest["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert manifest["spec"]["template"]["metadata"]["labels"] == all_labels
    [main] = manifest["spec"]["template"]["spec"]["containers"]
    assert main["name"] == "dcgm-exporter"
    assert main["image"] == "nvcr.io/nvidia/k8s/dcgm-exporter:2.2.9-2.4.1-ubuntu18.04"
    env = {item["name"]: item.get("value") for item in main["env"]}
    assert (
        env.items() >= {"DCGM_EXPORTER_LISTEN": ":9400", "DCGM_EXPORTER_KUBERNETES": "true"}.items()
    )
    assert [(port["name"], port["containerPort"]) for port in main["ports"]] == [("metrics", 9400)]
    assert main["securityContext"] == {"runAsNonRoot": False, "runAsUser": 0}
    [mount] = main["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/lib/kubelet/pod-resources", True)
    [volume] = manifest["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "hostPath": {"path": "/var/lib/kubelet/pod-resources"}}
    service = manifest_of(found, "Service")
    assert service["metadata"]["labels"] == all_labels
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [
        ("metrics", 9400)
    ]


def test_the_namespace_is_named_after_the_monitor() -> None:
    assert manifest_of(spec(), "Namespace")["metadata"]["name"] == "dcgm"
    assert (
        manifest_of(spec(namespace="monitoring"), "Namespace")["metadata"]["name"] == "monitoring"
    )
