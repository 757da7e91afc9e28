"""Quotas of a team, and the priority classes that separate GPU models."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast

import pulumi
from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import override

from ml_foundations.catalog.gpu_labels import exact_terms
from ml_foundations.catalog.machine_types import Accelerator, UnknownNameError, accelerator
from ml_foundations.component.children import ChildResource
from ml_foundations.component.data import yaml_file
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name, Quantity, derived
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.quantities import canonical_quantity
from ml_foundations.kubernetes.quotas import uncounted

_GPU_QUOTA = f"requests.{labels.GPU_RESOURCE}"
_GPU_DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
"""GPUs that resource claims take: the device class of NVIDIA's DRA driver."""
_ADMISSION = "admissionregistration.k8s.io/v1"

MAX_PRIORITY = 1_000_000_000
"""The highest priority that is not the system's."""


def gpu_key(name: str) -> str:
    """Return the name of a GPU by its accelerator type, in lower case as names of objects are.

    Raises:
        UnknownNameError: No GPU in the catalog goes by the name.
    """
    # A product label of several types keeps its name: these are other GPUs than those of one type.
    return accelerator(name).typed_name.lower()


_GpuModel = Annotated[str, AfterValidator(gpu_key)]
"""A GPU by any of its names; it becomes the accelerator type, which also fits into names of
objects."""


def _each_once(value: Any) -> Any:
    """Refuse two names of one GPU, because only the last would count."""
    seen: dict[str, str] = {}
    for name in map(str, cast("dict[Any, Any]", value) if isinstance(value, dict) else ()):
        try:
            key = gpu_key(name)
        except UnknownNameError:  # which is reported by its path
            continue
        if key in seen:
            raise ValueError(f"has {key} twice, as {seen[key]} and {name}. Keep one of them")
        seen[key] = name
    return cast("Any", value)


class TeamQuota(Spec):
    """The most that a team may use."""

    gpus: int = Field(ge=0)
    """The most GPUs that the team's pods may request at once, 0 for none."""
    gpus_by_model: Annotated[dict[_GpuModel, int], BeforeValidator(_each_once)] = {}
    """The most GPUs of each model, by any of its names. If it is set, only these models can be
    requested. Pods with GPUs then need the PriorityClass of their model, `<namespace>-<accelerator
    type>`, such as research-nvidia-l4."""
    claimed_gpus: int = Field(default=0, ge=0)
    """The most GPUs that resource claims (DRA) may request, in addition to gpus. The default is
    0."""
    cpu: Quantity
    """The most CPU that the pods may request, such as 64."""
    memory: Quantity
    """The most memory that the pods may request, such as 512Gi."""
    storage: Quantity
    """The most storage that claims may request, such as 4Ti."""
    storage_by_class: dict[Name, Quantity] = {}
    """The most storage of a storage class, such as {"hyperdisk-extreme": "1Ti"}."""
    volumes: int = Field(default=20, ge=0)
    """The most claims. The default is 20."""
    jobs: int = Field(default=100, ge=0)
    """The most Jobs. The default is 100."""
    pods: int = Field(default=200, ge=1)
    """The most pods. The default is 200."""
    services: int = Field(default=50, ge=0)
    """The most Services. The default is 50."""
    load_balancers: int = Field(default=0, ge=0)
    """The most Services with a load balancer, which is open to its network. The default is 0."""
    extra_quota: dict[str, Quantity] = {}
    """More quota items, such as {"count/configmaps": 100}."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        for item in self.extra_quota:
            if fault := uncounted(item):
                is_gpus = item.removeprefix("limits.") == labels.GPU_RESOURCE
                fix = "Set gpus" if is_gpus else fault.fix
                yield f"extra_quota.{item}", f"limits nothing: {fault.reason}. {fix}"
        for item in self.extra_quota.keys() & _hard(self).keys():
            yield f"extra_quota.{item}", "has a separate argument; set that instead"
        for model, gpus in self.gpus_by_model.items():
            if not 0 <= gpus <= self.gpus:
                reason = f"is {gpus}; it must be from 0 to gpus ({self.gpus})"
                yield f"gpus_by_model.{model}", reason


def _hard(quota: TeamQuota) -> dict[str, str]:
    of_class = "storageclass.storage.k8s.io/requests.storage"
    by_class = {f"{name}.{of_class}": most for name, most in quota.storage_by_class.items()}
    return {
        _GPU_QUOTA: canonical_quantity(quota.gpus),
        _GPU_DEVICES: canonical_quantity(quota.claimed_gpus),
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


def priority_class_name(namespace: str, key: str) -> str:
    """Return the name of a team's PriorityClass: of a GPU model, or of a requested name."""
    return derived(namespace, f"-{key}", limit=253)


