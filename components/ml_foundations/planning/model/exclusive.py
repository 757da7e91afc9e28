"""Exclusive topology of JobSets: each Job has a topology domain alone.

Source: JobSet, pkg/webhooks/pod_webhook.go.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from ml_foundations.kinds.kind import Kind
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, section
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.model.declared import key_of
from ml_foundations.planning.model.performance import identity
from ml_foundations.planning.model.refusals import Refusal

_ALPHA = "alpha.jobset.sigs.k8s.io/"
EXCLUSIVE = f"{_ALPHA}exclusive-topology"
BY_LABELS = f"{_ALPHA}node-selector"
JOB_LABEL = f"{_ALPHA}namespaced-job"
"""The label of nodes that pods select by that annotation: the namespace and the name of a Job."""
JOB_KEY = "jobset.sigs.k8s.io/job-key"
"""A label of all pods of JobSets."""
PRIORITY = "jobset.sigs.k8s.io/priority"
"""A label of pods of JobSets that the webhook adds."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The way in which JobSet places the pods of a replicated Job."""

    domain: str | None
    """The topology key by which the webhook gives each Job a domain alone."""
    by_labels: bool
    """Whether the Job selects the nodes that somebody has labelled for it."""
    has_priority: bool
    """Whether the webhook labels the pods with their priority."""

    @property
    def is_exclusive(self) -> bool:
        """Return whether each Job has nodes alone."""
        return self.by_labels or self.domain is not None


def placement(document: Manifest, job: Manifest) -> Placement:
    """Return how JobSet places the pods of one of a JobSet's replicated Jobs."""
    template = section(job, "template")
    # The controller copies the annotations to the Job and to its pods (labelAndAnnotateObject). It
    # reads the Job's for the node selector, and the webhook reads those of the pods.
    of_job = _annotations(document, job, template)
    of_pods = _annotations(document, job, section(template, "spec", "template"))
    is_patched = BY_LABELS not in of_pods
    by_labels = {EXCLUSIVE, BY_LABELS} <= of_job.keys()
    return Placement(of_pods.get(EXCLUSIVE) if is_patched else None, by_labels, is_patched)


def _annotations(document: Manifest, job: Manifest, holder: Manifest) -> dict[str, Any]:
    annotations = dict(annotations_of(holder))
    for parent in map(annotations_of, (document, section(job, "template"))):
        if EXCLUSIVE in parent:
            for key in parent.keys() & {EXCLUSIVE, BY_LABELS}:
                annotations[key] = parent[key]
    return annotations


def refusals(document: Manifest) -> Iterator[Refusal]:
    """Yield why JobSet creates no pods of an exclusive Job: it creates that of index 0 first."""
    for index, job in enumerate(items(section(document, "spec"), "replicatedJobs")):
        spec = section(job, "template", "spec")
        is_needed = 0 not in (job.get("replicas"), spec.get("parallelism"), spec.get("completions"))
        is_exclusive = placement(document, job).domain is not None
        if is_exclusive and is_needed and spec.get("completionMode") == "NonIndexed":
            lacking = "which a Job of completionMode NonIndexed does not have"
            pods = "the pods of an exclusive Job after its pod of index 0"
            path = f"spec.replicatedJobs[{index}].template.spec.completionMode"
            remedy = f"Set completionMode: Indexed, or leave out the annotation {EXCLUSIVE}."
            yield Refusal("invalid", path, f"JobSet creates {pods}, {lacking}", remedy)


def job_key(document: Manifest, job: Manifest, index: int) -> str:
    """Return the label that only the pods of a child Job have."""
    # JobSets without a known name must not share the label.
    namespace, name = key_of(document)
    unique_name = name if name not in ("", UNKNOWN) else identity(document)
    text = f"{namespace}/{unique_name}-{job.get('name')}-{index}"
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


def placed(spec: Manifest, how: Placement, key: str, priority: str, job: str) -> Manifest:
    """Return the spec of a child Job's pods as JobSet's controller and its webhook complete it.

    The webhook adds affinity to the first pod, and gives later pods a node selector of that pod's
    domain. Affinity of all pods to their own Job has the same outcome. Only Jobs with the same
    priority repel each other. ``key`` is the label that the Job's pods have alone, and ``job`` the
    namespace and the name of the Job, as labels of nodes spell it.
    """
    if how.by_labels:
        selector = {**section(spec, "nodeSelector"), JOB_LABEL: job}
        toleration = {"key": f"{_ALPHA}no-schedule", "operator": "Exists", "effect": "NoSchedule"}
        tolerations = [*items(spec, "tolerations"), toleration]
        spec = {**spec, "nodeSelector": selector, "tolerations": tolerations}
    if how.domain is None:
        return spec
    alike = {"key": PRIORITY, "operator": "In", "values": [priority]}
    # An empty namespaceSelector selects the pods of all namespaces.
    return _apart(spec, how.domain, JOB_KEY, key, [alike], {"namespaceSelector": {}})


def placed_group(
    document: Manifest, kind: Kind, spec: Manifest, replica: int
) -> tuple[str, Manifest]:
    """Return the key of a replica of a described kind, and the spec of its pods in its own domain.

    The webhook gives the leader affinity to its replica, and the controller gives the workers a
    node selector of the leader's domain. Affinity of all pods has the same outcome.
    """
    namespace, name = key_of(document)
    text = f"{namespace}/{name}-{replica}"
    key = sha1(text.encode(), usedforsecurity=False).hexdigest()
    return key, _apart(spec, annotations_of(document)[kind.exclusive], kind.key_label, key)


def _apart(
    spec: Manifest,
    domain: str,
    label: str,
    key: str,
    alike: Sequence[Manifest] = (),
    within: Manifest | None = None,
) -> Manifest:
    """Return the spec of pods near those with a label's key, in a domain without other keys.

    ``alike`` limits the pods with other keys, and ``within`` the namespaces of all.
    """
    has_key = {"key": label, "operator": "In", "values": [key]}
    has_other_key = ({"key": label, "operator": "Exists"}, {**has_key, "operator": "NotIn"})
    required = {"podAffinity": [has_key], "podAntiAffinity": [*has_other_key, *alike]}
    affinity = section(spec, "affinity")
    added: dict[str, Manifest] = {}
    for kind, expressions in required.items():
        selector = {"matchExpressions": expressions}
        term = {"topologyKey": domain, "labelSelector": selector, **(within or {})}
        rules = section(affinity, kind)
        added[kind] = {**rules, REQUIRED: [*items(rules, REQUIRED), term]}
    return {**spec, "affinity": {**affinity, **added}}
