"""The real controllers of Kueue and JobSet beside a real control plane, with queues and Jobs by the components."""

import os
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubernetes import client, utils
from ml_foundations.rehearsal.api import condition
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import collect
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.factories import cluster_wide
from tests.support.cluster import Cluster
from tests.support.h100_replica import H100_FLAVOR, H100_NODE
from tests.support.own_replica import own_replica
from tests.support.project import Project, fake_node
from tests.support.project_steps import FOR_LONG, WHOLE_NODE, pods_of, program, refreshed, uid
from tests.support.waiting import until


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("queue")


@pytest.fixture(scope="module")
def replica(tools: Tools, root: Path) -> Iterator[Cluster]:
    """Three nodes of 8 H100; the programs bring Kueue and JobSet, by their charts.

    A control plane of this module's own: its tests begin without the kinds of JobSet, and kill the controllers.
    """
    with own_replica(tools, root) as cluster:
        for index in range(3):
            utils.create_from_dict(cluster.api, fake_node(f"h100-{index}", H100_NODE, gpus=8))
        for team in ("red", "blue"):
            utils.create_from_dict(cluster.api, cluster_wide("v1", "Namespace", team))
        yield cluster


@pytest.fixture(scope="module")
def project(root: Path, replica: Cluster, tools: Tools) -> Project:
    return Project(root, replica, tools)


@pytest.fixture(autouse=True)
def clean(project: Project) -> Iterator[None]:
    yield
    project.clear()


def queue(red: int = 8, blue: int = 8, **more: Any) -> str:
    quotas = {"cpu": "1000", "memory": "8Ti"}
    teams = [{"namespace": "red", **quotas, "gpus": {"h100": red}}]
    if blue >= 0:
        teams.append({"namespace": "blue", **quotas, "gpus": {"h100": blue}})
    args = {"flavors": [H100_FLAVOR], "teams": teams, **more}
    made = f"queue = TrainingQueue('ml', {args!r}, here)"
    return f"from ml_foundations import TrainingQueue\n{made}\n"


AFTER_QUEUE = "options(depends_on=[queue])"


def job(name: str, team: str = "red", pods: int = 1, **more: Any) -> str:
    """A Job that runs until it is deleted: each of its pods takes a whole node."""
    args = {"namespace": team, "completions": pods, "parallelism": pods, "queue": "training"}
    return program("TrainingJob", name, WHOLE_NODE | FOR_LONG | args | more, AFTER_QUEUE)


def get(project: Project, team: str, kind: str, name: str) -> dict[str, Any]:
    return project.kubectl("get", kind, name, "-n", team)


def is_suspended(project: Project, name: str, team: str = "red") -> bool:
    return get(project, team, "job", name)["spec"]["suspend"]


def running(project: Project, name: str, team: str = "red") -> list[dict[str, Any]]:
    label = f"batch.kubernetes.io/job-name={name}"
    listed = project.kubectl("get", "pods", "-n", team, "-l", label)["items"]
    on_nodes = [pod for pod in listed if pod["spec"].get("nodeName")]
    return [pod for pod in on_nodes if not pod["metadata"].get("deletionTimestamp")]


def test_a_job_starts_when_there_is_room_for_all_of_it(project: Project) -> None:
    """Two pods fit by borrowing what blue leaves; of four, not even one starts."""
    project.up(queue() + job("fits", pods=2) + job("waits", pods=4))
    until(lambda: len(running(project, "fits")) == 2)
    assert is_suspended(project, "waits")
    assert not running(project, "waits")
    pod = running(project, "fits")[0]
    assert pod["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"] == "h100"
    until(lambda: "insufficient" in messages(project, "red"))


