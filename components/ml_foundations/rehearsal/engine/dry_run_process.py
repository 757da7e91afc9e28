"""The child process of a dry run: it runs a program and prints the declared resources.

It runs in the program's own Python, which has Pulumi's SDK. As at a first preview, outputs that
only a provider knows are unknown. Functions of providers return nothing, so a program that uses
their results may declare other resources than it does with an engine.
"""

# This file imports nothing of this package at the top: the program's environment may not have it.
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import runpy
import sys
import traceback
from typing import Any

import pulumi
from google.protobuf import json_format
from pulumi.runtime import mocks
from pulumi.runtime.stack import run_pulumi_func

_STACK = "pulumi:pulumi:Stack"


class _InputsOnly(mocks.Mocks):
    """Providers that know nothing of a resource except its inputs."""

    def __init__(self) -> None:
        self.lookups: list[str] = []
        """The types and functions that the program reads from a provider."""

    def new_resource(self, args: Any) -> Any:
        if args.resource_id:
            self.lookups.append(args.typ)
        return None, {key: value for key, value in args.inputs.items() if value is not None}

    def call(self, args: Any) -> Any:
        self.lookups.append(args.token)
        return {}


class _Monitor(mocks.MockMonitor):
    """A resource monitor that keeps each registered resource as the program sends it."""

    def __init__(self, providers: _InputsOnly) -> None:
        super().__init__(providers)
        self.registered: list[dict[str, Any]] = []

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Return the urn with the types of all parents but the stack, as the engine makes it."""
        types = parent.split("::")[2] if parent else _STACK
        return super().make_urn("", type_ if types == _STACK else f"{types}${type_}", name)

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the protocol's name)
        answer = super().RegisterResource(request)
        trigger = json_format.MessageToDict(request.replacement_trigger)
        deletes_first = request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        dependencies = request.propertyDependencies.items()
        # These options decide whether an update replaces the resource.
        options = {
            "ignored": list(request.ignoreChanges),
            "replaced": list(request.replaceOnChanges),
            "replace_with": list(request.replace_with),
            "replacement_trigger": trigger if request.HasField("replacement_trigger") else None,
            "deletes_first": deletes_first,
            "provider": request.provider.rpartition("::")[0],
            "parent": "" if f"::{_STACK}::" in request.parent else request.parent,
            "sources": {key: list(dependency.urns) for key, dependency in dependencies},
        }
        inputs = json_format.MessageToDict(request.object)
        resource = {"urn": answer.urn, "type": request.type, "inputs": inputs, "options": options}
        self.registered.append(resource)
        return answer


def main() -> None:
    """Run the program that standard input describes; print its resources and error as JSON."""
    request = json.load(sys.stdin)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    providers = _InputsOnly()
    monitor = _Monitor(providers)
    mocks.set_mocks(providers, request["project"], request["stack"], preview=True, monitor=monitor)
    pulumi.runtime.set_all_config(request["config"])
    if not request["with_proof"]:
        with contextlib.suppress(ImportError):
            from ml_foundations.proof import Proof  # of the program's environment

            Proof.judges = False
    sys.path[0] = request["folder"]
    error = ""
    is_certain = False

    def program() -> None:
        runpy.run_path(request["program"], run_name="__main__")

    with contextlib.redirect_stdout(sys.stderr):
        try:
            loop.run_until_complete(run_pulumi_func(program))
        except BaseException as raised:
            is_run_error = isinstance(raised, pulumi.RunError)
            error = str(raised) if is_run_error else traceback.format_exc(limit=-2)
            # After a lookup, the failure may come from the missing result.
            is_final = is_run_error or isinstance(raised, (SyntaxError, ImportError))
            is_certain = is_final and not providers.lookups
    print(json.dumps({"resources": monitor.registered, "error": error, "is_certain": is_certain}))
    sys.stdout.flush()
    os._exit(0)  # Threads that the program started must not keep the process.


if __name__ == "__main__":
    main()
