"""``python -m ml_foundations.planning``: judge the workloads of YAML documents."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes import printable, regular_files
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.input import documents
from ml_foundations.planning.input.drain import drain
from ml_foundations.planning.input.dump import dump_command
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.performance import without_garbage_collector
from ml_foundations.planning.rules.added import known_rules, unknown_rule
from ml_foundations.planning.rules.findings import Finding, unmatched
from ml_foundations.planning.unexpected import UNREADABLE, described, step
from ml_foundations.planning.verdict import compare, markdown, report
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.quota_needs import quota_of_nodes
from ml_foundations.planning.verdict.verdicts import Verdicts

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
    """Judge the documents of files, or of standard input, and return the exit code."""
    options = _parser(prog).parse_args(arguments)
    if options.dump_command:
        print(printable.text(dump_command()))
        return 0
    style = "json" if options.json else options.format
    try:
        if options.kinds:
            kind_files.use(options.kinds)
        return _judge(options, style)
    except documents.UnreadableError as error:
        return refuse(error.errors, style)
    except kind_files.KindError as error:
        return refuse(error.errors, style)
    except Exception as error:
        return refuse([described(error)], style)


def _judge(options: argparse.Namespace, style: str) -> int:
    """Judge what the options name, print the verdicts, and return the exit code."""
    accepted = dict[str, str](options.accept)
    findings: list[Finding] = []

    def judge(manifests: Sequence[Manifest]) -> Verdicts:
        verdicts = judge_documents(manifests, accepted)
        findings.extend(verdicts.findings)
        return verdicts.with_accepted(accepted)

    exit_code = _tell_verdicts(options, style, judge)
    for text in unmatched(accepted, findings):
        print(printable.line(f"warning: {text}"), file=sys.stderr)
    return exit_code


def _tell_verdicts(
    options: argparse.Namespace, style: str, judge: Callable[[Sequence[Manifest]], Verdicts]
) -> int:
    """Print the verdicts on what the options name, and return the exit code."""
    named: list[str] = [*options.files, *(options.diff or [])]
    if named.count("-") > 1:
        raise documents.UnreadableError(["-: standard input can be read only once. Name it once"])
    if options.diff:
        old, new = options.diff
        shared = _read(options.files)
        before = _read([old])
        after = _read([new])
        with step("judging"):
            verdicts = judge([*shared, *before]), judge([*shared, *after])
        notes: list[str] = []
        # Whoever adds nodes gives the change space.
        if added := sorted(_node_names(after) - _node_names(before)):
            notes.append(f"The new side adds nodes, which count for it: {names(added)}.")
        notes += report.kinds_used(verdicts[1])
        return tell(Comparison(f"From {old} to {new}", *verdicts, tuple(notes)), style)
    manifests = _read(options.files or ["-"])
    with step("judging"):
        if options.without is not None:
            return tell(_without(manifests, options.without.split(","), judge), style)
        verdicts = judge(manifests)
    if style == "json":
        nodes = [node_class(manifest) for manifest in manifests if manifest["kind"] == "Node"]
        verdicts = replace(verdicts, needs=quota_of_nodes(nodes))
    _print(_VERDICTS[style](verdicts))
    return verdicts.exit_code


def _node_names(manifests: Iterable[Manifest]) -> set[str]:
    return {name_of(manifest) for manifest in manifests if manifest["kind"] == "Node"}


def refuse(errors: Sequence[str], style: str) -> int:
    """Print errors, also as a comment if that is the style, and return the exit code."""
    print(printable.lines(f"error: {text}" for text in errors), file=sys.stderr)
    if style == "markdown":
        _print(markdown.of_errors(errors))
    return UNREADABLE


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = printable.Parser(
        prog=prog,
        description="Whether workloads fit the nodes, quotas and limits that YAML documents"
        " declare.",
        epilog="Exit code: 0 all fit, 1 something cannot fit, 2 unreadable input, 3 something is"
        " undetermined, 4 there is no workload to judge. With --diff and --without: 0 nothing fares"
        " worse than before.",
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="YAML documents, or a folder; - is standard input"
    )
    parser.add_argument(
        "--format", choices=("text", "json", "markdown"), default="text", help="what to print"
    )
    parser.add_argument(
        "--kinds", metavar="DIR", help="a folder with your kinds (default: $ML_FOUNDATIONS_KINDS)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--accept",
        type=_acceptance,
        action="append",
        default=[],
        metavar="RULE[/NAME]=REASON",
        help="errors of a rule, of all objects or of one, are warnings; may be repeated",
    )
    parser.add_argument(
        "--dump-command",
        action="store_true",
        help="print the command that dumps what this reads of your cluster",
    )
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


def _acceptance(text: str) -> tuple[str, str]:
    """Return the rule and the reason of ``quota-use/train=asked for more``."""
    accepted, _, reason = text.partition("=")
    if rule := unknown_rule(accepted):
        hint = did_you_mean(rule, known_rules())
        raise argparse.ArgumentTypeError(f"{rule!r} is no rule. {hint} See docs/planning.md")
    if not reason:
        raise argparse.ArgumentTypeError(f"{text!r} has no reason. Write RULE=REASON")
    return accepted, reason


def _without(
    manifests: list[Manifest],
    names: Sequence[str],
    judge: Callable[[Sequence[Manifest]], Verdicts],
) -> Comparison:
    """Return the verdicts with all nodes, compared to those without some nodes or pools."""
    drained = drain(manifests, names)
    bare = [pod for pod in drained.pods if not items(section(pod, "metadata"), "ownerReferences")]
    notes: list[str] = []
    if drained.pods:
        notes.append(f"Pods that ran there: {_full_names(drained.pods)}.")
    if bare:
        notes.append(f"Nothing makes these pods anew: {_full_names(bare)}.")
    before = judge(manifests)
    after = judge(drained.documents)
    return Comparison(
        f"Without {', '.join(drained.nodes)}",
        before,
        # After a drain, the fix is to have the nodes again.
        after.with_findings(lambda finding: replace(finding, remedy="")),
        (*notes, *report.kinds_used(before)),
        absent="runs",
    )


def _full_names(pods: Sequence[Manifest]) -> str:
    return ", ".join(f"{namespace_of(pod)}/{name_of(pod)}" for pod in pods)


def tell(comparison: Comparison, style: str) -> int:
    """Print a comparison as text, json or markdown, and return the exit code."""
    _print(_COMPARISONS[style](comparison))
    return comparison.exit_code


def _print(verdicts: Any) -> None:
    form = printable.text if isinstance(verdicts, str) else printable.as_json
    try:
        sys.stdout.write(form(verdicts) + "\n")
        sys.stdout.flush()
    except OSError as error:
        text = f"error: the verdicts cannot be written: {error.strerror}"
        print(printable.line(text), file=sys.stderr)
        sys.exit(2)


def _read(files: Sequence[str]) -> list[Manifest]:
    """Return the manifests of files and folders; "-" is standard input."""
    manifests: list[Manifest] = []
    errors: list[str] = []
    for path in files:
        for file in [path] if path == "-" else _files(path, errors):
            name = "standard input" if path == "-" else str(file)
            try:
                with step(f"reading {name}"):
                    manifests += documents.read(_text(file, path), name)
            except documents.UnreadableError as error:
                errors += error.errors
            except ReadError as error:
                errors.append(f"{name}: {error}")
    if errors:
        raise documents.UnreadableError(errors)
    return manifests


def _files(path: str, errors: list[str]) -> list[str]:
    """Return a path itself, or all YAML and JSON files below it if it is a folder."""
    if not Path(path).is_dir():
        return [path]
    try:
        return [*map(str, regular_files.below(Path(path), _SUFFIXES))]
    except ReadError as error:
        errors.append(f"{path}: {error}")
        return []


def _text(file: str, path: str) -> str:
    if file == "-":
        return regular_files.text_of(sys.stdin.buffer) if sys.stdin else ""
    return regular_files.read(Path(file), None if file == path else Path(path))


if __name__ == "__main__":
    sys.exit(main())
