"""The commands of a rehearsal."""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ml_foundations.catalog import services
from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.kinds.kind_files import FOLDER_VARIABLE
from ml_foundations.kubernetes import labels, printable
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.kubernetes.words import names, number, verb
from ml_foundations.planning.__main__ import tell
from ml_foundations.planning.input.program import Resource, named, nodes_of
from ml_foundations.planning.model.nodes import machine_of
from ml_foundations.planning.verdict import markdown
from ml_foundations.planning.verdict.quota_needs import quota_needs
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal import disruption, files
from ml_foundations.rehearsal.cloud import imported_nodes, replica
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.engine import environment, installation, project_files, stack
from ml_foundations.rehearsal.engine.dry_run import dry_run
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.progress import RehearsalError, Step, console, output, user_errors
from ml_foundations.rehearsal.report import contents, fleet, page, tables
from ml_foundations.rehearsal.report.deployed import deployed, previewed
from ml_foundations.rehearsal.report.hints import hints
from ml_foundations.rehearsal.report.outline import outline
from ml_foundations.rehearsal.report.workloads import STEADY
from ml_foundations.rehearsal.tools import doctor, toolchain
from ml_foundations.rehearsal.watching import interrupt_on_signals, repeated, watched

_FREE_BYTES = 300 * 1024**2
"""Free space that ``up`` needs for Pulumi's state and for etcd, which ends if it cannot write."""
_SETTLE_SECONDS = 120
_POLL_SECONDS = 0.25
_PAGE_SECONDS = 2
_UNCHANGED_SECONDS = 20
"""After this long without a change, a pending workload is considered to stay pending."""
_HANDOVER_SECONDS = 3
"""The same for workloads that wait only for the quota that completed workloads have released."""
WATCHING = "The page is kept up to date until you press Ctrl-C."


def run(name: str, args: argparse.Namespace) -> None:
    """Run one command. An error that is meant for the user ends the process with status 1."""
    os.umask(0o077)
    if kinds := os.environ.get(FOLDER_VARIABLE):  # programs run in other folders
        os.environ[FOLDER_VARIABLE] = str(Path(kinds).absolute())
    interrupt_on_signals()
    with user_errors():
        _COMMANDS[name](Rehearsal.of(args.stack, args.project.resolve()), args)


