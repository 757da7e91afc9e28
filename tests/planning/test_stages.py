"""Each thing that is added to pods, and each decision: whether it reads a stage of the pods that has the addition."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from ml_foundations.catalog.injections import injections
from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import queue_of
from ml_foundations.planning import judge
from ml_foundations.planning.api_server.stages import readers

from tests.factories import (
    CANNOT,
    FITS,
    Manifest,
    cluster_wide,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
    namespace,
    namespaced,
    node,
    quota,
    template,
)
from tests.planning.queues import LOCAL, waiting
from tests.planning.topologies import BLOCK, RACK, topology

ADDITIONS = {
    row["addition"]: row["stages"].split()
    for row in rows("stage_additions.csv", "ml_foundations.planning.api_server")
}
OF_WEBHOOKS = {name: ["stored"] for name, entry in injections().items() if entry.stage == "webhook"}
CLASS = "cloud.google.com/compute-class"
ARCH = "kubernetes.io/arch"
TEAM = namespace()
OF_CLASS = namespace("team", {"cloud.google.com/default-compute-class": "c"})
NAMES = {"gpu": "h100", BLOCK: "b", RACK: "r", CLASS: "c", "cloud.google.com/gke-nodepool": "p"}
VALUES = {CLASS: "c", ARCH: "arm64"}
"""The values of the taints that GKE gives to nodes."""
RUNTIME = cluster_wide(
    "node.k8s.io/v1",
    "RuntimeClass",
    "slow",
    handler="slow",
    overhead={"podFixed": {"cpu": "2"}},
    scheduling={"nodeSelector": {RACK: "r"}, "tolerations": [{"key": "slow"}]},
)


@dataclass
class Addition:
    """Pods that get something: the toleration of a taint, or two CPUs."""

    taint: str = ""
    limits: Manifest = field(default_factory=dict[str, Any])
    spec: Manifest = field(default_factory=dict[str, Any])
    annotations: Manifest = field(default_factory=dict[str, Any])
    objects: list[Manifest] = field(default_factory=lambda: [TEAM])
    kinds: tuple[str, ...] = ("Job", "Deployment")

    def pods(self) -> Manifest:
        limits = {"gpu": 1} if self.taint == "nvidia.com/gpu" else self.limits
        limits = limits or ({"cpu": "100m"} if self.taint else {})
        made = template(containers=[container(**limits)], **self.spec)
        made["metadata"]["annotations"] = dict(self.annotations)
        return made


RUNS_SLOWLY: Any = {"spec": {"runtimeClassName": "slow"}, "objects": [TEAM, RUNTIME]}
DEFAULTS = limit_range({"type": "Container", "defaultRequest": {"cpu": "2"}})
SIDECAR = {"gke-gcsfuse/volumes": "true", "gke-gcsfuse/cpu-limit": "2"}
CASES = {
    "tolerations of node conditions": Addition(
        "node.kubernetes.io/disk-pressure", kinds=("DaemonSet",)
    ),
    "limits as requests": Addition(limits={"cpu": 2}),
    "defaults of a LimitRange": Addition(objects=[TEAM, DEFAULTS]),
    "overhead of a RuntimeClass": Addition(**RUNS_SLOWLY),
    "node selector and tolerations of a RuntimeClass": Addition("slow", **RUNS_SLOWLY),
    "toleration of an extended resource": Addition("nvidia.com/gpu"),
    "bucket-sidecar": Addition(annotations=SIDECAR),
    "class-toleration": Addition(CLASS, spec={"nodeSelector": {CLASS: "c"}}),
    "arm-toleration": Addition(ARCH, spec={"nodeSelector": {ARCH: "arm64"}}),
    "default-class": Addition(CLASS, objects=[OF_CLASS]),
}
ELSEWHERE = {"bucket-prefetch", "bucket-scan", "interfaces"}
"""What GKE adds besides, with its own tests (test_injected.py): by the same way as the sidecar."""


def nodes(cpu: str = "1", taint: str = "") -> list[Manifest]:
    """A node of a class and a rack, with a taint."""
    value = {"value": VALUES[taint]} if taint in VALUES else {}
    taints = [{"key": taint, "effect": "NoSchedule", **value}] if taint else []
    names = NAMES | ({ARCH: "arm64"} if taint == ARCH else {})
    return [node("n", names, taints, cpu=cpu, gpu="1", **{"ephemeral-storage": "50Gi"})]


def queue(cpu: str = "9", **flavor: Any) -> list[Manifest]:
    most = {"cpu": cpu, "memory": "99Gi", "nvidia.com/gpu": "9", "ephemeral-storage": "99Gi"}
    amounts = [{"name": name, "nominalQuota": amount} for name, amount in most.items()]
    group = {"coveredResources": [*most], "flavors": [{"name": "f", "resources": amounts}]}
    version = "kueue.x-k8s.io/v1beta2"
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    labels = {"nodeLabels": {"gpu": "h100"}}
    return [
        cluster_wide(version, "ResourceFlavor", "f", spec=labels | flavor),
        cluster_wide(version, "ClusterQueue", "team", spec=spec),
        LOCAL,
    ]


MOST = limit_range({"type": "Pod", "max": {"cpu": "1"}})
MOST["metadata"]["name"] = "most"


def made(kind: str, addition: Addition, *, in_queue: bool) -> Manifest:
    match kind:
        case "DaemonSet":
            return daemon_set("web", addition.pods())
        case "Job":
            found = job("web", 1, addition.pods())
        case _:
            found = deployment("web", 1, addition.pods(), strategy={"type": "Recreate"})
    return waiting(found) if in_queue else found


def is_refused(rule: str, kind: str, addition: Addition, *objects: Manifest) -> bool:
    in_queue = any(each["kind"] == "ClusterQueue" for each in objects)
    found = judge([*addition.objects, *objects, made(kind, addition, in_queue=in_queue)])
    return rule in {each.rule for each in found.findings}


def tainted(addition: Addition) -> Manifest:
    return {"nodeTaints": nodes(taint=addition.taint)[0]["spec"]["taints"]}


def asks_for_a_rack(addition: Addition) -> Addition:
    required = {"kueue.x-k8s.io/podset-required-topology": RACK}
    return Addition(**{**vars(addition), "annotations": {**addition.annotations, **required}})


OF_NO_CONTAINER = {"overhead of a RuntimeClass", "bucket-sidecar"}
"""The additions that give no request to the containers of the template."""
Probe = Callable[[str, Addition], bool]
"""Whether a decision about pods of a kind sees an addition to them."""
OF_TOLERATIONS: dict[str, Probe] = {
    "nodes": lambda kind, added: not is_refused("taint", kind, added, *nodes("9", added.taint)),
    "queue": lambda kind, added: (
        not is_refused("queue", kind, added, *nodes("9"), *queue(**tainted(added)))
    ),
    "queue-topology": lambda kind, added: (
        not is_refused(
            *("queue-topology", kind, asks_for_a_rack(added)),
            *(*nodes("9", added.taint), topology(), *queue(topologyName="racks")),
        )
    ),
}
OF_AMOUNTS: dict[str, Probe] = {
    "nodes": lambda kind, added: is_refused("resources", kind, added, *nodes()),
    "quota": lambda kind, added: is_refused(
        "quota", kind, added, *nodes("9"), quota(hard={"requests.cpu": "1"})
    ),
    "limits": lambda kind, added: is_refused("limit-range-max", kind, added, *nodes("9"), MOST),
    "queue-quota": lambda kind, added: is_refused(
        "queue-quota", kind, added, *nodes("9"), *queue("1")
    ),
    "queue-topology": lambda kind, added: is_refused(
        *("queue-topology", kind, asks_for_a_rack(added)),
        *(*nodes(), topology(), *queue(topologyName="racks")),
    ),
    "autoscaling-metric": lambda kind, added: (
        not is_refused("autoscaling-metric", kind, added, *nodes("9"), SCALER)
    ),
}
METRIC = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
METRICS = [{"type": "Resource", "resource": METRIC}]
SCALE = {"maxReplicas": 1, "scaleTargetRef": TARGET, "metrics": METRICS}
SCALER = namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec=SCALE)
OF_TEMPLATES = {"invalid", "pod-security"}
"""The decisions about fields of templates that nothing adds to."""


def cases() -> Iterator[tuple[str, str, str]]:
    for name, addition in CASES.items():
        for decision in OF_TOLERATIONS if addition.taint else OF_AMOUNTS:
            for kind in addition.kinds:
                is_scaled = kind == "Deployment" and name not in OF_NO_CONTAINER
                # Kueue's topologies judge no Deployments.
                is_placed = kind != "Deployment"
                judges = {"autoscaling-metric": is_scaled, "queue-topology": is_placed}
                if kind != "DaemonSet" and judges.get(decision, True):
                    yield name, decision, kind


@pytest.mark.parametrize(("name", "decision", "kind"), [*cases()])
def test_a_decision_reads_the_stage_of_the_table(name: str, decision: str, kind: str) -> None:
    reader = readers()[decision]
    stage = reader.of_pods if queue_of(kind).gate == "stored" else reader.stage
    probes = OF_TOLERATIONS if CASES[name].taint else OF_AMOUNTS
    expected = stage in (ADDITIONS | OF_WEBHOOKS)[name]
    assert probes[decision](kind, CASES[name]) is expected


@pytest.mark.parametrize("name", [name for name, added in CASES.items() if added.taint])
def test_the_controller_of_a_daemon_set_reads_what_it_creates(name: str) -> None:
    """It creates no pod for a node whose taint only the API server makes the pod tolerate."""
    addition = CASES[name]
    place = nodes("9", addition.taint)
    if "conditions" in name:
        place[0]["status"]["conditions"] = [{"type": "DiskPressure", "status": "True"}]
    nowhere = is_refused("daemon-set-without-nodes", "DaemonSet", addition, *place)
    assert nowhere is (readers()["daemon-set"].stage not in (ADDITIONS | OF_WEBHOOKS)[name])


def test_every_addition_and_every_reader_has_its_case() -> None:
    assert CASES.keys() | ELSEWHERE == ADDITIONS.keys() | OF_WEBHOOKS.keys()
    probed = OF_TOLERATIONS.keys() | OF_AMOUNTS.keys() | {"daemon-set"}
    assert probed | OF_TEMPLATES == readers().keys()
    assert all(reader.who and reader.source for reader in readers().values())


def test_gke_sees_the_class_that_a_flavor_adds_to_templates() -> None:
    """Kueue adds the labels of the flavor before the pods of a Job are created."""
    place = nodes("9", CLASS)
    of_class: dict[str, Any] = {"nodeLabels": {CLASS: "c"}}
    run = waiting(job("web", 1, template()))
    assert judge([TEAM, *place, *queue(**of_class), run]).stack is FITS
    # With a topology, Kueue itself has to see the toleration.
    objects = [TEAM, *place, topology(), *queue(topologyName="racks", **of_class)]
    wanted = asks_for_a_rack(Addition(limits={"cpu": 1})).pods()
    assert judge([*objects, waiting(job("web", 1, wanted))]).stack is CANNOT
    wanted["spec"]["tolerations"] = [{"key": CLASS, "operator": "Exists"}]
    assert judge([*objects, waiting(job("web", 1, wanted))]).stack is FITS


def test_a_topology_refuses_the_jobs_of_a_job_set_by_their_template() -> None:
    pods = asks_for_a_rack(Addition("nvidia.com/gpu")).pods()
    pods["spec"]["restartPolicy"] = "Never"
    one = {"parallelism": 1, "completions": 1, "template": pods}
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": one}}]}
    ring = waiting(namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "ring", spec=spec))
    objects = [TEAM, *nodes("9", "nvidia.com/gpu"), topology()]
    (found,) = judge([*objects, *queue(topologyName="racks"), ring]).workloads
    assert [each.rule for each in found.reasons] == ["queue-topology"]
    assert "ResourceFlavor" in found.reasons[0].remedy
    tolerating = queue(topologyName="racks", tolerations=[{"key": "nvidia.com/gpu"}])
    assert judge([*objects, *tolerating, ring]).workloads[0].verdict is not CANNOT
