"""Groups of pods that each need a topology domain alone, and fewer domains than groups."""

from collections.abc import Sequence
from typing import Any

from ml_foundations.kubernetes.words import as_remedy, number
from ml_foundations.planning.model.counts import Count, deciding_path, lowered
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.exclusive import JOB_KEY
from ml_foundations.planning.model.kind_files import described_kinds
from ml_foundations.planning.model.node_groups import HOSTNAME, PodGroup
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.verdict.sources import exclusive_annotation


def too_few_domains(admitted: AdmittedWorkload, demands: Sequence[PodGroup]) -> Refusal | None:
    """Return that a workload has more exclusive groups than the nodes have domains."""
    described = described_kinds().get(admitted.workload.kind)
    label = described.key_label if described else JOB_KEY
    groups, domains, fields, key = set[Any](), dict[Any, int](), dict[str, Any](), ""
    nonempty = [pods for pods, _ in admitted.pod_sets if pods.count]
    for pods, demand in zip(nonempty, demands, strict=True):
        annotation, domain = exclusive_annotation(admitted.workload, pods)
        if not annotation:
            continue
        key = domain
        fields.update(pods.counts[0].fields)
        groups.add(pods.labels.get(label))
        for group in demand.node_groups:
            of_node = group if key == HOSTNAME else group.node.domain(key)
            if of_node is not None and group.room(demand.pod):
                domains[of_node] = group.count if key == HOSTNAME else 1
    missing = len(groups) - sum(domains.values())
    if not domains or missing <= 0:
        return None
    has = f"the nodes that accept them have {sum(domains.values())}"
    message = f"its {len(groups)} groups need a domain of {key} each, and {has}"
    lower = lowered([Count(len(groups), fields)], sum(domains.values()))
    more = f"add nodes in {number(missing, 'more domain')} of {key}"
    path = deciding_path([Count(len(groups), fields)])
    return Refusal("nodes", path, message, as_remedy(lower, more))
