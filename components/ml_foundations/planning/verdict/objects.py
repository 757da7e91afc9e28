"""Findings about single objects, which decide nothing about where pods run.

They are about placeholders, the names in ResourceQuotas, the digests of images, and agents that
read their own logs.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from typing import Any

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.quotas import scoped_to, uncounted
from ml_foundations.kubernetes.trees import UNKNOWN, leaves
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict.findings import Finding, Severity

PLACEHOLDER = "placeholder"
"""The rule about values that a user must replace."""
_PLACEHOLDERS = list(rows("placeholders.csv"))
_OPENING_KINDS = ("ClusterRoleBinding", "Ingress", "NetworkPolicy", "RoleBinding", "Service")
"""Kinds that name users, networks or domains, and so open a way into the cluster."""
_ALL_LOGS = ("containers/*.log", "/var/log/pods/*")
"""Patterns of the logs of all containers: /var/log/containers has links to those in pods."""


def placeholder_findings(resources: Iterable[Resource]) -> Iterator[Finding]:
    """Yield an error for each placeholder in an object that Google or the cluster's network gets.

    Google refuses placeholders, or they make a cluster that nobody can reach.
    """
    for type_, inputs in resources:
        if type_.startswith("gcp:"):
            about = f"{type_.rpartition(':')[2]} {inputs.get('name')}"
        elif inputs.get("kind") in _OPENING_KINDS:
            about = f"{inputs['kind']} {namespace_of(inputs)}/{name_of(inputs)}"
        else:
            continue
        for path, value in leaves({key: inputs[key] for key in inputs.keys() - {"metadata"}}):
            if meaning := placeholder(value):
                message, remedy = (
                    f'"{value}" {meaning}',
                    "Set your own. Only a rehearsal accepts it.",
                )
                yield Finding(PLACEHOLDER, Severity.ERROR, about, path, message, remedy)


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
    """Return whether a text is an address or a block of a network."""
    try:
        block: Any = ip_network(value, strict=False)
    except ValueError:
        return False
    whole: Any = ip_network(network)
    return block.version == whole.version and block.subnet_of(whole)


def quota_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each name in a ResourceQuota under which Kubernetes counts nothing."""
    for quota in objects:
        if quota["kind"] != "ResourceQuota":
            continue
        spec = section(quota, "spec")
        hard = section(spec, "hard")
        for name in hard:
            if fault := uncounted(name, scoped_to(spec)):
                about = f"ResourceQuota {namespace_of(quota)}/{name_of(quota)}"
                path = f"spec.hard.{name}"
                message = f"its amount of {name} limits nothing: {fault.reason}"
                remedy = f"Remove {name}." if fault.instead in hard else fault.remedy
                yield Finding("quota-name", Severity.WARNING, about, path, message, remedy)


def image_findings(workload: Workload) -> Iterator[Finding]:
    """Yield a warning for each image of a workload's pods that is named without a digest.

    An image that is never pulled is part of the node's own, and has none.
    """
    for pod_set in workload.pods:
        pod = section(pod_set.template, "spec")
        for key in ("initContainers", "containers"):
            for index, container in enumerate(items(pod, key)):
                image: Any = None if container is UNKNOWN else container.get("image")
                if not isinstance(image, str) or "@" in image:
                    continue
                if container.get("imagePullPolicy") == "Never":
                    continue
                yield Finding(
                    "image-digest",
                    Severity.WARNING,
                    str(workload),
                    f"{pod_set.path}.{key}[{index}].image",
                    f"the image {image} has no digest: its tag may be moved to another image",
                    "Name it as image:tag@sha256:….",
                )


def own_logs_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each DaemonSet that reads the logs of all containers of its node.

    An agent that prints what it reads is then fed by itself, without end (fluent/fluent-bit, issue
    11583), unless it excludes some logs.
    """
    objects = list(objects)
    config_maps: dict[tuple[str, str], Manifest] = {}
    for manifest in objects:
        if manifest["kind"] == "ConfigMap":
            config_maps[namespace_of(manifest), name_of(manifest)] = manifest
    for agent in objects:
        pod = section(agent, "spec", "template", "spec")
        if agent["kind"] != "DaemonSet" or not _mounts_logs(pod):
            continue
        settings: list[object] = []
        for volume in _known(pod, "volumes"):
            name = str(section(volume, "configMap").get("name"))
            settings.append(section(config_maps.get((namespace_of(agent), name), {}), "data"))
        for container in _known(pod, "containers"):
            settings += [container.get("command"), container.get("args")]
        text = str(settings)
        if any(pattern in text for pattern in _ALL_LOGS) and "exclude" not in text.lower():
            yield Finding(
                "reads-own-logs",
                Severity.WARNING,
                f"DaemonSet {namespace_of(agent)}/{name_of(agent)}",
                "spec.template.spec.volumes",
                "it reads the logs of all containers of its node, its own included",
                f"Exclude its own, such as /var/log/containers/{name_of(agent)}-*.log.",
            )


def _mounts_logs(pod: Manifest) -> bool:
    """Return whether a pod mounts its node's folder of containers' logs, or one above it."""
    for volume in _known(pod, "volumes"):
        path = section(volume, "hostPath").get("path")
        folder = path.rstrip("/") if isinstance(path, str) else None
        if folder is not None and (folder in ("", "/var") or folder.startswith("/var/log")):
            return True
    return False


def _known(pod: Manifest, key: str) -> list[Manifest]:
    return [item for item in items(pod, key) if item is not UNKNOWN]
