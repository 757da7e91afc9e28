"""Bad input by the thousand: stack files and streams of manifests, derived from good ones, each by its seed."""

from __future__ import annotations

import copy
import json
import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from ml_foundations.planning.input import documents
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.progress import RehearsalError

from tests.support import stack_files

SECONDS = 2.0
"""As long as an input may take."""
BATCH = 50

_STREAM = """
apiVersion: v1
kind: Node
metadata: {name: gpu, labels: {cloud.google.com/gke-nodepool: l4, kubernetes.io/hostname: gpu}}
spec: {taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]}
status: {capacity: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "1"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: research}
spec: {hard: {requests.nvidia.com/gpu: "2", requests.cpu: "16", pods: "20"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: research}
spec: {limits: [{type: Container, default: {cpu: "1"}, max: {memory: 64Gi}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: finetune, namespace: research}
spec:
  parallelism: 2
  completions: 4
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {cloud.google.com/gke-nodepool: l4}
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
      - name: main
        image: train
        env: [{name: A, value: b}]
        resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: chat, namespace: research}
  spec:
    replicas: 2
    selector: {matchLabels: {app: chat}}
    template:
      metadata: {labels: {app: chat}}
      spec:
        affinity:
          podAntiAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: chat}}}
        topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: chat}}}
        containers: [{name: main, image: serve, resources: {requests: {cpu: "1"}}}]
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: data, namespace: research}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}
"""

_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.sampled_from(
        [
            0,
            -1,
            2**31,
            2**63,
            2**64,
            10**400,
            0.1,
            -0.0,
            1e308,
            float("inf"),
            float("-inf"),
            float("nan"),
        ]
    ),
    st.sampled_from(
        [
            "1e3Gi",
            "1e999999999",
            "-1",
            "0",
            "16 Gi",
            "9" * 5000,
            "1" + "0" * 50 + "Ei",
            ".",
            "1e-99",
            "0x1F",
        ]
    ),
    st.sampled_from(
        [
            "",
            " ",
            "\u0000",
            "\ud800",
            "ﬀ",
            "ff\uff21",
            "😀" * 30,
            "a" * 300,
            "${x}",
            "@/etc/passwd",
            "../..",
            "*",
        ]
    ),
    st.text(max_size=12),
    st.just([]),
    st.just({}),
    st.recursive(
        st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=8
    ),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
)
_CHANGE = st.tuples(
    st.sampled_from(["set", "set", "set", "drop", "misspell", "add", "wrap", "nest", "swap"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    _ODD,
)
TRICKS = {
    "none": lambda text, at: text,
    "truncated": lambda text, at: text[: at % len(text)],
    "line twice": lambda text, at: _inserted(
        text, at, text.splitlines()[at % len(text.splitlines())]
    ),
    "anchors": lambda text, at: f"x: &x {{a: 1}}\ny: [*x, *x]\n{text}",
    "merge key": lambda text, at: f"{text}\nx: &x {{a: 1}}\ny: {{<<: *x}}\n",
    "self": lambda text, at: f"{text}\nx: &x\n  y: *x\n",
    "laughs": lambda text, at: text + _laughs(),
    "tag": lambda text, at: _inserted(
        text, at, ["x: !!python/object/apply:os.getpid []", "y: !!binary '?'", "z: !a b"][at % 3]
    ),
    "date": lambda text, at: f"{text}\nx: 2020-13-45\n",
    "deep": lambda text, at: f"{text}\nx: {'[' * (at % 20_000)}",
    "deep block": lambda text, at: f"{text}\nx:\n  {'- ' * (at % 20_000)}a\n",
    "long number": lambda text, at: f"{text}\nx: {'1' * 5000}\n",
    "tab": lambda text, at: _inserted(text, at, "\t- a"),
    "garbage": lambda text, at: _inserted(text, at, "%&@`!{]"),
    "zero byte": lambda text, at: _inserted(text, at, "a: \0"),
}
"""What is done to the text, at a place."""


def _inserted(text: str, at: int, line: str) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[: at % len(lines)], line, *lines[at % len(lines) :]])


def _laughs() -> str:
    levels = [f"\nl{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else 'ha'] * 9)}]" for n in range(9)]
    return "".join(levels) + "\n"


