"""What GKE adds to pods is part of the pod: each entry of the table has its place in admission, and a rule that judges it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ml_foundations.catalog.injections import SERVICE_AGENT, Injection, injections
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.selectors import node_affinity, selects_node
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.api_server.admission import Admission
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec

from tests.factories import (
    claim,
    container,
    daemon_set,
    deployment,
    limit_range,
    node,
    pool,
    resource,
    template,
)
from tests.planning.test_program import cluster, judge_program
from tests.planning.test_program import pool as node_pool
from tests.support.checkout import CHECKOUT
from tests.support.cluster_objects import mounted, namespace, taint, volume, web
from tests.support.parts import manifest_of

Manifest = dict[str, Any]
GKE = {"cloud.google.com/gke-nodepool": "gke", "cloud.google.com/gke-os-distribution": "cos"}
NODES = pool("gke", 2, GKE, gpu="8", cpu="64", memory="512Gi")
ON_GKE = cluster(
    addonsConfig={"gcsFuseCsiDriverConfig": {"enabled": True}},
    workloadIdentityConfig={"workloadPool": "p.svc.id.goog"},
)
FUSE = "gcsfuse.csi.storage.gke.io"
VOLUMES = "gke-gcsfuse/volumes"


def server(volumes: list[Manifest] | None = None, gpus: int = 0, **main: Any) -> Manifest:
    limits = {"gpu": gpus} if gpus else {}
    made = template(containers=[container(cpu=1, **limits) | main], volumes=volumes or [])
    made["metadata"]["annotations"] = {VOLUMES: "true"}
    return deployment("web", 1, made)


def bucket(**attributes: str) -> list[Manifest]:
    source = {"driver": FUSE, "volumeAttributes": {"bucketName": "b"} | attributes}
    return [{"name": "b", "csi": source}]


def stored(*documents: Manifest) -> tuple[Any, Any]:
    """The pods of the first document as they are stored, and what its queue would see of them."""
    world = Cluster([*documents, NODES], [])
    admission = Admission(world, documents)
    admitted = admission.admit(world.workloads[0])
    ((pod_set, pod),) = admitted.pod_sets
    return pod.spec, pod_set.template["spec"]


def added(name: str, *documents: Manifest) -> Manifest:
    spec, template_spec = stored(*documents)
    wanted = injections()[name].container
    assert wanted not in str(template_spec), "Kueue reads the template, before webhooks"
    (found,) = [each for each in items(spec, "initContainers") if each["name"] == wanted]
    return found["resources"]


DEFAULT = {"cpu": "500m", "memory": "1Gi"}
LIMITS = limit_range({"type": "Container", "default": DEFAULT, "defaultRequest": DEFAULT})


def rules(*documents: Manifest) -> dict[str, str]:
    return {each.rule: each.message for each in judge([*documents, NODES]).findings}


def sidecar(entry: Injection) -> None:
    assert added("bucket-sidecar", server(bucket()))["requests"] == entry.requests
    assert "limits" not in entry.limits
    # The webhook acts, and then LimitRanger again.
    assert added("bucket-sidecar", server(bucket()), LIMITS)["limits"] == DEFAULT
    message = rules(server(bucket()), LIMITS)["injected-limits"]
    assert "500m of cpu and 1Gi of memory" in message
    free = server(bucket())
    more = {f"gke-gcsfuse/{name}-limit": "8" for name in DEFAULT}
    free["spec"]["template"]["metadata"]["annotations"] |= more
    assert "injected-limits" not in rules(free, LIMITS)
    assert "injected-limits" not in rules(server(bucket()))


def prefetch(entry: Injection) -> None:
    mounting = server(bucket(gcsfuseMetadataPrefetchOnMount="true"))
    resources = added("bucket-prefetch", mounting, LIMITS)
    assert resources == {"requests": dict(entry.requests), "limits": dict(entry.limits)}
    spec, _ = stored(server(bucket()))
    assert len(items(spec, "initContainers")) == 1
    spec, _ = stored(server(**mounted("r1")), *profiled())
    assert [each["name"] for each in items(spec, "initContainers")][1] == entry.container


def profiled() -> list[Manifest]:
    common: Any = {"mode": "ReadOnlyMany", "storageClassName": "gcsfusecsi-serving"}
    bound: Any = {
        "claimRef": {"namespace": "team", "name": "r1"},
        "csi": {"driver": FUSE, "volumeHandle": "weights"},
    }
    return [claim("r1", **common, volumeName="r1"), volume("r1", **common, **bound)]


AGENT = f"serviceAccount:service-1{SERVICE_AGENT}"


def access(bucket: Any = "weights", member: Any = AGENT) -> Any:
    type_ = "gcp:storage/bucketIAMMember:BucketIAMMember"
    return type_, {"bucket": bucket, "role": "projects/p/roles/scan", "member": member}


def scan(entry: Injection) -> None:
    objects = [resource(each) for each in profiled()]

    def gated(*granted: Any) -> list[str]:
        found = judge_program([cluster(), node_pool(), *objects, *granted]).findings
        return [each.message for each in found if each.rule == "bucket-scan"]

    (message,) = gated()
    assert entry.gate in message and "weights" in message
    assert gated(access("other"), access(member="user:a@example.com")) == [message]
    for granted in (access(), access(UNKNOWN), access(member=UNKNOWN)):
        assert gated(granted) == []
    project = "gcp:projects/iAMMember:IAMMember", access()[1] | {"bucket": None}
    assert gated(project) == []


def interfaces(entry: Injection) -> None:
    """Nodes with RDMA may offer a network by address alone: only a request of zero starts for certain."""
    networks = json.dumps([{"interfaceName": "eth2", "network": "rdma-0"}])
    offered: Any = {name.format("rdma-0"): "1" for name in entry.resources}

    def verdict(machine: str, **limits: str) -> tuple[Verdict, set[str]]:
        labels = GKE | {"node.kubernetes.io/instance-type": machine}
        nodes = pool("gpus", 1, labels, gpu="8", cpu="64", memory="512Gi", **offered)
        own: Any = container(gpu=8) | {"name": "main"}
        own["resources"]["limits"] |= limits
        made = template(containers=[own])
        made["metadata"]["annotations"] = {"networking.gke.io/interfaces": networks}
        found = judge([deployment("web", 1, made), nodes])
        return found.workloads[0].verdict, {each.rule for each in found.workloads[0].reasons}

    assert verdict("a3-ultragpu-8g") == (Verdict.UNDETERMINED, {"pod-interfaces"})
    zero = {"networking.gke.io.networks/rdma-0": "0"}
    assert verdict("a3-ultragpu-8g", **zero)[0] is Verdict.FITS
    assert verdict("a3-megagpu-8g")[0] is Verdict.FITS


def folders(entry: Injection) -> None:
    mounted = [{"name": "f", "hostPath": {"path": entry.folder, "type": "Directory"}}]
    image = "COS_CONTAINERD"

    def missing(image: str, *daemons: Manifest) -> list[str]:
        made = server(mounted)
        nodes = node_pool(imageType=image)
        program = [ON_GKE, nodes, *map(resource, (made, *daemons))]
        found = judge_program(program).findings
        return [each.message for each in found if each.rule == "host-folder"]

    installing = template(containers=[{"name": "install", "image": f"r/{entry.installer}:v1"}])
    daemons = [daemon_set("plugin", installing)] if entry.installer else []
    assert missing(image, *daemons) == []
    (message,) = missing(image) if entry.installer else missing("UBUNTU_CONTAINERD")
    assert entry.by in message and entry.folder in message


CLASS = "cloud.google.com/compute-class"
IN_CLASS = GKE | {CLASS: "gpus"}
OF_CLASS = node("n", IN_CLASS, cpu="64", memory="512Gi")
OF_CLASS = node("n", IN_CLASS, [taint(CLASS, "gpus")], cpu="64", memory="512Gi")


def runs(made: Manifest, **labels: str) -> bool:
    """Whether pods run on the node of a class, in a namespace with labels."""
    keys = {f"cloud.google.com/{key.replace('_', '-')}": name for key, name in labels.items()}
    return judge([made, OF_CLASS, namespace(**keys)]).stack is Verdict.FITS


def class_toleration(entry: Injection) -> None:
    expression = {"key": entry.toleration, "operator": "In", "values": ["gpus"]}
    selector: Manifest = {"nodeSelector": {entry.toleration: "gpus"}}
    affinity: Manifest = {"affinity": node_affinity(expression)}
    other: Manifest = {"affinity": node_affinity(expression | {"operator": "NotIn"})}
    for selecting, expected in ((selector, True), (affinity, True), (other, False), ({}, False)):
        assert runs(web(**selecting)) is expected
    # The controller of a DaemonSet reads the template, which GKE does not change.
    for selecting in (selector, affinity):
        found = judge([daemon_set("agent", template(**selecting)), OF_CLASS])
        assert "daemon-set-without-nodes" in {each.rule for each in found.findings}


def default_class(entry: Injection) -> None:
    assert entry.selector == CLASS
    assert runs(web(), default_compute_class="gpus")
    assert runs(web(), default_compute_class_non_daemonset="gpus")
    assert not runs(web(), default_compute_class="other")
    assert not runs(web())
    assert not runs(web(nodeSelector={CLASS: "other"}), default_compute_class="gpus")
    tolerant = template(tolerations=[{"operator": "Exists"}])
    plain = node("plain", GKE)
    for key, count in (("default-compute-class", 1), ("default-compute-class-non-daemonset", 2)):
        team = namespace(**{f"cloud.google.com/{key}": "gpus"})
        world = Cluster([daemon_set("agent", tolerant), OF_CLASS, plain, team], [])
        ((_, pod),) = Admission(world, []).admit(world.workloads[0]).pod_sets
        # Its controller creates a pod for the other node, which the pod then does not select.
        assert len([each for each in (plain, OF_CLASS) if selects_node(pod.spec, each)]) == count


def arm_toleration(entry: Injection) -> None:
    nodes = node("n", GKE | {entry.toleration: "arm64"}, [taint(entry.toleration, "arm64")])

    def fits(**selecting: Any) -> bool:
        return judge([web(**selecting), nodes]).stack is Verdict.FITS

    expression = {"key": entry.toleration, "operator": "In", "values": ["arm64"]}
    assert fits(nodeSelector={entry.toleration: "arm64"})
    assert fits(affinity=node_affinity(expression))
    assert not fits(affinity=node_affinity(expression | {"values": ["amd64", "arm64"]}))
    assert not fits()
    del nodes["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
    assert not fits(nodeSelector={entry.toleration: "arm64"}), "elsewhere nobody adds it"


CASES: dict[str, Callable[[Injection], None]] = {
    "bucket-sidecar": sidecar,
    "bucket-prefetch": prefetch,
    "bucket-scan": scan,
    "interfaces": interfaces,
    "default-class": default_class,
    "class-toleration": class_toleration,
    "arm-toleration": arm_toleration,
    "gpu-libraries": folders,
    "nccl-gib": folders,
    "aperture-devices": folders,
}
"""Of each entry of the table: that admission reads it in the API server's order, and that a rule judges the result."""


