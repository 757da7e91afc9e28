"""What the real Kueue, JobSet and API server do with documents, and the proof's verdict on the same documents."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from ml_foundations.component.data import yaml_file
from ml_foundations.kinds.kind_files import kinds, queue_of
from ml_foundations.planning import Verdict
from ml_foundations.planning.input.documents import read
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError, condition, pod_path
from ml_foundations.rehearsal.control_plane import controllers
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.differential.oracle import expanded
from tests.factories import (
    GPU,
    Manifest,
    claim,
    cluster_wide,
    container,
    deployment,
    job,
    limit_range,
    namespaced,
    node,
    quota,
    template,
)
from tests.planning.job_sets import ALONE, PREFIX, RACKS, job_set
from tests.planning.job_sets import node as rack
from tests.planning.queues import (
    BORROWING,
    FLAVOR,
    LOCAL,
    cluster_queue,
    configured,
    flavor,
    offering,
    pod_group,
    queued,
    ring,
    waiting,
)
from tests.planning.topologies import BLOCK, RACK, asking, of_kind, queue, racks, with_leader
from tests.support.checkout import CHECKOUT
from tests.support.dump import dumped
from tests.support.own_replica import own_replica
from tests.support.project import delete
from tests.support.project_steps import waiting_class
from tests.support.waiting import until

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED
PUBLIC = CHECKOUT / "tests" / "planning" / "public"
QUIET_SECONDS = 2
"""Within them Kueue and the scheduler have tried again what waits."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/{}/workloads"
OF_OTHERS = {"operator": "NotIn", "values": ["kube-system", "kueue-system"]}
OF_TEAMS = {"matchExpressions": [{"key": NAMESPACE_NAME, **OF_OTHERS}]}
SIDECAR = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sidecar}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
    - {name: annotated, expression: "object.metadata.?annotations[?'gke-gcsfuse/volumes'].orValue('') == 'true'"}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          [JSONPatch{op: "add", path: "/spec/containers/-", value: dyn({"name": dyn("gke-gcsfuse-sidecar"),
          "image": dyn("i"), "resources": dyn({"requests": {"cpu": "250m", "memory": "256Mi"}})})}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sidecar}
spec: {policyName: sidecar}
"""
"""What GKE's webhook for buckets does: it adds a container to pods, and to no template."""


