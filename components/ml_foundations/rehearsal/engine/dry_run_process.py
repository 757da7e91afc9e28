"""Runs a Pulumi program without an engine, and prints what it declares: for the program's own Python, which has Pulumi.

What only a provider knows is unknown, as at a first preview. Functions of providers answer nothing: what a program that
asks them then declares is not what it declares in earnest.
"""

# Nothing of this package is imported here: the program's environment need not have it.
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


class _Nothing(mocks.Mocks):
    """Knows of a resource what the program says."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def new_resource(self, args: Any) -> Any:
        if args.resource_id:
            self.asked.append(args.typ)
        return args.name, {key: value for key, value in args.inputs.items() if value is not None}

    def call(self, args: Any) -> Any:
        self.asked.append(args.token)
        return {}


class _Monitor(mocks.MockMonitor):
    """Notes what is registered, as it is sent."""

    def __init__(self, known: _Nothing) -> None:
        super().__init__(known)
        self.declared: list[dict[str, Any]] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the protocol's name)
        answer = super().RegisterResource(request)
        sent = json_format.MessageToDict(request.object)
        self.declared.append({"urn": answer.urn, "type": request.type, "inputs": sent})
        return answer


def main() -> None:
    """Run the program that standard input describes, and print what came of it."""
    given = json.load(sys.stdin)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    known = _Nothing()
    monitor = _Monitor(known)
    mocks.set_mocks(known, given["project"], given["stack"], preview=True, monitor=monitor)
    pulumi.runtime.set_all_config(given["config"])
    if not given["with_proof"]:
        with contextlib.suppress(ImportError):
            from ml_foundations.proof import Proof  # of the program's environment

            Proof.judges = False
    sys.path[0] = given["folder"]
    error, is_certain = "", False

    def program() -> None:
        runpy.run_path(given["program"], run_name="__main__")

    with contextlib.redirect_stdout(sys.stderr):
        try:
            loop.run_until_complete(run_pulumi_func(program))
        except BaseException as raised:
            is_certain = (
                isinstance(raised, (pulumi.RunError, SyntaxError, ImportError)) and not known.asked
            )
            error = (
                str(raised)
                if isinstance(raised, pulumi.RunError)
                else traceback.format_exc(limit=-2)
            )
    print(json.dumps({"declared": monitor.declared, "error": error, "is_certain": is_certain}))
    sys.stdout.flush()
    os._exit(0)  # Threads that the program left behind do not count.


if __name__ == "__main__":
    main()
