"""The rule of our components that the pods of a PriorityClass run on one model of GPUs, read from its policy."""

import re

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import Manifest, items, section

_RULE = (
    "!(variables.priority in variables.models) || "
    f"object.spec.?nodeSelector[?'{labels.GPU_PRODUCT}'].orValue('') == variables.models[variables.priority]"
)
_ENTRY = re.compile("'([^']+)': '([^']+)'")


def is_rule(policy: Manifest) -> bool:
    """Whether a ValidatingAdmissionPolicy is this rule, and no more."""
    validations = items(section(policy, "spec"), "validations")
    return [validation.get("expression") for validation in validations] == [_RULE]


def allows(policy: Manifest, spec: Manifest) -> bool:
    """Whether the rule allows pods of a spec."""
    expressions = {each.get("name"): each.get("expression") for each in items(section(policy, "spec"), "variables")}
    product = dict(_ENTRY.findall(str(expressions.get("models")))).get(spec.get("priorityClassName", ""))
    return product in (None, section(spec, "nodeSelector").get(labels.GPU_PRODUCT))
