"""A resource's inputs beside what the SDK's classes of arguments take, at any depth."""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.property_paths import join
from ml_foundations.rehearsal.plugins.sdk import ResourceType, Sdk


def faults(
    sdk: Sdk, what: str, taken: ResourceType, given: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str]]:
    """The paths of inputs that a type or a block does not take, and of those that it lacks, each with the reason.

    Values are not shown: a mistyped name may be that of a secret.
    """
    for name, value in given.items():
        if name.startswith("__"):
            continue
        if name not in taken.inputs:
            yield join(path, name), _not_a_property(sdk, what, name, taken)
        elif (block := taken.blocks.get(name)) and value is not UNKNOWN:
            yield from _block_faults(sdk, block, value, join(path, name))
    for name in sorted(taken.required - given.keys()):
        yield join(path, name), f"is required in {what}"


def _block_faults(sdk: Sdk, block: str, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if block.endswith("[]") != isinstance(value, list):
        yield (
            path,
            f"must be {'a list of blocks' if block.endswith('[]') else 'a single block, not a list or a value'}",
        )
        return
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        at = f"{path}[{index}]" if isinstance(value, list) else path
        if isinstance(item, Mapping):
            yield from faults(sdk, at, sdk.block(block), item, at)
        elif item is not UNKNOWN:
            yield at, "must be a block of properties"


def _not_a_property(sdk: Sdk, what: str, name: str, taken: ResourceType) -> str:
    reason = f"{what} has no property of this name in pulumi-{sdk.package} {sdk.version}."
    page = f"See https://www.pulumi.com/registry/packages/{sdk.package}/api-docs/"
    return " ".join(filter(None, [reason, did_you_mean(name, taken.inputs), page]))
