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
    pool,
    quota,
    spread,
    stateful_set,
    template,
    workload,
)

GPU_TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


def verdict(*documents: Manifest) -> Verdict:
    return judge(documents).workloads[0].verdict


def rules(*documents: Manifest) -> list[str]:
    return [finding.rule for finding in judge(documents).workloads[0].reasons]


def warnings(*documents: Manifest) -> list[str]:
    return [finding.rule for finding in judge(documents).workloads[0].warnings]


@pytest.mark.parametrize(("replicas", "expected"), [(8, FITS), (9, CANNOT)])
def test_replicas_fill_the_nodes_and_no_more(replicas: int, expected: Verdict) -> None:
    assert verdict(deployment("web", replicas, template()), pool("p", 2)) is expected


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
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, OPEN),
    ],
)  # fmt: skip
def test_what_one_pod_asks_of_a_node(spec: Manifest, expected: Verdict) -> None:
    assert (
        verdict(deployment("web", 1, template(**spec)), pool("p", 2, {"disk": "ssd"})) is expected
    )


def test_the_values_that_do_not_decide_may_be_unknown() -> None:
    pods = template(
        containers=[container(cpu=1) | {"image": UNKNOWN, "env": [{"name": "A", "value": UNKNOWN}]}]
    )
    assert verdict(deployment("web", 1, pods), pool("p", 1)) is FITS
    assert rules(deployment("web", UNKNOWN, pods), pool("p", 1)) == ["unknown-value"]  # pyright: ignore[reportArgumentType]


def test_only_gpu_pods_tolerate_the_gpu_taint() -> None:
    gpus = pool("p", 1, taints=[GPU_TAINT], gpu="8")
    assert verdict(job("train", 1, template(containers=[container(gpu=8)])), gpus) is FITS
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
    assert (
        verdict(
            job("train", 1, template(containers=[{"name": "main", "resources": resources}])),
            pool("p", 1, gpu="8"),
        )
        is CANNOT
    )


# --- Pods and their number


def test_a_gang_needs_all_pods_at_once_and_a_job_does_not() -> None:
    nodes = pool("p", 1)
    assert verdict(job("sweep", 9, template()), nodes) is FITS
    assert warnings(job("sweep", 9, template()), nodes) == ["runs-in-turns"]
    assert verdict(job("train", 5, template(), gang=True), nodes) is CANNOT
    assert verdict(job("train", 5, template(), gang=True, completions=4), nodes) is FITS


def job_set(
    *jobs: tuple[str, int], gang: bool = False, after: Manifest | None = None, **spec: Any
) -> Manifest:
    """A JobSet with some pods in each Job; after holds what a Job waits for, and until when."""
    waiting = {
        name: {"dependsOn": [{"name": of, "status": status}]}
        for name, (of, status) in (after or {}).items()
    }
    of_jobs = [
        {
            "name": name,
            "replicas": count,
            "template": {"spec": {"template": template(**spec)}},
            **waiting.get(name, {}),
        }
        for name, count in jobs
    ]
    made = workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": of_jobs})
    made["metadata"]["annotations"] = {"ml-foundations/gang": "true"} if gang else {}
    return made


def test_a_job_set_that_is_a_gang_needs_all_its_jobs_at_once() -> None:
    assert verdict(job_set(("driver", 1), ("workers", 3), gang=True), pool("p", 1)) is FITS
    four = ("driver", 1), ("workers", 4)
    assert verdict(job_set(*four, gang=True), pool("p", 1)) is CANNOT
    ssd, unsure = pool("p", 1, {"disk": "ssd"}), pool("unsure", 1, {"disk": UNKNOWN})
    assert verdict(job_set(*four, gang=True, nodeSelector={"disk": "ssd"}), ssd) is CANNOT
    assert verdict(job_set(*four, gang=True, nodeSelector={"disk": "ssd"}), ssd, unsure) is OPEN