@dataclass
class Replica:
    """A control plane with Kueue and JobSet, and the objects of a test."""

    rehearsal: Rehearsal
    tools: Tools
    api: Api
    client: Client
    created: list[Manifest] = field(default_factory=list[Manifest])
    refused: list[str] = field(default_factory=list[str])

    def configure_kueue(self, text: str = "{}") -> None:
        """Run Kueue for all kinds, with more of its configuration."""
        frameworks = {name for kind in kinds() for name in queue_of(kind).frameworks}
        config = yaml_file("tenancy", "kueue_config.yaml") | {
            "integrations": {"frameworks": sorted(frameworks)}
        }
        config |= {"managedJobsNamespaceSelector": OF_TEAMS, **yaml.safe_load(text)}
        values = {"managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(config)}}
        controllers.start(self.rehearsal, self.tools, controllers.KUEUE, values)

    def create(self, documents: Iterable[Manifest]) -> None:
        """Create objects as a user does, workloads last, with nodes that kwok plays and pods that do not end."""
        found = [_played(each) for each in expanded(documents)]
        for name in {_namespace(each) for each in found}:
            self.api.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            until(lambda path=account: self.api.find(path) is not None)
        for document in sorted(found, key=_is_workload):
            if _is_workload(document):
                until(self._is_ready, "queues, quotas and nodes")
            if document["kind"] not in ("Namespace", "ConfigMap"):
                self._create(document)

    def _create(self, document: Manifest) -> None:
        try:
            self.created.append(self.client.create(document))
        except ApiError as error:
            self.refused.append(str(error))

    def _is_ready(self) -> bool:
        """Return whether queues and nodes take workloads, and quotas count."""
        return all(_takes(self.client.get(each) or {}) for each in self.created)

    def _listed(self, path: str) -> list[Manifest]:
        places = {path.format(f"namespaces/{_namespace(each)}") for each in self.created}
        return [each for place in places for each in self.api.get(place)["items"]]

    def placed(self) -> list[Manifest]:
        """Return the pods that have a node."""
        return [pod for pod in self._listed("/api/v1/{}/pods") if pod["spec"].get("nodeName")]

    def reasons(self) -> str:
        """Return what Kueue, the scheduler, controllers and the API server report about what does not run."""
        waiting = [
            *self._listed(WORKLOADS),
            *self._listed("/api/v1/{}/pods"),
        ]
        status = [each.get("status", {}) for each in waiting]
        conditions = [item for each in status for item in each.get("conditions", [])]
        messages = [each.get("message", "") for each in conditions if each["status"] == "False"]
        events = self._listed("/api/v1/{}/events")
        warnings = [each["message"] for each in events if each["type"] == "Warning"]
        return "\n".join([*self.refused, *messages, *warnings])

    def clear(self) -> None:
        """Delete the objects of the test, the last one first."""
        # Kueue keeps a pod of a group until another one replaces it.
        for pod in [each for each in self.created if each["kind"] == "Pod"]:
            self.client.delete(pod, "Background")
            with suppress(ApiError):  # it may be gone
                self.api.patch(pod_path(pod), {"metadata": {"finalizers": None}})
        for document in reversed(self.created):
            delete(self.client, document)
        until(lambda: not self._listed("/api/v1/{}/pods"))
        # The garbage collector deletes the Workloads of what is gone, and the next test sees them.
        until(lambda: not self._listed(WORKLOADS))
        for name in {_namespace(each) for each in self.created}:
            self.api.delete(f"/api/v1/namespaces/{name}/events")
        self.created.clear()
        self.refused.clear()


def _dumped(replica: Replica) -> list[Manifest]:
    """Return the objects of the replica, without the policy of these tests."""
    return [each for each in dumped(replica.api) if each["metadata"]["name"] != "sidecar"]


def _namespace(document: Manifest) -> str:
    return document["metadata"].get("namespace", "default")


def _is_workload(document: Manifest) -> bool:
    kinds = ("Pod", "Job", "JobSet", "Deployment", "StatefulSet", "PersistentVolumeClaim")
    return document["kind"] in kinds


def _takes(live: Manifest) -> bool:
    match live["kind"]:
        case "ClusterQueue" | "LocalQueue":
            return condition(live, "Active").get("status") == "True"
        case "Node":
            return "node.kubernetes.io/not-ready" not in str(live["spec"].get("taints", []))
        case "ResourceQuota":
            return "hard" in live.get("status", {})
        case _:
            return True


def _played(value: Any) -> Any:
    """Return a document for kwok: a node is played, and pods do not end."""
    if isinstance(value, list):
        return [_played(each) for each in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _played(each) for key, each in value.items()}
    added = {"kwok.x-k8s.io/node": "fake"} if copied.get("kind") == "Node" else {}
    if "containers" in (copied.get("spec") or {}):
        added = {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}
    if added:
        metadata = copied.get("metadata") or {}
        copied["metadata"] = {
            **metadata,
            "annotations": {**(metadata.get("annotations") or {}), **added},
        }
    return copied


@pytest.fixture(scope="module")
def running(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A control plane of this module's own: all that is in the cluster is judged."""
    with own_replica(tools, tmp_path_factory.mktemp("verdicts")) as cluster:
        api = Api(Access(cluster.kubeconfig))
        replica = Replica(cluster.rehearsal, tools, api, Client(api))
        controllers.start(cluster.rehearsal, tools, controllers.JOBSET, {})
        replica.configure_kueue()
        for policy in yaml.safe_load_all(SIDECAR):
            replica.client.create(policy)
        until(lambda: _has_sidecar(api), "the API server reads a policy after a moment")
        yield replica


def _has_sidecar(api: Api) -> bool:
    metadata = {"name": "probe", "annotations": {"gke-gcsfuse/volumes": "true"}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stored = api.create("/api/v1/namespaces/default/pods?dryRun=All", pod)
    return len(stored["spec"]["containers"]) == 2


@pytest.fixture
def replica(running: Replica) -> Iterator[Replica]:
    yield running
    running.clear()


def check(
    replica: Replica, documents: list[Manifest], pods: int, waits_for: str, expected: Verdict
) -> None:
    """Compare what becomes of documents with the verdict on them."""
    replica.create(documents)
    try:
        until(lambda: len(replica.placed()) == pods and waits_for in replica.reasons())
    except AssertionError:
        raise AssertionError(
            f"{len(replica.placed())} pods have a node: {replica.reasons()}"
        ) from None
    if waits_for or not pods:
        time.sleep(QUIET_SECONDS)
        assert len(replica.placed()) == pods
    # What the API server has refused is not in the cluster; some pods that run may make room.
    is_same = expected is FITS or (expected is CANNOT_FIT and not pods)
    live = [_dumped(replica)] if is_same and not replica.refused else []
    for shown in (documents, *live):
        verdicts = judge_documents(shown)
        assert verdicts.stack is expected, [each.message for each in verdicts.findings]


NODES = flavor("h100")[1]
NODES["metadata"]["annotations"] = {"ml-foundations/max-nodes": "4"}


def with_bucket(kind: str) -> Manifest:
    """A workload in a queue, whose pods GKE changes."""
    pods = template({"app": "train"}, [container(gpu=8)])
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    match kind:
        case "Pod":
            made = waiting(namespaced("v1", "Pod", "train", spec=pods["spec"]))
            made["metadata"]["annotations"] = pods["metadata"]["annotations"]
            return made
        case "Deployment":
            return waiting(deployment("train", 1, pods, strategy={"type": "Recreate"}))
        case "JobSet":
            train = ring(1)
            of_job = train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            of_job["metadata"] = pods["metadata"]
            return train
        case _:
            return waiting(job("train", 1, pods))


UNCOVERED = "unavailable in ClusterQueue"


@pytest.mark.parametrize(
    ("kind", "pods", "waits_for", "expected"),
    [
        ("Job", 1, "", FITS),
        ("JobSet", 1, "", FITS),
        ("Deployment", 0, UNCOVERED, CANNOT_FIT),
        ("Pod", 0, UNCOVERED, CANNOT_FIT),
    ],
)
def test_kueue_counts_templates_of_jobs_and_pods_of_others(
    replica: Replica, kind: str, pods: int, waits_for: str, expected: Verdict
) -> None:
    nodes = node("h100", {"gpu": "h100", "cloud.google.com/gke-nodepool": "h100"}, gpu="8")
    nodes["status"]["allocatable"]["ephemeral-storage"] = "80Gi"
    documents = [FLAVOR, cluster_queue(), LOCAL, nodes, with_bucket(kind)]
    check(replica, documents, pods, waits_for, expected)


ONE_CPU = {"cpu": "1"}
DEFAULTS = limit_range({"type": "Container", "default": ONE_CPU, "defaultRequest": ONE_CPU})


def test_kueue_counts_the_defaults_of_templates(replica: Replica) -> None:
    documents = [FLAVOR, cluster_queue(), LOCAL, NODES, DEFAULTS, queued(1)]
    check(replica, documents, 0, UNCOVERED, CANNOT_FIT)


def public(name: str) -> list[Manifest]:
    return [{**each} for each in read((PUBLIC / f"{name}.yaml").read_text(), name)]


TOO_LITTLE = "insufficient quota for nvidia.com/gpu"


@pytest.mark.parametrize(("queues", "is_enough"), BORROWING)
def test_what_a_queue_borrows(replica: Replica, queues: list[Manifest], is_enough: bool) -> None:
    pods, waits_for, expected = (3, "", FITS) if is_enough else (0, TOO_LITTLE, CANNOT_FIT)
    check(replica, [FLAVOR, LOCAL, NODES, *queues, queued(3)], pods, waits_for, expected)


@pytest.mark.parametrize(
    ("count", "gpus", "pods", "waits_for", "expected"),
    [
        ("3", 24, 3, "", FITS),
        ("3", 16, 0, TOO_LITTLE, CANNOT_FIT),
        ("4", 32, 0, "fewer runnable pods than expected", CANNOT_FIT),
        ("none", 32, 0, "strconv.Atoi", CANNOT_FIT),
    ],
)
def test_a_pod_group(
    replica: Replica, count: str, gpus: int, pods: int, waits_for: str, expected: Verdict
) -> None:
    queues = [FLAVOR, LOCAL, cluster_queue(gpus=gpus), NODES]
    check(replica, [*queues, *pod_group(3, count)], pods, waits_for, expected)


@pytest.mark.parametrize(
    ("name", "pods", "waits_for", "expected"),
    [
        ("cohort-own-quota", 6, "", FITS),
        ("dra-slices-shown", 4, "", FITS),
        ("jobset-in-turns", 4, "Insufficient cpu", UNDETERMINED),
        ("pod-group-incomplete", 0, "fewer runnable pods than expected", CANNOT_FIT),
        ("queue-priority-missing", 0, "", UNDETERMINED),
        ("queue-with-bucket", 2, "", FITS),
        ("quota-bare-gpu", 1, "", FITS),
        ("quota-limits-gpu", 1, "", FITS),
        ("refused-by-queue-and-nodes", 0, "insufficient quota", CANNOT_FIT),
        ("topology-template-untolerant", 0, 'excluded: taint "nvidia.com/gpu', CANNOT_FIT),
    ],
)
def test_public_cases(
    replica: Replica, name: str, pods: int, waits_for: str, expected: Verdict
) -> None:
    check(replica, public(name), pods, waits_for, expected)


@pytest.mark.parametrize(
    ("least", "pods", "waits_for", "expected"),
    [("2", 2, "", FITS), ("3", 0, TOO_LITTLE, CANNOT_FIT)],
)
def test_kueue_starts_a_job_with_its_minimum(
    replica: Replica, least: str, pods: int, waits_for: str, expected: Verdict
) -> None:
    train = queued(4)
    train["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": least}
    documents = [FLAVOR, LOCAL, NODES, cluster_queue(), train]
    check(replica, documents, pods, waits_for, expected)
    rules = {each.rule for each in judge_documents(documents).findings}
    assert ("queue-quota" in rules) == bool(waits_for)


TRAINING = job("train", 1, template(containers=[container(gpu=4, cpu=1)]))
UNCOUNTED = (
    *(GPU, f"limits.{GPU}", "google.com/tpu", "requests.alpha.kubernetes.io/nvidia-gpu"),
    *("fast.storageclass.storage.k8s.io/storage", "count/deployments"),
    *("count/job", "count/pod", "count/nodes"),
)
CLAIM = claim(storageClassName="fast", volumeAttributesClassName="fast")


@pytest.mark.parametrize(
    ("hard", "spec", "pods", "waits_for"),
    [
        (UNCOUNTED, {}, 1, ""),
        ([f"requests.{GPU}"], {}, 0, "exceeded quota"),
        (["count/pods"], {}, 0, "exceeded quota"),
        (["count/jobs.batch"], {}, 0, "exceeded quota"),
        (["count/secrets", "count/jobs.batch"], {"scopes": ["NotTerminating"]}, 1, ""),
        ([f"requests.{GPU}"], {"scopes": ["NotTerminating"]}, 0, "exceeded quota"),
        ([f"requests.{GPU}", "count/pods"], {"scopes": ["VolumeAttributesClass"]}, 1, ""),
    ],
)
def test_names_in_quotas(
    replica: Replica, hard: list[str], spec: Manifest, pods: int, waits_for: str
) -> None:
    documents = [node("n", gpu="4"), quota(hard=dict.fromkeys(hard, "0"), **spec), TRAINING]
    check(replica, documents, pods, waits_for, CANNOT_FIT if waits_for else FITS)


@pytest.mark.parametrize(
    "name", ["count/persistentvolumeclaims", "fast.storageclass.storage.k8s.io/requests.storage"]
)
def test_quotas_of_claims_with_attributes_count_them(replica: Replica, name: str) -> None:
    limit = quota(hard={name: "0"}, scopes=["VolumeAttributesClass"])
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    server = job("web", 1, template(volumes=[data]))
    driver = {"driverName": "pd.csi.storage.gke.io"}
    attributes = cluster_wide("storage.k8s.io/v1", "VolumeAttributesClass", "fast", **driver)
    classes = [waiting_class("fast"), attributes]
    check(replica, [*classes, node("n"), limit, CLAIM, server], 0, "exceeded quota", CANNOT_FIT)


BY_LABELS = {**ALONE, "node-selector": "true"}
LABELLED = rack("mine", {f"{PREFIX}namespaced-job": "default_a-w-0"})
NO_SCHEDULE = {"key": f"{PREFIX}no-schedule", "value": "true", "effect": "NoSchedule"}
LABELLED["spec"] = {"taints": [NO_SCHEDULE]}
BY_ROW = {"exclusive-topology": "row"}


@pytest.mark.parametrize(
    ("job_sets", "pods", "waits_for", "expected"),
    [
        ([job_set("a", 2, 2, **ALONE)], 4, "", FITS),
        ([job_set("a", 3, 1, **ALONE)], 2, "anti-affinity", CANNOT_FIT),
        ([job_set("a", 1, 3, "3", **ALONE)], 2, "Insufficient cpu", CANNOT_FIT),
        ([job_set("a", 1, 1, **ALONE), job_set("b", 1, 1, **ALONE)], 2, "", FITS),
        ([job_set("a", 1, 1, **BY_ROW)], 0, "didn't match pod affinity", CANNOT_FIT),
        ([job_set("a", 1, 1, **BY_LABELS)], 0, "affinity/selector", CANNOT_FIT),
        ([LABELLED, job_set("a", 1, 1, **BY_LABELS)], 1, "", FITS),
        ([LABELLED, job_set("a", 2, 1, **BY_LABELS)], 1, "affinity/selector", CANNOT_FIT),
    ],
)
def test_jobs_with_exclusive_topology(
    replica: Replica, job_sets: list[Manifest], pods: int, waits_for: str, expected: Verdict
) -> None:
    check(replica, [*RACKS, *job_sets], pods, waits_for, expected)
    domains: dict[str, set[str]] = defaultdict(set)
    for pod in replica.placed():
        owner = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        domains[owner].add(pod["spec"]["nodeName"][:2])
    taken = [domain for each in domains.values() for domain in each]
    assert len(taken) == len({*taken}), "a domain has two Jobs, or a Job two domains"


def without_rack(nodes: list[Manifest]) -> list[Manifest]:
    for each in nodes:
        del each["metadata"]["labels"][RACK]
    return nodes


def on_head(nodes: list[Manifest]) -> list[Manifest]:
    """The nodes, and one outside of the topology, which has a role."""
    return [*nodes, node("head", {"gpu": "h100", "role": "head"}, gpu="8")]


def tainted(nodes: list[Manifest]) -> list[Manifest]:
    """A queue whose flavor tolerates no taint, on nodes that have one."""
    for each in nodes:
        each["spec"]["taints"] = [{"key": "a", "value": "b", "effect": "NoSchedule"}]
    return nodes


def intolerant(documents: list[Manifest]) -> list[Manifest]:
    # With an empty list, Kueue could not add its finalizer: the flavor's tolerations are immutable.
    del documents[1]["spec"]["tolerations"]
    return documents


NARROW = {"nodeSelector": {"role": "head"}}
FITTING: dict[str, tuple[list[Manifest], int]] = {
    "a rack holds it": ([asking(2, required_topology=RACK), *queue(), *racks(2)], 2),
    "each pod of a Deployment": ([waiting(of_kind("Deployment", 3)), *queue(), *racks(1, 2)], 3),
    "a StatefulSet in a rack": ([waiting(of_kind("StatefulSet", 2)), *queue(), *racks(2)], 2),
    "a pod in a rack": ([waiting(of_kind("Pod", 1)), *queue(), *racks(1)], 1),
    "a leader and its workers": ([with_leader(2), *queue(), *racks(3)], 3),
    "pods without a topology, in a queue with one only": ([asking(2), *queue(), *racks(2)], 2),
}
REFUSED: dict[str, tuple[list[Manifest], int, str]] = {
    "no rack holds it": (
        [asking(3, required_topology=RACK), *queue(), *racks(2, 2)],
        *(0, "allows to fit only 2 out of 3 pod(s)"),
    ),
    "nodes lack the label of a level": (
        [asking(2, required_topology=BLOCK), *queue(), *without_rack(racks(2))],
        *(0, "no topology domains at level: example.com/block"),
    ),
    "an untolerated taint, with host names": (
        [asking(1, required_topology=RACK), *intolerant(queue()), *tainted(racks(1))],
        *(0, 'excluded: taint "a=b:NoSchedule": 1'),
    ),
    "an untolerated taint, without host names": (
        [asking(1, required_topology=RACK), *intolerant(queue(BLOCK, RACK)), *tainted(racks(1))],
        *(0, "untolerated taint"),
    ),
    "more fragments, without host names": (
        [asking(5, gpus=3, required_topology=RACK), *queue(BLOCK, RACK), *racks(2)],
        *(4, "Insufficient nvidia.com/gpu"),
    ),
    "a leader that no node of the workers accepts": (
        [with_leader(2, leader=NARROW), *queue(), *on_head(racks(3))],
        *(2, "didn't match Pod's node affinity/selector"),
    ),
    "too many pods of a Deployment": (
        [waiting(of_kind("Deployment", 4)), *queue(), *racks(1, 2)],
        *(3, "couldn't assign flavors"),
    ),
    "a StatefulSet in two racks": (
        [waiting(of_kind("StatefulSet", 3)), *queue(), *racks(2, 2)],
        *(0, "allows to fit only 2 out of 3"),
    ),
    "a level that the topology lacks": (
        [asking(2, required_topology="example.com/row"), *queue(), *racks(2)],
        *(0, "does not contain the requested level"),
    ),
    "a queue without a topology": (
        [asking(2, required_topology=RACK), FLAVOR, LOCAL, cluster_queue(), *racks(2)],
        *(0, "does not support TopologyAwareScheduling"),
    ),
    "a webhook that refuses it": (
        [asking(2, required_topology=RACK, preferred_topology=RACK), *queue(), *racks(2)],
        *(0, "must not contain more than one topology annotation"),
    ),
    "slices that do not divide the pods": (
        [asking(3, slice_required_topology=RACK, slice_size="2"), *queue(), *racks(2, 2)],
        *(2, ""),
    ),
}
FRAGMENTS = [asking(4, gpus=3, required_topology=RACK), *queue(BLOCK, RACK), *racks(2)]
TOPOLOGIES: dict[str, tuple[list[Manifest], int, str, Verdict]] = {
    **{name: (*case, "", FITS) for name, case in FITTING.items()},
    **{name: (*case, CANNOT_FIT) for name, case in REFUSED.items()},
    "fragments, without host names": (FRAGMENTS, 4, "", UNDETERMINED),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topologies(replica: Replica, name: str) -> None:
    documents, pods, waits_for, expected = TOPOLOGIES[name]
    queue_of_nodes = [each for each in documents if each["kind"] != "Node"]
    nodes = [each for each in documents if each["kind"] == "Node"]
    for each in queue_of_nodes:
        if each["kind"] == "ClusterQueue":
            quotas = each["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
            quotas[0]["nominalQuota"] = 8 * len(nodes)
    check(replica, documents, pods, waits_for, expected)


EXCLUDED = "resources: {excludeResourcePrefixes: [nvidia.com/]}"


def test_kueues_configuration_decides_what_it_counts(replica: Replica) -> None:
    """It is the last test: Kueue runs with another configuration from here on."""
    replica.configure_kueue(EXCLUDED)
    train = waiting(job("train", 1, template(containers=[container(gpu=8)])))
    queue = [LOCAL, *flavor("h100"), offering("h100", gpus=4)]
    check(replica, [*queue, train, configured(EXCLUDED)], 1, "", FITS)
