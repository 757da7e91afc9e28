"""DRA: values that the driver's chart has, claims in CEL, and pools that nobody else advertises."""

from typing import Any

import pytest
from ml_foundations import DeviceClasses
from ml_foundations.component.spec import check
from ml_foundations.gpu.device_classes import DeviceClassesSpec
from ml_foundations.kubernetes import labels
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys

from tests.support.declaring import declared, inputs
from tests.support.parts import manifest_of, values_of
from tests.support.refusing import assert_refused


def spec_of(**given: Any) -> DeviceClassesSpec:
    return check(DeviceClassesSpec, "DeviceClasses", given)


@pytest.mark.parametrize(
    ("who", "root"), [("google", "/home/kubernetes/bin/nvidia"), ("operator", "/run/nvidia/driver")]
)
def test_the_driver_is_set_for_gke_with_keys_of_its_chart(who: str, root: str) -> None:
    values = values_of(spec_of(gpu_driver_from=who, values={"logVerbosity": "6"}))
    assert not list(unknown_keys("dra-driver-nvidia-gpu", values))
    assert values["nvidiaDriverRoot"] == root
    assert values["gpuResourcesEnabledOverride"] is True
    selector = {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}
    assert values["kubeletPlugin"]["nodeSelector"] == selector
    assert values["resources"] == {"computeDomains": {"enabled": False}}
    assert values["logVerbosity"] == "6"


def test_pool_labels_inform_the_autoscaler_and_advertisers() -> None:
    requests = declared(lambda: DeviceClasses("x", {}))
    assert inputs(requests["x-driver"])["chart"].startswith("oci://")
    assert labels.DRA_POOL_LABELS == {
        "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
        "gke-no-default-nvidia-gpu-device-plugin": "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.device-plugin": "false",
    }


ATTRIBUTES, CAPACITY = (f"device.{part}['gpu.nvidia.com']" for part in ("attributes", "capacity"))


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        ({}, []),
        (
            {"gpu": "A100"},
            [f"{ATTRIBUTES}.productName.replace(' ', '-') == 'NVIDIA-A100-SXM4-40GB'"],
        ),
        ({"memory": "40Gi"}, [f"{CAPACITY}.memory.compareTo(quantity('40Gi')) >= 0"]),
        ({"mig_profile": "1g.10gb"}, [f"{ATTRIBUTES}.profile == '1g.10gb'"]),
        ({"expressions": ["true"]}, ["true"]),
    ],
    ids=str,
)
def test_a_selection_in_cel(selection: dict[str, Any], found: list[str]) -> None:
    made = manifest_of(spec_of(classes={"s": selection}), "DeviceClass")["spec"]["selectors"]
    kind = "mig" if "mig_profile" in selection else "gpu"
    base = f"device.driver == 'gpu.nvidia.com' && {ATTRIBUTES}.type == '{kind}'"
    assert [item["cel"]["expression"] for item in made] == [base, *found]


def template_of(*alternatives: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The arguments of a claim template with alternatives."""
    template = {"namespace": "ml", "alternatives": list(alternatives), **more}
    return {"claim_templates": {"t": template}}


def test_one_request_is_exact_and_several_are_alternatives() -> None:
    def requests(*alternatives: dict[str, Any]) -> list[dict[str, Any]]:
        template = manifest_of(spec_of(**template_of(*alternatives)), "ResourceClaimTemplate")
        return template["spec"]["spec"]["devices"]["requests"]

    exact = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2}
    assert requests({"count": 2}) == [{"name": "gpu", "exactly": exact}]
    several = requests({"gpu": "H100"}, {"mig_profile": "3g.40gb"})[0]["firstAvailable"]
    assert [choice["deviceClassName"] for choice in several] == ["gpu.nvidia.com", "mig.nvidia.com"]
    assert len({choice["name"] for choice in several}) == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "profile of another GPU": (
        {"classes": {"small": {"gpu": "A100", "mig_profile": "1g.10gb"}}},
        'classes.small.mig_profile: is "1g.10gb"; NVIDIA-A100-SXM4-40GB can have: 1g.5gb',
    ),
    "GPU without MIG": (
        {"classes": {"small": {"gpu": "L4", "mig_profile": "1g.10gb"}}},
        "none: it has no MIG",
    ),
    "unknown GPU": ({"classes": {"small": {"gpu": "H10O"}}}, "GPU 'H10O' is not in the catalog"),
    "nothing claimed": (template_of(), "claim_templates.t.alternatives"),
    "whole GPUs of one GPU": (
        template_of({}, same_gpu=True),
        "claim_templates.t.same_gpu: is for MIG devices",
    ),
}


@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    assert_refused(DeviceClassesSpec, given, reason)


def test_children_and_their_order() -> None:
    classes: Any = {"large": {"memory": "80Gi"}}
    templates: Any = {"one-gpu": {"namespace": "ml", "alternatives": [{"device_class": "large"}]}}
    args: Any = {"classes": classes, "claim_templates": templates}
    requests = declared(lambda: DeviceClasses("x", args))
    children = {"x-namespace", "x-critical-pods", "x-driver", "x-large", "x-ml-one-gpu"}
    assert set(requests) >= {"x", *children}
    assert any(urn.endswith("::x-critical-pods") for urn in requests["x-driver"].dependencies)
    without = declared(lambda: DeviceClasses("y", {"driver": False, "classes": classes}))
    assert set(without) == {"y", "y-large"}
