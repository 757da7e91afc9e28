"""Training on a real control plane, over several updates: what is kept, updated, replaced or refused."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import utils
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node, project_over
from tests.support.waiting import until
from tests.workloads import building
from tests.workloads.building import CASES, template_of

GPU = "nvidia.com/gpu"
NAMESPACE = "training"
WORKLOAD: dict[str, Any] = {
    "namespace": NAMESPACE,
    "image": "i:1",
    "cpu": "1",
    "memory": "1Gi",
    "grace_seconds": 5,
}
FOR_LONG = {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": "1h"}}
"""Pods with this run until they are stopped; others complete after some seconds."""


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    """A project over a replica with one node of four GPUs, one of another product, and one without any."""
    gpu = {"pool": "training", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        # Stricter than a team's namespace by default: the components' own defaults satisfy it.
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "training-ssd"},
        "provisioner": "pd.csi.storage.gke.io",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    with project_over(
        cluster,
        tools,
        tmp_path_factory.mktemp("training"),
        fake_node("training-cpu", {"pool": "training"}),
        fake_node("training-l4", gpu | {"nvidia.com/gpu.product": "NVIDIA-L4"}, gpus=4),
        fake_node("training-t4", gpu | {"nvidia.com/gpu.product": "Tesla-T4"}, gpus=4),
        namespace,
        storage_class,
    ) as project:
        yield project


@pytest.fixture(autouse=True)
def clean(project: Project) -> Iterator[None]:
    """Start each test with an empty stack."""
    yield
    project.clear()


def program(component: str, name: str, args: dict[str, Any]) -> str:
    return f"""
    import json
    from ml_foundations import {component}
    {component}({name!r}, json.loads({json.dumps(args)!r}), here)
    """


def train(name: str = "train", **more: Any) -> str:
    return program("TrainingJob", name, WORKLOAD | more)


def get(project: Project, kind: str, name: str) -> dict[str, Any]:
    return project.kubectl("get", kind, name, "-n", NAMESPACE)


def pods(project: Project, app: str) -> list[dict[str, Any]]:
    """The pods of an app that are not on their way out."""
    listed = project.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={app}")[
        "items"
    ]
    return [item for item in listed if not item["metadata"].get("deletionTimestamp")]


def nodes_of(project: Project, app: str) -> set[str]:
    return {item["spec"].get("nodeName", "") for item in pods(project, app)}


def phases(project: Project, app: str) -> set[str]:
    return {item["status"]["phase"] for item in pods(project, app)}


def uid(obj: dict[str, Any]) -> str:
    return obj["metadata"]["uid"]


def kubectl(project: Project, *args: str, stdin: str = "") -> str:
    """Do something as somebody else would."""
    command = [
        project.rehearsal.bin_dir / "kubectl",
        "--kubeconfig",
        project.cluster.kubeconfig,
        "-n",
        NAMESPACE,
        *args,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unchanged(project: Project, body: str) -> bool:
    printed = project.up(body)
    return not any(f" {word}" in printed for word in ("created", "updated", "replaced", "deleted"))


OF_CONTROLLERS = {
    "JobSet",
    "LeaderWorkerSet",
    "RayCluster",
    "RayJob",
    "TrainingRuntime",
    "TrainJob",
}
"""Kinds that this replica does not serve."""
SERVED = [
    case
    for case, manifests in sorted(CASES.items())
    if OF_CONTROLLERS.isdisjoint(manifest["kind"] for manifest in manifests)
]


@pytest.mark.parametrize("case", SERVED)
def test_the_api_server_takes_all_manifests_to_the_letter(project: Project, case: str) -> None:
    """Strict validation refuses unknown and doubled fields; the namespace enforces Pod Security restricted.

    Pods in the networks between GPUs need another namespace: they use folders of the node.
    """
    for manifest in CASES[case]:
        placed = manifest | {"metadata": manifest["metadata"] | {"namespace": NAMESPACE}}
        assert "created (server dry run)" in dry_run(project, placed)
        if manifest["kind"] in ("Job", "CronJob", "Pod"):
            spec = {
                **template_of(manifest)["spec"],
                "serviceAccountName": "default",
                "priorityClassName": "",
            }
            is_privileged = any("hostPath" in volume for volume in spec.get("volumes", ()))
            namespace = "default" if is_privileged else NAMESPACE
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "pod", "namespace": namespace},
                "spec": spec,
            }
            assert "created (server dry run)" in dry_run(project, pod, namespace)


def test_root_is_for_namespaces_of_the_level_baseline(project: Project) -> None:
    spec = template_of(building.job(run_as_user=0))["spec"]
    root = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": NAMESPACE},
        "spec": spec,
    }
    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        dry_run(project, root)
    enforce = "pod-security.kubernetes.io/enforce"
    kubectl(project, "label", "namespace", NAMESPACE, f"{enforce}=baseline", "--overwrite")
    try:
        assert "created (server dry run)" in dry_run(project, root)
    finally:
        kubectl(project, "label", "namespace", NAMESPACE, f"{enforce}=restricted", "--overwrite")


def dry_run(project: Project, manifest: dict[str, Any], namespace: str = NAMESPACE) -> str:
    return kubectl(
        project,
        "create",
        f"--namespace={namespace}",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=json.dumps(manifest),
    )


def test_gpu_and_preprocessing_jobs_run_on_their_own_nodes(
    project: Project,
) -> None:
    project.up(
        train(gpu="L4", gpus=2, parallelism=2, completions=2, shared_memory="256Mi", **FOR_LONG)
    )
    until(lambda: phases(project, "train") == {"Running"})
    assert nodes_of(project, "train") == {"training-l4"}
    project.up(train("preprocess", parallelism=4, completions=4, **FOR_LONG))
    until(lambda: phases(project, "preprocess") == {"Running"})
    assert not nodes_of(project, "preprocess") & {"training-l4", "training-t4"}


def test_a_second_up_after_the_job_completed_changes_nothing(
    project: Project,
) -> None:
    body = train(gpu="L4", gpus=1, fail_on_exit_codes=[2], limits={"memory": "2048Mi"})
    project.up(body)
    until(lambda: phases(project, "train") == {"Succeeded"})
    before = uid(get(project, "job", "train"))
    assert unchanged(project, body)
    refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
    assert "updated" not in refreshed.stdout, refreshed.stdout
    assert unchanged(project, body)
    assert uid(get(project, "job", "train")) == before


def test_another_image_replaces_the_job_after_the_old_run(project: Project) -> None:
    """All four GPUs are taken: the new run could not start beside the old one."""
    project.up(train(gpu="L4", gpus=4, **FOR_LONG))
    until(lambda: phases(project, "train") == {"Running"})
    for image in ("i:2", "i:3"):
        assert "1 replaced" in project.up(train(gpu="L4", gpus=4, image=image, **FOR_LONG))
        until(
            lambda image=image: (
                [item["spec"]["containers"][0]["image"] for item in pods(project, "train")]
                == [image]
            )
        )
        until(lambda: phases(project, "train") == {"Running"})


def test_another_script_runs_the_job_again(project: Project) -> None:
    project.up(train(files={"/workspace/train.py": "1"}))
    before = uid(get(project, "job", "train"))
    assert unchanged(project, train(files={"/workspace/train.py": "1"}))
    project.up(train(files={"/workspace/train.py": "2"}))
    assert uid(get(project, "job", "train")) != before
    listed = project.kubectl(
        "get", "configmaps", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=train"
    )["items"]
    assert [item["data"] for item in listed] == [{"workspace.train.py": "2"}]
    (pod,) = pods(project, "train")
    assert listed[0]["metadata"]["name"] in {
        v.get("configMap", {}).get("name") for v in pod["spec"]["volumes"]
    }


def test_what_kubernetes_lets_change_is_updated_in_place(project: Project) -> None:
    steps: dict[str, list[dict[str, Any]]] = {
        "limited": [
            {},
            {"active_deadline_seconds": 7200},
            {"active_deadline_seconds": 3600, "backoff_limit": 9},
        ],
        "unlimited": [{"active_deadline_seconds": 7200}, {"active_deadline_seconds": 3600}, {}],
        "labelled": [
            {},
            *(
                {"overrides": {"Job": {"metadata": {"labels": {"team": team}}}}}
                for team in ("a", "b")
            ),
        ],
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
    runs = list(
        update_in_steps(
            project, {name: [{}, change, {}] for name, change in changes.items()}, "7 replaced"
        )
    )
    for name in changes:
        assert len({run[name] for run in runs}) == 3, name


def update_in_steps(
    project: Project, steps: dict[str, list[dict[str, Any]]], said: str
) -> Iterator[dict[str, str]]:
    """Bring Jobs up, change all of them at once from step to step, and tell their uids after each."""
    for index, changes in enumerate(zip(*steps.values(), strict=True)):
        printed = project.up(
            "".join(
                train(name, **FOR_LONG, **change)
                for name, change in zip(steps, changes, strict=True)
            )
        )
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
    kubectl(project, "patch", "job", "train", "--type=merge", "-p", '{"spec": {"parallelism": 2}}')
    assert unchanged(project, body)
    changed = train(
        elastic=True, completions=4, parallelism=3, active_deadline_seconds=3600, **FOR_LONG
    )
    assert "1 updated" in project.up(changed)
    live = get(project, "job", "train")
    assert (uid(live), live["spec"]["parallelism"]) == (before, 2)


def test_a_queued_job_is_not_awaited_and_not_suspended_again(project: Project) -> None:
    """What Kueue's webhook and controller do to a Job is done by hand here: it starts suspended, and is let go."""
    kubectl(project, "apply", "-f", "-", stdin=json.dumps(suspend_queued_jobs()))
    try:
        queued = {"queue": "gpus", "gpu": "L4", "gpus": 1, **FOR_LONG}
        until(lambda: admission_suspends(project))
        started = time.monotonic()
        project.up(train(**queued))
        assert time.monotonic() - started < 30, "a suspended Job was awaited"
        assert get(project, "job", "train")["spec"]["suspend"] is True
        assert (
            get(project, "job", "train")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
            == "gpus"
        )
        kubectl(
            project, "patch", "job", "train", "--type=merge", "-p", '{"spec": {"suspend": false}}'
        )
        until(lambda: phases(project, "train") == {"Running"})
        assert unchanged(project, train(**queued))
        refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
        assert "updated" not in refreshed.stdout, refreshed.stdout
        assert "1 updated" in project.up(train(**queued, active_deadline_seconds=3600))
        assert get(project, "job", "train")["spec"]["suspend"] is False
    finally:
        kubectl(
            project,
            "delete",
            "mutatingadmissionpolicybinding,mutatingadmissionpolicy",
            "suspend-queued-jobs",
        )


