"""What runs already counts once: the objects of a cluster as kubectl prints them, and one more Job."""

import copy
from typing import Any

import pytest
from ml_foundations.planning import Verdict, Verdicts, judge
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    ZONE,
    Manifest,
    claim,
    container,
    daemon_set,
    deployment,
    job,
    namespaced,
    node,
    quota,
    stateful_set,
    template,
    workload,
)
from tests.support.cluster_objects import (
    PD,
    mounted,
    namespace,
    priority_class,
    storage_class,
    using,
    volume,
    web,
)

PODS = template(containers=[container(cpu=2)], serviceAccountName="not-in-the-list")
ONE_CPU: Any = {"containers": [container(cpu=1) | {"image": "i"}]}
"""The pods of an agent as they run."""
OF_DEFAULT = {"serviceAccountName": "default"}


def stored(manifest: Manifest, **status: Any) -> Manifest:
    """An object as the API server has it."""
    found = copy.deepcopy(manifest)
    found["metadata"]["uid"] = f"uid-of-{found['metadata']['name']}"
    return {**found, "status": status}


def reference(owner: Manifest) -> Manifest:
    name = owner["metadata"]["name"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name}


def pod_of(
    owner: Manifest, number: int, on: str | None = "n", phase: str = "Running", **spec: Any
) -> Manifest:
    two_cpus = {"containers": [container(cpu=2) | {"image": "i"}]}
    made = PODS["spec"] | two_cpus | spec | ({"nodeName": on} if on else {})
    found = namespaced("v1", "Pod", f"{owner['metadata']['name']}-{number}", spec=made)
    found["metadata"] |= {"labels": {"app": "web"}, "ownerReferences": [reference(owner)]}
    return stored(found, phase=phase)


def quotas(cpu: int, used: int, **more: int) -> Manifest:
    names = {"requests.cpu": (cpu, used), **{name: (9, count) for name, count in more.items()}}
    hard = {name: str(most) for name, (most, _) in names.items()}
    taken = {name: str(count) for name, (_, count) in names.items()}
    return stored(quota(hard=hard), hard=hard, used=taken)


WEB = stored(deployment("web", 3, PODS), replicas=3)
AGENT = stored(daemon_set("agent", using(cpu=1)), desiredNumberScheduled=1)
HEALTHY = [
    node("n", cpu="10"),
    WEB,
    *(pod_of(WEB, number) for number in range(3)),
    AGENT,
    pod_of(AGENT, 0, **ONE_CPU),
    stored(job("done", 1, PODS), succeeded=1, conditions=[{"type": "Complete", "status": "True"}]),
    quotas(9, 7),
]
"""Seven of ten cores and of nine of the quota are taken."""


def verdicts_of(found: Verdicts) -> dict[str, Verdict]:
    return {str(each.workload): each.verdict for each in found.workloads}


def test_a_healthy_cluster_fits() -> None:
    found = judge(HEALTHY)
    assert verdicts_of(found) == {"Deployment team/web": FITS, "DaemonSet team/agent": FITS}
    assert (found.stack, found.findings) == (FITS, [])
    assert found.quotas[0].left == {"requests.cpu": 2000}


def test_replica_set_pods_do_not_count_for_a_similar_deployment() -> None:
    alone = stored(deployment("web-2", 3, PODS) | {"kind": "ReplicaSet"}, replicas=3)
    pods = [pod_of(alone, number) for number in range(3)]
    six = node("n", cpu="6")
    assert verdicts_of(judge([six, alone, WEB, *pods])) == {
        "ReplicaSet team/web-2": FITS,
        "Deployment team/web": CANNOT,
    }
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["name"] = "web-6d4b"
        pod["metadata"]["labels"]["pod-template-hash"] = "6d4b"
    assert verdicts_of(judge([six, WEB, *pods])) == {"Deployment team/web": FITS}


