"""The faults of the machine: a disk, a home, a network that is not as it should be, and what runs at the same time.

Each case is one ``up`` on such a machine, then an ``up`` on one that is well again, then ``down``: where the first was
on a machine in some condition, ``down`` is on it again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.files import stamp
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.processes import end
from ml_foundations.rehearsal.tools.groups import HELM

from tests.reliability import faults, inspection, program
from tests.reliability.faults import Life
from tests.support.checkout import CHECKOUT

RECORD = "machine.jsonl"
"""The file of the outcomes."""
_HALTED_SECONDS = 60
_FILL = 'cat /dev/zero > "{}/full" 2> /dev/null || true'
_MOUNTS = ("unshare", "--mount")
"""Runs a command that sees mounts of its own."""

End = tuple[Any, str]
"""The status with which a command ended, and what it said."""
_WELL = "ended well"


@dataclass(frozen=True)
class Case:
    """A fault of the machine."""

    fault: Callable[..., list[End]]
    """Runs commands in it, on one life or two: how they ended."""
    first: str
    """How they end, sorted: the beginning of each. Several are one or the other."""
    other: tuple[str, str] | None = None
    """The folder and stack of a second life."""
    needs: Sequence[str] = ()
    """What must be able to run a command on this machine."""


@dataclass
class Outcome:
    """What came of a case."""

    case: str
    first: str
    """How the commands ended in which the fault was."""
    next_up: str = ""
    """How the next ``up`` ended."""
    problems: list[str] = field(default_factory=list[str])


def _changed(life: Life) -> None:
    """Bring a life up, then change its program."""
    status, said = life.up(queue=False)
    if status != 0:
        raise RuntimeError(f"up failed before any fault: {said[-1500:]}")
    life.claim = inspection.claim_of(life.rehearsal)
    life.revision += 1
    program.write(life.project, life.revision, queue=False)


def _new(life: Life) -> None:
    program.write(life.project, life.revision, queue=False)


def _under(
    script: str, prepare: Callable[[Life], None], words: Sequence[str], life: Life
) -> list[End]:
    """Run ``up`` on a machine that a shell script makes."""
    prepare(life)
    life.environ |= {"PROJECT": str(life.project), "SPARE": str(life.project.with_name("spare"))}
    life.environ["TOOLS"] = str(cache_dir() / "tools")
    life.around = [*words, "sh", "-c", f'set -e\n{script}\nexec "$@"', "sh"]
    return [life.run("up")]


def _condition(
    script: str,
    first: str = _WELL,
    prepare: Callable[[Life], None] = _changed,
    words: Sequence[str] = (),
) -> Case:
    return Case(partial(_under, script, prepare, words), first, needs=words)


def _on_small_disk(life: Life) -> None:
    """Give the project a disk of its own, then bring the life up and change its program."""
    life.project.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", life.project], check=True)
    _changed(life)


def _filled_before(life: Life) -> list[End]:
    ends = _under(_FILL.format("$PROJECT"), _on_small_disk, (), life)
    (life.project / "full").unlink()
    return ends


def _changing(life: Life) -> subprocess.Popen[str]:
    """An ``up`` that has written down the first of its changes."""
    state = stack.state_file(life.rehearsal)
    before, running = stamp(state), life.command("up")
    while running.poll() is None and (not state.exists() or stamp(state) == before):
        time.sleep(0.02)
    return running


def _filled_meanwhile(start: Callable[[Life], subprocess.Popen[str]], life: Life) -> list[End]:
    """Take all room of the project's disk, and all that gets free, from a moment of ``up`` on."""
    _on_small_disk(life)
    running = start(life)
    filler = life.project / "full"
    while running.poll() is None:
        with suppress(OSError), filler.open("ab", buffering=0) as stream:
            while True:
                stream.write(bytes(1 << 16))
        time.sleep(0.1)
    filler.unlink()
    return [faults.ended(running)]


def _project_read_only(life: Life) -> list[End]:
    """``down`` cannot remove what is on such a disk."""
    ends = _under('mount --bind -o ro "$PROJECT" "$PROJECT"', _changed, _MOUNTS, life)
    life.around = []
    return ends


def _running(life: Life, victim: str) -> subprocess.Popen[str]:
    """An ``up`` in which something is running now."""
    running = life.command("up")
    while running.poll() is None and not faults.victims(life, running, victim):
        time.sleep(0.05)
    return running


def _halted(prepare: Callable[[Life], None], when: str, life: Life) -> list[End]:
    """Halt all processes for a minute, as a laptop that sleeps does."""
    prepare(life)
    running = _running(life, when)
    halted = faults.victims(life, running, "everything").values()
    _send(halted, psutil.Process.suspend)
    time.sleep(_HALTED_SECONDS)
    _send(halted, psutil.Process.resume)
    return [faults.ended(running)]


def _send(
    processes: Collection[psutil.Process], *signals: Callable[[psutil.Process], None]
) -> None:
    for send in signals:
        for process in processes:
            with suppress(psutil.Error):
                send(process)