def suspend_queued_jobs() -> dict[str, Any]:
    """A policy that suspends Jobs in a queue as they are created, as Kueue's webhook does."""
    metadata = {"name": "suspend-queued-jobs"}
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["jobs"],
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "matchConstraints": {
                "resourceRules": [rule],
                "objectSelector": {"matchLabels": {"kueue.x-k8s.io/queue-name": "gpus"}},
            },
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{spec: Object.spec{suspend: true}}"
                    },
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": "suspend-queued-jobs"},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}


def admission_suspends(project: Project) -> bool:
    """Whether the policy is in force already: the API server takes a moment to read it."""
    probe = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            }
        },
    }
    answer = kubectl(
        project, "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(probe)
    )
    return json.loads(answer)["spec"]["suspend"]


def test_a_job_that_deletes_itself_is_recreated_after_a_refresh(
    project: Project,
) -> None:
    body = train(ttl_seconds_after_finished=1)
    project.up(body)
    until(lambda: get(project, "job", "train") is None)
    assert unchanged(project, body), "without a refresh the run is not repeated"
    project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
    assert "1 created" in project.up(body)


def test_runs_of_a_schedule_may_delete_themselves(project: Project) -> None:
    """They are not Pulumi's, so that no refresh misses them."""
    body = cron(ttl_seconds_after_finished=1)
    project.up(body)
    for name in ("first", "second"):
        kubectl(project, "create", "job", "--from=cronjob/nightly", name)
        until(lambda name=name: get(project, "job", name) is None)
        refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
        assert "updated" not in refreshed.stdout, refreshed.stdout
        assert unchanged(project, body)


