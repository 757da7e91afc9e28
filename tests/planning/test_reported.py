"""Relatives of reported faults: other fields, kinds and values of the same kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.input.documents import UnreadableError, read
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import node

_CASES = Path(__file__).with_name("public")
_CLUSTERS = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_REDIS = [{"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}]


def _judged(case: str, change: Callable[[dict[str, Any]], object] | None = None) -> Verdicts:
    """Return the verdicts of a case after a change of its objects, by kind."""
    objects = [*yaml.safe_load_all((_CASES / f"{case}.yaml").read_text())]
    if change:
        change({each["kind"]: each for each in objects})
    return judge_documents(read(yaml.safe_dump_all(objects), case))


def _judged_with(case: str, kind: str, path: str, value: Any) -> Verdicts:
    """Return the verdicts of a case after a field of its object of a kind has another value."""

    def change(objects: dict[str, Any]) -> None:
        *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        holder = objects[kind]
        for key in keys:
            holder = holder[key]
        holder[last] = value

    return _judged(case, change)


@pytest.mark.parametrize("kind", _CLUSTERS)
@pytest.mark.parametrize(
    ("annotations", "options", "is_refused"),
    [
        ({}, None, True),
        ({"ray.io/ft-enabled": "false"}, None, True),
        ({"ray.io/ft-enabled": "true"}, None, False),
        ({"ray.io/ft-enabled": "True"}, None, False),
        # Then gcsFaultToleranceOptions has the address.
        ({}, {"redisAddress": "redis:6379"}, True),
    ],
)
def test_redis_needs_fault_tolerance(
    kind: str, annotations: Any, options: Any, is_refused: bool
) -> None:
    def change(objects: dict[str, Any]) -> None:
        ray = objects["RayJob"]
        cluster: dict[str, Any] = ray["spec"].pop("rayClusterSpec")
        cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] = _REDIS
        cluster |= {"gcsFaultToleranceOptions": options} if options else {}
        ray["kind"], ray["metadata"]["annotations"] = kind, annotations
        ray["spec"] = {**ray["spec"], _CLUSTERS[kind]: cluster} if _CLUSTERS[kind] else cluster
        if kind == "RayService":
            del ray["spec"]["entrypoint"]

    found = _judged("ray-redis-without-fault-tolerance", change)
    assert [each.rule for each in found.findings] == ["invalid"] * is_refused


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        *((each, True) for each in ("", "90", "+5", "30m", "1h30m", "1.5h", ".5s", "0h1ms")),
        *((each, False) for each in ("0", "-5", "0s", "-1m", "5 m", "1d", "m", "1.5", "10m5")),
    ],
)
def test_the_timeout_of_a_ray_service_is_a_positive_time(value: str, is_accepted: bool) -> None:
    case, annotations = "ray-service-timeout-in-words", {"ray.io/initializing-timeout": value}
    found = _judged_with(case, "RayService", "metadata.annotations", annotations)
    assert (found.stack == "fits") == is_accepted


@pytest.mark.parametrize(
    ("parent", "key"),
    [("", "accessModes"), ("", "resources"), ("resources.requests", "storage")],
    ids=["accessModes", "resources", "storage"],
)
@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "StatefulSet"])
def test_claim_templates_are_whole(kind: str, parent: str, key: str) -> None:
    def change(objects: dict[str, Any]) -> None:
        group = objects["LeaderWorkerSet"]
        template = group["spec"]["leaderWorkerTemplate"]
        claim = template["volumeClaimTemplates"][0]["spec"]
        claim["accessModes"] = ["ReadWriteOnce"]
        del (claim["resources"]["requests"] if parent else claim)[key]
        if kind == "StatefulSet":
            labels = {"app": "big"}
            pods = {**template["workerTemplate"], "metadata": {"labels": labels}}
            claims, selector = template["volumeClaimTemplates"], {"matchLabels": labels}
            spec = {"selector": selector, "template": pods, "volumeClaimTemplates": claims}
            group |= {"apiVersion": "apps/v1", "kind": kind, "spec": spec}

    found = _judged("leader-worker-set-claims-without-modes", change)
    assert {each.rule for each in found.findings if each.is_error} == {"invalid"}
    field = f"{parent}.{key}".lstrip(".")
    assert any(f"volumeClaimTemplates[0].spec.{field}" in each.path for each in found.findings)


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("conditions", "taint"),
    [
        (None, ""),
        ([], ""),
        ([{"type": "Ready", "status": "True"}], ""),
        ([{"type": "Ready", "status": "False"}], NOT_READY),
        ([{"type": "Ready", "status": "Unknown"}], UNREACHABLE),
        ([{"type": "MemoryPressure", "status": "False"}], ""),
    ],
)
@pytest.mark.parametrize("tolerates", [False, True])
def test_a_node_takes_pods_by_its_condition(conditions: Any, taint: str, tolerates: bool) -> None:
    def change(objects: dict[str, Any]) -> None:
        objects["Node"]["status"]["conditions"] = conditions
        spec = objects["Deployment"]["spec"]["template"]["spec"]
        if tolerates:
            key = taint or "example.com/other"
            spec["tolerations"] = [*spec.get("tolerations", ()), {"key": key, "operator": "Exists"}]

    found = _judged("node-not-ready", change)
    is_refused = bool(taint) and not tolerates
    assert (found.stack == "cannot-fit") == is_refused
    assert [each.rule for each in found.findings] == ["taint"] * is_refused


def test_kueue_ignores_nodes_that_are_not_ready_whatever_pods_tolerate() -> None:
    path, all_taints = "spec.template.spec.tolerations", [{"operator": "Exists"}]
    found = _judged_with("topology-node-not-ready", "Job", path, all_taints)
    assert "queue-topology" in {each.rule for each in found.findings if each.is_error}


@pytest.mark.parametrize(
    ("case", "kind"), [("jobset-long-name", "JobSet"), ("train-job-long-name", "TrainJob")]
)
def test_the_name_that_is_too_long_is_the_one_that_is_named(case: str, kind: str) -> None:
    assert _judged(case).findings[0].path == "metadata.name"
    assert _judged_with(case, kind, "metadata.name", "a").stack == "fits"


def test_a_job_with_a_longer_name_than_its_set_is_named() -> None:
    def change(objects: dict[str, Any]) -> None:
        jobs = objects["JobSet"]["spec"]["replicatedJobs"]
        objects["JobSet"]["metadata"]["name"], jobs[0]["name"] = "a", "b" * 60

    [error] = [each for each in _judged("jobset-long-name", change).findings if each.is_error]
    assert error.path == "spec.replicatedJobs[0].name"


def test_no_message_has_an_empty_field() -> None:
    found = _judged_with("train-job-long-name", "TrainJob", "metadata.name", "a.b")
    assert found.findings and not [each for each in found.findings if "  " in each.message]


def test_a_patched_train_job_names_the_field_of_the_patch() -> None:
    job = "spec.runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs.0"
    path = f"{job}.template.spec.template.spec"
    field = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    pods = {"containers": [{"name": "node", **field}]}
    [finding] = _judged_with("train-job-patched", "TrainJob", path, pods).findings
    written = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
    mount = f"{written}.template.spec.template.spec.containers[0].volumeMounts[0].name"
    assert finding.path == mount
    assert finding.message.endswith("must be the name of a volume of the right type, not v")


@pytest.mark.parametrize(
    ("rolling", "rules"),
    [
        ({}, ["rollout-disk"]),
        ({"maxUnavailable": 0}, ["rollout-disk"]),
        ({"maxUnavailable": 1}, []),
    ],
)
def test_a_rollout_waits_for_a_claim_of_one_pod(rolling: Any, rules: list[str]) -> None:
    case, strategy = "rollout-keeps-claim-of-one-pod", {"rollingUpdate": rolling}
    found = _judged_with(case, "Deployment", "spec.strategy", strategy)
    assert [each.rule for each in found.findings] == rules


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        ("dra-class-missing", "DeviceClass gpu.example.com is not shown"),
        ("dra-template-missing", "ResourceClaimTemplate g is not shown"),
    ],
)
def test_what_claims_lack_is_named(case: str, missing: str) -> None:
    [finding] = _judged(case).findings
    assert missing in finding.message


@pytest.mark.parametrize("case", ["dra-selectors-match-none", "dra-count-above-node"])
def test_messages_name_devices_as_their_claims_do(case: str) -> None:
    [finding] = _judged(case).findings
    assert "deviceclass." not in f"{finding}"


@pytest.mark.parametrize("levels", [[], "x", [{}], [{"nodeLabel": ""}], None])
def test_a_topology_without_levels_is_no_topology(levels: Any) -> None:
    found = _judged_with("topology-without-levels", "Topology", "spec.levels", levels)
    assert found.stack != "fits"


@pytest.mark.parametrize("value", [[], ["x"], {"x": 5}, 5, None])
def test_a_slice_of_no_node_is_not_followed(value: Any) -> None:
    found = _judged_with("dra-slice-of-many-nodes", "ResourceSlice", "spec.nodeName", value)
    assert found.stack == "undetermined"


@pytest.mark.parametrize("name", [[], {}, None, 5])
def test_a_job_of_a_runtime_has_a_text_as_name(name: Any) -> None:
    path = "spec.template.spec.replicatedJobs.0.name"
    found = _judged_with("train-job-patched", "ClusterTrainingRuntime", path, name)
    assert found.stack == "cannot-fit"


def test_a_patched_runtime_whose_volumes_are_not_known_is_judged() -> None:
    objects = [*yaml.safe_load_all((_CASES / "train-job-patched.yaml").read_text())]
    [runtime] = [made for made in objects if made["kind"] == "ClusterTrainingRuntime"]
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    job["spec"]["template"]["spec"]["volumes"] = UNKNOWN
    assert judge_documents(objects).stack is Verdict.UNDETERMINED


def test_a_train_job_without_a_name_is_judged() -> None:
    verdicts = _judged_with("train-job-patched", "TrainJob", "metadata.name", None)
    assert verdicts.stack is Verdict.CANNOT_FIT


@pytest.mark.parametrize(
    ("policy", "verdict", "words"),
    [
        # Its webhook refuses the value while an alpha gate is off.
        ({"restartStrategy": "InPlaceRestart"}, "undetermined", "in some clusters it must be one"),
        # A later release has it.
        ({"rules": [{"name": "r", "action": "RestartJob"}]}, "undetermined", "does not know what"),
        ({"rules": [{"name": "r", "action": "Restart"}]}, "cannot-fit", "must be one of"),
        ({"rules": [{"name": "r", "action": 3}]}, "unreadable", "must be a string"),
    ],
)
def test_a_value_that_a_version_of_a_custom_kind_lacks_is_judged(
    policy: Any, verdict: str, words: str
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    jobs = [{"name": "w", "template": {"spec": {"template": template}}}]
    spec = {"failurePolicy": policy, "replicatedJobs": jobs}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    text = yaml.safe_dump({**job_set, "metadata": {"name": "a"}})
    if verdict == "unreadable":
        with pytest.raises(UnreadableError, match=words):
            read(text, "a")
        return
    (judged,) = judge_documents([node("n"), *read(text, "a")]).workloads
    assert judged.verdict == verdict
    assert any(words in reason.message for reason in judged.reasons)
