"""Break lines of the product at random, and record which tests notice.

    python -m tools.mutations FILE

One run of all tests, on code that notes who arrives at each line, shows which tests to try. Then
each line is broken alone, and tests that arrive at it are run, tier by tier, until one fails. All
happens in a copy of HEAD. FILE keeps what is known: an interrupted run goes on from there.
"""

import argparse
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools import ROOT
from tools.mutations.breaks import Break, draw

TIERS = ("test=not test_all and not trial", "test-all=test_all and not trial")
"""The tiers, by their target of make, each with an expression over the tests' marks."""
_TIMES = itertools.count(int(time.time()))
NOTES = "components/ml_foundations/_arrivals.py"
NOTE = '''"""Note which test arrives at which line."""
import os

_known = set()


def note(number):
    """Note an arrival once for each test and process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (number, test) not in _known:
        _known.add((number, test))
        with open({path!r}, "a") as file:
            file.write(f"{{number}}\\t{{test}}\\n")
'''


def main() -> None:
    """Break lines, and print a table of what noticed it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="what is known, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=50)
    parser.add_argument("--workers", default="2", help="processes of pytest")
    parser.add_argument("--tier", action="append", help="a name and marks, in the order to try")
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(options.file.read_text()) if options.file.exists() else {}
    with copy_of_head() as root:
        breaks = draw(root, options.seed, options.lines)
        if "arrivals" not in known:
            known["arrivals"] = arrivals(root, breaks, options.workers)
            options.file.write_text(json.dumps(known, indent=1))
        for number, broken in enumerate(breaks):
            key = f"{broken.path}:{broken.line} {broken.old} -> {broken.new}"
            if key not in known:
                tests = known["arrivals"].get(str(number), [])
                known[key] = noticed(root, broken, tests, options.tier or TIERS, options.workers)
                options.file.write_text(json.dumps(known, indent=1))
            print(f"{key}: {known[key] or 'survives'}", flush=True)


@contextmanager
def copy_of_head() -> Iterator[Path]:
    """Check HEAD out into a separate folder, with its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
        subprocess.run(["make", ".venv/.ready-dev"], cwd=root, check=True, capture_output=True)
        yield root


def arrivals(root: Path, breaks: Sequence[Break], workers: str) -> dict[str, list[str]]:
    """Return the tests that arrive at each line; nobody's, if it runs at import."""
    log = root.with_name("arrivals")
    log.touch()
    sources = {broken.path: (root / broken.path).read_text() for broken in breaks}
    (root / NOTES).write_text(NOTE.format(path=str(log)))
    for path, source in sources.items():
        lines = source.splitlines(keepends=True)
        numbered = [(b.statement, number) for number, b in enumerate(breaks) if b.path == path]
        for statement, number in sorted(numbered, reverse=True):
            line = lines[statement - 1]
            indent = line[: len(line) - len(line.lstrip())]
            call = f'__import__("ml_foundations._arrivals")._arrivals.note({number})\n'
            lines.insert(statement - 1, indent + call)
        write(root / path, "".join(lines))
    run(root, ["-m", "not trial"], workers)
    for path, source in sources.items():
        write(root / path, source)
    (root / NOTES).unlink()
    arriving: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
        number, _, test = line.partition("\t")
        arriving.setdefault(number, set()).add(test)
    return {number: sorted(tests - {""}) for number, tests in arriving.items()}


def noticed(
    root: Path, broken: Break, tests: Sequence[str], tiers: Sequence[str], workers: str
) -> str:
    """Return the tier that notices a break, and its first test that does; nothing if none does."""
    path = root / broken.path
    source = path.read_text()
    write(path, broken.text)
    # What the first test left in a cache is read by the others of its file. At import, all arrive.
    files = sorted({test.partition("::")[0] for test in tests})
    try:
        for tier, _, marks in (tier.partition("=") for tier in tiers):
            for chosen in (tests, files) if tests else ((),):
                if failed := run(root, ["-x", "-m", marks, *chosen], workers):
                    return f"{tier}: {failed}"
    finally:
        write(path, source)
    return ""


def write(path: Path, text: str) -> None:
    """Write a file; Python compiles it again, since no two versions have one time."""
    path.write_text(text)
    later = next(_TIMES)
    os.utime(path, (later, later))


def run(root: Path, arguments: Sequence[str], workers: str) -> str:
    """Run tests, and return the first that fails, or how the run ended."""
    given = root.with_name("arguments")
    given.write_text("\n".join(arguments))
    spread = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *spread]
    ended = subprocess.run([*command, f"@{given}"], cwd=root, capture_output=True, text=True)
    # 5: no test was chosen.
    if ended.returncode in (0, 5):
        return ""
    lines = ended.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failures[0].split(" - ")[0].split(" ", 1)[1] if failures else f"exit {ended.returncode}"


if __name__ == "__main__":
    main()
