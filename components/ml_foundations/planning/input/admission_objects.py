"""Webhooks, admission policies and definitions, and what they may reject or change."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ml_foundations.kinds.kind_files import kind_named
from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    mappings,
    name_of,
    plural,
    section,
    texts,
)
from ml_foundations.kubernetes.reading import ReadError, embedded_json
from ml_foundations.kubernetes.selectors import required_node_affinity, selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.input.known_admission import is_known
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.workloads import Workload, is_stored, workload_kinds

_POD_RESOURCES = ("/pods", "/pods/binding", "/serviceaccounts")
"""The resources, with their groups, that the cluster creates before a pod is on its node."""
_GPU_MODELS_RULE = (
    "!(variables.priority in variables.models) || "
    "variables.models[variables.priority].exists(model, model.all(wanted, "
    "variables.selector.exists(key, [string(key), 'In', string(variables.selector[key])] == "
    "wanted) || (variables.terms.size() > 0 && variables.terms.all(term, "
    "term.?matchExpressions.orValue([]).exists(each, [string(each.key), "
    "string(each.operator)] + each.?values.orValue([]) == wanted)))))"
)
"""The rule of our components that the pods of a PriorityClass run on one model of GPUs."""


class AdmissionObjects:
    """Webhooks, admission policies and definitions among the documents of a cluster.

    Attributes:
        objects: All of them.
    """

    def __init__(self, documents: Iterable[Manifest], objects: Sequence[Manifest]) -> None:
        """Look up the other documents, which decide what the objects match."""
        self.objects = objects
        self._namespaces: dict[str, Manifest] = {}
        self._declared_resources: set[str] = set()
        for document in documents:
            if document["kind"] == "Namespace":
                self._namespaces[name_of(document)] = labels_of(document)
            if document["kind"] not in workload_kinds() and not is_stored(document):
                self._declared_resources.add(_resource_of(document))
        self._policies: set[str] = set()
        self._bindings = defaultdict[str, list[Manifest]](list)
        self._incomplete = IdentityMap[Manifest, bool]()
        self._known = IdentityMap[Manifest, bool]()
        for document in objects:
            spec = section(document, "spec")
            self._bindings[str(spec.get("policyName"))].append(spec)
            if document["kind"].endswith("Policy"):
                self._policies.add(name_of(document))
            if any(unknown_paths(document)):
                self._incomplete[document] = True
            elif is_known(document):
                self._known[document] = True

    def matching(self, workload: Workload, *prefixes: str) -> list[Manifest]:
        """Return the objects that may reject or change a workload, or an object without pods.

        With prefixes, return only the kinds that begin with one of them.
        """
        matching: list[Manifest] = []
        for document in self.objects:
            if document["kind"].startswith(prefixes or "") and self._matches(document, workload):
                matching.append(document)
        return matching

    def _matches(self, document: Manifest, workload: Workload) -> bool:
        if document in self._known:
            return False
        spec = section(document, "spec")
        match document["kind"]:
            case "CustomResourceDefinition":
                # Of a kind that planning knows, it follows the definition; others are unknown.
                return False
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
                hooks: Any = document.get("webhooks")
                return UNKNOWN in (hooks, *(hooks if isinstance(hooks, list) else ())) or any(
                    self._covers(hook, "rules", workload) for hook in mappings(document, "webhooks")
                )
            case "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy":
                if document not in self._incomplete and _accepts_gpu_models(document, workload):
                    return False
                constraints = section(spec, "matchConstraints")
                is_covered = self._covers(constraints, "resourceRules", workload)
                return is_covered and self._is_bound(name_of(document), workload)
            case _:
                return spec.get("policyName") not in self._policies

    def _is_bound(self, policy: str, workload: Workload) -> bool:
        """Return whether a policy may hold for a workload; without a declared binding, it may."""
        bindings = self._bindings.get(policy, ())
        for binding in bindings:
            actions = texts(binding, "validationActions") or ["Deny"]
            is_in = self._may_select(section(binding, "matchResources"), workload.namespace)
            if is_in and ("Deny" in actions or any(unknown_paths(binding))):
                return True
        return not bindings

    def _covers(self, holder: Manifest, field: str, workload: Workload) -> bool:
        """Return whether the rules in a field of a webhook or a policy may cover a workload.

        Rules may also cover what must be created for it. Of an object without pods, only the
        object itself counts.
        """
        if any(unknown_paths(holder.get(field))):
            return True
        rules = mappings(holder, field)
        # A workload may need any declared object, so whatever rejects one of these matters.
        if workload.pods and _any_covers(rules, self._declared_resources):
            return True
        if not _any_covers(rules, _required_resources(workload)):
            return False
        selector = section(holder, "objectSelector")
        label_sets = [labels_of(workload.manifest), *(pods.labels for pods in workload.pods)]
        is_unknown = any(unknown_paths(selector))
        is_selected = is_unknown or any(selects(selector, labels) for labels in label_sets)
        return is_selected and self._may_select(holder, workload.namespace)

    def _may_select(self, holder: Manifest, namespace: str) -> bool:
        """Return whether a namespace selector may select a namespace.

        Of a namespace that is not declared, only the label with its name is known.
        """
        selector = section(holder, "namespaceSelector")
        if any(unknown_paths(selector)):
            return True
        name_label = {NAMESPACE_NAME: namespace}
        if namespace in self._namespaces:
            return selects(selector, {**name_label, **self._namespaces[namespace]})
        requirements = mappings(selector, "matchExpressions")
        by_name = [item for item in requirements if item.get("key") == NAMESPACE_NAME]
        selected = section(selector, "matchLabels").get(NAMESPACE_NAME, namespace)
        return selected == namespace and selects({"matchExpressions": by_name}, name_label)


def _required_resources(workload: Workload) -> set[str]:
    """Return the resources that are created for a workload and its pods, and its own."""
    resources = {_resource_of(workload.manifest), *kind_named(workload.kind).child_resources}
    if workload.pods:
        resources.update(_POD_RESOURCES)
    volumes = (volume for pods in workload.pods for volume in items(pods.spec, "volumes"))
    if workload.claims or any(section(volume, "ephemeral") for volume in volumes):
        resources.add("/persistentvolumeclaims")
    return resources


def _resource_of(document: Manifest) -> str:
    """Return the group and the resource of an object, such as "apps/deployments"."""
    return f"{str(document.get('apiVersion')).rpartition('/')[0]}/{plural(document['kind'])}"


def _any_covers(rules: Iterable[Manifest], resources: Iterable[str]) -> bool:
    """Return whether a rule covers the creation of a resource, such as "apps/deployments"."""
    creating = [rule for rule in rules if {"*", "CREATE"} & {*texts(rule, "operations")}]
    for rule, resource in itertools.product(creating, resources):
        group, _, path = resource.partition("/")
        name, _, subresource = path.partition("/")
        suffix = f"/{subresource}" if subresource else ""
        patterns = {f"{name}{suffix}", f"*{suffix}", f"{name}/*", "*/*"}
        is_of_group = not {"*", group}.isdisjoint(texts(rule, "apiGroups"))
        if is_of_group and not patterns.isdisjoint(texts(rule, "resources")):
            return True
    return False


def _accepts_gpu_models(policy: Manifest, workload: Workload) -> bool:
    """Return whether a policy is only our rule of GPU models, and accepts a workload's pods."""
    validations = mappings(section(policy, "spec"), "validations")
    if [validation.get("expression") for validation in validations] != [_GPU_MODELS_RULE]:
        return False
    variables = mappings(section(policy, "spec"), "variables")
    models = [item.get("expression") for item in variables if item.get("name") == "models"]
    try:
        models_by_class = embedded_json(str(next(iter(models), "")))
    except ReadError:
        return False
    if not is_mapping(models_by_class):  # somebody else has written the variable
        return False
    for pods in workload.pods:
        accepted: Any = models_by_class.get(pods.spec.get("priorityClassName", ""))
        models = cast("list[Any]", accepted if isinstance(accepted, list) else [])
        matching = (
            isinstance(model, list) and _requires_all(pods.spec, cast("Any", model))
            for model in models
        )
        if accepted is not None and not any(matching):
            return False
    return bool(workload.pods)


def _requires_all(spec: Manifest, requirements: Iterable[list[str]]) -> bool:
    """Return whether a pod selects nodes by all requirements, in each term of its node affinity.

    The policy writes a requirement as a list: the key, the operator and the values.
    """
    selected = [[key, "In", value] for key, value in section(spec, "nodeSelector").items()]
    terms = items(required_node_affinity(spec) or {}, "nodeSelectorTerms") or [{}]
    for term in terms:
        required = list(selected)
        for expression in items(term, "matchExpressions"):
            key = expression.get("key")
            operator = expression.get("operator")
            required.append([key, operator, *(expression.get("values") or ())])
        if not all(requirement in required for requirement in requirements):
            return False
    return True
