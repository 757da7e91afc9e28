"""What a team may use: quotas, limits and the priority classes that tell GPU models apart."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import AfterValidator, Field
from typing_extensions import override

from ml_foundations.catalog.machine_types import UnknownNameError, gpu_by_name
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name, Quantity, derived
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import canonical_quantity

GPU_QUOTA = f"requests.{labels.GPU_RESOURCE}"
GPU_DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
"""GPUs that resource claims take: the device class of NVIDIA's DRA driver."""

MAX_PRIORITY = 1_000_000_000
"""The highest priority that is not the system's."""


def _accelerator_type(name: str) -> str:
    try:
        return gpu_by_name(name).accelerator_type
    except UnknownNameError as error:
        raise ValueError(str(error)) from None


GpuModel = Annotated[str, AfterValidator(_accelerator_type)]
"""A GPU by any of its names; it becomes the accelerator type, which also fits into names of objects."""


class QuotaArgs(TypedDict):
    """What a team may use."""

    gpus: int
    """The most GPUs that the team's pods may request at once; 0 for none."""
    gpus_by_model: NotRequired[dict[str, int]]
    """The most GPUs of each model, by any of its names. Pods with GPUs then need the PriorityClass of their model,
    `<namespace>-<accelerator type>`, such as research-nvidia-l4, and no other GPUs are given."""
    claimed_gpus: NotRequired[int]
    """The most GPUs that resource claims may take (DRA), beside gpus; default 0."""
    cpu: str
    """The most CPU that they may request, such as 64."""
    memory: str
    """The most memory that they may request, such as 512Gi."""
    storage: str
    """The most storage that claims may request, such as 4Ti."""
    storage_by_class: NotRequired[dict[str, str]]
    """The most storage of a storage class, such as {"hyperdisk-extreme": "1Ti"}."""
    volumes: NotRequired[int]
    """The most claims; default 20."""
    jobs: NotRequired[int]
    """The most Jobs; default 100."""
    pods: NotRequired[int]
    """The most pods; default 200."""
    services: NotRequired[int]
    """The most Services; default 50."""
    load_balancers: NotRequired[int]
    """The most Services with a load balancer of their own, open to its network; default 0."""
    extra_quota: NotRequired[dict[str, str]]
    """More quota items, such as count/configmaps: 100."""


class QuotaSettings(Spec):
    """What a stack file says about a team's quota."""

    gpus: int = Field(ge=0)
    gpus_by_model: dict[GpuModel, int] = {}
    claimed_gpus: int = Field(default=0, ge=0)
    cpu: Quantity
    memory: Quantity
    storage: Quantity
    storage_by_class: dict[Name, Quantity] = {}
    volumes: int = Field(default=20, ge=0)
    jobs: int = Field(default=100, ge=0)
    pods: int = Field(default=200, ge=1)
    services: int = Field(default=50, ge=0)
    load_balancers: int = Field(default=0, ge=0)
    extra_quota: dict[str, Quantity] = {}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        for item in (f"limits.{labels.GPU_RESOURCE}", labels.GPU_RESOURCE):
            if item in self.extra_quota:
                reason = "is no quota: for extended resources Kubernetes counts requests only. Set gpus"
                yield f"extra_quota.{item}", reason
        for item in self.extra_quota.keys() & _hard(self).keys():
            yield f"extra_quota.{item}", "has an argument of its own; set that"
        for model, gpus in self.gpus_by_model.items():
            if not 0 <= gpus <= self.gpus:
                yield f"gpus_by_model.{model}", f"is {gpus}; it must be from 0 to gpus ({self.gpus})"


def _hard(quota: QuotaSettings) -> dict[str, str]:
    by_class = {f"{name}.storageclass.storage.k8s.io/requests.storage": q for name, q in quota.storage_by_class.items()}
    return {
        GPU_QUOTA: canonical_quantity(quota.gpus),
        GPU_DEVICES: canonical_quantity(quota.claimed_gpus),
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        "requests.storage": quota.storage,
        **by_class,
        "persistentvolumeclaims": canonical_quantity(quota.volumes),
        "count/jobs.batch": canonical_quantity(quota.jobs),
        "pods": canonical_quantity(quota.pods),
        "services": canonical_quantity(quota.services),
        "services.loadbalancers": canonical_quantity(quota.load_balancers),
        "services.nodeports": canonical_quantity(quota.load_balancers),
    }