def test_namespaces_and_priorities_change_no_running_verdict() -> None:
    """As GKE has them, with an agent of its own that looks into nodes."""
    critical = template(
        containers=[container(cpu=1)], hostNetwork=True, priorityClassName="system-node-critical"
    )
    agent = stored(daemon_set("logs", critical), desiredNumberScheduled=1)
    pod = pod_of(agent, 0, **ONE_CPU, hostNetwork=True)
    for made in (agent, pod):
        made["metadata"]["namespace"] = "gke-managed-system"
    on_gke = node("n", {"cloud.google.com/gke-nodepool": "p"}, cpu="10")
    export = [on_gke, *HEALTHY[1:], agent, pod]
    spaces = [
        namespace(name, **{"kubernetes.io/metadata.name": name})
        for name in ("team", "gke-managed-system")
    ]
    more = [
        *(
            stored(space | {"spec": {"finalizers": ["kubernetes"]}}, phase="Active")
            for space in spaces
        ),
        priority_class("system-node-critical", 2_000_001_000, globalDefault=False),
        priority_class("gmp-critical", 1_000_000_000, globalDefault=False),
    ]
    for made in more[2:]:
        made["metadata"]["uid"] = "of-a-class"
    for documents in (export, [*export, *more]):
        found = judge(documents)
        assert set(verdicts_of(found).values()) == {FITS}
        assert (found.stack, found.findings) == (FITS, [])


@pytest.mark.parametrize(("cpu", "expected", "refused"), [(2, FITS, set()), (3, CANNOT, {"quota"})])
def test_one_more_job_is_judged_against_what_is_left(
    cpu: int, expected: Verdict, refused: set[str]
) -> None:
    found = judge([*HEALTHY, job("more", 1, using(cpu=cpu))])
    assert verdicts_of(found)["Job team/more"] is expected
    assert {each.rule for each in found.workloads[-1].reasons} == refused


@pytest.mark.parametrize(
    ("running", "cores", "expected"), [(2, 6, FITS), (2, 5, CANNOT), (0, 5, CANNOT), (0, 6, FITS)]
)
def test_pods_that_do_not_run_yet_need_what_is_left(
    running: int, cores: int, expected: Verdict
) -> None:
    web = stored(deployment("web", 3, using(cpu=2)), replicas=3)
    up = [pod_of(web, n, **OF_DEFAULT) for n in range(running)]
    waiting = [pod_of(web, n, None, "Pending", **OF_DEFAULT) for n in range(running, 3)]
    found = judge([node("n", cpu=str(cores)), web, *up, *waiting, quotas(6, 6, pods=3)])
    assert verdicts_of(found) == {"Deployment team/web": expected}
    assert found.quotas[0].left["requests.cpu"] == 0


def test_a_changed_workload_replaces_its_pods() -> None:
    web = deployment("web", 3, using(cpu=2))
    found = judge([node("n", cpu="6"), web, *(pod_of(web, n) for n in range(3)), quotas(6, 6)])
    assert found.stack is FITS


def test_a_job_needs_no_pods_that_have_succeeded() -> None:
    run = stored(job("run", 4, using(cpu=2), gang=True, completions=10), active=0, succeeded=9)
    assert judge([node("n", cpu="2"), run]).stack is FITS
    run["status"]["succeeded"] = 8
    assert judge([node("n", cpu="2"), run]).stack is CANNOT


def test_objects_that_are_there_are_used_already() -> None:
    full = quota(hard={"count/deployments.apps": "1", "count/replicasets.apps": "1"})
    used = stored(full, used=full["spec"]["hard"])
    web = deployment("web", 1, template())
    assert judge([node("n"), stored(web), used]).stack is FITS
    assert judge([node("n"), web, used]).stack is CANNOT


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Always", CANNOT), ("Never", OPEN), ("OnFailure", OPEN)],
)
@pytest.mark.parametrize("cores", [3, 4])
def test_pods_that_run_and_may_end_make_room_some_day(
    policy: str, expected: Verdict, cores: int
) -> None:
    """On the node, or in the quota; what they leave is not enough for a larger one."""
    run = stored(job("run", 1, PODS), active=1)
    running = pod_of(run, 0, restartPolicy=policy, serviceAccountName="default")
    cluster = [node("n", cpu=str(cores)), run, running, quotas(3, 2)]
    for cpu, verdict in ((1, FITS), (2, expected), (5, CANNOT)):
        found = judge([*cluster, job("more", 1, using(cpu=cpu))])
        assert verdicts_of(found)["Job team/more"] is verdict


