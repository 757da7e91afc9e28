"""How torchrun and accelerate start the processes of a training program.

Sources: pytorch, torch/distributed/run.py; accelerate, commands/launch.py and utils/launch.py.
"""

import re
from dataclasses import dataclass
from typing import Any

from ml_foundations.models.command import Program, Word
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined, warning

VISIBLE = 0
"""As many processes as the container has GPUs."""
_SWITCHES = {
    *("standalone", "no-python", "run-path", "module", "m", "multi-gpu", "use-fsdp", "cpu", "tpu"),
    *("use-deepspeed", "debug", "quiet", "use-megatron-lm"),
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The processes of a training program. None is for a value that is not known."""

    launcher: str
    nodes: tuple[int, int] | None = None
    """The fewest and the most nodes."""
    per_node: int | None = None
    """Processes on a node."""
    path: str = ""
    """The field in the container that has the number of processes."""
    reasons: tuple[Reason, ...] = ()


def read_launch(started: Program) -> Launch:
    """Return the processes that a launcher starts, as far as its arguments are known."""
    given: dict[str, Word] = {}
    left = list(reversed(started.arguments))
    while left:
        word = left.pop()
        if word.text is None:
            reason = undetermined(Cause.UNKNOWN_ARGUMENT, "a value", word.path)
            return Launch(launcher=started.name, reasons=(reason,))
        if not word.text.startswith("-"):
            break  # the training program: what follows is its own
        name, equals, value = word.text.partition("=")
        name = name.lstrip("-").replace("_", "-")
        if equals or name in _SWITCHES:
            given[name] = Word(value, word.path)
        elif left:
            given[name] = left.pop()
    if started.name == "torchrun":
        for key, value in started.env.items():
            name = key.removeprefix("PET_").lower().replace("_", "-")
            if key.startswith("PET_"):
                given.setdefault(name, Word(value, f"env[{key}]"))
        return _torchrun(given)
    return _accelerate(given)


def _number(given: dict[str, Word], name: str, default: int | None) -> int | None:
    text = given[name].text if name in given else None
    if name not in given:
        return default
    return int(text) if text is not None and text.isdecimal() else None


def _torchrun(given: dict[str, Word]) -> Launch:
    known: dict[str, Any] = {}
    reasons: list[Reason] = []
    text, path = given.get("nnodes", Word("1", ""))
    matched = re.fullmatch(r"(\d+)(?::(\d+))?", text or "")
    fewest, most = (int(matched[1]), int(matched[2] or matched[1])) if matched else (0, 0)
    if 0 < fewest <= most:
        known["nodes"] = fewest, most
    elif text is not None and "$" not in text:
        reasons.append(refused(Cause.INVALID_VALUE, text, "N or MIN:MAX", path))
    text, path = given.get("nproc-per-node", Word("1", ""))
    if text is not None and (text.isdecimal() or text in ("gpu", "auto")):
        known["per_node"] = int(text) if text.isdecimal() else VISIBLE
    elif text is not None and "$" not in text and text not in ("cpu", "xpu"):
        reasons.append(refused(Cause.INVALID_VALUE, text, "a number or gpu", path))
    return Launch(launcher="torchrun", path=path, reasons=tuple(reasons), **known)


def _accelerate(given: dict[str, Word]) -> Launch:
    reasons: list[Reason] = []
    has_file = "config-file" in given
    if has_file:
        file, path = given["config-file"]
        reasons.append(undetermined(Cause.UNREADABLE_CONFIG, file, path))
    # What the line has, a file does not override.
    machines = _number(given, "num-machines", None if has_file else 1)
    total = _number(given, "num-processes", None if has_file else VISIBLE)
    path = given["num-processes"].path if "num-processes" in given else ""
    if "multi-gpu" in given and total == 1:
        reasons.append(refused(Cause.ONE_PROCESS, 1, 2, path))
    if total and machines and total % machines:
        reasons.append(warning(Cause.NODES, total, machines, path))
    return Launch(
        launcher="accelerate",
        nodes=None if machines is None else (machines, machines),
        per_node=total // machines if total is not None and machines else None,
        path=path,
        reasons=tuple(reasons),
    )
