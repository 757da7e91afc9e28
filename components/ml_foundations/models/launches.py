"""How torchrun and accelerate start the processes of a training program.

Sources: pytorch, torch/distributed/run.py; accelerate, commands/launch.py and utils/launch.py.
"""

import re
from dataclasses import dataclass
from typing import Any

from ml_foundations.kubernetes.quantities import decimal_number
from ml_foundations.models.command import Program, Word
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined

VISIBLE = 0
"""As many processes as the container has GPUs."""
_SWITCHES = {
    *("standalone", "no-python", "run-path", "module", "m", "multi-gpu", "use-fsdp", "cpu", "tpu"),
    *("use-deepspeed", "debug", "quiet", "q", "use-megatron-lm", "same-network", "use-xpu"),
    *("enable-cpu-affinity", "use-parallelism-config", "downcast-bf16", "virtual-local-rank"),
    *("dynamo-use-fullgraph", "dynamo-use-dynamic", "dynamo-use-regional-compilation"),
    *("tpu-cluster", "no-tpu-cluster", "tpu-use-sudo", "fp8-use-autocast-during-eval"),
}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The processes of a training program. None is for a value that is not known."""

    launcher: str
    nodes: tuple[int, int] | None = None
    """The fewest and the most nodes."""
    per_node: int | None = None
    """Processes on a node."""
    divides: int = 1
    """How many nodes divide the processes among them, if these are as many as GPUs of a node."""
    visible: tuple[int, ...] | None = None
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` lists."""
    path: str = ""
    """The field in the container that has the number of processes."""
    nodes_path: str = ""
    """The field that has the number of nodes."""
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
        elif left and not (left[-1].text or "").startswith("-"):
            given[name] = left.pop()
    return _torchrun(started, given) if started.name == "torchrun" else _accelerate(given)


def _torchrun(started: Program, given: dict[str, Word]) -> Launch:
    for key, value in started.env.items():
        if key.startswith("PET_"):
            name = key.removeprefix("PET_").lower().replace("_", "-")
            given.setdefault(name, Word(value, f"env[{key}]"))
    known: dict[str, Any] = {}
    reasons: list[Reason] = []
    text, nodes_path = given.get("nnodes", Word("1", ""))
    matched = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text or "")
    fewest, most = (int(matched[1]), int(matched[2] or matched[1])) if matched else (0, 0)
    if 0 < fewest <= most:
        known["nodes"] = None if _has_literal_rank(given, "node-rank") else (fewest, most)
    elif text is not None and "$" not in text:
        reasons.append(refused(Cause.INVALID_VALUE, text, "N or MIN:MAX", nodes_path))
    text, path = given.get("nproc-per-node", Word("1", ""))
    count = VISIBLE if text in ("gpu", "auto") else decimal_number(text or "")
    if count is not None:
        known["per_node"] = count
    elif text is not None and "$" not in text and text not in ("cpu", "xpu"):
        reasons.append(refused(Cause.INVALID_VALUE, text, "a number or gpu", path))
    known |= {"path": path, "nodes_path": nodes_path}
    return Launch(launcher="torchrun", reasons=tuple(reasons), **known)


def _accelerate(given: dict[str, Word]) -> Launch:
    machines, nodes_path = given.get("num-machines", Word("1", ""))
    total, path = given.get("num-processes", Word(str(VISIBLE), ""))
    # A file has what the line lacks.
    is_known = "config-file" not in given or {"num-machines", "num-processes"} <= given.keys()
    count = decimal_number(machines or "")
    processes = decimal_number(total or "")
    if not is_known or not count or processes is None:
        return Launch(launcher="accelerate")
    reasons: list[Reason] = []
    if "multi-gpu" in given and path and processes < 2:
        reasons.append(refused(Cause.INVALID_VALUE, total, "2 or more with --multi_gpu", path))
    return Launch(
        launcher="accelerate",
        nodes=None if _has_literal_rank(given, "machine-rank") else (count, count),
        per_node=processes // count,
        divides=1 if path else count,
        path=path,
        nodes_path=nodes_path,
        reasons=tuple(reasons),
    )


def _has_literal_rank(given: dict[str, Word], name: str) -> bool:
    """Return whether the rank of a node is a number: other nodes have separate objects."""
    return (given.get(name, Word("", "")).text or "").isdecimal()