def test_a_reference_to_another_api_is_none() -> None:
    web = deployment("web", 1, using(cpu=4))
    other = web | {"apiVersion": "apps.kruise.io/v1"}
    for owner, expected in ((web, FITS), (other, CANNOT)):
        pod = pod_of(owner, 0, serviceAccountName="default")
        assert judge([node("n", cpu="5"), web, pod]).stack is expected


CLAIM = claim(storageClassName="fast")
FAST = storage_class()


def test_an_existing_stateful_set_claim_counts_once() -> None:
    db = stateful_set("db", 1, template(), volumeClaimTemplates=[CLAIM])
    one = quota(hard={"persistentvolumeclaims": "1"})
    existing, other = (claim(name, storageClassName="fast") for name in ("data-db-0", "other"))
    assert judge([node("n"), FAST, db, one, existing]).stack is FITS
    assert judge([node("n"), FAST, db, one, other]).stack is not FITS
    bound: Any = {
        "claimRef": {"namespace": "team", "name": "data-db-0"},
        "csi": {"driver": PD, "volumeHandle": "h"},
    }
    disk = volume("pv", {ZONE: "a"}, storageClassName="fast", **bound)
    for at, expected in (("a", FITS), ("b", OPEN)):
        assert judge([node("n", {ZONE: at}), FAST, db, disk, existing]).stack is expected


@pytest.mark.parametrize(("phase", "expected"), [("Bound", FITS), ("Released", CANNOT)])
def test_a_volume_whose_claim_was_deleted_is_no_later_ones(phase: str, expected: Verdict) -> None:
    """A claim of the same name is another one (Kubernetes, "Persistent Volumes", reclaiming)."""
    of_local: Any = {"storageClassName": "local", "nfs": {"server": "s", "path": "/"}}
    earlier = {"namespace": "team", "name": "data", "uid": "earlier"}
    kept = stored(volume(claimRef=earlier, **of_local), phase=phase)
    others = [
        storage_class("local", "kubernetes.io/no-provisioner"),
        volume("small", size="1Mi", **of_local),
        claim("data", storageClassName="local"),
    ]
    found = judge([node("n"), kept, *others, deployment("new", 1, template(**mounted()))])
    assert found.workloads[0].verdict is expected


@pytest.mark.parametrize(
    ("phase", "expected"), [("Available", FITS), ("Pending", FITS), ("Failed", CANNOT)]
)
def test_only_an_available_volume_is_free(phase: str, expected: Verdict) -> None:
    """Kubernetes 1.36.3, component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume."""
    of_class: Any = {"storageClassName": "local", "nfs": {"server": "s", "path": "/"}}
    objects = [
        storage_class("local", "kubernetes.io/no-provisioner"),
        stored(volume(**of_class), phase=phase),
        claim("data", storageClassName="local"),
    ]
    verdicts = judge([node("n"), *objects, deployment("new", 1, template(**mounted()))])
    assert verdicts.workloads[0].verdict is expected


def test_pods_of_a_shared_claim_follow_the_first_ones_zone() -> None:
    pods = template(containers=[container(cpu=2)], **mounted())
    shared = claim("data", mode="ReadWriteMany", storageClassName="fast")
    for second, kind, expected in (
        ("a", deployment("web", 2, pods), FITS),
        ("b", deployment("web", 2, pods), OPEN),
        ("b", deployment("web", 1, pods), FITS),
        ("b", job("run", 2, pods), FITS),
    ):
        nodes = [node("one", {ZONE: "a"}, cpu="2"), node("two", {ZONE: second}, cpu="2")]
        found = judge([*nodes, FAST, shared, kind]).workloads[0]
        assert found.verdict is expected or "volume-class" in {each.rule for each in found.reasons}


