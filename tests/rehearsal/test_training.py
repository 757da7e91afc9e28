"""Training on a real control plane, over several updates: what is kept, updated, replaced or refused."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import utils
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests import factories
from tests.factories import Manifest, cluster_wide, namespaced
from tests.support.cluster import Cluster
from tests.support.event_log import event_log, most_at_once
from tests.support.project import Project, fake_node, project_over
from tests.support.project_steps import (
    FOR_LONG,
    kubectl_in,
    pods_of,
    program,
    refreshed,
    restricted_namespace,
    uid,
    waiting_class,
)
from tests.support.waiting import is_served, until
from tests.workloads import building
from tests.workloads.building import CASES, template_of

NAMESPACE = "training"
PODS = {"image": "i:1", "cpu": "1", "memory": "1Gi", "grace_seconds": 5}
WORKLOAD: dict[str, Any] = {"namespace": NAMESPACE, **PODS}


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    """A project over a replica with one node of four GPUs, one of another product, and one without any."""
    gpu = {"pool": "training", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    with project_over(
        cluster,
        tools,
        tmp_path_factory.mktemp("training"),
        fake_node("training-cpu", {"pool": "training"}),
        fake_node("training-l4", gpu | {"nvidia.com/gpu.product": "NVIDIA-L4"}, gpus=4),
        fake_node("training-t4", gpu | {"nvidia.com/gpu.product": "Tesla-T4"}, gpus=4),
        restricted_namespace(NAMESPACE),
        waiting_class("training-ssd"),
    ) as project:
        yield project


@pytest.fixture(autouse=True)
def clean(project: Project) -> Iterator[None]:
    """Start each test with an empty stack."""
    yield
    project.clear()


def train(name: str = "train", **more: Any) -> str:
    return program("TrainingJob", name, WORKLOAD | more)


def get(project: Project, kind: str, name: str) -> dict[str, Any]:
    return project.kubectl("get", kind, name, "-n", NAMESPACE)


def pods(project: Project, app: str) -> list[dict[str, Any]]:
    return pods_of(project, NAMESPACE, app)


def images(project: Project, app: str) -> list[str]:
    return [item["spec"]["containers"][0]["image"] for item in pods(project, app)]


def nodes_of(project: Project, app: str) -> set[str]:
    return {item["spec"].get("nodeName", "") for item in pods(project, app)}


def phases(project: Project, app: str) -> set[str]:
    return {item["status"]["phase"] for item in pods(project, app)}


def kubectl(project: Project, *args: str, stdin: str = "") -> str:
    return kubectl_in(project, NAMESPACE, *args, stdin=stdin)


def patch(project: Project, kind: str, name: str, **spec: Any) -> None:
    kubectl(project, "patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))


def run_now(project: Project, name: str) -> None:
    """Start a run of the schedule by hand."""
    kubectl(project, "create", "job", "--from=cronjob/nightly", name)


def unchanged(project: Project, body: str) -> bool:
    printed = project.up(body)
    return not any(f" {word}" in printed for word in ("created", "updated", "replaced", "deleted"))


OF_CONTROLLERS = {
    *("JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "TrainingRuntime", "TrainJob"),
}
"""Kinds that this replica does not serve."""
KINDS = {case: {manifest["kind"] for manifest in made} for case, made in sorted(CASES.items())}
SERVED = [case for case, kinds in KINDS.items() if kinds.isdisjoint(OF_CONTROLLERS)]


@pytest.mark.parametrize("case", SERVED)
def test_the_api_server_takes_all_manifests_to_the_letter(project: Project, case: str) -> None:
    """Strict validation refuses unknown and doubled fields; the namespace enforces Pod Security restricted.

    Pods in the networks between GPUs need another namespace: they use folders of the node.
    """
    for manifest in CASES[case]:
        placed = manifest | {"metadata": manifest["metadata"] | {"namespace": NAMESPACE}}
        assert "created (server dry run)" in dry_run(project, placed)
        if manifest["kind"] in ("Job", "CronJob", "Pod"):
            own = {"serviceAccountName": "default", "priorityClassName": ""}
            spec = template_of(manifest)["spec"] | own
            is_privileged = any("hostPath" in volume for volume in spec.get("volumes", ()))
            namespace = "default" if is_privileged else NAMESPACE
            assert "created (server dry run)" in dry_run(
                project, pod_of(spec, namespace), namespace
            )


def test_root_is_for_namespaces_of_the_level_baseline(project: Project) -> None:
    root = pod_of(template_of(building.job(run_as_user=0))["spec"], NAMESPACE)
    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        dry_run(project, root)
    kubectl(project, "label", "namespace", NAMESPACE, enforcing("baseline"), "--overwrite")
    try:
        until(lambda: accepts(project, root), "the API server reads the label after a moment")
    finally:
        kubectl(project, "label", "namespace", NAMESPACE, enforcing("restricted"), "--overwrite")
        until(lambda: not accepts(project, root))


def enforcing(level: str) -> str:
    return f"pod-security.kubernetes.io/enforce={level}"


def pod_of(spec: Manifest, namespace: str) -> Manifest:
    return namespaced("v1", "Pod", "pod", spec=spec) | {
        "metadata": {"name": "pod", "namespace": namespace}
    }


def accepts(project: Project, pod: Manifest) -> bool:
    try:
        return "created (server dry run)" in dry_run(project, pod)
    except AssertionError as error:
        assert "violates PodSecurity" in str(error), error
        return False


def dry_run(project: Project, manifest: Manifest, namespace: str = NAMESPACE) -> str:
    options = ("--dry-run=server", "--validate=strict", "-f", "-")
    return kubectl_in(project, namespace, "create", *options, stdin=json.dumps(manifest))


def test_gpu_and_preprocessing_jobs_run_on_their_own_nodes(project: Project) -> None:
    project.up(
        train(gpu="L4", gpus=2, parallelism=2, completions=2, shared_memory="256Mi", **FOR_LONG)
    )
    until(lambda: phases(project, "train") == {"Running"})
    assert nodes_of(project, "train") == {"training-l4"}
    project.up(train("preprocess", parallelism=4, completions=4, **FOR_LONG))
    until(lambda: phases(project, "preprocess") == {"Running"})
    assert not nodes_of(project, "preprocess") & {"training-l4", "training-t4"}


def task(name: str = "check", **more: Any) -> str:
    return program("Task", name, WORKLOAD | {"command": ["nvidia-smi"]} | more)


@pytest.mark.parametrize(
    ("kind", "name", "body"),
    [
        (
            "job",
            "train",
            train(gpu="L4", gpus=1, fail_on_exit_codes=[2], limits={"memory": "2048Mi"}),
        ),
        ("pod", "check", task(gpu="L4", gpus=1)),
    ],
    ids=["a job", "a task"],
)
def test_a_second_up_after_the_job_completed_changes_nothing(
    project: Project, kind: str, name: str, body: str
) -> None:
    """Neither does one of a Task, which is a Pod."""
    project.up(body)
    until(lambda: phases(project, name) == {"Succeeded"})
    before = uid(get(project, kind, name))
    assert unchanged(project, body)
    for _ in range(2):
        assert "updated" not in refreshed(project)
        assert unchanged(project, body)
    assert uid(get(project, kind, name)) == before


def test_another_image_replaces_the_job_after_the_old_run(project: Project) -> None:
    """All four GPUs are taken: the new run could not start beside the old one."""
    project.up(train(gpu="L4", gpus=4, **FOR_LONG))
    until(lambda: phases(project, "train") == {"Running"})
    for image in ("i:2", "i:3"):
        assert "1 replaced" in project.up(train(gpu="L4", gpus=4, image=image, **FOR_LONG))
        until(lambda image=image: images(project, "train") == [image])
        until(lambda: phases(project, "train") == {"Running"})


def test_another_script_runs_the_job_again(project: Project) -> None:
    project.up(train(files={"/workspace/train.py": "1"}))
    before = uid(get(project, "job", "train"))
    assert unchanged(project, train(files={"/workspace/train.py": "1"}))
    project.up(train(files={"/workspace/train.py": "2"}))
    assert uid(get(project, "job", "train")) != before
    [script] = config_maps(project, "train")
    assert script["data"] == {"workspace.train.py": "2"}
    until(lambda: pods(project, "train"))
    [pod] = pods(project, "train")
    mounted = {volume.get("configMap", {}).get("name") for volume in pod["spec"]["volumes"]}
    assert script["metadata"]["name"] in mounted


def of_team(team: str) -> dict[str, Any]:
    return {"overrides": {"Job": {"metadata": {"labels": {"team": team}}}}}


def test_what_kubernetes_lets_change_is_updated_in_place(project: Project) -> None:
    steps: dict[str, list[dict[str, Any]]] = {
        "limited": [
            {},
            {"active_deadline_seconds": 7200},
            {"active_deadline_seconds": 3600, "backoff_limit": 9},
        ],
        "unlimited": [{"active_deadline_seconds": 7200}, {"active_deadline_seconds": 3600}, {}],
        "labelled": [{}, of_team("a"), of_team("b")],
    }
    runs = list(update_in_steps(project, steps, "3 updated"))
    assert runs[0] == runs[1] == runs[2]
    assert get(project, "job", "labelled")["metadata"]["labels"]["team"] == "b"
    assert "activeDeadlineSeconds" not in get(project, "job", "unlimited")["spec"]


def test_what_kubernetes_keeps_replaces_the_job(project: Project) -> None:
    changes: dict[str, dict[str, Any]] = {
        "completions": {"completions": 3},
        "parallelism": {"completions": 3, "parallelism": 2},
        "indexed": {"indexed": True},
        "per-index": {"indexed": True, "backoff_limit_per_index": 1},
        "success": {"indexed": True, "success_rules": [{"succeededCount": 1}]},
        "disruptions": {"ignore_disruptions": False},
        "manager": {"overrides": {"Job": {"spec": {"managedBy": "example.com/other"}}}},
    }
    steps = {name: [{}, change, {}] for name, change in changes.items()}
    runs = list(update_in_steps(project, steps, "7 replaced"))
    for name in changes:
        assert len({run[name] for run in runs}) == 3, name


def update_in_steps(
    project: Project, steps: dict[str, list[dict[str, Any]]], said: str
) -> Iterator[dict[str, str]]:
    """Bring Jobs up, change all of them at once from step to step, and tell their uids after each."""
    for index, changes in enumerate(zip(*steps.values(), strict=True)):
        given = zip(steps, changes, strict=True)
        printed = project.up("".join(train(name, **FOR_LONG, **change) for name, change in given))
        assert index == 0 or said in printed, printed
        yield {name: uid(get(project, "job", name)) for name in steps}


def test_a_rename_ends_the_old_run_before_the_new_one_starts(project: Project) -> None:
    project.up(train(gpu="L4", gpus=4, **FOR_LONG))
    project.up(train(gpu="L4", gpus=4, job_name="other", **FOR_LONG))
    assert get(project, "job", "train") is None
    until(lambda: phases(project, "other") == {"Running"})
    project.up(train(gpu="L4", gpus=4, **FOR_LONG))
    assert get(project, "job", "other") is None
    until(lambda: phases(project, "train") == {"Running"})


def test_an_elastic_job_leaves_its_parallelism_to_others(project: Project) -> None:
    body = train(elastic=True, completions=4, parallelism=4, **FOR_LONG)
    project.up(body)
    before = uid(get(project, "job", "train"))
    patch(project, "job", "train", parallelism=2)
    assert unchanged(project, body)
    more = {"parallelism": 3, "active_deadline_seconds": 3600}
    assert "1 updated" in project.up(train(elastic=True, completions=4, **more, **FOR_LONG))
    live = get(project, "job", "train")
    assert (uid(live), live["spec"]["parallelism"]) == (before, 2)


def test_a_queued_job_is_not_awaited_and_not_suspended_again(project: Project) -> None:
    """What Kueue's webhook and controller do to a Job is done by hand here: it starts suspended, and is let go."""
    kubectl(project, "apply", "-f", "-", stdin=SUSPEND_QUEUED_JOBS)
    try:
        queued = {"queue": "gpus", "gpu": "L4", "gpus": 1, **FOR_LONG}
        until(lambda: admission_suspends(project))
        started = time.monotonic()
        project.up(train(**queued))
        assert time.monotonic() - started < 600, "a suspended Job was awaited"
        started_job = get(project, "job", "train")
        assert started_job["spec"]["suspend"] is True
        assert started_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
        patch(project, "job", "train", suspend=False)
        until(lambda: phases(project, "train") == {"Running"})
        assert unchanged(project, train(**queued))
        assert "updated" not in refreshed(project)
        assert "1 updated" in project.up(train(**queued, active_deadline_seconds=3600))
        assert get(project, "job", "train")["spec"]["suspend"] is False
    finally:
        kinds = "mutatingadmissionpolicybinding,mutatingadmissionpolicy"
        kubectl(project, "delete", kinds, "suspend-queued-jobs")


