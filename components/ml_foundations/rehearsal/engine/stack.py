"""The rehearsed stack: created, deployed by ``pulumi up``, repaired after an interruption."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import psutil

from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.rehearsal.access import Access, private_file
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import environment, project_files
from ml_foundations.rehearsal.engine.pulumi_output import UPDATE_BEGINS, PulumiOutput
from ml_foundations.rehearsal.files import read_json, read_text, stamp, stamps, write, write_json
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import helm
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.kubernetes.objects import object_id
from ml_foundations.rehearsal.processes import Process, has_ended
from ml_foundations.rehearsal.progress import RehearsalError, Step, output, wrapped

_T = TypeVar("_T")
_ReadLine = Callable[[str], None]
_UPDATE = ("up", "--yes", "--skip-preview")
_POLL_SECONDS = 0.05
ADOPTING = "adopting what an interrupted update created"
_INTERRUPTS = ((signal.SIGINT, 4), (signal.SIGINT, 2), (signal.SIGKILL, 2))
"""Signals that end pulumi, each with the seconds until the next.

At the first, it waits for the resources that it creates just now and records them. At the second,
it ends at once.
"""


class EarlyUpdate(NamedTuple):
    """The first preview and update of a stack, started while its replica still starts."""

    fingerprint: Any
    """The fingerprint of the program at the start."""
    read: Callable[[_ReadLine], int | None]
    """Pass each line on, and return the update's status; None if the update did not start."""


@contextmanager
def start_early(rehearsal: Rehearsal) -> Iterator[EarlyUpdate | None]:
    """Preview and update a new stack while its replica starts; yield None for another stack.

    The update waits for the replica when it creates the cluster. It does not start if the preview
    fails, for example because the program reads from the replica, or if that is ready before.
    """
    if state_file(rehearsal).exists():
        yield None
        return
    fingerprint = _fingerprint(rehearsal)
    lines: SimpleQueue[str | None] = SimpleQueue()
    executor = ThreadPoolExecutor(max_workers=1)
    status = executor.submit(_preview_and_update, rehearsal, lines)
    # The executor's thread ends after this one task.
    executor.shutdown(wait=False)

    def read(read_line: _ReadLine) -> int | None:
        def read_all() -> None:
            while (line := lines.get()) is not None:
                read_line(line)

        _interruptible(rehearsal, read_all)
        return status.result()

    try:
        yield EarlyUpdate(fingerprint, read)
    except BaseException:
        # The next command of the task may start just now, so stop until the task has ended.
        while not status.done():
            interrupt(rehearsal)
            time.sleep(_POLL_SECONDS)
        raise


def _preview_and_update(rehearsal: Rehearsal, lines: SimpleQueue[str | None]) -> int | None:
    """Preview, then update; return the update's status, or None. A None ends the lines, too."""
    try:
        create(rehearsal)
        preview_lines: list[str] = []
        if _preview(rehearsal, preview_lines.append) != 0:
            return None
        # Only a preview that succeeds is shown: otherwise ``up`` previews again.
        for line in preview_lines:
            lines.put(line)
        return None if rehearsal.kubeconfig.exists() else _run(rehearsal, lines.put, *_UPDATE)
    finally:
        lines.put(None)


def up(
    rehearsal: Rehearsal,
    early: EarlyUpdate | None = None,
    quiet: bool = False,
    verbose: bool = False,
    previewed: Callable[[], None] = lambda: None,
) -> None:
    """Repair what an interrupted run left, then preview and update, unless that has been done.

    If program and state are those of the last update, a preview without changes is enough.
    Otherwise an update always follows, because no preview counts some changes, such as one of
    ``protect``.

    The terminal shows the progress, then the summary; with ``verbose`` every line, with ``quiet``
    nothing. All lines are in the rehearsal's log. ``previewed`` is called after the preview: the
    update may wait for minutes.

    If pulumi fails, the RehearsalError has its output.
    """
    if early is None:
        restore(rehearsal)
        create(rehearsal)
        recover(rehearsal)
        helm.forget_charts(rehearsal)
    fingerprint = early.fingerprint if early else _fingerprint(rehearsal)
    pulumi_output = PulumiOutput()
    terminal = output()
    title = f"pulumi up --stack {rehearsal.stack}"
    with rehearsal.up_log.open("w") as log, Step(title, is_live=not verbose) as step:
        is_empty = True

        def read_line(line: str) -> None:
            nonlocal is_empty
            is_empty = False
            log.write(line)
            progress = pulumi_output.add(line)
            if verbose:
                terminal.print(line, end="", soft_wrap=True)
            if progress:
                step.detail(progress)
            if progress == UPDATE_BEGINS:
                previewed()

        status = early.read(read_line) if early else None
        if status is None:
            state = [fingerprint, stamp(state_file(rehearsal))]
            is_applied = read_json(rehearsal.applied, []) == state
            options = ["--expect-no-changes"] if is_applied else []
            # If there are lines, they are those of the early preview.
            status = _preview(rehearsal, read_line, *options) if is_empty else 0
            if is_applied and status == 0:
                previewed()
            elif is_applied or status == 0:
                status = _run(rehearsal, read_line, *_UPDATE)
        if status != 0:
            summary = pulumi_output.summary().strip() or "something ended it"
            reason = "its output is above" if verbose else summary
            log_path = os.path.relpath(rehearsal.up_log)
            command = rehearsal.command("up")
            fix = f"Fix these errors, then run {command}. The whole log: {log_path}"
            if "it is protected" in reason:
                ours = (
                    "data: false frees a volume, and deletion_protection: false a pool or cluster"
                )
                fix = f"Of our own, {ours}. {fix}"
            raise RehearsalError(f"pulumi up failed: {reason}\n{fix}")
    write_json(rehearsal.applied, [fingerprint, stamp(state_file(rehearsal))])
    if not quiet and not verbose:
        terminal.print(wrapped(pulumi_output.summary(), terminal), soft_wrap=True)


