"""Verdicts on workloads in a queue with a topology."""

from typing import Any

import pytest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.planning.model.nodes import NodeClass

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    OPEN,
    Manifest,
    affinity,
    container,
    daemon_set,
    deployment,
    namespaced,
    node,
    pool,
    spread,
    template,
)
from tests.planning.queues import FLAVOR, LOCAL, cluster_queue, flavor, offering, waiting
from tests.planning.topologies import (
    BLOCK,
    HOST,
    KUEUE,
    RACK,
    asking,
    in_rack,
    of_kind,
    queue,
    racks,
    topology,
    with_leader,
)
from tests.support.cluster_objects import taint, using, web

NODES = [*racks(2, 3), *racks(4, block="b1")]


def found(*documents: Manifest, nodes: list[NodeClass] | None = None) -> tuple[Verdict, str]:
    """The verdict on the first workload, and its reasons about the topology."""
    [first, *_] = judge(documents, nodes or ()).workloads
    messages = [reason.message for reason in first.reasons if reason.rule == "queue-topology"]
    return first.verdict, " | ".join(messages)


@pytest.mark.parametrize(
    ("count", "annotations", "expected"),
    [
        (4, {"required_topology": RACK}, FITS),
        (5, {"required_topology": RACK}, CANNOT),
        (5, {"required_topology": BLOCK}, FITS),
        (6, {"required_topology": BLOCK}, CANNOT),
        (9, {"preferred_topology": RACK}, FITS),
        (10, {"preferred_topology": RACK}, CANNOT),
        (9, {"unconstrained_topology": "true"}, FITS),
        (9, {}, FITS),
        (4, {"slice_required_topology": RACK, "slice_size": "2"}, FITS),
        (8, {"slice_required_topology": RACK, "slice_size": "2"}, FITS),
        (8, {"slice_required_topology": RACK, "slice_size": "4"}, CANNOT),
        (4, {"required_topology": BLOCK, "slice_required_topology": RACK, "slice_size": "4"}, FITS),
    ],
)
def test_a_gang_fits_if_a_domain_holds_it(
    count: int, annotations: dict[str, Any], expected: Verdict
) -> None:
    assert found(asking(count, **annotations), *queue(), *NODES)[0] is expected


def test_the_reason_is_kueues_own() -> None:
    assert found(asking(5, required_topology=RACK), *queue(), *NODES) == (
        CANNOT,
        'Kueue never admits it: topology "racks" allows to fit only 4 out of 5 pod(s)',
    )


NO_BLOCK = "Kueue never admits it: no topology domains at level: example.com/block"


@pytest.mark.parametrize(
    ("missing", "expected", "why"), [(RACK, CANNOT, NO_BLOCK), ("example.com/x", FITS, "")]
)
def test_a_node_without_the_label_of_a_level_is_in_no_domain(
    missing: str, expected: Verdict, why: str
) -> None:
    nodes = racks(2)
    for each in nodes:
        each["metadata"]["labels"].pop(missing, None)
    assert found(asking(1, required_topology=BLOCK), *queue(), *nodes) == (expected, why)


@pytest.mark.parametrize(("level", "expected"), [(BLOCK, FITS), ("example.com/row", CANNOT)])
def test_a_level_that_the_topology_lacks(level: str, expected: Verdict) -> None:
    verdict, message = found(asking(1, required_topology=level), *queue(), *NODES)
    assert verdict is expected
    assert ("has a topology with example.com/row for" in message) is (expected is CANNOT)


def test_taints_and_selectors_count_for_each_node() -> None:
    tainted = racks(2)
    for each in tainted:
        each["spec"]["taints"] = [taint("a", "b")]
    documents = [asking(2, required_topology=RACK), *queue(), *tainted]
    assert found(*documents)[0] is FITS, "the flavor tolerates all taints"
    documents[2] = {**documents[2], "spec": {**documents[2]["spec"], "tolerations": []}}
    assert found(*documents) == (
        CANNOT,
        'Kueue never admits it: topology "racks" doesn\'t allow to fit any of 2 pod(s). '
        'Total nodes: 2; excluded: taint "a=b:NoSchedule": 2',
    )
    selective = asking(2, required_topology=RACK)
    selective["spec"]["template"]["spec"]["nodeSelector"] = {"x": "y"}
    assert "excluded: nodeSelector: 2" in found(selective, *queue(), *racks(2))[1]


