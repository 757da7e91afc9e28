"""What the commands of a rehearsal do."""

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ml_foundations.catalog.quotas import needed_apis
from ml_foundations.kubernetes.words import number, verb
from ml_foundations.planning.__main__ import tell
from ml_foundations.planning.input.program import named
from ml_foundations.planning.verdict.quota_needs import quota_needs
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal import files
from ml_foundations.rehearsal.cloud import imported_nodes, replica
from ml_foundations.rehearsal.cloud.store import ASSUMED, Store
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.engine import environment, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.progress import RehearsalError, Step, console, output, user_errors
from ml_foundations.rehearsal.report import contents, fleet, page, tables
from ml_foundations.rehearsal.report.deployed import previewed
from ml_foundations.rehearsal.report.workloads import STEADY
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.groups import GROUPS, PULUMI
from ml_foundations.rehearsal.watching import repeated, watched

_FREE_BYTES = 300 * 1024**2
"""Room that an ``up`` must find: for etcd, which ends where it cannot write, and for Pulumi's state."""
_SETTLE_SECONDS = 120
_POLL_SECONDS = 0.25
_PAGE_SECONDS = 2
_QUIET_SECONDS = 20
"""After this long without any change, what is still pending is taken to stay so."""
_HANDOVER_SECONDS = 3
"""After this long, what waits for the quota that others have left is taken to stay so."""


def run(name: str, args: argparse.Namespace) -> None:
    """Run one command; an error meant for the user ends the process with status 1."""
    os.umask(0o077)
    with user_errors():
        _COMMANDS[name](Rehearsal.of(args.stack, args.project.resolve()), args)


