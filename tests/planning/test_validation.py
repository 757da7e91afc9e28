"""What planning says that the API server refuses, the API server refuses, and nothing else: on random workloads."""

from collections.abc import Callable, Iterator

import pytest
from ml_foundations.planning import UNKNOWN, Severity, Verdict, judge

from tests.factories import (
    GPU,
    Manifest,
    cluster_wide,
    container,
    deployment,
    in_namespace,
    limit_range,
    namespace,
    node,
    pod,
    stateful_set,
    template,
)
from tests.planning.mutations import RESTRICTED, workload
from tests.support.cluster import Cluster
from tests.support.waiting import until

CASES = 1500
ENFORCE = "pod-security.kubernetes.io/enforce"
NAMESPACES: dict[str, Manifest] = {
    "plain": {},
    "limited": {},
    **{level: {ENFORCE: level} for level in ("baseline", "restricted")},
    **{
        f"baseline-{minor}": {ENFORCE: "baseline", f"{ENFORCE}-version": f"v1.{minor}"}
        for minor in (18, 26, 30, 33)
    },
    **{
        f"restricted-{minor}": {ENFORCE: "restricted", f"{ENFORCE}-version": f"v1.{minor}"}
        for minor in (7, 21, 24, 34)
    },
}
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
}
LABELS = {
    "Deployment": {"pod-template-hash": "h"},
    "StatefulSet": {"controller-revision-hash": "h"},
    "DaemonSet": {"controller-revision-hash": "h"},
}
"""What controllers add to the labels of pods, as far as the mutations ask for it."""
REFUSING = {
    *("invalid", "pod-security", "priority-class", "runtime-class", "request-above-limit"),
    *("limit-range-max", "extended-resource-limit", "extended-resource-fraction"),
}
ROOMY = node(
    "n", {"zone": "a", "a": "b"}, cpu="1k", memory="1Ti", **{GPU: "1k", "hugepages-2Mi": "1Ti"}
)


def classes() -> list[Manifest]:
    """What the workloads find in the cluster."""
    scheduling, running = "scheduling.k8s.io/v1", "node.k8s.io/v1"
    limits = limit_range(
        {"type": "Container", "default": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}}
    )
    runtimes: dict[str, Manifest] = {
        "plain": {},
        "fixed": {"overhead": {"podFixed": {"cpu": "100m"}}},
        "selects": {"scheduling": {"nodeSelector": {"a": "b"}}},
    }
    return [
        *(namespace(*each) for each in NAMESPACES.items()),
        in_namespace("limited", limits),
        cluster_wide(scheduling, "PriorityClass", "high", value=100),
        cluster_wide(scheduling, "PriorityClass", "mild", value=50, preemptionPolicy="Never"),
        *(
            cluster_wide(running, "RuntimeClass", name, handler="h", **fields)
            for name, fields in runtimes.items()
        ),
    ]


