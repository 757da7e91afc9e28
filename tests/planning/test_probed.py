"""Small cases, each with what became of it on a real control plane."""

from typing import Any

import pytest
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.input.documents import read

from tests.planning.building import (
    ZONE,
    Manifest,
    anti_affinity,
    container,
    daemon_set,
    deployment,
    job,
    namespaced,
    node,
    node_affinity,
    quota,
    spread,
    stateful_set,
    template,
    workload,
)  # fmt: skip

FITS, CANNOT, OPEN = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED
ROOMY = node("n", cpu="8", memory="8Gi")
ONE = template(containers=[container(cpu=1)])


def agent(**spec: Any) -> Manifest:
    return daemon_set("agent", template(containers=[container(cpu=9)], **spec))


def pod(name: str, labels: Manifest | None = None, containers: list[Manifest] | None = None) -> Manifest:
    made = template(labels, containers)
    return workload("v1", "Pod", name, made["spec"]) | {
        "metadata": {"name": name, "namespace": "team", **made["metadata"]}
    }


def hook(group: str, resource: str) -> Manifest:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{"rules": [rule]}],
    }


def scaler(name: str, **spec: Any) -> Manifest:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return namespaced("autoscaling/v2", "HorizontalPodAutoscaler", name, spec={"scaleTargetRef": target, **spec})


def tainted(key: str, effect: str, **status: Any) -> Manifest:
    made = node("n", cpu="8", memory="8Gi")
    made["spec"] = {"taints": [{"key": key, "effect": effect}]}
    made["status"] |= status
    return made


def for_seconds(seconds: int | None) -> Manifest:
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoExecute"}
    return {"tolerations": [toleration | ({} if seconds is None else {"tolerationSeconds": seconds})]}


def priority_class(name: str, value: int, **fields: Any) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    } | fields


def on_node(made: Manifest) -> Manifest:
    return {**made, "spec": {**made["spec"], "nodeName": "n"}}


def train(labels: Manifest | None = None, **spec: Any) -> Manifest:
    return job("train", 1, template(labels, [container(cpu=1)]), **spec)


def failing_by(name: str) -> Manifest:
    codes = {"containerName": name, "operator": "In", "values": [1]}
    return {"rules": [{"action": "FailJob", "onExitCodes": codes}]}


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u"}
IN_A = {"key": ZONE, "operator": "In", "values": ["a"]}


def zonal_volume(labels: Manifest | None = None, affinity: Manifest | None = None) -> list[Manifest]:
    """A volume, a claim for it that waits for its pod, and the pod."""
    has = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    affinity = {"required": next(iter(affinity.values()))} if affinity else {}
    own = {"capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/p"}, "nodeAffinity": affinity}
    metadata = {"name": "local"}
    late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    mount = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", "labels": labels or {}}}
    return [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, **late},
        {**volume, "spec": {**has, **{key: value for key, value in own.items() if value}}},
        namespaced("v1", "PersistentVolumeClaim", "data", spec={**has, "resources": {"requests": {"storage": "1Gi"}}}),
        deployment("web", 1, template(volumes=[mount])),
    ]


def hooked(seconds: int) -> Manifest:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}
    return deployment("web", 1, template(containers=[container(cpu=1) | hook]))


def mounting(**mount: Any) -> Manifest:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled", **mount}]}
    return deployment(
        "web", 1, template(containers=[container(cpu=1) | mounts], volumes=[{"name": "v", "emptyDir": {}}])
    )


def cron_job(**spec: Any) -> Manifest:
    made = train()["spec"] | spec
    return namespaced("batch/v1", "CronJob", "nightly", spec={"schedule": "0 3 * * *", "jobTemplate": {"spec": made}})


