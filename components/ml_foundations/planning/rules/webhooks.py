"""Webhooks: pods that wait for one that is down."""

from collections.abc import Iterator

from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    mappings,
    namespace_of,
    section,
    texts,
)
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.planning.model.declared import kind_and_name
from ml_foundations.planning.rules.findings import Finding, Severity, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LIMITS = ("In", "Exists")
"""Operators that limit a selector to what has a label; other operators select nearly everything."""


@rule(
    "webhook",
    Severity.WARNING,
    "A webhook that does not answer stops the pods of few namespaces.",
    source="Kubernetes v1.36, apiserver/pkg/admission/plugin/webhook: failurePolicy",
    example="""
        apiVersion: admissionregistration.k8s.io/v1
        kind: ValidatingWebhookConfiguration
        metadata: {name: hook}
        webhooks:
          - name: pods.hook.io
            clientConfig: {service: {namespace: hook, name: hook}}
            rules:
              - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
            admissionReviewVersions: [v1]
            sideEffects: None
        ---
        apiVersion: v1
        kind: Service
        metadata: {name: hook, namespace: hook}
        spec: {selector: {app: hook}, ports: [{port: 443}]}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: hook, namespace: hook}
        spec:
          replicas: 1
          selector: {matchLabels: {app: hook}}
          template:
            metadata: {labels: {app: hook}}
            spec: {containers: [{name: hook, image: hook:1}]}
    """,
)
def webhooks(stack: Stack) -> Iterator[Finding]:
    """Yield the webhooks that stop pods of nearly all namespaces while they do not answer."""
    for configuration in stack.objects:
        declared = configuration.get("webhooks")
        is_known = declared is not UNKNOWN and not any(unknown_paths(declared))
        if configuration["kind"] not in _CONFIGURATIONS or not is_known:
            continue
        for index, webhook in enumerate(items(configuration, "webhooks")):
            selectors = section(webhook, "namespaceSelector"), section(webhook, "objectSelector")
            if webhook.get("failurePolicy", "Fail") != "Fail" or any(map(limits, selectors)):
                continue
            if _is_about_pods(webhook) and _has_one_replica(webhook, stack):
                remedy = "Run two replicas, or set namespaceSelector, or failurePolicy Ignore."
                path = f"webhooks[{index}].failurePolicy"
                yield stops_pods(kind_and_name(configuration), path, remedy)


def stops_pods(about: str, path: str, remedy: str) -> Finding:
    """Return the finding on a webhook."""
    message = (
        "while its only replica does not answer, the API server refuses the pods of nearly all "
        "namespaces"
    )
    return warning("webhook", about, path, message, remedy)


def limits(selector: Manifest) -> bool:
    """Return whether a selector leaves most namespaces or objects out."""
    if selector.get("matchLabels"):
        return True
    expressions = mappings(selector, "matchExpressions")
    return any(expression.get("operator") in _LIMITS for expression in expressions)


def _is_about_pods(webhook: Manifest) -> bool:
    for called in mappings(webhook, "rules"):
        is_core = bool({"", "*"}.intersection(texts(called, "apiGroups")))
        is_created = bool({"CREATE", "*"}.intersection(texts(called, "operations")))
        if is_core and is_created and {"pods", "*", "*/*"}.intersection(texts(called, "resources")):
            return True
    return False


def _has_one_replica(webhook: Manifest, stack: Stack) -> bool:
    """Return whether the webhook's Service leads to declared Deployments of one replica."""
    reference = section(webhook, "clientConfig", "service")
    namespace = reference.get("namespace")
    name = reference.get("name")
    service = stack.services.get((str(namespace), str(name)))
    if service is None or any(unknown_paths(service.get("spec"))):
        return False
    selector: Manifest = {"matchLabels": section(service, "spec", "selector")}
    replicas: list[object] = []
    for deployment in stack.of_kind("Deployment"):
        pod_labels = section(deployment, "spec", "template", "metadata", "labels")
        if namespace_of(deployment) == namespace and selects(selector, pod_labels):
            replicas.append(section(deployment, "spec").get("replicas", 1))
    return replicas == [1]
