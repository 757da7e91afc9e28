"""Agents that read the logs of all containers of their node, and so their own."""

from collections.abc import Iterable, Iterator

from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.verdict.findings import Finding, Severity

_ALL_LOGS = ("containers/*.log", "/var/log/pods/*")
"""Patterns of the logs of all containers: the kubelet links each from /var/log/containers to /var/log/pods."""


def own_logs_findings(objects: Iterable[Manifest]) -> Iterator[Finding]:
    """Yield a warning for each DaemonSet that reads the logs of all containers and excludes none.

    An agent that prints what it reads is then fed by itself, without end (fluent/fluent-bit issue 11583).
    """
    objects = list(objects)
    maps = {
        (namespace_of(each), name_of(each)): each for each in objects if each["kind"] == "ConfigMap"
    }
    for agent in objects:
        pod = section(agent, "spec", "template", "spec")
        if agent["kind"] != "DaemonSet" or not _mounts_logs(pod):
            continue
        volumes = [section(volume, "configMap") for volume in _known(pod, "volumes")]
        mounted = [maps.get((namespace_of(agent), str(source.get("name")))) for source in volumes]
        texts = [section(each, "data") for each in mounted if each]
        texts += [
            {key: each.get(key) for key in ("command", "args")}
            for each in _known(pod, "containers")
        ]
        settings = str(texts)
        if any(pattern in settings for pattern in _ALL_LOGS) and "exclude" not in settings.lower():
            name = f"DaemonSet {namespace_of(agent)}/{name_of(agent)}"
            message = "it reads the logs of all containers of its node, its own included"
            remedy = f"Exclude its own, such as /var/log/containers/{name_of(agent)}-*.log."
            path = "spec.template.spec.volumes"
            yield Finding("reads-own-logs", Severity.WARNING, name, path, message, remedy)


def _mounts_logs(pod: Manifest) -> bool:
    """Return whether a pod mounts the folder of its node that has the logs of containers, or one above it."""
    paths = [section(volume, "hostPath").get("path") for volume in _known(pod, "volumes")]
    folders = [path.rstrip("/") for path in paths if isinstance(path, str)]
    return any(each in ("", "/var") or each.startswith("/var/log") for each in folders)


def _known(pod: Manifest, key: str) -> list[Manifest]:
    return [each for each in items(pod, key) if each is not UNKNOWN]
