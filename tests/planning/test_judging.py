"""The verdicts, rule by rule: each case is on the edge, so that one more or less turns it."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict, judge

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    HOSTNAME,
    OPEN,
    ZONE,
    Manifest,
    affinity,
    anti_affinity,
    claim,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
    namespaced,
    node,
    node_affinity,
    pod,
    pool,
    quota,
    spread,
    stateful_set,
    template,
    workload,
)
from tests.support.cluster_objects import (
    autoscaler,
    claim_spec,
    claim_template,
    mounted,
    namespace,
    priority_class,
    storage_class,
    taint,
    using,
    volume,
    web,
)

GPU_TAINT = taint(GPU, "present")
NODE = pool("p", 1)
"""A node with four CPUs."""
DATA = mounted()
FAST = storage_class()


def verdict(*documents: Manifest) -> Verdict:
    return judge(documents).workloads[0].verdict


def rules(*documents: Manifest) -> list[str]:
    return [finding.rule for finding in judge(documents).workloads[0].reasons]


def warnings(*documents: Manifest) -> list[str]:
    return [finding.rule for finding in judge(documents).workloads[0].warnings]


@pytest.mark.parametrize(("replicas", "expected"), [(8, FITS), (9, CANNOT)])
def test_replicas_fill_the_nodes_and_no_more(replicas: int, expected: Verdict) -> None:
    assert verdict(web(replicas), pool("p", 2)) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, FITS),
        ({"nodeSelector": {"disk": "hdd"}}, CANNOT),
        ({"affinity": node_affinity({"key": "disk", "operator": "NotIn", "values": ["ssd"]})}, CANNOT),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}}, CANNOT),
        ({"nodeSelector": {HOSTNAME: "p-0"}}, OPEN),
        ({"affinity": node_affinity({"key": HOSTNAME, "operator": "Exists"})}, FITS),
        ({"nodeSelector": {"disk": UNKNOWN}}, OPEN),
        ({"schedulerName": "custom"}, OPEN),
        ({"schedulingGates": [{"name": "wait"}]}, OPEN),
        ({"priorityClassName": "gold"}, OPEN),
        ({"priorityClassName": "system-node-critical"}, FITS),
        ({"overhead": {"cpu": "3001m"}}, CANNOT),
        (DATA, OPEN),
    ],
)  # fmt: skip
def test_what_one_pod_asks_of_a_node(spec: Manifest, expected: Verdict) -> None:
    assert verdict(web(**spec), pool("p", 2, {"disk": "ssd"})) is expected


def test_the_values_that_do_not_decide_may_be_unknown() -> None:
    unknown = {"image": UNKNOWN, "env": [{"name": "A", "value": UNKNOWN}]}
    pods = template(containers=[container(cpu=1) | unknown])
    assert verdict(deployment("web", 1, pods), NODE) is FITS
    assert rules(deployment("web", UNKNOWN, pods), NODE) == ["unknown-value"]  # pyright: ignore[reportArgumentType]


def test_only_gpu_pods_tolerate_the_gpu_taint() -> None:
    gpus = pool("p", 1, taints=[GPU_TAINT], gpu="8")
    assert verdict(job("train", 1, using(gpu=8)), gpus) is FITS
    assert rules(job("prepare", 1, template()), gpus) == ["taint"]


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {GPU: "1"}},
        {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
        {"limits": {GPU: "500m"}},
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
    ],
)
def test_the_api_server_refuses_impossible_requests(resources: Manifest) -> None:
    train = job("train", 1, template(containers=[{"name": "main", "resources": resources}]))
    assert verdict(train, pool("p", 1, gpu="8")) is CANNOT


# --- Pods and their number


def test_a_gang_needs_all_pods_at_once_and_a_job_does_not() -> None:
    assert verdict(job("sweep", 9, template()), NODE) is FITS
    assert warnings(job("sweep", 9, template()), NODE) == ["runs-in-turns"]
    assert verdict(job("train", 5, template(), gang=True), NODE) is CANNOT
    assert verdict(job("train", 5, template(), gang=True, completions=4), NODE) is FITS


def job_set(
    *jobs: tuple[str, int], gang: bool = False, after: Manifest | None = None, **spec: Any
) -> Manifest:
    """A JobSet with some pods in each Job; after holds what a Job waits for, and until when."""
    of_jobs: list[Manifest] = []
    for name, count in jobs:
        made = {"spec": {"template": template(**spec)}}
        of_jobs.append({"name": name, "replicas": count, "template": made})
        if after and name in after:
            of, status = after[name]
            of_jobs[-1]["dependsOn"] = [{"name": of, "status": status}]
    made = workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": of_jobs})
    made["metadata"]["annotations"] = {"ml-foundations/gang": "true"} if gang else {}
    return made


SSD, UNSURE = pool("p", 1, {"disk": "ssd"}), pool("unsure", 1, {"disk": UNKNOWN})  # pyright: ignore[reportArgumentType]
THREE = deployment("web", 3, template(), strategy={"type": "Recreate"})


def test_a_job_set_that_is_a_gang_needs_all_its_jobs_at_once() -> None:
    assert verdict(job_set(("driver", 1), ("workers", 3), gang=True), NODE) is FITS
    four = ("driver", 1), ("workers", 4)
    assert verdict(job_set(*four, gang=True), NODE) is CANNOT
    picky = job_set(*four, gang=True, nodeSelector={"disk": "ssd"})
    assert verdict(picky, SSD) is CANNOT
    assert verdict(picky, SSD, UNSURE) is OPEN


def test_other_job_sets_may_run_in_turns() -> None:
    """On a control plane, six pods on four CPUs completed, as they did not wait for each other."""
    six = job_set(("workers", 6))
    assert verdict(six, NODE) is OPEN
    (reason, _) = judge([six, NODE]).workloads[0].reasons
    assert reason.rule == "runs-in-turns"
    assert "whether they wait for each other is not known" in reason.message
    assert verdict(job_set(("workers", 6), nodeSelector={"disk": "gone"}), NODE) is CANNOT
    assert judge([job_set(("workers", 2)), THREE, NODE]).stack is OPEN
    few = quota(hard={"pods": "2"})
    assert verdict(job_set(("workers", 3)), NODE, few) is OPEN
    assert verdict(job_set(("workers", 3), gang=True), NODE, few) is CANNOT


def test_jobs_run_after_the_jobs_that_they_depend_on() -> None:
    jobs = ("load", 4), ("train", 4), ("report", 2)
    in_turn = {"train": ("load", "Complete"), "report": ("train", "Complete")}
    assert verdict(job_set(*jobs, after=in_turn), NODE) is FITS
    assert judge([job_set(*jobs, after=in_turn), NODE]).stack is FITS
    assert verdict(job_set(*jobs, after={"train": ("load", "Ready")}), NODE) is OPEN
    at_end = {"train": ("load", "Ready"), "report": ("train", "Complete")}
    eight = ("load", 1), ("train", 3), ("report", 4)
    assert verdict(job_set(*eight, after=at_end), NODE) is OPEN
    assert judge([job_set(*jobs, after=in_turn), THREE, NODE]).stack is OPEN


def test_job_set_volumes_may_be_those_that_its_pods_mount() -> None:
    main = container() | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    train = job_set(("workers", 1), containers=[main])
    assert verdict(train, NODE) is CANNOT
    train["spec"]["volumeClaimPolicies"] = [{"templates": [claim_template()]}]
    open_train = judge([train, NODE]).workloads[0]
    assert open_train.verdict is OPEN
    assert {reason.rule for reason in open_train.reasons} == {"unknown-field"}
    refused = job_set(("workers", 1), containers=[main | {"image": ""}])
    refused["spec"]["volumeClaimPolicies"] = train["spec"]["volumeClaimPolicies"]
    assert verdict(refused, NODE) is CANNOT


TOLERANT = {"operator": "Exists"}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OLD = pod("old", template(containers=[container(cpu=4)], nodeName="n"), status={"phase": "Running"})
TAINTED = node("n", taints=[taint("cloud.google.com/gke-spot", "true", "NoExecute")])


def old(**spec: Any) -> Manifest:
    """The pod that runs, with other fields of its spec."""
    return OLD | {"spec": OLD["spec"] | spec}


def with_metadata(manifest: Manifest, **metadata: Any) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | metadata}


@pytest.mark.parametrize(
    ("runs", "on", "expected"),
    [
        (OLD, node("n"), CANNOT),
        (OLD, TAINTED, FITS),
        (with_metadata(OLD, ownerReferences=[{"kind": "ReplicaSet", "name": "r"}]), TAINTED, OPEN),
        (old(tolerations=[TOLERANT]), TAINTED, CANNOT),
        (old(tolerations=[TOLERANT | {"tolerationSeconds": 60}]), TAINTED, OPEN),
        (with_metadata(OLD, **DELETED), node("n"), OPEN),
        (OLD, with_metadata(node("n"), **DELETED), OPEN),
    ],
)
def test_pods_that_leave_their_node_make_no_verdict_certain(
    runs: Manifest, on: Manifest, expected: Verdict
) -> None:
    """On a control plane, a pod was evicted by its node's taint, and its anti-affinity with it."""
    assert verdict(job("new", 1, template(tolerations=[TOLERANT])), runs, on) is expected


