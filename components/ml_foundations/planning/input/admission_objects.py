"""Webhooks, admission policies and definitions, and what they may reject or change."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    plural,
    section,
)
from ml_foundations.kubernetes.selectors import required_node_affinity, selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.workloads import WORKLOAD_KINDS, Workload, is_stored

_POD_RESOURCES = ("/pods", "/pods/binding", "/serviceaccounts")
"""The resources, with their groups, that the cluster creates before a pod is on its node."""
_CHILD_RESOURCES: Mapping[str, Sequence[str]] = {
    "Deployment": ("apps/replicasets",),
    **dict.fromkeys(("StatefulSet", "DaemonSet"), ("apps/controllerrevisions",)),
    "CronJob": ("batch/jobs",),
    "JobSet": ("batch/jobs", "/services"),
}
"""The resources that the controller of a workload creates besides pods."""
_GPU_MODELS_RULE = (
    "!(variables.priority in variables.models) || "
    "variables.models[variables.priority].exists(model, model.all(wanted, "
    "variables.selector.exists(key, [string(key), 'In', string(variables.selector[key])] == "
    "wanted) || (variables.terms.size() > 0 && variables.terms.all(term, "
    "term.?matchExpressions.orValue([]).exists(each, [string(each.key), "
    "string(each.operator)] + each.?values.orValue([]) == wanted)))))"
)
"""The rule of our components that the pods of a PriorityClass run on one model of GPUs."""


@dataclass(frozen=True)
class AdmissionObjects:
    """Webhooks, admission policies and definitions, with what decides what they match.

    Attributes:
        objects: All of them.
        namespaces: The labels of the declared namespaces.
        declared_resources: The resources of the other declared objects, such as "/services".
        bindings: The specs of the policies' bindings, by the policy's name.
        policies: The names of the policies.
        incomplete: Those of the objects that hold unknown values.
    """

    objects: Sequence[Manifest]
    namespaces: Mapping[str, Manifest]
    declared_resources: frozenset[str]
    bindings: Mapping[str, Sequence[Manifest]]
    policies: frozenset[str]
    incomplete: IdentityMap[Manifest, bool]

    @classmethod
    def among(
        cls, documents: Iterable[Manifest], objects: Sequence[Manifest]
    ) -> "AdmissionObjects":
        """Return admission objects among the other documents of a cluster."""
        namespaces: dict[str, Manifest] = {}
        resources: set[str] = set()
        for document in documents:
            if document["kind"] == "Namespace":
                namespaces[name_of(document)] = labels_of(document)
            if document["kind"] not in WORKLOAD_KINDS and not is_stored(document):
                resources.add(_resource_of(document))
        bindings: defaultdict[str, list[Manifest]] = defaultdict(list)
        for document in objects:
            spec = section(document, "spec")
            bindings[str(spec.get("policyName"))].append(spec)
        return cls(
            objects,
            namespaces,
            frozenset(resources),
            bindings,
            frozenset(name_of(each) for each in objects if each["kind"].endswith("Policy")),
            IdentityMap((each, True) for each in objects if any(unknown_paths(each))),
        )

    def matching(self, workload: Workload, *prefixes: str) -> list[Manifest]:
        """Return the objects that may reject or change a workload or its pods.

        Args:
            workload: The workload, or another object without pods.
            prefixes: Beginnings of the kinds to return; all if there is none.
        """
        return [
            document
            for document in self.objects
            if document["kind"].startswith(prefixes or "") and self._matches(document, workload)
        ]

    def _matches(self, document: Manifest, workload: Workload) -> bool:
        spec = section(document, "spec")
        match document["kind"]:
            case "CustomResourceDefinition":
                group = str(workload.manifest.get("apiVersion")).rpartition("/")[0]
                kind = section(spec, "names").get("kind")
                return kind == workload.kind and spec.get("group") == group
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
                hooks = items(document, "webhooks")
                return UNKNOWN in (document.get("webhooks"), *hooks) or any(
                    self._covers(hook, "rules", workload) for hook in hooks if is_mapping(hook)
                )
            case "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy":
                if document not in self.incomplete and _accepts_gpu_models(document, workload):
                    return False
                constraints = section(spec, "matchConstraints")
                return self._covers(constraints, "resourceRules", workload) and self._is_bound(
                    name_of(document), workload
                )
            case _:
                return spec.get("policyName") not in self.policies

    def _is_bound(self, policy: str, workload: Workload) -> bool:
        """Return whether a policy may hold for a workload; without a declared binding, it may."""
        bindings = self.bindings.get(policy, ())
        for binding in bindings:
            actions = items(binding, "validationActions") or ["Deny"]
            is_in = self._may_select(section(binding, "matchResources"), workload.namespace)
            if is_in and {"Deny", UNKNOWN}.intersection(actions):
                return True
        return not bindings

    def _covers(self, holder: Manifest, field: str, workload: Workload) -> bool:
        """Return whether rules may cover a workload, or what must be created for it.

        Of an object without pods, only the object itself counts.

        Args:
            holder: What holds the rules and the selectors, such as a webhook.
            field: The field of the rules.
            workload: The workload.
        """
        if any(unknown_paths(holder.get(field))):
            return True
        rules = [rule for rule in items(holder, field) if is_mapping(rule)]
        if workload.pods and _any_covers(rules, self.declared_resources):
            return True
        if not _any_covers(rules, _required_resources(workload)):
            return False
        selector = section(holder, "objectSelector")
        labels = [labels_of(workload.manifest), *(pods.labels for pods in workload.pods)]
        is_selected = any(unknown_paths(selector)) or any(
            selects(selector, each) for each in labels
        )
        return is_selected and self._may_select(holder, workload.namespace)

    def _may_select(self, holder: Manifest, namespace: str) -> bool:
        """Return whether a namespace selector may select a namespace.

        Of a namespace that is not declared, only the label with its name is known.
        """
        selector = section(holder, "namespaceSelector")
        if any(unknown_paths(selector)):
            return True
        name_label = {NAMESPACE_NAME: namespace}
        if namespace in self.namespaces:
            return selects(selector, {**name_label, **self.namespaces[namespace]})
        by_name = [
            requirement
            for requirement in items(selector, "matchExpressions")
            if requirement.get("key") == NAMESPACE_NAME
        ]
        wanted = section(selector, "matchLabels").get(NAMESPACE_NAME, namespace)
        return wanted == namespace and selects({"matchExpressions": by_name}, name_label)


def _required_resources(workload: Workload) -> set[str]:
    """Return the resources that are created for a workload and its pods, and its own."""
    resources = {_resource_of(workload.manifest), *_CHILD_RESOURCES.get(workload.kind, ())}
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
    return any(_rule_covers(rule, resource) for rule in rules for resource in resources)


def _rule_covers(rule: Manifest, resource: str) -> bool:
    """Return whether a rule covers the creation of a resource, such as "apps/deployments"."""
    group, _, path = resource.partition("/")
    name, _, subresource = path.partition("/")
    suffix = f"/{subresource}" if subresource else ""
    patterns = {f"{name}{suffix}", f"*{suffix}", f"{name}/*", "*/*"}
    return (
        not {"*", "CREATE"}.isdisjoint(items(rule, "operations"))
        and not {"*", group}.isdisjoint(items(rule, "apiGroups"))
        and not patterns.isdisjoint(items(rule, "resources"))
    )


def _accepts_gpu_models(policy: Manifest, workload: Workload) -> bool:
    """Return whether a policy is our rule of GPU models, and accepts all pods of a workload."""
    return bool(workload.pods) and all(
        _is_of_our_gpu_models(policy, pods.spec) for pods in workload.pods
    )


def _is_of_our_gpu_models(policy: Manifest, spec: Manifest) -> bool:
    """Return whether a policy is only our rule of GPU models, and accepts pods of a spec."""
    validations = [*filter(is_mapping, items(section(policy, "spec"), "validations"))]
    if [validation.get("expression") for validation in validations] != [_GPU_MODELS_RULE]:
        return False
    try:
        models_by_class = json.loads(_variable(policy, "models"))
        accepted: list[list[list[str]]] | None = models_by_class.get(
            spec.get("priorityClassName", "")
        )
    except ValueError:  # somebody else has written the variable
        return False
    return accepted is None or any(_requires_all(spec, model) for model in accepted)


def _variable(policy: Manifest, name: str) -> str:
    for variable in items(section(policy, "spec"), "variables"):
        if is_mapping(variable) and variable.get("name") == name:
            return str(variable.get("expression"))
    return ""


def _requires_all(spec: Manifest, requirements: Iterable[list[str]]) -> bool:
    """Return whether a pod selects nodes by all requirements, in each term of its node affinity.

    The policy writes a requirement as a list: the key, the operator and the values.
    """
    selected = [[key, "In", value] for key, value in section(spec, "nodeSelector").items()]
    terms = items(required_node_affinity(spec) or {}, "nodeSelectorTerms") or [{}]
    for term in terms:
        expressions = [
            [each.get("key"), each.get("operator"), *(each.get("values") or ())]
            for each in items(term, "matchExpressions")
        ]
        if not all(requirement in (*selected, *expressions) for requirement in requirements):
            return False
    return True