def test_other_job_sets_may_run_in_turns() -> None:
    """On a control plane, six pods on four CPUs completed, as they did not wait for each other."""
    six = job_set(("workers", 6))
    assert verdict(six, pool("p", 1)) is OPEN
    (reason, _) = judge([six, pool("p", 1)]).workloads[0].reasons
    assert (
        reason.rule == "runs-in-turns"
        and "whether they wait for each other is not known" in reason.message
    )
    assert verdict(job_set(("workers", 6), nodeSelector={"disk": "gone"}), pool("p", 1)) is CANNOT
    other = deployment("web", 3, template(), strategy={"type": "Recreate"})
    assert judge([job_set(("workers", 2)), other, pool("p", 1)]).stack is OPEN
    few = quota(hard={"pods": "2"})
    assert verdict(job_set(("workers", 3)), pool("p", 1), few) is OPEN
    assert verdict(job_set(("workers", 3), gang=True), pool("p", 1), few) is CANNOT


def test_jobs_run_after_the_jobs_that_they_depend_on() -> None:
    jobs = ("load", 4), ("train", 4), ("report", 2)
    in_turn = {"train": ("load", "Complete"), "report": ("train", "Complete")}
    assert verdict(job_set(*jobs, after=in_turn), pool("p", 1)) is FITS
    assert judge([job_set(*jobs, after=in_turn), pool("p", 1)]).stack is FITS
    assert verdict(job_set(*jobs, after={"train": ("load", "Ready")}), pool("p", 1)) is OPEN
    at_end = {"train": ("load", "Ready"), "report": ("train", "Complete")}
    assert (
        verdict(job_set(("load", 1), ("train", 3), ("report", 4), after=at_end), pool("p", 1))
        is OPEN
    )
    other = deployment("web", 3, template(), strategy={"type": "Recreate"})
    assert judge([job_set(*jobs, after=in_turn), other, pool("p", 1)]).stack is OPEN


