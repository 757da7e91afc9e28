"""Compare planning with the real scheduler and API server on many cases, and print the table of agreement.

The replica's answers are kept: a run that was interrupted goes on, and after a change of planning only the verdicts
are made anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.differential import proof
from tests.differential.acceptance import proof as acceptance
from tests.differential.comparing import Comparison, compare
from tests.differential.generator import batch
from tests.differential.schema.proof import prove
from tests.support import results
from tests.support.checkout import CHECKOUT

HERE = Path(__file__).parent


def main() -> int:
    """Compare at least as many cases as asked for. Returns 1 where the two disagree."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("cases", type=int, help="how many cases to compare in all")
    add = parser.add_argument
    add("--first", type=int, default=1, help="the number of the first batch: other cases")
    kept = CHECKOUT / ".differential"
    add("--folder", type=Path, default=kept, help="where the answers are kept")
    add("--no-shrink", action="store_true", help="do not shrink disagreements to regressions")
    generators = ("rules", "schema", "acceptance")
    add("--generator", choices=generators, default="rules", help="which cases; default rules")
    parser.add_argument("--write", action="store_true", help="write the tables into results/")
    options = parser.parse_args()
    command = f"make differential N={options.cases} FIRST={options.first}"
    if options.generator != "rules":
        name, folder = options.generator, options.folder / options.generator
        if name == "schema":
            wrong, text = prove(options.cases, folder, not options.no_shrink, options.first)
        else:
            wrong, text = acceptance.prove(options.cases, folder, options.first)
        if options.write:
            results.write(HERE, name, f"{command} GENERATOR={name}", text)
        return int(bool(wrong))
    answers = proof.Answers(options.folder)
    comparisons: list[Comparison] = []
    number = options.first - 1
    while len(comparisons) < options.cases:
        began, number = time.monotonic(), number + 1
        cases = batch(number)
        found = [compare(*pair) for pair in zip(cases, answers.to(number, cases), strict=True)]
        comparisons += found
        rate = len(cases) / (time.monotonic() - began)
        for case, comparison in zip(cases, found, strict=True):
            if comparison.agrees:
                continue
            file = "" if options.no_shrink else proof.keep(case, comparison, options.folder)
            kinds, kept = "+".join(comparison.kinds), f", kept as {file}" if file else ""
            print(f"batch {number}: {comparison.rule} {kinds} {comparison.verdict}{kept}")
        total = sum(not comparison.agrees for comparison in comparisons)
        done = f"{len(comparisons):,} of {options.cases:,} cases, {total} disagreements"
        print(f"{done}, {rate:.1f} a second", flush=True)
    text = f"{proof.summary(comparisons)}\n\n{proof.table(comparisons)}"
    print(text)
    if options.write:
        results.write(HERE, "rules", command, text)
    return int(any(not comparison.agrees for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