def test_waiting_for_completion_waits_at_every_update(project: Project) -> None:
    waiting = {"wait_for_completion": True, "active_deadline_seconds": 120}
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
    project.up(train(wait_for_completion=True, active_deadline_seconds=120))
    assert get(project, "job", "train")["status"]["succeeded"] == 1


def test_a_failed_run_without_a_wait_is_kept(
    project: Project,
) -> None:
    body = train(active_deadline_seconds=1, grace_seconds=0, **NOWHERE)
    project.up(body)
    until(
        lambda: "DeadlineExceeded" in str(get(project, "job", "train")["status"].get("conditions"))
    )
    before = uid(get(project, "job", "train"))
    for _ in range(2):
        assert unchanged(project, body)
    assert uid(get(project, "job", "train")) == before


def test_a_wait_that_may_never_end_is_refused_at_preview(project: Project) -> None:
    project.up(train(**FOR_LONG))
    before = uid(get(project, "job", "train"))
    for args in (
        {"queue": "gpus"},
        {"fail_on_exit_codes": [2]},
        {"ttl_seconds_after_finished": 60},
    ):
        assert "invalid argument" in project.fails(
            train(wait_for_completion=True, **args), "preview"
        ), args
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
        refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
        assert refreshed.returncode == 0, refreshed.stdout
        assert "1 replaced" in project.up(train(gpu="L4", gpus=64, image=image))
    until(lambda: phases(project, "train") == {"Pending"})


