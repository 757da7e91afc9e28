"""``python -m ml_foundations.planning``: whether workloads fit, from a stream of YAML documents."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ml_foundations.kubernetes.manifests import Manifest
from ml_foundations.planning.input import documents
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.judging import judge

_EXIT_CODES = {Verdict.FITS: 0, Verdict.CANNOT_FIT: 1, Verdict.UNDETERMINED: 3}
_UNREADABLE = 2
_NOTHING_TO_JUDGE = 4


def main(arguments: Sequence[str] | None = None, prog: str = "python -m ml_foundations.planning") -> int:
    """Judge the documents of files, or of standard input; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Whether workloads fit the nodes, quotas and limits that YAML documents declare.",
        epilog="Exit code: 0 all fit, 1 something cannot fit, 2 unreadable input, 3 something is undetermined, "
        "4 there is no workload to judge.",
    )
    parser.add_argument("files", nargs="*", default=["-"], metavar="FILE", help="YAML documents; - is standard input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        found = _read(given.files)
    except documents.UnreadableError as error:
        for text in error.errors:
            print(f"error: {text}", file=sys.stderr)
        return _UNREADABLE
    verdicts = judge(found)
    print(json.dumps(report.as_json(verdicts), indent=2) if given.json else report.as_text(verdicts))
    return _NOTHING_TO_JUDGE if verdicts.is_empty else _EXIT_CODES[verdicts.stack]


def _read(files: Sequence[str]) -> list[Manifest]:
    found: list[Manifest] = []
    errors: list[str] = []
    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            found += documents.read(text, "standard input" if file == "-" else file)
        except documents.UnreadableError as error:
            errors += error.errors
        except (OSError, UnicodeDecodeError) as error:
            errors.append(f"{file}: {error}")
    if errors:
        raise documents.UnreadableError(errors)
    return found


if __name__ == "__main__":
    sys.exit(main())
