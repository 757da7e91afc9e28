"""Run the program of a page against Pulumi's mocks, and prove what it declares."""

from pathlib import Path
from typing import Any

import pulumi
from ml_foundations.component.outputs import as_plain
from ml_foundations.kubernetes.trees import map_leaves
from ml_foundations.planning.input.program import is_judged, is_kept, named
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts
from pulumi.runtime import rpc

from tests.support.checkout import CHECKOUT
from tests.support.declaring import requests
from tools.blocks import program

SETTINGS = {"gcp:project": "my-project", "p:registry": '{"auths": {}}'}
"""The settings that programs of pages read."""
MINIMAL = CHECKOUT / "examples" / "minimal" / "__main__.py"


def run(page: Path, text: str | None = None) -> list[Any]:
    """Return the request of each resource that the program of a page registers.

    Args:
        page: The page. Its lines are the lines of tracebacks.
        text: The text of the page if it is changed.
    """
    code = compile(program(text or page.read_text()), str(page), "exec")
    pulumi.runtime.set_all_config(SETTINGS)
    try:
        return requests(lambda: exec(code, {"__name__": "__main__", "__file__": str(MINIMAL)}))
    finally:
        pulumi.runtime.set_all_config({})


def prove(registered: list[Any]) -> Verdicts:
    """Return the verdicts on the resources of a program, as a rehearsal has them."""
    judged = [request for request in registered if is_judged(request.type)]
    resources = [named((request.type, _inputs(request)), request.name) for request in judged]
    kept = [
        resource
        for resource, request in zip(resources, judged, strict=True)
        if is_kept(request.type, retained=request.retainOnDelete, protected=request.protect)
    ]
    return judge_program(resources, kept=kept, rehearsed=True)


def _inputs(request: Any) -> dict[str, Any]:
    inputs = rpc.deserialize_properties(request.object, keep_unknowns=True)
    return {
        key: map_leaves(rpc.unwrap_rpc_secret(value), as_plain) for key, value in inputs.items()
    }