def test_a_gang_of_fragments_needs_a_node_for_each_pod() -> None:
    """Kueue 5243: 8 GPUs are free in the rack, and no node has all of them."""
    nodes = racks(2)
    for each in nodes:
        each["status"]["allocatable"][GPU] = "4"
    assert found(asking(1, required_topology=RACK), *queue(), *nodes)[0] is CANNOT
    assert found(asking(2, gpus=4, required_topology=RACK), *queue(), *nodes)[0] is FITS


def test_pods_of_a_node_are_limited() -> None:
    """Kueue 4270."""
    nodes = racks(1)
    nodes[0]["status"]["allocatable"]["pods"] = "3"
    documents = [*queue(), *nodes]
    assert found(asking(3, gpus=1, required_topology=RACK), *documents)[0] is FITS
    assert found(asking(4, gpus=1, required_topology=RACK), *documents)[0] is CANNOT
    agent = daemon_set("agent", template({"app": "agent"}, [container(cpu=1)]))
    verdicts = judge([asking(3, gpus=1, required_topology=RACK), *documents, agent]).workloads
    assert verdicts[0].verdict is not FITS, "the DaemonSet's pod is one of the three"


def test_a_topology_without_host_names_is_not_certain() -> None:
    documents = [*queue(BLOCK, RACK), *NODES]
    verdict, message = found(asking(4, required_topology=RACK), *documents)
    assert verdict is OPEN
    assert "adds up what the nodes of a example.com/rack have free" in message
    assert found(asking(5, required_topology=RACK), *documents)[0] is CANNOT


MAIN = container(gpu=8) | {"image": "i"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"hostNetwork": False}, FITS),
        ({"affinity": {"podAffinity": {REQUIRED: []}}}, FITS),
        ({"affinity": affinity(BLOCK, "train")}, OPEN),
        ({"topologySpreadConstraints": [spread(BLOCK, app="train")]}, OPEN),
        ({"containers": [MAIN | {"ports": [{"containerPort": 1}]}]}, FITS),
        ({"containers": [MAIN | {"ports": [{"containerPort": 1, "hostPort": 1}]}]}, OPEN),
    ],
)
def test_what_kueue_does_not_count_is_not_certain(spec: Manifest, expected: Verdict) -> None:
    train = asking(4, required_topology=RACK)
    train["spec"]["template"]["spec"] |= spec
    assert found(train, *queue(), *NODES)[0] is expected


def test_other_workloads_may_take_the_nodes() -> None:
    documents = [asking(4, required_topology=RACK), *queue(), *NODES]
    assert found(*documents, deployment("web", 1, using({"app": "web"}, gpu=8)))[0] is OPEN
    elsewhere = node("cpu", {"kind": "cpu"}, cpu="4")
    assert found(*documents, web(nodeSelector={"kind": "cpu"}), elsewhere)[0] is FITS


def test_a_leader_is_judged_by_its_own_conditions() -> None:
    """Kueue 15373: it admits a leader by the conditions of its workers."""
    assert found(with_leader(3), *queue(), *NODES)[0] is FITS
    assert found(with_leader(4), *queue(), *NODES)[0] is CANNOT
    nodes = [*racks(4), node("head", {"gpu": "h100", "role": "head"}, gpu="8")]
    on_head = with_leader(3, leader={"nodeSelector": {"role": "head"}})
    verdict, message = found(on_head, *queue(), *nodes)
    assert verdict is CANNOT
    assert "each of their nodes refuses it: nodeSelector" in message
    nodes[0]["metadata"]["labels"]["role"] = "head"
    verdict, message = found(on_head, *queue(), *nodes)
    assert verdict is OPEN
    assert "some of their nodes refuses it" in message


IN_SLICES = {"slice_required_topology": RACK, "slice_size": "2"}
TWICE = f'[{{"topology": "{BLOCK}", "size": 4}}, {{"topology": "{BLOCK}", "size": 2}}]'
IN_RING = {"group_name": "ring", "required_topology": RACK}
REFUSED: list[tuple[Manifest, str]] = [
    ({"required_topology": RACK, "preferred_topology": RACK}, "it has "),
    ({"unconstrained_topology": "yes"}, "is yes, which is not a boolean"),
    ({"unconstrained_topology": "false"}, "is false, which requests no level"),
    ({"slice_required_topology": RACK}, "it has one of"),
    ({"slice_size": "2"}, "it has one of"),
    (IN_SLICES | {"slice_size": "0"}, "slice-size is 0"),
    (IN_SLICES | {"slice_size": "two"}, "slice-size is two"),
    (IN_SLICES | {"slice_size": "3"}, "does not divide 4"),
    (IN_SLICES | {"slice_size": "5"}, "a slice has 5 of 4 pods"),
    ({"slice_required_topology_constraints": "{"}, "constraints is {"),
    ({"slice_required_topology_constraints": "[]"}, "constraints is []"),
    ({"slice_required_topology_constraints": TWICE}, "names a level twice"),
    ({"group_name": "ring"}, "needs a required or preferred level"),
    ({"group_name": "7", "required_topology": RACK}, "is 7, a number"),
    (IN_RING | IN_SLICES, "excludes slices"),
    (IN_RING, "it has 1 sets of pods, and must have 2"),
]


