"""Who wrote the fields of a pod's spec that its template lacks: flavors, classes, annotations."""

from collections.abc import Iterator, Mapping

from ml_foundations.kinds.kind import at
from ml_foundations.kinds.kind_files import described_kinds
from ml_foundations.kubernetes.objects import name_of, section
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model import exclusive
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.workloads import PodSet, Workload


def sources(cluster: Cluster, workload: Workload, pods: PodSet, pod: PodClass) -> Mapping[str, str]:
    """Return the field that the user wrote for each field that admission or a controller adds."""
    template = section(pods.template, "spec")
    added = dict[str, str]()
    selector = section(template, "nodeSelector")
    annotation, _ = exclusive_annotation(workload, pods)
    for key, value in section(pod.spec, "nodeSelector").items():
        if key in selector:
            continue
        if annotation:
            is_label = key == exclusive.JOB_LABEL
            by = annotation.replace(exclusive.EXCLUSIVE, exclusive.BY_LABELS)
            added[f"nodeSelector.{key}"] = by if is_label else annotation
        for path, object_name, node_labels in _selecting(cluster, workload, pod):
            if node_labels.get(key) == value:
                added[f"nodeSelector.{key}"] = f"{path}.{key} of {object_name}"
    for field in ("podAffinity", "podAntiAffinity") if annotation else ():
        if field not in section(template, "affinity"):
            added[f"affinity.{field}"] = annotation
    return added | cluster.devices.sources(pod.spec, workload.namespace)


def _selecting(
    cluster: Cluster, workload: Workload, pod: PodClass
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield the objects whose labels pods select, with the path of these."""
    runtime = cluster.runtime_classes.get(pod.spec.get("runtimeClassName") or "", {})
    selector = section(runtime, "scheduling", "nodeSelector")
    yield "scheduling.nodeSelector", f"RuntimeClass {name_of(runtime)}", selector
    for flavor in cluster.queues.flavors_in(workload.namespace, workload.queue or ""):
        node_labels = section(flavor, "spec", "nodeLabels")
        yield "spec.nodeLabels", f"ResourceFlavor {name_of(flavor)}", node_labels


def exclusive_annotation(workload: Workload, pods: PodSet) -> tuple[str, str]:
    """Return the path of the annotation by which groups of pods have domains alone, and its key."""
    described = described_kinds().get(workload.kind)
    name = described.exclusive if described else exclusive.EXCLUSIVE
    # Of a JobSet, a replicated Job and its pods may have it too.
    for below in (pods.path, "spec.template.spec", "spec"):
        path = f"{pods.path.removesuffix(below)}metadata.annotations"
        annotations = at(workload.manifest, path)
        if name and is_mapping(annotations) and name in annotations:
            return f"{path}.{name}", annotations[name]
    return "", ""
