"""Findings about webhooks: pods that wait for one that is down, kinds Kueue does not manage."""

from collections.abc import Iterator, Sequence

from ml_foundations.catalog.kueue import FRAMEWORKS, configuration_of, frameworks_of
from ml_foundations.kubernetes.labels import KUEUE_QUEUE, MADE_FROM
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    mappings,
    namespace_of,
    section,
    texts,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, unknown_paths
from ml_foundations.planning.model.declared import full_name, key_of, kind_and_name, of_kind
from ml_foundations.planning.verdict.findings import Finding, error, warning

_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LIMITS = ("In", "Exists")
"""Operators that limit a selector to what has a label; other operators select nearly everything."""


def webhook_findings(
    objects: Sequence[Manifest], kueue: Manifest | Unknown | None
) -> Iterator[Finding]:
    """Yield findings of the rules ``webhook`` and ``queue-kind``; the values are of Kueue."""
    for configuration in objects:
        if configuration["kind"] in _CONFIGURATIONS:
            yield from _of_configuration(configuration, objects)
    configuration = UNKNOWN if isinstance(kueue, Unknown) else configuration_of(kueue or {})
    if kueue is None or isinstance(kueue, Unknown) or isinstance(configuration, Unknown):
        return
    frameworks = frameworks_of(kueue)
    replicas = section(kueue, "controllerManager").get("replicas", 1)
    selector = section(configuration or {}, "managedJobsNamespaceSelector")
    if "pod" in frameworks and replicas == 1 and not _limits(selector):
        limited = "to the namespaces with a queue, as a TrainingQueue does"
        remedy = f"Limit managedJobsNamespaceSelector {limited}."
        yield _webhook("Kueue", "managerConfig.controllerManagerConfigYaml", remedy)
    for workload in objects:
        yield from _queue_kind(workload, frameworks)


def _webhook(about: str, path: str, remedy: str) -> Finding:
    refused = "the API server refuses the pods of nearly all namespaces"
    message = f"while its only replica does not answer, {refused}"
    return warning("webhook", about, path, message, remedy)


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
            path = f"webhooks[{index}].failurePolicy"
            yield _webhook(kind_and_name(configuration), path, remedy)


def _limits(selector: Manifest) -> bool:
    """Return whether a selector leaves most namespaces or objects out."""
    if selector.get("matchLabels"):
        return True
    expressions = mappings(selector, "matchExpressions")
    return any(expression.get("operator") in _LIMITS for expression in expressions)


def _is_about_pods(webhook: Manifest) -> bool:
    for rule in mappings(webhook, "rules"):
        is_core = bool({"", "*"}.intersection(texts(rule, "apiGroups")))
        is_created = bool({"CREATE", "*"}.intersection(texts(rule, "operations")))
        if is_core and is_created and {"pods", "*", "*/*"}.intersection(texts(rule, "resources")):
            return True
    return False


def _has_one_replica(webhook: Manifest, objects: Sequence[Manifest]) -> bool:
    """Return whether the webhook's Service leads to declared Deployments of one replica."""
    reference = section(webhook, "clientConfig", "service")
    namespace, name = reference.get("namespace"), reference.get("name")
    services = {key_of(service): service for service in of_kind(objects, "Service")}
    service = services.get((str(namespace), str(name)))
    if service is None or any(unknown_paths(service.get("spec"))):
        return False
    selector: Manifest = {"matchLabels": section(service, "spec", "selector")}
    replicas: list[object] = []
    for deployment in of_kind(objects, "Deployment"):
        pod_labels = section(deployment, "spec", "template", "metadata", "labels")
        if namespace_of(deployment) == namespace and selects(selector, pod_labels):
            replicas.append(section(deployment, "spec").get("replicas", 1))
    return replicas == [1]


def _queue_kind(workload: Manifest, frameworks: frozenset[str]) -> Iterator[Finding]:
    """Yield the finding on a workload with a queue that Kueue does not put into it."""
    kind = annotations_of(workload).get(MADE_FROM, workload["kind"])
    queue = labels_of(workload).get(KUEUE_QUEUE)
    if queue is None or kind not in FRAMEWORKS or frameworks.issuperset(FRAMEWORKS[kind]):
        return
    at_once = "it starts at once, whatever the queue holds"
    message = f"it names the queue {queue}, and Kueue does not manage {kind}s: {at_once}"
    frameworks_field = "integrations.frameworks of Kueue's configuration"
    remedy = f"Add {kind} to kinds of the TrainingQueue ({frameworks_field})."
    yield error("queue-kind", full_name(workload), "metadata.labels", message, remedy)