def _up(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    environment.source_stack_file(rehearsal)
    files.require_room(rehearsal.root, _FREE_BYTES, "by its rehearsal. Free some")
    console().quiet = args.quiet
    if toolchain.to_build():
        _refuse_early(rehearsal)
    tools = toolchain.ensure()
    _lock(rehearsal)
    if rehearsal.removal_marker.exists():
        _remove(rehearsal)
        _lock(rehearsal)
    environment.install(
        rehearsal,
        tools,
        official_kubernetes=args.official_kubernetes_plugin,
        allowed=args.allow_provider,
    )
    stack.process(rehearsal).stop()  # that of an interrupted run, which may be at making a cluster
    (rehearsal.root / fleet.ACCEPTED).unlink(
        missing_ok=True
    )  # the program notes it anew, if it has a Proof
    files.remove(rehearsal.root / running_calls.FOLDER)  # calls that were killed
    with stack.start_early(rehearsal) as early:
        for each in rehearsal.replicas:
            Store(each).put("stock", dict(args.stock))
        with Store(rehearsal).claimed():
            replica.resume(rehearsal, tools)
            if args.nodes:
                imported_nodes.copy(rehearsal, args.nodes)
    with (
        _fresh_page(rehearsal) if args.watch else nullcontext(),
        watched(lambda: replica.processes(rehearsal), rehearsal.command("up")),
    ):
        warned = set[tuple[str, str]]()
        try:
            stack.up(
                rehearsal, early, args.quiet, args.verbose, lambda: _warn_early(rehearsal, warned)
            )
        except RehearsalError:
            _warn(fleet.judged(rehearsal), rehearsal, warned)
            raise
        result = _settle(rehearsal)
        result = fleet.with_proof(result, rehearsal)
        tables.show(result, rehearsal, output())
        _show_hints(rehearsal)
        if args.watch:
            console().print("The page stays fresh until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                signal.pause()
    _write_page(contents.collect(rehearsal) if args.watch else result, rehearsal, rehearsal.page)
    if result.unwell:
        count, of = len(result.unwell), number(len(result.workloads), "workload")
        raise RehearsalError(
            f"{count} of {of} {verb(count, 'does', 'do')} not run; see the notes above"
        )
    if result.errors:
        raise RehearsalError("the proof finds errors that would show on Google Cloud; see above")


def _warn_early(rehearsal: Rehearsal, warned: set[tuple[str, str]]) -> None:
    """Show what the proof finds in a program without a Proof once it is previewed, before ``up`` waits for it."""
    if not (rehearsal.root / fleet.ACCEPTED).exists():  # a Proof has noted there what it accepts
        _warn(fleet.judged(rehearsal, previewed), rehearsal, warned)


def _warn(verdicts: Verdicts, rehearsal: Rehearsal, warned: set[tuple[str, str]]) -> None:
    """Show the errors of verdicts, each once: of a deployment that fails, they are often the cause."""
    for each in fleet.errors(verdicts, rehearsal):
        if (each.rule, each.message) not in warned:
            warned.add((each.rule, each.message))
            console().print(
                f"warning: {each.object}: {each.message}. {each.remedy} [{each.rule}]", markup=False
            )


def _refuse_early(rehearsal: Rehearsal) -> None:
    """Fail for a program that cannot run in any case, before tools are built for minutes."""
    from ml_foundations.rehearsal.engine.dry_run import (
        dry_run,
    )  # needs Pulumi's SDK, which few commands do

    with Step("looking at the program, before tools are built"):
        found = dry_run(rehearsal)
    if found.is_certain:
        raise RehearsalError(f"the program fails: {found.error}")


def _quota(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print the quotas and APIs that the program needs, whether or not it is rehearsed."""
    from ml_foundations.rehearsal.engine.dry_run import dry_run  # as above

    environment.source_stack_file(rehearsal)
    found = dry_run(rehearsal, with_proof=False)
    if found.error:
        raise RehearsalError(f"the program fails: {found.error}")
    resources = [named(each, urn.rpartition("::")[2]) for urn, each in found.resources.items()]
    needs, apis = quota_needs(resources), needed_apis(resources)
    if args.json:
        print(json.dumps({"quota": [asdict(need) for need in needs], "apis": apis}, indent=2))
    else:
        tables.show_quotas(needs, apis, output())


def _doctor(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Say what is there, and what is to be built; ends with 0 either way."""
    pulumi = toolchain.official_pulumi(PULUMI.pinned(PULUMI.version_of))
    print(f"python         {sys.version.split()[0]}, {sys.executable}")
    print(
        f"go             {shutil.which('go') or 'not on PATH: pip brings it'}, used for building only"
    )
    lacking = toolchain.to_build()
    for group in GROUPS.values():
        rest, yours = toolchain.parts(group)
        if group is PULUMI and pulumi:
            state = f"yours: {pulumi}"
        elif toolchain.is_built(rest):
            state = f"built: {toolchain.folder_of(rest)}" if rest.built or rest.copies else "yours:"
        else:
            when = "" if group in lacking else " when a program needs it"
            state = f"to be built{when}, up to {group.minutes:g} min on 2 cores"
        version = f" {group.pinned(group.version_of)}" if group.version_of else ""
        print(f"{group.name:<14} {state}{version}")
        for path in yours.values():
            print(f"{'':<14} yours: {path}")
    minutes = sum(group.minutes for group in lacking)
    print(f"The first rehearsal builds {f'for up to {minutes:g} min' if minutes else 'nothing'}.")


def _diff(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Compare two commits; the exit codes are those of plan --diff."""
    from ml_foundations.rehearsal import difference  # as above

    with user_errors(status=2):
        comparison = difference.compare(args.base, args.head, rehearsal.project, rehearsal.stack)
    sys.exit(tell(comparison, args.format))


def _down(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    if not (rehearsal.root.exists() or rehearsal.removal_marker.exists()):
        console().print(f"{rehearsal.stack} is not rehearsed: nothing to remove")
        return
    _lock(rehearsal)
    left = fleet.judged(rehearsal).retained
    with Step(f"removing the rehearsal of {rehearsal.stack}"):
        _remove(rehearsal)
    if left:
        console().print("\n".join(["Nothing of it is left on this machine.", *as_lines(left)]))
    if not any(path.is_dir() for path in rehearsal.root.parent.iterdir()):
        shutil.rmtree(rehearsal.root.parent)


def _remove(rehearsal: Rehearsal) -> None:
    """Remove all of a rehearsal. Where that is cut off, state may be left of objects that are gone: ``up`` ends it."""
    rehearsal.removal_marker.touch()
    stack.process(rehearsal).stop()
    for each in reversed(rehearsal.replicas):
        replica.delete(each)
    rehearsal.removal_marker.unlink()


def _status(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    processes = list(replica.processes(rehearsal))
    for process in processes:
        print(
            f"{process.name:<26} {f'running, pid {process.pid}' if process.running else 'not running'}"
        )
    if not all(process.running for process in processes):
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: {rehearsal.command('up')}")


def _report(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    _require_up(rehearsal)
    result = fleet.with_proof(contents.collect(rehearsal), rehearsal)
    if args.html:
        _write_page(result, rehearsal, args.html)
    if args.json:
        print(result.to_json())
    elif not args.html:
        tables.show(result, rehearsal, output())


def _fresh_page(rehearsal: Rehearsal) -> AbstractContextManager[None]:
    """Keep the page as things are; it reads itself again as often as it is written."""
    console().print(f"Open {os.path.relpath(rehearsal.page)} in a browser: it shows what happens.")

    def write() -> None:
        _write_page(
            contents.collect(rehearsal), rehearsal, rehearsal.page, reload_seconds=_PAGE_SECONDS
        )

    return repeated(write, _PAGE_SECONDS)


def _write_page(
    result: contents.Report, rehearsal: Rehearsal, file: Path, reload_seconds: int = 0
) -> None:
    text = page.render(
        result, fleet.collect(rehearsal), rehearsal.title, datetime.now(UTC), reload_seconds
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
    # For what this process writes for a moment, as its plugins do.
    os.environ["ML_FOUNDATIONS_REHEARSAL"] = str(rehearsal.root)
    if not files.lock(rehearsal.root):
        raise RehearsalError(
            f"another command is changing the rehearsal of {rehearsal.stack}. Wait for it to end, then run this again"
        )


def _require_up(rehearsal: Rehearsal) -> None:
    parts = [process for each in rehearsal.replicas for process in kwok.processes(each)]
    if not rehearsal.kubeconfig.exists() or not all(process.running for process in parts):
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: {rehearsal.command('up')}")


def _settle(rehearsal: Rehearsal) -> contents.Report:
    """Wait until every workload has come to rest, or nothing has changed for a while."""
    with Step("waiting for the workloads to settle") as progress:
        started = changed = time.monotonic()
        result = contents.collect(rehearsal)
        took = time.monotonic() - started
        while waiting := _under_way(result):
            is_handover = all(workload.state in STEADY for workload in waiting)
            quiet = _HANDOVER_SECONDS if is_handover else _QUIET_SECONDS
            if time.monotonic() >= min(started + _SETTLE_SECONDS, changed + quiet):
                break
            progress.detail(f"{len(waiting)} of {len(result.workloads)} under way")
            # Reading many thousands of pods takes from the replica what it needs to settle: the longer, the less often.
            time.sleep(max(_POLL_SECONDS, 2 * took))
            began = time.monotonic()
            latest = contents.collect(rehearsal)
            took = time.monotonic() - began
            if latest != result:
                result, changed = latest, time.monotonic()
    return result


def _under_way(report: contents.Report) -> list[contents.Workload]:
    """What has not come to rest; where some have completed, what waits in a queue may have their quota next."""
    some_left = any(workload.state == "Completed" for workload in report.workloads)
    return [
        w
        for w in report.workloads
        if w.state not in STEADY or (some_left and w.state == "Suspended" and w.reason)
    ]


def _show_hints(rehearsal: Rehearsal) -> None:
    folder = (
        ""
        if rehearsal.project == Path.cwd()
        else f" -C {shlex.quote(os.path.relpath(rehearsal.project))}"
    )
    if any(ASSUMED.name in Store(each).pools() for each in rehearsal.replicas):
        output().print(
            f"\nThe program declares no nodes: it ran on {ASSUMED.max_nodes} assumed ones of {ASSUMED.machine_type}. "
            f"On copies of yours: kubectl get nodes -o yaml > nodes.yaml; {rehearsal.command('up', nodes='nodes.yaml')}"
        )
    output().print(
        f"\nLook further:\n"
        f'  eval "$({rehearsal.command("env")})"\n'
        f"  kubectl get nodes,pods,pvc,quota -A\n"
        f"  {os.path.relpath(rehearsal.page)} in a browser\n"
        f"  pulumi{folder} preview -s {rehearsal.stack}\n"
        f"Remove it: {rehearsal.command('down')}"
    )


_ALL = (_up, _down, _status, _report, _env, _kubeconfig, _diff, _doctor, _quota)
_COMMANDS = {does.__name__[1:]: does for does in _ALL}