def test_an_update_does_not_suspend_a_released_job(project: Project) -> None:
    suspended = {"overrides": {"Job": {"spec": {"suspend": True}}}, **FOR_LONG}
    project.up(train(**suspended))
    assert not pods(project, "train")
    kubectl(project, "patch", "job", "train", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    until(lambda: phases(project, "train") == {"Running"})
    for seconds in (3600, 7200):
        assert "1 updated" in project.up(train(**suspended, active_deadline_seconds=seconds))
        project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
    assert get(project, "job", "train")["spec"]["suspend"] is False
    assert phases(project, "train") == {"Running"}


def test_a_deletion_may_outlast_the_grace_of_every_update(project: Project) -> None:
    """What the state says counts: the old run is deleted by what was declared of it. Here none has started."""
    for grace in (600, 900):
        given = {"grace_seconds": grace, **NOWHERE}
        project.up(train(**given) + gang(**given) + cron(grace_seconds=grace) + task(**given))
        allowed = {
            resource["type"]: resource["customTimeouts"]["delete"]
            for resource in project.resources()
            if resource["type"].startswith("kubernetes:")
            and not resource["type"].endswith(":Service")
        }
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
        until(lambda: bool(project.kubectl("get", "crd", JOB_SETS)["status"].get("conditions")))
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
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": JOB_SETS},
        "spec": {
            "group": "jobset.x-k8s.io",
            "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1alpha2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


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
    until(lambda: phases(project, "gang") == {"Running"})
    assert nodes_of(project, "gang") == {"training-l4"}
    members = {item["spec"]["hostname"]: item for item in pods(project, "gang")}
    assert set(members) == {"gang-0", "gang-1"}
    env = {
        item["name"]: item.get("value")
        for item in members["gang-1"]["spec"]["containers"][0]["env"]
    }
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "2")
    host, _, service = str(env["PET_MASTER_ADDR"]).partition(".")
    assert members[host]["spec"]["subdomain"] == service
    # Simulated pods have no addresses, so that the Service's endpoints stay empty: what counts is whom it selects.
    selector = get(project, "service", service)["spec"]["selector"]
    selected = project.kubectl(
        "get", "pods", "-n", NAMESPACE, "-l", ",".join(f"{k}={v}" for k, v in selector.items())
    )
    assert {item["spec"]["hostname"] for item in selected["items"]} == set(members)


def test_a_resized_gang_keeps_its_service(project: Project) -> None:
    project.up(gang(gpu="L4", gpus=1, **FOR_LONG))
    before = uid(get(project, "service", "gang"))
    for nodes in (3, 4):
        assert "1 replaced" in project.up(gang(gpu="L4", gpus=1, nodes=nodes, **FOR_LONG))
        until(
            lambda nodes=nodes: (
                len(pods(project, "gang")) == nodes and phases(project, "gang") == {"Running"}
            )
        )
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
    return program(
        "Sweep",
        name,
        WORKLOAD
        | {"command": ["python", "train.py"], "parameters": parameters, "parallelism": 2}
        | more,
    )


def test_a_sweep_limits_the_combinations_that_run_at_once(project: Project) -> None:
    body = sweep(gpu="L4", gpus=2)
    project.up(body)
    seen: list[int] = []

    def done() -> bool:
        seen.append(sum(item["status"]["phase"] == "Running" for item in pods(project, "search")))
        return get(project, "job", "search")["status"].get("completedIndexes") == "0-3"

    until(done)
    assert 1 <= max(seen) <= 2
    assert nodes_of(project, "search") == {"training-l4"}
    assert unchanged(project, body)


def test_other_parameters_restart_the_sweep(
    project: Project,
) -> None:
    project.up(sweep(**FOR_LONG))
    before = uid(get(project, "job", "search"))
    maps = config_maps(project)
    assert unchanged(
        project,
        sweep(
            **FOR_LONG, parameters={"LR": {"values": [0.1, 0.01]}, "BATCH": {"values": [16.0, 32]}}
        ),
    )
    for values in ([0.1, 0.02], [0.1, 0.03]):
        parameters = {"LR": {"values": values}, "BATCH": {"values": [16, 32]}}
        printed = project.up(sweep(**FOR_LONG, parameters=parameters))
        assert "2 replaced" in printed
        now = uid(get(project, "job", "search"))
        assert now != before
        before = now
    assert len(config_maps(project)) == 1, "parameters of earlier sweeps are left behind"
    assert config_maps(project) != maps


def config_maps(project: Project) -> list[str]:
    listed = project.kubectl(
        "get", "configmaps", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=search"
    )["items"]
    return [item["metadata"]["name"] for item in listed]


def cron(name: str = "nightly", **more: Any) -> str:
    return program("ScheduledTraining", name, WORKLOAD | {"schedule": "0 3 * * *"} | more)


def test_a_schedule_and_an_image_change_in_place(
    project: Project,
) -> None:
    project.up(cron(gpu="L4", gpus=1))
    before = uid(get(project, "cronjob", "nightly"))
    assert "1 updated" in project.up(
        cron(gpu="L4", gpus=1, schedule="30 4 * * 0", time_zone="Europe/Berlin")
    )
    assert "1 updated" in project.up(cron(gpu="L4", gpus=1, image="i:2"))
    assert uid(get(project, "cronjob", "nightly")) == before
    kubectl(project, "create", "job", "--from=cronjob/nightly", "now")
    until(lambda: phases(project, "nightly") == {"Succeeded"})
    assert nodes_of(project, "nightly") == {"training-l4"}
    assert pods(project, "nightly")[0]["spec"]["containers"][0]["image"] == "i:2"
    kubectl(project, "delete", "job", "now")


def test_a_running_run_survives_a_change_but_not_a_manual_pause(project: Project) -> None:
    """An update takes over what kubectl changed, as Pulumi's plugin does: what is not declared goes."""
    project.up(cron(schedule="* * * * *", active_deadline_seconds=50, **FOR_LONG))
    kubectl(
        project, "patch", "cronjob", "nightly", "--type=merge", "-p", '{"spec": {"suspend": true}}'
    )
    kubectl(project, "create", "job", "--from=cronjob/nightly", "now")
    until(lambda: "Running" in phases(project, "nightly"))
    before = uid(get(project, "job", "now"))
    project.up(cron(image="i:2", **FOR_LONG))
    assert uid(get(project, "job", "now")) == before
    assert get(project, "cronjob", "nightly")["spec"]["suspend"] is False


def task(name: str = "check", **more: Any) -> str:
    return program("Task", name, WORKLOAD | {"command": ["nvidia-smi"]} | more)


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
    refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
    assert refreshed.returncode == 0, refreshed.stdout


def test_a_task_completes_and_does_not_run_again(project: Project) -> None:
    project.up(task(gpu="L4", gpus=1))
    until(lambda: phases(project, "check") == {"Succeeded"})
    before = uid(get(project, "pod", "check"))
    for _ in range(2):
        refreshed = project.pulumi("refresh", "--yes", "--skip-preview", "--stack", "t")
        assert "updated" not in refreshed.stdout, refreshed.stdout
        assert unchanged(project, task(gpu="L4", gpus=1))
    assert uid(get(project, "pod", "check")) == before


def test_a_task_is_waited_for_where_it_says_so(project: Project) -> None:
    for image in ("i:1", "i:2"):
        project.up(task(wait_for_completion=True, image=image))
        assert phases(project, "check") == {"Succeeded"}


def test_a_task_that_nothing_can_run_is_not_awaited(project: Project) -> None:
    started = time.monotonic()
    project.up(task(gpu="L4", gpus=64))
    assert time.monotonic() - started < 30
    assert phases(project, "check") == {"Pending"}


def test_gpus_can_be_claimed_and_another_claim_is_another_run(project: Project) -> None:
    """The replica has no DRA driver: what counts is that the API server takes the template and its CEL."""
    selector = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
    claim = {"gpu": "L4", "gpus": 1, "gpu_claim": {"selectors": [selector]}}
    project.up(train(**claim))
    name = template_names(project)
    assert len(name) == 1
    assert unchanged(project, train(**claim))
    assert "2 replaced" in project.up(train(**(claim | {"gpus": 2})))
    assert len(template_names(project)) == 1
    assert template_names(project) != name
    until(lambda: bool(pods(project, "train")))
    assert pods(project, "train")[0]["spec"]["resourceClaims"][0][
        "resourceClaimTemplateName"
    ] in template_names(project)
    said = project.fails(train(**(claim | {"gpu_claim": {"selectors": ["device.nothing == 1"]}})))
    assert "undefined field 'nothing'" in said


def template_names(project: Project) -> list[str]:
    listed = project.kubectl("get", "resourceclaimtemplates", "-n", NAMESPACE)["items"]
    return [item["metadata"]["name"] for item in listed]
