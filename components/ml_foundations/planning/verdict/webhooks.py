"""Findings about webhooks: pods that wait for one that is down, kinds Kueue does not manage."""

from collections.abc import Iterator, Sequence

from ml_foundations.catalog.kueue import FRAMEWORKS, configuration_of, frameworks_of
from ml_foundations.kubernetes.labels import KUEUE_QUEUE
from ml_foundations.kubernetes.objects import (
    Manifest,
    is_mapping,
    items,
    labels_of,
    name_of,
    namespace_of,
    section,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, unknown_paths
from ml_foundations.planning.verdict.findings import Finding, Severity

_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LIMITS = ("In", "Exists")
"""Operators that limit a selector to what has a label; other operators select nearly everything."""


def webhook_findings(
    objects: Sequence[Manifest], kueue: Manifest | Unknown | None
) -> Iterator[Finding]:
    """Yield findings of the rules ``webhook`` and ``queue-kind``.

    Args:
        objects: The Kubernetes objects that are declared.
        kueue: The values of Kueue's release; None if there is none.
    """
    for configuration in objects:
        if configuration["kind"] in _CONFIGURATIONS:
            yield from _of_configuration(configuration, objects)
    if kueue is None or isinstance(kueue, Unknown):
        return
    frameworks = frameworks_of(kueue)
    replicas = section(kueue, "controllerManager").get("replicas", 1)
    selector = section(configuration_of(kueue) or {}, "managedJobsNamespaceSelector")
    if "pod" in frameworks and replicas == 1 and not _limits(selector):
        remedy = (
            "Limit managedJobsNamespaceSelector to the namespaces with a queue, as a TrainingQueue "
            "does."
        )
        yield _webhook("Kueue", "managerConfig.controllerManagerConfigYaml", remedy)
    for workload in objects:
        yield from _queue_kind(workload, frameworks)


def _webhook(about: str, path: str, remedy: str) -> Finding:
    message = (
        "while its only replica does not answer, the API server refuses the pods of nearly all "
        "namespaces"
    )
    return Finding("webhook", Severity.WARNING, about, path, message, remedy)


def _of_configuration(configuration: Manifest, objects: Sequence[Manifest]) -> Iterator[Finding]:
    webhooks = configuration.get("webhooks")
    if webhooks is UNKNOWN or any(unknown_paths(webhooks)):
        return
    for index, webhook in enumerate(items(configuration, "webhooks")):
        selectors = section(webhook, "namespaceSelector"), section(webhook, "objectSelector")
        if webhook.get("failurePolicy", "Fail") != "Fail" or any(map(_limits, selectors)):
            continue
        if _is_about_pods(webhook) and _has_one_replica(webhook, objects):
            remedy = "Run two replicas, or set namespaceSelector, or failurePolicy Ignore."
            about = f"{configuration['kind']} {name_of(configuration)}"
            yield _webhook(about, f"webhooks[{index}].failurePolicy", remedy)


def _limits(selector: Manifest) -> bool:
    """Return whether a selector leaves most namespaces or objects out."""
    if selector.get("matchLabels"):
        return True
    expressions = filter(is_mapping, items(selector, "matchExpressions"))
    return any(expression.get("operator") in _LIMITS for expression in expressions)


def _is_about_pods(webhook: Manifest) -> bool:
    for rule in items(webhook, "rules"):
        is_core = bool({"", "*"}.intersection(items(rule, "apiGroups")))
        is_created = bool({"CREATE", "*"}.intersection(items(rule, "operations")))
        if is_core and is_created and {"pods", "*", "*/*"}.intersection(items(rule, "resources")):
            return True
    return False


def _has_one_replica(webhook: Manifest, objects: Sequence[Manifest]) -> bool:
    """Return whether the webhook's Service leads to declared Deployments of one replica."""
    reference = section(webhook, "clientConfig", "service")
    key = (reference.get("namespace"), reference.get("name"))
    services = [o for o in objects if o["kind"] == "Service" and _key(o) == key]
    if not services or any(unknown_paths(services[0].get("spec"))):
        return False
    selector: Manifest = {"matchLabels": section(services[0], "spec", "selector")}
    replicas: list[object] = []
    for manifest in objects:
        if manifest["kind"] == "Deployment" and namespace_of(manifest) == key[0]:
            pod_labels = section(manifest, "spec", "template", "metadata", "labels")
            if selects(selector, pod_labels):
                replicas.append(section(manifest, "spec").get("replicas", 1))
    return replicas == [1]


def _key(manifest: Manifest) -> tuple[object, object]:
    return namespace_of(manifest), name_of(manifest)


def _queue_kind(workload: Manifest, frameworks: frozenset[str]) -> Iterator[Finding]:
    """Yield the finding on a workload with a queue that Kueue does not put into it."""
    kind, queue = workload["kind"], labels_of(workload).get(KUEUE_QUEUE)
    if queue is None or kind not in FRAMEWORKS or frameworks.issuperset(FRAMEWORKS[kind]):
        return
    about = f"{kind} {namespace_of(workload)}/{name_of(workload)}"
    message = (
        f"it names the queue {queue}, and Kueue does not manage {kind}s: it starts at once, "
        "whatever the queue holds"
    )
    remedy = (
        f"Add {kind} to kinds of the TrainingQueue (integrations.frameworks of Kueue's "
        "configuration)."
    )
    yield Finding("queue-kind", Severity.ERROR, about, "metadata.labels", message, remedy)