@dataclass(frozen=True)
class Outcome:
    """What became of one input."""

    kind: str
    """accepted, refused or judged."""
    problem: str = ""
    text: str = ""


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Each mapping and list of a tree, with each of its keys."""
    if isinstance(tree, dict):
        return [(tree, key) for key in tree] + [
            found for value in tree.values() for found in _places(value)
        ]
    if isinstance(tree, list):
        return [(tree, index) for index in range(len(tree))] + [
            found for value in tree for found in _places(value)
        ]
    return []


def mutated(tree: Any, changes: list[tuple[str, int, int, Any]]) -> Any:
    """A copy of a tree with changes."""
    tree = copy.deepcopy(tree)
    for what, first, second, value in changes:
        places = _places(tree)
        if not places:
            break
        holder, key = places[first % len(places)]
        other, another = places[second % len(places)]
        if what == "drop":
            holder.pop(key)
        elif what == "misspell" and isinstance(holder, dict):
            letters = list(str(key)) or ["x"]
            letters[second % len(letters)] = "qz"[second % 2]
            holder["".join(letters)] = holder.pop(key)
        elif what == "add" and isinstance(holder, dict):
            holder[value if isinstance(value, str | int | None) else "new"] = value
        elif what == "wrap":
            holder[key] = [holder[key]]
        elif what == "nest":
            holder[key] = {str(key): holder[key]}
        elif what == "swap":
            holder[key] = copy.deepcopy(other[another])
        else:
            holder[key] = value
    return tree


def _batch(number: int, bases: list[Any]) -> list[tuple[Any, str, int]]:
    """The inputs of a batch: a mutated base, a trick of text, and its place."""
    made: list[tuple[Any, str, int]] = []

    @seeded(number)
    @settings(
        max_examples=BATCH,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(range(len(bases))),
        st.lists(_CHANGE, max_size=4),
        st.one_of(st.just("none"), st.sampled_from(sorted(TRICKS))),
        st.integers(0, 10**6),
    )
    def make(base: int, changes: list[Any], trick: str, at: int) -> None:
        made.append((mutated(bases[base], changes), trick, at))

    make()
    return made


def stack_file_inputs(number: int) -> list[str]:
    """The stack files of a batch, as text."""
    bases = [{"config": _config(stack)} for stack in ("dev", "staging", "prod")]
    return [TRICKS[trick](_dumped(tree), at) for tree, trick, at in _batch(number, bases)]


def stream_inputs(number: int) -> list[str]:
    """The streams of a batch: YAML, every third as JSON."""
    texts: list[str] = []
    for tree, trick, at in _batch(number, [list(yaml.safe_load_all(_STREAM))]):
        text = (
            json.dumps({"kind": "List", "apiVersion": "v1", "items": tree})
            if at % 3 == 0
            else _stream(tree)
        )
        texts.append(TRICKS[trick](text or "---", at))
    return texts


def _config(stack: str) -> dict[str, Any]:
    return yaml.safe_load((stack_files.STACKS / f"Pulumi.{stack}.yaml").read_text())["config"]


def _dumped(tree: Any) -> str:
    return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False) or "{}"


def _stream(trees: list[Any]) -> str:
    return yaml.safe_dump_all(trees, allow_unicode=True, sort_keys=False)


def judge_stack_file(text: str) -> str:
    """What becomes of a stack file: accepted or refused; any other end is a failure of ours."""
    config = parsed(text)
    if config is None:
        return "refused"
    sections = {key.partition(":")[2]: value for key, value in config.items()}
    project = sections.pop("project", "")
    try:
        stack_files.settings.parse({"project": project, **sections})
    except ValueError as error:
        wrong = [
            line
            for line in str(error).splitlines()[1:]
            if not re.match(r"  (ml-foundations:|gcp:project)", line)
        ]
        assert type(error) is ValueError, f"{type(error).__name__}: {error}"
        assert str(error).partition(" ")[0].isdigit(), f"no count: {error}"
        assert not [line for line in wrong if re.match(r"  \S", line)], (
            f"a line without a path: {wrong}"
        )
        return "refused"
    return "accepted"


def parsed(text: str) -> dict[str, Any] | None:
    """The configuration of a stack file as the engine hands it over; None where it cannot be read."""
    try:
        config = read_map(text, "the stack file").get("config") or {}
    except RehearsalError:
        return None
    if not isinstance(config, Mapping):
        return None
    # What is no Unicode is replaced.
    plain = json.loads(json.dumps(config, ensure_ascii=False, default=str).encode(errors="replace"))
    return {key: value for key, value in plain.items() if value is not None}


def judge_stream(text: str) -> str:
    """What becomes of a stream: judged or refused; any other end is a failure of ours."""
    try:
        found = documents.read(text, "stream")
    except documents.UnreadableError as error:
        assert error.errors
        return "refused"
    report.as_text(judge(found))
    return "judged"


KINDS: dict[str, tuple[Callable[[int], list[str]], Callable[[str], str]]] = {
    "stack-files": (stack_file_inputs, judge_stack_file),
    "streams": (stream_inputs, judge_stream),
}
"""By kind of input: the inputs of a batch, and what judges one."""


def tried(kind: str, number: int) -> Iterator[Outcome]:
    """What becomes of the inputs of a batch."""
    inputs, judged = KINDS[kind]
    for text in inputs(number):
        began = time.process_time()
        try:
            outcome = Outcome(judged(text), text=text)
        except Exception as error:
            outcome = Outcome("failed", f"{type(error).__name__}: {error}", text)
        if (took := time.process_time() - began) > SECONDS:
            outcome = Outcome("failed", f"took {took:.1f} s", text)
        yield outcome


def try_all(kind: str, count: int, folder: Path) -> Counter[str]:
    """Try so many inputs, from the batch on that is not on record; what failed is kept in the folder."""
    record = folder / f"{kind}.json"
    kept: dict[str, Any] = (
        json.loads(record.read_text()) if record.exists() else {"batches": 0, "outcomes": {}}
    )
    outcomes, number = Counter[str](kept["outcomes"]), int(kept["batches"])
    resource.setrlimit(resource.RLIMIT_AS, (_room(), _room()))
    while outcomes.total() < count:
        number += 1
        for index, outcome in enumerate(tried(kind, number)):
            outcomes[outcome.kind] += 1
            if outcome.problem:
                (folder / f"{kind}-{number}-{index}.yaml").write_text(
                    outcome.text, errors="backslashreplace"
                )
                print(f"{kind} batch {number}, input {index}: {outcome.problem[:200]}", flush=True)
        record.write_text(json.dumps({"batches": number, "outcomes": outcomes}))
    return outcomes


def _room() -> int:
    """The address space that this process may have: what it has, and 500 MB."""
    return psutil.Process().memory_info().vms + 500 * 1024**2
