"""The command ``ml-foundations``, of ``cli.toml``. What it does is imported once it is known to be wanted."""

import argparse
import os
import shlex
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
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
    given = _parsed(sys.argv[1:])
    os.environ["ML_FOUNDATIONS_COMMAND"] = _as_typed()
    try:
        from ml_foundations.rehearsal import commands
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        fix = "Run, in a checkout of ML Foundations: pip install '.[rehearsal]'"
        sys.exit(f"error: a rehearsal needs the package {error.name}. {fix}")
    commands.run(given.command, given)


def _parsed(words: list[str]) -> argparse.Namespace:
    """Return the command and its options; an unknown name ends the program, with the nearest names."""
    parser = _parser()
    if words and not words[0].startswith("-"):
        _refuse_unknown(parser, words[0], [*_TABLE["commands"], "plan"], "")
    given, unknown = parser.parse_known_args(words)
    for word in unknown:
        table = _TABLE["commands"][given.command]
        options = [*_TABLE["every_command"], *table.get("either", {}), *table.get("options", {})]
        _refuse_unknown(parser, word, options, f" {given.command}")
    return given


def _refuse_unknown(
    parser: argparse.ArgumentParser, word: str, known: list[str], command: str
) -> None:
    if word not in known:
        from ml_foundations.kubernetes.spelling import did_you_mean

        hint = did_you_mean(word.partition("=")[0], known)
        parser.exit(
            2,
            f"error: {word} is not known. {hint}{' ' if hint else ''}Run {parser.prog}{command} --help\n",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ml-foundations",
        description="Rehearse a Pulumi stack on this machine, or judge whether workloads fit.",
    )
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    for name, table in _TABLE["commands"].items():
        command = commands.add_parser(name, help=table["help"], description=table["help"])
        _add(command, _TABLE["every_command"])
        if "either" in table:
            _add(command.add_mutually_exclusive_group(), table["either"])
        _add(command, table.get("options", {}))
    commands.add_parser("plan", help=_PLAN)
    return parser


def _add(to: argparse._ActionsContainer, options: Mapping[str, Mapping[str, Any]]) -> None:
    # Not every shell expands a ~ behind PROJECT=.
    types: dict[str, Callable[[str], Any]] = {
        "path": lambda given: Path(given).expanduser(),
        "stock": _stock,
    }
    for name, option in options.items():
        to.add_argument(
            name, **{**option, **({"type": types[option["type"]]} if "type" in option else {})}
        )


def _stock(given: str) -> tuple[str, int]:
    """A pool and the number of its nodes, such as h100=1."""
    pool, _, nodes = given.partition("=")
    if not pool or not nodes.isdecimal():
        raise argparse.ArgumentTypeError(f"{given!r} is invalid. Write POOL=NODES, such as h100=1")
    return pool, int(nodes)


def _as_typed() -> str:
    """This command as the user called it, for the messages that name it."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return "python -m ml_foundations.rehearsal"
    return Path(called).name if shutil.which(Path(called).name) == called else shlex.quote(called)
