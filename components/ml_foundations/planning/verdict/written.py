"""Findings about what a controller makes, at the fields of the object that the user wrote."""

from collections.abc import Mapping
from dataclasses import replace

from ml_foundations.planning.model.written import WrittenFields, written_path
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.verdicts import Verdicts


def as_written(verdicts: Verdicts, written: Mapping[str, WrittenFields]) -> Verdicts:
    """Return verdicts whose findings have the paths of fields that users wrote.

    Args:
        verdicts: Verdicts on objects that controllers make.
        written: For each object, the fields that are made, with the written ones.
    """
    if not written:
        return verdicts

    def renamed(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        of_users: list[Finding] = []
        for finding in findings:
            path = written_path(finding.path, written.get(finding.object, {}))
            of_users.append(replace(finding, path=path))
        return tuple(of_users)

    workloads = [
        replace(item, reasons=renamed(item.reasons), warnings=renamed(item.warnings))
        for item in verdicts.workloads
    ]
    return replace(verdicts, workloads=tuple(workloads), reasons=renamed(verdicts.reasons))
