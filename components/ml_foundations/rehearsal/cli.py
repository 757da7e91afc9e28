"""The command ``ml-foundations``.

The modules of a command are imported only when it runs: help and errors then take 0.1 s, not 1.5 s.
"""

import argparse
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ml_foundations.kubernetes import printable

if TYPE_CHECKING:
    from ml_foundations.catalog.machine_types import MachineType

_REHEARSAL_PACKAGES = ("packaging", "psutil", "rich", "urllib3")
"""Packages of the extra ``rehearsal`` that every command except ``plan`` imports."""

_NOT_LINUX = (
    "error: a rehearsal needs Linux, as Kubernetes' control plane runs there only. Run it in a "
    "container or a virtual machine, such as WSL 2. Components, proof, policy pack and "
    "ml-foundations plan work here."
)


def main() -> None:
    """Run one command. The exit status is 0 only on success."""
    try:
        _run()
    except SystemExit as error:
        # Invalid descriptions of kinds, whose class is imported only where kinds are read.
        if not (errors := getattr(error, "errors", ())):
            raise
        print(printable.lines(f"error: {text}" for text in errors), file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        from ml_foundations.planning import unexpected

        print(printable.line(f"error: {unexpected.described(error)}"), file=sys.stderr)
        sys.exit(2)


def _run() -> None:
    words = sys.argv[1:]
    # While modules are imported, Ctrl-C ends this process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A command that only prints ends when its reader does, such as `head`. `up` and `down` go on.
    if words[:1] not in (["up"], ["down"]):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if words[:1] == ["plan"]:
        from ml_foundations.planning.__main__ import main as plan

        sys.exit(plan(words[1:], prog="ml-foundations plan"))
    if words[:1] == ["model"]:
        from ml_foundations.models.__main__ import main as model

        def pools_of(stack: str, project: Path) -> "list[tuple[str, MachineType]]":
            return _commands().pools_of(stack, project.expanduser())

        sys.exit(model(words[1:], prog="ml-foundations model", pools_of=pools_of))
    args = _parse(words)
    if (args.command == "up" and sys.platform != "linux") or sys.platform == "win32":
        sys.exit(_NOT_LINUX)
    os.environ["ML_FOUNDATIONS_COMMAND"] = _command_as_typed()
    _commands().run(args.command, args)


def _commands() -> ModuleType:
    """Return the module of the commands, or end the program if it lacks a package."""
    try:
        from ml_foundations.rehearsal import commands
    except ModuleNotFoundError as error:
        if error.name not in _REHEARSAL_PACKAGES:
            raise
        fix = "In a checkout of ML Foundations, run: pip install '.[rehearsal]'"
        sys.exit(printable.line(f"error: a rehearsal needs the package {error.name}. {fix}"))
    return commands


def _parse(words: list[str]) -> argparse.Namespace:
    """Return the command and its options, or end the program with the names near an unknown one."""
    parser, commands = _parsers()
    if words and not words[0].startswith("-") and words[0] not in commands:
        _exit_for_unknown(words[0], [*commands], parser)
    args, unknown = parser.parse_known_args(words)
    if unknown:
        command = commands[args.command]
        _exit_for_unknown(unknown[0], [*command._option_string_actions], command)
    return args


def _exit_for_unknown(word: str, known: list[str], parser: argparse.ArgumentParser) -> None:
    from ml_foundations.kubernetes.spelling import did_you_mean

    hint = did_you_mean(word.partition("=")[0], known)
    fix = f"{hint} Run {parser.prog} --help".lstrip()
    parser.exit(2, printable.line(f"error: {word} is not known. {fix}") + "\n")


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the program, and that of each command."""
    parser = printable.Parser(
        prog="ml-foundations",
        description="Rehearse a Pulumi stack on this machine, or judge whether workloads fit.",
    )
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")

    def add_command(name: str, purpose: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."
        )
        command.add_argument(
            "--stack", default="dev", help="the name of the stack (default: %(default)s)"
        )
        command.add_argument(
            "--project",
            type=_path,
            default=".",
            help="the folder of the Pulumi project (default: the current folder)",
        )
        return command

    up = add_command("up", "deploy a stack to a replica of GKE on this machine and show the result")
    progress = up.add_mutually_exclusive_group()
    progress.add_argument("--quiet", action="store_true", help="print only the result and errors")
    progress.add_argument("--verbose", action="store_true", help="print every line of pulumi")
    up.add_argument(
        "--watch",
        action="store_true",
        help="keep the page up to date until you press Ctrl-C",
    )
    up.add_argument(
        "--nodes",
        type=_path,
        metavar="FILE",
        help="copy the nodes of your cluster: the output of kubectl get nodes -o yaml",
    )
    up.add_argument(
        "--max-nodes",
        "--stock",
        type=_pool_and_count,
        action="append",
        default=[],
        metavar="POOL=NODES",
        help="simulate a stockout: a node pool grows to this many nodes at most; may be repeated",
    )
    up.add_argument(
        "--stockout",
        type=lambda text: list(filter(None, text.split(","))),
        action="extend",
        default=[],
        metavar="POOL",
        help="simulate a stockout: these node pools get no new nodes; may be repeated",
    )
    up.add_argument(
        "--metric",
        type=_metric_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="simulate load: autoscalers read this value of a metric, of each pod; may be repeated",
    )
    up.add_argument(
        "--job-seconds",
        type=int,
        default=0,
        metavar="SECONDS",
        help="how long the pods of Jobs run (default: about half a second)",
    )
    up.add_argument(
        "--official-kubernetes-plugin",
        action="store_true",
        help="use Pulumi's own kubernetes plugin, from your plugin folder, only for the replica",
    )
    up.add_argument(
        "--allow-provider",
        action="append",
        default=[],
        metavar="NAME",
        help="run your own plugin of another provider, for example command; may be repeated",
    )
    add_command("down", "remove the replica and its state, without pulumi destroy")
    add_command("status", "print the processes of the rehearsal; exit with 1 if one does not run")
    report = add_command("report", "show the node pools, workloads and quotas of the rehearsal")
    report.add_argument("--json", action="store_true", help="print the report as JSON")
    report.add_argument("--html", type=_path, metavar="FILE", help="write the report as a page")
    disrupt = add_command("disrupt", "take nodes away, and show how the workloads go on")
    nodes = disrupt.add_mutually_exclusive_group(required=True)
    nodes.add_argument("--node", default="", metavar="NODE", help="the node")
    nodes.add_argument("--pool", default="", metavar="POOL", help="all nodes of a node pool")
    disrupt.add_argument(
        "--how",
        choices=["preemption", "failure", "drain", "upgrade", "max-run-duration"],
        default="preemption",
        help="why they go (default: %(default)s)",
    )
    disrupt.add_argument(
        "--after", type=int, default=0, metavar="SECONDS", help="wait first (default: 0)"
    )
    quota = add_command("quota", "print the quotas, APIs and roles of Google Cloud that it needs")
    quota.add_argument("--json", action="store_true", help="print them as JSON")
    add_command("env", "print shell exports that let pulumi, kubectl and helm use the replica")
    add_command("kubeconfig", "print the path of the replica's kubeconfig")
    diff = add_command("diff", "compare two commits: verdicts, cost, replacements and lost data")
    diff.add_argument("base", metavar="BASE", help="the commit to compare with")
    diff.add_argument("head", metavar="HEAD", help="the commit with the changes")
    diff.add_argument(
        "--format",
        choices=["text", "json", "markdown"],
        default="text",
        help="the format of the output (default: %(default)s)",
    )
    add_command("doctor", "show where each tool is, or how the first rehearsal gets it")
    tools = add_command("tools", "download the tools to a folder that a mirror can serve")
    tools.add_argument("action", choices=["fetch"], help="fetch downloads the tools")
    tools.add_argument("--to", type=_path, required=True, metavar="DIR", help="the folder")
    tools.add_argument(
        "--arch", choices=["amd64", "arm64"], help="the architecture (default: this machine's)"
    )
    commands.add_parser("plan", help="judge whether the workloads in YAML files fit")
    commands.add_parser("model", help="print the ways to serve a model, cheapest first")
    return parser, dict(commands.choices)


def _path(text: str) -> Path:
    # Not every shell expands ~ in an argument such as PROJECT=~/mine.
    return Path(text).expanduser()


def _pool_and_count(text: str) -> tuple[str, int]:
    """Return the pool and the number of ``h100=1``."""
    pool, _, nodes = text.partition("=")
    if not pool or not nodes.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is invalid. Write POOL=NODES, such as h100=1")
    return pool, int(nodes)


def _metric_and_value(text: str) -> tuple[str, str]:
    """Return the metric and the value of ``vllm:num_requests_waiting=20``."""
    from ml_foundations.kubernetes.quantities import parse_quantity

    metric, _, value = text.rpartition("=")
    try:
        if not metric or parse_quantity(value) < 0:
            raise ValueError
    except ValueError:
        form = "Write NAME=VALUE, such as vllm:num_requests_waiting=20"
        raise argparse.ArgumentTypeError(f"{text!r} is invalid. {form}") from None
    return metric, value


def _command_as_typed() -> str:
    """Return the program as the user called it, for messages that name a command to run."""
    program = sys.argv[0]
    if program.endswith("__main__.py"):
        return "python -m ml_foundations.rehearsal"
    name = Path(program).name
    return name if shutil.which(name) == program else shlex.quote(program)