def quota_children(
    namespace: str, quota: TeamQuota, priorities: Mapping[str, int]
) -> Iterator[ChildResource]:
    """Yield the PriorityClasses, the ResourceQuotas, and the policy that ties pods to GPU models.

    A ResourceQuota knows pods by their PriorityClass and not by their nodes. So each model has a
    class, its quota counts the pods of that class, and pods of no such class get no GPUs.
    """
    # A priority cannot change, and its class's name is what pods know.
    fixed = pulumi.ResourceOptions(replace_on_changes=["value"], delete_before_replace=True)
    for key, value in {**dict.fromkeys(quota.gpus_by_model, 0), **priorities}.items():
        metadata = {"name": priority_class_name(namespace, key)}
        fields = {"value": value, "description": f"Pods of the team {namespace}."}
        manifest = api_object("scheduling.k8s.io/v1", "PriorityClass", metadata, **fields)
        yield ChildResource(f"priority-{key}", manifest, options=fixed)
    yield _quota(namespace, "team-quota", _hard(quota) | quota.extra_quota)
    classes = {model: priority_class_name(namespace, model) for model in quota.gpus_by_model}
    for model, gpus in quota.gpus_by_model.items():
        of_model = _scope("In", [classes[model]])
        yield _quota(namespace, f"gpus-{model}", {_GPU_QUOTA: canonical_quantity(gpus)}, of_model)
    if classes:
        others = _scope("NotIn", [*classes.values()])
        yield _quota(namespace, "gpus-other", {_GPU_QUOTA: "0"}, others)
        yield from _model_policy(namespace, classes)


def _scope(operator: str, classes: list[str]) -> dict[str, Any]:
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": classes}
    return {"matchExpressions": [scope]}


def _quota(
    namespace: str, name: str, hard: Mapping[str, str], scope: dict[str, Any] | None = None
) -> ChildResource:
    spec = without_none({"hard": dict(hard), "scopeSelector": scope})
    manifest = api_object("v1", "ResourceQuota", {"name": name, "namespace": namespace}, spec=spec)
    return ChildResource(name.removeprefix("team-"), manifest, depends_on=["namespace"])


def _model_policy(namespace: str, classes: Mapping[str, str]) -> Iterator[ChildResource]:
    """Yield the policy that ties pods of a model's class to its nodes, and the policy's binding."""
    metadata = {"name": f"{namespace}-gpu-models"}
    models = {name: [*_expressions(accelerator(model))] for model, name in classes.items()}
    spec = yaml_file("tenancy", "gpu_models_policy.yaml", models=json.dumps(models))
    policy = api_object(_ADMISSION, "ValidatingAdmissionPolicy", metadata, spec=spec)
    yield ChildResource("gpu-models", policy)
    pods = {"namespaceSelector": {"matchLabels": {labels.NAMESPACE_NAME: namespace}}}
    spec = {"policyName": metadata["name"], "validationActions": ["Deny"], "matchResources": pods}
    binding = api_object(_ADMISSION, "ValidatingAdmissionPolicyBinding", metadata, spec=spec)
    yield ChildResource("gpu-models-binding", binding, depends_on=["gpu-models"])


def _expressions(gpu: Accelerator) -> Iterator[list[list[str]]]:
    """Yield the terms of GPUs as lists of text, which CEL compares: key, operator and values."""
    for term in exact_terms(gpu):
        yield [
            [expression["key"], expression["operator"], *expression.get("values", ())]
            for expression in term
        ]
