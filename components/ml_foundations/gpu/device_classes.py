"""Dynamic resource allocation (DRA): NVIDIA's driver, device classes and claim templates."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pulumi
from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import GPUS, accelerator
from ml_foundations.catalog.versions import DRA_DRIVER
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.tolerations import Toleration
from ml_foundations.component.types import GpuName, Name, Quantity
from ml_foundations.gpu.agents import agent_namespace, agent_tolerations
from ml_foundations.gpu.driver_installer import GOOGLE_DRIVER_DIR
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.selectors import cel, devices
from ml_foundations.typed_args import DeviceClassesComponent

_DOMAIN = labels.GPU_DEVICE_CLASS
"""NVIDIA's driver, the domain of its devices' attributes, and the class of whole GPUs."""

_PARENT = f"{_DOMAIN}/parentUUID"
"""The attribute by which MIG devices know the GPU that they are part of."""

_DRIVER_ROOTS = {"google": GOOGLE_DRIVER_DIR, "operator": "/run/nvidia/driver"}
"""The folder of the GPU driver on a node, by its installer."""


class Selection(Spec):
    """Conditions for devices. A device must meet all of them."""

    gpu: GpuName | None = None
    """The GPU model, by any of its names."""
    memory: Quantity | None = None
    """The least memory of a device, such as 40Gi."""
    mig_profile: str | None = None
    """A MIG profile, such as 1g.10gb. The devices are then parts of GPUs."""
    expressions: list[str] = []
    """More conditions on device, in CEL."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.mig_profile is None:
            return
        models = accelerator(self.gpu).models if self.gpu else GPUS.values()
        profiles = sorted({profile for model in models for profile in model.mig_profiles})
        if self.mig_profile not in profiles:
            known = ", ".join(profiles) or "none: it has no MIG"
            yield "mig_profile", f'is "{self.mig_profile}"; {self.gpu or "GPUs"} can have: {known}'


class Request(Selection):
    """Devices that a claim requests."""

    count: int = Field(default=1, ge=1, le=32)
    """The number of devices. The default is 1."""
    device_class: str | None = None
    """The class of the devices. The default is gpu.nvidia.com. With a MIG profile, it is
    mig.nvidia.com."""

    @property
    def class_name(self) -> str:
        """The class of the devices."""
        default = _DOMAIN if self.mig_profile is None else labels.MIG_DEVICE_CLASS
        return self.device_class or default


class ClaimTemplate(Spec):
    """A template of claims. Each pod that names it gets a separate claim."""

    namespace: Name
    """The namespace of the pods."""
    alternatives: list[Request] = Field(min_length=1, max_length=8)
    """The devices that the pods need. If there are several alternatives, the first available one is
    used."""
    same_gpu: bool = False
    """Require that all MIG devices are parts of one GPU. The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.same_gpu and any(request.class_name == _DOMAIN for request in self.alternatives):
            reason = f"is for MIG devices, and an alternative asks for whole GPUs ({_DOMAIN})"
            yield "same_gpu", reason


class DeviceClassesSpec(ComponentSpec):
    """Arguments of DeviceClasses."""

    objects = {"cluster": IN_CLUSTER}

    driver: bool = True
    """Install NVIDIA's driver for DRA. The default is true. It adds the classes gpu.nvidia.com and
    mig.nvidia.com."""
    namespace: Name = "dra-driver-nvidia-gpu"
    """The driver's namespace. The default is dra-driver-nvidia-gpu."""
    gpu_driver_from: Literal["google", "operator"] = "google"
    """Who installed the GPU driver on the nodes: google or operator. The default is google."""
    compute_domains: bool = False
    """Support multi-node NVLink between the nodes' GPUs (GB200). The default is false."""
    classes: dict[Name, Selection] = {}
    """More classes of devices, by name."""
    claim_templates: dict[Name, ClaimTemplate] = {}
    """Templates of claims, by name."""
    tolerations: list[Toleration] = []
    """More taints of GPU nodes that the driver's pods tolerate. They always tolerate the GPU
    taint."""
    critical_pods: int = Field(default=1000, ge=1)
    """The number of critical pods that the driver's namespace may run: one for each GPU node, and a
    few more. The default is 1000."""
    values: dict[str, Any] = {}
    """More values of the driver's chart, merged over the component's."""

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, the driver's included."""
        return [*([_DOMAIN, labels.MIG_DEVICE_CLASS] if self.driver else []), *self.classes]

    @property
    def pool_labels(self) -> dict[str, str]:
        """Labels of a node pool whose GPUs are claimed."""
        return labels.DRA_POOL_LABELS

    @override
    def children(self) -> Iterator[ChildResource]:
        if self.driver:
            quota = "dra-driver-critical-pods"
            yield from agent_namespace(self.namespace, quota, self.critical_pods)
            before = ["critical-pods"]
            values = _chart_values(self)
            yield helm_child("driver", DRA_DRIVER, self.namespace, values, before, timeout=600)
        for name, selection in self.classes.items():
            yield ChildResource(name, _device_class(name, selection))
        # A template cannot change, and its name is what pods know.
        replaced = pulumi.ResourceOptions(replace_on_changes=["spec"], delete_before_replace=True)
        for name, template in self.claim_templates.items():
            suffix = f"{template.namespace}-{name}"
            manifest = _claim_template(name, template)
            yield ChildResource(suffix, manifest, options=replaced)


