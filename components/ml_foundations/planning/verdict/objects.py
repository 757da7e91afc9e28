"""Findings about single objects, which decide nothing about where pods run.

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
from ml_foundations.kubernetes.trees import UNKNOWN, leaves
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.model.declared import full_name, key_of, of_kind
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict.findings import Finding, error, warning

_PLACEHOLDERS = list(rows("placeholders.csv"))
_OPENING_KINDS = ("ClusterRoleBinding", "Ingress", "NetworkPolicy", "RoleBinding", "Service")
"""Kinds that name users, networks or domains, and so open a way into the cluster."""
_ALL_LOGS = ("containers/*.log", "/var/log/pods/*")
"""Patterns of the logs of all containers: /var/log/containers has links to those in pods."""


def placeholder_findings(resources: Iterable[Resource]) -> Iterator[Finding]:
    """Yield an error for each placeholder in what Google or the cluster's network gets."""
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
    """Return whether a text is an address or a block of a network."""
    try:
        block: Any = ip_network(value, strict=False)
    except ValueError:
        return False
    whole: Any = ip_network(network)
    return block.version == whole.version and block.subnet_of(whole)


def quota_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each name in a ResourceQuota under which Kubernetes counts nothing."""
    for quota in of_kind(objects, "ResourceQuota"):
        spec = section(quota, "spec")
        hard = section(spec, "hard")
        for name in hard:
            if fault := uncounted(name, scoped_to(spec)):
                message = f"its amount of {name} limits nothing: {fault.reason}"
                remedy = f"Remove {name}." if fault.instead in hard else f"{fault.fix}."
                yield warning("quota-name", full_name(quota), f"spec.hard.{name}", message, remedy)


def image_findings(workload: Workload) -> Iterator[Finding]:
    """Yield a warning for each image of a workload's pods that is named without a digest."""
    for pod_set in workload.pods:
        pod = section(pod_set.template, "spec")
        for key in ("initContainers", "containers"):
            for index, container in enumerate(items(pod, key)):
                image: Any = None if container is UNKNOWN else container.get("image")
                if not isinstance(image, str) or "@" in image:
                    continue
                # An image that is never pulled is part of the node's own, and has none.
                if container.get("imagePullPolicy") == "Never":
                    continue
                path = f"{pod_set.path}.{key}[{index}].image"
                message = f"the image {image} has no digest: its tag may be moved to another image"
                remedy = "Name it as image:tag@sha256:…."
                yield warning("image-digest", str(workload), path, message, remedy)


def own_logs_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each DaemonSet that reads the logs of all containers of its node."""
    objects = list(objects)
    config_maps = {key_of(manifest): manifest for manifest in of_kind(objects, "ConfigMap")}
    for agent in of_kind(objects, "DaemonSet"):
        pod = section(agent, "spec", "template", "spec")
        if not _mounts_logs(pod):
            continue
        settings: list[object] = []
        for volume in _known(pod, "volumes"):
            name = str(section(volume, "configMap").get("name"))
            settings.append(section(config_maps.get((namespace_of(agent), name), {}), "data"))
        for container in _known(pod, "containers"):
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
    for volume in _known(pod, "volumes"):
        path = section(volume, "hostPath").get("path")
        folder = path.rstrip("/") if isinstance(path, str) else None
        if folder is not None and (folder in ("", "/var") or folder.startswith("/var/log")):
            return True
    return False


def _known(pod: Manifest, key: str) -> list[Manifest]:
    return [item for item in items(pod, key) if item is not UNKNOWN]
