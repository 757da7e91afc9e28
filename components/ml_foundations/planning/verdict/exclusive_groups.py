"""Groups of pods that each need a topology domain alone, and fewer domains than groups."""

from collections.abc import Sequence
from typing import Any

from ml_foundations.kinds.counts import Count, deciding_path, lowered
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.words import as_remedy, number
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.exclusive import JOB_KEY
from ml_foundations.planning.model.node_groups import HOSTNAME, Demand
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.verdict.sources import exclusive_annotation


def too_few_domains(admitted: AdmittedWorkload, demands: Sequence[Demand]) -> Refusal | None:
    """Return that a workload has more exclusive groups than the nodes have domains."""
    described = described_kinds().get(admitted.workload.kind)
    label = described.key_label if described else JOB_KEY
    groups: set[Any] = set()
    number_by_domain: dict[Any, int] = {}
    fields: dict[str, Any] = {}
    key = ""
    pod_sets = [pod_set for pod_set, _ in admitted.pod_sets if pod_set.count]
    for pods, demand in zip(pod_sets, demands, strict=True):
        annotation, domain_key = exclusive_annotation(admitted.workload, pods)
        if not annotation:
            continue
        key = domain_key
        fields.update(pods.counts[0].fields)
        groups.add(pods.labels.get(label))
        for group in demand.node_groups:
            domain = group if key == HOSTNAME else group.node.domain(key)
            if domain is not None and group.room(demand.pod):
                number_by_domain[domain] = group.count if key == HOSTNAME else 1
    domains = sum(number_by_domain.values())
    missing = len(groups) - domains
    if not domains or missing <= 0:
        return None
    accepting = f"the nodes that accept them have {domains}"
    message = f"its {len(groups)} groups need a domain of {key} each, and {accepting}"
    counts = [Count(len(groups), fields)]
    more = f"add nodes in {number(missing, 'more domain')} of {key}"
    remedy = as_remedy(lowered(counts, domains), more)
    return Refusal("nodes", deciding_path(counts), message, remedy)