def test_competition_is_undetermined_if_other_nodes_may_be_used() -> None:
    picky = template(nodeSelector={"disk": "ssd"})
    webs = [deployment(name, 3, picky, strategy={"type": "Recreate"}) for name in "ab"]
    assert judge([*webs, SSD]).stack is CANNOT
    assert judge([*webs, SSD, UNSURE]).stack is OPEN
    assert judge([*webs, UNSURE]).stack is OPEN


def test_an_autoscaler_and_a_rollout_only_warn() -> None:
    scaler = autoscaler(web(), minReplicas=2, maxReplicas=9)
    assert verdict(web(4), NODE, scaler) is FITS
    assert warnings(web(4), NODE, scaler) == ["rollout-surge", "autoscaling-ceiling"]
    scaler["spec"]["minReplicas"] = 5
    assert verdict(web(4), NODE, scaler) is CANNOT


def test_daemon_sets_use_space_on_every_node_that_they_match() -> None:
    agent = daemon_set("agent", template({"app": "agent"}, nodeSelector={"disk": "ssd"}))
    assert verdict(web(4), NODE, agent) is FITS
    assert verdict(web(4), SSD, agent) is OPEN, "whichever comes first"
    assert judge([web(4), SSD, agent]).stack is CANNOT
    assert verdict(agent, pool("p", 9, {"disk": "ssd"}, cpu="900m")) is CANNOT
    assert warnings(agent, pool("p", 9)) == ["daemon-set-without-nodes"]
    # The API server adds the toleration of GPUs to pods, and the controller has made none.
    tainted = pool("gpus", 1, {"disk": "ssd"}, [GPU_TAINT], gpu="1")
    monitor = daemon_set("agent", using({"app": "agent"}, gpu=1))
    (warning,) = judge([monitor, tainted]).workloads[0].warnings
    assert "untolerated taint nvidia.com/gpu" in warning.message
    assert "Tolerate nvidia.com/gpu" in warning.remedy
    assert rules(agent, UNSURE) == ["node-selector"]
    assert warnings(agent, UNSURE) == []
    huge = daemon_set("huge", using({"app": "huge"}, cpu=5))
    assert verdict(web(4), NODE, huge) is FITS, "where it cannot run it takes nothing"


