"""GPUs that a workload claims by dynamic resource allocation (DRA), instead of from the device plugin."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from ml_foundations.component.resources import arguments, child_options
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import overridden, without_none
from ml_foundations.workloads.naming import named_by_content
from ml_foundations.workloads.pod import WorkloadSpec, app_labels

GPU_CLAIM = "gpus"
"""The name by which a pod and its container know their claim of GPUs."""


def claim_template_manifest(spec: WorkloadSpec) -> dict[str, Any] | None:
    """The ResourceClaimTemplate of a workload with a ``gpu_claim``.

    Its name tells its content: a template cannot change, and pods take up another one by another name.
    """
    if spec.gpu_claim is None or spec.gpu_claim.template is not None:
        return None
    selectors = [*_product_selectors(spec), *spec.gpu_claim.selectors]
    exactly = without_none(
        {
            "deviceClassName": spec.gpu_claim.device_class,
            "allocationMode": "ExactCount",
            "count": spec.gpus,
            "selectors": [{"cel": {"expression": expression}} for expression in selectors] or None,
        }
    )
    manifest = overridden(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": spec.namespace, "labels": app_labels(spec)},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        },
        spec.overrides,
    )
    manifest["metadata"]["name"] = named_by_content(f"{spec.workload_name}-gpus", manifest["spec"])
    return manifest


def declare_claim_template(component: pulumi.Resource, name: str, spec: WorkloadSpec) -> list[pulumi.Resource]:
    """Declare the ResourceClaimTemplate, where there is a ``gpu_claim``; what has its pods comes after it."""
    manifest = claim_template_manifest(spec)
    if manifest is None:
        return []
    template = k8s.resource.v1.ResourceClaimTemplate(
        f"{name}-gpu-claim", **arguments(manifest), opts=child_options(component)
    )
    return [template]


def resource_claims(spec: WorkloadSpec) -> list[dict[str, Any]] | None:
    """The claims of a pod: each of its own, by a template."""
    if spec.gpu_claim is None:
        return None
    made = claim_template_manifest(spec)
    template = spec.gpu_claim.template if made is None else made["metadata"]["name"]
    return [{"name": GPU_CLAIM, "resourceClaimTemplateName": template}]


def _product_selectors(spec: WorkloadSpec) -> list[str]:
    """GPU Feature Discovery's label is the product's name with dashes for spaces; DRA publishes the name itself."""
    attribute = f'device.attributes["{labels.GPU_DEVICE_CLASS}"].productName'
    return [] if spec.gpu is None else [f'{attribute}.replace(" ", "-") == "{spec.gpu}"']
