"""Stacks as rules see them."""

from collections.abc import Iterable
from typing import Any

import yaml
from ml_foundations.planning import judge
from ml_foundations.planning.input.program import Resource, chart_namespaces
from ml_foundations.planning.rules.stack import JudgedWorkload, Stack
from ml_foundations.planning.verdict.references import DeclaredObjects

from tests.factories import Manifest


def stack_of(objects: Iterable[Manifest], *resources: Resource) -> Stack:
    """Return the view of objects, and of the other resources of a program."""
    objects = [*objects]
    charts = chart_namespaces(resources)
    return Stack(objects=objects, existing=DeclaredObjects(objects, charts), resources=resources)


def of_program(*objects: Manifest) -> Stack:
    """Return the view of a program that declares objects."""
    return stack_of(objects, *((f"kubernetes:{item['kind']}", item) for item in objects))


def with_workloads(*objects: Manifest) -> Stack:
    """Return the view of objects whose workloads are judged."""
    judged = judge([*objects]).workloads
    workloads = [JudgedWorkload(item.workload, item.verdict, item.reasons) for item in judged]
    return Stack(objects=objects, existing=DeclaredObjects(objects, ()), workloads=workloads)


def example_program(example: str) -> tuple[list[Resource], list[Resource]]:
    """Return the resources of the example of a rule, and those that Pulumi keeps."""
    resources: list[Resource] = []
    kept: list[Resource] = []
    for document in yaml.safe_load_all(example):
        inputs: dict[str, Any] = dict(document)
        options = inputs.pop("options", {})
        api_version = inputs.get("apiVersion")
        type_ = inputs.pop("type", f"kubernetes:{api_version}:{inputs.get('kind')}")
        resources.append((type_, inputs))
        if options.get("retainOnDelete"):
            kept.append(resources[-1])
    return resources, kept
