"""Findings about what a controller makes, in the fields of the object that the user wrote."""

import re
from collections.abc import Mapping
from dataclasses import replace

from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.verdicts import Verdicts

_FIELD = re.compile(r"(?<![\w.])spec\.[\w./\[\]-]*[\w\]](?! of [A-Z])(?![\w./\[\]-]*\w)")


def as_written(verdicts: Verdicts, written: Mapping[str, Mapping[str, str]]) -> Verdicts:
    """Return verdicts whose findings name the fields that users wrote.

    Args:
        verdicts: Verdicts on objects that controllers make.
        written: For each object, the fields that are made, as prefixes, with the written ones.
    """
    if not written:
        return verdicts

    def renamed(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(_renamed(finding, written.get(finding.object)) for finding in findings)

    workloads = [
        replace(item, reasons=renamed(item.reasons), warnings=renamed(item.warnings))
        for item in verdicts.workloads
    ]
    return replace(verdicts, workloads=tuple(workloads), reasons=renamed(verdicts.reasons))


def _renamed(finding: Finding, fields: Mapping[str, str] | None) -> Finding:
    if not fields:
        return finding
    texts: dict[str, str] = {}
    for name in ("path", "message", "remedy"):
        text = _FIELD.sub(lambda found: _field(found[0], fields), getattr(finding, name))
        # Two fields that are made may be one that is written.
        texts[name] = re.sub(r"(spec\.\S+(?: of \S+ \S+)?) and \1", r"\1", text)
    return replace(finding, **texts)


def _field(path: str, fields: Mapping[str, str]) -> str:
    made = max((made for made in fields if path.startswith(made)), key=len)
    written, of, owner = fields[made].partition(" of ")
    return f"{written}{path.removeprefix(made)}{of}{owner}"
