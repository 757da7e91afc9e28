"""What planning does not know makes a verdict undetermined, and the finding names it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.component.data import yaml_file
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.__main__ import main
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    Manifest,
    claim,
    cluster_wide,
    daemon_set,
    deployment,
    job,
    limit_range,
    namespaced,
    node,
    pool,
    quota,
    stateful_set,
    template,
    webhook,
    workload,
)
from tests.support.cluster_objects import (
    mounted,
    namespace,
    priority_class,
    storage_class,
    using,
    web,
)

NODE = node("n", gpu=2)
WEB = deployment("web", 1, template())
MASTER = {"replicas": 1, "template": using(gpu=2)}
ADMISSION = "admissionregistration.k8s.io/v1"
GROUPED: Manifest = {"schedulingGroup": {"podGroupName": "g"}}


def named(found: Verdicts) -> list[tuple[str, str]]:
    """The rules and the fields of all that is not known."""
    return [(each.rule, each.path) for each in found.findings if each.rule.startswith("unknown")]


def python_torch_job(workers: int = 1, gpus: int = 2) -> Manifest:
    replicas = {"Master": MASTER, "Worker": {"replicas": workers, "template": using(gpu=gpus)}}
    return workload("kubeflow.org/v1", "PyTorchJob", "train", {"pytorchReplicaSpecs": replicas})


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        (GROUPED, "schedulingGroup"),
        ({"os": {"name": "windows"}}, "os.name"),
        ({"volumes": [{"name": "d", "tape": {"reel": "i"}}]}, "volumes[0].tape"),
        ({"nodeselector": {"a": "b"}}, "nodeselector"),
    ],
)
def test_an_unknown_field_is_named_with_its_path(changed: Manifest, path: str) -> None:
    found = judge([web(**changed), NODE])
    assert found.stack is OPEN
    assert named(found) == [("unknown-field", f"spec.template.spec.{path}")]


FOR_A_TIME = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}


@pytest.mark.parametrize(
    "known",
    [
        {
            "os": {"name": "linux"},
            "dnsPolicy": "Default",
            "volumes": [{"name": "d", "emptyDir": {}}],
        },
        {"schedulingGroup": None, "tolerations": [FOR_A_TIME]},
    ],
)
def test_what_decides_nothing_or_is_empty_changes_nothing(known: Manifest) -> None:
    assert judge([web(**known), NODE]).stack is FITS


def test_cannot_fit_is_not_certain_if_a_field_is_unknown() -> None:
    (found,) = judge([web(9, **GROUPED), NODE]).workloads
    assert found.verdict is OPEN
    assert {finding.rule for finding in found.reasons} == {"unknown-field", "nodes"}
    assert {finding.severity for finding in found.reasons} == {"warning"}


ACCOUNTS = "ResourceQuota quota.spec.hard.count/serviceaccounts"
IMAGES = {"type": "example.com/Image", "max": {"storage": "1Gi"}}
OF_DEVICES = {"extendedResourceName": "example.com/gpu"}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (quota(hard={"count/serviceaccounts": "1"}), ACCOUNTS),
        (quota(hard={"count/serviceaccounts": "9"}), ACCOUNTS),
        (limit_range(IMAGES), "LimitRange limits.spec.limits[0].type"),
        (
            cluster_wide("storage.k8s.io/v1", "CSIDriver", "d", spec={"storageCapacity": True}),
            "CSIDriver d.spec.storageCapacity",
        ),
        (
            cluster_wide("resource.k8s.io/v1", "DeviceClass", "c", spec=OF_DEVICES),
            "DeviceClass c.spec.extendedResourceName",
        ),
    ],
)
def test_an_unknown_field_touches_the_workloads_it_may_decide(
    document: Manifest, path: str
) -> None:
    elsewhere = {**WEB, "metadata": {"name": "web", "namespace": "other"}}
    found = judge([WEB, elsewhere, document, NODE])
    mine, others = (item.verdict for item in found.workloads)
    assert mine is OPEN
    assert others is (FITS if "namespace" in document["metadata"] else OPEN)
    assert set(named(found)) == {("unknown-field", path)}


@pytest.mark.parametrize(
    "key", ["count/widgets.example.com", "services", "requests.nvidia.com/gpu", "count/pods"]
)
def test_quotas_on_what_workloads_do_not_make_decide_nothing(key: str) -> None:
    assert judge([WEB, quota(hard={key: "9"}), NODE]).stack is FITS


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("scheduler.alpha.kubernetes.io/node-selector", OPEN),
        ("kueue.x-k8s.io/pod-group-fast-admission", OPEN),
        ("kubectl.kubernetes.io/last-applied-configuration", FITS),
        ("example.com/owner", FITS),
    ],
)
def test_annotations_of_kubernetes_decide_unless_they_are_known(
    annotation: str, expected: Verdict
) -> None:
    pods = template()
    pods["metadata"]["annotations"] = {annotation: "x"}
    found = judge([deployment("web", 1, pods), NODE])
    assert found.stack is expected
    named_path = [("unknown-field", f"spec.template.metadata.annotations.{annotation}")]
    assert named(found) == (named_path if expected is OPEN else [])


BUDGET = namespaced("policy/v1beta1", "PodDisruptionBudget", "web", spec={})


@pytest.mark.parametrize(
    ("document", "severity", "message"),
    [
        (BUDGET, "error", "v1beta1/PodDisruptionBudget was removed in Kubernetes 1.25. Use policy/v1/"),
        (cluster_wide("policy/v1beta1", "PodSecurityPolicy", "p"), "error", "It has no replacement."),
        (cluster_wide("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "r"), "error", "in Kubernetes 1.22"),
        (workload("extensions/v1beta1", "Deployment", "old", WEB["spec"]), "error", "Use apps/v1/"),
        (workload("batch/v1beta1", "CronJob", "old", {}), "error", "Use batch/v1/CronJob instead."),
        (namespaced("resource.k8s.io/v1beta1", "ResourceClaimTemplate", "g"), "warning", "Write it as resource.k8s.io/v1,"),
        (workload("batch/v2", "Job", "old", {}), "warning", "Write it as batch/v1,"),
        (workload("ray.io/v1alpha1", "RayCluster", "old", {}), "warning", "Write it as ray.io/v1,"),
    ],
)  # fmt: skip
def test_another_version_of_a_kind_is_named(
    document: Manifest, severity: str, message: str
) -> None:
    found = judge([WEB, document, NODE])
    reasons = [*found.reasons, *(reason for each in found.workloads for reason in each.reasons)]
    texts = [
        f"{reason.message}. {reason.remedy}" for reason in reasons if reason.severity == severity
    ]
    assert any(message in text for text in texts)
    by_name = {each.workload.name: each.verdict for each in found.workloads}
    assert by_name["web"] is FITS
    stored = {**document, "metadata": {**document["metadata"], "uid": "u"}}
    assert judge([WEB, stored, NODE]).stack is not CANNOT


IN_MESH = namespace(**{"istio-injection": "enabled"})
SIDECAR = "sidecar.istio.io/inject"


@pytest.mark.parametrize(
    ("team", "pods", "expected"),
    [
        (IN_MESH, {}, OPEN),
        (IN_MESH, {"labels": {SIDECAR: "false"}}, FITS),
        (IN_MESH, {"annotations": {SIDECAR: "false"}}, FITS),
        (IN_MESH, {"labels": {SIDECAR: "true"}, "annotations": {SIDECAR: "false"}}, OPEN),
        (namespace(**{"istio.io/rev": "stable"}), {"labels": {SIDECAR: "false"}}, FITS),
        (namespace(**{"istio-injection": "disabled"}), {}, FITS),
        (namespace(), {"labels": {SIDECAR: "true"}}, OPEN),
        (namespace(), {"labels": {SIDECAR: "false"}}, FITS),
        (namespace(), {"annotations": {"linkerd.io/inject": "enabled"}}, OPEN),
        (namespace(), {"annotations": {"linkerd.io/inject": "disabled"}}, FITS),
        (namespace(), {"annotations": {"admission.datadoghq.com/python-lib.version": "v3"}}, OPEN),
        (namespace(), {"annotations": {"admission.datadoghq.com/js-lib.custom-image": "i"}}, OPEN),
        (namespace(), {"annotations": {"admission.datadoghq.com/js-lib.config.v1": "{}"}}, FITS),
        (namespace(), {"annotations": {"sidecar.jaegertracing.io/inject": "true"}}, OPEN),
        (namespace(), {"annotations": {"sidecar.jaegertracing.io/inject": "false"}}, FITS),
        (namespace(), {"annotations": {"vault.hashicorp.com/agent-inject": "true"}}, OPEN),
        (namespace(), {"annotations": {"vault.hashicorp.com/agent-inject": "false"}}, FITS),
    ],
)
def test_what_webhooks_inject_is_not_known_unless_it_is_switched_off(
    team: Manifest, pods: Manifest, expected: Verdict
) -> None:
    made = template()
    made["metadata"] = {**pods, "labels": {"app": "web", **pods.get("labels", {})}}
    made = deployment("web", 1, made, selector={"matchLabels": {"app": "web"}})
    assert judge([made, team, NODE]).stack is expected


def test_pods_on_the_network_of_the_host_get_no_proxy_of_istio() -> None:
    assert judge([web(hostNetwork=True), IN_MESH, NODE]).stack is FITS


def test_a_foreign_node_adds_no_capacity() -> None:
    foreign = {**node("big", gpu=8), "apiVersion": "example.org/v1"}
    found = judge([deployment("web", 1, using(gpu=8)), foreign, NODE])
    assert found.workloads[0].verdict is CANNOT
    assert ("unknown-kind", "kind") in named(found)


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({**stateful_set("web", 9, template()), "apiVersion": "apps.kruise.io/v1beta1"}, "StatefulSet.apps.kruise.io"),
        ({**daemon_set("web", template()), "apiVersion": "apps.kruise.io/v1alpha1"}, "DaemonSet.apps.kruise.io"),
        ({**job("web", 9, template()), "apiVersion": "batch/v2"}, "Job.batch"),
        (
            workload("batch.volcano.sh/v1alpha1", "Job", "web", {"tasks": [MASTER]}),
            "Job.batch.volcano.sh",
        ),
        (
            workload("leaderworkerset.x-k8s.io/v2", "LeaderWorkerSet", "web",
                     {"replicas": 800, "leaderWorkerTemplate": {"size": 8, "workerTemplate": template()}}),
            "LeaderWorkerSet.leaderworkerset.x-k8s.io",
        ),
        (
            workload("kubeflow.org/v1", "MPIJob", "web", {"headGroupSpec": MASTER, "workerGroupSpecs": [MASTER]}),
            "MPIJob.kubeflow.org",
        ),
    ],
)  # fmt: skip
def test_workloads_of_unknown_kinds_are_named(document: Manifest, kind: str) -> None:
    found = judge([document, NODE])
    assert [str(item.workload) for item in found.workloads] == [
        f"{kind} team/{document['metadata']['name']}"
    ]
    assert found.stack is OPEN
    assert named(found) == [("unknown-kind", "kind")]


def test_their_pod_templates_are_judged_on_their_own() -> None:
    (fine,) = judge([python_torch_job(workers=800), NODE, node("m", gpu=2)]).workloads
    assert [finding.rule for finding in fine.reasons] == ["unknown-kind"]
    (found,) = judge([python_torch_job(gpus=8), NODE]).workloads
    assert found.verdict is OPEN
    kind, short = found.reasons
    assert "PyTorchJob (kubeflow.org/v1) team/train" in kind.message
    assert (short.rule, short.severity) == ("resources", "warning")
    assert short.path.startswith("spec.pytorchReplicaSpecs.Worker.template.spec")


def test_what_their_gpus_cost_is_the_least() -> None:
    found = judge([python_torch_job(workers=800, gpus=1), job("known", 1, using(gpu=1)), NODE])
    known, unknown = sorted(found.workloads, key=lambda each: each.workload.name)
    assert known.gpus and unknown.gpus
    assert (known.gpus.count, unknown.gpus.count) == ("1 GPU", "at least 3 GPUs")
    assert found.teams["team"].count == "at least 4 GPUs"


def test_an_object_of_unknown_kind_keeps_a_stack_undetermined() -> None:
    found = judge([WEB, cluster_wide("karpenter.sh/v1", "NodePool", "gpus", spec={}), NODE])
    assert [item.verdict for item in found.workloads] == [FITS]
    assert found.stack is OPEN
    assert "NodePool (karpenter.sh/v1) gpus" in found.reasons[0].message


def policy(kind: str = "Validating") -> Manifest:
    rule = webhook("deployments", "apps")["webhooks"][0]["rules"][0] | {"operations": ["*"]}
    patches = [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]
    does = {
        "Validating": {"validations": [{"expression": "true"}]},
        "Mutating": {"mutations": patches, "reinvocationPolicy": "Never"},
    }
    spec = {"matchConstraints": {"resourceRules": [rule]}, **does[kind]}
    return cluster_wide(ADMISSION, f"{kind}AdmissionPolicy", "hook", spec=spec)


def definition(group: str, kind: str) -> Manifest:
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": f"{kind.lower()}s"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    name, api = f"{names['plural']}.{group}", "apiextensions.k8s.io/v1"
    return cluster_wide(api, "CustomResourceDefinition", name, spec=spec)


ELSEWHERE = {"matchLabels": {"kubernetes.io/metadata.name": "x"}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (webhook("pods"), OPEN),
        (webhook("pods", kind="Validating"), OPEN),
        (webhook("deployments", "apps"), OPEN),
        (webhook("replicasets", "apps"), OPEN),
        (webhook("*", "*"), OPEN),
        (webhook("jobs", "batch"), FITS),
        (webhook("pods/exec"), FITS),
        (webhook("pods", namespaceSelector={"matchLabels": {"inject": "yes"}}), OPEN),
        (webhook("pods", namespaceSelector=ELSEWHERE), FITS),
        (webhook("pods", objectSelector={"matchLabels": {"app": "web"}}), OPEN),
        (webhook("pods", objectSelector={"matchLabels": {"app": "db"}}), FITS),
        (policy(), OPEN),
        (policy("Mutating"), OPEN),
        (definition("jobset.x-k8s.io", "JobSet"), FITS),
        (definition("workloads.example.com", "Deployment"), FITS),
    ],
)
def test_a_matching_webhook_is_named_with_the_workload(
    document: Manifest, expected: Verdict
) -> None:
    found = judge([WEB, document, NODE])
    assert found.stack is expected
    assert named(found) == ([("unknown-admission", "kind")] if expected is OPEN else [])


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (webhook("services"), OPEN),
        (webhook("services", kind="Validating"), OPEN),
        (webhook("networkpolicies", "networking.k8s.io"), OPEN),
        (webhook("services", objectSelector={"matchLabels": {"app": "db"}}), FITS),
        (webhook("configmaps"), FITS),
    ],
)
def test_a_webhook_that_may_refuse_keeps_the_stack_from_fitting(
    hook: Manifest, expected: Verdict
) -> None:
    service = namespaced("v1", "Service", "web", spec={"ports": [{"port": 80}]})
    rules = namespaced("networking.k8s.io/v1", "NetworkPolicy", "web", spec={"podSelector": {}})
    assert judge([WEB, service, rules, hook, NODE]).stack is expected


def test_what_only_refuses_leaves_what_cannot_fit_as_it_is() -> None:
    big = deployment("web", 9, template())
    assert judge([big, webhook("pods", kind="Validating"), NODE]).stack is CANNOT
    assert judge([big, webhook("pods"), NODE]).stack is OPEN


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"validationActions": ["Deny"]}, OPEN),
        ({"validationActions": ["Warn", "Audit"]}, FITS),
        (
            {"validationActions": ["Deny"], "matchResources": {"namespaceSelector": ELSEWHERE}},
            FITS,
        ),
    ],
)
def test_a_policy_holds_where_it_is_bound(spec: Manifest, expected: Verdict) -> None:
    spec = {"policyName": "hook", **spec}
    binding = cluster_wide(ADMISSION, "ValidatingAdmissionPolicyBinding", "b", spec=spec)
    assert judge([WEB, policy(), binding, NODE]).stack is expected
    assert judge([WEB, binding, NODE]).stack is OPEN  # the policy is not shown


@pytest.mark.parametrize(("product", "expected"), [("L4", FITS), ("A100", OPEN)])
def test_the_rule_of_gpu_models_is_followed(product: str, expected: Verdict) -> None:
    models = '{"l4": [[["nvidia.com/gpu.product", "In", "L4"]]]}'
    spec = yaml_file("tenancy", "gpu_models_policy.yaml", models=models)
    rule = cluster_wide(ADMISSION, "ValidatingAdmissionPolicy", "models", spec=spec)
    selector = {"nvidia.com/gpu.product": product}
    pods = web(nodeSelector=selector, priorityClassName="l4")
    assert judge([pods, rule, priority_class("l4", 0), node("n", selector)]).stack is expected


def test_namespace_labels_decide_whether_a_webhook_matches() -> None:
    hook = webhook("pods", namespaceSelector={"matchLabels": {"inject": "yes"}})
    assert judge([WEB, hook, NODE, cluster_wide("v1", "Namespace", "team")]).stack is FITS


@pytest.mark.parametrize(
    "documents",
    [[], [pool("p", 1)], [pool("p", 1), quota(), cluster_wide("v1", "ConfigMap", "c", data={})]],
)
def test_no_workload_is_nothing_to_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[Manifest]
) -> None:
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    assert main([str(file)]) == 4
    printed = capsys.readouterr().out
    assert "There is nothing to judge" in printed
    assert "fits" not in printed
    assert main([str(file), "--json"]) == 4
    assert '"verdict": "nothing-to-judge"' in capsys.readouterr().out


def test_programs_go_through_it() -> None:
    def found(*documents: Manifest) -> Verdict:
        resources = [(f"kubernetes:{d['apiVersion']}:{d['kind']}", d) for d in documents]
        return judge_program(resources).stack

    assert found(WEB, NODE) is FITS
    assert found(web(**GROUPED), NODE) is OPEN
    assert found(WEB, NODE, python_torch_job()) is OPEN


@pytest.mark.parametrize(
    ("type_", "inputs", "expected"),
    [
        ("helm.sh/v3:Release", {"chart": "redis", "name": "cache"}, OPEN),
        ("helm.sh/v3:Release", {"chart": "oci://registry.k8s.io/kueue/charts/kueue"}, FITS),
        ("core/v1:ResourceQuotaPatch", {"apiVersion": "v1", "kind": "ResourceQuota"}, OPEN),
        ("core/v1:ServiceAccountPatch", {"apiVersion": "v1", "kind": "ServiceAccount"}, FITS),
    ],
)
def test_what_a_program_does_not_show_is_not_known(
    type_: str, inputs: Manifest, expected: Verdict
) -> None:
    shown = [("kubernetes:apps/v1:Deployment", WEB), ("kubernetes:core/v1:Node", NODE)]
    assert judge_program([*shown, (f"kubernetes:{type_}", inputs)]).stack is expected


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (quota(hard={"pods": UNKNOWN}), "ResourceQuota quota.spec.hard.pods"),
        (quota(hard=UNKNOWN), "ResourceQuota quota.spec.hard"),  # pyright: ignore[reportArgumentType]
        (namespaced("v1", "LimitRange", "lr", spec=UNKNOWN), "LimitRange lr.spec"),
        ({**node("m"), "status": UNKNOWN}, "Node m.status"),
        ({**node("m"), "spec": {"taints": [UNKNOWN]}}, "Node m.spec.taints[0]"),
        (storage_class("s", "p", parameters={"type": UNKNOWN}), "StorageClass s.parameters.type"),
    ],
)
def test_unknown_values_of_other_objects_are_reported_too(document: Manifest, path: str) -> None:
    found = judge([WEB, document, NODE])
    assert found.stack is OPEN
    assert named(found) == [("unknown-field", path)]


def test_values_that_decide_nothing_need_not_be_known() -> None:
    volumes = storage_class("s", "p", parameters={"network": UNKNOWN})
    space = namespace(UNKNOWN, owner=UNKNOWN)  # pyright: ignore[reportArgumentType]
    assert judge([WEB, volumes, space, NODE]).stack is FITS


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        (UNKNOWN, "metadata"),
        ({"name": "web", "namespace": "team", "labels": UNKNOWN}, "metadata.labels"),
        ({"name": "web", "namespace": UNKNOWN}, "metadata.namespace"),
    ],
)
def test_a_workload_with_metadata_that_are_not_known_yet(metadata: Any, path: str) -> None:
    assert named(judge([{**WEB, "metadata": metadata}, quota(hard={"pods": "9"}), NODE])) == [
        ("unknown-field", path)
    ]


def test_a_claim_of_an_unknown_namespace_concerns_its_pods_only() -> None:
    data = claim(storageClassName="s")
    data["metadata"]["namespace"] = UNKNOWN
    mounts = deployment("mounts", 1, template(**mounted()))
    found = judge([NODE, quota(hard={"pods": "9"}), WEB, mounts, data])
    verdicts = {each.workload.name: each.verdict for each in found.workloads}
    assert verdicts == {"web": FITS, "mounts": OPEN}


def test_a_workload_of_a_namespace_that_is_not_known_is_told() -> None:
    elsewhere = deployment("elsewhere", 1, using(gpu=1))
    elsewhere["metadata"]["namespace"] = UNKNOWN
    found = judge([NODE, quota(hard={"pods": "9"}), WEB, elsewhere])
    verdicts = {each.workload.name: each.verdict for each in found.workloads}
    assert verdicts == {"web": FITS, "elsewhere": OPEN}
    assert "undetermined" in report.as_summary(found)
    assert json.loads(json.dumps(report.as_json(found)))


def test_an_unknown_quota_may_be_in_any_namespace() -> None:
    found = judge([NODE, WEB, {**quota(hard={"pods": "9"}), "metadata": UNKNOWN}])
    assert found.stack is OPEN


def of_containers(containers: Any) -> Manifest:
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"name": UNKNOWN}},
        {"metadata": {"name": "ray", "namespace": UNKNOWN}},
        of_containers(UNKNOWN),
        of_containers([{"name": "m", "ports": [{"hostPort": UNKNOWN}]}]),
        of_containers([{"name": "m", "resources": {"limits": {"cpu": UNKNOWN}}}]),
    ],
)
def test_an_unknown_field_of_an_unknown_kind_is_undetermined(more: Manifest) -> None:
    ray = cluster_wide("kubeflow.org/v1", "MPIJob", "ray") | more
    assert judge([node("n"), WEB, ray]).stack is OPEN


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("inference.networking.x-k8s.io/v1alpha2", "InferenceObjective"),
        ("inference.networking.x-k8s.io/v1alpha2", "InferenceModelRewrite"),
        ("llm-d.ai/v1alpha2", "InferenceObjective"),
        ("keda.sh/v1alpha1", "TriggerAuthentication"),
        ("keda.sh/v1alpha1", "ClusterTriggerAuthentication"),
    ],
)
def test_objects_that_decide_nothing_about_pods_leave_a_verdict(
    api_version: str, kind: str
) -> None:
    spec: Manifest = {"priority": 10, "poolRef": {"name": "p"}}
    if kind == "InferenceModelRewrite":
        spec = {"rules": [{"targets": [{"modelRewrite": "m"}]}], "poolRef": {"name": "p"}}
    other = namespaced(api_version, kind, "x", spec=spec)
    assert judge([deployment("web", 1, template()), other, NODE]).stack is FITS