def test_job_set_volumes_may_be_those_that_its_pods_mount() -> None:
    mounting = [container() | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
    train = job_set(("workers", 1), containers=mounting)
    assert verdict(train, pool("p", 1)) is CANNOT
    claims = [
        {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    ]
    train["spec"]["volumeClaimPolicies"] = [{"templates": claims}]
    assert verdict(train, pool("p", 1)) is OPEN
    train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = ""
    assert verdict(train, pool("p", 1)) is CANNOT


def test_pods_that_leave_their_node_make_no_verdict_certain() -> None:
    """On a control plane, a pod was evicted by its node's taint, and its anti-affinity with it."""
    taint = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoExecute"}
    runs = workload(
        "v1", "Pod", "old", template(containers=[container(cpu=4)])["spec"] | {"nodeName": "n"}
    )
    runs["status"] = {"phase": "Running"}
    new = job("new", 1, template(tolerations=[{"operator": "Exists"}]))
    assert verdict(new, runs, node("n")) is CANNOT
    tainted = node("n") | {"spec": {"taints": [taint]}}
    assert verdict(new, runs, tainted) is FITS
    owned = runs | {
        "metadata": runs["metadata"] | {"ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]}
    }
    assert verdict(new, owned, tainted) is OPEN
    stays = runs | {"spec": runs["spec"] | {"tolerations": [{"operator": "Exists"}]}}
    assert verdict(new, stays, tainted) is CANNOT
    for_a_time = runs | {
        "spec": runs["spec"] | {"tolerations": [{"operator": "Exists", "tolerationSeconds": 60}]}
    }
    assert verdict(new, for_a_time, tainted) is OPEN
    deleted = runs | {"metadata": runs["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert verdict(new, deleted, node("n")) is OPEN
    going = node("n")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert verdict(new, runs, going) is OPEN


def test_competition_is_undetermined_if_other_nodes_may_be_used() -> None:
    webs = [
        deployment(name, 3, template(nodeSelector={"disk": "ssd"}), strategy={"type": "Recreate"})
        for name in "ab"
    ]
    ssd, unsure = pool("p", 1, {"disk": "ssd"}), pool("unsure", 1, {"disk": UNKNOWN})
    assert judge([*webs, ssd]).stack is CANNOT
    assert judge([*webs, ssd, unsure]).stack is OPEN
    assert judge([*webs, unsure]).stack is OPEN


def test_an_autoscaler_and_a_rollout_only_warn() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = namespaced(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "web",
        spec={"minReplicas": 2, "maxReplicas": 9, "scaleTargetRef": target},
    )
    assert verdict(deployment("web", 4, template()), pool("p", 1), scaler) is FITS
    assert warnings(deployment("web", 4, template()), pool("p", 1), scaler) == [
        "rollout-surge",
        "autoscaling-ceiling",
    ]
    scaler["spec"]["minReplicas"] = 5
    assert verdict(deployment("web", 4, template()), pool("p", 1), scaler) is CANNOT


def test_daemon_sets_use_space_on_every_node_that_they_match() -> None:
    agent = daemon_set("agent", template({"app": "agent"}, nodeSelector={"disk": "ssd"}))
    assert verdict(deployment("web", 4, template()), pool("p", 1), agent) is FITS
    beside = deployment("web", 4, template()), pool("p", 1, {"disk": "ssd"}), agent
    assert verdict(*beside) is OPEN, "whichever comes first"
    assert judge(beside).stack is CANNOT
    assert verdict(agent, pool("p", 9, {"disk": "ssd"}, cpu="900m")) is CANNOT
    assert warnings(agent, pool("p", 9)) == ["daemon-set-without-nodes"]
    assert (rules(agent, unsure := pool("p", 9, {"disk": UNKNOWN})), warnings(agent, unsure)) == (
        ["node-selector"],
        [],
    )  # pyright: ignore[reportArgumentType]
    huge = daemon_set("huge", template({"app": "huge"}, containers=[container(cpu=5)]))
    assert verdict(deployment("web", 4, template()), pool("p", 1), huge) is FITS, (
        "where it cannot run it takes nothing"
    )


def test_pods_that_have_ended_are_no_company() -> None:
    follower = deployment("web", 1, template(affinity=affinity(app="db")))
    theirs = template({"app": "db"})
    assert verdict(follower, deployment("db", 1, theirs), node("n")) is FITS
    assert verdict(follower, job("db", 1, theirs, gang=True), node("n")) is OPEN
    assert verdict(follower, daemon_set("db", theirs), node("n")) is FITS
    agent = daemon_set("agent", template({"app": "agent"}, affinity=affinity(app="db")))
    assert verdict(agent, deployment("db", 1, theirs), node("n")) is FITS


def test_which_of_too_many_claims_are_refused_is_not_known() -> None:
    data, other = claim(storageClassName="fast"), claim(storageClassName="fast")
    other["metadata"] = {**other["metadata"], "name": "other"}
    documents = deployment("web", 1, template(**DATA)), node("n"), storage_class(), data, other
    assert verdict(*documents, quota(hard={"persistentvolumeclaims": "2"})) is FITS
    assert verdict(*documents, quota(hard={"persistentvolumeclaims": "1"})) is OPEN
    assert verdict(*documents, quota(hard={"persistentvolumeclaims": "0"})) is CANNOT


# --- Pods that look at each other


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
        (
            12,
            {"topologySpreadConstraints": [spread() | {"whenUnsatisfiable": "ScheduleAnyway"}]},
            FITS,
        ),
    ],
)
def test_pods_that_look_at_each_other(replicas: int, spec: Manifest, expected: Verdict) -> None:
    nodes = [pool("a", 2, {ZONE: "a"}), pool("b", 1, {ZONE: "b"})]
    assert verdict(deployment("web", replicas, template(**spec)), *nodes) is expected


def test_a_host_port_is_taken_once_per_node() -> None:
    pods = template(
        containers=[container(cpu=1) | {"ports": [{"containerPort": 80, "hostPort": 80}]}]
    )
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    assert verdict(deployment("web", 2, pods), pool("p", 2), team) is FITS
    assert verdict(deployment("web", 3, pods), pool("p", 2), team) is CANNOT


def test_pods_find_the_company_of_another_workload() -> None:
    web = deployment("web", 2, template(affinity=affinity(HOSTNAME, "cache")))
    cache = deployment("cache", 1, template({"app": "cache"}))
    assert verdict(web, cache, pool("p", 3)) is FITS
    assert verdict(web, pool("p", 3)) is CANNOT


# --- Pods that run already


def running(name: str, priority: int = 0) -> Manifest:
    pod = namespaced(
        "v1",
        "Pod",
        name,
        spec={"nodeName": "n", "priority": priority, "containers": [container(cpu=3)]},
    )
    return pod | {"status": {"phase": "Running"}}


def test_running_pods_take_room_unless_they_give_way() -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10,
    }
    polite = urgent | {"preemptionPolicy": "Never"}
    assert verdict(deployment("web", 1, template()), node("n"), running("old")) is FITS
    assert verdict(deployment("web", 2, template()), node("n"), running("old")) is CANNOT
    important = deployment("web", 2, template(priorityClassName="urgent"))
    assert warnings(important, node("n"), running("old"), urgent)[-1] == "preemption"
    assert verdict(important, node("n"), running("old", 10), urgent) is CANNOT
    assert verdict(important, node("n"), running("old"), polite) is CANNOT


def test_running_pods_of_a_judged_workload_count_once() -> None:
    mine = running("web-6d4b-x")
    mine["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-6d4b"}]
    mine["metadata"]["labels"] = {"pod-template-hash": "6d4b"}
    assert verdict(deployment("web", 4, template()), node("n"), mine) is FITS


def test_what_a_judged_workload_has_made_is_not_judged_itself() -> None:
    made = deployment("web-6d4b", 9, template()) | {"kind": "ReplicaSet"}
    made["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web"}]
    assert [
        str(item.workload) for item in judge([deployment("web", 1, template()), made]).workloads
    ] == ["Deployment team/web"]


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
    assert verdict(deployment("web", 2, template()), pool("p", 1), quota(hard=hard)) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"scopes": ["BestEffort"]}, FITS),
        ({"scopes": ["NotBestEffort"]}, CANNOT),
        ({"scopes": ["Terminating"]}, FITS),
        ({"scopes": ["NotTerminating"]}, CANNOT),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
                }
            },
            FITS,
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
                }
            },
            CANNOT,
        ),
        ({"scopes": ["CrossNamespacePodAffinity"]}, FITS),
    ],
)
def test_quotas_count_the_pods_of_their_scopes(spec: Manifest, expected: Verdict) -> None:
    assert (
        verdict(deployment("web", 2, template()), pool("p", 1), quota(hard={"pods": "1"}, **spec))
        is expected
    )