class DeviceClasses(DeviceClassesComponent[DeviceClassesSpec]):
    """NVIDIA's driver for dynamic resource allocation, with classes and claim templates for pods.

    It needs Kubernetes 1.34. Set its output ``pool_labels`` as labels of the node pools whose GPUs
    are claimed. The driver runs only on their nodes.
    """

    class_names: KnownOutput[list[str]]
    """The names of the classes, including the driver's."""
    classes: KnownOutput[dict[str, str]]
    """The same names, by name. A claim with ``classes["large"]`` waits for the class."""
    templates: KnownOutput[dict[str, str]]
    """The names of the claim templates, by name. ``gpu_claim`` of a workload accepts one as its
    template."""
    pool_labels: KnownOutput[dict[str, str]]
    """Labels of a node pool whose GPUs are claimed."""
    release = OptionalChild("driver")
    """The Helm release of the driver. None if it is not installed."""

    @override
    def outputs(self, spec: DeviceClassesSpec, made: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "classes": {name: name for name in spec.class_names},
            "templates": {name: name for name in spec.claim_templates},
        }


def _chart_values(spec: DeviceClassesSpec) -> dict[str, Any]:
    """Return values of the chart (kubernetes-sigs/dra-driver-nvidia-gpu, deployments/helm)."""
    values: dict[str, Any] = {
        "nvidiaDriverRoot": _DRIVER_ROOTS[spec.gpu_driver_from],
        # It confirms that no device plugin advertises the same GPUs. The node selector ensures it.
        "gpuResourcesEnabledOverride": True,
        "resources": {"computeDomains": {"enabled": spec.compute_domains}},
        "kubeletPlugin": {
            "nodeSelector": {labels.GKE_DRA_DRIVER: "true"},
            "tolerations": agent_tolerations(spec.tolerations),
        },
    }
    return merged(values, spec.values)


def _device_class(name: str, selection: Selection) -> dict[str, Any]:
    kind = "gpu" if selection.mig_profile is None else "mig"
    base = f"device.driver == '{_DOMAIN}' && device.attributes['{_DOMAIN}'].type == '{kind}'"
    spec = {"selectors": cel([base, *_expressions(selection)])}
    return api_object("resource.k8s.io/v1", "DeviceClass", {"name": name}, spec=spec)


def _claim_template(name: str, template: ClaimTemplate) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    for choice in template.alternatives:
        choices.append(devices(choice.class_name, choice.count, _expressions(choice)))
    request: dict[str, Any] = {"name": "gpu"}
    if len(choices) == 1:
        [request["exactly"]] = choices
    else:
        named = enumerate(choices)
        request["firstAvailable"] = [{"name": f"choice-{index}", **one} for index, one in named]
    claimed: dict[str, Any] = {"requests": [request]}
    if template.same_gpu:
        claimed["constraints"] = [{"matchAttribute": _PARENT}]
    metadata = {"name": name, "namespace": template.namespace}
    spec = {"spec": {"devices": claimed}}
    return api_object("resource.k8s.io/v1", "ResourceClaimTemplate", metadata, spec=spec)


def _expressions(selection: Selection) -> list[str]:
    """Return a selection in CEL, over the device attributes that the driver publishes."""
    attributes = f"device.attributes['{_DOMAIN}']"
    capacity = f"device.capacity['{_DOMAIN}']"
    expressions: list[str] = []
    if selection.gpu is not None:
        # GPU Feature Discovery's label is the product's name with dashes for spaces.
        name = f"{attributes}.productName.replace(' ', '-')"
        expressions.append(f"{name} == '{accelerator(selection.gpu).product}'")
    if selection.memory is not None:
        expressions.append(f"{capacity}.memory.compareTo(quantity('{selection.memory}')) >= 0")
    if selection.mig_profile is not None:
        expressions.append(f"{attributes}.profile == '{selection.mig_profile}'")
    return expressions + selection.expressions