TWICE = spread(matchLabelKeys=["app"])
TWICE["labelSelector"] = TWICE["labelSelector"] | {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
WEB = deployment("web", 1, ONE)
SET = stateful_set("set", 1, ONE)
EPHEMERAL = {
    "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}]
}
INDEXED = {"completionMode": "Indexed", "completions": 3}
CASES: dict[str, tuple[list[Manifest], Verdict]] = {
    "a hook on revisions keeps a StatefulSet from its pods": ([ROOMY, SET, hook("apps", "controllerrevisions")], OPEN),
    "a hook on revisions leaves a Deployment alone": ([ROOMY, WEB, hook("apps", "controllerrevisions")], FITS),
    "a hook on all parts of pods is about pods": ([ROOMY, WEB, hook("", "pods/*")], OPEN),
    "a hook on bindings keeps pods from their nodes": ([ROOMY, WEB, hook("", "pods/binding")], OPEN),
    "a hook on the status of pods": ([ROOMY, WEB, hook("", "pods/status")], FITS),
    "a hook on accounts keeps the default one from its namespace": ([ROOMY, WEB, hook("", "serviceaccounts")], OPEN),
    "a hook on what is declared beside": (
        [ROOMY, WEB, namespaced("v1", "LimitRange", "l", spec={"limits": []}), hook("", "limitranges")],
        OPEN,
    ),
    "a hook on claims": (
        [ROOMY, deployment("web", 1, template(None, [container(cpu=1)], **EPHEMERAL)), hook("", "persistentvolumeclaims")],
        OPEN,
    ),
    "a Deployment has the label of its controller": ([ROOMY, deployment("web", 1, template({"app": "web", "pod-template-hash": "x"}))], OPEN),
    "a pod that names its node takes no room": ([node("n", cpu="1", memory="8Gi"), on_node(pod("a")), pod("b")], OPEN),
    "a node without its host name": (
        [{**ROOMY, "metadata": {"name": "n"}}, deployment("web", 2, template(affinity=anti_affinity()))],
        OPEN,
    ),
    "a pod that says it has ended, and was never there": (
        [node("n", cpu="1", memory="8Gi"), {**pod("a"), "status": {"phase": "Succeeded"}}, pod("b")],
        CANNOT,
    ),
    "an object twice is one": ([node("n", cpu="1", memory="8Gi"), WEB, WEB], FITS),
    "a node twice is one": ([node("n", cpu="1", memory="8Gi")] * 2 + [deployment("web", 2, ONE)], CANNOT),
    "an object in two shapes": ([ROOMY, WEB, deployment("web", 2, ONE)], OPEN),
    "a pressure is a taint": ([tainted("a", "PreferNoSchedule", conditions=[{"type": "DiskPressure", "status": "True"}]), WEB], CANNOT),
    "a pressure that is over": ([tainted("a", "PreferNoSchedule", conditions=[{"type": "DiskPressure", "status": "False"}]), WEB], FITS),
    "a taint of the network is nothing to a DaemonSet of the host's": (
        [tainted("node.kubernetes.io/network-unavailable", "NoSchedule"), agent(hostNetwork=True)],
        CANNOT,
    ),
    "a taint of the network keeps other DaemonSets away": (
        [tainted("node.kubernetes.io/network-unavailable", "NoSchedule"), agent()],
        FITS,
    ),
    "what tolerates a taint for a time is evicted": (
        [tainted("spot", "NoExecute"), deployment("web", 1, template(containers=[container(cpu=1)], **for_seconds(0)))],
        OPEN,
    ),
    "what tolerates a taint for ever stays": (
        [tainted("spot", "NoExecute"), deployment("web", 1, template(containers=[container(cpu=1)], **for_seconds(None)))],
        FITS,
    ),
    "an autoscaler takes replicas away": (
        [node("n", cpu="2", memory="8Gi"), deployment("web", 5, ONE), scaler("h", maxReplicas=2)],
        FITS,
    ),
    "of two autoscalers, the larger minimum counts": (
        [node("n", cpu="2", memory="8Gi"), WEB, scaler("h", minReplicas=3, maxReplicas=5), scaler("i", maxReplicas=5)],
        CANNOT,
    ),
    "a pod has the name of a StatefulSet's": ([ROOMY, SET, pod("set-0", labels={"other": "x"})], OPEN),
    "a pod has a number that the StatefulSet has not": ([ROOMY, SET, pod("set-1", labels={"other": "x"})], FITS),
    "a second class for all": (
        [ROOMY, WEB, priority_class("a", 1, globalDefault=True), priority_class("b", 2, globalDefault=True)],
        CANNOT,
    ),
    "a Job has its own labels": (
        [ROOMY, train({"job-name": "x"})],
        CANNOT,
    ),
    "a Job's own labels may be given": (
        [ROOMY, train({"job-name": "train"})],
        FITS,
    ),
    "as many indexes as there are": (
        [ROOMY, train(successPolicy={"rules": [{"succeededIndexes": "0,2"}]}, **INDEXED)],
        FITS,
    ),
    "an index that is not there": ([ROOMY, train(successPolicy={"rules": [{"succeededIndexes": "3"}]}, **INDEXED)], CANNOT),
    "more indexes may fail than there are": ([ROOMY, train(maxFailedIndexes=4, backoffLimitPerIndex=1, **INDEXED)], CANNOT),
    "all indexes may fail": ([ROOMY, train(maxFailedIndexes=3, backoffLimitPerIndex=1, **INDEXED)], FITS),
    "a failure policy of a container that is not there": ([ROOMY, train(podFailurePolicy=failing_by("other"))], CANNOT),
    "a failure policy of its container": ([ROOMY, train(podFailurePolicy=failing_by("main"))], FITS),
    "a deadline that is over at once": ([ROOMY, train(activeDeadlineSeconds=0)], OPEN),
    "a pod of an owner that is not there": (
        [ROOMY, {**pod("a"), "metadata": {**pod("a")["metadata"], "ownerReferences": [OWNER]}}],
        OPEN,
    ),
    "a zone on a volume that is not bound keeps no pod away": (
        [node("n", {ZONE: "b"}), *zonal_volume(labels={ZONE: "a"})],
        OPEN,
    ),
    "a volume that reaches no node": ([node("n", {ZONE: "b"}), *zonal_volume(affinity=node_affinity(IN_A)["nodeAffinity"])], CANNOT),
    "a volume in reach": ([node("n", {ZONE: "a"}), *zonal_volume(affinity=node_affinity(IN_A)["nodeAffinity"])], FITS),
    "space around an amount": ([node("n", cpu="1", memory="8Gi"), deployment("web", 1, template(containers=[container(cpu=" 2")]))], CANNOT),
    "a hook sleeps longer than its pod has to end": ([ROOMY, hooked(31)], CANNOT),
    "a hook sleeps as long as its pod has to end": ([ROOMY, hooked(30)], FITS),
    "a mount that is read-only all the way down, and is not read-only": ([ROOMY, mounting(readOnly=False)], CANNOT),
    "a mount that is read-only all the way down": ([ROOMY, mounting(readOnly=True)], FITS),
    "the Job of a CronJob without pods counts": ([ROOMY, quota(hard={"count/jobs.batch": "0"}), cron_job(parallelism=0)], CANNOT),
    "a template whose selector names a key twice": ([ROOMY, deployment("web", 0, template(topologySpreadConstraints=[TWICE]))], CANNOT),
    "a service without a port": ([ROOMY, WEB, namespaced("v1", "Service", "web", spec={"ports": [{"port": 0}]})], CANNOT),
    "labels that are none": ([ROOMY, {**WEB, "metadata": {**WEB["metadata"], "labels": {"a b": "c"}}}], CANNOT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_became_of_it(case: str) -> None:
    documents, expected = CASES[case]
    assert judge(documents).stack is expected


def test_what_is_declared_replaces_what_is_stored() -> None:
    stored = deployment("web", 9, ONE)
    stored["metadata"]["uid"] = "7a0f"
    for documents in ([stored, WEB], [WEB, stored]):
        assert [each.verdict for each in judge([node("n", cpu="1", memory="8Gi"), *documents]).workloads] == [FITS]


def test_a_service_that_is_refused_leaves_workloads_alone() -> None:
    found = judge([ROOMY, WEB, namespaced("v1", "Service", "web", spec={"ports": [{"port": 0}]})])
    assert (found.stack, found.workloads[0].verdict) == (CANNOT, FITS)


def test_a_list_may_hold_lists() -> None:
    inner = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}]}"
    assert [each["kind"] for each in read(f"{{apiVersion: v1, kind: List, items: [{inner}]}}", "list.yaml")] == ["Pod"]