def test_a_gang_gets_the_block_that_it_requires(project: Project) -> None:
    """Two of the three nodes are in one block: a gang of two is there, and one of three waits."""
    blocks = {"h100-0": "a", "h100-1": "b", "h100-2": "b"}
    for name, block in blocks.items():
        labels = {"metadata": {"labels": {"cloud.google.com/gce-topology-block": block}}}
        client.CoreV1Api(project.cluster.api).patch_node(name, labels)
    # The quota has room for both gangs: only the blocks have not.
    near = queue(red=40, blue=-1, topology=["block", "hostname"])
    two = job("two", pods=2, topology="required:block")
    project.up(near + two + job("three", pods=3, topology="required:block"))
    until(lambda: len(running(project, "two")) == 2)
    nodes = [pod["spec"]["nodeName"] for pod in running(project, "two")]
    assert sorted(nodes) == ["h100-1", "h100-2"]
    until(lambda: "out of 3 pod(s)" in messages(project, "red"))
    assert is_suspended(project, "three")
    project.up(near + two + job("any"))
    until(lambda: len(running(project, "any")) == 1)
    assert running(project, "any")[0]["spec"]["nodeName"] == "h100-0"


def test_a_training_that_claims_interfaces_starts(project: Project) -> None:
    """By default, Kueue refuses claims of a class that its configuration does not map."""
    args = {
        **{"namespace": "red", "image": "i", "command": ["train"], "launcher": "none"},
        **{"nodes": 2, "gpus": 8, "gpu": "H100", "queue": "training"},
        "gpu_fabric": {"kind": "rdma", "gpus_per_node": 8},
    }
    project.up(queue() + program("DistributedTraining", "claims", args, AFTER_QUEUE))
    until(lambda: not is_suspended(project, "claims"))
    listed = project.kubectl("get", "resourceclaimtemplates", "-n", "red")["items"]
    assert [each["metadata"]["name"].startswith("claims-rdma-") for each in listed] == [True]


def messages(project: Project, team: str) -> str:
    """What Kueue says of the workloads that wait."""
    listed = project.kubectl("get", "workloads.kueue.x-k8s.io", "-n", team)["items"]
    return " ".join(
        c["message"] for item in listed for c in item.get("status", {}).get("conditions", [])
    )


def test_who_lent_gets_its_own_back(project: Project) -> None:
    project.up(queue() + job("borrower", pods=2))
    until(lambda: len(running(project, "borrower")) == 2)
    project.up(queue() + job("borrower", pods=2) + job("owner", "blue"))
    until(lambda: len(running(project, "owner", "blue")) == 1)
    until(lambda: is_suspended(project, "borrower"))


def test_updates_leave_alone_what_kueue_started(project: Project) -> None:
    """The program never says suspend: an update or a refresh would stop what runs, or start what waits."""
    body = queue() + job("fits") + job("waits", pods=4)
    project.up(body)
    until(lambda: len(running(project, "fits")) == 1)
    before = [uid(pod) for pod in running(project, "fits")]
    for _ in range(2):
        assert "updated" not in project.up(body)
        refreshed(project)
        assert not is_suspended(project, "fits")
        assert is_suspended(project, "waits")
    assert [uid(pod) for pod in running(project, "fits")] == before


def test_a_larger_quota_lets_the_next_one_in(project: Project) -> None:
    more = {"borrowing": False}
    project.up(queue(**more) + job("first") + job("second"))
    until(lambda: len(running(project, "first") + running(project, "second")) == 1)
    before = uid(project.kubectl("get", "clusterqueue", "red"))
    project.up(queue(red=16, **more) + job("first") + job("second"))
    until(lambda: len(running(project, "first") + running(project, "second")) == 2)
    assert uid(project.kubectl("get", "clusterqueue", "red")) == before


def test_a_team_may_leave_and_all_may_go(project: Project) -> None:
    """Kueue keeps what is in use: workloads go first, then queues, then flavors."""
    project.up(queue() + job("fits"))
    project.up(queue(blue=-1) + job("fits"))
    assert project.kubectl("get", "clusterqueue", "blue") is None
    until(lambda: len(running(project, "fits")) == 1)
    project.up("")
    until(lambda: kinds(project, "kueue.x-k8s.io") == [])
    assert "kueue" not in pids(project)


def pids(project: Project) -> dict[str, int | None]:
    """The processes of the installed controllers, whether or not they run."""
    return {each.name: each.pid for each in controllers.processes(project.cluster.rehearsal)}


