"""The pod of a workload: GPUs, placement, volumes, and a safe security context."""

from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.catalog.gpu_labels import beyond_product, gpu_terms
from ml_foundations.catalog.injections import sidecar_resources
from ml_foundations.catalog.machine_types import accelerator
from ml_foundations.component.tolerations import (
    GPU_TOLERATION,
    Toleration,
    class_selector,
    class_tolerations,
    toleration_manifest,
)
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import merged, strategic_merge, without_none
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.selectors import REQUIRED, required_node_affinity
from ml_foundations.workloads.environment import environment, environment_sources
from ml_foundations.workloads.fabric import INTERFACES_CLAIM
from ml_foundations.workloads.gpu_claim import GPU_CLAIM
from ml_foundations.workloads.mounts import mount_manifests, volume_manifests
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.topology import topology_annotations

_SPOT_TOLERATION = Toleration.model_validate(
    {"key": labels.GKE_SPOT, "value": "true", "effect": "NoSchedule"}
)
"""GKE recommends to taint Spot nodes so (GKE, "Run fault-tolerant workloads on Spot VMs")."""


def pod_template(
    spec: WorkloadSpec,
    restart_policy: str,
    container: Mapping[str, Any],
    env: Mapping[str, Mapping[str, Any]] | None = None,
    pod: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the pod template, with ``pod_overrides`` merged over it as by ``kubectl patch``.

    The component adds variables, unless the user sets them, and fields of the PodSpec; those of
    the container may replace some. The restart policy is Always, OnFailure or Never.
    """
    account = spec.service_account
    inits = [_secured(spec, "initContainers", item) for item in spec.init_containers]
    sides = [_secured(spec, "containers", item) for item in spec.side_containers]
    made = without_none(
        {
            "hostname": spec.hostname,
            "subdomain": spec.subdomain,
            **(pod or {}),
            "restartPolicy": restart_policy,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # Kubernetes fills in default, and an upgrade would replace Jobs that write it.
            "serviceAccountName": None if account == "default" else account,
            "terminationGracePeriodSeconds": spec.grace_seconds,
            "priorityClassName": spec.priority_class,
            "runtimeClassName": spec.runtime_class,
            "schedulerName": spec.scheduler,
            "hostNetwork": spec.host_network or None,
            "dnsPolicy": "ClusterFirstWithHostNet" if spec.host_network else None,
            "hostIPC": spec.host_ipc or None,
            "securityContext": _pod_security(spec),
            "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets] or None,
            "nodeSelector": class_selector(spec.compute_class) | spec.node_selector or None,
            "affinity": _affinity(spec) or None,
            "tolerations": _tolerations(spec),
            "resourceClaims": _resource_claims(spec) or None,
            "initContainers": [*inits, *spec.fabric.daemons, *items(pod or {}, "initContainers")]
            or None,
            "containers": [_container(spec, env or {}) | dict(container), *sides],
            "volumes": [*volume_manifests(spec.all_mounts), *spec.own_volumes] or None,
        }
    )
    metadata: dict[str, Any] = {"labels": spec.pod_labels}
    if annotations := _annotations(spec):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": strategic_merge(made, spec.pod_overrides)}


def _resource_claims(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Return the pod's claims, of GPUs and of interfaces between them."""
    templates: dict[str, Any] = {}
    if spec.gpu_claim is not None:
        made = spec.claim_template()
        templates[GPU_CLAIM] = made["metadata"]["name"] if made else spec.gpu_claim.template
    if interfaces := spec.interfaces_template():
        templates[INTERFACES_CLAIM] = interfaces["metadata"]["name"]
    return [{"name": name, "resourceClaimTemplateName": of} for name, of in templates.items()]


def _pod_security(spec: WorkloadSpec) -> dict[str, Any]:
    """Return the pod's security context.

    It meets the level restricted, or baseline for root and for the image's own user.
    """
    fields = {
        "runAsNonRoot": True if spec.user else None,
        "runAsUser": spec.user,
        "fsGroup": spec.run_as_user,
        # Otherwise each start would walk through the whole volume.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return without_none(fields)


def _container_security(spec: WorkloadSpec, given: Iterable[Manifest]) -> dict[str, Any]:
    fields: dict[str, Any] = {"capabilities": {"drop": ["ALL"]}} if spec.user else {}
    for container in given:
        context = section(container, "securityContext")
        added = section(context, "capabilities").get("add", ())
        # The API server refuses these together with allowPrivilegeEscalation: false.
        if context.get("privileged") or "CAP_SYS_ADMIN" in added:
            return fields
    return {"allowPrivilegeEscalation": False, **fields}


def _container(spec: WorkloadSpec, env: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    overrides = spec.overrides_of("containers", spec.container_name)
    security = {"privileged": True} if spec.privileged else _container_security(spec, overrides)
    if spec.fabric.capabilities and not spec.privileged:
        security = merged(security, {"capabilities": {"add": spec.fabric.capabilities}})
    requests = dict(spec.requested)
    if spec.gpus and spec.gpu_claim is None:
        requests[labels.GPU_RESOURCE] = str(spec.gpus)
    requests |= dict.fromkeys(spec.fabric.unrequested, "0")
    claims = [{"name": claim["name"]} for claim in _resource_claims(spec)] or None
    # Requests equal limits, so that a pod is evicted last.
    limits = without_none({**requests, **spec.limits}) or None
    resources = {"requests": requests or None, "limits": limits, "claims": claims}
    component_env = {**spec.own_env, **env}
    variables = environment(
        component_env, spec.field_env, spec.secret_env, spec.config_env, spec.env
    )
    fields = {
        "name": spec.container_name,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": spec.program,
        "args": spec.program_arguments,
        "workingDir": spec.working_dir,
        "env": variables or None,
        "envFrom": environment_sources(spec.env_from) or None,
        "resources": without_none(resources),
        "securityContext": security,
        "volumeMounts": [*mount_manifests(spec.all_mounts), *spec.own_mounts] or None,
    }
    return without_none(fields)


def _secured(spec: WorkloadSpec, field: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's container with the component's security settings as defaults."""
    given = [container, *spec.overrides_of(field, container.get("name", ""))]
    return strategic_merge({"securityContext": _container_security(spec, given)}, container)


def _annotations(spec: WorkloadSpec) -> dict[str, str]:
    """Return the annotations. A pod with a bucket gets GKE's sidecar by one of them."""
    drivers = [section(mount.source(), "csi").get("driver") for mount in spec.all_mounts]
    is_bucket = labels.GCS_FUSE_DRIVER in drivers or any(mount.fuse for mount in spec.all_mounts)
    fuse: dict[str, str] = {}
    if is_bucket:
        fuse = {labels.GCS_FUSE_VOLUMES: "true", **sidecar_resources(spec.annotations)}
    topology = topology_annotations(spec.topology, spec.topology_slices)
    return {**fuse, **topology, **spec.fabric.annotations, **spec.pod_annotations}


def _affinity(spec: WorkloadSpec) -> dict[str, Any]:
    """Return the affinity: GPU pods run on their GPUs' nodes, other pods on nodes without GPUs."""
    component_terms: list[list[dict[str, Any]]] = []
    gpus = [accelerator(model) for model in spec.models]
    if not spec.takes_gpus:
        component_terms = [[{"key": labels.GKE_ACCELERATOR, "operator": "DoesNotExist"}]]
    elif gpus and spec.gpu_claim is None:
        component_terms = [*gpu_terms(gpus, by_gke=spec.accelerator_label)]
    elif expressions := beyond_product(gpus):  # a claim itself selects GPUs by their product
        component_terms = [expressions]
    required = required_node_affinity({"affinity": spec.affinity}) or {}
    # Of several terms one is enough, so each of the user's terms needs the component's expressions.
    joined: list[Manifest] = []
    for term in items(required, "nodeSelectorTerms") or [{}]:
        for expressions in component_terms:
            both = [*items(term, "matchExpressions"), *expressions]
            joined.append({**term, "matchExpressions": both})
    needed = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": joined}}} if component_terms else {}
    return merged(spec.affinity, needed)


def _tolerations(spec: WorkloadSpec) -> list[dict[str, str]] | None:
    """Return the tolerations of GPU, Spot and class taints, and of taints that the user names."""
    tolerations = [GPU_TOLERATION] * spec.takes_gpus + [_SPOT_TOLERATION] * spec.spot
    tolerations += class_tolerations(spec.compute_class)
    others = [toleration for toleration in spec.tolerations if toleration not in tolerations]
    return [toleration_manifest(toleration) for toleration in tolerations + others] or None