GPUS_WITH_DRIVER = pool("gpus", 9, {"gpu": "l4", "driver": "default"})


def test_of_equally_near_nodes_a_daemon_set_names_those_with_its_labels() -> None:
    """It is for GPU nodes without GKE's driver, as GKE's own installer is."""
    expressions = [
        {"key": "gpu", "operator": "Exists"},
        {"key": "driver", "operator": "DoesNotExist"},
    ]
    agent = daemon_set("agent", template(affinity=node_affinity(*expressions)))
    for nodes in ([pool("p", 9), GPUS_WITH_DRIVER], [GPUS_WITH_DRIVER, pool("p", 9)]):
        (warning,) = judge([agent, *nodes]).workloads[0].warnings
        assert 'the nearest, "gpus"' in warning.message
        assert "driver DoesNotExist" in warning.message


def test_pods_that_have_ended_are_no_company() -> None:
    follower = deployment("web", 1, template(affinity=affinity(app="db")))
    theirs = template({"app": "db"})
    assert verdict(follower, deployment("db", 1, theirs), node("n")) is FITS
    assert verdict(follower, job("db", 1, theirs, gang=True), node("n")) is OPEN
    assert verdict(follower, daemon_set("db", theirs), node("n")) is FITS
    agent = daemon_set("agent", template({"app": "agent"}, affinity=affinity(app="db")))
    assert verdict(agent, deployment("db", 1, theirs), node("n")) is FITS


@pytest.mark.parametrize(("most", "expected"), [("2", FITS), ("1", OPEN), ("0", CANNOT)])
def test_which_of_too_many_claims_are_refused_is_not_known(most: str, expected: Verdict) -> None:
    claims = claim(storageClassName="fast"), claim("other", storageClassName="fast")
    limit = quota(hard={"persistentvolumeclaims": most})
    assert verdict(web(**DATA), node("n"), FAST, *claims, limit) is expected


# --- Pods that look at each other


