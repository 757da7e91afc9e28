"""Proof before spend, in a Pulumi program: what it declares is judged, and refused where it can never run."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, cast

import pulumi

from ml_foundations._versions import GPU_OPERATOR
from ml_foundations.planning import nodes, report
from ml_foundations.planning.cost import over_budget
from ml_foundations.planning.findings import Finding, Severity
from ml_foundations.planning.judging import Verdicts, judge
from ml_foundations.planning.manifests import UNKNOWN, Manifest

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
RELEASE = "kubernetes:helm.sh/v3:Release"
OF_WORKLOADS = "workload"
"""The rule by which a stack cannot fit because one of its workloads cannot: that one's own findings say why."""


class Proof:
    """Collects every node pool and Kubernetes object of a program, ours or not, and judges them before they are made.

    Make it before the first resource, and call ``finish`` after the last:

        proof = Proof()
        ...
        proof.finish()

    ``pulumi up --skip-preview`` goes round it: registrations then create at once. Resources that other transforms
    change are seen as they are when this one was registered, so register those first.
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
        self._inputs: list[tuple[str, dict[str, Any]]] = []
        pulumi.runtime.register_resource_transform(self._collect)
        pulumi.runtime.register_stack_transformation(self._remember)

    def finish(self) -> None:
        """Judge once every registration has ended.

        Raises:
            pulumi.RunError: something can never run; by then every finding is in Pulumi's diagnostics.
        """
        # An Output is awaited at the end of the program, and what it raises ends the program.
        pulumi.Output.from_input(self._judged())

    def _remember(self, args: pulumi.ResourceTransformationArgs) -> None:
        self._begun.append(args.resource)

    async def _collect(self, args: pulumi.ResourceTransformArgs) -> None:
        if args.type_ in (CLUSTER, NODE_POOL) or args.type_.startswith("kubernetes:"):
            self._inputs.append((args.type_, await _plain(dict(args.props))))

    async def _judged(self) -> str:
        judged = 0
        while judged < len(self._begun):
            resource = self._begun[judged]
            await resource.urn.future()
            judged += 1
        verdicts = judge(self._of_kubernetes(), self._nodes())
        errors = self._report(verdicts)
        if errors:
            raise pulumi.RunError(f"the stack cannot run as it is declared: {errors} finding(s) above say why")
        return verdicts.stack

    def _of_kubernetes(self) -> list[Manifest]:
        return [inputs for kind, inputs in self._inputs if kind.startswith("kubernetes:") and "kind" in inputs]

    def _nodes(self) -> list[nodes.NodeClass]:
        clusters = [inputs for kind, inputs in self._inputs if kind == CLUSTER]
        charts = {str(inputs.get("chart")).rpartition("/")[2] for kind, inputs in self._inputs if kind == RELEASE}
        return [
            nodes.from_node_pool(
                inputs, clusters[0] if len(clusters) == 1 else None, gpu_operator=GPU_OPERATOR.name in charts
            )
            for kind, inputs in self._inputs
            if kind == NODE_POOL
        ]

    def _report(self, verdicts: Verdicts) -> int:
        """Log every finding and the summary; how many errors there are."""
        errors = 0
        for finding in [*verdicts.findings, *self._over_budget(verdicts)]:
            if finding.rule == OF_WORKLOADS:
                continue
            log, text = self._weighed(finding)
            log(text)
            errors += log is pulumi.log.error
        pulumi.log.info(f"proof: {report.as_summary(verdicts)}")
        return errors

    def _weighed(self, finding: Finding) -> tuple[Callable[[str], None], str]:
        text = f"{finding.object}: {finding.message}. {finding.remedy} [{finding.rule}, {finding.path}]"
        if finding.severity == Severity.ERROR and (reason := self._accepted.get(finding.rule)):
            return pulumi.log.warn, f"accepted, because {reason}: {text}"
        by_severity = {Severity.ERROR: pulumi.log.error, Severity.WARNING: pulumi.log.warn}
        return by_severity.get(finding.severity, pulumi.log.info), text

    def _over_budget(self, verdicts: Verdicts) -> list[Finding]:
        if self._monthly_budget is None:
            return []
        finding = over_budget(verdicts.cost, self._monthly_budget)
        return [finding] if finding else []


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
