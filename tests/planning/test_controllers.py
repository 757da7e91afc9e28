"""What definitions, webhooks and controllers of other kinds refuse: tables of valid objects with one edit."""

import copy
from typing import Any

import pytest
import yaml
from ml_foundations.catalog.tables import rows
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.api_server import definitions, fields
from ml_foundations.planning.rules.built_in import descriptions
from ml_foundations.planning.verdict.program import judge_documents

from codegen import definitions as generator
from tests.factories import Manifest, node

OBJECTS: dict[str, Manifest] = {
    document["kind"]: document
    for document in yaml.safe_load(
        """
- apiVersion: ray.io/v1
  kind: RayCluster
  metadata: {name: r, namespace: team}
  spec: &cluster
    headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: head, image: i}]}}}
    workerGroupSpecs:
    - {groupName: a, replicas: 1, minReplicas: 1, maxReplicas: 1, rayStartParams: {}, template: {spec: {containers: [{name: w, image: i}]}}}
    - {groupName: b, replicas: 1, minReplicas: 1, maxReplicas: 1, rayStartParams: {}, template: {spec: {containers: [{name: w, image: i}]}}}
- apiVersion: ray.io/v1
  kind: RayJob
  metadata: {name: r, namespace: team}
  spec: {entrypoint: e, shutdownAfterJobFinishes: true, rayClusterSpec: *cluster}
- apiVersion: ray.io/v1
  kind: RayService
  metadata: {name: r, namespace: team}
  spec: {rayClusterConfig: *cluster}
- apiVersion: trainer.kubeflow.org/v1alpha1
  kind: TrainJob
  metadata: {name: t, namespace: team}
  spec: {runtimeRef: {kind: TrainingRuntime, name: torchtune-llama3.2-1b}, trainer: {numNodes: 1, env: [{name: A, value: b}]}}
- apiVersion: trainer.kubeflow.org/v1alpha1
  kind: TrainingRuntime
  metadata: {name: torchtune-llama3.2-1b, namespace: team}
  spec:
    mlPolicy: {numNodes: 1, torch: {}}
    template:
      spec:
        replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {restartPolicy: Never, containers: [{name: node, image: i}]}}}
- apiVersion: inference.networking.k8s.io/v1
  kind: InferencePool
  metadata: {name: p, namespace: team}
  spec:
    selector: {matchLabels: {app: a}}
    targetPorts: [{number: 8000}]
    endpointPickerRef: {name: epp, port: {number: 9002}}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: Cohort
  metadata: {name: all}
  spec:
    parentName: above
    resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 9, lendingLimit: 4}]}]}]
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: ClusterQueue
  metadata: {name: q}
  spec:
    cohortName: all
    resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 9}]}]}]
- apiVersion: leaderworkerset.x-k8s.io/v1
  kind: LeaderWorkerSet
  metadata: {name: l, namespace: team}
  spec: {leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c, image: i}]}}}}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: Topology
  metadata: {name: t}
  spec: {levels: [{nodeLabel: a/block}, {nodeLabel: kubernetes.io/hostname}]}
- apiVersion: gateway.networking.k8s.io/v1
  kind: Gateway
  metadata: {name: g, namespace: team}
  spec:
    gatewayClassName: c
    addresses: [{type: IPAddress, value: 10.0.0.1}]
    listeners: [{name: https, port: 443, protocol: HTTPS, tls: {options: {networking.gke.io/pre-shared-certs: c}}}]
- apiVersion: gateway.networking.k8s.io/v1
  kind: HTTPRoute
  metadata: {name: r, namespace: team}
  spec:
    parentRefs: [{name: g}]
    rules:
    - matches: [{path: {value: /a}}]
      timeouts: {request: 1m, backendRequest: 59s}
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
- apiVersion: batch/v1
  kind: Job
  metadata: {name: j, namespace: team}
  spec: {parallelism: 2, completions: 2, completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""
    )
}
PATH = "spec.rules.0.matches.0.path.value"
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("HTTPRoute", {PATH: "/a$&;=%20"}),  # brackets of a pattern have its mark of the end
    ("HTTPRoute", {"spec.rules.0.timeouts": {"request": "1000ms", "backendRequest": "1s"}}),
    ("Gateway", {"spec.addresses": [{"value": "::1"}, {"type": "IPAddress"}]}),
    ("Gateway", {"spec.listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 80, "protocol": "HTTP", "hostname": "a.b"}]}),
    # What webhooks set before the API server checks values, and zeros that they write.
    ("LeaderWorkerSet", {"spec.networkConfig": {}}),
    ("LeaderWorkerSet", {"spec.rolloutStrategy": {"type": ""}, "spec.leaderWorkerTemplate.restartPolicy": ""}),
    ("ClusterQueue", {"spec.resourceGroups.0.flavors.0.resources.0": {"name": "cpu"}}),
    ("ClusterQueue", {"spec.resourceGroups.0.flavors.0.resources.0": {"name": "cpu", "lendingLimit": 0}}),
    ("RayCluster", {"spec.workerGroupSpecs.0.replicas": -1}),  # minReplicas counts
    # KubeRay reads these only for its autoscaler, which has its own volume of logs.
    ("RayCluster", {"spec.autoscalerOptions": {"envFrom": [{"secretRef": {}}], "securityContext": {"seccompProfile": {"type": "x"}}}}),
    ("RayCluster", {"spec.enableInTreeAutoscaling": True, "spec.autoscalerOptions": {"volumeMounts": [{"name": "ray-logs", "mountPath": "/x"}]}}),
    ("TrainJob", {"spec.runtimePatches": [{"manager": "a.b/c", "time": "2026-01-01T00:00:00Z"}]}),
    ("RayCluster", {"spec.headGroupSpec.headService": {"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}}),
    # Trainer copies no claims.
    ("TrainJob", {"spec.trainer.resourcesPerNode": {"requests": {"cpu": 1}, "claims": [{"name": "x"}]}}),
    ("TrainJob", {"spec.trainer.resourcesPerNode": {"claims": [{"name": "x"}]}}),
    ("TrainJob", {"spec.trainer": {"command": ["tune", "run"], "args": ["model.quantize_base=True"], "numProcPerNode": 1}}),
    ("TrainJob", {"spec.trainer": {"command": ["tune", "run"], "args": ["model.quantize_base=True", "model.use_dora=True"]}}),
]  # fmt: skip


def groups(groups: int, flavors: int, resources: int) -> list[Manifest]:
    """Resource groups of a ClusterQueue, each with as many flavors and resources."""
    made: list[Manifest] = []
    for group in range(groups):
        covered = [f"r{group}-{index}" for index in range(resources)]
        amounts = [{"name": name, "nominalQuota": 1} for name in covered]
        listed = [{"name": f"f{group}-{index}", "resources": amounts} for index in range(flavors)]
        made.append({"coveredResources": covered, "flavors": listed})
    return made


GATEWAYS = ("Gateway", "HTTPRoute")
QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
RAY_CLUSTERS = {
    "RayCluster": "spec",
    "RayJob": "spec.rayClusterSpec",
    "RayService": "spec.rayClusterConfig",
}
ENV = "headGroupSpec.template.spec.containers.0.env"
OF_CLUSTERS: list[tuple[dict[str, Any], str]] = [
    ({"workerGroupSpecs.0.minReplicas": 3}, "minReplicas of at most maxReplicas"),
    ({"workerGroupSpecs.0.maxReplicas": -1}, "must be"),
    ({"workerGroupSpecs.0.template.spec.containers": []}, "containers"),
    ({"headGroupSpec.rayStartParams": {"num-cpus": "0"}, "headGroupSpec.resources": {"CPU": "1"}}, "num-cpus is set"),
    ({"workerGroupSpecs.1.rayStartParams": {"labels": "a=b"}}, "rayStartParams.labels"),
    ({"headGroupSpec.labels": {"a b": "c"}}, "labels"),
    ({"workerGroupSpecs.0.suspend": True, "enableInTreeAutoscaling": True}, "suspend must be false"),
    ({"workerGroupSpecs.0.idleTimeoutSeconds": 5}, "version v2"),
    ({ENV: [{"name": "REDIS_USERNAME", "value": "u"}]}, "REDIS_USERNAME"),
    ({ENV: [{"name": "REDIS_PASSWORD"}], "gcsFaultToleranceOptions": {"redisAddress": "a"}}, "REDIS_PASSWORD"),
    ({ENV: [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]}, "autoscaler_v2"),
    ({"authOptions": {"mode": "token"}}, "rayVersion"),
    ({"authOptions": {"mode": "token"}, "rayVersion": "2.9.0"}, "2.52.0"),
    ({"managedBy": "me"}, "managedBy"),
    ({"workerGroupSpecs.1": {"groupName": "", "numOfHosts": 2, "minReplicas": 1, "maxReplicas": 1, "template": {"spec": {"containers": [{"name": "w", "image": "i"}]}}}}, "must have a groupName"),
    ({"headGroupSpec.template.metadata": {"name": "example.com/a"}}, "headGroupSpec.template.metadata.name"),
    ({"headGroupSpec.template.metadata": {"finalizers": ["orphan", "foregroundDeletion"]}}, "template.metadata.finalizers must"),
    ({"headGroupSpec.headService": {"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}}, "headService.spec.loadBalancerSourceRanges must"),
    ({"headGroupSpec.headService": {"metadata": {"finalizers": ["a"]}}}, "headService.metadata.finalizers[0]"),
]  # fmt: skip
OF_KINDS: list[tuple[str, dict[str, Any], str]] = [
    *(("RayCluster", {"metadata.name": name}, "metadata.name") for name in ("a" * 54, "1a")),
    *(("RayService", {"metadata.name": name}, "metadata.name") for name in ("a" * 48, "a.b")),
    ("RayJob", {"metadata.name": "a" * 48}, "at most 47 characters"),
    ("RayCluster", {"spec.workerGroupSpecs.1.groupName": "a"}, "the same groupName"),
    ("RayCluster", {"spec.upgradeStrategy": {"type": "NewCluster"}}, "upgradeStrategy.type"),
    ("RayCluster", {"metadata.annotations": {"ray.io/ft-enabled": "true"}, "spec.gcsFaultToleranceOptions": {"redisAddress": "a"}}, "ray.io/ft-enabled"),
    ("RayJob", {"spec.suspend": True, "spec.shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes must"),
    ("RayJob", {"spec.ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
    ("RayJob", {"spec.ttlSecondsAfterFinished": 5, "spec.shutdownAfterJobFinishes": False}, "ttlSecondsAfterFinished"),
    ("RayJob", {"spec.rayClusterSpec": None}, "rayClusterSpec must be given"),
    ("RayJob", {"spec.clusterSelector": {"a": "b"}, "spec.rayClusterSpec": None}, "ray.io/cluster"),
    ("RayJob", {"spec.backoffLimit": 1, "spec.submissionMode": "InteractiveMode"}, "backoffLimit"),
    ("RayJob", {"spec.submissionMode": "SidecarMode", "spec.submitterConfig": {"backoffLimit": 1}}, "submitterConfig"),
    ("RayJob", {"spec.activeDeadlineSeconds": 0}, "activeDeadlineSeconds"),
    ("RayJob", {"spec.runtimeEnvYAML": "- a"}, "runtimeEnvYAML"),
    ("RayJob", {"spec.deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}}}, "deletionStrategy"),
    ("RayJob", {"spec.deletionStrategy": {"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}]}}, "deletionRules must have no items"),
    ("RayService", {"spec.upgradeStrategy": {"type": "Recreate"}}, "upgradeStrategy.type"),
    ("RayService", {"spec.rayClusterConfig.upgradeStrategy": {"type": "None"}}, "rayClusterConfig.upgradeStrategy.type"),
    ("RayService", {"spec.rayClusterConfig.headGroupSpec.headService": {"metadata": {"name": "a"}}}, "headService"),
    ("TrainJob", {"metadata.name": "1a"}, "RFC 1035"),
    ("TrainJob", {"spec.managedBy": "me"}, "ManagedBy"),
    ("TrainJob", {"spec.trainer.env.0.name": "PET_MASTER_ADDR"}, "PET_MASTER_ADDR"),
    ("TrainJob", {"spec.initializer": {"model": {"storageUri": "hf://a"}}}, "initializer.model"),
    ("TrainJob", {"spec.trainer": {"command": ["tune", "run"], "numNodes": 2}}, "numNodes must be 1"),
    ("TrainJob", {"spec.runtimePatches": [{"manager": "me"}]}, ": spec.runtimePatches[0].manager must"),
    ("TrainJob", {"spec.runtimePatches": [{"manager": "a.b/c", "time": "2026-01-01"}]}, "time must be a time by RFC 3339"),
    ("RayCluster", {"spec.enableInTreeAutoscaling": True, "spec.autoscalerOptions": {"image": " i"}}, "containers[1].image"),
    ("RayCluster", {"spec.enableInTreeAutoscaling": True, "spec.autoscalerOptions": {"envFrom": [{"secretRef": {}}]}}, "containers[1].envFrom[0].secretRef.name"),
    ("RayCluster", {"spec.enableInTreeAutoscaling": True, "spec.autoscalerOptions": {"volumeMounts": [{"name": "x", "mountPath": "/x"}]}}, "volumeMounts[0].name"),
    ("TrainJob", {"spec.runtimePatches": [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "x"}]}}}}]}, "the Job x"),
    ("TrainingRuntime", {"spec.mlPolicy.mpi": {}}, "Only one of the policy"),
    ("TrainingRuntime", {"spec.template.spec.replicatedJobs.0.replicas": 2}, "replicas must be 1"),
    ("TrainingRuntime", {"spec.template.spec.replicatedJobs.0.template.spec.template.spec.containers.0.name": "x"}, "the name node"),
    ("InferencePool", {"spec.targetPorts": []}, "targetPorts"),
    ("InferencePool", {"spec.targetPorts": None}, "targetPorts must be given"),
    ("InferencePool", {"spec.targetPorts.0.number": "8000"}, "must be a whole number, not '8000'"),
    ("InferencePool", {"spec.targetPorts": [{"number": port} for port in range(1, 10)]}, "at most 8 items"),
    ("InferencePool", {"spec.targetPorts": [{"number": 1}, {"number": 1}]}, "port number must be unique"),
    ("InferencePool", {"spec.targetPorts.0.number": 70000}, "at most 65535"),
    ("InferencePool", {"spec.endpointPickerRef": {"name": "e"}}, "port is required"),
    ("InferencePool", {"spec.selector": {}}, "matchLabels"),
    ("Cohort", {"spec.parentName": None}, "lendingLimit"),
    ("Cohort", {"spec.resourceGroups.0.coveredResources": ["memory"]}, "coveredResources"),
    ("Cohort", {"spec.parentName": "A_"}, "a DNS subdomain"),
    ("Cohort", {"spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit": -1}, "borrowingLimit must be a quantity, not -1"),
    ("Cohort", {"spec.resourceGroups.0.flavors.0.resources.0.nominalQuota": None}, "nominalQuota must be given"),
    ("Cohort", {"spec.fairSharing": {"weight": "1n"}}, "weight must be 0 or more than 1n"),
    ("RayJob", {"spec.shutdownAfterJobFinishes": False, "spec.deletionStrategy": {"onSuccess": {}, "onFailure": {"policy": "DeleteSelf"}}}, "onSuccess.policy must be given"),
    ("TrainJob", {"spec.trainer": {"command": ["tune", "run"], "args": ["model.quantize_base=True"]}}, "numProcPerNode must be 1"),
    ("LeaderWorkerSet", {"spec.replicas": 65536, "spec.leaderWorkerTemplate.size": 65536}, "of at most 2147483647"),
    ("LeaderWorkerSet", {"spec.networkConfig": {"subdomainPolicy": ""}}, "subdomainPolicy must be one of"),
    ("ClusterQueue", {"spec.resourceGroups.0.flavors.0.resources.0": {"name": "cpu", "lendingLimit": 1}}, "lendingLimit must be"),
    *(("HTTPRoute", {PATH: path}, "only contain valid characters") for path in ("/a b", "/a\n")),
    ("HTTPRoute", {PATH: "/a/.."}, "must not end with '/..'"),
    ("HTTPRoute", {"spec.rules.0.matches.0.path.type": "Exact"}, "exactly one PathPrefix match"),
    ("HTTPRoute", {"spec.rules.0.timeouts.backendRequest": "61s"}, "backendRequest timeout cannot be longer"),
    ("HTTPRoute", {"spec.rules.0.filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 3}}]}, "one of 301, 302"),
    ("HTTPRoute", {"spec.rules": [{"matches": [{}] * 43}] * 3}, "must be less than 128"),
    ("HTTPRoute", {"spec.parentRefs": [{"name": "g"}, {"name": "g", "namespace": ""}]}, "must be"),
    ("HTTPRoute", {"spec.parentRefs": [{"name": "g"}, {"name": "g", "sectionName": "a"}]}, "sectionName must be specified"),
    *(("Gateway", {"spec.addresses.0.value": value}, "must meet oneOf") for value in ("a", "010.0.0.1", "fe80::1%eth0")),
    ("Gateway", {"spec.listeners.0.tls": {"mode": "Terminate"}}, "certificateRefs or options must be specified"),
    ("Gateway", {"spec.infrastructure": {"annotations": {"a" * 253 + "/b": "c"}}}, "not longer than 253"),
    ("Topology", {"spec.levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}]}, "lowest level"),
    ("Topology", {"spec.levels": []}, "at least 1 items"),
    ("Topology", {"spec.levels.0.label": "a"}, "no such field"),
]  # fmt: skip
OF_MADE: list[tuple[str, dict[str, Any], str]] = [
    ("TrainJob", {"spec.runtimePatches": [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b c"}}}}}]}, "runtimePatches[0].trainingRuntimeSpec.template.metadata.labels must"),
]  # fmt: skip
"""What the API server refuses about objects that controllers make, after their webhooks."""
OF_QUEUES: list[tuple[str, dict[str, Any], str]] = [
    ("RayJob", {"spec.shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes is not true"),
    ("RayJob", {"spec.rayClusterSpec.enableInTreeAutoscaling": True}, "spec.rayClusterSpec.enableInTreeAutoscaling is true for a cluster that is not elastic"),
    ("RayJob", {"spec.rayClusterSpec.workerGroupSpecs.1.groupName": "head"}, "spec.rayClusterSpec.workerGroupSpecs[1].groupName is head"),
    ("RayCluster", {"spec.workerGroupSpecs.0.groupName": "head"}, "is head"),
    ("RayCluster", {"spec.enableInTreeAutoscaling": True}, "not elastic"),
    ("RayCluster", {"spec.headGroupSpec.rayStartParams": None}, "headGroupSpec.rayStartParams is missing"),
    ("Job", {"metadata.labels": {**QUEUED, "kueue.x-k8s.io/max-exec-time-seconds": "0"}}, "max-exec-time"),
    ("Job", {"metadata.labels": {"kueue.x-k8s.io/queue-name": "Q_"}}, "DNS subdomain"),
    ("Job", {"metadata.annotations": {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}, "spec.completions": 4}, "completions is 4"),
    ("Job", {"metadata.annotations": {"kueue.x-k8s.io/job-min-parallelism": "1", "kueue.x-k8s.io/elastic-job": "true"}}, "excludes"),
]  # fmt: skip


def edited(kind: str, edits: dict[str, Any], prefix: str = "") -> Manifest:
    made = copy.deepcopy(OBJECTS[kind])
    for path, value in edits.items():
        *parents, last = (
            f"{prefix}.{path}".lstrip(".").split(".") if "." in path or prefix else [path]
        )
        holder: Any = made
        for key in parents:
            holder = holder[int(key)] if isinstance(holder, list) else holder.setdefault(key, {})
        holder[int(last) if isinstance(holder, list) else last] = value
    return made


def errors(document: Manifest) -> list[str]:
    documents = [node("n", cpu="64", memory="1Ti"), document]
    if document["kind"] == "TrainJob":
        documents.append(OBJECTS["TrainingRuntime"])
    found = judge_documents(documents)
    errors = [each.message for each in found.findings if each.is_error]
    assert bool(errors) == (found.stack is Verdict.CANNOT_FIT)
    return errors


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_objects_without_edits_are_valid(kind: str) -> None:
    assert errors(OBJECTS[kind]) == []


@pytest.mark.parametrize(
    ("size", "is_valid"),
    [((16, 17, 1), False), ((16, 1, 17), False), ((1, 23, 23), False), ((1, 22, 23), True)],
)
def test_a_cluster_queue_has_few_flavors_and_resources(
    size: tuple[int, int, int], is_valid: bool
) -> None:
    found = errors(edited("ClusterQueue", {"spec.resourceGroups": groups(*size)}))
    assert any("512 pairs" in error for error in found) != is_valid


@pytest.mark.parametrize(("kind", "edits"), ACCEPTED)
def test_an_edit_is_accepted(kind: str, edits: dict[str, Any]) -> None:
    assert errors(edited(kind, edits)) == []


@pytest.mark.parametrize(("kind", "edits", "words"), [*OF_KINDS, *OF_MADE])
def test_an_edit_is_refused(kind: str, edits: dict[str, Any], words: str) -> None:
    assert any(words in error for error in errors(edited(kind, edits)))


@pytest.mark.parametrize("kind", RAY_CLUSTERS)
@pytest.mark.parametrize(("edits", "words"), OF_CLUSTERS)
def test_an_edit_of_a_ray_cluster_is_refused(kind: str, edits: dict[str, Any], words: str) -> None:
    assert any(words in error for error in errors(edited(kind, edits, RAY_CLUSTERS[kind])))


@pytest.mark.parametrize(("kind", "edits", "words"), OF_QUEUES)
def test_kueue_refuses_an_edit_of_what_waits_in_a_queue(
    kind: str, edits: dict[str, Any], words: str
) -> None:
    queued = edited(kind, {"metadata.labels": QUEUED} | edits)
    # Planning does not follow Ray's autoscaler and elastic Jobs, so some findings are warnings.
    found = judge_documents([node("n", cpu="64", memory="1Ti"), queued])
    assert any(words in each.message for each in found.findings)
    if "metadata.labels" not in edits:
        found = judge_documents([node("n", cpu="64", memory="1Ti"), edited(kind, edits)])
        assert not any(words in each.message for each in found.findings)


@pytest.mark.parametrize("kind", ["RayJob", "InferencePool", "TrainJob", "Topology", *GATEWAYS])
def test_an_unknown_value_is_not_refused(kind: str) -> None:
    for key in OBJECTS[kind]["spec"]:
        unknown = edited(kind, {f"spec.{key}": UNKNOWN})
        assert definitions.violations(unknown) == []


@pytest.mark.parametrize("kind", GATEWAYS)
def test_a_field_of_a_gateway_that_its_definition_lacks_is_not_certain(kind: str) -> None:
    document = edited(kind, {"spec.retry": {"attempts": 2}})
    found = judge_documents([node("n"), document])
    assert errors(document) == []
    assert found.stack is Verdict.UNDETERMINED
    assert any("its spec.retry is not known" in finding.message for finding in found.findings)


def test_every_row_has_its_source() -> None:
    assert all(row.cells["source"] for row in fields.CONTROLLER_ROWS)
    assert all(row.cells["source"] for kind in kinds() for row in fields.rows_of_kind(kind))
    assert all(row["source"] for row in rows("refusals.csv", "ml_foundations.planning.rules"))
    assert all(described.source for described in descriptions())


def test_the_definitions_are_those_of_the_pinned_versions() -> None:
    assert (
        f'"versions":{generator.json.dumps(generator.versions())}' in definitions.FILE.read_text()
    )
    assert definitions.FILE.read_text() == generator.text()
