"""What a program declares, found out without an engine, a plugin or a tool: see ``declaring``, which runs it."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format, struct_pb2

from ml_foundations.planning.input.program import Resource
from ml_foundations.rehearsal.engine import environment, language_host
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.protocol.values import read_struct

_RUNNER = Path(__file__).with_name("dry_run_process.py")
_SECONDS = 120


@dataclass(frozen=True)
class DryRun:
    """What came of a program.

    Attributes:
        resources: The type and inputs of each resource, by urn.
        error: Why the program failed, if it did.
        is_certain: Whether it would fail with an engine, too: a wrong argument, a missing module, the proof.
    """

    resources: Mapping[str, Resource]
    error: str = ""
    is_certain: bool = False


def dry_run(rehearsal: Rehearsal, *, with_proof: bool = True) -> DryRun:
    """Run the Python program of a stack, whether or not it is rehearsed; nothing is written into its folder.

    Without ``with_proof``, the program's own proof does not refuse it.

    Raises:
        RehearsalError: there is no such stack, or no environment for the program.
    """
    settings = environment.project_settings(rehearsal.project)
    if settings["runtime"].get("name") != "python":
        return DryRun(
            {},
            f"{rehearsal.project} is no program in Python, and only those are run without an engine",
        )
    program = rehearsal.project / (settings.get("main") or "")
    folder = program if program.is_dir() else program.parent
    given: dict[str, Any] = {
        "project": settings["name"],
        "stack": rehearsal.stack,
        "config": environment.configuration_of(rehearsal),
        "with_proof": with_proof,
        "folder": str(folder),
        "program": str(folder / "__main__.py" if program.is_dir() else program),
    }
    try:
        done = subprocess.run(
            [language_host.project_python(rehearsal.project, settings), _RUNNER],
            input=json.dumps(given),
            cwd=folder,
            env=environment.without_credentials()
            | {"ML_FOUNDATIONS_REHEARSAL": str(rehearsal.root)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DryRun({}, f"the program does not end within {_SECONDS} s")
    if not done.stdout:
        return DryRun({}, f"the program ended early: {done.stderr[-1000:]}")
    found = json.loads(done.stdout)
    resources = {
        each["urn"]: (
            each["type"],
            read_struct(json_format.ParseDict(each["inputs"], struct_pb2.Struct())),
        )
        for each in found["declared"]
    }
    return DryRun(resources, found["error"], found["is_certain"])
