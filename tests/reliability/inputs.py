"""Hostile input by the thousand: each is tried in a process that may end, and what failed is kept."""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.reliability import checks, hostile, objects

BATCH = 50
_PATIENCE = 300
"""Seconds without an outcome after which an input counts as one that never ends."""
_ATTEMPTS = 3
"""How often a slow input is tried: on a busy machine, the least time counts."""
_ROOM = 3 * 1024**3
"""The address space of a process that tries inputs, for the sake of others."""
RECORD = "inputs.jsonl"


@dataclass(frozen=True)
class Outcome:
    """What became of an input."""

    number: int
    kind: str
    outcome: str
    seconds: float = 0.0
    megabytes: float = 0.0
    wrong: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def is_heavy(self) -> bool:
        """Return whether it took too long or too much."""
        return self.seconds > checks.SECONDS or self.megabytes > checks.MEGABYTES


def try_all(folder: Path, first: int, count: int) -> list[Outcome]:
    """Try the inputs of a range that are not on record; what fails is kept in the folder."""
    objects.streams()  # read once, and not by each process
    record = folder / RECORD
    known = {outcome.number for outcome in recorded(record)}
    left = [number for number in range(first, first + count) if number not in known]
    for start in range(0, len(left), BATCH):
        numbers = left[start : start + BATCH]
        together = [number for number in numbers if not hostile.is_alone(number)]
        alone = [[number] for number in numbers if hostile.is_alone(number)]
        outcomes = [outcome for batch in (together, *alone) for outcome in tried(batch, folder)]
        with record.open("a") as stream:
            stream.writelines(f"{json.dumps(asdict(outcome))}\n" for outcome in outcomes)
        for outcome in outcomes:
            if outcome.wrong:
                print(f"{outcome.number} ({outcome.kind}): {'; '.join(outcome.wrong)}", flush=True)
    wanted = range(first, first + count)
    return [outcome for outcome in recorded(record) if outcome.number in wanted]


def recorded(record: Path) -> list[Outcome]:
    """Return the outcomes on record, each input once."""
    lines = record.read_text().splitlines() if record.exists() else []
    outcomes = (Outcome(**json.loads(line)) for line in lines)
    return [*{outcome.number: outcome for outcome in outcomes}.values()]


def tried(numbers: list[int], folder: Path) -> Iterator[Outcome]:
    """Yield the outcomes of inputs; those of slow ones are their best."""
    for outcome in _tried(numbers, folder):
        best = outcome
        for _ in range(_ATTEMPTS - 1):
            if best.is_heavy:
                [again] = _tried([outcome.number], folder)
                best = min(best, again, key=lambda each: (each.is_heavy, each.seconds))
        if best.is_heavy:
            heavy = f"took {best.seconds:.1f} s and {best.megabytes:.0f} MB"
            best = Outcome(**asdict(best) | {"outcome": "failed", "wrong": (*best.wrong, heavy)})
        yield best


def _tried(numbers: list[int], folder: Path) -> Iterator[Outcome]:
    """Yield the outcomes of inputs, tried in another process, or in more if an input ends one."""
    processes = multiprocessing.get_context("fork")
    while numbers:
        receiving, sending = processes.Pipe(duplex=False)
        process = processes.Process(target=_try_in_turn, args=(numbers, folder, sending))
        process.start()
        sending.close()
        try:
            while numbers and receiving.poll(_PATIENCE):
                yield receiving.recv()
                numbers = numbers[1:]
            end = f"no end after {_PATIENCE} s"
        except EOFError:
            process.join()
            end = f"the process ended with {process.exitcode}"
        process.kill()
        process.join()
        if numbers:
            yield Outcome(numbers[0], hostile.kind_of(numbers[0]), "failed", wrong=(end,))
            numbers = numbers[1:]


def _try_in_turn(numbers: Iterable[int], kept: Path, sending: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            trial = hostile.tried(number, Path(name))
            measured = (round(trial.meter.seconds, 2), round(trial.meter.megabytes, 1))
            kind, ended = hostile.kind_of(number), "failed" if trial.wrong else trial.outcome
            outcome = Outcome(number, kind, ended, *measured, tuple(trial.wrong), trial.command)
            if outcome.wrong or outcome.is_heavy:
                shutil.rmtree(kept / str(number), ignore_errors=True)
                shutil.copytree(name, kept / str(number), symlinks=True, ignore=_not_regular)
        sending.send(outcome)


def _not_regular(folder: str, names: list[str]) -> list[str]:
    regular = (Path.is_symlink, Path.is_file, Path.is_dir)
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if not any(kind(path) for kind in regular)]


def table(outcomes: Iterable[Outcome]) -> str:
    """Return how many inputs of each kind had which outcome, with the most time and memory."""
    by_kind: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_kind.setdefault(outcome.kind, []).append(outcome)
    head = "| input | tried | outcomes | failed | most CPU | most memory |"
    lines = [head, "|---|---|---|---|---|---|"]
    for kind, tries in sorted(by_kind.items()):
        counts = Counter(each.outcome for each in tries)
        failed = counts.pop("failed", 0)
        named = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        most = (max(each.seconds for each in tries), max(each.megabytes for each in tries))
        lines.append(
            f"| {kind} | {len(tries):,} | {named} | {failed} | {most[0]:.2f} s | {most[1]:.0f} MB |"
        )
    return "\n".join(lines)