@pytest.fixture(scope="module")
def create(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Create an object, or try to: the words with which the API server refuses it."""

    def post(document: Manifest, query: str = "") -> str:
        path = PATHS[document["kind"]].format(document["metadata"].get("namespace"))
        url = f"{cluster.api.configuration.host}{path}{query}"
        headers = {"Content-Type": "application/json"}
        response = cluster.api.call_api("POST", url, headers, document)
        words = response.read().decode()
        assert response.status in (201, 400, 403, 422), words
        return "" if response.status == 201 else words

    for document in classes():
        assert not post(document)
    for name in ("high", "mild"):
        probe = in_namespace("default", pod("probe", template(priorityClassName=name)))
        until(lambda probe=probe: not post(probe, "?dryRun=All"), "it is read after a moment")
    yield post


def pod_of(owner: Manifest) -> Manifest:
    """A pod as the workload's controller makes it."""
    made = owner["spec"]["template"]
    labels = {**made["metadata"]["labels"], **LABELS.get(owner["kind"], {})}
    pods = {"metadata": {"labels": labels}, "spec": made["spec"]}
    return in_namespace(owner["metadata"]["namespace"], pod("w-0", pods))


def test_what_planning_refuses_the_api_server_refuses(create: Callable[..., str]) -> None:
    surroundings, wrong, refused, told = [*classes(), ROOMY], [], 0, 0
    for seed in range(CASES):
        document = workload(seed, [*NAMESPACES, "plain", "plain"][seed % (len(NAMESPACES) + 2)])
        words = create(document, "?dryRun=All")
        if not words and document["kind"] != "Pod":
            words = create(pod_of(document), "?dryRun=All")
        verdict = judge([*surroundings, document]).workloads[0]
        if any(each.rule == "daemon-set-without-nodes" for each in verdict.warnings):
            continue  # no pod of it is made
        errors = [each for each in verdict.reasons if each.rule in REFUSING and each.is_error]
        refused, told = refused + bool(words), told + (verdict.verdict is not Verdict.UNDETERMINED)
        if bool(errors) != bool(words) and verdict.verdict is not Verdict.UNDETERMINED:
            wrong.append(f"{seed}: {words or [each.message for each in errors]}\n{document}")
    assert not wrong, f"{len(wrong)} are wrong:\n" + "\n".join(wrong[:5])
    assert 0.2 < refused / CASES < 0.9
    assert told / CASES > 0.9


def found(spec: Manifest, labels: Manifest | None = None) -> list[tuple[str, Severity]]:
    """The findings on pods in a namespace."""
    made = deployment("web", 1, {"metadata": {"labels": {"app": "web"}}, "spec": spec})
    reasons = judge([namespace(labels=labels), made, ROOMY]).workloads[0].reasons
    return [(each.rule, each.severity) for each in reasons]


MAIN = {"name": "main", "image": "i"}


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [MAIN | {"image": UNKNOWN, "env": UNKNOWN, "volumeMounts": UNKNOWN}]},
        {"containers": [MAIN | {"env": [{"name": "A", "value": UNKNOWN}]}]},
        {
            "containers": [MAIN | {"volumeMounts": [{"name": "v", "mountPath": UNKNOWN}]}],
            "volumes": [{"name": "v", "secret": {"secretName": UNKNOWN}}],
            "securityContext": {"fsGroup": UNKNOWN, "runAsUser": UNKNOWN},
            "serviceAccountName": UNKNOWN,
            "imagePullSecrets": UNKNOWN,
        },
    ],
)
def test_what_is_not_known_breaks_no_rule(spec: Manifest) -> None:
    assert found(spec) == []


@pytest.mark.parametrize(
    "unknown", [{"securityContext": UNKNOWN}, {"securityContext": {"privileged": UNKNOWN}}]
)
def test_pod_security_of_what_is_not_known_is_not_known(unknown: Manifest) -> None:
    spec = {"containers": [MAIN | unknown]}
    assert found(spec) == []
    assert set(found(spec, {ENFORCE: "baseline"})) == {("pod-security", Severity.WARNING)}
    assert ("pod-security", Severity.WARNING) in found(RESTRICTED, {ENFORCE: UNKNOWN})


PODS = template(containers=[container(cpu=1)])


def test_what_the_api_server_has_stored_it_has_accepted() -> None:
    stored = deployment("web", 1, PODS, selector={"matchLabels": {"app": "other"}})
    assert [each.rule for each in judge([stored, ROOMY]).workloads[0].reasons] == ["invalid"]
    stored["metadata"]["uid"] = "7a0f"
    assert judge([stored, ROOMY]).workloads[0].verdict is Verdict.FITS


@pytest.mark.parametrize(
    ("length", "expected"),
    [(52, Verdict.FITS), (53, Verdict.UNDETERMINED), (64, Verdict.CANNOT_FIT)],
)
def test_a_stateful_set_with_a_long_name_may_make_no_pods(length: int, expected: Verdict) -> None:
    verdicts = judge([stateful_set("a" * length, 1, PODS), ROOMY])
    assert verdicts.workloads[0].verdict is expected


@pytest.mark.parametrize(
    ("app", "expected"), [("web", Verdict.UNDETERMINED), ("other", Verdict.FITS)]
)
def test_a_deployment_takes_over_a_replica_set(app: str, expected: Verdict) -> None:
    bare = {**deployment("bare", 1, PODS), "kind": "ReplicaSet"}
    del bare["spec"]["replicas"]
    bare["metadata"]["labels"] = {"app": app}
    verdicts = judge([deployment("web", 1, PODS), bare, ROOMY]).workloads
    assert [each.verdict for each in verdicts] == [expected, expected]
