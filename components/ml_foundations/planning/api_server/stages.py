"""The stages of a workload's pods, and which of them each decision reads.

A template becomes the pods that its controller creates. The API server's plugins change these, then
webhooks and policies, then the plugins again. Quotas count what is stored. Kueue has its own copy
of the template. ``stage_readers.csv`` has the readers, ``stage_additions.csv`` what is added.
"""

from functools import cache
from typing import Literal, NamedTuple, cast

from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import queue_of
from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.defaults import queued
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.workloads import PodSet, Workload, read_fields

_PACKAGE = "ml_foundations.planning.api_server"
Stage = Literal["template", "queued", "created", "stored"]


class Reader(NamedTuple):
    """A reader of pods: who makes a decision, and which stage decides."""

    who: str
    stage: Stage
    of_pods: Stage
    """The stage for kinds whose pods Kueue queues."""
    source: str


@cache
def readers() -> dict[str, Reader]:
    """Return the readers by the rules of their decisions."""
    by_decision: dict[str, Reader] = {}
    for row in rows("stage_readers.csv", _PACKAGE):
        stage = cast("Stage", row["stage"])
        of_pods = cast("Stage", row["of pods"] or row["stage"])
        by_decision[row["decision"]] = Reader(row["who"], stage, of_pods, row["source"])
    return by_decision


def seen_by(
    decision: str, cluster: Cluster, workload: Workload, pods: PodSet, pod: PodClass
) -> Manifest:
    """Return the spec of a set of pods at the stage that a decision reads."""
    reader = readers()[decision]
    match reader.of_pods if queue_of(workload.kind).gate == "stored" else reader.stage:
        case "created":
            return pod.created_spec or pod.spec
        case "stored":
            return pod.spec
        case stage:
            template = read_fields(section(pods.template, "spec"))
            if stage == "template":
                return template
            return queued(cluster.stored(template, workload.namespace), template)