SUSPEND_QUEUED_JOBS = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: suspend-queued-jobs}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]
    objectSelector: {matchLabels: {kueue.x-k8s.io/queue-name: gpus}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{suspend: true}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: suspend-queued-jobs}
spec: {policyName: suspend-queued-jobs}
"""
"""A policy that suspends Jobs in a queue as they are created, as Kueue's webhook does."""


def admission_suspends(project: Project) -> bool:
    """Whether the policy is in force already: the API server takes a moment to read it."""
    probe = factories.job("probe", 1, factories.template())
    probe["metadata"] = {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    options = ("--dry-run=server", "-o", "json", "-f", "-")
    answer = kubectl(project, "create", *options, stdin=json.dumps(probe))
    return json.loads(answer)["spec"]["suspend"]


def test_a_job_that_deletes_itself_is_recreated_after_a_refresh(project: Project) -> None:
    body = train(ttl_seconds_after_finished=1)
    project.up(body)
    until(lambda: get(project, "job", "train") is None)
    assert unchanged(project, body), "without a refresh the run is not repeated"
    refreshed(project)
    assert "1 created" in project.up(body)


def test_runs_of_a_schedule_may_delete_themselves(project: Project) -> None:
    """They are not Pulumi's, so that no refresh misses them."""
    body = cron(ttl_seconds_after_finished=1)
    project.up(body)
    for name in ("first", "second"):
        run_now(project, name)
        until(lambda name=name: get(project, "job", name) is None)
        assert "updated" not in refreshed(project)
        assert unchanged(project, body)


def test_waiting_for_completion_waits_at_every_update(project: Project) -> None:
    waiting = {"wait_for_completion": True, "active_deadline_seconds": 1200}
    for image in ("i:1", "i:2"):
        project.up(train(**waiting, image=image))
        assert get(project, "job", "train")["status"]["succeeded"] == 1
    before = uid(get(project, "job", "train"))
    assert unchanged(project, train(**waiting, image="i:2"))
    assert uid(get(project, "job", "train")) == before


NOWHERE = {"node_selector": {"nowhere": "true"}}


def test_an_awaited_failed_run_is_recreated_by_the_next_update(project: Project) -> None:
    waiting = {"wait_for_completion": True, "active_deadline_seconds": 1, "grace_seconds": 0}
    runs: set[str] = set()
    for _ in range(2):
        assert "DeadlineExceeded" in project.fails(train(**waiting, **NOWHERE))
        runs.add(uid(get(project, "job", "train")))
    assert len(runs) == 2
    project.up(train(wait_for_completion=True, active_deadline_seconds=1200))
    assert get(project, "job", "train")["status"]["succeeded"] == 1


def test_a_failed_run_without_a_wait_is_kept(project: Project) -> None:
    body = train(active_deadline_seconds=1, grace_seconds=0, **NOWHERE)
    project.up(body)
    until(lambda: "DeadlineExceeded" in str(get(project, "job", "train")["status"]))
    before = uid(get(project, "job", "train"))
    for _ in range(2):
        assert unchanged(project, body)
    assert uid(get(project, "job", "train")) == before


def test_a_wait_that_may_never_end_is_refused_at_preview(project: Project) -> None:
    project.up(train(**FOR_LONG))
    before = uid(get(project, "job", "train"))
    endless = ({"queue": "gpus"}, {"fail_on_exit_codes": [2]}, {"ttl_seconds_after_finished": 60})
    for args in endless:
        body = train(wait_for_completion=True, **args)
        assert "invalid argument" in project.fails(body, "preview"), args
    assert uid(get(project, "job", "train")) == before


def test_a_preview_says_that_a_change_would_end_the_run(project: Project) -> None:
    project.up(train(**FOR_LONG))
    before = uid(get(project, "job", "train"))
    for change in ({"parallelism": 2, "completions": 2, "indexed": True}, {"image": "i:2"}):
        project.program(train(**FOR_LONG, **change))
        said = project.pulumi("preview", "--stack", "t").stdout
        assert "1 to replace" in said, said
    assert uid(get(project, "job", "train")) == before


def test_a_run_that_waits_for_nodes_can_be_changed(project: Project) -> None:
    project.up(train(gpu="L4", gpus=64))
    for image in ("i:2", "i:3"):
        refreshed(project)
        assert "1 replaced" in project.up(train(gpu="L4", gpus=64, image=image))
    until(lambda: phases(project, "train") == {"Pending"})


def test_an_update_does_not_suspend_a_released_job(project: Project) -> None:
    suspended = {"overrides": {"Job": {"spec": {"suspend": True}}}, **FOR_LONG}
    project.up(train(**suspended))
    assert not pods(project, "train")
    patch(project, "job", "train", suspend=False)
    until(lambda: phases(project, "train") == {"Running"})
    for seconds in (3600, 7200):
        assert "1 updated" in project.up(train(**suspended, active_deadline_seconds=seconds))
        refreshed(project)
    assert get(project, "job", "train")["spec"]["suspend"] is False
    assert phases(project, "train") == {"Running"}


def test_a_deletion_may_outlast_the_grace_of_every_update(project: Project) -> None:
    """What the state says counts: the old run is deleted by what was declared of it. Here none has started."""
    for grace in (600, 900):
        given = {"grace_seconds": grace, **NOWHERE}
        project.up(train(**given) + gang(**given) + cron(grace_seconds=grace) + task(**given))
        made = [each for each in project.resources() if each["type"].startswith("kubernetes:")]
        run = [each for each in made if not each["type"].endswith(":Service")]
        allowed = {each["type"]: each["customTimeouts"]["delete"] for each in run}
        assert len(allowed) == 3
        assert all(seconds > grace for seconds in allowed.values()), allowed


def test_a_job_set_can_be_previewed_before_its_kind_is_there(project: Project) -> None:
    """Its controller may come with the same update, in a step before it."""
    body = gang(jobset=True)
    project.program(body)
    previewed = project.pulumi("preview", "--stack", "t")
    assert previewed.returncode == 0, previewed.stdout
    assert "the cluster serves no JobSet" in project.fails(body)
    utils.create_from_dict(project.cluster.api, job_set_kind())
    try:
        definitions = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
        until(lambda: is_served(Api(Access(project.cluster.kubeconfig)), definitions))
        project.up(body)
        assert "1 replaced" in project.up(gang(jobset=True, nodes=3))
        assert unchanged(project, gang(jobset=True, nodes=3))
        project.up("")
    finally:
        project.kubectl("delete", "crd", JOB_SETS)


JOB_SETS = "jobsets.jobset.x-k8s.io"


def job_set_kind() -> dict[str, Any]:
    """The kind alone, without a controller."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True}
    spec = {
        "group": "jobset.x-k8s.io",
        "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"},
        "scope": "Namespaced",
        "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
    }
    definitions = "apiextensions.k8s.io/v1"
    return cluster_wide(definitions, "CustomResourceDefinition", JOB_SETS, spec=spec)


def test_claims_survive_every_change_of_their_jobs(project: Project) -> None:
    volume = {"namespace": NAMESPACE, "size": "1Gi", "storage_class": "training-ssd"}

    def body(**more: Any) -> str:
        mounts = [{"claim": "checkpoints", "path": "/checkpoints"}]
        return program("Volume", "checkpoints", volume) + train(mounts=mounts, **more, **FOR_LONG)

    project.up(body())
    until(lambda: phases(project, "train") == {"Running"})
    before = uid(get(project, "pvc", "checkpoints"))
    for change in ({"image": "i:2"}, {"parallelism": 2, "completions": 2}, {"job_name": "other"}):
        assert "1 replaced" in project.up(body(**change))
    project.up(program("Volume", "checkpoints", volume))
    assert uid(get(project, "pvc", "checkpoints")) == before
    project.pulumi("state", "unprotect", "--all", "--yes", "--stack", "t")
    project.up("")
    assert uid(get(project, "pvc", "checkpoints")) == before
    kubectl(project, "delete", "pvc", "checkpoints")


def gang(name: str = "gang", **more: Any) -> str:
    return program("DistributedTraining", name, WORKLOAD | {"nodes": 2} | more)


def test_a_gang_finds_its_first_pod_before_anything_is_ready(project: Project) -> None:
    project.up(gang(gpu="L4", gpus=2, **FOR_LONG))
    until(lambda: len(pods(project, "gang")) == 2 and phases(project, "gang") == {"Running"})
    assert nodes_of(project, "gang") == {"training-l4"}
    members = {item["spec"]["hostname"]: item for item in pods(project, "gang")}
    assert set(members) == {"gang-0", "gang-1"}
    [container] = members["gang-1"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "2")
    host, _, service = str(env["PET_MASTER_ADDR"]).partition(".")
    assert members[host]["spec"]["subdomain"] == service
    # Simulated pods have no addresses, so that the Service's endpoints stay empty: what counts is whom it selects.
    selector = get(project, "service", service)["spec"]["selector"]
    words = ",".join(f"{key}={value}" for key, value in selector.items())
    selected = project.kubectl("get", "pods", "-n", NAMESPACE, "-l", words)
    assert {item["spec"]["hostname"] for item in selected["items"]} == set(members)


def test_a_resized_gang_keeps_its_service(project: Project) -> None:
    project.up(gang(gpu="L4", gpus=1, **FOR_LONG))
    before = uid(get(project, "service", "gang"))
    for nodes in (3, 4):
        assert "1 replaced" in project.up(gang(gpu="L4", gpus=1, nodes=nodes, **FOR_LONG))
        until(lambda nodes=nodes: len(pods(project, "gang")) == nodes)
        until(lambda: phases(project, "gang") == {"Running"})
    assert uid(get(project, "service", "gang")) == before
    assert unchanged(project, gang(gpu="L4", gpus=1, nodes=4, **FOR_LONG))


def test_a_renamed_gang_meets_at_its_new_name(project: Project) -> None:
    project.up(gang(**FOR_LONG))
    project.up(gang(job_name="other", **FOR_LONG))
    assert get(project, "job", "gang") is None
    assert get(project, "service", "gang") is None
    until(lambda: phases(project, "other") == {"Running"})
    assert get(project, "service", "other")


def sweep(name: str = "search", **more: Any) -> str:
    parameters = {"LR": {"values": [0.1, 0.01]}, "BATCH": {"values": [16, 32]}}
    run = {"command": ["python", "train.py"], "parameters": parameters, "parallelism": 2}
    return program("Sweep", name, WORKLOAD | run | more)


def test_a_sweep_limits_the_combinations_that_run_at_once(project: Project) -> None:
    body = sweep(gpu="L4", gpus=2)
    api, path = Api(Access(project.cluster.kubeconfig)), f"/api/v1/namespaces/{NAMESPACE}/pods"
    with event_log(api, path, labelSelector="app.kubernetes.io/name=search") as events:
        project.up(body)
        completed = "completedIndexes"
        until(lambda: get(project, "job", "search")["status"].get(completed) == "0-3")
        # The watch may come later than the answer.
        until(lambda: len({each["object"]["metadata"]["uid"] for each in events}) >= 4)
    assert 1 <= most_at_once(events, "Running") <= 2
    assert nodes_of(project, "search") == {"training-l4"}
    assert unchanged(project, body)


def test_other_parameters_restart_the_sweep(project: Project) -> None:
    project.up(sweep(**FOR_LONG))
    before = uid(get(project, "job", "search"))
    [old] = config_maps(project, "search")
    same = {"LR": {"values": [0.1, 0.01]}, "BATCH": {"values": [16.0, 32]}}
    assert unchanged(project, sweep(**FOR_LONG, parameters=same))
    for values in ([0.1, 0.02], [0.1, 0.03]):
        parameters = {"LR": {"values": values}, "BATCH": {"values": [16, 32]}}
        assert "2 replaced" in project.up(sweep(**FOR_LONG, parameters=parameters))
        now = uid(get(project, "job", "search"))
        assert now != before
        before = now
    [new] = config_maps(project, "search")  # those of earlier sweeps are not left behind
    assert new["metadata"]["name"] != old["metadata"]["name"]


def config_maps(project: Project, app: str) -> list[dict[str, Any]]:
    label = f"app.kubernetes.io/name={app}"
    return project.kubectl("get", "configmaps", "-n", NAMESPACE, "-l", label)["items"]


def cron(name: str = "nightly", **more: Any) -> str:
    return program("ScheduledTraining", name, WORKLOAD | {"schedule": "0 3 * * *"} | more)


def test_a_schedule_and_an_image_change_in_place(project: Project) -> None:
    project.up(cron(gpu="L4", gpus=1))
    before = uid(get(project, "cronjob", "nightly"))
    sundays = {"schedule": "30 4 * * 0", "time_zone": "Europe/Berlin"}
    assert "1 updated" in project.up(cron(gpu="L4", gpus=1, **sundays))
    assert "1 updated" in project.up(cron(gpu="L4", gpus=1, image="i:2"))
    assert uid(get(project, "cronjob", "nightly")) == before
    run_now(project, "now")
    until(lambda: phases(project, "nightly") == {"Succeeded"})
    assert nodes_of(project, "nightly") == {"training-l4"}
    assert images(project, "nightly")[0] == "i:2"
    kubectl(project, "delete", "job", "now")


def test_a_running_run_survives_a_change_but_not_a_manual_pause(project: Project) -> None:
    """An update takes over what kubectl changed, as Pulumi's plugin does: what is not declared goes."""
    project.up(cron(schedule="0 4 * * *", **FOR_LONG))
    patch(project, "cronjob", "nightly", suspend=True)
    run_now(project, "now")
    until(lambda: "Running" in phases(project, "nightly"))
    before = uid(get(project, "job", "now"))
    project.up(cron(image="i:2", **FOR_LONG))
    assert uid(get(project, "job", "now")) == before
    assert get(project, "cronjob", "nightly")["spec"]["suspend"] is False


def test_a_task_runs_on_a_gpu_and_every_change_runs_it_anew(project: Project) -> None:
    """All four GPUs are taken: the old Pod is gone before the new one comes."""
    project.up(task(gpu="L4", gpus=4, **FOR_LONG))
    until(lambda: phases(project, "check") == {"Running"})
    assert nodes_of(project, "check") == {"training-l4"}
    for change in ({"image": "i:2"}, {"image": "i:2", "command": ["dcgmi", "diag", "-r", "1"]}):
        before = uid(get(project, "pod", "check"))
        assert "1 replaced" in project.up(task(gpu="L4", gpus=4, **FOR_LONG, **change))
        assert uid(get(project, "pod", "check")) != before
        until(lambda: phases(project, "check") == {"Running"})
    refreshed(project)


def test_a_task_is_waited_for_where_it_says_so(project: Project) -> None:
    for image in ("i:1", "i:2"):
        project.up(task(wait_for_completion=True, image=image))
        assert phases(project, "check") == {"Succeeded"}


def test_a_task_that_nothing_can_run_is_not_awaited(project: Project) -> None:
    started = time.monotonic()
    project.up(task(gpu="L4", gpus=64))
    assert time.monotonic() - started < 600
    assert phases(project, "check") == {"Pending"}


def test_gpus_can_be_claimed_and_another_claim_is_another_run(project: Project) -> None:
    """The replica has no DRA driver: what counts is that the API server takes the template and its CEL."""
    selector = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
    claim = {"gpu": "L4", "gpus": 1, "gpu_claim": {"selectors": [selector]}}
    project.up(train(**claim))
    [name] = template_names(project)
    assert unchanged(project, train(**claim))
    assert "2 replaced" in project.up(train(**(claim | {"gpus": 2})))
    [other] = template_names(project)
    assert other != name
    until(lambda: bool(pods(project, "train")))
    [claimed] = pods(project, "train")[0]["spec"]["resourceClaims"]
    assert claimed["resourceClaimTemplateName"] in template_names(project)
    said = project.fails(train(**(claim | {"gpu_claim": {"selectors": ["device.nothing == 1"]}})))
    assert "undefined field 'nothing'" in said


def template_names(project: Project) -> list[str]:
    listed = project.kubectl("get", "resourceclaimtemplates", "-n", NAMESPACE)["items"]
    return [item["metadata"]["name"] for item in listed]
