"""The comparison of two commits of a project: verdicts, cost, replacements and lost data."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ml_foundations.kinds import kind_files
from ml_foundations.kinds.kind_files import FOLDER_VARIABLE
from ml_foundations.planning import judge
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.rehearsal.engine.dry_run import DryRun, dry_run
from ml_foundations.rehearsal.engine.project_files import project_settings, source_stack_file
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import run
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.replacements import replacements

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
    new = _declared(head, project, stack)
    try:
        old = _declared(base, project, stack, judges=True)
        added = ()
    except _NoSuchStackError as error:
        old = DryRun({})
        added = (f"All is new: {error}.",)
    # A missing program has no unknown nodes, unlike an empty one.
    before = judge_clusters(old.declared) if old.resources else judge([])
    after = judge_clusters(new.declared)
    replaced = replacements(old, new)
    changes = dict(_changes(old, new, replaced))
    lost = tuple(name for name, change in changes.items() if change.endswith(_LOSES_DATA))
    notes = (*added, *(f"{name} {change}." for name, change in changes.items()))
    notes += report.kinds_used(after)
    running = {str(item.workload) for item in before.workloads}
    manifests = [inputs for urn, (_, inputs) in old.resources.items() if urn in replaced]
    objects = [full_name(manifest) for manifest in manifests if "kind" in manifest]
    restarted = tuple(name for name in objects if name in running)
    title = f"From {base} to {head}"
    return Comparison(title, before, after, notes, lost=lost, restarted=restarted)


def _changes(
    old: DryRun, new: DryRun, replaced: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the names of replaced resources, and of deleted ones with data, with the change."""
    for urn, (type_, _) in old.resources.items():
        paths = replaced.get(urn, ())
        keeps = type_.startswith(_KEEPS_DATA)
        if paths or (urn not in new.resources and keeps):
            change = f"is replaced, for {', '.join(paths)}" if paths else "is deleted"
            name = f"{type_.rpartition(':')[2]} {urn.rpartition('::')[2]}"
            yield name, f"{change}, {_LOSES_DATA}" if keeps else change


def _declared(commit: str, project: Path, stack: str, *, judges: bool = False) -> DryRun:
    """Return what a commit's program declares. If it judges, its kinds are used from then on."""
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
            # The copy gets the virtual environment of the project, which git does not keep.
            runtime = project_settings(rehearsal.project)["runtime"]["options"]
            name = str(runtime.get("virtualenv") or ".venv")
            if (project / name).exists() and not (rehearsal.project / name).exists():
                (rehearsal.project / name).symlink_to(project / name)
            program = dry_run(rehearsal, with_proof=False)
            if judges:
                _use_kinds(program.kinds or os.environ.get(FOLDER_VARIABLE, ""), root, tree, commit)
        finally:
            _git(project, "worktree", "remove", "--force", str(tree))
    if program.error:
        raise RehearsalError(f"at {commit}, the program fails: {program.error}")
    return program


def _use_kinds(folder: str, root: Path, tree: Path, commit: str) -> None:
    """Use the kinds in a folder, which is that of the commit if it is in the repository."""
    # Not by the links of the working tree, which are those of HEAD.
    title = folder
    path = Path(os.path.normpath(Path(folder).absolute()))
    for top in filter(path.is_relative_to, (root, tree.resolve()) if folder else ()):
        title = f"{commit}:{path.relative_to(top)}"
        folder = str(tree / path.relative_to(top))
    try:
        # The commit may not have the folder that a variable names.
        kind_files.use(folder if Path(folder).is_dir() else "", title)
    except kind_files.KindError as error:
        raise RehearsalError(str(error)) from None


def _git(folder: Path, *args: str) -> str:
    return run(["git", "-C", folder, *args], f"git {' '.join(args)} failed").strip()
