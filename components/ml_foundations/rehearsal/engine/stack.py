"""The rehearsed stack: created, deployed by a real ``pulumi up``, and repaired after an interruption."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import psutil
from rich.markup import escape

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.rehearsal.access import Access, private_file
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import environment
from ml_foundations.rehearsal.engine.pulumi_output import BEGINS, PulumiOutput
from ml_foundations.rehearsal.files import read_json, read_text, stamp, stamps, write, write_json
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import helm
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id
from ml_foundations.rehearsal.processes import Process, has_ended
from ml_foundations.rehearsal.progress import RehearsalError, Step, output

_T = TypeVar("_T")
_UPDATE = ("up", "--yes", "--skip-preview")


class EarlyUpdate(NamedTuple):
    """The first preview and update of a stack, under way."""

    files: Any
    """What it was begun with."""
    read: Callable[[Callable[[str], None]], int | None]
    """Hands over each line, and returns how it ended; None where the update is still to come."""


@contextmanager
def start_early(rehearsal: Rehearsal) -> Iterator[EarlyUpdate | None]:
    """Preview a new stack, and begin its update, while its replica starts: until that is there, no cluster is made.

    Nothing is begun of a stack that is not new. Where the preview fails, as it does where it asks the replica, or where
    the replica was there before it had ended, the update is left to ``up``.
    """
    if state_file(rehearsal).exists():
        yield None
        return
    files = _files(rehearsal)
    said: SimpleQueue[str | None] = SimpleQueue()
    thread = ThreadPoolExecutor(max_workers=1)
    status = thread.submit(_begin, rehearsal, said)
    thread.shutdown(wait=False)

    def read(take: Callable[[str], None]) -> int | None:
        _outlive(lambda: [take(line) for line in iter(said.get, None)])
        return status.result()

    try:
        yield EarlyUpdate(files, read)
    except BaseException:
        while not status.done():
            process(rehearsal).stop()
            time.sleep(0.1)
        raise


def _begin(rehearsal: Rehearsal, said: SimpleQueue[str | None]) -> int | None:
    """Preview, then update; returns the update's status, or None where there is none."""
    try:
        create(rehearsal)
        lines: list[str] = []
        if _preview(rehearsal, lines.append) != 0:
            return None
        for line in lines:
            said.put(line)
        return None if rehearsal.kubeconfig.exists() else _each_line(rehearsal, said.put, *_UPDATE)
    finally:
        said.put(None)


def up(
    rehearsal: Rehearsal,
    early: EarlyUpdate | None = None,
    quiet: bool = False,
    verbose: bool = False,
    previewed: Callable[[], None] = lambda: None,
) -> None:
    """Repair what an interrupted run left, then run ``pulumi up``, which previews unless that is done.

    Where files and state are those of the last update, a preview that finds no change is enough. Where they are not, it
    would miss what no preview counts, such as a change of ``protect``.

    Shown is how far it is, then what it comes to; with ``verbose`` every line, with ``quiet`` nothing. All lines are in
    the rehearsal's log. Once the program is previewed, ``previewed`` is called: the update may wait for minutes.

    Raises:
        RehearsalError: pulumi failed; the message has what it said.
    """
    state = state_file(rehearsal)
    if early is None:
        restore(rehearsal)
        create(rehearsal)
        recover(rehearsal)
        helm.forget_charts(rehearsal)
    files = early.files if early else _files(rehearsal)
    follower, shown, title = PulumiOutput(), output(), f"pulumi up --stack {rehearsal.stack}"
    with rehearsal.up_log.open("w") as log, Step(title, is_live=not verbose) as step:
        lines = 0

        def take(line: str) -> None:
            nonlocal lines
            lines += 1
            log.write(line)
            far = follower.take(line)
            if verbose:
                shown.out(line, end="", highlight=False)
            if far:
                step.detail(escape(far))
            if far == BEGINS:
                previewed()

        status = early.read(take) if early else None
        if status is None:
            is_applied = read_json(rehearsal.applied, []) == [files, stamp(state)]
            options = ["--expect-no-changes"] if is_applied else []
            status = 0 if lines else _preview(rehearsal, take, *options)
            if is_applied and status == 0:
                previewed()
            elif is_applied or status == 0:
                status = _each_line(rehearsal, take, *_UPDATE)
        if status != 0:
            said = (
                "its output is above"
                if verbose
                else follower.shown().strip() or "something ended it"
            )
            again, log_file = rehearsal.command("up"), os.path.relpath(rehearsal.up_log)
            way = f"Fix what it names, then run {again}. The whole log: {log_file}"
            if "it is protected" in said:
                way = f"Of our own, data: false frees a volume, and deletion_protection: false a pool or cluster. {way}"
            raise RehearsalError(f"pulumi up failed: {said}\n{way}")
    write_json(rehearsal.applied, [files, stamp(state)])
    if not quiet and not verbose:
        shown.out(follower.shown(), highlight=False)


