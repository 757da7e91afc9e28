"""The command line of a rehearsal: ``ml-foundations up|down|status|report|env|kubeconfig [--stack S]``."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from ml_foundations.rehearsal import (
    brought_nodes,
    control_plane,
    controllers,
    environment,
    gke,
    report,
    stack,
    toolchain,
)
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, console, step, user_errors

SETTLE_SECONDS = 120
QUIET_SECONDS = 20
"""After this long without any change, what is still pending is taken to stay so."""


def main() -> None:
    """Run one command; status 0 only on success."""
    args = _arguments()
    with user_errors():
        args.command(Rehearsal.of(args.stack, args.project.resolve()), args)


def up(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Deploy the stack to a replica of GKE, wait for its workloads to settle, and show them."""
    environment.source_stack_file(rehearsal)
    console.quiet = args.quiet
    tools = toolchain.ensure()
    with _alone(rehearsal):
        environment.install(rehearsal, tools, official_kubernetes=args.official_kubernetes_plugin)
        control_plane.start(rehearsal, tools)
        environment.trust(rehearsal)
        gke.start(rehearsal)
        if args.nodes:
            brought_nodes.copy(rehearsal, args.nodes)
        controllers.start(rehearsal, tools, controllers.wanted(rehearsal, environment.stack_file(rehearsal)))
        stack.up(rehearsal, tools, quiet=args.quiet)
        result = _settle(rehearsal)
    report.show(result, rehearsal.title, _stdout())
    _show_hints(rehearsal)
    if result.unwell:
        raise RehearsalError(
            f"{len(result.unwell)} of {len(result.workloads)} workloads do not run; see the notes above"
        )


def down(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Discard the replica and its state, without a destroy: protected resources do not stand in the way."""
    if not rehearsal.root.exists():
        console.print(f"{rehearsal.stack} is not rehearsed: nothing to remove")
        return
    with _alone(rehearsal), step(f"removing the rehearsal of {rehearsal.stack}"):
        controllers.stop(rehearsal)
        gke.stop(rehearsal)
        control_plane.delete(rehearsal)
        shutil.rmtree(rehearsal.root)
    if not any(rehearsal.root.parent.iterdir()):
        rehearsal.root.parent.rmdir()


def status(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print the processes of the rehearsal; status 1 where one does not run."""
    processes = [*control_plane.processes(rehearsal), gke.process(rehearsal), *controllers.processes(rehearsal)]
    for process in processes:
        print(f"{process.name:<26} {f'running, pid {process.pid}' if process.running else 'not running'}")
    if not all(process.running for process in processes):
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: make up{rehearsal.make_options}")


def show_report(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print the report, as tables or as JSON."""
    _require_up(rehearsal)
    result = report.collect(rehearsal)
    if args.json:
        print(result.to_json())
    else:
        report.show(result, rehearsal.title, _stdout())


def env(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print shell exports with which plain pulumi, kubectl and helm work on the replica."""
    _require_up(rehearsal)
    print(environment.shell_exports(rehearsal))


def kubeconfig(rehearsal: Rehearsal, args: argparse.Namespace) -> None:
    """Print the path of the replica's kubeconfig."""
    _require_up(rehearsal)
    print(rehearsal.kubeconfig)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ml_foundations.rehearsal", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, function in {
        "up": up,
        "down": down,
        "status": status,
        "report": show_report,
        "env": env,
        "kubeconfig": kubeconfig,
    }.items():
        command = commands.add_parser(name, help=(function.__doc__ or "").partition("\n")[0])
        command.add_argument("--stack", default="dev", help="the stack to rehearse (default: dev)")
        command.add_argument(
            "--project", type=_path, default=Path.cwd(), help="the folder of the Pulumi project (default: this one)"
        )
        command.set_defaults(command=function)
        if function is show_report:
            command.add_argument("--json", action="store_true", help="the report as data")
        if function is up:
            command.add_argument("--quiet", action="store_true", help="print the result only, and errors")
            command.add_argument("--nodes", type=_path, help="nodes of your own cluster: kubectl get nodes -o yaml")
            command.add_argument(
                "--official-kubernetes-plugin",
                action="store_true",
                help="use Pulumi's own kubernetes plugin, from your plugin folder, in place of the embedded one",
            )
    return parser.parse_args()


def _path(given: str) -> Path:
    """A path of a file or folder. Not every shell opens up a ``~`` behind ``PROJECT=``."""
    return Path(given).expanduser()


@contextmanager
def _alone(rehearsal: Rehearsal) -> Iterator[None]:
    """Hold the rehearsal's folder locked: one command at a time changes it. A dead process holds no lock."""
    rehearsal.make()
    folder = os.open(rehearsal.root, os.O_RDONLY)
    try:
        _lock(folder, rehearsal)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, rehearsal: Rehearsal) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RehearsalError(
            f"another command is changing the rehearsal of {rehearsal.stack}. Wait for it to end, then run this again"
        ) from None


def _require_up(rehearsal: Rehearsal) -> None:
    if not rehearsal.kubeconfig.exists() or not all(p.running for p in control_plane.processes(rehearsal)):
        raise RehearsalError(f"{rehearsal.stack} is not up. Start it: make up{rehearsal.make_options}")


def _settle(rehearsal: Rehearsal) -> report.Report:
    """Wait until every workload has come to rest, or nothing has changed for a while."""
    with step("waiting for the workloads to settle") as progress:
        started = changed = time.monotonic()
        result = report.collect(rehearsal)
        while time.monotonic() - started < SETTLE_SECONDS and time.monotonic() - changed < QUIET_SECONDS:
            waiting = [w for w in result.workloads if w.state not in report.STEADY]
            if not waiting:
                break
            progress.detail(f"{len(waiting)} of {len(result.workloads)} under way")
            time.sleep(0.5)
            latest = report.collect(rehearsal)
            if latest != result:
                result, changed = latest, time.monotonic()
    return result


def _show_hints(rehearsal: Rehearsal) -> None:
    option = "" if rehearsal.project == Path.cwd() else f" --project {os.path.relpath(rehearsal.project)}"
    option += "" if rehearsal.stack == "dev" else f" --stack {rehearsal.stack}"
    folder = "" if rehearsal.project == Path.cwd() else f" -C {os.path.relpath(rehearsal.project)}"
    _stdout().print(
        f"\nLook further:\n"
        f'  eval "$(.venv/bin/python -m ml_foundations.rehearsal env{option})"\n'
        f"  kubectl get nodes,pods,pvc,quota -A\n"
        f"  pulumi{folder} preview -s {rehearsal.stack}\n"
        f"Remove it: make down{rehearsal.make_options}"
    )


def _stdout() -> Console:
    """Standard output, wide where it is not a terminal, so that a log keeps its lines whole."""
    return Console(highlight=False, width=None if os.isatty(sys.stdout.fileno()) else 160)


if __name__ == "__main__":
    main()
