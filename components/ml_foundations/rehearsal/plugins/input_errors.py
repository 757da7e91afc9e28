"""The errors in a resource's inputs: properties that its type in the SDK does not have."""

from collections.abc import Mapping
from typing import Any

from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.property_paths import join
from ml_foundations.rehearsal.plugins.sdk import ResourceType, Sdk

InputErrors = list[tuple[str, str]]
"""Pairs of a property path and the reason why the property is invalid."""


def input_errors(
    sdk: Sdk, title: str, kind: ResourceType, inputs: Mapping[str, Any], path: str = ""
) -> InputErrors:
    """Return the errors for unknown and missing properties of a resource type or a block.

    Values are not shown: a misspelt name may be that of a secret.
    """
    errors: InputErrors = []
    for name, value in inputs.items():
        if name.startswith("__"):
            continue
        if name not in kind.inputs:
            errors.append((join(path, name), _unknown_property(sdk, title, name, kind)))
        elif name in kind.blocks and value is not UNKNOWN:
            errors += _block_errors(sdk, kind.blocks[name], value, join(path, name))
    for name in sorted(kind.required - inputs.keys()):
        errors.append((join(path, name), f"is required in {title}"))
    return errors


def _block_errors(sdk: Sdk, block: str, value: Any, path: str) -> InputErrors:
    is_list = isinstance(value, list)
    if block.endswith("[]") != is_list:
        wanted = "a single block, not a list or a value" if is_list else "a list of blocks"
        return [(path, f"must be {wanted}")]
    if not is_list:
        return _item_errors(sdk, block, value, path)
    errors: InputErrors = []
    for index, item in enumerate(value):
        errors += _item_errors(sdk, block, item, f"{path}[{index}]")
    return errors


def _item_errors(sdk: Sdk, block: str, item: Any, path: str) -> InputErrors:
    if isinstance(item, Mapping):
        return input_errors(sdk, path, sdk.block(block), item, path)
    return [] if item is UNKNOWN else [(path, "must be a block of properties")]


def _unknown_property(sdk: Sdk, title: str, name: str, kind: ResourceType) -> str:
    reason = f"{title} has no property of this name in pulumi-{sdk.package} {sdk.version}."
    page = f"See https://www.pulumi.com/registry/packages/{sdk.package}/api-docs/"
    return " ".join(filter(None, [reason, did_you_mean(name, kind.inputs), page]))
