"""GPUs by dynamic resource allocation (DRA): NVIDIA's driver for it, classes of devices, and templates of claims."""

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import GPUS
from ml_foundations.catalog.versions import DRA_DRIVER
from ml_foundations.component.resources import arguments, child_options
from ml_foundations.component.spec import Spec, check
from ml_foundations.component.tolerations import Toleration, TolerationArgs, toleration_manifest
from ml_foundations.component.types import GpuProduct, Name, Quantity
from ml_foundations.gpu.critical_pods import critical_pods_quota
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged, without_none

DOMAIN = labels.GPU_DEVICE_CLASS
"""NVIDIA's driver, the domain of its devices' attributes, and the class of whole GPUs."""

MIG_CLASS = "mig.nvidia.com"
PARENT = f"{DOMAIN}/parentUUID"
"""The attribute by which MIG devices know the GPU that they are part of."""

DRIVER_ROOTS = {"google": GOOGLE_DRIVER_DIR, "operator": "/run/nvidia/driver"}
"""Where the GPU driver is on a node, by who installed it."""


class SelectionArgs(TypedDict):
    """Which devices will do. All that is said must hold."""

    gpu: NotRequired[str]
    """The GPU model, by any of its names."""
    memory: NotRequired[str]
    """The least memory of a device, such as 40Gi."""
    mig_profile: NotRequired[str]
    """A MIG profile, such as 1g.10gb: then the devices are parts of GPUs."""
    expressions: NotRequired[list[str]]
    """More conditions in CEL, over device."""


class RequestArgs(SelectionArgs):
    """Devices that a claim asks for."""

    count: NotRequired[int]
    """How many; default 1."""
    device_class: NotRequired[str]
    """Their class; by default gpu.nvidia.com, or mig.nvidia.com with a MIG profile."""


class ClaimTemplateArgs(TypedDict):
    """A template: each pod that names it gets a claim of its own."""

    namespace: str
    """The namespace of the pods."""
    alternatives: list[RequestArgs]
    """What the pods need; where there are several, the first that can be had."""
    same_gpu: NotRequired[bool]
    """Whether MIG devices must be parts of one GPU; default false."""


class DeviceClassesArgs(TypedDict):
    """Arguments of DeviceClasses."""

    driver: NotRequired[bool]
    """Whether NVIDIA's driver for DRA is installed; default true. It brings gpu.nvidia.com and mig.nvidia.com."""
    namespace: NotRequired[str]
    """The driver's namespace; default dra-driver-nvidia-gpu."""
    gpu_driver_from: NotRequired[str]
    """Who installed the GPU driver on the nodes: google or operator; default google."""
    compute_domains: NotRequired[bool]
    """Whether the nodes' GPUs are joined by multi-node NVLink (GB200); default false."""
    classes: NotRequired[dict[str, SelectionArgs]]
    """More classes of devices, by name."""
    claim_templates: NotRequired[dict[str, ClaimTemplateArgs]]
    """Templates of claims, by name."""
    tolerations: NotRequired[list[TolerationArgs]]
    """More taints of GPU nodes that the driver's pods put up with; the GPU taint is always among them."""
    critical_pods: NotRequired[int]
    """How many critical pods the driver's namespace may run: one per GPU node, and a few. Default 100."""
    values: NotRequired[dict[str, Any]]
    """More values of the driver's chart, merged on top."""


class Selection(Spec):
    """A checked SelectionArgs."""

    gpu: GpuProduct | None = None
    memory: Quantity | None = None
    mig_profile: str | None = None
    expressions: list[str] = []

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.mig_profile is None:
            return
        models = [model for model in GPUS.values() if self.gpu in (None, model.product)]
        profiles = sorted({profile for model in models for profile in model.mig_profiles})
        if self.mig_profile not in profiles:
            known = ", ".join(profiles) or "none: it has no MIG"
            yield "mig_profile", f'is "{self.mig_profile}"; {self.gpu or "GPUs"} can have: {known}'


class Request(Selection):
    """A checked RequestArgs."""

    count: int = Field(default=1, ge=1, le=32)
    device_class: str | None = None

    @property
    def class_name(self) -> str:
        """The class of the devices."""
        return self.device_class or (DOMAIN if self.mig_profile is None else MIG_CLASS)


class ClaimTemplate(Spec):
    """A checked ClaimTemplateArgs."""

    namespace: Name
    alternatives: list[Request] = Field(min_length=1, max_length=8)
    same_gpu: bool = False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.same_gpu and any(request.class_name == DOMAIN for request in self.alternatives):
            yield "same_gpu", f"is for MIG devices, and an alternative asks for whole GPUs ({DOMAIN})"


class DeviceClassesSettings(Spec):
    """What a stack file says about DRA."""

    driver: bool = True
    namespace: Name = "dra-driver-nvidia-gpu"
    gpu_driver_from: Literal["google", "operator"] = "google"
    compute_domains: bool = False
    classes: dict[Name, Selection] = {}
    claim_templates: dict[Name, ClaimTemplate] = {}
    tolerations: list[Toleration] = []
    critical_pods: int = Field(default=100, ge=1)
    values: dict[str, Any] = {}