def _fingerprint(rehearsal: Rehearsal) -> Any:
    """Return a value that changes with every file of the program and of this package."""
    return stamps(rehearsal.project, SOURCE_ROOT / "ml_foundations")


def create(rehearsal: Rehearsal) -> None:
    """Create the stack in the rehearsal's backend, unless it exists."""
    # ``pulumi stack init`` needs half a second, and writes into the project's stack file.
    state = state_file(rehearsal)
    if not state.exists():
        write(rehearsal.backend_dir / ".pulumi" / "meta.yaml", "version: 1\n")
        name = f"organization/{state.parent.name}/{rehearsal.stack}"
        write_json(state, {"version": 3, "checkpoint": {"stack": name}})


def state_file(rehearsal: Rehearsal) -> Path:
    """Return the file in which the backend keeps the state of the stack."""
    project = project_files.project_settings(rehearsal.project)["name"]
    return rehearsal.backend_dir / ".pulumi" / "stacks" / project / f"{rehearsal.stack}.json"


def restore(rehearsal: Rehearsal) -> None:
    """Replace a state file that was cut off, as by a full disk, by the last complete backup."""
    state = state_file(rehearsal)
    if not state.exists() or _is_complete(state):
        return
    folder = rehearsal.backend_dir / ".pulumi" / "backups" / state.parent.name / rehearsal.stack
    backups = [state.with_name(f"{state.name}.bak"), *sorted(folder.glob("*.json"), reverse=True)]
    with Step("restoring the last state that was written whole"):
        if backup := next(filter(_is_complete, backups), None):
            write(state, backup.read_text())
        else:
            state.unlink()
    # The backup lacks the objects that were created since. The plugins inherit this variable, by
    # which a create takes over the existing object.
    os.environ["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"


def _is_complete(state: Path) -> bool:
    try:
        return "checkpoint" in json.loads(read_text(state))
    except ValueError:
        return False


def recover(rehearsal: Rehearsal) -> None:
    """Release the lock of a run that was killed, and adopt the resources that it created."""
    process(rehearsal).stop()
    # Every pulumi command takes a second, so none runs if the backend's files show no interruption.
    # A full disk leaves an empty draft of a lock, which pulumi treats as a lock.
    locks = list((rehearsal.backend_dir / ".pulumi" / "locks").rglob("*.json*"))
    for lock in locks:
        _require_abandoned(lock, rehearsal)
    if locks:
        pulumi(rehearsal, "cancel", "--yes")
    checkpoint = json.loads(state_file(rehearsal).read_text())["checkpoint"]
    if "pending_operations" not in checkpoint.get("latest", {}):
        return
    export: dict[str, Any] = json.loads(_checked_pulumi(rehearsal, "stack", "export"))
    with Step(ADOPTING):
        _adopt_created(rehearsal, export["deployment"])
        with private_file(json.dumps(export)) as edited:
            _checked_pulumi(rehearsal, "stack", "import", "--file", str(edited))
        _checked_pulumi(rehearsal, "refresh", "--yes", "--skip-preview")


def process(rehearsal: Rehearsal) -> Process:
    """Return the pulumi process of a command; it may run on after the command was killed."""
    return Process("pulumi", rehearsal.root / "pulumi.pid", rehearsal.up_log)


def _require_abandoned(lock: Path, rehearsal: Rehearsal) -> None:
    """Raise an error if the holder of a lock of the backend still runs."""
    with suppress(psutil.NoSuchProcess, ValueError):
        holder = json.loads(lock.read_text())
        candidate = psutil.Process(holder["pid"])
        is_here = holder["hostname"] == socket.gethostname()
        if is_here and candidate.name().startswith("pulumi") and not has_ended(candidate):
            fix = "Wait until it has ended, or end it, then try again"
            where = f"{rehearsal.stack} (process {holder['pid']})"
            raise RehearsalError(f"pulumi is already at work on {where}. {fix}")


def _adopt_created(rehearsal: Rehearsal, deployment: dict[str, Any]) -> None:
    """Add the resources that an interrupted run created, and clear the pending operations."""
    # Without a terminal, ``pulumi refresh --import-pending-creates`` drops them (3.250).
    known = {resource["urn"]: resource for resource in deployment["resources"]}
    ids_by_urn: dict[str, str] = {}
    for store in map(Store, rehearsal.replicas):
        ids_by_urn |= {recorded["urn"]: recorded["id"] for recorded in store.resources()}
    for operation in deployment["pending_operations"]:
        resource = operation["resource"]
        if operation["type"] != "creating" or resource["urn"] in known:
            continue
        provider = resource.get("provider", "").rpartition("::")[0]
        replica = _replica_of(known.get(provider, {}), rehearsal)
        identity = _object_id(resource, replica) or ids_by_urn.get(resource["urn"])
        if identity:
            known[resource["urn"]] = resource | {"id": identity}
    deployment |= {"resources": list(known.values()), "pending_operations": []}


def _object_id(resource: Mapping[str, Any], replica: Rehearsal) -> str | None:
    """Return the id of a release or an object in the cluster; None for any other resource."""
    inputs = resource.get("inputs", {})
    client = Client(Api(Access(replica.kubeconfig)))
    if resource["type"] == RELEASE:
        # The plugin ends an unfinished install of Helm when it installs the release again.
        status = helm.status(client, inputs["namespace"], inputs["name"])
        return object_id(inputs) if status == "deployed" else None
    if "apiVersion" in inputs and inputs.get("metadata", {}).get("name"):
        live = client.get(inputs)
        return object_id(live["metadata"]) if live else None
    return None


def _replica_of(provider: Mapping[str, Any], rehearsal: Rehearsal) -> Rehearsal:
    """Return the replica of the cluster that a provider depends on, or the first replica."""
    dependencies = set[str]().union(*provider.get("propertyDependencies", {}).values())
    for replica in rehearsal.replicas:
        for cluster in Store(replica).clusters().values():
            if cluster["urn"] in dependencies:
                return replica
    return rehearsal


def pulumi(rehearsal: Rehearsal, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the rehearsal's pulumi on the stack, and capture its output."""
    with _popen(rehearsal, args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stdout, stderr = _interruptible(rehearsal, process.communicate)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _run(rehearsal: Rehearsal, read_line: _ReadLine, *args: str) -> int:
    """Run the rehearsal's pulumi on the stack, pass each line on, and return its status."""
    with _popen(rehearsal, args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:

        def read_all() -> None:
            for line in process.stdout or ():
                read_line(line)

        _interruptible(rehearsal, read_all)
    return process.returncode


def _preview(rehearsal: Rehearsal, read_line: _ReadLine, *options: str) -> int:
    """Preview the stack, and keep the events, which list the declared resources."""
    events = str(rehearsal.preview_events)
    return _run(rehearsal, read_line, "preview", "--event-log", events, *options)


def _popen(rehearsal: Rehearsal, args: Sequence[str], **streams: Any) -> subprocess.Popen[str]:
    command = [str(rehearsal.bin_dir / "pulumi"), *args]
    command += ["--stack", rehearsal.stack, "--non-interactive"]
    # Without this variable there is no --event-log. Pulumi's Automation API sets it, too.
    environ = environment.process_environment(rehearsal) | {"PULUMI_DEBUG_COMMANDS": "true"}
    # In a separate process group, Ctrl-C does not reach pulumi: ``interrupt`` does, once.
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "process_group": 0, **streams}
    started = subprocess.Popen(command, env=environ, cwd=rehearsal.project, text=True, **options)
    process(rehearsal).record(started.pid)
    return started


def interrupt(rehearsal: Rehearsal) -> None:
    """End pulumi, if it runs, gently at first. Its plugins end with it."""
    if running := process(rehearsal).find():
        for number, seconds in _INTERRUPTS:
            with suppress(psutil.NoSuchProcess):
                running.send_signal(number)
            deadline = time.monotonic() + seconds
            while not has_ended(running) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)


def _interruptible(rehearsal: Rehearsal, wait: Callable[[], _T]) -> _T:
    """Return the result of a wait for pulumi. An interrupt ends pulumi, then is raised again."""
    ended = threading.Event()

    def interrupt_until_ended() -> None:
        # The first update follows its preview, perhaps just now.
        while not ended.wait(_POLL_SECONDS):
            interrupt(rehearsal)

    received: KeyboardInterrupt | None = None
    while True:
        try:
            result = wait()
            break
        except KeyboardInterrupt as error:
            if received is None:
                # In a thread, as pulumi ends only while its output is read.
                threading.Thread(target=interrupt_until_ended, daemon=True).start()
            received = error
    ended.set()
    if received:
        raise received
    return result


def _checked_pulumi(rehearsal: Rehearsal, *args: str) -> str:
    """Return the output of a pulumi command; raise a RehearsalError with it if it fails."""
    done = pulumi(rehearsal, *args)
    if done.returncode != 0:
        message = (done.stderr or done.stdout).strip()
        raise RehearsalError(f"pulumi {' '.join(args)} failed:\n{message}")
    return done.stdout
