"""The fault matrix: something is killed at a random moment of a command, and the next command must go on from there."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ml_foundations.rehearsal import plugins
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.engine import language_host, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import LAUNCHER, end

from tests.reliability import inspection, program
from tests.support.checkout import COMMAND

PHASES = ("up", "change", "down")
VICTIMS = {
    "the command": r"ml-foundations (up|down) ",
    "the engine": r"/tools/pulumi-[^ ]*/pulumi |^pulumi ",
    "the language host": re.escape(language_host.__name__),
    "the program": r"pulumi-language-python-exec.*__main__|runpy",
    "the kubernetes plugin": re.escape(f"{plugins.__name__} kubernetes"),
    "the gcp plugin": re.escape(f"{plugins.__name__} gcp"),
    "the simulated GKE": re.escape(daemon.__name__),
    "kwokctl": r"/kwokctl create",
    # Not the process of kwokctl that asks a component for its version.
    **{name: rf"/bin/{name} (?!(--)?version)" for name in kwok.COMPONENTS},
    "kueue": r"/kueue --config",
    "everything": r"",
}
"""What is killed: by a pattern of the command lines of the rehearsal's own processes."""
_SECONDS = {"up": 11.0, "change": 6.0, "down": 2.0}
"""About how long each phase takes; the moment is one of these."""
_STARTING_SECONDS = 4.0
_PATIENCE = 900
"""The seconds after which a command hangs: on a busy machine, a good one may take minutes."""
_SETTLE_SECONDS = 60
"""After which nothing changes any more."""
PARTS = {"the simulated GKE": "gke", "kueue": "kueue", **{name: name for name in kwok.COMPONENTS}}
"""The parts of a replica, whose death ends ``up``, and their names in its message."""
_END_SECONDS = 45
"""How long ``up`` may last after the death of a part, on a machine three times as slow as that of docs/reliability.md."""


@dataclass
class Moment:
    """One kill, and what came of it."""

    seed: int
    phase: str
    victim: str
    after: float
    queue: bool
    killed: list[str] = field(default_factory=list[str])
    first: str = ""
    """How the command ended in which something was killed."""
    took: float = 0
    """The seconds from the kill to its end."""
    next_up: str = ""
    """How the next ``up`` ended."""
    problems: list[str] = field(default_factory=list[str])


def moment(seed: int) -> Moment:
    """The moment of a seed: three in a row go through the phases of one rehearsal."""
    draw = random.Random(f"fault {seed}")
    phase, queue = PHASES[seed % 3], random.Random(f"life {seed // 3}").random() < 0.25
    names = [name for name in VICTIMS if queue or name != "kueue"]
    if phase != "up":
        names.remove("kwokctl")
    if phase == "down":
        names = ["the command", "the simulated GKE", "everything", *kwok.COMPONENTS]
    victim = draw.choice(names)
    after = draw.uniform(0, _STARTING_SECONDS if victim == "kwokctl" else _SECONDS[phase])
    return Moment(seed, phase, victim, round(after, 2), queue)


class Life:
    """One project with its rehearsal, from the first ``up`` to nothing."""

    def __init__(self, folder: Path, stack: str = program.STACK) -> None:
        self.project = folder / "a project für alle"
        self.temporary = folder / "temporary files"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.rehearsal = Rehearsal.of(stack, self.project)
        self.revision = 0
        self.ports: set[int] = set()
        self.claim = ""
        """The uid of the protected claim that a fault must leave alone, where there is one."""
        self.environ: dict[str, str] = {}
        """What its commands have in their environment beside the user's."""
        self.around: list[str] = []
        """The words before its commands, which run them on a machine that is another one."""

    def command(self, name: str) -> subprocess.Popen[str]:
        """Start ``ml-foundations NAME``."""
        environ = dict(os.environ)
        environ.pop("ML_FOUNDATIONS_REHEARSAL", None)
        options = ("--stack", self.rehearsal.stack, "--project", self.project)
        return subprocess.Popen(
            [*self.around, COMMAND, name, *options],
            env=environ | {"TMPDIR": str(self.temporary), "NO_COLOR": "1"} | self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, name: str) -> tuple[int, str]:
        """Run ``ml-foundations NAME`` to its end: status, and what it printed."""
        return ended(self.command(name))

    def up(self, queue: bool) -> tuple[int, str]:
        """Bring the rehearsal up at its revision."""
        program.write(self.project, self.revision, queue)
        done = self.run("up")
        self.note_ports()
        return done

    def note_ports(self) -> None:
        """Note the ports that the rehearsal has."""
        with suppress(OSError, ValueError):
            self.ports |= set(configuration.ports(self.rehearsal).values())


def down(*lives: Life) -> list[str]:
    """Take rehearsals down; what is wrong then."""
    problems: list[str] = []
    for life in lives:
        life.note_ports()
        status, said = life.run("down")
        problems += [] if status == 0 else [f"down failed: {said[-500:]}"]
    for life in lives:
        # Plugins look for their engine once a second.
        problems += _in_the_end(
            lambda life=life: inspection.left(life.rehearsal, life.ports, life.temporary)
        )
    return problems


