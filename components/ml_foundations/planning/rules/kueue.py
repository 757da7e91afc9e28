"""Kueue: gangs without all of their nodes, kinds that it does not manage, its webhook."""

from collections.abc import Iterator

from ml_foundations.catalog.kueue import configuration_of
from ml_foundations.kinds.kind_files import kinds, package_kinds, queue_of
from ml_foundations.kubernetes.labels import KUEUE_QUEUE, MADE_FROM
from ml_foundations.kubernetes.objects import annotations_of, labels_of, section
from ml_foundations.kubernetes.trees import Unknown
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.rules.findings import Finding, Severity, error, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack
from ml_foundations.planning.rules.webhooks import limits, stops_pods


@rule(
    "half-a-gang",
    Severity.WARNING,
    "A queued workload that does not get all of its nodes gives back those it has.",
    source="kueue v0.19.2, waitForPodsReady",
    example="""
        type: kubernetes:helm.sh/v3:Release
        chart: kueue
        values: {}
    """,
)
def half_a_gang(stack: Stack) -> Iterator[Finding]:
    """Yield the Kueue that never takes nodes back from half of a gang."""
    kueue = stack.kueue
    if kueue is None or isinstance(kueue, Unknown):
        return
    configuration = configuration_of(kueue) or {}
    if not isinstance(configuration, Unknown) and "waitForPodsReady" not in configuration:
        path = "managerConfig.controllerManagerConfigYaml"
        message = (
            "waitForPodsReady is off: if Google has nodes for half of a gang, that half waits, and "
            "is paid"
        )
        remedy = f"Set it, with a timeout, in {path}, as a TrainingQueue does."
        yield warning("half-a-gang", "Kueue", path, message, remedy)


@rule(
    "queue-kind",
    Severity.ERROR,
    "Kueue manages the kind of each workload that names a queue.",
    source="kueue v0.19.2, pkg/controller/jobframework/setup.go",
    example="""
        type: kubernetes:helm.sh/v3:Release
        chart: kueue
        values:
          managerConfig:
            controllerManagerConfigYaml: |
              integrations: {frameworks: [jobset.x-k8s.io/jobset]}
        ---
        apiVersion: batch/v1
        kind: Job
        metadata: {name: train, namespace: ml, labels: {kueue.x-k8s.io/queue-name: gpus}}
        spec:
          template:
            spec: {restartPolicy: Never, containers: [{name: train, image: train:1}]}
    """,
)
def managed_kinds(stack: Stack) -> Iterator[Finding]:
    """Yield the workloads that Kueue puts into no queue, and a Kueue that stops pods."""
    kueue = stack.kueue
    if kueue is None or isinstance(kueue, Unknown):
        return
    configuration = configuration_of(kueue)
    if isinstance(configuration, Unknown):
        return
    every = (name for kind in kinds() for name in queue_of(kind).frameworks)
    # The default of a configuration is one (kueue v0.19.2, apis/config/v1beta2/defaults.go).
    declared = section(configuration or {}, "integrations").get("frameworks") or ["batch/job"]
    enabled = frozenset(every if configuration is None else declared)
    replicas = section(kueue, "controllerManager").get("replicas", 1)
    selector = section(configuration or {}, "managedJobsNamespaceSelector")
    if "pod" in enabled and replicas == 1 and not limits(selector):
        remedy = (
            "Limit managedJobsNamespaceSelector to the namespaces with a queue, as a "
            "TrainingQueue does."
        )
        yield stops_pods("Kueue", "managerConfig.controllerManagerConfigYaml", remedy)
    for workload in stack.objects:
        kind = annotations_of(workload).get(MADE_FROM, workload["kind"])
        queue = labels_of(workload).get(KUEUE_QUEUE)
        frameworks = queue_of(kind).frameworks
        if queue is None or enabled.issuperset(frameworks):
            continue
        message = (
            f"it names the queue {queue}, and Kueue does not manage {kind}s: it starts at once, "
            "whatever the queue holds"
        )
        remedy = (
            f"Add {kind} to kinds of the TrainingQueue (integrations.frameworks of Kueue's "
            "configuration)."
        )
        if kind not in package_kinds():
            named = ", ".join(frameworks)
            remedy = f"Add {named} to integrations.frameworks of Kueue's configuration."
        yield error("queue-kind", full_name(workload), "metadata.labels", message, remedy)