def test_company_that_a_selector_of_namespaces_finds_may_come_too_late() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"a": "b"}}}
    for selector, expected in (({"matchLabels": {"a": "b"}}, OPEN), ({}, FITS)):
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term | {"namespaceSelector": selector}]}
        web = deployment("web", 1, template(affinity={"podAffinity": terms}))
        assert judge([ROOMY, namespace, deployment("a", 1, template({"app": "a"})), web]).stack is expected


def test_an_evicted_pod_of_a_job_may_be_its_last() -> None:
    high, two = priority_class("high", 10), {"nodeSelector": {"k": "two"}}
    nodes = [node("a", cpu="1", memory="8Gi"), node("b", {"k": "two"}, cpu="1", memory="8Gi")]
    web = deployment("web", 1, template(containers=[container(cpu=1)], priorityClassName="high", **two))
    assert judge([*nodes, high, web, train()]).stack is FITS
    assert judge([*nodes, high, web, train(backoffLimit=0)]).stack is OPEN


def test_a_pod_evicts_nothing_that_it_needs_itself() -> None:
    nodes = [node("a", {"k": "one"}, cpu="2", memory="8Gi"), node("b", cpu="1", memory="8Gi")]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"x": "x"}}}
    ]}}  # fmt: skip

    def web(name: str, labels: Manifest, **spec: Any) -> Manifest:
        made = deployment(name, 1, template(containers=[container(cpu=1)], **spec))
        made["spec"]["template"]["metadata"]["labels"] = made["spec"]["selector"]["matchLabels"] = labels
        return made

    attracting = web("attracting", {"x": "x"}, nodeSelector={"k": "one"})
    high = web("high", {"y": "y"}, priorityClassName="high", affinity=near)
    documents = [*nodes, priority_class("high", 10), web("other", {"z": "z"}), attracting, high]
    assert judge(documents).stack is OPEN