def _files(rehearsal: Rehearsal) -> Any:
    """What tells one version of the program from another."""
    return stamps(rehearsal.project, SOURCE_ROOT / "ml_foundations")


def create(rehearsal: Rehearsal) -> None:
    """Create the stack in the rehearsal's backend, unless it exists.

    As ``pulumi stack init`` does, which takes half a second and writes into the project's stack file.
    """
    state = state_file(rehearsal)
    if not state.exists():
        write(rehearsal.backend_dir / ".pulumi" / "meta.yaml", "version: 1\n")
        name = f"organization/{state.parent.name}/{rehearsal.stack}"
        write_json(state, {"version": 3, "checkpoint": {"stack": name}})


def state_file(rehearsal: Rehearsal) -> Path:
    """Where the backend keeps the state of the stack."""
    project = environment.project_settings(rehearsal.project)["name"]
    return rehearsal.backend_dir / ".pulumi" / "stacks" / project / f"{rehearsal.stack}.json"


def restore(rehearsal: Rehearsal) -> None:
    """Put the last whole state in the place of one that was cut off, as by a full disk.

    What was made since is there and not in it: this process's pulumi takes over what exists.
    """
    state = state_file(rehearsal)
    if not state.exists() or _is_whole(state):
        return
    backups = rehearsal.backend_dir / ".pulumi" / "backups" / state.parent.name / rehearsal.stack
    kept = [state.with_name(f"{state.name}.bak"), *sorted(backups.glob("*.json"), reverse=True)]
    with Step("restoring the last state that was written whole"):
        if whole := next(filter(_is_whole, kept), None):
            write(state, whole.read_text())
        else:
            state.unlink()
    os.environ["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"


def _is_whole(state: Path) -> bool:
    try:
        return "checkpoint" in json.loads(read_text(state))
    except ValueError:
        return False


def recover(rehearsal: Rehearsal) -> None:
    """Release the lock of a run that was killed, and adopt what it created without writing that down."""
    process(rehearsal).stop()
    # Every pulumi command takes its second: where the backend's files show no trace of an interruption, none is run.
    # A full disk leaves the draft of a lock, empty, which pulumi takes for one.
    locks = list((rehearsal.backend_dir / ".pulumi" / "locks").rglob("*.json*"))
    for lock in locks:
        _require_abandoned(lock, rehearsal)
    if locks:
        pulumi(rehearsal, "cancel", "--yes")
    if "pending_operations" not in json.loads(state_file(rehearsal).read_text())["checkpoint"].get(
        "latest", {}
    ):
        return
    export: dict[str, Any] = json.loads(_quietly(rehearsal, "stack", "export"))
    state: dict[str, Any] = export["deployment"]
    with Step("adopting what an interrupted update created"):
        # `pulumi refresh --import-pending-creates` drops what it is told to import where there is no terminal (3.250).
        known = {resource["urn"]: resource for resource in state["resources"]}
        created = dict(_created(rehearsal, known, state["pending_operations"]))
        pending = {
            operation["resource"]["urn"]: operation["resource"]
            for operation in state["pending_operations"]
        }
        state["resources"] += [
            pending[urn] | {"id": created[urn]} for urn in created if urn not in known
        ]
        state["pending_operations"] = []
        with private_file(json.dumps(export)) as edited:
            _quietly(rehearsal, "stack", "import", "--file", str(edited))
        _quietly(rehearsal, "refresh", "--yes", "--skip-preview")


def process(rehearsal: Rehearsal) -> Process:
    """The pulumi of a command: it outlives one that was killed."""
    return Process("pulumi", rehearsal.root / "pulumi.pid", rehearsal.up_log)


def _require_abandoned(lock: Path, rehearsal: Rehearsal) -> None:
    """Fail if the pulumi that holds a lock of the backend still runs; nobody holds one that was cut off."""
    with suppress(psutil.NoSuchProcess, ValueError):
        holder = json.loads(lock.read_text())
        found = psutil.Process(holder["pid"])
        is_pulumi = holder["hostname"] == socket.gethostname() and found.name().startswith("pulumi")
        if is_pulumi and not has_ended(found):
            raise RehearsalError(
                f"pulumi is already at work on {rehearsal.stack} (process {holder['pid']}). "
                "Wait until it has ended, or end it, then try again"
            )


def _created(
    rehearsal: Rehearsal, known: Mapping[str, Any], pending: list[dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    """The urn and id of each resource that an interrupted create made nevertheless, beside those known by urn."""
    made = (each for replica in rehearsal.replicas for each in Store(replica).resources())
    in_google_cloud = {each["urn"]: each["id"] for each in made}
    for resource in (
        operation["resource"] for operation in pending if operation["type"] == "creating"
    ):
        urn, inputs = resource["urn"], resource.get("inputs", {})
        provider = resource.get("provider", "").rpartition("::")[0]
        client = Client(Api(Access(_replica_of(known.get(provider, {}), rehearsal).kubeconfig)))
        if resource["type"] == RELEASE:
            # What Helm had not ended, the plugin ends when it installs the release again.
            status = helm.status(client, inputs["namespace"], inputs["name"])
            found = object_id(inputs) if status == "deployed" else None
        elif "apiVersion" in inputs:
            live = client.get(inputs) if inputs.get("metadata", {}).get("name") else None
            found = object_id(live["metadata"]) if live else None
        else:
            found = in_google_cloud.get(urn)
        if found:
            yield urn, found


def _replica_of(provider: Mapping[str, Any], rehearsal: Rehearsal) -> Rehearsal:
    """The replica of the cluster that a provider was made for; else the first."""
    needed = {urn for urns in provider.get("propertyDependencies", {}).values() for urn in urns}
    clusters = (
        (each, made["urn"])
        for each in rehearsal.replicas
        for made in Store(each).clusters().values()
    )
    return next((each for each, urn in clusters if urn in needed), rehearsal)


def pulumi(rehearsal: Rehearsal, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the rehearsal's pulumi on the stack, and capture what it prints."""
    with _popen(rehearsal, args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        printed, said = _outlive(process.communicate)
    return subprocess.CompletedProcess(process.args, process.returncode, printed, said)


def _each_line(rehearsal: Rehearsal, take: Callable[[str], None], *args: str) -> int:
    """Run the rehearsal's pulumi on the stack, and take each line that it prints; returns its status."""
    with _popen(rehearsal, args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:

        def read() -> None:
            for line in process.stdout or ():
                take(line)

        _outlive(read)
    return process.returncode


def _preview(rehearsal: Rehearsal, take: Callable[[str], None], *options: str) -> int:
    """Preview the stack as ``_each_line`` runs a command, and keep what the program declares."""
    return _each_line(
        rehearsal, take, "preview", "--event-log", str(rehearsal.preview_events), *options
    )


def _popen(rehearsal: Rehearsal, args: Sequence[str], **streams: Any) -> subprocess.Popen[str]:
    command = [
        str(rehearsal.bin_dir / "pulumi"),
        *args,
        "--stack",
        rehearsal.stack,
        "--non-interactive",
    ]
    # Pulumi has --event-log only with its commands for debugging; its Automation API sets this, too.
    environ = environment.process_environment(rehearsal) | {"PULUMI_DEBUG_COMMANDS": "true"}
    started = subprocess.Popen(command, env=environ, cwd=rehearsal.project, text=True, **streams)
    process(rehearsal).record(started.pid)
    return started


def _outlive(read: Callable[[], _T]) -> _T:
    """What a process prints. On Ctrl-C the terminal interrupts it too: wait until it has ended properly."""
    interrupted = False
    while True:
        try:
            printed = read()
            break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return printed


def _quietly(rehearsal: Rehearsal, *args: str) -> str:
    """What a pulumi command on the stack prints, which is shown only if it fails."""
    done = pulumi(rehearsal, *args)
    if done.returncode != 0:
        raise RehearsalError(
            f"pulumi {' '.join(args)} failed:\n{(done.stderr or done.stdout).strip()}"
        )
    return done.stdout
