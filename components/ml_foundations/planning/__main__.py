"""``python -m ml_foundations.planning``: whether workloads fit, from a stream of YAML documents."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.planning.input import documents
from ml_foundations.planning.input.drain import drain
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.performance import without_garbage_collector
from ml_foundations.planning.verdict import compare, markdown, report
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.quota_needs import quota_of_nodes

_UNREADABLE = 2
_VERDICTS = {"text": report.as_text, "json": report.as_json, "markdown": markdown.of_verdicts}
_COMPARISONS = {
    "text": compare.as_text,
    "json": compare.as_json,
    "markdown": markdown.of_comparison,
}
_SUFFIXES = (".yaml", ".yml", ".json")


@without_garbage_collector()
def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m ml_foundations.planning"
) -> int:
    """Judge the documents of files, or of standard input; returns the exit code."""
    given = _parser(prog).parse_args(arguments)
    style = "json" if given.json else given.format
    try:
        if given.diff:
            old, new = given.diff
            shared = _read(given.files or [])
            before, after = (judge_documents([*shared, *_read([side])]) for side in (old, new))
            return tell(Comparison(f"From {old} to {new}", before, after), style)
        found = _read(given.files or ["-"])
        if given.without is not None:
            return tell(_without(found, given.without.split(",")), style)
    except documents.UnreadableError as error:
        for text in error.errors:
            print(f"error: {text}", file=sys.stderr)
        return _UNREADABLE
    verdicts = judge_documents(found)
    if style == "json":
        needs = quota_of_nodes(node_class(each) for each in found if each["kind"] == "Node")
        verdicts = replace(verdicts, needs=needs)
    _print(_VERDICTS[style](verdicts))
    return verdicts.exit_code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Whether workloads fit the nodes, quotas and limits that YAML documents declare.",
        epilog="Exit code: 0 all fit, 1 something cannot fit, 2 unreadable input, 3 something is undetermined, "
        "4 there is no workload to judge. With --diff and --without: 0 nothing fares worse than before.",
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="YAML documents, or a folder; - is standard input"
    )
    parser.add_argument(
        "--format", choices=("text", "json", "markdown"), default="text", help="what to print"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--without",
        metavar="NODE[,NODE...]",
        help="what remains without nodes, or without pool:NAME",
    )
    change.add_argument(
        "--diff", nargs=2, metavar=("OLD", "NEW"), help="what changes; FILEs hold for both"
    )
    return parser


def _without(found: list[Manifest], names: Sequence[str]) -> Comparison:
    left = drain(found, names)
    bare = [pod for pod in left.pods if not items(section(pod, "metadata"), "ownerReferences")]
    pods, lost = (
        ", ".join(f"{namespace_of(pod)}/{name_of(pod)}" for pod in each)
        for each in (left.pods, bare)
    )
    notes = [f"Pods that ran there: {pods}."] if pods else []
    notes += [f"Nothing makes these pods anew: {lost}."] if lost else []
    title = f"Without {', '.join(left.nodes)}"
    return Comparison(
        title, judge_documents(found), judge_documents(left.documents), tuple(notes), absent="runs"
    )


def tell(comparison: Comparison, style: str) -> int:
    """Print a comparison as text, json or markdown; returns the exit code."""
    _print(_COMPARISONS[style](comparison))
    return comparison.exit_code


def _print(shown: Any) -> None:
    text = shown if isinstance(shown, str) else json.dumps(shown, indent=2)
    try:
        print(text.encode(errors="replace").decode(), flush=True)
    except OSError as error:
        sys.exit(f"error: the verdicts cannot be written: {error.strerror}")


def _read(files: Sequence[str]) -> list[Manifest]:
    found: list[Manifest] = []
    errors: list[str] = []
    for file in (each for given in files for each in _files(given)):
        try:
            text = (
                (sys.stdin.read() if sys.stdin else "")
                if file == "-"
                else Path(file).read_text(encoding="utf-8")
            )
            found += documents.read(text, "standard input" if file == "-" else file)
        except documents.UnreadableError as error:
            errors += error.errors
        except (OSError, UnicodeDecodeError) as error:
            errors.append(f"{file}: {getattr(error, 'strerror', error)}")
    if errors:
        raise documents.UnreadableError(errors)
    return found


def _files(given: str) -> list[str]:
    """The file itself, or all YAML and JSON below a folder."""
    if not Path(given).is_dir():
        return [given]
    return sorted(
        str(path) for path in Path(given).rglob("*") if path.suffix in _SUFFIXES and path.is_file()
    )


if __name__ == "__main__":
    sys.exit(main())
