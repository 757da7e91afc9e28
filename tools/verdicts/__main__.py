"""Compare the verdicts, findings and messages of two commits on the same cases.

    python -m tools.verdicts BEFORE [AFTER]

The cases are the manifests and golden programs of this checkout, and seeded edits of them. Each
commit judges them in a separate process. If anything differs, it is printed, and the exit code
is 1.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools import ROOT
from tools.verdicts.cases import cases

JUDGING = Path(__file__).parent / "judging.py"


def main() -> int:
    """Compare two commits, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="a commit; by default, the files as they are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=2500, help="edits of manifests")
    parser.add_argument("--pools", type=int, default=1000, help="edits of node pools")
    parser.add_argument("--programs", type=int, default=1000, help="edits of programs")
    parser.add_argument("--shown", type=int, default=20, help="how many differences are printed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = (options.documents, options.pools, options.programs)
        given = folder / "cases"
        with given.open("w") as file:
            for case in cases(ROOT, options.seed, *counts):
                file.write(json.dumps(case) + "\n")
        roots = [_checkout(options.before, folder), _checkout(options.after, folder)]
        judging = [_start(root, given, folder / f"judged{n}") for n, root in enumerate(roots)]
        if any([process.wait() for process in judging]):
            return 2
        return _tell(_lines(folder / "judged0"), _lines(folder / "judged1"), options.shown)


def _checkout(commit: str | None, folder: Path) -> Path:
    """Return a folder with the files of a commit, or this checkout for none."""
    if commit is None:
        return ROOT
    root = folder / commit.replace("/", "-")
    root.mkdir()
    archive = ["git", "-C", str(ROOT), "archive", commit, "components"]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as listed:
        subprocess.run(["tar", "-x", "-C", str(root)], stdin=listed.stdout, check=True)
    return root


def _start(root: Path, given: Path, judged: Path) -> subprocess.Popen[bytes]:
    # The package of the commit comes before the installed one. The order of sets is the same.
    path = {"PYTHONPATH": str(root / "components"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(JUDGING), str(given), str(judged)]
    return subprocess.Popen(command, env=os.environ | path)


def _lines(judged: Path) -> Iterator[dict[str, str]]:
    for line in judged.read_text().splitlines():
        case = json.loads(line)
        yield {"case": case["name"]} | case["said"]


def _tell(before: Iterator[dict[str, str]], after: Iterator[dict[str, str]], shown: int) -> int:
    """Print how the judgements differ, and return the exit code."""
    count = 0
    differing = 0
    for old, new in zip(before, after, strict=True):
        count += 1
        if old == new:
            continue
        differing += 1
        if differing <= shown:
            print(f"--- {old['case']}")
            for style in sorted(old.keys() | new.keys()):
                texts = (old.get(style, "").splitlines(), new.get(style, "").splitlines())
                print("\n".join(list(difflib.unified_diff(*texts, lineterm="", n=1))[2:]))
    print(f"{count} cases, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