def test_a_plain_job_takes_turns_under_a_quota_too() -> None:
    assert verdict(job("sweep", 3, template()), pool("p", 1), quota(hard={"pods": "1"})) is FITS
    assert warnings(job("sweep", 3, template()), pool("p", 1), quota(hard={"pods": "1"})) == [
        "runs-in-turns"
    ]
    assert verdict(job("sweep", 3, template()), pool("p", 1), quota(hard={"pods": "0"})) is CANNOT


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
    asked = {
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}]
    disk = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    jobs = [
        job(name, 1, template({"app": name}, volumes=volumes), completions=2) for name in ("a", "b")
    ]
    verdicts = judge([*jobs, disk, pool("p", 1), quota(hard=hard)])
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
    given = [
        stateful_set("db", 2, pods, serviceName="db", podManagementPolicy=policy),
        *(node(n) for n in "ab"),
    ]
    assert verdict(*given) is expected


def test_a_limit_range_gives_what_a_quota_makes_containers_give() -> None:
    pods = template(containers=[{"name": "main"}])
    hard = quota(hard={"requests.cpu": "1"})
    assert rules(deployment("web", 1, pods), pool("p", 1), hard) == ["quota-requires"]
    assert (
        verdict(
            deployment("web", 1, pods),
            pool("p", 1),
            hard,
            limit_range({"type": "Container", "defaultRequest": {"cpu": "1"}}),
        )
        is FITS
    )
    assert rules(
        deployment("web", 1, pods),
        pool("p", 1),
        hard,
        limit_range({"type": "Container", "max": {"cpu": "2"}}),
    ) == ["quota"]


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
    assert verdict(deployment("web", 1, template()), pool("p", 1), limit_range(limit)) is expected


# --- Volumes


def storage_class(**fields: Any) -> Manifest:
    provisioner = {
        "provisioner": "pd.csi.storage.gke.io",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        **provisioner,
        **fields,
    }


DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.mark.parametrize(("zone", "expected"), [("a", FITS), ("b", CANNOT), ("a__b", FITS)])
def test_a_bound_volume_keeps_its_pods_in_its_zone(zone: str, expected: Verdict) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv", "labels": {ZONE: zone}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Ti"},
            "hostPath": {"path": "/data"},
        },
    }
    nodes = pool("p", 1, {ZONE: "a"})
    assert (
        verdict(deployment("web", 1, template(**DATA)), nodes, volume, claim(volumeName="pv"))
        is expected
    )