def _ports_taken(life: Life) -> list[End]:
    """Kill all processes, and listen on all of their ports."""
    _changed(life)
    _send(inspection.processes_of(life.rehearsal), psutil.Process.suspend, psutil.Process.kill)
    servers = list[socket.socket]()
    with ExitStack() as taken:
        while left := life.ports - {each.getsockname()[1] for each in servers}:
            with suppress(OSError):  # A process that was killed keeps its ports for a moment.
                servers.append(taken.enter_context(socket.create_server(("127.0.0.1", min(left)))))
        return [life.run("up")]


def _without_helm(life: Life) -> None:
    """Give a life a cache that has all tools but helm, and what Go has compiled of it."""
    cache = life.project.with_name("cache")
    tools = cache / "ml-foundations" / "tools"
    tools.mkdir(parents=True)
    for group in (cache_dir() / "tools").glob("*-*/"):
        if not group.name.startswith(HELM.name):
            (tools / group.name).symlink_to(group)
    compiled = os.environ.get("GOCACHE", str(cache_dir().with_name("go-build")))
    life.environ |= {"XDG_CACHE_HOME": str(cache), "GOCACHE": compiled}
    _new(life)


def _build_cut_off(life: Life) -> list[End]:
    """Kill ``up`` and all that it has started while Go is at work."""
    _without_helm(life)
    running = life.command("up")
    command = psutil.Process(running.pid)
    while running.poll() is None:
        with suppress(psutil.Error):
            found = [command, *command.children(recursive=True)]
            if any(process.name() in ("compile", "link") for process in found):
                _send(found, psutil.Process.suspend, psutil.Process.kill)
        time.sleep(0.02)
    return [faults.ended(running)]


def _built_once(life: Life, other: Life) -> list[End]:
    """Run two ``up`` that lack one tool: one builds it, and the other waits."""
    _without_helm(life)
    other.environ = life.environ
    _new(other)
    ends = _together(life, other)
    built = sum("building helm" in said for _, said in ends)
    return ends if built == 1 else [(1, f"error: {built} of them built helm")]


def _together(*lives: Life) -> list[End]:
    return [faults.ended(each) for each in [life.command("up") for life in lives]]


def _of_one_stack(life: Life) -> list[End]:
    _changed(life)
    return _together(life, life)


def _of_two(life: Life, other: Life) -> list[End]:
    _changed(life)
    _changed(other)
    return _together(life, other)


def _of_two_checkouts(life: Life, other: Life) -> list[End]:
    copy = other.project.with_name("checkout") / "components"
    shutil.copytree(CHECKOUT / "components", copy)
    other.environ["PYTHONPATH"] = str(copy)
    return _of_two(life, other)


_SMALL_CACHE = """
mkdir -p "$SPARE"
mount -t tmpfs -o size=256k tmpfs "$SPARE"
export XDG_CACHE_HOME="$SPARE"
mkdir -p "$SPARE/ml-foundations/tools"
ln -s "$TOOLS"/*-* "$SPARE/ml-foundations/tools"
rm "$SPARE"/ml-foundations/tools/helm-*
"""
_HOME = (
    'mkdir -p "$SPARE/.cache/ml-foundations"; ln -sfn "$TOOLS" "$SPARE/.cache/ml-foundations/tools"'
)
_READ_ONLY = 'mount --bind -o ro "$SPARE" "$SPARE"'
_LACKS_HELM = "failed: the disk of .* are needed to build the tools"
_USERS = "HOME BACKEND_URL CONFIG_PASSPHRASE ACCESS_TOKEN STACK ORGANIZATION PYTHON_CMD OPTION_CONFIG_FILE CONFIG"

