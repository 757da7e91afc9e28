"""The comparison of two commits of a project: verdicts, cost, replacements and lost data."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.planning import judge
from ml_foundations.planning.input.program import Resource, named
from ml_foundations.planning.model import kind_files
from ml_foundations.planning.model.kind_files import FOLDER_VARIABLE
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.rehearsal.engine.dry_run import dry_run
from ml_foundations.rehearsal.engine.project_files import project_settings, source_stack_file
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp.provider import replaced_paths as replaced_in_google_cloud
from ml_foundations.rehearsal.plugins.kubernetes import diff
from ml_foundations.rehearsal.plugins.kubernetes.objects import as_stored
from ml_foundations.rehearsal.plugins.property_paths import changed_paths
from ml_foundations.rehearsal.processes import run
from ml_foundations.rehearsal.progress import RehearsalError

_LOSES_DATA = "and loses its data"
_KEEPS_DATA = (
    "gcp:bigquery/",
    "gcp:compute/disk:",
    "gcp:filestore/instance:",
    "gcp:sql/",
    "gcp:storage/bucket:Bucket",
    "kubernetes:core/v1:Namespace",
    "kubernetes:core/v1:PersistentVolume",
)
"""Types of resources that are deleted with their data. A namespace is deleted with its claims."""


class _NoSuchStackError(RehearsalError):
    """A commit without the project or without this stack."""


def compare(base: str, head: str, project: Path, stack: str) -> Comparison:
    """Compare the resources that the programs of two commits declare.

    Both programs run with the packages of the project's present environment. HEAD does not choose
    its judge: the user's kinds are those of BASE.

    Raises:
        RehearsalError: a commit does not exist, HEAD lacks the stack, or a program fails.
    """
    kind_files.use("")
    new = _resources(head, project, stack)
    try:
        old, added = _resources(base, project, stack, judges=True), ()
    except _NoSuchStackError as error:
        old, added = dict[str, Resource](), (f"All is new: {error}.",)
    changes = dict(_changes(old, new))
    lost = tuple(name for name, change in changes.items() if change.endswith(_LOSES_DATA))
    notes = (*added, *(f"{name} {change}." for name, change in changes.items()))
    # A missing program has no unknown nodes, unlike an empty one.
    before = judge_program(old.values()) if old else judge([])
    after = judge_program(new.values())
    notes += report.kinds_used(after)
    return Comparison(f"From {base} to {head}", before, after, notes, lost=lost)


def _changes(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> Iterator[tuple[str, str]]:
    """Yield the names of replaced resources, and of deleted ones with data, with the change."""
    for urn, (type_, before) in old.items():
        paths = _replaced(type_, before, new[urn][1]) if urn in new else []
        keeps = type_.startswith(_KEEPS_DATA)
        if paths or (urn not in new and keeps):
            change = f"is replaced, for {', '.join(paths)}" if paths else "is deleted"
            name = f"{type_.rpartition(':')[2]} {urn.rpartition('::')[2]}"
            yield name, f"{change}, {_LOSES_DATA}" if keeps else change


def _replaced(type_: str, before: Manifest, after: Manifest) -> list[str]:
    if type_.startswith("gcp:"):
        return replaced_in_google_cloud(type_, before, after)
    if type_.startswith("kubernetes:") and "kind" in after and not type_.endswith("Patch"):
        return diff.replaced_paths(
            list(changed_paths(as_stored(before), as_stored(after), same=diff.same)), after
        )
    return []


def _resources(
    commit: str, project: Path, stack: str, *, judges: bool = False
) -> Mapping[str, Resource]:
    """Return the resources of a commit's program. If it judges, its kinds are used from then on."""
    root = Path(_git(project, "rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        _git(project, "worktree", "add", "--detach", str(tree), commit)
        try:
            rehearsal = Rehearsal.of(stack, tree / project.relative_to(root))
            try:
                source_stack_file(rehearsal)
            except RehearsalError as error:
                raise _NoSuchStackError(
                    f"at {commit}, {error}".replace(str(tree), str(root))
                ) from None
            _bring_environment(project, rehearsal.project)
            found = dry_run(rehearsal, with_proof=False)
            if judges:
                _use_kinds(found.kinds or os.environ.get(FOLDER_VARIABLE, ""), root, tree, commit)
        finally:
            _git(project, "worktree", "remove", "--force", str(tree))
    if found.error:
        raise RehearsalError(f"at {commit}, the program fails: {found.error}")
    return {urn: named(each, urn.rpartition("::")[2]) for urn, each in found.resources.items()}


def _use_kinds(folder: str, root: Path, tree: Path, commit: str) -> None:
    """Use the kinds in a folder, which is that of the commit if it is in the repository."""
    # Not by the links of the working tree, which are those of HEAD.
    title, path = folder, Path(os.path.normpath(Path(folder).absolute()))
    for top in filter(path.is_relative_to, (root, tree.resolve()) if folder else ()):
        title = f"{commit}:{path.relative_to(top)}"
        folder = str(tree / path.relative_to(top))
    try:
        # The commit may not have the folder that a variable names.
        kind_files.use(folder if Path(folder).is_dir() else "", title)
    except kind_files.KindError as error:
        raise RehearsalError(str(error)) from None


def _bring_environment(project: Path, copy: Path) -> None:
    """Let the copy have the virtual environment of the project, which git does not keep."""
    name = str(project_settings(copy)["runtime"]["options"].get("virtualenv") or ".venv")
    if (project / name).exists() and not (copy / name).exists():
        (copy / name).symlink_to(project / name)


def _git(folder: Path, *args: str) -> str:
    return run(["git", "-C", folder, *args], f"git {' '.join(args)} failed").strip()