ANYWAY = spread() | {"whenUnsatisfiable": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("replicas", "spec", "expected"),
    [
        (3, {"affinity": anti_affinity()}, FITS),
        (4, {"affinity": anti_affinity()}, CANNOT),
        (2, {"affinity": anti_affinity(ZONE)}, FITS),
        (3, {"affinity": anti_affinity(ZONE)}, CANNOT),
        (4, {"affinity": affinity(HOSTNAME)}, FITS),
        (5, {"affinity": affinity(HOSTNAME)}, CANNOT),
        (5, {"affinity": affinity(ZONE)}, OPEN),
        (1, {"affinity": affinity(ZONE, "cache")}, CANNOT),
        (9, {"topologySpreadConstraints": [spread()]}, FITS),
        (10, {"topologySpreadConstraints": [spread()]}, CANNOT),
        (1, {"topologySpreadConstraints": [spread(minDomains=3)]}, FITS),
        (3, {"topologySpreadConstraints": [spread(minDomains=3)]}, CANNOT),
        (12, {"topologySpreadConstraints": [spread(app="other")]}, FITS),
        (12, {"topologySpreadConstraints": [ANYWAY]}, FITS),
    ],
)
def test_pods_that_look_at_each_other(replicas: int, spec: Manifest, expected: Verdict) -> None:
    nodes = [pool("a", 2, {ZONE: "a"}), pool("b", 1, {ZONE: "b"})]
    assert verdict(web(replicas, **spec), *nodes) is expected


@pytest.mark.parametrize(("replicas", "expected"), [(2, FITS), (3, CANNOT)])
def test_a_host_port_is_taken_once_per_node(replicas: int, expected: Verdict) -> None:
    main = container(cpu=1) | {"ports": [{"containerPort": 80, "hostPort": 80}]}
    assert verdict(web(replicas, containers=[main]), pool("p", 2), namespace()) is expected


def test_pods_find_the_company_of_another_workload() -> None:
    follower = web(2, affinity=affinity(HOSTNAME, "cache"))
    cache = deployment("cache", 1, template({"app": "cache"}))
    assert verdict(follower, cache, pool("p", 3)) is FITS
    assert verdict(follower, pool("p", 3)) is CANNOT


# --- Pods that run already


def running(name: str, priority: int = 0) -> Manifest:
    spec = {"nodeName": "n", "priority": priority, "containers": [container(cpu=3)]}
    return namespaced("v1", "Pod", name, spec=spec, status={"phase": "Running"})


def test_running_pods_take_room_unless_they_give_way() -> None:
    urgent = priority_class("urgent", 10)
    assert verdict(web(), node("n"), running("old")) is FITS
    assert verdict(web(2), node("n"), running("old")) is CANNOT
    important = web(2, priorityClassName="urgent")
    assert warnings(important, node("n"), running("old"), urgent)[-1] == "preemption"
    assert verdict(important, node("n"), running("old", 10), urgent) is CANNOT
    polite = urgent | {"preemptionPolicy": "Never"}
    assert verdict(important, node("n"), running("old"), polite) is CANNOT


def test_pods_that_displace_others_may_be_near_a_neighbor() -> None:
    follower = web(priorityClassName="urgent", affinity=affinity(app="cache"))
    cache = deployment("cache", 1, template({"app": "cache"}))
    stack = [follower, cache, node("n"), running("old"), priority_class("urgent", 10)]
    assert verdict(*stack) is OPEN
    assert verdict(*stack[:3], running("old", 10), stack[4]) is CANNOT


def test_a_full_pool_is_not_one_without_gpus() -> None:
    one = [container(gpu=1)]
    old = namespaced("v1", "Pod", "old", spec={"nodeName": "n", "containers": one})
    old["status"] = {"phase": "Running"}
    findings = judge([web(containers=one), node("n", gpu=1), old]).findings
    assert findings[0].remedy == f"Add nodes to n, or free {GPU} there."


def test_running_pods_of_a_judged_workload_count_once() -> None:
    mine = running("web-6d4b-x")
    mine["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-6d4b"}]
    mine["metadata"]["labels"] = {"pod-template-hash": "6d4b"}
    assert verdict(web(4), node("n"), mine) is FITS


def test_what_a_judged_workload_has_made_is_not_judged_itself() -> None:
    made = deployment("web-6d4b", 9, template()) | {"kind": "ReplicaSet"}
    made["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web"}]
    (judged,) = judge([web(), made]).workloads
    assert str(judged.workload) == "Deployment team/web"


# --- Quotas and limits


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"requests.cpu": "2"}, FITS),
        ({"cpu": "1999m"}, CANNOT),
        ({"pods": "1"}, CANNOT),
        ({"count/deployments.apps": "0"}, CANNOT),
        ({"count/replicasets.apps": "1"}, FITS),
        ({"limits.memory": "1Gi"}, CANNOT),
        ({f"requests.{GPU}": "0"}, FITS),
    ],
)
def test_quotas_count_all_replicas(hard: Manifest, expected: Verdict) -> None:
    assert verdict(web(2), NODE, quota(hard=hard)) is expected


