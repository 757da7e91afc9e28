"""Kinds without a controller, and what two controllers share that only one may have."""

from collections import defaultdict
from collections.abc import Iterator

from ml_foundations.catalog.gke_kinds import (
    FUSE_PROFILE,
    FUSE_PROFILES_SINCE,
    begins_before,
    missing_kinds,
)
from ml_foundations.kubernetes.objects import name_of, plural, section
from ml_foundations.planning.input import program
from ml_foundations.planning.model.declared import full_name, of_kind
from ml_foundations.planning.rules.findings import Finding, Severity, error
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_CONTROLLERS = {
    "jobset.x-k8s.io": ("jobset", "JobSetController"),
    "kueue.x-k8s.io": ("kueue", "TrainingQueue"),
    "leaderworkerset.x-k8s.io": ("lws", "LeaderWorkerSetController"),
    "ray.io": ("kuberay-operator", "RayOperator"),
    "trainer.kubeflow.org": ("kubeflow-trainer", "TrainerController"),
}
"""The chart of each group of kinds that GKE lacks, and the component that installs it."""
_ADAPTERS = {"keda": "external.metrics.k8s.io", "prometheus-adapter": "custom.metrics.k8s.io"}
"""The API of metrics that a chart serves, unless its values say otherwise."""


@rule(
    "controller",
    Severity.ERROR,
    "The controller of a kind that GKE does not bring is installed.",
    source="apiextensions-apiserver v1.36: an object needs the definition of its kind",
    example="""
        type: gcp:container/cluster:Cluster
        name: ml
        ---
        apiVersion: kueue.x-k8s.io/v1beta2
        kind: ResourceFlavor
        metadata: {name: gpus}
    """,
)
def controllers(stack: Stack) -> Iterator[Finding]:
    """Yield objects and claims whose kind or class has no controller."""
    yield from _without_controller(stack)
    if len(stack.clusters) != 1 or not begins_before(stack.clusters[0], FUSE_PROFILES_SINCE):
        return
    # An older cluster has no classes of GKE for buckets.
    for manifest in of_kind(stack.declared_objects, "PersistentVolumeClaim"):
        name = section(manifest, "spec").get("storageClassName")
        if isinstance(name, str) and name.startswith(FUSE_PROFILE):
            message = f"GKE has no class {name} before {FUSE_PROFILES_SINCE}"
            remedy = f"Set minMasterVersion to {FUSE_PROFILES_SINCE}, or another class."
            about = full_name(manifest)
            yield error("controller", about, "spec.storageClassName", message, remedy)


def _without_controller(stack: Stack) -> Iterator[Finding]:
    """Yield objects of kinds that neither the cluster, a chart nor a definition has."""
    clusters = stack.shown_clusters
    if not clusters:
        return  # another chart, or whoever made the cluster, may have brought them
    charts = program.charts_of(stack.resources)
    objects = stack.declared_objects
    missing = missing_kinds(clusters[0]) if len(clusters) == 1 else {}
    definitions = of_kind(objects, "CustomResourceDefinition")
    defined = {section(definition, "spec").get("group") for definition in definitions}
    for manifest in objects:
        kind = manifest["kind"]
        group = str(manifest.get("apiVersion")).partition("/")[0]
        chart, component = _CONTROLLERS.get(group, ("", ""))
        definition = f"{plural(kind)}.{group}"
        setting = missing.get(group) or missing.get(definition)
        if group in defined or (chart in charts if chart else not setting):
            continue
        if chart:
            message = f"GKE has no {kind}, and nothing here installs {chart}, which adds it"
            remedy = f"Declare a {component} that installs it, or the chart {chart}."
        else:
            message = f"the cluster has no {kind}, which GKE adds with {setting}"
            remedy = f"Set {setting} of the cluster, or leave the object out."
        namespace = section(manifest, "metadata").get("namespace")
        name = "/".join(str(part) for part in (namespace, name_of(manifest)) if part)
        yield error("controller", f"{kind} {name}", "kind", message, remedy)


@rule(
    "metrics-owner",
    Severity.ERROR,
    "An API of metrics has one adapter.",
    source="kube-aggregator v1.36: an APIService has one Service",
    example="""
        type: kubernetes:helm.sh/v3:Release
        chart: keda
        namespace: keda
        ---
        apiVersion: apiregistration.k8s.io/v1
        kind: APIService
        metadata: {name: v1beta1.external.metrics.k8s.io}
        spec:
          group: external.metrics.k8s.io
          version: v1beta1
          service: {namespace: metrics, name: adapter}
          groupPriorityMinimum: 100
          versionPriority: 100
    """,
)
def shared_metrics_apis(stack: Stack) -> Iterator[Finding]:
    """Yield the APIs of metrics that several adapters serve: the last one takes over all of it."""
    # See Kubernetes, "Configure the Aggregation Layer".
    owners = defaultdict[str, set[str]](set)
    for chart in program.charts_of(stack.resources):
        owners[_ADAPTERS.get(chart, "")].add(f"chart {chart}")
    for service in of_kind(stack.declared_objects, "APIService"):
        spec = section(service, "spec")
        served_by = section(spec, "service")
        owner = f"Service {served_by.get('namespace')}/{served_by.get('name')}"
        owners[str(spec.get("group"))].add(owner)
    for group in sorted(set(_ADAPTERS.values())):
        if len(owners[group]) > 1:
            several = " and ".join(sorted(owners[group]))
            message = f"several adapters serve {group}: {several}. The one installed last gets all"
            remedy = "Keep one of them, and scale by metrics that it serves."
            yield error("metrics-owner", group, "spec.service", message, remedy)


@rule(
    "checkpoints",
    Severity.ERROR,
    (
        "Checkpoints in the memory of nodes have nodes with memory for them and a bucket for "
        "their copies."
    ),
    source='GKE, "Train large-scale models with Multi-Tier Checkpointing"',
    example="""
        type: gcp:storage/bucket:Bucket
        name: my-bucket
        ---
        apiVersion: checkpointing.gke.io/v1
        kind: CheckpointConfiguration
        metadata: {name: llm}
        spec: {cloudStorageBucketName: my-bucket}
    """,
)
def flat_buckets(stack: Stack) -> Iterator[Finding]:
    """Yield the buckets of checkpoints without a hierarchical namespace: no copies are made."""
    # See GKE, "Train large-scale machine learning models on GKE with Multi-Tier Checkpointing".
    flat: set[str] = set()
    for bucket in stack.of_type(program.BUCKET):
        if section(bucket, "hierarchicalNamespace").get("enabled") is not True:
            flat.add(str(bucket.get("name")))
    for manifest in of_kind(stack.declared_objects, "CheckpointConfiguration"):
        name = section(manifest, "spec").get("cloudStorageBucketName")
        if isinstance(name, str) and name in flat:
            message = f"the bucket {name} has no hierarchical namespace: checkpoints are not copied"
            remedy = "Set hierarchicalNamespace.enabled of the bucket, and its uniform access."
            path = "spec.cloudStorageBucketName"
            yield error("checkpoints", full_name(manifest), path, message, remedy)