def test_a_claim_of_one_pod_is_taken_by_the_pod_that_runs() -> None:
    pods = template(containers=[container(cpu=1)], **mounted())
    mine = stored(deployment("mine", 1, pods), replicas=1)
    runs = pod_of(mine, 0, **ONE_CPU, **mounted())
    exclusive = claim("data", mode="ReadWriteOncePod", storageClassName="fast")
    there = [node("n", cpu="10"), FAST, exclusive]
    more = deployment("more", 1, pods)
    for documents, expected in (
        ([mine, runs], [FITS]),
        ([mine, runs, more], [FITS, CANNOT]),
        ([more], [FITS]),
    ):
        assert list(verdicts_of(judge([*there, *documents])).values()) == expected


ON_GKE = {"cloud.google.com/gke-nodepool": "p"}


@pytest.mark.parametrize(
    ("labels", "cpu", "limit", "expected"),
    [
        ({}, "3", {}, FITS),
        (ON_GKE, "3", {}, CANNOT),
        (ON_GKE, "3250m", {}, FITS),
        (ON_GKE, "3250m", {"gke-gcsfuse/cpu-limit": "1"}, CANNOT),
    ],
)
def test_gke_runs_a_sidecar_where_buckets_are_mounted(
    labels: Manifest, cpu: str, limit: Manifest, expected: Verdict
) -> None:
    pods = using(cpu=3)
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true", **limit}
    nodes = node("n", labels, cpu=cpu, **{"ephemeral-storage": "50Gi"})
    assert judge([nodes, deployment("web", 1, pods)]).stack is expected