class DeviceClasses(pulumi.ComponentResource):
    """NVIDIA's driver for dynamic resource allocation, and the classes and templates with which pods claim GPUs.

    Needs Kubernetes 1.34. Give it a kubernetes provider in its options. Node pools whose GPUs are claimed have the
    labels that it publishes; the driver runs on their nodes only.
    """

    class_names: list[str]
    """The names of the classes, the driver's included."""
    pool_labels: dict[str, str]
    """Labels of a node pool whose GPUs are claimed."""

    def __init__(self, name: str, args: DeviceClassesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare driver, classes and templates."""
        spec = check(DeviceClassesSettings, f"DeviceClasses {name}", args)
        super().__init__("ml-foundations:index:DeviceClasses", name, {}, opts)
        if spec.driver:
            _driver(self, name, spec)
        for class_name, selection in spec.classes.items():
            k8s.resource.v1.DeviceClass(
                f"{name}-{class_name}",
                **arguments(device_class_manifest(class_name, selection)),
                opts=child_options(self),
            )
        for template_name, template in spec.claim_templates.items():
            k8s.resource.v1.ResourceClaimTemplate(
                f"{name}-{template.namespace}-{template_name}",
                **arguments(claim_template_manifest(template_name, template)),
                # A template cannot change, and its name is what pods know.
                opts=child_options(self, replace_on_changes=["spec"], delete_before_replace=True),
            )
        self.class_names = [*([DOMAIN, MIG_CLASS] if spec.driver else []), *spec.classes]
        self.pool_labels = labels.DRA_POOL_LABELS
        self.register_outputs({"class_names": self.class_names, "pool_labels": self.pool_labels})


def _driver(parent: DeviceClasses, name: str, spec: DeviceClassesSettings) -> None:
    namespace = k8s.core.v1.Namespace(
        f"{name}-namespace",
        metadata={"name": spec.namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        opts=child_options(parent),
    )
    manifest = critical_pods_quota("dra-driver-critical-pods", spec.namespace, spec.critical_pods)
    quota = k8s.core.v1.ResourceQuota(
        f"{name}-critical-pods", **arguments(manifest), opts=child_options(parent, depends_on=[namespace])
    )
    k8s.helm.v3.Release(
        f"{name}-driver",
        name=DRA_DRIVER.name,
        chart=f"{DRA_DRIVER.repo}/{DRA_DRIVER.name}",
        version=DRA_DRIVER.version,
        namespace=spec.namespace,
        values=chart_values(spec),
        timeout=600,
        opts=child_options(parent, depends_on=[quota]),
    )


def chart_values(spec: DeviceClassesSettings) -> dict[str, Any]:
    """Values of the chart (kubernetes-sigs/dra-driver-nvidia-gpu, deployments/helm of the pinned version)."""
    tolerations = [{"key": labels.GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}]
    tolerations += [toleration_manifest(toleration) for toleration in spec.tolerations]
    values: dict[str, Any] = {
        "nvidiaDriverRoot": DRIVER_ROOTS[spec.gpu_driver_from],
        # The chart asks to confirm that no device plugin advertises the same GPUs: the node selector sees to it.
        "gpuResourcesEnabledOverride": True,
        "resources": {"computeDomains": {"enabled": spec.compute_domains}},
        "kubeletPlugin": {"nodeSelector": {labels.GKE_DRA_DRIVER: "true"}, "tolerations": tolerations},
    }
    return merged(values, spec.values)


def device_class_manifest(name: str, selection: Selection) -> dict[str, Any]:
    """A DeviceClass of NVIDIA devices, whole GPUs or MIG devices."""
    kind = "gpu" if selection.mig_profile is None else "mig"
    base = f"device.driver == '{DOMAIN}' && device.attributes['{DOMAIN}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": _cel([base, *expressions(selection)])},
    }


def claim_template_manifest(name: str, template: ClaimTemplate) -> dict[str, Any]:
    """A ResourceClaimTemplate with one request, exact or with alternatives."""
    wanted = [_request(request) for request in template.alternatives]
    if len(wanted) == 1:
        request: dict[str, Any] = {"name": "gpu", "exactly": wanted[0]}
    else:
        named = [{"name": f"choice-{index}", **each} for index, each in enumerate(wanted)]
        request = {"name": "gpu", "firstAvailable": named}
    devices: dict[str, Any] = {"requests": [request]}
    if template.same_gpu:
        devices["constraints"] = [{"matchAttribute": PARENT}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": template.namespace},
        "spec": {"spec": {"devices": devices}},
    }


def _request(request: Request) -> dict[str, Any]:
    selectors = _cel(expressions(request))
    return without_none(
        {
            "deviceClassName": request.class_name,
            "allocationMode": "ExactCount",
            "count": request.count,
            "selectors": selectors or None,
        }
    )


def expressions(selection: Selection) -> list[str]:
    """A selection in CEL, over what the driver publishes (its documentation, "ResourceSlice device attributes")."""
    attributes, capacity = f"device.attributes['{DOMAIN}']", f"device.capacity['{DOMAIN}']"
    found: list[str] = []
    if selection.gpu is not None:
        # GPU Feature Discovery's label is the product's name with dashes for spaces.
        found.append(f"{attributes}.productName.replace(' ', '-') == '{selection.gpu}'")
    if selection.memory is not None:
        found.append(f"{capacity}.memory.compareTo(quantity('{selection.memory}')) >= 0")
    if selection.mig_profile is not None:
        found.append(f"{attributes}.profile == '{selection.mig_profile}'")
    return found + selection.expressions


def _cel(conditions: list[str]) -> list[dict[str, Any]]:
    return [{"cel": {"expression": condition}} for condition in conditions]
