"""Input of a stranger, each by its number: files for ``plan``, kinds, stack files, and what a page shows."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from random import Random
from typing import Any

import yaml
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.progress import RehearsalError, user_errors

from tests.reliability import checks, objects, odd
from tests.reliability.shown import try_page
from tests.reliability.trial import SECRET, Trial
from tests.support import stack_files

_ERRORS = re.compile(r"\d+ .*(\n  (gcp:project|ml-foundations:).*(\n    .*)*)+")
_LINKS = (
    *("../outside/scalar.yaml", "../outside/object.yaml", "../outside", "/etc/passwd", "/dev/zero"),
    *("/dev/stdin", "/proc/self/environ", "/proc/self/mem", "nothing", ".", "..", "good.yaml", "/"),
)


def _bytes(trial: Trial) -> None:
    """A file of which some bytes are changed."""
    _one_file(trial, odd.with_bytes(trial.encoded(objects.stack(trial.draw)), trial.draw))


def _yaml(trial: Trial) -> None:
    """YAML with a structure, tags or values that nobody expects."""
    _one_file(trial, trial.encoded(objects.stack(trial.draw), broken=1))


def _one_file(trial: Trial, content: bytes) -> None:
    name = trial.draw.choice(["a.yaml", "a.yaml", "a.json", "-"])
    (trial.folder / name).write_bytes(content)
    trial.plan(name, standard_input=content)


def _objects(trial: Trial) -> None:
    """Objects with odd fields, in YAML without a fault."""
    documents = objects.stack(trial.draw)
    trial.write("a.yaml", documents)
    metadata: Any = [each.get("metadata") for each in documents if isinstance(each, dict)]
    names = [each["name"] for each in metadata if isinstance(each, dict) and "name" in each]
    drained = odd.text(trial.draw, str(trial.draw.choice([*names, "pool:a"]))).replace("\0", "0")
    trial.plan("a.yaml", *[f"--without={drained}"] * trial.chance(0.1))


def _embedded(trial: Trial) -> None:
    """YAML, JSON and other languages inside of texts."""
    holders = [objects.holder(trial.draw) for _ in range(2)]
    trial.write("a.yaml", [*objects.stack(trial.draw), *holders])
    trial.plan("a.yaml")


def _diff(trial: Trial) -> None:
    """Two sides, of which the new one is an edit of the old, or has nothing to do with it."""
    draw, old = trial.draw, objects.stack(trial.draw)
    new = copy.deepcopy(old) if trial.chance(0.8) else objects.stack(draw)
    for _ in range(draw.choice([1, 2, 3])):
        index = draw.randrange(len(new))
        new[index] = objects.edited(new[index], draw)
    for side, documents in (("old", old), ("new", new)):
        (trial.folder / side).mkdir()
        name = draw.choice(["a.yaml", "b.json", f"{trial.file_name()}.yml"])
        trial.write(f"{side}/{name}", documents, broken=0.1)
    trial.write("cluster.yaml", objects.stack(draw), broken=0.1)
    trial.plan("--diff", "old", "new", *["cluster.yaml"] * trial.chance(0.5))


def _files(trial: Trial) -> None:
    """Links, devices, pipes, sockets, folders and odd names next to a good file."""
    for folder in ("outside", "manifests"):
        (trial.folder / folder).mkdir()
    (trial.folder / "outside/scalar.yaml").write_text(SECRET)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": SECRET}}
    (trial.folder / "outside/object.yaml").write_text(json.dumps(pod))
    trial.write("manifests/good.yaml", objects.stack(trial.draw))
    for _ in range(trial.draw.choice([1, 1, 3])):
        name = f"manifests/{trial.file_name()}{trial.draw.choice(['.yaml', '.yml', '.json', ''])}"
        if not os.path.lexists(trial.folder / name):
            _make_file(trial, trial.folder / name)
    # To name a link is to ask for what it leads to.
    made = sorted((trial.folder / "manifests").iterdir())
    named = [path for path in made if not path.is_symlink()]
    file = os.path.relpath(trial.draw.choice(named), trial.folder)
    sides = ("--diff", "manifests", "manifests")
    trial.plan(*trial.draw.choice([("manifests",), ("manifests",), (file,), sides]))


def _make_file(trial: Trial, path: Path) -> None:
    kinds = ("link", "link", "link", "itself", "pipe", "socket", "folder", "name", "bytes", "mode")
    match trial.draw.choice(kinds):
        case "link":
            path.symlink_to(trial.draw.choice(_LINKS))
        case "itself":
            path.symlink_to(path.name)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            bound = socket.socket(socket.AF_UNIX)
            bound.bind("socket")  # a longer name is refused
            Path("socket").rename(path)
        case "folder":
            path.mkdir()
            trial.write(str(path / "a.yaml"), objects.stack(trial.draw))
        case "name":
            path.write_text(trial.draw.choice(["a: [", "a", "", "{kind: Pod}", "a: !!bool x"]))
        case "bytes":
            path.write_bytes(odd.with_bytes(b"a: 1", trial.draw))
        case _:
            path.touch(mode=0)


def _kinds(trial: Trial) -> None:
    """A folder that describes kinds, and objects of these kinds."""
    draw, description = trial.draw, copy.deepcopy(trial.draw.choice(objects.descriptions()))
    kind = description["kind"]
    own = {"kind": f"My{kind}", "group": "example.com", "version": "v1"}
    description |= own
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        description = objects.edited(description, draw)
    (trial.folder / "kinds").mkdir()
    (trial.folder / "outside.yaml").write_text(SECRET)
    name = f"kinds/{draw.choice(['a', 'a', trial.file_name()])}.yaml"
    content = trial.encoded([description], broken=0.1)
    if trial.chance(0.1):
        links = ["../outside.yaml", "/etc/passwd", "/dev/zero", "nothing"]
        (trial.folder / name).symlink_to(draw.choice(links))
    else:
        content = odd.with_bytes(content, draw) if trial.chance(0.1) else content
        (trial.folder / name).write_bytes(content)
    given = [each for stream in objects.streams() for each in stream if each["kind"] == kind]
    mine = draw.choice(given) | {"apiVersion": "example.com/v1", "kind": f"My{kind}"}
    other = draw.choice(objects.streams())[0]
    trial.write("a.yaml", [other, mine, *[objects.edited(mine, draw)] * trial.chance(0.5)])
    trial.plan("a.yaml", "--kinds", "kinds")


def _stack_file(trial: Trial) -> None:
    """A stack file, with what the command and the program say of it."""
    file = trial.folder / "Pulumi.dev.yaml"
    file.write_bytes(stack_file(trial.draw))
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), user_errors():
            trial.meter(lambda: parse_stack_file(file))
        trial.outcome = "accepted"
    except SystemExit:
        trial.outcome = "refused"
    except Exception as error:
        trial.wrong.append(checks.crashed(error))
    trial.wrong += checks.wrong_text(errors.getvalue())


def stack_file(draw: Random) -> bytes:
    """One of our stack files, which is edited or broken."""
    stack = draw.choice(["dev", "staging", "prod"])
    content = yaml.safe_load((stack_files.STACKS / f"Pulumi.{stack}.yaml").read_text())
    for _ in range(draw.choice([0, 1, 1, 2])):
        content = objects.edited(content, draw)
    encoded = Trial(draw, Path()).encoded([content], broken=0.4)
    return odd.with_bytes(encoded, draw) if draw.random() < 0.1 else encoded


def parse_stack_file(file: Path) -> dict[str, Any]:
    """Return the configuration of a stack file, as the engine hands it over, if the settings accept it.

    Raises:
        RehearsalError: it is refused.
    """
    config: Any = read_map(file, "the stack file").get("config") or {}
    if not isinstance(config, dict):
        raise RehearsalError("the engine refuses the stack file")
    # What is no Unicode is replaced.
    plain = json.loads(json.dumps(config, ensure_ascii=False, default=str).encode(errors="replace"))
    given = {key: value for key, value in plain.items() if value is not None}
    sections = {key.partition(":")[2]: value for key, value in given.items()}
    try:
        stack_files.settings.parse({"project": "", **sections})
    except ValueError as error:
        assert type(error) is ValueError
        assert _ERRORS.fullmatch(str(error)), f"no list of paths: {error}"
        raise RehearsalError(f"the program fails: {error}") from None
    return given


_TRIALS: dict[str, Callable[[Trial], None]] = {
    "bytes": _bytes,
    "YAML": _yaml,
    "objects": _objects,
    "embedded text": _embedded,
    "two sides": _diff,
    "files": _files,
    "kinds": _kinds,
    "stack files": _stack_file,
    "page": try_page,
}
_SHARES = (
    *("objects", "YAML", "bytes", "embedded text", "two sides", "objects", "files", "YAML"),
    *("stack files", "bytes", "kinds", "objects", "two sides", "embedded text", "YAML", "page"),
    *("objects", "files", "stack files", "bytes"),
)


def kind_of(number: int) -> str:
    """Return the kind of the input of a number."""
    return _SHARES[number % len(_SHARES)]


def is_alone(number: int) -> bool:
    """Return whether an input needs a process of its own: kinds are read once in a process."""
    return kind_of(number) == "kinds"


def tried(number: int, folder: Path) -> Trial:
    """Make the input of a number in an empty folder, and try it there."""
    trial = Trial(Random(f"hostile-{number}"), folder)
    os.chdir(folder)
    _TRIALS[kind_of(number)](trial)
    return trial