@pytest.mark.parametrize(("annotations", "words"), REFUSED)
def test_what_kueues_webhook_refuses(annotations: dict[str, Any], words: str) -> None:
    verdict, message = found(asking(4, **annotations), *queue(), *NODES)
    assert verdict is CANNOT
    assert words in message


def test_groups_have_one_level_and_a_leader_of_one_pod() -> None:
    ring = with_leader(3)
    jobs = [each["template"]["spec"] for each in ring["spec"]["replicatedJobs"]]
    jobs[0]["parallelism"] = jobs[0]["completions"] = 2
    assert "none of its sets has one pod" in found(ring, *queue(), *NODES)[1]
    jobs[0]["parallelism"] = jobs[0]["completions"] = 1
    jobs[1]["template"]["metadata"]["annotations"][f"{KUEUE}required-topology"] = BLOCK
    assert "request different levels" in found(ring, *queue(), *NODES)[1]


def test_pods_need_one_flavor_with_a_topology_for_all_resources() -> None:
    plain = [FLAVOR, LOCAL, cluster_queue(gpus=100), *NODES]
    assert found(asking(4), *plain)[0] is FITS
    verdict, message = found(asking(4, required_topology=RACK), *plain)
    assert verdict is CANNOT
    assert "no flavor of ClusterQueue team has a topology" in message
    mixed = [*queue()[:3], offering("h100", "other", gpus=100), *NODES]
    mixed.append({**FLAVOR, "metadata": {"name": "other"}, "spec": {"nodeLabels": {"gpu": "o"}}})
    verdict, _ = found(asking(4, required_topology=RACK), *mixed)
    assert verdict is not CANNOT


def test_a_topology_that_is_not_declared() -> None:
    assert found(asking(4, required_topology=RACK), *queue()[1:], *NODES) == (
        OPEN,
        "the levels of Topology racks are not known",
    )
    unknown = topology()
    unknown["spec"]["levels"] = UNKNOWN
    documents = [asking(4, required_topology=RACK), unknown, *queue()[1:], *NODES]
    assert found(*documents)[0] is OPEN


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("Pod", 1, FITS),
        # Kueue queues each pod of a Deployment alone.
        ("Deployment", 9, FITS),
        ("Deployment", 10, CANNOT),
        ("StatefulSet", 4, FITS),
        ("StatefulSet", 5, CANNOT),
        ("RayCluster", 4, FITS),
        ("RayCluster", 5, CANNOT),
        ("RayJob", 4, FITS),
        ("RayJob", 5, CANNOT),
        ("RayService", 4, FITS),
        ("RayService", 5, CANNOT),
    ],
)
def test_kueue_places_other_kinds_as_jobs(kind: str, count: int, expected: Verdict) -> None:
    verdict, why = found(waiting(of_kind(kind, count)), *queue(), *NODES)
    assert verdict is expected, why
    assert ("Kueue never admits it" in why) is (expected is CANNOT)


