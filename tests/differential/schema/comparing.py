"""Planning's verdict on a case, and what became of it in two orders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.input.documents import UnreadableError, read

from tests.differential.schema.generator import BESIDE, pod_specs
from tests.differential.schema.oracle import Run, title

Object = dict[str, Any]
REFUSED = "refused"
"""Planning's word for documents that it does not read."""
LIMITS_AND_VOLUMES = ("ResourceQuota", "LimitRange", "PersistentVolumeClaim", "PersistentVolume")
OUTCOMES = ("runs", "one order", "waits", "refused", "unsettled")


@dataclass(frozen=True)
class Comparison:
    """A case, judged and tried.

    Attributes:
        verdict: What planning says of all of it, or that it does not read it.
        outcome: Whether all of it was accepted and ran, in both orders, in one, or in none.
        wrong: What planning says wrongly; empty where the two agree.
        features: The fields and kinds in the case that a table may count.
        rules: The rules that planning names.
    """

    verdict: str
    outcome: str
    wrong: str
    features: tuple[str, ...]
    rules: tuple[str, ...]


def compare(documents: Sequence[Object], runs: Sequence[Run]) -> Comparison:
    """Judge a case, and compare the verdict with its runs."""
    resting = {title(document) for document in documents if _rests(document)}
    runs = [
        replace(run, refused=_of_judged_kinds(run.refused), waiting=_without(run.waiting, resting))
        for run in runs
    ]
    outcome = _outcome(runs)
    try:
        verdicts = judge(read("\n---\n".join(map(json.dumps, documents)), "case.yaml"))
    except UnreadableError as error:
        wrong = f"not read: {error}" if outcome in ("runs", "one order") else ""
        return Comparison(REFUSED, outcome, wrong, features(documents), ())
    rules = tuple(sorted({finding.rule for finding in verdicts.findings}))
    verdict = verdicts.stack
    wrong = ""
    if outcome == "unsettled":
        pass
    elif verdict is Verdict.FITS and outcome != "runs":
        found = [item for run in runs for item in (run.refused | run.waiting).items()]
        wrong = "fits: " + "; ".join(sorted({f"{key}: {why}" for key, why in found}))
    elif verdict is not Verdict.FITS and resting:
        # Planning judges a workload that rests as what it will be when it is resumed; no run shows that.
        pass
    elif verdict is Verdict.CANNOT_FIT and outcome in ("runs", "one order"):
        wrong = "cannot fit: " + "; ".join(str(finding.message) for finding in verdicts.findings)
    elif not any(run.refused.keys() - _workloads(documents) for run in runs):
        for item in verdicts.workloads:
            if item.verdict is Verdict.CANNOT_FIT and any(
                _ran(run, documents, item.workload) for run in runs
            ):
                reasons = "; ".join(str(finding.message) for finding in item.reasons)
                wrong = f"{item.workload} cannot fit: {reasons}"
    return Comparison(str(verdict), outcome, wrong, features(documents), rules)


def _of_judged_kinds(refused: Mapping[str, str]) -> dict[str, str]:
    """Refusals without those of kinds about which the proof says nothing."""
    return {key: why for key, why in refused.items() if key.partition(" ")[0] not in BESIDE}


def _without(waiting: Mapping[str, str], resting: set[str]) -> dict[str, str]:
    """What does not run, without workloads that nobody wants to run yet."""
    return {key: why for key, why in waiting.items() if key not in resting}


def _workloads(documents: Sequence[Object]) -> set[str]:
    return {title(document) for document in documents if any(pod_specs(document))}


def _outcome(runs: Sequence[Run]) -> str:
    if any(run.unsettled for run in runs):
        return "unsettled"
    if any(run.refused for run in runs):
        return "refused"
    count = sum(run.runs for run in runs)
    return ("waits", "one order", "runs")[count]


def _ran(run: Run, documents: Sequence[Object], workload: Any) -> bool:
    key = f"{workload.kind} {workload.namespace}/{workload.name}"
    return key in map(title, documents) and key not in run.refused | run.waiting


def _rests(document: Object) -> bool:
    """Whether a workload wants no pods as it stands."""
    spec = document.get("spec") or {}
    job = spec.get("jobTemplate", {}).get("spec", spec)
    counts = (job.get("parallelism"), job.get("completions"), spec.get("replicas"))
    return bool(job.get("suspend") or spec.get("paused") or 0 in counts)


# --- Features


def features(documents: Sequence[Object]) -> tuple[str, ...]:
    """The kinds in a case, and the fields of what decides."""
    found: set[str] = set()
    for document in documents:
        found.add(document["kind"])
        if document["kind"] in LIMITS_AND_VOLUMES:
            found |= {f"{document['kind']}.{key}" for key in document.get("spec", {})}
        for pod in pod_specs(document):
            found |= set(_pod_features(pod))
            if document["spec"] is not pod:
                own = document["spec"].keys() - {"template", "selector"}
                found |= {f"{document['kind']}.{key}" for key in own}
    return tuple(sorted(found))


def _pod_features(pod: Object) -> Iterator[str]:
    for key, value in pod.items():
        if key == "volumes":
            sources = [source for volume in value for source in volume if source != "name"]
            yield from (f"volume.{source}" for source in sources)
        elif key == "affinity":
            yield from (f"affinity.{part}" for part in value)
        elif key not in ("containers", "initContainers"):
            yield f"pod.{key}"
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        yield from (f"container.{key}" for key in container if key not in ("name", "image"))
    if "initContainers" in pod:
        yield "pod.initContainers"
