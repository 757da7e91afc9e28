"""The command ``ml-foundations``: its arguments. What it does is imported once it is known to be wanted."""

import argparse
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

_COMMANDS = {
    "up": "deploy a stack to a replica of GKE on this machine, wait for its workloads to settle, and show them",
    "down": "discard the replica and its state, without a destroy; protected resources do not prevent it",
    "status": "print the processes of the rehearsal; status 1 where one does not run",
    "report": "show the pools, workloads and quotas of the rehearsal",
    "env": "print shell exports with which plain pulumi, kubectl and helm work on the replica",
    "kubeconfig": "print the path of the replica's kubeconfig",
    "diff": "what changes from one commit to another: verdicts, cost, and what is replaced or loses data",
    "doctor": "say which tools are there, and what is to be built; builds nothing",
}
_PLAN = "judge whether the workloads in YAML documents fit; needs no rehearsal"
_EXTRA = ("packaging", "psutil", "rich", "urllib3")
"""The packages that the extra brings."""


def main() -> None:
    """Run one command; status 0 only on success."""
    # What only prints ends as soon as nobody reads it, as other commands do; the others go on.
    if sys.argv[1:2] not in (["up"], ["down"]):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.argv[1:2] == ["plan"]:
        from ml_foundations.planning.__main__ import main as plan

        sys.exit(plan(sys.argv[2:], prog="ml-foundations plan"))
    given = _parser().parse_args()
    os.environ["ML_FOUNDATIONS_COMMAND"] = _as_typed()
    try:
        from ml_foundations.rehearsal import commands
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.exit(f'error: a rehearsal needs the package {error.name}. Run: pip install "ml-foundations[rehearsal]"')
    commands.run(given.command, given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ml-foundations", description="Rehearse a Pulumi stack on this machine, or judge whether workloads fit."
    )
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    for name, does in _COMMANDS.items():
        command = commands.add_parser(name, help=does, description=does)
        command.add_argument("--stack", default="dev", help="the stack to rehearse (default: dev)")
        command.add_argument(
            "--project", type=_path, default=Path.cwd(), help="the folder of the Pulumi project (default: this one)"
        )
        if name == "report":
            command.add_argument("--json", action="store_true", help="the report as data")
            command.add_argument("--html", type=_path, metavar="FILE", help="write the report as a page")
        if name == "up":
            loud = command.add_mutually_exclusive_group()
            loud.add_argument("--quiet", action="store_true", help="print the result only, and errors")
            loud.add_argument("--verbose", action="store_true", help="print every line of pulumi")
            command.add_argument("--nodes", type=_path, help="nodes of your own cluster: kubectl get nodes -o yaml")
            command.add_argument(
                "--stock",
                type=_stock,
                action="append",
                default=[],
                metavar="POOL=NODES",
                help="a stockout: Google has no more machines than these for a node pool; may be repeated",
            )
            command.add_argument(
                "--official-kubernetes-plugin",
                action="store_true",
                help="use Pulumi's own kubernetes plugin, from your plugin folder, in place of the embedded one",
            )
            command.add_argument(
                "--allow-provider",
                action="append",
                default=[],
                metavar="NAME",
                help="run your own plugin of another provider, such as tls; may be given several times",
            )
    commands.add_parser("plan", help=_PLAN)
    difference = commands.choices["diff"]
    difference.add_argument("base", metavar="BASE", help="a commit of the project")
    difference.add_argument("head", metavar="HEAD", help="another one")
    difference.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="what to print")
    return parser


def _path(given: str) -> Path:
    """A path of a file or folder. Not every shell expands a ``~`` behind ``PROJECT=``."""
    return Path(given).expanduser()


def _stock(given: str) -> tuple[str, int]:
    """A pool and the number of its nodes, such as h100=1."""
    pool, _, nodes = given.partition("=")
    return pool, int(nodes)


def _as_typed() -> str:
    """This command as the user called it, for the messages that name it."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return "python -m ml_foundations.rehearsal"
    return Path(called).name if shutil.which(Path(called).name) == called else shlex.quote(called)