@pytest.mark.parametrize(("zones", "expected"), [(["a"], FITS), (["b"], CANNOT)])
def test_a_class_makes_volumes_in_its_topologies(zones: list[str], expected: Verdict) -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    documents = storage_class(allowedTopologies=topologies), claim(storageClassName="fast")
    assert (
        verdict(deployment("web", 1, template(**DATA)), pool("p", 1, {ZONE: "a"}), *documents)
        is expected
    )


@pytest.mark.parametrize(
    ("machine", "disk", "expected"),
    [
        ("a3-highgpu-8g", "pd-standard", CANNOT),
        ("a3-highgpu-8g", "hyperdisk-ml", FITS),
        ("n2-standard-8", "hyperdisk-ml", OPEN),
    ],
)
def test_a_disk_that_the_machine_does_not_attach(
    machine: str, disk: str, expected: Verdict
) -> None:
    nodes = pool("p", 1, {"node.kubernetes.io/instance-type": machine})
    documents = (
        storage_class(parameters={"type": disk}),
        claim(size="64Gi", storageClassName="fast"),
    )
    assert verdict(deployment("web", 1, template(**DATA)), nodes, *documents) is expected


def test_claims_of_a_stateful_set_count_against_the_quota() -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    shards = stateful_set(
        "shards", 2, template(), volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": spec}]
    )
    hard = {"fast.storageclass.storage.k8s.io/requests.storage": "2Gi"}
    assert verdict(shards, pool("p", 1), storage_class(), quota(hard=hard)) is FITS
    assert (
        verdict(shards, pool("p", 1), storage_class(), quota(hard={"persistentvolumeclaims": "1"}))
        is CANNOT
    )


def test_a_claim_that_comes_with_its_pod_is_named_after_both() -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    (found,) = judge([deployment("web", 1, template(volumes=[volume])), pool("p", 1)]).workloads
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
def test_a_claim_of_no_class_is_named_as_one(
    named: dict[str, Any], message: str, remedy: str
) -> None:
    data = claim(**named)
    data["spec"] = {
        key: value for key, value in data["spec"].items() if key != "storageClassName"
    } | named
    (found,) = judge([deployment("web", 1, template(**DATA)), pool("p", 1), data]).workloads
    assert [(reason.message, reason.remedy) for reason in found.reasons] == [(message, remedy)]


def test_one_pod_at_a_time_uses_a_claim_that_says_so() -> None:
    exclusive = claim(mode="ReadWriteOncePod", storageClassName="fast")
    assert (
        verdict(deployment("web", 1, template(**DATA)), pool("p", 1), storage_class(), exclusive)
        is FITS
    )
    assert (
        verdict(deployment("web", 2, template(**DATA)), pool("p", 1), storage_class(), exclusive)
        is CANNOT
    )


@pytest.mark.parametrize(
    ("documents", "warned"),
    [
        ([deployment("web", 2, template(**DATA)), pool("p", 2)], True),
        ([deployment("web", 2, template(**DATA)), pool("p", 1)], False),
        ([deployment("web", 1, template(**DATA)), pool("p", 2)], False),
        ([deployment("a", 1, template(**DATA)), job("b", 1, template(**DATA)), pool("p", 2)], True),
        ([deployment("a", 1, template(**DATA)), job("b", 1, template()), pool("p", 2)], False),
    ],
)
def test_a_disk_that_pods_on_several_nodes_mount_is_warned_of(
    documents: list[Manifest], warned: bool
) -> None:
    disk = storage_class(), claim(storageClassName="fast")
    workloads = judge([*documents, *disk]).workloads
    assert {item.verdict for item in workloads} == {FITS}
    rules = [warning.rule for item in workloads for warning in item.warnings]
    assert rules.count("volume-access") == warned


def test_all_that_keeps_a_workload_from_running_is_said_at_once() -> None:
    (found,) = judge(
        [deployment("web", 5, template()), pool("p", 1), quota(hard={"pods": "2"})]
    ).workloads
    assert {reason.rule for reason in found.reasons} == {"quota", "nodes"}
    (found,) = judge(
        [deployment("web", 4, template()), pool("p", 1), quota(hard={"pods": "2"})]
    ).workloads
    assert {reason.rule for reason in found.reasons} == {"quota"}


