"""Proof before spend, in a Pulumi program: what it declares is judged, and refused where it can never run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pulumi

from ml_foundations.kubernetes.manifests import UNKNOWN
from ml_foundations.planning.input.program import Resource, is_judged
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.cost import over_budget
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

OF_WORKLOADS = "workload"
"""The rule by which a stack cannot fit because one of its workloads cannot: that one's own findings say why."""


class Proof:
    """Collects every node pool and Kubernetes object of a program, ours or not, and judges them before they are made.

    Make it before the first resource, and call ``finish`` after the last:

        proof = Proof()
        ...
        proof.finish()

    ``pulumi up --skip-preview`` goes round it: registrations then create at once. What is known without Outputs,
    ``refuse`` judges before the first of them. Resources that other transforms change are seen as they are when this
    one was registered, so register those first.
    """

    def __init__(self, accepted: Mapping[str, str] | None = None, monthly_budget: Decimal | None = None) -> None:
        """Begin to collect.

        Args:
            accepted: Rules whose errors are shown as warnings, each with the reason, which is shown too.
            monthly_budget: US dollars that all nodes may cost per month, at most; an excess is an error.
        """
        self._accepted = dict(accepted or {})
        self._monthly_budget = monthly_budget
        self._begun: list[pulumi.Resource] = []
        self._resources: list[Resource] = []
        pulumi.runtime.register_resource_transform(self._collect)
        pulumi.runtime.register_stack_transformation(self._remember)

    def refuse(self, resources: Iterable[Resource]) -> None:
        """Judge resources that the program is about to declare, as pairs of type token and inputs.

        Raises:
            pulumi.RunError: Something can never run; the message names every finding.
        """
        findings = self._findings(judge_program(resources))
        if errors := [_sentence(finding) for finding in findings if self._is_error(finding)]:
            raise pulumi.RunError("".join(["the stack cannot run as it is declared", *(f"\n  {e}" for e in errors)]))

    def finish(self) -> None:
        """Judge once every registration has ended.

        Raises:
            pulumi.RunError: Something can never run; by then every finding is in Pulumi's diagnostics.
        """
        # An Output is awaited at the end of the program, and what it raises ends the program.
        pulumi.Output.from_input(self._judged())

    def _remember(self, args: pulumi.ResourceTransformationArgs) -> None:
        self._begun.append(args.resource)

    async def _collect(self, args: pulumi.ResourceTransformArgs) -> None:
        if is_judged(args.type_):
            self._resources.append((args.type_, await _plain(dict(args.props))))

    async def _judged(self) -> str:
        judged = 0
        while judged < len(self._begun):
            resource = self._begun[judged]
            await resource.urn.future()
            judged += 1
        verdicts = judge_program(self._resources)
        findings = self._findings(verdicts)
        for finding in findings:
            self._log(finding)
        pulumi.log.info(f"proof: {report.as_summary(verdicts)}")
        if errors := sum(map(self._is_error, findings)):
            raise pulumi.RunError(f"the stack cannot run as it is declared: {errors} finding(s) above say why")
        return verdicts.stack

    def _findings(self, verdicts: Verdicts) -> list[Finding]:
        findings = [finding for finding in verdicts.findings if finding.rule != OF_WORKLOADS]
        if self._monthly_budget is not None and (excess := over_budget(verdicts.cost, self._monthly_budget)):
            findings.append(excess)
        return list(_merged(findings))

    def _is_error(self, finding: Finding) -> bool:
        return finding.severity is Severity.ERROR and finding.rule not in self._accepted

    def _log(self, finding: Finding) -> None:
        if finding.severity is Severity.ERROR and not self._is_error(finding):
            pulumi.log.warn(f"accepted, because {self._accepted[finding.rule]}: {_sentence(finding)}")
        else:
            _LOGS[finding.severity](_sentence(finding))


_LOGS: Mapping[Severity, Callable[[str], None]] = {
    Severity.ERROR: pulumi.log.error,
    Severity.WARNING: pulumi.log.warn,
    Severity.INFO: pulumi.log.info,
}


def _sentence(finding: Finding) -> str:
    where = f"{finding.rule}, {finding.path}" if finding.path else finding.rule
    return f"{finding.object}: {finding.message}. {finding.remedy} [{where}]"


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Findings that say the same of several objects, as one of them all."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.rule, finding.message, finding.remedy), []).append(finding)
    for first, *others in alike.values():
        yield replace(first, object=f"{first.object} and {len(others)} more") if others else first


async def _plain(value: Any) -> Any:
    """A tree of inputs with ``UNKNOWN`` for what is not known yet."""
    if isinstance(value, pulumi.Output):
        output = cast("pulumi.Output[Any]", value)
        return await _plain(await output.future()) if await output.is_known() else UNKNOWN
    if isinstance(value, Mapping):
        return {key: await _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [await _plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the wire knows no integers
    return UNKNOWN if isinstance(value, pulumi.output.Unknown) else value
