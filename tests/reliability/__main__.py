"""Try what may befall a rehearsal and its input, by the hundred; a run that was interrupted goes on."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.reliability import faults, machine, starts
from tests.support.checkout import CHECKOUT


def main() -> int:
    """Run one kind of trial. Returns 1 where something was lost, left behind or not told well."""
    sys.path.append(str(CHECKOUT / "stacks"))  # as pytest has it
    from tests.reliability import inputs, served

    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument(
        "count", type=int, nargs="?", default=0, help="how many trials in all; machine has its own"
    )
    kinds = ("faults", "machine", "starts", "served", *inputs.KINDS)
    parser.add_argument("--kind", choices=kinds, default="faults", help="default: faults")
    parser.add_argument(
        "--folder", type=Path, default=CHECKOUT / ".reliability", help="where the outcomes are kept"
    )
    options = parser.parse_args()
    if options.count < 1 and options.kind != "machine":
        parser.error("say how many trials are to be made in all")
    # It is ignored in what a script runs in the background, such as this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.kind == "faults":
        return _faults(folder, options.count)
    if options.kind == "machine":
        return _machine(folder)
    if options.kind == "starts":
        return starts.try_all(folder, options.count)
    if options.kind == "served":
        return int(bool(served.try_all(folder, options.count)))
    outcomes = inputs.try_all(options.kind, options.count, folder)
    print(", ".join(f"{count:,} {kind}" for kind, count in outcomes.most_common()))
    return int("failed" in outcomes)


def _faults(folder: Path, count: int) -> int:
    for moment in faults.suffer_all(folder, count):
        what = f"{moment.victim} in {moment.phase} after {moment.after:.0f} s" + (
            ", with Kueue" * moment.queue
        )
        print(f"{moment.seed}: {what}: {moment.first}; next up: {moment.next_up}", flush=True)
        for problem in moment.problems:
            print(f"   WRONG: {problem}", flush=True)
    moments = [each for each in faults.recorded(folder / "faults.jsonl") if each.seed < count]
    print(faults.table(moments))
    return int(any(each.problems for each in moments))


def _machine(folder: Path) -> int:
    for outcome in machine.suffer_all(folder):
        print(f"{outcome.case}: {outcome.first}; next up: {outcome.next_up}", flush=True)
        for problem in outcome.problems:
            print(f"   WRONG: {problem}", flush=True)
    outcomes = machine.recorded(folder / machine.RECORD)
    print(machine.table(outcomes))
    return int(any(each.problems for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