def quota_manifests(namespace: str, quota: QuotaSettings) -> list[dict[str, Any]]:
    """The ResourceQuotas: one for the whole namespace, and where models are told apart, one for each and for the rest.

    A ResourceQuota knows pods by their PriorityClass and not by their nodes. So each model has a class, its quota
    counts the pods of that class, and pods of no such class get no GPUs.
    """
    manifests = [_quota(namespace, "team-quota", _hard(quota) | quota.extra_quota)]
    for model, gpus in quota.gpus_by_model.items():
        scope = _scope("In", [model_class(namespace, model)])
        manifests.append(_quota(namespace, f"gpus-{model}", {GPU_QUOTA: canonical_quantity(gpus)}, scope))
    if quota.gpus_by_model:
        scope = _scope("NotIn", [model_class(namespace, model) for model in quota.gpus_by_model])
        manifests.append(_quota(namespace, "gpus-other", {GPU_QUOTA: "0"}, scope))
    return manifests


def _scope(operator: str, classes: list[str]) -> dict[str, Any]:
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": classes}]}


def _quota(namespace: str, name: str, hard: Mapping[str, str], scope: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": dict(hard)} | ({"scopeSelector": scope} if scope else {}),
    }


def model_class(namespace: str, model: str) -> str:
    """The PriorityClass of a team's pods that use GPUs of a model."""
    return derived(namespace, f"-{model}", limit=253)


def priority_class_manifests(
    namespace: str, quota: QuotaSettings, priorities: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The team's PriorityClasses: of its GPU models, all alike, and those it asked for."""
    models = {model_class(namespace, model): 0 for model in quota.gpus_by_model}
    others = {derived(namespace, f"-{name}", limit=253): value for name, value in priorities.items()}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": f"Pods of the team {namespace}.",
        }
        for name, value in (models | others).items()
    ]


def model_policy_manifest(namespace: str, quota: QuotaSettings) -> dict[str, Any]:
    """The rule without which a pod could count for one model and run on another: its class names its GPUs."""
    products = {model_class(namespace, model): gpu_by_name(model).product for model in quota.gpus_by_model}
    listed = ", ".join(f"'{name}': '{product}'" for name, product in products.items())
    selected = f"object.spec.?nodeSelector[?'{labels.GPU_PRODUCT}'].orValue('')"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{namespace}-gpu-models"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "variables": [
                {"name": "models", "expression": f"{{{listed}}}"},
                {"name": "priority", "expression": "object.spec.?priorityClassName.orValue('')"},
            ],
            "validations": [
                {
                    "expression": f"!(variables.priority in variables.models) || "
                    f"{selected} == variables.models[variables.priority]",
                    "messageExpression": f"'pods of the class ' + variables.priority + ' need the node selector "
                    f"{labels.GPU_PRODUCT}: ' + variables.models[variables.priority]",
                }
            ],
        },
    }


def model_policy_binding_manifest(namespace: str) -> dict[str, Any]:
    """The rule holds in the team's namespace."""
    name = f"{namespace}-gpu-models"
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }


def limit_range_manifest(
    namespace: str, default_cpu: str, default_memory: str, largest_volume: str | None
) -> dict[str, Any]:
    """The LimitRange: a quota on CPU and memory refuses pods that ask for none, so they get a default.

    It says nothing of GPUs. A maximum for containers would become the default of all of them, and one for pods would
    refuse those that ask for none.
    """
    default = {"cpu": default_cpu, "memory": default_memory}
    limits: list[dict[str, Any]] = [{"type": "Container", "default": default, "defaultRequest": default}]
    if largest_volume is not None:
        limits.append({"type": "PersistentVolumeClaim", "max": {"storage": largest_volume}})
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "team-limits", "namespace": namespace},
        "spec": {"limits": limits},
    }
