"""What a stack will be, before it runs: nodes, workloads, verdict and cost by its dry run."""

from itertools import chain

from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.report import answer, sentence
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal.engine.dry_run import DryRun


def outline(program: DryRun) -> str:
    """Return the outline of a program in a few lines; empty if it has no resources."""
    if not program.resources:
        return ""
    verdicts = judge_clusters(program.declared, rehearsed=True, accepted=program.accepted)
    cost = verdicts.cost
    pools = sorted(f"{pool.name} {pool.fewest}-{pool.most}" for pool in cost.pools)
    workloads = sorted(str(item.workload) for item in verdicts.workloads)
    errors = [finding for finding in verdicts.findings if finding.severity is Severity.ERROR]
    refused = [finding for finding in errors if finding.rule not in program.accepted]
    verdict = answer(verdicts, accepted=0 if refused else len(errors))
    lines = {
        "nodes": names(pools),
        "workloads": f"{len(workloads)}: {names(workloads)}" if workloads else "",
        "cost": f"{cost.text} {cost.currency} per hour by list prices" if cost.is_known else "",
        "proof": "" if verdicts.is_empty else verdict[0].lower() + verdict[1:].rstrip("."),
    }
    text = [f"  {name:<9}  {line}" for name, line in lines.items() if line]
    text += [f"  error      {sentence(item)}" for item in refused]
    if verdicts.stack is Verdict.UNDETERMINED:
        text += [f"  not known  {sentence(item)}" for item in _doubts(verdicts)]
    return printable.lines(dict.fromkeys(text))


def _doubts(verdicts: Verdicts) -> list[Finding]:
    """Return why a stack is undetermined: its workloads, or else what concerns all of them."""
    of_workloads = chain.from_iterable(item.reasons for item in verdicts.workloads)
    reasons = [*of_workloads] or verdicts.of_stack
    return [finding for finding in reasons if finding.severity is Severity.WARNING]