# --- All together


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([deployment("a", 2, template()), deployment("b", 2, template())], FITS),
        ([deployment("a", 2, template()), deployment("b", 3, template())], CANNOT),
        ([deployment("a", 2, template()), job("j", 4, template(), gang=True)], CANNOT),
        ([deployment("a", 3, template()), job("i", 3, template()), job("j", 3, template())], FITS),
        ([deployment("a", 4, template()), job("j", 1, template())], OPEN),
        (
            [
                deployment("a", 2, template()),
                deployment("b", 2, template()),
                quota(hard={"pods": "3"}),
            ],
            CANNOT,
        ),
    ],
)
def test_what_stays_must_fit_together_and_jobs_take_turns(
    documents: list[Manifest], expected: Verdict
) -> None:
    verdicts = judge([*documents, pool("p", 1)])
    assert {item.verdict for item in verdicts.workloads} == {FITS}
    assert verdicts.stack is expected


def test_where_the_order_decides_the_stack_is_undetermined() -> None:
    anywhere, picky = (
        deployment("a", 4, template()),
        deployment("b", 1, template(nodeSelector={"disk": "ssd"})),
    )
    assert judge([anywhere, picky, pool("p", 1), pool("q", 1, {"disk": "ssd"})]).stack is OPEN
    assert judge([anywhere, picky, pool("p", 1), pool("q", 2, {"disk": "ssd"})]).stack is FITS


def test_pods_with_a_higher_priority_displace_others() -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10,
    }
    picky = deployment("b", 1, template(nodeSelector={"disk": "ssd"}, priorityClassName="urgent"))
    nodes = pool("p", 1), pool("q", 1, {"disk": "ssd"})
    assert judge([deployment("a", 4, template()), picky, urgent, *nodes]).stack is FITS
    assert judge([deployment("a", 8, template()), picky, urgent, *nodes]).stack is CANNOT


def attributes(operator: str, *values: str) -> Manifest:
    expression = {"scopeName": "VolumeAttributesClass", "operator": operator}
    return {
        "scopeSelector": {
            "matchExpressions": [expression | ({"values": [*values]} if values else {})]
        }
    }


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
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
    }
    wanted |= {} if attributes_class is None else {"volumeAttributesClassName": attributes_class}
    shards = stateful_set(
        "shards",
        2,
        template(),
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": wanted}],
    )
    web, data = deployment("web", 1, template(**DATA)), claim(**wanted)
    for hard in (
        {"persistentvolumeclaims": "1"},
        {"requests.storage": "1Gi"},
        {"count/persistentvolumeclaims": "1"},
        {"fast.storageclass.storage.k8s.io/requests.storage": "1Gi"},
    ):
        assert (
            verdict(shards, pool("p", 1), storage_class(), quota(hard=hard, **spec)) is expected
        ), hard
        none = dict.fromkeys(hard, "0")
        assert (
            verdict(web, node("n"), storage_class(), data, quota(hard=none, **spec)) is expected
        ), none


def test_a_quota_of_claims_counts_no_pods_and_no_unknown_class() -> None:
    web = deployment("web", 2, template())
    assert (
        verdict(web, pool("p", 1), quota(hard={"count/pods": "0", "services": "0"}, **GOLD))
        is not CANNOT
    )
    unknown: Any = UNKNOWN
    data = claim(storageClassName="fast", volumeAttributesClassName=unknown)
    documents = deployment("web", 1, template(**DATA)), node("n"), storage_class(), data
    assert verdict(*documents, quota(hard={"persistentvolumeclaims": "0"}, **GOLD)) is OPEN


def test_a_claim_that_changes_its_class_counts_for_both() -> None:
    changing = claim(storageClassName="fast", volumeAttributesClassName="silver")
    changing["status"] = {"currentVolumeAttributesClassName": "gold", "phase": "Bound"}
    documents = deployment("web", 1, template()), pool("p", 1), storage_class(), changing
    (left,) = judge([*documents, quota(hard={"persistentvolumeclaims": "3"}, **GOLD)]).quotas
    assert left.left == {"persistentvolumeclaims": 2000}