def test_a_daemon_set_may_evict_what_runs() -> None:
    running = pod("p", containers=[container(cpu=8)])
    running["spec"]["nodeName"], running["status"] = "n", {"phase": "Running"}
    small = daemon_set("agent", template(containers=[container(cpu=1)]))
    assert judge([ROOMY, running, small]).stack is CANNOT
    small["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    assert judge([ROOMY, running, small]).stack is OPEN


def with_header(name: str) -> Manifest:
    return {"readinessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": name, "value": "x"}]}}}


def with_divisor(divisor: str) -> Manifest:
    field = {"resource": "limits.memory", "divisor": divisor}
    return {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": field}}]}


def with_file(**key: str) -> Manifest:
    return {"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"path": "p", "key": "K", **key}}}]}


IN_CONTAINERS = [
    (with_header("X-A"), FITS),
    (with_header("X_A"), CANNOT),
    (with_header(""), CANNOT),
    (with_divisor("1Mi"), FITS),
    (with_divisor("3Mi"), CANNOT),
    (with_file(volumeName="missing"), CANNOT),
    (with_file(), CANNOT),
    ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}, CANNOT),
]
IN_PODS = [
    ({"dnsConfig": {"searches": ["_a._b.", "."]}}, FITS),
    ({"dnsConfig": {"searches": ["a..b"]}}, CANNOT),
    ({"dnsConfig": {"searches": ["a"] * 33}}, CANNOT),
    ({"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "S_"}}}]}, CANNOT),
    ({"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "A_"}}}, CANNOT),
    ({"securityContext": {"windowsOptions": {"runAsUserName": ""}}}, CANNOT),
]


@pytest.mark.parametrize(("fields", "verdict"), IN_CONTAINERS)
def test_fields_of_containers_as_the_api_server_took_them(fields: Manifest, verdict: Verdict) -> None:
    found = judge([ROOMY, pod("p", containers=[container() | fields])])
    assert found.stack == verdict


@pytest.mark.parametrize(("fields", "verdict"), IN_PODS)
def test_fields_of_pods_as_the_api_server_took_them(fields: Manifest, verdict: Verdict) -> None:
    made = pod("p")
    found = judge([ROOMY, made | {"spec": made["spec"] | fields}])
    assert found.stack == verdict


def test_a_stateful_set_may_have_any_limit_of_revisions() -> None:
    made = stateful_set("s", 1, ONE)
    made["spec"]["revisionHistoryLimit"] = -1
    assert judge([ROOMY, made]).stack == FITS
