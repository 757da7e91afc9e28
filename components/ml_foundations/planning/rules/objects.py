"""Single objects, which decide nothing about where pods run.

They are about placeholders, the names in ResourceQuotas, the digests of images, and agents that
read their own logs.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.quotas import scoped_to, uncounted
from ml_foundations.kubernetes.trees import leaves
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_PLACEHOLDERS = list(rows("placeholders.csv"))
_OPENING_KINDS = ("ClusterRoleBinding", "Ingress", "NetworkPolicy", "RoleBinding", "Service")
"""Kinds that name users, networks or domains, and so open a way into the cluster."""
_ALL_LOGS = ("containers/*.log", "/var/log/pods/*")
"""Patterns of the logs of all containers: /var/log/containers has links to those in pods."""


@rule(
    "placeholder",
    Severity.ERROR,
    (
        "Networks, domains and projects are yours, and not those of documentation or of the "
        "shipped stack files."
    ),
    source="RFC 2606, RFC 5737 and the shipped stack files (placeholders.csv)",
    example="""
        type: gcp:compute/subnetwork:Subnetwork
        name: nodes
        ipCidrRange: 203.0.113.0/24
    """,
)
def placeholders(stack: Stack) -> Iterator[Finding]:
    """Yield each placeholder, unless nothing of the stack goes to Google Cloud."""
    if not stack.is_rehearsed:
        yield from placeholders_of(stack.resources)


def placeholders_of(resources: Iterable[Resource]) -> Iterator[Finding]:
    """Yield each placeholder in what Google or the cluster's network gets."""
    # Google refuses placeholders, or they make a cluster that nobody can reach.
    for type_, inputs in resources:
        if type_.startswith("gcp:"):
            about = " ".join([type_.rpartition(":")[2], *_names(inputs)])
        elif inputs.get("kind") in _OPENING_KINDS:
            about = full_name(inputs)
        else:
            continue
        for path, value in leaves({key: inputs[key] for key in inputs if key != "metadata"}):
            if meaning := placeholder(value):
                remedy = "Set your own. Only a rehearsal accepts it."
                finding = error("placeholder", about, path, f'"{value}" {meaning}', remedy)
                yield replace(finding, value=value)


def _names(inputs: Manifest) -> list[str]:
    """Return what Google Cloud calls a resource: a grant has no name."""
    return [str(inputs[key]) for key in ("name", "accountId", "role") if inputs.get(key)][:1]


def placeholder(value: Any) -> str:
    """Return what a placeholder is meant for, with the source; nothing if it is not a placeholder.

    Example: ``placeholder("ml@example.com")`` is "is kept for examples (RFC 2606)".
    """
    if not isinstance(value, str):
        return ""
    is_placeholder = {"project": _names_project, "domain": _is_in_domain, "network": _is_within}
    for kind in is_placeholder:
        for row in _PLACEHOLDERS:
            if row["kind"] == kind and is_placeholder[kind](value, row["value"]):
                return f"{row['meaning']} ({row['source']})"
    return ""


def _names_project(value: str, project: str) -> bool:
    return re.search(f"(^|/){project}($|/)", value) is not None


def _is_in_domain(value: str, domain: str) -> bool:
    host = value.lower().rpartition("@")[2].rpartition("/")[2]
    return ("." in value or "@" in value) and f".{host}".endswith(f".{domain}")


def _is_within(value: str, network: str) -> bool:
    try:
        block: Any = ip_network(value, strict=False)
    except ValueError:
        return False
    whole: Any = ip_network(network)
    return block.version == whole.version and block.subnet_of(whole)