def _in_the_end(look: Callable[[], Iterable[str]]) -> list[str]:
    """What is wrong even after a minute."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while (problems := [*look()]) and time.monotonic() < deadline:
        time.sleep(0.5)
    return problems


def suffer(life: Life, given: Moment) -> Moment:
    """Go through a moment, the life being in the state in which its phase begins."""
    hit(life, given)
    given.next_up, problems = go_on(life, given.queue)
    given.problems += problems
    return given


def hit(life: Life, given: Moment) -> None:
    """Go through a moment until its command has ended."""
    life.claim = ""
    if given.phase == "change":
        life.claim = inspection.claim_of(life.rehearsal)
        life.revision += 1
    program.write(life.project, life.revision, given.queue)
    running = life.command("down" if given.phase == "down" else "up")
    given.killed = _kill(life, running, given)
    began = time.monotonic()
    status, said = ended(running)
    given.took = round(time.monotonic() - began, 1)
    given.first = told(status, said)
    if status is None:
        given.problems.append(f"the command hung after the kill: {said[-500:]}")
    # ``up`` may end well: it starts what died before it looked, and at its very end it misses nothing.
    elif status != 0 and given.killed and given.victim in PARTS and given.phase != "down":
        if given.took > _END_SECONDS:
            given.problems.append(f"up went on for {given.took} s: {said[-500:]}")
        if not (PARTS[given.victim] in given.first and ".log" in said):
            given.problems.append(f"the dead part and its log are not named: {said[-3500:]}")


def go_on(life: Life, queue: bool) -> tuple[str, list[str]]:
    """Bring a life up after a fault: how that ended, and what is wrong then."""
    began = time.monotonic()
    status, said = life.up(queue)
    took = f"{told(status, said)} ({time.monotonic() - began:.0f} s)"
    ended_so = "adopted; " * (stack.ADOPTING in said) + took
    if status != 0:
        return ended_so, [f"the next up failed: {said[-1500:]}"]
    # An old pod may end a moment after the new one has begun.
    problems = _in_the_end(lambda: inspection.wrong(life.rehearsal, life.revision))
    if life.claim and inspection.claim_of(life.rehearsal) != life.claim:
        problems.append("the protected claim is another one")
    return ended_so, problems


def ended(running: subprocess.Popen[str]) -> tuple[Any, str]:
    """How a command ended, or None where it was still running after minutes and had to be killed."""
    try:
        said = running.communicate(timeout=_PATIENCE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return None, running.communicate()[0]
    return running.returncode, said


def told(status: int | None, said: str) -> str:
    """How a command ended, by its status and what it said."""
    if status is None:
        return "hung"
    if status == 0:
        return "ended well"
    if status < 0:
        return "killed"
    named = re.search(r"error: (\S[^\n]*)", said)
    return f"failed: {named[1] if named else said.strip().splitlines()[-1:]}"


def _kill(life: Life, running: subprocess.Popen[str], given: Moment) -> list[str]:
    """Wait for the moment, then until the victim is there; kill it, and say what was killed."""
    deadline = time.monotonic() + given.after
    while running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    while running.poll() is None:
        if found := victims(life, running, given.victim):
            # Stopped first: none sees another one die.
            for send in (psutil.Process.suspend, psutil.Process.kill):
                for process in found.values():
                    with suppress(psutil.Error):
                        send(process)
            return sorted(set(found))
        time.sleep(0.05)
    return []


def victims(life: Life, running: subprocess.Popen[str], victim: str) -> dict[str, psutil.Process]:
    """The processes of a victim, by name and pid."""
    found: dict[str, psutil.Process] = {}
    own = psutil.Process(running.pid)
    if victim in ("the command", "everything"):
        found["ml-foundations"] = own
    if victim == "the command":
        return found
    for process in inspection.processes_of(life.rehearsal):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if process != own and re.search(VICTIMS[victim], line) and LAUNCHER not in line:
                found[f"{process.name()} {process.pid}"] = process
    return found


def suffer_all(folder: Path, count: int) -> Iterator[Moment]:
    """Every moment up to a count that is not on record; each is recorded when it is over."""
    record = folder / "faults.jsonl"
    done = {moment.seed for moment in recorded(record)}
    for life_number in range(-(-count // len(PHASES))):
        seeds = [life_number * len(PHASES) + index for index in range(len(PHASES))]
        if all(seed in done or seed >= count for seed in seeds):
            continue
        life = Life(folder / f"life-{life_number}")
        try:
            for seed in seeds[: count - seeds[0]]:
                now = suffer(life, moment(seed))
                if now.phase == "down" or seed == count - 1:
                    now.problems += down(life)
                with record.open("a") as lines:
                    lines.write(json.dumps(asdict(now), ensure_ascii=False) + "\n")
                yield now
                if now.problems:
                    break
        finally:
            end(inspection.processes_of(life.rehearsal))
            life.run("down")
            shutil.rmtree(folder / f"life-{life_number}")


def recorded(record: Path) -> list[Moment]:
    """The moments on record, the latest of each seed."""
    lines = record.read_text().splitlines() if record.exists() else []
    found = [Moment(**json.loads(line)) for line in lines]
    return list({moment.seed: moment for moment in found}.values())


def table(moments: Sequence[Moment]) -> str:
    """The outcome by what was killed: how often, how the command ended, how the next ``up`` did, what was wrong.

    What was never hit has its row too: a pattern that fits nothing any more is to be seen.
    """
    rows: defaultdict[str, list[Moment]] = defaultdict(list)
    for each in moments:
        if each.killed:
            rows[each.victim].append(each)
    lines = [
        "| killed | in `up` | in `up` with changes | in `down` | the command itself | the next `up` | wrong after it |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in VICTIMS:
        found = rows[name]
        phases = Counter(each.phase for each in found)
        first = Counter(each.first.split(":")[0] for each in found)
        ups = Counter("ended well" if "ended well" in each.next_up else "failed" for each in found)
        cells = [
            name,
            *(str(phases[phase]) for phase in PHASES),
            ", ".join(f"{count} {what}" for what, count in first.most_common()),
            ", ".join(f"{count} {what}" for what, count in ups.most_common()),
            str(sum(bool(each.problems) for each in found)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