def kinds(project: Project, group: str) -> list[str]:
    """The kinds of a group that the replica has."""
    listed = project.kubectl("get", "customresourcedefinitions")["items"]
    return [item["spec"]["names"]["kind"] for item in listed if item["spec"]["group"] == group]


def served(component: str, **more: Any) -> str:
    return program(component, "server", WHOLE_NODE | {"namespace": "red"} | more, AFTER_QUEUE)


@pytest.mark.parametrize(
    ("component", "more"), [("InferenceService", {"replicas": 2}), ("ShardedSet", {"shards": 2})]
)
def test_servers_wait_in_queues_too(project: Project, component: str, more: dict[str, Any]) -> None:
    """Blue has lent its GPUs until it wants them back; a second update finds nothing to do."""
    kinds = ["Job", "JobSet", "Deployment", "StatefulSet"]
    body = queue(kinds=kinds) + served(component, queue="training", **more)
    project.up(body)
    servers = pods_of(project, "red", "server")
    assert len([pod for pod in servers if pod["spec"].get("nodeName")]) == 2
    queued = project.kubectl("get", "workloads.kueue.x-k8s.io", "-n", "red")["items"]
    assert any(condition(item, "Admitted").get("status") == "True" for item in queued)
    assert "updated" not in project.up(body)


def test_a_program_that_names_another_cluster_uses_the_replica(project: Project) -> None:
    """Whatever the user's own kubeconfig leads to, or none is there: the replica stands for it."""
    body = f"""
        for name, kubeconfig in {{"elsewhere": {ELSEWHERE!r}, "missing": "~/no/such/kubeconfig"}}.items():
            foreign = pulumi.ResourceOptions(provider=k8s.Provider(name, kubeconfig=kubeconfig))
            k8s.core.v1.ConfigMap(name, metadata={{"name": name}}, data={{"a": "1"}}, opts=foreign)
    """
    project.up(body)
    for name in ("elsewhere", "missing"):
        assert project.kubectl("get", "configmap", name)["data"] == {"a": "1"}


ELSEWHERE = """
clusters: [{name: prod, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: me, user: {}}]
contexts: [{name: prod, context: {cluster: prod, user: me}}]
current-context: prod
"""


def test_a_wrong_queue_is_refused_by_kueues_own_webhook(project: Project) -> None:
    wrong = {"cohortName": None, "preemption": {"reclaimWithinCohort": "Sometimes"}}
    assert "Sometimes" in project.fails(queue(overrides={"ClusterQueue": {"spec": wrong}}))


def test_a_queue_is_there_in_the_older_version_too(project: Project) -> None:
    """Its webhook converts: without it, the cohort, which has another name there, would be lost."""
    project.up(queue())
    older = project.kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "red")
    assert older["spec"]["cohort"] == "ml"


JOBSET = (
    "from ml_foundations import JobSetController\njobset = JobSetController('jobset', {}, here)\n"
)


def test_a_job_set_is_no_kind_without_its_controller(project: Project) -> None:
    """Nothing of GKE's brings it: as in the cloud, the program does."""
    without = gang().removeprefix(JOBSET).replace("[jobset]", "[]")
    assert "the cluster serves no JobSet" in project.fails(without)
    assert kinds(project, "jobset.x-k8s.io") == []
    project.up(gang())
    until(lambda: len(members(project)) == 2)
    project.up("")
    assert kinds(project, "jobset.x-k8s.io") == ["JobSet"], (
        "Helm leaves what is in a chart's folder crds"
    )
    assert "jobset" not in pids(project)