def groups(replicas: int, size: int = 2, **templates: Manifest) -> Manifest:
    """A LeaderWorkerSet in the queue, each of whose groups asks for one rack."""
    parts = {"size": size, "workerTemplate": in_rack(), **templates}
    spec = {"replicas": replicas, "leaderWorkerTemplate": parts}
    return waiting(namespaced("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "web", spec=spec))


@pytest.mark.parametrize(
    ("replicas", "size", "templates", "expected"),
    [
        (1, 4, {}, FITS),
        (1, 5, {}, CANNOT),
        (4, 2, {}, FITS),
        (5, 2, {}, CANNOT),
        (2, 4, {}, CANNOT),
        # A leader without GPUs is a set of its own.
        (1, 5, {"leaderTemplate": in_rack(0)}, FITS),
        (4, 3, {"leaderTemplate": in_rack(0)}, FITS),
        (5, 3, {"leaderTemplate": in_rack(0)}, CANNOT),
        (0, 5, {}, FITS),
    ],
)
def test_kueue_places_each_group_of_a_leader_worker_set(
    replicas: int, size: int, templates: Manifest, expected: Verdict
) -> None:
    verdict, why = found(groups(replicas, size, **templates), *queue(), *NODES)
    assert verdict is expected, why
    assert ("Kueue never admits it" in why) is (expected is CANNOT)


def test_groups_with_exclusive_domains_are_undetermined_at_best() -> None:
    """Kueue places each group, and ignores that LeaderWorkerSet wants a domain for each."""
    for replicas, verdicts in ((4, {OPEN, CANNOT}), (2, {OPEN})):
        made = groups(replicas)
        made["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK}
        assert judge([made, *queue(), *NODES]).stack in verdicts


@pytest.mark.parametrize(("replicas", "expected"), [(1, FITS), (2, OPEN)])
def test_groups_may_get_different_flavors(replicas: int, expected: Verdict) -> None:
    """Each of two flavors has a rack for one group."""
    flavors = [flavor("a")[0], flavor("b")[0]]
    for each in flavors:
        each["spec"] = {**each["spec"], "topologyName": "racks"}
    nodes = [*racks(2, gpu="a"), *racks(2, block="b1", gpu="b")]
    queued = [topology(), *flavors, LOCAL, offering("a", "b", gpus=100)]
    assert judge([groups(replicas), *queued, *nodes]).stack is expected


def test_kinds_that_kueue_does_not_queue_are_undetermined() -> None:
    made = waiting(daemon_set("web", using({"app": "web"}, gpu=8)))
    assert judge([made, *queue(), *NODES]).workloads[0].verdict is OPEN


GKE_LEVELS = (*labels.GKE_TOPOLOGY, HOST)


def gke_pool(nodes: int, **more: Any) -> NodeClass:
    accelerator: Manifest = {"type": "nvidia-h100-mega-80gb", "count": 8}
    accelerator["gpuDriverInstallationConfig"] = {"gpuDriverVersion": "LATEST"}
    config = {"machineType": "a3-megagpu-8g", "labels": {"gpu": "h100"}}
    config |= {"guestAccelerators": [accelerator]}
    place = {"name": "a", "location": "us-central1-a"}
    return from_node_pool({"nodeCount": nodes, **place, "nodeConfig": config, **more})


@pytest.mark.parametrize(
    ("count", "annotations", "expected"),
    [
        (4, {"required_topology": GKE_LEVELS[0]}, OPEN),
        (5, {"required_topology": GKE_LEVELS[0]}, CANNOT),
        (4, {}, OPEN),
        (2, {"required_topology": HOST}, CANNOT),
    ],
)
def test_the_domains_of_declared_nodes_are_not_known(
    count: int, annotations: dict[str, Any], expected: Verdict
) -> None:
    documents = [asking(count, **annotations), *queue(*GKE_LEVELS)]
    assert found(*documents, nodes=[gke_pool(4)])[0] is expected


def test_host_names_alone_are_known() -> None:
    nodes = [gke_pool(4)]
    assert found(asking(4), *queue(HOST), nodes=nodes)[0] is FITS
    assert found(asking(5), *queue(HOST), nodes=nodes)[0] is CANNOT


def test_kueue_counts_only_nodes_that_exist() -> None:
    growing = [gke_pool(4, autoscaling={"totalMinNodeCount": 2, "totalMaxNodeCount": 4})]
    assert found(asking(2), *queue(HOST), nodes=growing)[0] is FITS
    verdict, message = found(asking(3), *queue(HOST), nodes=growing)
    assert verdict is OPEN
    assert "Kueue counts the nodes that exist, and a may have 2 nodes" in message
    assert found(asking(5), *queue(HOST), nodes=growing)[0] is CANNOT


def test_templates_of_nodes_have_their_own_domains() -> None:
    """A template with known labels is in one domain."""
    template_of = pool("p", 4, {"gpu": "h100", BLOCK: "b", RACK: "r"}, gpu="8")
    template_of["metadata"]["annotations"]["ml-foundations/min-nodes"] = "4"
    assert found(asking(4, required_topology=RACK), *queue(), template_of)[0] is FITS
    assert found(asking(5, required_topology=RACK), *queue(), template_of)[0] is CANNOT