def test_a_resource_of_a_device_class_is_not_known() -> None:
    name: Any = "deviceclass.resource.kubernetes.io/tpu"
    (found,) = judge([node("n"), deployment("web", 1, using(**{name: 1}))]).workloads
    assert found.verdict is OPEN
    path = f"spec.template.spec.containers[0].resources.limits.{name}"
    assert path in {each.path for each in found.reasons}


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ({"exactly": {"deviceClassName": "gpu", "count": 3}}, 3),
        ({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}, 32),
        ({"firstAvailable": [{"deviceClassName": "gpu", "count": count} for count in (2, 5)]}, 5),
    ],
)
def test_a_quota_counts_the_most_devices_that_a_claim_may_get(
    request_: Manifest, count: int
) -> None:
    spec = {"spec": {"devices": {"requests": [{"name": "r", **request_}]}}}
    made = namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "t", spec=spec)
    server = web(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    for most, expected in ((count, OPEN), (count - 1, CANNOT)):
        limit = quota(hard={"gpu.deviceclass.resource.k8s.io/devices": str(most)})
        assert judge([node("n"), made, limit, server]).stack is expected


def test_a_job_set_makes_a_service() -> None:
    jobs = [{"name": "w", "template": {"spec": {"template": template(restartPolicy="Never")}}}]
    many = workload("jobset.x-k8s.io/v1alpha2", "JobSet", "many", {"replicatedJobs": jobs})
    none = quota(hard={"services": "0"})
    assert judge([node("n"), many, none]).stack is CANNOT
    many["spec"]["network"] = {"enableDNSHostnames": False}
    assert judge([node("n"), many, none]).stack is FITS


def test_numbers_are_for_people() -> None:
    web = deployment("web", 1, template(containers=[container(memory="1885335478Ki")]))
    text = judge([node("n", memory="51539607360"), web]).workloads[0].reasons[0].message
    assert "1798Gi" in text and "48Gi" in text and "Ki" not in text


def owned(made: Manifest, owner: Manifest) -> Manifest:
    """An object that a controller has made."""
    made["metadata"]["ownerReferences"] = [reference(owner)]
    return stored(made)


def running(name: str, owner: Manifest, **metadata: Any) -> Manifest:
    made = namespaced("v1", "Pod", name, spec={"containers": [container(cpu=2)], "nodeName": "n"})
    made["metadata"] |= metadata
    return {**owned(made, owner), "status": {"phase": "Running"}}


def of_job_set() -> list[Manifest]:
    """A JobSet that runs in a queue: its Job, its pod, and Kueue's Workload of it."""
    pods = template(containers=[container(cpu=2)], restartPolicy="Never")
    spec = {"parallelism": 1, "completions": 1, "template": pods}
    jobs = [{"name": "w", "template": {"spec": spec}}]
    whole = stored(workload("jobset.x-k8s.io/v1alpha2", "JobSet", "run", {"replicatedJobs": jobs}))
    child = owned(job("run-w-0", 1, pods), whole)
    of_kueue = namespaced("kueue.x-k8s.io/v1beta2", "Workload", "jobset-run", spec={"podSets": []})
    of_kueue["spec"]["podSets"].append({"name": "w", "count": 1, "template": pods})
    return [whole, child, running("run-w-0-0", child), owned(of_kueue, whole)]


def of_ray_job() -> list[Manifest]:
    """A RayJob with its RayCluster and the pod of that."""
    head = {"headGroupSpec": {"template": using(cpu=2), "rayStartParams": {}}}
    spec = {"rayClusterSpec": head, "entrypoint": "run", "submissionMode": "HTTPMode"}
    whole = stored(workload("ray.io/v1", "RayJob", "run", spec))
    cluster = owned(workload("ray.io/v1", "RayCluster", "run-x", head), whole)
    return [whole, cluster, running("head", cluster, labels={"ray.io/cluster": "run-x"})]


@pytest.mark.parametrize("objects", [of_job_set(), of_ray_job()], ids=["JobSet", "RayJob"])
def test_what_controllers_have_made_counts_once(objects: list[Manifest]) -> None:
    found = judge([node("n", cpu="2"), *objects])
    assert verdicts_of(found) == {str(found.workloads[0].workload): FITS}
    more = judge([node("n", cpu="3"), *objects, job("more", 1, using(cpu=2))])
    assert more.workloads[-1].verdict is not FITS
    # Without the object that owns it, nobody knows what a Workload of Kueue is for.
    assert judge([node("n", cpu="2"), *objects[1:]]).stack is not CANNOT


NOTES = {
    "labels": {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/new": "x"},
    "annotations": {"kueue.x-k8s.io/workload": "w", "new.k8s.io/x": "y", "gke-new/x": "y"},
}


@pytest.mark.parametrize("kind", NOTES)
def test_a_pod_that_runs_has_its_node_whatever_is_noted_on_it(kind: str) -> None:
    run = stored(job("run", 1, template(containers=[container(cpu=2)])))
    pod = running("run-x", run, **{kind: NOTES[kind]})
    other = deployment("web", 1, template())
    assert judge([node("n", cpu="3"), run, pod, other]).stack is FITS
    waits = copy.deepcopy(pod)
    del waits["spec"]["nodeName"], waits["metadata"]["ownerReferences"], waits["status"]
    assert judge([node("n", cpu="3"), waits]).stack is OPEN


def test_the_template_of_a_job_that_kueue_has_started_is_known() -> None:
    run = job("run", 1, template(labels=NOTES["labels"] | {"kueue.x-k8s.io/new": ""}))
    del run["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/new"]
    run["spec"]["template"]["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    assert judge([node("n"), run]).stack is FITS
    run["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    run["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    found = judge([node("n"), run]).workloads[0]
    assert "gates" not in str(found.reasons)
    del run["metadata"]["labels"]
    assert "gates" in str(judge([node("n"), run]).workloads[0].reasons)


def test_the_servers_of_a_pool_count_once_in_a_live_cluster() -> None:
    """A Deployment, its ReplicaSet and its Pod are one server of an InferencePool."""
    pods = template({"app": "chat"}, [container(cpu=2) | {"ports": [{"containerPort": 8000}]}])
    web = stored(deployment("chat", 1, pods))
    hashed = {"app": "chat", "pod-template-hash": "6d4b"}
    made = workload("apps/v1", "ReplicaSet", "chat-6d4b", copy.deepcopy(web["spec"]))
    replicas = owned(made, web)
    replicas["metadata"]["labels"] = hashed
    pod = running("chat-6d4b-x", replicas, labels=hashed)
    pod["spec"]["containers"] = pods["spec"]["containers"]
    spec = {"selector": {"matchLabels": {"app": "chat"}}, "targetPorts": [{"number": 8000}]}
    pool = namespaced("inference.networking.k8s.io/v1", "InferencePool", "chat", spec=spec)
    found = judge_documents([node("n", cpu="2"), web, replicas, pod, pool])
    assert "get the same requests" not in str([each.message for each in found.findings])