def of_scope(name: str, operator: str, *values: str) -> Manifest:
    """The field of a quota that counts what a scope selects."""
    expression = {"scopeName": name, "operator": operator}
    selected = expression | ({"values": [*values]} if values else {})
    return {"scopeSelector": {"matchExpressions": [selected]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"scopes": ["BestEffort"]}, FITS),
        ({"scopes": ["NotBestEffort"]}, CANNOT),
        ({"scopes": ["Terminating"]}, FITS),
        ({"scopes": ["NotTerminating"]}, CANNOT),
        (of_scope("PriorityClass", "Exists"), FITS),
        (of_scope("PriorityClass", "DoesNotExist"), CANNOT),
        ({"scopes": ["CrossNamespacePodAffinity"]}, FITS),
    ],
)
def test_quotas_count_the_pods_of_their_scopes(spec: Manifest, expected: Verdict) -> None:
    assert verdict(web(2), NODE, quota(hard={"pods": "1"}, **spec)) is expected


@pytest.mark.parametrize(
    ("most", "expected", "warned"), [("1", FITS, ["runs-in-turns"]), ("0", CANNOT, [])]
)
def test_a_plain_job_takes_turns_under_a_quota_too(
    most: str, expected: Verdict, warned: list[str]
) -> None:
    stack = job("sweep", 3, template()), NODE, quota(hard={"pods": most})
    assert verdict(*stack) is expected
    assert warnings(*stack) == warned


def own_volume(storage_class: str) -> Manifest:
    """A volume whose claim comes with its pod."""
    spec = claim_spec(storageClassName=storage_class)
    return {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"count/jobs.batch": "2"}, FITS),
        ({"count/jobs.batch": "1"}, CANNOT),
        ({"pods": "1"}, FITS),
        ({"count/pods": "4"}, FITS),
        ({"count/pods": "3"}, OPEN),
        ({"persistentvolumeclaims": "4"}, FITS),
        ({"persistentvolumeclaims": "3"}, OPEN),
        ({"requests.storage": "3Gi"}, OPEN),
    ],
)
def test_jobs_stay_and_what_their_pods_leave(hard: Manifest, expected: Verdict) -> None:
    """Two Jobs of two pods, one after the other, each with a volume of its own."""
    pods = {name: template({"app": name}, volumes=[own_volume("disk")]) for name in "ab"}
    jobs = [job(name, 1, made, completions=2) for name, made in pods.items()]
    disk = storage_class("disk", "disk.example.com")
    verdicts = judge([*jobs, disk, NODE, quota(hard=hard)])
    assert verdicts.stack is expected
    assert {item.verdict for item in verdicts.workloads} == {FITS}


@pytest.mark.parametrize(
    ("first", "policy", "expected"),
    [
        ("0", "OrderedReady", FITS),
        ("0", "Parallel", FITS),
        ("1", "OrderedReady", CANNOT),
        ("1", "Parallel", FITS),
    ],
)
def test_pods_of_a_stateful_set_want_to_be_near_one_of_them(
    first: str, policy: str, expected: Verdict
) -> None:
    """One that comes later is no company for those before it, if one comes after the other."""
    near = affinity()
    [term] = near["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["labelSelector"] = {"matchLabels": {"statefulset.kubernetes.io/pod-name": f"db-{first}"}}
    pods = template(affinity=near)
    db = stateful_set("db", 2, pods, serviceName="db", podManagementPolicy=policy)
    assert verdict(db, node("a"), node("b")) is expected


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ([], ["quota-requires"]),
        ([limit_range({"type": "Container", "defaultRequest": {"cpu": "1"}})], []),
        ([limit_range({"type": "Container", "max": {"cpu": "2"}})], ["quota"]),
    ],
)
def test_a_limit_range_gives_what_a_quota_makes_containers_give(
    limits: list[Manifest], refused: list[str]
) -> None:
    stack = web(containers=[{"name": "main"}]), NODE, quota(hard={"requests.cpu": "1"}), *limits
    assert rules(*stack) == refused
    assert verdict(*stack) is (CANNOT if refused else FITS)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"type": "Container", "max": {"cpu": "1"}}, FITS),
        ({"type": "Container", "max": {"cpu": "999m"}}, CANNOT),
        ({"type": "Container", "min": {"cpu": "1001m"}}, CANNOT),
        ({"type": "Pod", "max": {"cpu": "1"}}, FITS),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, CANNOT),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "1"}}, FITS),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, FITS),
    ],
)
def test_limit_ranges(limit: Manifest, expected: Verdict) -> None:
    assert verdict(web(), NODE, limit_range(limit)) is expected


# --- Volumes


@pytest.mark.parametrize(("zone", "expected"), [("a", FITS), ("b", CANNOT), ("a__b", FITS)])
def test_a_bound_volume_keeps_its_pods_in_its_zone(zone: str, expected: Verdict) -> None:
    bound = volume("pv", {ZONE: zone}, size="1Ti", hostPath={"path": "/data"})
    stack = web(**DATA), pool("p", 1, {ZONE: "a"}), bound, claim(volumeName="pv")
    assert verdict(*stack) is expected