def test_a_controller_is_ready_when_its_webhooks_are_served(
    project: Project, replica: Cluster, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readiness alone says that they listen: an object made in between was refused with a 404."""
    project.up(JOBSET)
    controllers.stop(replica.rehearsal)
    asked: list[str] = []
    probe = kwok.probe

    def late(port: int, path: str, context: ssl.SSLContext | None = None) -> str | None:
        asked.append(path)
        wrong = probe(port, path, context)
        return f"{path} answers 404" if path != "/readyz" and asked.count(path) == 1 else wrong

    monkeypatch.setattr(kwok, "probe", late)
    controllers.resume(replica.rehearsal, tools)
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    found = [item for kind in kinds for item in project.kubectl("get", kind)["items"]]
    webhooks = [webhook for item in found for webhook in item["webhooks"]]
    paths = {webhook["clientConfig"]["service"]["path"] for webhook in webhooks}
    assert len(paths) > 1
    assert all(asked.count(path) > 1 for path in paths)


def gang(**more: Any) -> str:
    """A JobSet whose pods each take a whole node, until they are stopped."""
    args = {"namespace": "red", "image": "i:1", "nodes": 2, "jobset": True} | more
    after = "[jobset, queue]" if "queue" in more else "[jobset]"
    options = f"options(depends_on={after})"
    return JOBSET + program("DistributedTraining", "gang", WHOLE_NODE | FOR_LONG | args, options)


def members(project: Project) -> list[dict[str, Any]]:
    return running(project, "gang-workers-0")


def nodes_of(pods: list[dict[str, Any]]) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in pods)


def images(pods: list[dict[str, Any]]) -> set[str]:
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def job_sets(project: Project) -> list[tuple[str, str, list[str]]]:
    """What the report says of JobSets; it has no row of its own for their Jobs."""
    rows = collect(project.cluster.rehearsal).workloads
    assert "Job" not in {row.kind for row in rows}
    return [(row.name, row.state, row.nodes) for row in rows if row.kind == "JobSet"]


def test_a_gang_of_a_job_set_runs_on_gpu_nodes_over_updates(project: Project) -> None:
    """Two of three nodes are taken: the new gang could not start beside the old one."""
    project.up(gang())
    until(lambda: len(members(project)) == 2)
    assert set(nodes_of(members(project))) < {"h100-0", "h100-1", "h100-2"}
    until(lambda: job_sets(project) == [("gang", "Running", nodes_of(members(project)))])
    first = get(project, "red", "jobset", "gang")
    assert "updated" not in project.up(gang())
    assert uid(get(project, "red", "jobset", "gang")) == uid(first)

    assert "1 replaced" in project.up(gang(image="i:2"))
    until(lambda: len(members(project)) == 2 and images(members(project)) == {"i:2"})
    assert "1 replaced" in project.up(gang(image="i:2", nodes=3))
    until(lambda: nodes_of(members(project)) == ["h100-0", "h100-1", "h100-2"])
    assert "updated" not in refreshed(project)
    assert "updated" not in project.up(gang(image="i:2", nodes=3))


def test_a_job_set_meets_at_the_address_of_its_first_pod(project: Project) -> None:
    project.up(gang())
    until(lambda: len(members(project)) == 2)
    by_host = {pod["spec"]["hostname"]: pod["spec"] for pod in members(project)}
    [container] = by_host["gang-workers-0-1"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "8")
    host, _, service = str(env["PET_MASTER_ADDR"]).partition(".")
    assert by_host[host]["subdomain"] == service
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True}
    assert headless.items() <= get(project, "red", "service", service)["spec"].items()


def test_when_one_of_a_job_set_fails_all_start_anew(project: Project) -> None:
    project.up(gang(max_restarts=1))
    until(lambda: len(members(project)) == 2)
    before = {uid(pod) for pod in members(project)}
    fail(project, members(project)[0])

    def are_new() -> bool:
        found = {uid(pod) for pod in members(project)}
        return len(found) == 2 and found.isdisjoint(before)

    until(are_new)
    assert get(project, "red", "jobset", "gang")["status"]["restarts"] == 1
    assert "updated" not in project.up(gang(max_restarts=1)), "a restart is no drift"
    fail(project, members(project)[0])
    until(lambda: bool(condition(get(project, "red", "jobset", "gang"), "Failed")))


def fail(project: Project, pod: dict[str, Any]) -> None:
    """End a pod as the kubelet does when its container ends with an error."""
    api = client.CoreV1Api(project.cluster.api)
    ended = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    ended |= {"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    api.patch_namespaced_pod_status(pod["metadata"]["name"], "red", {"status": status})


def test_a_job_set_waits_in_a_queue_for_all_of_its_gpus(project: Project) -> None:
    """Of three nodes two are red's: the gang of two starts, and one of three does not, not even in part."""
    project.up(queue(borrowing=False, red=16) + gang(queue="training"))
    until(lambda: len(members(project)) == 2)
    assert "updated" not in project.up(queue(borrowing=False, red=16) + gang(queue="training"))
    assert len(members(project)) == 2
    project.up(queue(borrowing=False, red=16) + gang(queue="training", nodes=3))
    until(lambda: "insufficient" in messages(project, "red"))
    assert not members(project)
    until(lambda: job_sets(project) == [("gang", "Suspended", [])])
    project.up(queue(borrowing=False, red=24) + gang(queue="training", nodes=3))
    until(lambda: len(members(project)) == 3)


def test_controllers_that_died_are_found_out_and_started_again(
    project: Project, replica: Cluster, tools: Tools
) -> None:
    project.up(JOBSET + queue())
    before = pids(project)
    assert before.keys() == {"jobset", "kueue"}
    for pid in before.values():
        assert pid
        os.kill(pid, signal.SIGKILL)
        psutil.Process(pid).wait(300)
    assert not any(process.running for process in controllers.processes(replica.rehearsal))
    controllers.resume(replica.rehearsal, tools)
    assert all(process.running for process in controllers.processes(replica.rehearsal))
    after = pids(project)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    project.up(queue() + job("fits"))
    until(lambda: len(running(project, "fits")) == 1)


def test_kueue_that_is_down_stops_only_teams_with_a_queue(
    replica: Cluster, project: Project
) -> None:
    project.up(queue(blue=-1, kinds=["Job", "Pod"]))
    [kueue] = [each for each in controllers.processes(replica.rehearsal) if each.name == "kueue"]
    core = client.CoreV1Api(replica.api)
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    kueue.stop()
    try:
        utils.create_from_dict(replica.api, cluster_wide("v1", "Namespace", "gpu-operator"))
        until(lambda: core.list_namespaced_service_account("gpu-operator").items)
        for namespace in ("blue", "kube-system", "gpu-operator"):
            core.create_namespaced_pod(namespace, pod)
            core.delete_namespaced_pod("probe", namespace)
        with pytest.raises(client.ApiException, match="failed calling webhook"):
            core.create_namespaced_pod("red", pod)
    finally:
        project.up(queue(blue=-1))


def test_a_second_start_leaves_them_running(project: Project, tools: Tools) -> None:
    before = pids(project)
    controllers.resume(project.cluster.rehearsal, tools)
    assert pids(project) == before


def test_they_listen_on_loopback_only(replica: Cluster) -> None:
    for process in controllers.processes(replica.rehearsal):
        connections = psutil.Process(process.pid).net_connections("tcp")
        listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}


def test_a_process_that_got_its_pid_is_left_alone(tmp_path: Path) -> None:
    rehearsal = Rehearsal.of("other", tmp_path)
    rehearsal.make()
    with subprocess.Popen(["sleep", "60"]) as innocent:
        folder = rehearsal.root / "controllers" / "kueue"
        folder.mkdir(parents=True)
        (folder / "process.pid").write_text(str(innocent.pid))
        controllers.stop(rehearsal)
        assert innocent.poll() is None
        innocent.kill()


def test_the_controller_does_as_the_releases_values_say(project: Project) -> None:
    """Half of a gang gives its node back when the other half finds none; another value takes another process."""
    body = queue(red=40, borrowing=False, ready_seconds=15) + job("half", pods=5)
    project.up(body)
    until(lambda: len(running(project, "half")) == 3)

    def has_given_up() -> bool:
        is_over = is_suspended(project, "half") and not running(project, "half")
        return is_over and "PodsReady timeout" in messages(project, "red")

    until(has_given_up)
    before = pids(project)["kueue"]
    project.up(queue(red=40, borrowing=False, ready_seconds=600) + job("half", pods=5))
    assert pids(project)["kueue"] != before