def test_every_injection_has_its_case() -> None:
    assert CASES.keys() == injections().keys()


@pytest.mark.parametrize("name", injections())
def test_what_gke_adds_is_admitted_and_judged(name: str) -> None:
    entry = injections()[name]
    assert entry.by and entry.when and "/" in entry.source
    adds = (entry.container, entry.gate, entry.resources, entry.folder)
    adds += (entry.selector, entry.toleration)
    assert len([each for each in adds if each]) == 1
    CASES[name](entry)


def pods_in(tree: Any) -> list[Manifest]:
    """The pod templates in a tree, whatever kind they belong to."""
    found: list[Manifest] = []
    if isinstance(tree, list):
        for each in tree:
            found += pods_in(each)
    elif isinstance(tree, dict):
        if "containers" in section(tree, "spec"):
            found.append(tree)
        for each in tree.values():
            found += pods_in(each)
    return found


GOLDENS = sorted((CHECKOUT / "tests" / "golden").rglob("*.yaml"))


def test_no_team_limits_what_gke_adds_to_the_pods_of_any_component() -> None:
    """Every pod of every stack, example and workload, in a team's namespace with its LimitRange."""
    amounts = {"gpus": 8, "cpu": "64", "memory": "1Ti", "storage": "1Ti"}
    team = TeamNamespaceSpec.model_validate({"namespace": "team", **amounts})
    limits = manifest_of(team, "LimitRange")
    count = 0
    for path in GOLDENS:
        for made in pods_in([*yaml.load_all(path.read_text(), yaml.CSafeLoader)]):
            annotations = section(made, "metadata", "annotations")
            if annotations.get(VOLUMES) != "true":
                continue
            count += 1
            plain = server(bucket())
            plain["spec"]["template"]["metadata"]["annotations"] = annotations
            resources = added("bucket-sidecar", plain, limits)
            assert resources["limits"]["cpu"] != "500m", path
            assert "injected-limits" not in rules(plain, limits), path
    assert count > 2