CASES = {
    "the project's disk is full": Case(
        _filled_before, "failed: the disk of .* are needed by its rehearsal", needs=_MOUNTS
    ),
    "it fills as `up` with changes begins": Case(
        partial(_filled_meanwhile, partial(_running, victim="the engine")),
        "failed: ",
        needs=_MOUNTS,
    ),
    "it fills while `up` changes objects": Case(
        partial(_filled_meanwhile, _changing), "failed: ", needs=_MOUNTS
    ),
    "it is read-only": Case(_project_read_only, "failed: .*Make it writable", needs=_MOUNTS),
    "`TMPDIR` is full": _condition(
        f'mount -t tmpfs -o size=64k tmpfs "$TMPDIR"; {_FILL.format("$TMPDIR")}', words=_MOUNTS
    ),
    "the tools' cache is full, and lacks helm": _condition(
        _SMALL_CACHE + _FILL.format("$SPARE"), _LACKS_HELM, _new, _MOUNTS
    ),
    "it is read-only, and lacks helm": _condition(
        f'{_SMALL_CACHE}mount -o remount,ro "$SPARE"',
        "failed: building helm: a folder cannot be written",
        _new,
        _MOUNTS,
    ),
    "it is read-only, and whole": _condition(
        f'{_HOME}; export XDG_CACHE_HOME="$SPARE/.cache"; {_READ_ONLY}', words=_MOUNTS
    ),
    "`HOME` is read-only": _condition(
        f'{_HOME}; unset XDG_CACHE_HOME; export HOME="$SPARE"; {_READ_ONLY}', words=_MOUNTS
    ),
    "no `HOME`": _condition("unset HOME"),
    "no IPv4 on the loopback interface": _condition(
        "ip link set lo up; ip address del 127.0.0.1/8 dev lo",
        "failed: .* needs IPv4 on the loopback interface",
        prepare=_new,
        words=("unshare", "--net"),
    ),
    "`umask 000`": _condition("umask 000", prepare=_new),
    "`PULUMI_*` of the user": _condition(
        f"for name in {_USERS}; do export PULUMI_$name=nonsense; done"
    ),
    "a proxy that is dead": _condition(
        "unset no_proxy NO_PROXY; for name in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy; "
        "do export $name=http://127.0.0.1:9; done"
    ),
    "all halted for a minute in a first `up`": Case(
        partial(_halted, _new, "kube-apiserver"), "ended well|failed: "
    ),
    "all halted for a minute in `up` with changes": Case(
        partial(_halted, _changed, "the program"), "ended well|failed: "
    ),
    "all killed, and their ports taken": Case(_ports_taken, _WELL),
    "a build of tools is killed": Case(_build_cut_off, "killed"),
    "two `up` while tools are built": Case(
        _built_once, f"{_WELL}; {_WELL}", other=("other", program.STACK)
    ),
    "two `up` of one stack": Case(_of_one_stack, f"{_WELL}; failed: another command is changing"),
    "of two stacks": Case(_of_two, f"{_WELL}; {_WELL}", other=("one", "u")),
    "from two checkouts": Case(
        _of_two_checkouts, f"{_WELL}; {_WELL}", other=("other", program.STACK)
    ),
}


def suffer_all(folder: Path) -> Iterator[Outcome]:
    """Every case that is not on record; each is recorded when it is over."""
    done = {outcome.case for outcome in recorded(folder / RECORD)}
    for name in [name for name in CASES if name not in done]:
        outcome = suffer(name, folder / "machine")
        with (folder / RECORD).open("a") as lines:
            lines.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
        yield outcome


def recorded(record: Path) -> list[Outcome]:
    """The outcomes on record."""
    return (
        [Outcome(**json.loads(line)) for line in record.read_text().splitlines()]
        if record.exists()
        else []
    )


def suffer(name: str, folder: Path) -> Outcome:
    """Go through a case, from nothing to nothing."""
    with lives_of(name, folder) as lives:
        outcome = befall(name, lives)
        if not outcome.first.startswith("skipped"):
            around, lives[0].around = lives[0].around, []
            for life in lives:
                ended_so, problems = faults.go_on(life, queue=False)
                outcome.next_up = "; ".join(filter(None, (outcome.next_up, ended_so)))
                outcome.problems += problems
            lives[0].around = around
            outcome.problems += faults.down(*lives)
        return outcome


@contextmanager
def lives_of(name: str, folder: Path) -> Iterator[list[Life]]:
    """The lives of a case in an empty folder, of which nothing is left in the end."""
    places = [("one", program.STACK), *filter(None, [CASES[name].other])]
    lives = [Life(folder / place, stack) for place, stack in places]
    try:
        yield lives
    finally:
        for life in lives:
            life.around = []
            end(inspection.processes_of(life.rehearsal))
            life.run("down")
        for disk in psutil.disk_partitions(all=True):
            if Path(disk.mountpoint).is_relative_to(folder):
                subprocess.run(["umount", disk.mountpoint], check=True)
        shutil.rmtree(folder)


def befall(name: str, lives: Sequence[Life]) -> Outcome:
    """Run the commands of a case: how they ended, and what is wrong with that."""
    case = CASES[name]
    if subprocess.run([*case.needs, "true"], check=False, capture_output=True).returncode:
        return Outcome(name, f"skipped: {' '.join(case.needs)} is not allowed here")
    ends = case.fault(*lives)
    told = "; ".join(sorted(faults.told(*each) for each in ends))
    outcome = Outcome(name, told.replace(str(lives[0].project.parent), "…"))
    if not re.match(case.first, outcome.first) or any("Traceback" in said for _, said in ends):
        outcome.problems += [f"{case.first!r} was to come: {said[-1500:]}" for _, said in ends]
    return outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """What came of each case."""
    lines = ["| case | the command itself | the next `up` | wrong after it |", "|---|---|---|---|"]
    found = {outcome.case: outcome for outcome in outcomes}
    for o in (found[name] for name in CASES if name in found):
        lines.append(f"| {o.case} | {o.first.split('. ')[0]} | {o.next_up} | {len(o.problems)} |")
    return "\n".join(lines)
