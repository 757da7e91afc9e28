"""Try what may befall a rehearsal and its input, by the hundred; a run that was interrupted goes on."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.reliability import faults, machine, starts
from tests.support import results
from tests.support.checkout import CHECKOUT

HERE = Path(__file__).parent


def main() -> int:
    """Run one kind of trial. Returns 1 where something was lost, left behind or not told well."""
    sys.path.append(str(CHECKOUT / "stacks"))  # as pytest has it
    from tests.reliability import inputs, served

    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument(
        "count", type=int, nargs="?", default=0, help="how many trials in all; machine has its own"
    )
    kinds = ("faults", "machine", "starts", "served", "inputs")
    parser.add_argument("--kind", choices=kinds, default="faults", help="default: faults")
    parser.add_argument(
        "--folder", type=Path, default=CHECKOUT / ".reliability", help="where the outcomes are kept"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first of the inputs"
    )
    parser.add_argument("--write", action="store_true", help="write the table into results/")
    options = parser.parse_args()
    if options.count < 1 and options.kind != "machine":
        parser.error("say how many trials are to be made in all")
    # It is ignored in what a script runs in the background, such as this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.kind == "faults":
        return _faults(folder, options.count, options.write)
    if options.kind == "machine":
        return _machine(folder, options.write)
    if options.kind == "starts":
        return starts.try_all(folder, options.count)
    if options.kind == "served":
        return int(bool(served.try_all(folder, options.count)))
    outcomes = inputs.try_all(folder, options.first, options.count)
    table = inputs.table(outcomes)
    print(table)
    if options.write:
        command = f"python -m tests.reliability {options.count} --kind inputs"
        results.write(HERE, "inputs", command, table)
    return int(any(outcome.wrong for outcome in outcomes))


def _faults(folder: Path, count: int, is_written: bool) -> int:
    for moment in faults.suffer_all(folder, count):
        what = f"{moment.victim} in {moment.phase} after {moment.after:.0f} s" + (
            ", with Kueue" * moment.queue
        )
        print(f"{moment.seed}: {what}: {moment.first}; next up: {moment.next_up}", flush=True)
        for problem in moment.problems:
            print(f"   WRONG: {problem}", flush=True)
    moments = [each for each in faults.recorded(folder / "faults.jsonl") if each.seed < count]
    table = faults.table(moments)
    print(table)
    if is_written:
        results.write(HERE, "faults", f"make faults N={count}", table)
    return int(any(each.problems for each in moments))


def _machine(folder: Path, is_written: bool) -> int:
    for outcome in machine.suffer_all(folder):
        print(f"{outcome.case}: {outcome.first}; next up: {outcome.next_up}", flush=True)
        for problem in outcome.problems:
            print(f"   WRONG: {problem}", flush=True)
    outcomes = machine.recorded(folder / machine.RECORD)
    table = machine.table(outcomes)
    print(table)
    if is_written:
        results.write(HERE, "machine", "python -m tests.reliability --kind machine", table)
    return int(any(each.problems for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