@pytest.mark.parametrize(
    ("env", "command", "finds_it"),
    [
        ([], None, True),
        ([{"name": "NCCL_TUNER_PLUGIN", "value": "none"}], None, False),
        ([], ["bash", "-c", ". /usr/local/gib/scripts/set_nccl_env.sh; exec train"], False),
    ],
)
def test_pods_with_several_gpus_set_nccls_plugin_up(
    env: list[Manifest], command: list[str] | None, finds_it: bool
) -> None:
    installing = template(containers=[{"name": "install", "image": "r/nccl-plugin-gib:v1"}])
    plugin = daemon_set("nccl-plugin", installing)
    main: Any = {"env": env} | ({"command": command} if command else {})
    assert ("nccl-plugin" in rules(server(gpus=8, **main), plugin)) is finds_it
    assert "nccl-plugin" not in rules(server(gpus=1, **main), plugin)
    assert "nccl-plugin" not in rules(server(gpus=8, **main))


@pytest.mark.parametrize(
    ("ssd", "option", "warned"),
    [(False, "-1", True), (False, "1000", False), (True, "-1", False)],
)
def test_copies_of_a_bucket_stay_below_the_boot_disk(ssd: bool, option: str, warned: bool) -> None:
    volumes = bucket(mountOptions=f"implicit-dirs,file-cache:max-size-mb:{option}")
    disks = {"localSsdCount": 2}
    local: Any = {"ephemeralStorageLocalSsdConfig": disks} if ssd else {}
    program = [ON_GKE, node_pool(**local), resource(server(volumes))]
    found = {each.rule for each in judge_program(program).findings}
    assert ("bucket-cache" in found) is warned