@rule(
    "quota-name",
    Severity.WARNING,
    "A ResourceQuota limits what Kubernetes counts.",
    source="Kubernetes v1.36, plugin/pkg/admission/resourcequota and pkg/quota",
    example="""
        apiVersion: v1
        kind: ResourceQuota
        metadata: {name: gpus, namespace: ml}
        spec: {hard: {limits.nvidia.com/gpu: 8}}
    """,
)
def quota_names(stack: Stack) -> Iterator[Finding]:
    """Yield each name in a ResourceQuota under which Kubernetes counts nothing."""
    for quota in stack.of_kind("ResourceQuota"):
        spec = section(quota, "spec")
        hard = section(spec, "hard")
        for name in hard:
            if fault := uncounted(name, scoped_to(spec)):
                message = f"its amount of {name} limits nothing: {fault.reason}"
                remedy = f"Remove {name}." if fault.instead in hard else f"{fault.fix}."
                yield warning("quota-name", full_name(quota), f"spec.hard.{name}", message, remedy)


@rule(
    "image-digest",
    Severity.WARNING,
    "Images are named by a digest, in a stack that asks for it.",
    source="OCI distribution specification: a tag may move",
    example="""
        apiVersion: v1
        kind: Pod
        metadata: {name: train, namespace: ml}
        spec: {containers: [{name: train, image: "train:1"}]}
    """,
)
def image_digests(stack: Stack) -> Iterator[Finding]:
    """Yield each image of the workloads' pods that is named without a digest."""
    for workload, *_ in stack.workloads:
        for pod_set in workload.pods:
            pod = section(pod_set.template, "spec")
            for key in ("initContainers", "containers"):
                for index, container in enumerate(items(pod, key)):
                    path = f"{pod_set.path}.{key}[{index}].image"
                    image: Any = container.get("image")
                    # An image that is never pulled is part of the node's own, and has none.
                    is_pulled = container.get("imagePullPolicy") != "Never"
                    if isinstance(image, str) and image and "@" not in image and is_pulled:
                        message = (
                            f"the image {image} has no digest: its tag may be moved to another "
                            "image"
                        )
                        remedy = "Name it as image:tag@sha256:…."
                        yield warning("image-digest", str(workload), path, message, remedy)


@rule(
    "reads-own-logs",
    Severity.WARNING,
    "An agent that reads the logs of all containers excludes its own.",
    source="fluent/fluent-bit, issue 11583",
    example="""
        apiVersion: apps/v1
        kind: DaemonSet
        metadata: {name: agent}
        spec:
          selector: {matchLabels: {app: agent}}
          template:
            metadata: {labels: {app: agent}}
            spec:
              containers: [{name: agent, image: agent:1, args: [/var/log/containers/*.log]}]
              volumes: [{name: logs, hostPath: {path: /var/log}}]
    """,
)
def own_logs(stack: Stack) -> Iterator[Finding]:
    """Yield each DaemonSet that reads the logs of all containers of its node, and its own."""
    for agent in stack.of_kind("DaemonSet"):
        pod = section(agent, "spec", "template", "spec")
        if not _mounts_logs(pod):
            continue
        settings: list[object] = []
        for volume in items(pod, "volumes"):
            name = str(section(volume, "configMap").get("name"))
            settings.append(section(stack.config_maps.get((namespace_of(agent), name), {}), "data"))
        for container in items(pod, "containers"):
            settings += [container.get("command"), container.get("args")]
        # An agent that prints what it reads is then fed by itself, without end (fluent/fluent-bit,
        # issue 11583), unless it excludes some logs.
        text = str(settings)
        if any(pattern in text for pattern in _ALL_LOGS) and "exclude" not in text.lower():
            path = "spec.template.spec.volumes"
            message = "it reads the logs of all containers of its node, its own included"
            remedy = f"Exclude its own, such as /var/log/containers/{name_of(agent)}-*.log."
            yield warning("reads-own-logs", full_name(agent), path, message, remedy)


def _mounts_logs(pod: Manifest) -> bool:
    """Return whether a pod mounts its node's folder of containers' logs, or one above it."""
    for volume in items(pod, "volumes"):
        path = section(volume, "hostPath").get("path")
        folder = path.rstrip("/") if isinstance(path, str) else None
        if folder is not None and (folder in ("", "/var") or folder.startswith("/var/log")):
            return True
    return False