@pytest.mark.parametrize(
    ("zones", "parameters", "expected"),
    [
        (["a"], {}, FITS),
        (["b"], {}, OPEN),
        (["a", "b"], {}, OPEN),
        # GKE's class for the weights of a model: a disk in each zone.
        (["a", "b"], {"enable-multi-zone-provisioning": "true"}, FITS),
        (["b", "c"], {"enable-multi-zone-provisioning": "true"}, OPEN),
        ([], {"enable-multi-zone-provisioning": "true"}, OPEN),
    ],
)
def test_a_class_that_makes_volumes_before_there_are_pods(
    zones: list[str], parameters: Manifest, expected: Verdict
) -> None:
    terms = [{"matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": zones}]}]
    given: Any = {"allowedTopologies": terms} if zones else {}
    given |= {"parameters": {"type": "hyperdisk-ml"} | parameters}
    early = storage_class(volumeBindingMode="Immediate", **given)
    wanted = claim(mode="ReadOnlyMany", size="64Gi", storageClassName="fast")
    assert verdict(web(**DATA), node("n", {"topology.gke.io/zone": "a"}), early, wanted) is expected


@pytest.mark.parametrize(("name", "expected"), [("a", FITS), ("b", CANNOT)])
@pytest.mark.parametrize("most", [None, "4"])
def test_nodes_of_gke_have_the_zone_that_its_disks_read(
    name: str, expected: Verdict, most: str | None
) -> None:
    topologies = [{"matchLabelExpressions": [{"key": "topology.gke.io/zone", "values": [name]}]}]
    made = storage_class(allowedTopologies=topologies)
    nodes = node("n", {ZONE: "a", "cloud.google.com/gke-nodepool": "p"})
    if most:
        nodes["metadata"]["annotations"] = {"ml-foundations/max-nodes": most}
    documents = [made, claim(storageClassName="fast"), web(**DATA), nodes]
    assert judge(documents).workloads[0].verdict is expected
    del nodes["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
    assert judge(documents).workloads[0].verdict is CANNOT


@pytest.mark.parametrize("gpus", [1, 2])
def test_workloads_compete_for_nodes_that_have_what_they_need(gpus: int) -> None:
    nodes = pool("plain", 1, cpu="64"), pool("gpus", 3, cpu="64", gpu=str(2 * gpus))
    rival = template({"app": "rival"}, containers=[container(cpu=1, gpu=gpus + 1)])
    pods = template(containers=[container(cpu=1, gpu=gpus + 1)])
    stack = deployment("web", 2, pods), deployment("rival", 2, rival), *nodes
    (found,) = [each for each in judge([*stack]).findings if each.rule == "competition"]
    assert "plain" not in found.message + found.remedy
    assert "gpus" in found.remedy


def test_a_doubt_about_nodes_names_one_with_room() -> None:
    machines = [("a", "n2-standard-8", {}), ("b", "n1-standard-8", {"gpu": "1"})]
    nodes = [
        pool(name, 1, {"node.kubernetes.io/instance-type": machine, ZONE: "a"}, **offered)
        for name, machine, offered in machines
    ]
    made = storage_class(parameters={"type": "hyperdisk-ml"})
    serving = deployment("web", 1, template(containers=[container(gpu=1)], **DATA))
    claimed = claim(storageClassName="fast", size="1Ti")
    (workload,) = judge([made, claimed, serving, *nodes]).workloads
    assert [reason.message.split()[0] for reason in workload.reasons] == ['"b"']


@pytest.mark.parametrize(("zones", "expected"), [(["a"], FITS), (["b"], CANNOT)])
def test_a_class_makes_volumes_in_its_topologies(zones: list[str], expected: Verdict) -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    fast = storage_class(allowedTopologies=topologies)
    stack = web(**DATA), pool("p", 1, {ZONE: "a"}), fast, claim(storageClassName="fast")
    assert verdict(*stack) is expected


@pytest.mark.parametrize(
    ("machine", "disk", "expected"),
    [
        ("a3-highgpu-8g", "pd-standard", CANNOT),
        ("a3-highgpu-8g", "hyperdisk-ml", FITS),
        ("n2-standard-8", "hyperdisk-ml", OPEN),
        # GKE takes a disk that the node attaches: one of two types.
        ("g2-standard-12", "dynamic", FITS),
        ("a3-ultragpu-8g", "dynamic", FITS),
    ],
)
def test_a_disk_that_the_machine_does_not_attach(
    machine: str, disk: str, expected: Verdict
) -> None:
    nodes = pool("p", 1, {"node.kubernetes.io/instance-type": machine})
    fast = storage_class(parameters={"type": disk})
    wanted = claim(size="64Gi", storageClassName="fast")
    assert verdict(web(**DATA), nodes, fast, wanted) is expected


@pytest.mark.parametrize(
    ("pd", "expected"), [("pd-balanced", FITS), ("pd-standard", CANNOT), ("pd-new", CANNOT)]
)
def test_a_class_names_the_disks_of_which_the_node_takes_one(pd: str, expected: Verdict) -> None:
    nodes = pool("p", 1, {"node.kubernetes.io/instance-type": "g2-standard-12"})
    fast = storage_class(parameters={"type": "dynamic", "pd-type": pd})
    wanted = claim(size="64Gi", storageClassName="fast")
    assert verdict(web(**DATA), nodes, fast, wanted) is expected


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"fast.storageclass.storage.k8s.io/requests.storage": "2Gi"}, FITS),
        ({"persistentvolumeclaims": "1"}, CANNOT),
    ],
)
def test_claims_of_a_stateful_set_count_against_the_quota(
    hard: Manifest, expected: Verdict
) -> None:
    assert verdict(shards(storageClassName="fast"), NODE, FAST, quota(hard=hard)) is expected