def _up(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    project_files.source_stack_file(rehearsal)
    files.require_free_space(rehearsal.root, _FREE_BYTES, "by its rehearsal. Free some")
    console().quiet = args.quiet
    if toolchain.missing():
        _require_working_program(rehearsal)
    tools = toolchain.ensure()
    _lock(rehearsal)
    if rehearsal.removal_marker.exists():
        _remove(rehearsal)
        _lock(rehearsal)
    installation.install(
        rehearsal,
        tools,
        official_kubernetes=args.official_kubernetes_plugin,
        allowed=args.allow_provider,
    )
    # The pulumi of an interrupted run may still be creating a cluster.
    stack.process(rehearsal).stop()
    # A program with a Proof writes this file again.
    (rehearsal.root / fleet.ACCEPTED).unlink(missing_ok=True)
    files.write_json(rehearsal.job_seconds, args.job_seconds)
    # Calls of plugins that were killed.
    files.remove(rehearsal.root / running_calls.FOLDER)
    with stack.start_early(rehearsal) as early:
        for cluster in rehearsal.replicas:
            stock = dict(args.max_nodes) | dict.fromkeys(args.stockout, 0)
            Store(cluster).put("stock", stock)
            Store(cluster).put("metrics", dict(args.metric))
        with Store(rehearsal).claimed():
            replica.resume(rehearsal, tools)
            if args.nodes:
                with _watched(rehearsal):
                    imported_nodes.copy(rehearsal, args.nodes)
    with _fresh_page(rehearsal) if args.watch else nullcontext(), _watched(rehearsal):
        warned = set[tuple[str, str]]()
        try:
            stack.up(
                rehearsal, early, args.quiet, args.verbose, lambda: _warn_early(rehearsal, warned)
            )
        except RehearsalError:
            _warn(fleet.judge_stack(rehearsal), rehearsal, warned)
            raise
        _warn_unknown_pools(rehearsal, [*dict(args.max_nodes), *args.stockout])
        result = fleet.with_proof(_settle(rehearsal), rehearsal)
        tables.show(result, rehearsal, output())
        # A command that is wrapped could not be pasted.
        output().print(hints(rehearsal, result.workloads), soft_wrap=True)
        if args.watch:
            console().print(WATCHING)
            with suppress(KeyboardInterrupt):
                signal.pause()
    latest = contents.collect(rehearsal) if args.watch else result
    _write_page(latest, rehearsal, rehearsal.page)
    if result.unwell:
        count = len(result.unwell)
        total = number(len(result.workloads), "workload")
        raise RehearsalError(
            f"{count} of {total} {verb(count, 'does', 'do')} not run; see the notes above"
        )
    if result.errors:
        raise RehearsalError("the proof finds errors that would show on Google Cloud; see above")


def _watched(rehearsal: Rehearsal) -> AbstractContextManager[None]:
    """Return a context in which the death of a process of the replicas ends ``up``."""
    return watched(lambda: replica.processes(rehearsal), rehearsal.command("up"))


def _warn_early(rehearsal: Rehearsal, warned: set[tuple[str, str]]) -> None:
    """Show the errors that the proof finds in the preview, before ``up`` waits for the update.

    A program with a Proof has already shown them. It has written the file of accepted rules.
    """
    if not (rehearsal.root / fleet.ACCEPTED).exists():
        _warn(fleet.judge_stack(rehearsal, previewed), rehearsal, warned)


def _warn(verdicts: Verdicts, rehearsal: Rehearsal, warned: set[tuple[str, str]]) -> None:
    """Show the errors among verdicts, each once. They are often why a deployment fails."""
    for finding in fleet.errors(verdicts, rehearsal):
        key = (finding.rule, finding.message)
        if key not in warned:
            warned.add(key)
            console().print(f"warning: {tables.finding_line(finding)}")


def _warn_unknown_pools(rehearsal: Rehearsal, names: list[str]) -> None:
    """Show the pools of a simulated stockout that the program does not declare."""
    pools = [pool for cluster in rehearsal.replicas for pool in Store(cluster).pools()]
    for name in names:
        if name not in pools:
            text = not_among(name, "node pool", pools)
            console().print(f"warning: the stockout has no effect: {text}")


def _require_working_program(rehearsal: Rehearsal) -> None:
    """Show what the program declares, or fail, before minutes are spent on its tools."""
    with Step("checking the program, before its tools are fetched"):
        program = dry_run(rehearsal)
    if program.is_certain:
        raise RehearsalError(f"the program fails: {program.error}")
    if program.error:
        # With its tools, it may have what it lacks here: credentials, or what a provider answers.
        console().print(f"warning: the program fails without its tools: {program.error}")
    elif text := outline(program):
        console().print(f"{rehearsal.title} will have\n{text}")


def _quota(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print the quotas and APIs that the program needs, whether or not it is rehearsed."""
    resources = _declared(rehearsal)
    needs = quota_needs(resources)
    apis = services.needed_apis(resources)
    roles = services.needed_roles(resources)
    unknown = services.unlisted(resources)
    if args.json:
        listed = {"quota": [*map(asdict, needs)], "apis": apis, "roles": roles, "unlisted": unknown}
        print(printable.as_json(listed))
    else:
        tables.show_quotas(needs, output())
        tables.show_access(apis, roles, unknown, output())


def _declared(rehearsal: Rehearsal) -> list[Resource]:
    project_files.source_stack_file(rehearsal)
    program = dry_run(rehearsal, with_proof=False)
    if program.error:
        raise RehearsalError(f"the program fails: {program.error}")
    return [named(resource, urn.rpartition("::")[2]) for urn, resource in program.resources.items()]


def pools_of(stack: str, project: Path) -> list[tuple[str, MachineType]]:
    """Return the names and machine types of a stack's node pools whose GPUs are not divided."""
    pools: list[tuple[str, MachineType]] = []
    with user_errors():
        for node in nodes_of(_declared(Rehearsal.of(stack, project.resolve()))):
            is_divided = labels.GKE_PARTITION_SIZE in node.labels
            machine = machine_of(node)
            if machine and not is_divided and labels.GKE_SHARING_STRATEGY not in node.labels:
                pools.append((node.name, machine))
    return pools


def _diff(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Compare two commits. The exit codes are those of ``plan --diff``."""
    # Imported here, as it imports the plugins: that takes 0.1 s, which no other command needs.
    from ml_foundations.rehearsal import difference

    stack_of = (rehearsal.project, rehearsal.stack)
    with user_errors(status=2):
        try:
            comparison = difference.compare(args.base, args.head, *stack_of)
        except RehearsalError as error:
            if args.format == "markdown":
                print(printable.text(markdown.of_errors([str(error)])))
            raise
    sys.exit(tell(comparison, args.format))


def _down(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    if not (rehearsal.root.exists() or rehearsal.removal_marker.exists()):
        console().print(f"{rehearsal.stack} is not rehearsed: nothing to remove")
        return
    _lock(rehearsal)
    retained = fleet.judge_stack(rehearsal).retained
    commands: Mapping[str, str] = {}
    with suppress(Exception):  # without its project, or with a broken state, it can be removed
        commands = services.finding_commands([item.resource for item in deployed(rehearsal)])
    secrets = project_files.own_secrets(rehearsal)
    with Step(f"removing the rehearsal of {rehearsal.stack}"):
        _remove(rehearsal)
    if secrets:
        lost = f"It had secrets that only it could decrypt: {names(secrets)}."
        console().print(printable.line(f"{lost} Set them again after the next up."))
    if left := [*as_lines(retained), *tables.leftover_lines(commands)]:
        lines = ["Nothing of it is left on this machine.", *left]
        console().print(printable.lines(lines))
    if not any(path.is_dir() for path in rehearsal.root.parent.iterdir()):
        shutil.rmtree(rehearsal.root.parent)


def _remove(rehearsal: Rehearsal) -> None:
    """Remove all of a rehearsal.

    An interruption may leave Pulumi's state of objects that no longer exist. Therefore a marker
    exists during the removal, and the next ``up`` finishes it.
    """
    rehearsal.removal_marker.touch()
    stack.process(rehearsal).stop()
    for cluster in reversed(rehearsal.replicas):
        replica.delete(cluster)
    rehearsal.removal_marker.unlink()


def _status(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    processes = list(replica.processes(rehearsal))
    for process in processes:
        pid = process.pid
        state = f"running, pid {pid}" if pid else "not running"
        output().print(f"{process.name:<26} {state}", soft_wrap=True)
    _require_running(rehearsal, processes)


def _report(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    _require_up(rehearsal)
    result = fleet.with_proof(contents.collect(rehearsal), rehearsal)
    if args.html:
        _write_page(result, rehearsal, args.html)
    if args.json:
        print(result.to_json())
    elif not args.html:
        tables.show(result, rehearsal, output())


def _disrupt(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    _require_up(rehearsal)
    result = disruption.disrupt(
        rehearsal, node=args.node, pool=args.pool, how=args.how, after=args.after
    )
    output().print(printable.lines(result.lines), soft_wrap=True)
    if result.not_as_before:
        raise RehearsalError("the workloads do not run as before; see above")


def _fresh_page(rehearsal: Rehearsal) -> AbstractContextManager[None]:
    """Write the page again and again. It reloads as often as it is written."""
    console().print(f"Open {os.path.relpath(rehearsal.page)} in a browser: it shows what happens.")

    def write() -> None:
        report = contents.collect(rehearsal)
        _write_page(report, rehearsal, rehearsal.page, reload_seconds=_PAGE_SECONDS)

    return repeated(write, _PAGE_SECONDS)


def _write_page(
    result: contents.Report, rehearsal: Rehearsal, file: Path, reload_seconds: int = 0
) -> None:
    text = page.render(
        result, fleet.collect(result, rehearsal), rehearsal.title, datetime.now(UTC), reload_seconds
    )
    try:
        files.write(file, text)
    except OSError as error:
        raise RehearsalError(f"the page cannot be written: {error}") from None


def _env(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    try:
        _require_up(rehearsal)
    except RehearsalError:
        print(environment.dead_shell())
        raise
    print(environment.shell_exports(rehearsal))


def _kubeconfig(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    _require_up(rehearsal)
    print(environment.kubeconfigs(rehearsal))


def _lock(rehearsal: Rehearsal) -> None:
    """Lock the rehearsal's folder until this process ends: one command at a time changes it."""
    rehearsal.make()
    # Private files of this process are then in the rehearsal's folder, like those of its plugins.
    os.environ["ML_FOUNDATIONS_REHEARSAL"] = str(rehearsal.root)
    if not files.lock(rehearsal.root):
        raise RehearsalError(
            f"another command is changing the rehearsal of {rehearsal.stack}. "
            "Wait until it ends, then run this command again"
        )


def _require_up(rehearsal: Rehearsal) -> None:
    processes = [part for cluster in rehearsal.replicas for part in kwok.processes(cluster)]
    _require_running(rehearsal, processes if rehearsal.kubeconfig.exists() else [])


def _require_running(rehearsal: Rehearsal, processes: list[Process]) -> None:
    """Raise an error unless there are processes and all of them run."""
    if not (processes and all(process.running for process in processes)):
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: {rehearsal.command('up')}")


def _settle(rehearsal: Rehearsal) -> contents.Report:
    """Wait until every workload is steady, or nothing has changed for a while."""
    with Step("waiting for the workloads to settle") as progress:
        started = changed = time.monotonic()
        result = contents.collect(rehearsal)
        read_seconds = time.monotonic() - started
        while waiting := _not_settled(result):
            is_handover = all(workload.state in STEADY for workload in waiting)
            patience = _HANDOVER_SECONDS if is_handover else _UNCHANGED_SECONDS
            if time.monotonic() >= min(started + _SETTLE_SECONDS, changed + patience):
                break
            progress.detail(f"{len(waiting)} of {len(result.workloads)} under way")
            # Reading thousands of pods slows the replica down: wait longer after a longer read.
            time.sleep(max(_POLL_SECONDS, 2 * read_seconds))
            read_started = time.monotonic()
            latest = contents.collect(rehearsal)
            read_seconds = time.monotonic() - read_started
            if latest != result:
                result = latest
                changed = time.monotonic()
    return result


def _not_settled(report: contents.Report) -> list[contents.Workload]:
    """Return the workloads whose state may still change.

    If a workload has completed, one that waits in a queue may get its quota next.
    """
    has_completed = any(workload.state == "Completed" for workload in report.workloads)
    waiting: list[contents.Workload] = []
    for workload in report.workloads:
        may_get_quota = has_completed and workload.state == "Suspended" and workload.reason
        if workload.state not in STEADY or may_get_quota:
            waiting.append(workload)
    return waiting


_COMMANDS: Mapping[str, Callable[[Rehearsal, argparse.Namespace], None]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "report": _report,
    "disrupt": _disrupt,
    "env": _env,
    "kubeconfig": _kubeconfig,
    "diff": _diff,
    "doctor": lambda _rehearsal, _args: doctor.doctor(),
    "quota": _quota,
    "tools": lambda _rehearsal, args: doctor.fetch(args),
}
