"""The resources that a Python program declares, found without an engine, a plugin or a tool.

``dry_run_process.py`` runs the program in a child process.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from google.protobuf import json_format, struct_pb2

from ml_foundations.kubernetes.reading import ReadError, json_value
from ml_foundations.planning.input.clusters import Declared, sources_of
from ml_foundations.planning.input.program import Resource, named
from ml_foundations.rehearsal.engine import environment, language_host, project_files
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.protocol.values import read_struct

ACCEPTED = "accepted.json"
"""The file in which the program's Proof keeps the rules that it accepts."""
KINDS = "kinds.json"
"""The file in which the program's Proof keeps the folder of the user's kinds."""

_RUNNER = Path(__file__).with_name("dry_run_process.py")
_SECONDS = 120


class Options(NamedTuple):
    """The options that decide whether an update replaces a resource."""

    ignored: Sequence[str] = ()
    """The paths in ``ignore_changes``."""
    replaced: Sequence[str] = ()
    """The paths in ``replace_on_changes``."""
    replace_with: Sequence[str] = ()
    replacement_trigger: Any = None
    deletes_first: bool | None = None
    """The value of ``delete_before_replace``; None if the provider decides."""
    provider: str = ""
    """The urn of its provider; empty for the default provider."""
    parent: str = ""
    """The urn of its component; empty for the stack."""
    sources: Mapping[str, Sequence[str]] = {}
    """The urns of the resources that each input depends on."""


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        resources: The type and inputs of each declared resource, by urn.
        options: The options of each declared resource, by urn.
        error: Why the program failed; empty if it did not.
        is_certain: Whether it also fails with an engine, as for an invalid argument.
        accepted: The rules whose errors the program's proof accepts.
        kinds: The folder of the user's kinds that the program's proof names; empty if none.
    """

    resources: Mapping[str, Resource]
    error: str = ""
    is_certain: bool = False
    accepted: Sequence[str] = ()
    kinds: str = ""
    options: Mapping[str, Options] = field(default_factory=dict[str, Options])

    @property
    def declared(self) -> list[Declared]:
        """The declared resources as the proof judges them, each with what shows its cluster."""
        declared: list[Declared] = []
        for urn, resource in self.resources.items():
            name = urn.rpartition("::")[2]
            options = self.options.get(urn, Options())
            sources = sources_of(resource[0], options.sources)
            given = named(resource, name)
            declared.append(Declared(given, urn, name, options.provider, sources, options.parent))
        return declared


def dry_run(rehearsal: Rehearsal, *, with_proof: bool = True) -> DryRun:
    """Run the Python program of a stack, and write nothing into its folder.

    Without ``with_proof``, the program's own proof does not refuse it. Raises a RehearsalError if
    there is no such stack, or no environment for the program.
    """
    settings = project_files.project_settings(rehearsal.project)
    if settings["runtime"].get("name") != "python":
        reason = "is not a program in Python, and only those run without an engine"
        return DryRun({}, f"{rehearsal.project} {reason}")
    program = rehearsal.project / (settings.get("main") or "")
    folder = program if program.is_dir() else program.parent
    request: dict[str, Any] = {
        "project": settings["name"],
        "stack": rehearsal.stack,
        "config": project_files.configuration_of(rehearsal),
        "with_proof": with_proof,
        "folder": str(folder),
        "program": str(folder / "__main__.py" if program.is_dir() else program),
    }
    variables = environment.without_credentials()
    with TemporaryDirectory() as written:
        # The proof writes its accepted rules there.
        variables["ML_FOUNDATIONS_REHEARSAL"] = written
        try:
            process = subprocess.run(
                [language_host.project_python(rehearsal.project, settings), _RUNNER],
                input=json.dumps(request),
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return DryRun({}, f"the program does not end within {_SECONDS} s")
        accepted = read_json(Path(written) / ACCEPTED, [])
        kinds = read_json(Path(written) / KINDS, "")
    if not process.stdout:
        return DryRun({}, f"the program ended early: {process.stderr[-1000:]}")
    try:
        result = json_value(process.stdout)
    except ReadError as error:  # the program writes to its own standard output
        return DryRun({}, f"what the program declares cannot be read: {error}")
    resources, options = parsed(result["resources"])
    return DryRun(resources, result["error"], result["is_certain"], accepted, kinds, options)


def parsed(
    registered: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, Resource], dict[str, Options]]:
    """Return the resources that the child process registered, and their options, by urn."""
    resources: dict[str, Resource] = {}
    options: dict[str, Options] = {}
    for resource in registered:
        options[resource["urn"]] = Options(**resource["options"])
        inputs = json_format.ParseDict(resource["inputs"], struct_pb2.Struct())
        resources[resource["urn"]] = resource["type"], read_struct(inputs)
    return resources, options