def shards(**claims: Any) -> Manifest:
    """A StatefulSet of two pods with a claim each; the keywords are fields of the claims."""
    return stateful_set("shards", 2, template(), volumeClaimTemplates=[claim_template(**claims)])


def test_a_claim_that_comes_with_its_pod_is_named_after_both() -> None:
    (found,) = judge([web(volumes=[own_volume("slow")]), NODE]).workloads
    assert [reason.message for reason in found.reasons] == [
        "the storage class slow of claim <pod>-cache is not declared"
    ]


@pytest.mark.parametrize(
    ("named", "message", "remedy"),
    [
        (
            {},
            "claim data names no storage class, and no default StorageClass is declared",
            "Set its spec.storageClassName to a class, or declare a default StorageClass.",
        ),
        (
            {"storageClassName": ""},
            'claim data has storageClassName "", and no PersistentVolume without a class is declared',
            "Set its spec.storageClassName to a class, or declare a PersistentVolume without a class.",
        ),
        (
            {"storageClassName": "x"},
            "the storage class x of claim data is not declared",
            "Declare the StorageClass x.",
        ),
    ],
)
def test_a_claim_of_no_class_is_named_as_one(named: Manifest, message: str, remedy: str) -> None:
    (found,) = judge([web(**DATA), NODE, claim(**named)]).workloads
    assert [(reason.message, reason.remedy) for reason in found.reasons] == [(message, remedy)]


@pytest.mark.parametrize(("replicas", "expected"), [(1, FITS), (2, CANNOT)])
def test_one_pod_at_a_time_uses_a_claim_that_says_so(replicas: int, expected: Verdict) -> None:
    exclusive = claim(mode="ReadWriteOncePod", storageClassName="fast")
    assert verdict(web(replicas, **DATA), NODE, FAST, exclusive) is expected


@pytest.mark.parametrize(
    ("documents", "warned"),
    [
        ([web(2, **DATA), pool("p", 2)], True),
        ([web(2, **DATA), pool("p", 1)], False),
        ([web(1, **DATA), pool("p", 2)], False),
        ([deployment("a", 1, template(**DATA)), job("b", 1, template(**DATA)), pool("p", 2)], True),
        ([deployment("a", 1, template(**DATA)), job("b", 1, template()), pool("p", 2)], False),
    ],
)
def test_a_disk_that_pods_on_several_nodes_mount_is_warned_of(
    documents: list[Manifest], warned: bool
) -> None:
    workloads = judge([*documents, FAST, claim(storageClassName="fast")]).workloads
    assert {item.verdict for item in workloads} == {FITS}
    rules = [warning.rule for item in workloads for warning in item.warnings]
    assert rules.count("volume-access") == warned


@pytest.mark.parametrize(("replicas", "refused"), [(5, {"quota", "nodes"}), (4, {"quota"})])
def test_all_that_keeps_a_workload_from_running_is_said_at_once(
    replicas: int, refused: set[str]
) -> None:
    assert {*rules(web(replicas), NODE, quota(hard={"pods": "2"}))} == refused


# --- All together


