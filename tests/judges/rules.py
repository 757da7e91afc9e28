"""The rules in the sources of the webhooks and of KubeRay, each place that makes an error, and those in CEL of the definitions:
whether a run has met their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ml_foundations.catalog.tables import rows

from codegen import definitions

KUEUE, JOBSET, LWS = "sigs.k8s.io/kueue", "sigs.k8s.io/jobset", "sigs.k8s.io/lws"
RAY, TRAINER = "github.com/ray-project/kuberay/ray-operator", "github.com/kubeflow/trainer/v2"
SOURCES = (
    (KUEUE, "pkg/webhooks/*.go"),
    (KUEUE, "pkg/controller/jobframework/*validation*.go"),
    (KUEUE, "pkg/controller/jobs/*/*_webhook.go"),
    (KUEUE, "pkg/util/webhook/validation_*.go"),
    (JOBSET, "pkg/webhooks/jobset_webhook.go"),
    (LWS, "pkg/webhooks/leaderworkerset_webhook.go"),
    (LWS, "pkg/webhooks/disaggregatedset/*_webhook.go"),
    (RAY, "controllers/ray/utils/validation.go"),
    (TRAINER, "pkg/webhooks/*.go"),
    (TRAINER, "pkg/runtime/core/*.go"),
    (TRAINER, "pkg/runtime/framework/plugins/*/*.go"),
)
"""The modules of controllers, and their files that refuse objects."""
KINDS = {
    "Invalid": "Invalid value",
    "Required": "Required value",
    "Forbidden": "Forbidden",
    "NotSupported": "Unsupported value",
    "Duplicate": "Duplicate value",
    "TooMany": "Too many",
    "TooLong": "Too long",
    "TooLongMaxLength": "Too long",
}
CALL = re.compile(rf"field\.({'|'.join(KINDS)})\(|fmt\.Errorf\(|errors\.New\(")
FUNCTION = re.compile(r"^func (?:\([^)]*\) )?(\w+)", re.M)
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
VERB = re.compile(r"%[+#]?[a-zA-Z]|\\.")


@dataclass(frozen=True)
class Rule:
    """A place in a source that makes an error, or a rule of a definition."""

    file: str
    function: str
    """The function that makes the error, or the path of the value in an object."""
    text: str
    """The message in the source, or the end of the field's path."""
    pattern: re.Pattern[str]

    def is_met_by(self, words: Iterable[str]) -> bool:
        return any(map(self.pattern.search, words))


def rules() -> Iterator[Rule]:
    """The rules of all sources."""
    for module, files in SOURCES:
        for path in sorted(definitions.folder(module).glob(files)):
            if not path.name.endswith("_test.go"):
                yield from _rules(path, module.rpartition("/")[2])
    for module in definitions.FOLDERS:
        for path in definitions.files(module):
            yield from _of_definition(yaml.load(path.read_text(), yaml.CSafeLoader)["spec"])


def _of_definition(spec: Any) -> Iterator[Rule]:
    """The rules in CEL of a kind. One in several versions or at several paths counts once."""
    kind, seen = spec["names"]["kind"], set[str]()
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for path, message in _validations(schema, "") if version["served"] else ():
            if message not in seen:
                pattern = re.compile(rf"^{kind}\..* is invalid: .*{re.escape(message)}", re.S)
                yield Rule(f"CEL of {spec['group']}", f"{kind} {path}", message, pattern)
            seen.add(message)


def _validations(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for key, below in schema.get("properties", {}).items():
        yield from _validations(below, f"{path}.{key}".lstrip("."))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _validations(schema[key], path + mark)


def _rules(path: Path, module: str) -> Iterator[Rule]:
    source = path.read_text()
    functions = [(match.start(), match[1]) for match in FUNCTION.finditer(source)]
    for call in CALL.finditer(source):
        arguments = _arguments(source, call.end())
        above = [name for start, name in functions if start < call.start()]
        message, pattern = _message(KINDS.get(call[1] or "", ""), arguments)
        if above and message:
            yield Rule(f"{module} {path.name}", above[-1], message, pattern)


def _arguments(source: str, start: int) -> str:
    """The arguments of a call, up to the bracket that closes it."""
    depth = 1
    for end in range(start, len(source)):
        depth += {"(": 1, ")": -1}.get(source[end], 0)
        if depth == 0:
            return source[start:end]
    raise ValueError(source[start : start + 100])


def _message(kind: str, arguments: str) -> tuple[str, re.Pattern[str]]:
    """The message of an error as in the source, and what finds it in a refusal."""
    texts = LITERAL.findall(arguments)
    sentences = [text for text in texts if " " in text]
    words = sentences[-1] if sentences else ""
    end = texts[-1] if texts else ""
    parts = [re.escape(part) for part in VERB.split(words)]
    pattern = ".*".join(parts) if words else rf"{re.escape(end)}\S*: {kind}"
    return words or f"{end}: {kind}", re.compile(pattern, re.S)


def report(words: Sequence[str]) -> str:
    """Count the rules of each file that were met, and list the others with the reason."""
    counts: dict[str, list[int]] = {}
    unmet: list[str] = []
    for rule in rules():
        count = counts.setdefault(rule.file, [0, 0])
        count[0] += 1
        if rule.is_met_by(words):
            count[1] += 1
            continue
        text = rule.text.replace("|", "\\|")
        unmet.append(f"| {rule.file} | {rule.function} | {text[:90]} | {_reason(rule)} |")
    lines = ["| source | rules | met |", "|-|-:|-:|"]
    lines += [f"| {file} | {count[0]} | {count[1]} |" for file, count in counts.items()]
    return "\n".join([*lines, "", "| source | function | rule | not met |", "|-|-|-|-|", *unmet])


def _reason(rule: Rule) -> str:
    """Why no new object meets a rule, by the first row of the table that is about it; without one, an object may."""
    for row in rows("unmet.csv", "tests.judges"):
        if re.search(row["function"], rule.function) and row["text"] in rule.text:
            return row["reason"]
    return "not drawn in this run"