def of_pods(name: str, replicas: int) -> Manifest:
    return deployment(name, replicas, template())


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([of_pods("a", 2), of_pods("b", 2)], FITS),
        ([of_pods("a", 2), of_pods("b", 3)], CANNOT),
        ([of_pods("a", 2), job("j", 4, template(), gang=True)], CANNOT),
        ([of_pods("a", 3), job("i", 3, template()), job("j", 3, template())], FITS),
        ([of_pods("a", 4), job("j", 1, template())], OPEN),
        ([of_pods("a", 2), of_pods("b", 2), quota(hard={"pods": "3"})], CANNOT),
    ],
)
def test_what_stays_must_fit_together_and_jobs_take_turns(
    documents: list[Manifest], expected: Verdict
) -> None:
    verdicts = judge([*documents, NODE])
    assert {item.verdict for item in verdicts.workloads} == {FITS}
    assert verdicts.stack is expected


def test_pods_that_come_near_a_gang_may_stay_when_the_next_one_comes() -> None:
    follower = deployment("web", 1, template(affinity=affinity(app="a")))
    gangs = [job(name, 2, template({"app": name}), gang=True) for name in ("a", "b")]
    assert judge([follower, *gangs, NODE]).stack is OPEN
    alone = deployment("web", 3, template())
    assert judge([alone, *gangs, NODE]).stack is CANNOT


def picky(**spec: Any) -> Manifest:
    return deployment("b", 1, template(nodeSelector={"disk": "ssd"}, **spec))


@pytest.mark.parametrize(("nodes", "expected"), [(1, OPEN), (2, FITS)])
def test_where_the_order_decides_the_stack_is_undetermined(nodes: int, expected: Verdict) -> None:
    stack = [of_pods("a", 4), picky(), NODE, pool("q", nodes, {"disk": "ssd"})]
    assert judge(stack).stack is expected


@pytest.mark.parametrize(("replicas", "expected"), [(4, FITS), (8, CANNOT)])
def test_pods_with_a_higher_priority_displace_others(replicas: int, expected: Verdict) -> None:
    urgent = [picky(priorityClassName="urgent"), priority_class("urgent", 10)]
    nodes = NODE, pool("q", 1, {"disk": "ssd"})
    assert judge([of_pods("a", replicas), *urgent, *nodes]).stack is expected


def attributes(operator: str, *values: str) -> Manifest:
    return of_scope("VolumeAttributesClass", operator, *values)


GOLD = attributes("In", "gold")


@pytest.mark.parametrize(
    ("spec", "attributes_class", "expected"),
    [
        ({"scopes": ["VolumeAttributesClass"]}, "gold", CANNOT),
        ({"scopes": ["VolumeAttributesClass"]}, None, FITS),
        ({"scopes": ["VolumeAttributesClass"]}, "", FITS),
        (GOLD, "gold", CANNOT),
        (GOLD, "silver", FITS),
        (GOLD, None, FITS),
        (attributes("NotIn", "gold"), "gold", FITS),
        (attributes("NotIn", "gold"), None, CANNOT),
        (attributes("DoesNotExist"), None, CANNOT),
        (attributes("DoesNotExist"), "gold", FITS),
    ],
)
def test_quotas_count_the_claims_of_their_scope(
    spec: Manifest, attributes_class: str | None, expected: Verdict
) -> None:
    wanted: Manifest = {"storageClassName": "fast"}
    wanted |= {} if attributes_class is None else {"volumeAttributesClassName": attributes_class}
    for hard in (
        {"persistentvolumeclaims": "1"},
        {"requests.storage": "1Gi"},
        {"count/persistentvolumeclaims": "1"},
        {"fast.storageclass.storage.k8s.io/requests.storage": "1Gi"},
    ):
        some, none = quota(hard=hard, **spec), quota(hard=dict.fromkeys(hard, "0"), **spec)
        assert verdict(shards(**wanted), NODE, FAST, some) is expected, hard
        assert verdict(web(**DATA), node("n"), FAST, claim(**wanted), none) is expected, hard


def test_a_quota_of_claims_counts_no_pods_and_no_unknown_class() -> None:
    others = quota(hard={"count/pods": "0", "services": "0"}, **GOLD)
    assert verdict(web(2), NODE, others) is not CANNOT
    unknown: Any = UNKNOWN
    data = claim(storageClassName="fast", volumeAttributesClassName=unknown)
    none = quota(hard={"persistentvolumeclaims": "0"}, **GOLD)
    assert verdict(web(**DATA), node("n"), FAST, data, none) is OPEN


def test_a_claim_that_changes_its_class_counts_for_both() -> None:
    changing = claim(storageClassName="fast", volumeAttributesClassName="silver")
    changing["status"] = {"currentVolumeAttributesClassName": "gold", "phase": "Bound"}
    few = quota(hard={"persistentvolumeclaims": "3"}, **GOLD)
    (left,) = judge([web(), NODE, FAST, changing, few]).quotas
    assert left.left == {"persistentvolumeclaims": 2000}
