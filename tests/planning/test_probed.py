"""Small cases, each with what became of it on a real control plane."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.input.documents import read

from tests.factories import (  # fmt: skip
    CANNOT,
    FITS,
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
    namespaced,
    node,
    node_affinity,
    pod,
    quota,
    spread,
    stateful_set,
    template,
    webhook,
)
from tests.support.cluster_objects import (
    autoscaler,
    claim_spec,
    claim_template,
    mounted,
    namespace,
    policy,
    priority_class,
    storage_class,
    using,
    volume,
    web,
)

ROOMY = node("n", cpu="8", memory="8Gi")
SMALL = node("n", cpu="1", memory="8Gi")
ONE = using(cpu=1)
ONE = template(containers=[container(cpu=1)])


def agent(**spec: Any) -> Manifest:
    return daemon_set("agent", template(containers=[container(cpu=9)], **spec))


def scaler(name: str, **spec: Any) -> Manifest:
    return autoscaler(deployment("web", 1, ONE), name, **spec)


def tainted(key: str, effect: str, **status: Any) -> Manifest:
    made = node("n", cpu="8", memory="8Gi")
    made["spec"] = {"taints": [{"key": key, "effect": effect}]}
    made["status"] |= status
    return made


def for_seconds(seconds: int | None) -> Manifest:
    """A Deployment whose pods tolerate a taint for some time, or for ever."""
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoExecute"}
    limited = {} if seconds is None else {"tolerationSeconds": seconds}
    return web(containers=[container(cpu=1)], tolerations=[toleration | limited])


def on_node(made: Manifest) -> Manifest:
    return {**made, "spec": {**made["spec"], "nodeName": "n"}}


def train(labels: Manifest | None = None, **spec: Any) -> Manifest:
    return job("train", 1, template(labels, [container(cpu=1)]), **spec)


def failing_by(name: str) -> Manifest:
    codes = {"containerName": name, "operator": "In", "values": [1]}
    return {"rules": [{"action": "FailJob", "onExitCodes": codes}]}


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u"}
OFF_LINE = [{"type": "NetworkUnavailable", "status": "True"}]
IN_A = {"key": ZONE, "operator": "In", "values": ["a"]}


def zonal_volume(
    labels: Manifest | None = None, affinity: Manifest | None = None
) -> list[Manifest]:
    """A volume, a claim for it that waits for its pod, and the pod."""
    of_local: Any = {"storageClassName": "local"}
    reach: Any = {"nodeAffinity": {"required": next(iter(affinity.values()))}} if affinity else {}
    return [
        storage_class("local", "kubernetes.io/no-provisioner"),
        volume("v", labels, nfs={"server": "s", "path": "/p"}, **of_local, **reach),
        claim(**of_local),
        web(**mounted()),
    ]


def hooked(seconds: int) -> Manifest:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}
    return web(containers=[container(cpu=1) | hook])


def mounting(**mount: Any) -> Manifest:
    mounts = [{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled", **mount}]
    main = container(cpu=1) | {"volumeMounts": mounts}
    return web(containers=[main], volumes=[{"name": "v", "emptyDir": {}}])


def cron_job(**spec: Any) -> Manifest:
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": train()["spec"] | spec}}
    return namespaced("batch/v1", "CronJob", "nightly", spec=spec)


def holding(**fields: Any) -> list[Manifest]:
    """A Deployment whose container has some fields more."""
    return [ROOMY, web(containers=[container(cpu=1) | fields])]


def with_pods(**spec: Any) -> list[Manifest]:
    """A Deployment whose pods have some fields more."""
    return [ROOMY, web(containers=[container(cpu=1)], **spec)]


def variable(**source: Any) -> list[Manifest]:
    return holding(env=[{"name": "A", "valueFrom": source}])


def projected(*sources: Manifest) -> list[Manifest]:
    return with_pods(volumes=[{"name": "v", "projected": {"sources": list(sources)}}])


def ephemeral(**spec: Any) -> list[Manifest]:
    return with_pods(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}])


WANTED = claim_spec()


def ingress(kind: str, path: str = "/", **rule: str) -> Manifest:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": path, "pathType": kind, "backend": backend}]
    spec = {"rules": [{"http": {"paths": paths}, **rule}]}
    return namespaced("networking.k8s.io/v1", "Ingress", "i", spec=spec)


def service(**spec: Any) -> Manifest:
    return namespaced("v1", "Service", "s", spec=spec)


def secret(kind: str, **data: str) -> Manifest:
    return namespaced("v1", "Secret", "s", type=f"kubernetes.io/{kind}", data=data)


def in_zones(*values: str) -> Manifest:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": [*values]}]}]
    return storage_class("disks", "a/b", volumeBindingMode=None, allowedTopologies=topologies)


def network_policy(**rule: Any) -> Manifest:
    return policy(
        "n", podSelector={}, ingress=[{key.strip("_"): value for key, value in rule.items()}]
    )


def job_set(*names: str, **pods: Any) -> Manifest:
    """A JobSet whose controller gives a restart policy to pods that name none."""
    made = {"spec": {"template": template(containers=[container(cpu=1)], **pods)}}
    jobs = [{"name": name, "template": made} for name in names]
    return namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "ring", spec={"replicatedJobs": jobs})


def with_jobs(name: str = "x", **spec: Any) -> Manifest:
    made = job_set(name)
    made["spec"]["replicatedJobs"][0]["template"]["spec"].update(spec)
    return made


def acting(action: str) -> Manifest:
    """A JobSet with a rule of its failure policy."""
    made = job_set("x")
    rule = {"name": "r", "action": action, "onJobFailureReasons": ["PodFailurePolicy"]}
    made["spec"]["failurePolicy"] = {"maxRestarts": 3, "rules": [rule]}
    return made


def binding(**role: Any) -> Manifest:
    role |= {"apiGroup": "rbac.authorization.k8s.io", "name": "r"}
    return namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "b", roleRef=role, subjects=[])


def kept_volume(name: str = "data-set-0") -> list[Manifest]:
    """A class, a volume that is kept for a claim, and the claim."""
    local, kept, _, _ = zonal_volume()
    kept["spec"]["claimRef"] = {"namespace": "team", "name": name}
    return [local, kept, claim(name, storageClassName="local")]


def holding_data(replicas: int) -> Manifest:
    """A StatefulSet with a claim for each pod."""
    claims = [claim_template(storageClassName="local")]
    return stateful_set("set", replicas, ONE, volumeClaimTemplates=claims)


BY_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
CHOOSY = {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}
FILES = {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}}
NAMED = {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}}
IGNORED = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
NEAR = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
SYSCTL = {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}
TWICE = spread(matchLabelKeys=["app"])
TWICE["labelSelector"] = TWICE["labelSelector"] | {
    "matchExpressions": [{"key": "app", "operator": "Exists"}]
}
WEB = deployment("web", 1, ONE)
SET = stateful_set("set", 1, ONE)
EPHEMERAL = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": WANTED}}}]}


def with_own_volume(name: str) -> list[Manifest]:
    """A bare pod with a generic ephemeral volume, and a claim that is declared."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    disks = storage_class("disks", metadata={"name": "disks", "annotations": default})
    bare = pod("web")
    declared = namespaced("v1", "PersistentVolumeClaim", name, spec=WANTED)
    return [ROOMY, disks, bare | {"spec": bare["spec"] | EPHEMERAL}, declared]


def opaque(name: str) -> Manifest:
    return namespaced("v1", "Secret", name)


def ports(kind: str, **spec: Any) -> Manifest:
    listed = [{"name": name, "port": port} for name, port in (("a", 80), ("b", 81))]
    return namespaced("v1", "Service", "ports", spec={"type": kind, "ports": listed, **spec})


CONFIG_MAP = namespaced("v1", "ConfigMap", "settings")
NETWORK_POLICY = policy("none", podSelector={})
UNAVAILABLE = "node.kubernetes.io/network-unavailable"
IN_ZONE_A = node_affinity(IN_A)["nodeAffinity"]


def pressed(status: str) -> Manifest:
    """A node under a pressure, or one that was."""
    conditions = [{"type": "DiskPressure", "status": status}]
    return tainted("a", "PreferNoSchedule", conditions=conditions)


INDEXED = {"completionMode": "Indexed", "completions": 3}
CASES: dict[str, tuple[list[Manifest], Verdict]] = {
    "a hook on revisions keeps a StatefulSet from its pods": ([ROOMY, SET, webhook("controllerrevisions", "apps", "Validating")], OPEN),
    "a hook on revisions leaves a Deployment alone": ([ROOMY, WEB, webhook("controllerrevisions", "apps", "Validating")], FITS),
    "a hook on all parts of pods is about pods": ([ROOMY, WEB, webhook("pods/*", kind="Validating")], OPEN),
    "a hook on bindings keeps pods from their nodes": ([ROOMY, WEB, webhook("pods/binding", kind="Validating")], OPEN),
    "a hook on the status of pods": ([ROOMY, WEB, webhook("pods/status", kind="Validating")], FITS),
    "a hook on accounts keeps the default one from its namespace": ([ROOMY, WEB, webhook("serviceaccounts", kind="Validating")], OPEN),
    "a hook on what is declared beside": (
        [ROOMY, WEB, namespaced("v1", "LimitRange", "l", spec={"limits": []}), webhook("limitranges", kind="Validating")],
        OPEN,
    ),
    "a hook on claims": (
        [ROOMY, deployment("web", 1, template(None, [container(cpu=1)], **EPHEMERAL)), webhook("persistentvolumeclaims", kind="Validating")],
        OPEN,
    ),
    "a Deployment has the label of its controller": ([ROOMY, deployment("web", 1, template({"app": "web", "pod-template-hash": "x"}))], OPEN),
    "a pod that names its node takes no room": ([SMALL, on_node(pod("a")), pod("b")], OPEN),
    "a node without its host name": (
        [{**ROOMY, "metadata": {"name": "n"}}, deployment("web", 2, template(affinity=anti_affinity()))],
        OPEN,
    ),
    "a pod that says it has ended, and was never there": (
        [SMALL, {**pod("a"), "status": {"phase": "Succeeded"}}, pod("b")],
        CANNOT,
    ),
    "an object twice is one": ([SMALL, WEB, WEB], FITS),
    "a node twice is one": ([SMALL] * 2 + [deployment("web", 2, ONE)], CANNOT),
    "an object in two shapes": ([ROOMY, WEB, deployment("web", 2, ONE)], OPEN),
    "a pressure is a taint": ([pressed("True"), WEB], CANNOT),
    "a pressure that is over": ([pressed("False"), WEB], FITS),
    "a taint of the network is nothing to a DaemonSet of the host's": (
        [tainted(UNAVAILABLE, "NoSchedule", conditions=OFF_LINE), agent(hostNetwork=True)],
        CANNOT,
    ),
    "a taint of the network keeps other DaemonSets away": ([tainted(UNAVAILABLE, "NoSchedule", conditions=OFF_LINE), agent()], FITS),
    "a taint of a condition that a node does not have goes": ([tainted("node.kubernetes.io/disk-pressure", "NoSchedule"), WEB], OPEN),
    "a taint of a cordon that a node does not have goes": ([tainted("node.kubernetes.io/unschedulable", "NoSchedule"), WEB], OPEN),
    "a taint of a condition with another effect stays": ([tainted("node.kubernetes.io/unschedulable", "NoExecute"), WEB], CANNOT),
    "a node that is not ready": (
        [tainted("node.kubernetes.io/not-ready", "NoSchedule", conditions=[{"type": "Ready", "status": "False"}]), WEB],
        CANNOT,
    ),
    "what tolerates a taint for a time is evicted": ([tainted("spot", "NoExecute"), for_seconds(0)], OPEN),
    "what tolerates a taint for ever stays": ([tainted("spot", "NoExecute"), for_seconds(None)], FITS),
    "an autoscaler takes replicas away": (
        [node("n", cpu="2", memory="8Gi"), deployment("web", 5, ONE), scaler("h", maxReplicas=2)],
        FITS,
    ),
    "of two autoscalers, the larger minimum counts": (
        [node("n", cpu="2", memory="8Gi"), WEB, scaler("h", minReplicas=3, maxReplicas=5), scaler("i", maxReplicas=5)],
        CANNOT,
    ),
    "a pod has the name of a StatefulSet's": ([ROOMY, SET, pod("set-0", template({"other": "x"}))], OPEN),
    "a pod has a number that the StatefulSet has not": ([ROOMY, SET, pod("set-1", template({"other": "x"}))], FITS),
    "a second class for all": (
        [ROOMY, WEB, priority_class("a", 1, globalDefault=True), priority_class("b", 2, globalDefault=True)],
        CANNOT,
    ),
    "a Job has its own labels": ([ROOMY, train({"job-name": "x"})], CANNOT),
    "a Job's own labels may be given": ([ROOMY, train({"job-name": "train"})], FITS),
    "as many indexes as there are": (
        [ROOMY, train(successPolicy={"rules": [{"succeededIndexes": "0,2"}]}, **INDEXED)],
        FITS,
    ),
    "an action of a later JobSet": ([ROOMY, acting("RestartJob")], OPEN),
    "an action of no JobSet": ([ROOMY, acting("RestartJobs")], CANNOT),
    "an action of the pinned JobSet": ([ROOMY, acting("RestartJobSet")], FITS),
    "no index": ([ROOMY, train(successPolicy={"rules": [{"succeededIndexes": ""}]}, **INDEXED)], FITS),
    "more than no index": (
        [ROOMY, train(successPolicy={"rules": [{"succeededIndexes": "", "succeededCount": 1}]}, **INDEXED)],
        CANNOT,
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
    "a zone on a volume that is not bound keeps no pod away": ([node("n", {ZONE: "b"}), *zonal_volume(labels={ZONE: "a"})], OPEN),
    "a volume that reaches no node": ([node("n", {ZONE: "b"}), *zonal_volume(affinity=IN_ZONE_A)], CANNOT),
    "a volume in reach": ([node("n", {ZONE: "a"}), *zonal_volume(affinity=IN_ZONE_A)], FITS),
    "space around an amount": ([SMALL, deployment("web", 1, template(containers=[container(cpu=" 2")]))], CANNOT),
    "a hook sleeps longer than its pod has to end": ([ROOMY, hooked(31)], CANNOT),
    "a hook sleeps as long as its pod has to end": ([ROOMY, hooked(30)], FITS),
    "a mount that is read-only all the way down, and is not read-only": ([ROOMY, mounting(readOnly=False)], CANNOT),
    "a mount that is read-only all the way down": ([ROOMY, mounting(readOnly=True)], FITS),
    "the Job of a CronJob without pods counts": ([ROOMY, quota(hard={"count/jobs.batch": "0"}), cron_job(parallelism=0)], CANNOT),
    "a template whose selector names a key twice": ([ROOMY, deployment("web", 0, template(topologySpreadConstraints=[TWICE]))], CANNOT),
    "a service without a port": ([ROOMY, WEB, namespaced("v1", "Service", "web", spec={"ports": [{"port": 0}]})], CANNOT),
    "a number as the value of a variable": (holding(env=[{"name": "A", "value": 5}]), CANNOT),
    "a mapping of variables": (holding(env={"A": "b"}), CANNOT),
    "a number as an argument": (holding(args=["--port", 80]), CANNOT),
    "a port by name or by number": (holding(livenessProbe={"httpGet": {"port": "web", "path": "/"}}), FITS),
    "a cpu limit in mebibytes": (variable(resourceFieldRef={"resource": "limits.cpu", "divisor": "1Mi"}), CANNOT),
    "a cpu limit in thousandths": (variable(resourceFieldRef={"resource": "limits.cpu", "divisor": "1m"}), FITS),
    "a memory limit in thousandths": (variable(resourceFieldRef={"resource": "limits.memory", "divisor": "1m"}), CANNOT),
    "a memory limit in mebibytes": (variable(resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}), FITS),
    "a field of another version": (variable(fieldRef={"apiVersion": "v2", "fieldPath": "metadata.name"}), CANNOT),
    "a label that is none": (variable(fieldRef={"fieldPath": "metadata.labels['a b']"}), CANNOT),
    "an annotation": (variable(fieldRef={"fieldPath": "metadata.annotations['A.example/b']"}), FITS),
    "two files of one path": (projected(FILES, NAMED), CANNOT),
    "a token at the path of a file": (projected(NAMED, {"serviceAccountToken": {"path": "a"}}), FITS),
    "a token for five seconds": (projected({"serviceAccountToken": {"path": "a", "expirationSeconds": 5}}), CANNOT),
    "a claim of a pod without size": (ephemeral(accessModes=["ReadWriteOnce"]), CANNOT),
    "a claim of a pod without access mode": (ephemeral(resources=WANTED["resources"]), CANNOT),
    "a pod with a volume of its own": (with_own_volume("v"), FITS),
    "a claim with the name of a pod's own": (with_own_volume("web-v"), OPEN),
    "claims of a StatefulSet without size": (
        [ROOMY, stateful_set("s", 1, ONE, volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}])],
        CANNOT,
    ),
    "a preferred neighbour without a term": (with_pods(affinity=NEAR), CANNOT),
    "a setting of the node's network": (with_pods(hostNetwork=True, **SYSCTL), CANNOT),
    "a setting of the pod's network": (with_pods(**SYSCTL), FITS),
    "a signal for an init container": (with_pods(initContainers=[{"name": "i", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}]), FITS),
    "an empty hook of an init container": (with_pods(initContainers=[{"name": "i", "image": "i", "lifecycle": {}}]), CANNOT),
    "a selector without a label": ([ROOMY, deployment("web", 1, ONE, selector={"matchLabels": {}})], CANNOT),
    "a condition of pods without a status": ([ROOMY, train(podFailurePolicy=IGNORED)], FITS),
    "numbers of pods that begin late": ([ROOMY, stateful_set("s", 2, ONE, ordinals={"start": 5})], FITS),
    "a number in a ConfigMap": ([ROOMY, WEB, namespaced("v1", "ConfigMap", "c", data={"PORT": 80})], CANNOT),
    "a string in a ConfigMap": ([ROOMY, WEB, namespaced("v1", "ConfigMap", "c", data={"PORT": "80"})], FITS),
    "a port in quotes": ([ROOMY, WEB, namespaced("v1", "Service", "s", spec={"ports": [{"port": "80"}]})], CANNOT),
    "a type of path that there is not": ([ROOMY, WEB, ingress("Some")], CANNOT),
    "a type of path": ([ROOMY, WEB, ingress("Prefix")], FITS),
    "an autoscaler by a metric without a source": ([ROOMY, WEB, scaler("a", maxReplicas=2, metrics=[{"type": "Pods"}])], CANNOT),
    "an autoscaler by cpu": ([ROOMY, WEB, scaler("a", maxReplicas=2, metrics=[BY_CPU])], FITS),
    "a binding to a role of no kind": ([ROOMY, WEB, binding(kind="Roll")], CANNOT),
    "a binding to a role": ([ROOMY, WEB, binding(kind="Role")], FITS),
    "an operator of a claim's selector": ([ROOMY, WEB, namespaced("v1", "PersistentVolumeClaim", "c", spec=WANTED | CHOOSY)], CANNOT),
    "a Deployment of the longest name": ([ROOMY, deployment("a" * 253, 1, ONE)], FITS),
    "a ConfigMap and that of its namespace exceed a quota": ([ROOMY, WEB, CONFIG_MAP, quota(hard={"configmaps": "1"})], CANNOT),
    "a ConfigMap and that of its namespace are a quota": ([ROOMY, WEB, CONFIG_MAP, quota(hard={"count/configmaps": "2"})], FITS),
    "two Secrets exceed a quota": ([ROOMY, WEB, opaque("a"), opaque("b"), quota(hard={"secrets": "1"})], CANNOT),
    "a Secret elsewhere counts elsewhere": ([ROOMY, WEB, opaque("a"), {**opaque("b"), "metadata": {"name": "b"}}, quota(hard={"secrets": "1"})], FITS),
    "each port of a Service takes one of the nodes' ports": ([ROOMY, WEB, ports("NodePort"), quota(hard={"services.nodeports": "1"})], CANNOT),
    "a balancer without ports of nodes": ([ROOMY, WEB, ports("LoadBalancer", allocateLoadBalancerNodePorts=False), quota(hard={"services.nodeports": "1"})], FITS),
    "a balancer counts": ([ROOMY, WEB, ports("LoadBalancer"), quota(hard={"services.loadbalancers": "0"})], CANNOT),
    "a plain Service takes no port of the nodes": ([ROOMY, WEB, ports("ClusterIP"), quota(hard={"services.nodeports": "0", "services.loadbalancers": "0"})], FITS),
    "other kinds count by name": ([ROOMY, WEB, NETWORK_POLICY, quota(hard={"count/networkpolicies.networking.k8s.io": "0"})], CANNOT),
    "what a quota counts already may be what is declared": ([ROOMY, WEB, opaque("a"), {**quota(hard={"secrets": "1"}), "status": {"used": {"secrets": "1"}}}], OPEN),
    "limits of GPUs are counted by no quota": ([node("n", gpu="2"), deployment("web", 1, template(containers=[container(gpu=2)])), quota(hard={"limits.nvidia.com/gpu": "1"})], FITS),
    "a volume kept for a claim of a StatefulSet": ([ROOMY, *kept_volume()[:2], holding_data(1)], OPEN),
    "a claim of a StatefulSet with a volume kept for it": ([ROOMY, *kept_volume(), holding_data(1)], OPEN),
    "a volume kept for another StatefulSet": ([ROOMY, *kept_volume("data-other-0")[:2], holding_data(1)], CANNOT),
    "a StatefulSet of the longest name": ([ROOMY, stateful_set("s" * 52, 1, ONE)], FITS),
    "a name that some hashes make too long": ([ROOMY, stateful_set("s" * 61, 1, ONE)], OPEN),
    "a name that every hash makes too long": ([ROOMY, stateful_set("s" * 62, 1, ONE)], CANNOT),
    "a toleration of greater values": (with_pods(tolerations=[{"key": "a", "operator": "Gt", "value": "1"}]), CANNOT),
    "a full domain name": ([ROOMY, WEB, service(type="ExternalName", externalName="db.example.com.")], FITS),
    "an address of a name": ([ROOMY, WEB, service(type="ExternalName", externalName="db.example.com", clusterIP="10.0.0.1")], CANNOT),
    "ports without names": ([ROOMY, WEB, service(ports=[{"port": 80}, {"port": 81}])], CANNOT),
    "ports with names": ([ROOMY, WEB, service(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "b"}])], FITS),
    "a node port out of range": ([ROOMY, WEB, service(type="NodePort", ports=[{"port": 80, "nodePort": 80}])], CANNOT),
    "a class of load balancers without one": ([ROOMY, WEB, service(ports=[{"port": 80}], loadBalancerClass="a/b")], CANNOT),
    "a headless service with node ports": ([ROOMY, WEB, service(type="NodePort", clusterIP="None", ports=[{"port": 80}])], CANNOT),
    "a policy of traffic from outside without any": ([ROOMY, WEB, service(ports=[{"port": 80}], externalTrafficPolicy="Local")], CANNOT),
    "a key in both maps": ([ROOMY, WEB, namespaced("v1", "ConfigMap", "c", data={"a": "b"}, binaryData={"a": "YQ=="})], CANNOT),
    "a Secret of a value that is not known": ([ROOMY, WEB, namespaced("v1", "Secret", "s", data={"a": UNKNOWN})], FITS),
    "a Secret that is not known": ([ROOMY, WEB, namespaced("v1", "Secret", "s", type="kubernetes.io/tls", data=UNKNOWN)], FITS),
    "a ConfigMap that is not known": ([ROOMY, WEB, namespaced("v1", "ConfigMap", "c", data=UNKNOWN)], FITS),
    "a Service of a port that is not known": ([ROOMY, WEB, namespaced("v1", "Service", "s", spec={"ports": [{"port": UNKNOWN}], "externalIPs": UNKNOWN, "type": UNKNOWN})], FITS),
    "a network policy of a network that is not known": ([ROOMY, WEB, namespaced("networking.k8s.io/v1", "NetworkPolicy", "n", spec={"podSelector": {"matchLabels": {"a": UNKNOWN}}, "ingress": [{"from": [{"ipBlock": {"cidr": UNKNOWN}}], "ports": [{"port": UNKNOWN}]}]})], FITS),
    "an Ingress of a host that is not known": ([ROOMY, WEB, namespaced("networking.k8s.io/v1", "Ingress", "i", spec={"rules": [{"host": UNKNOWN}], "tls": [{"hosts": [UNKNOWN]}], "defaultBackend": {"service": {"name": "s", "port": {"number": UNKNOWN}}}})], FITS),
    "a role binding of a name that is not known": ([ROOMY, WEB, {**namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "b"), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": UNKNOWN}, "subjects": [{"kind": "User", "name": UNKNOWN, "apiGroup": "rbac.authorization.k8s.io"}]}], FITS),
    "a ConfigMap of more than 1 MiB": ([ROOMY, WEB, namespaced("v1", "ConfigMap", "c", data={"a": "x" * (2**20 + 1)})], CANNOT),
    "a certificate without its key": ([ROOMY, WEB, secret("tls", **{"tls.crt": "YQ=="})], CANNOT),
    "a certificate with its key": ([ROOMY, WEB, secret("tls", **{"tls.crt": "YQ==", "tls.key": "YQ=="})], FITS),
    "a topology's value twice": ([ROOMY, WEB, in_zones("a", "a")], CANNOT),
    "a topology's values": ([ROOMY, WEB, in_zones("a", "b")], FITS),
    "a host by its address": ([ROOMY, WEB, ingress("Prefix", host="1.2.3.4")], CANNOT),
    "a host with a star": ([ROOMY, WEB, ingress("Prefix", host="*.example.com")], FITS),
    "a path through the parent": ([ROOMY, WEB, ingress("Prefix", path="/a/../b")], CANNOT),
    "a network with bits of a host": ([ROOMY, WEB, network_policy(_from=[{"ipBlock": {"cidr": "10.0.0.1/8"}}])], CANNOT),
    "ports in the wrong order": ([ROOMY, WEB, network_policy(ports=[{"port": 80, "endPort": 70}])], CANNOT),
    "a range of ports": ([ROOMY, WEB, network_policy(ports=[{"port": 80, "endPort": 90}])], FITS),
    "a service account of a group": ([ROOMY, WEB, binding(kind="Role") | {"subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": "team", "apiGroup": "rbac.authorization.k8s.io"}
    ]}], CANNOT),
    "names of a JobSet's jobs that are one": ([ROOMY, job_set("x", "x")], CANNOT),
    "names of a JobSet's jobs": ([ROOMY, job_set("x", "y")], FITS),
    "a JobSet's job whose name begins with a digit": ([ROOMY, job_set("0")], FITS),
    "a JobSet whose jobs' names are too long": ([ROOMY, job_set("x" * 55)], CANNOT),
    "a JobSet whose jobs' names are as long as may be": ([ROOMY, job_set("x" * 54)], FITS),
    "a JobSet that does not say how many indexes it has": ([ROOMY, with_jobs(parallelism=1)], CANNOT),
    "a JobSet without indexes": ([ROOMY, with_jobs(parallelism=1, completionMode="NonIndexed")], FITS),
    "a JobSet whose pods' names are too long": ([ROOMY, with_jobs("x" * 49, parallelism=1, completions=1)], CANNOT),
    "a JobSet whose pods' names are as long as may be": ([ROOMY, with_jobs("x" * 48, parallelism=1, completions=1)], FITS),
    "a JobSet whose job's name has a capital": ([ROOMY, job_set("Workers")], CANNOT),
    "a JobSet of pods that never end": ([ROOMY, job_set("x", restartPolicy="Always")], CANNOT),
    "labels that are none": ([ROOMY, {**WEB, "metadata": {**WEB["metadata"], "labels": {"a b": "c"}}}], CANNOT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_became_of_it(case: str) -> None:
    documents, expected = CASES[case]
    assert judge(documents).stack is expected


BESIDE = yaml.load(Path(__file__).with_name("probed.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("probe", BESIDE, ids=[each["case"] for each in BESIDE])
def test_objects_beside_a_deployment(probe: Manifest) -> None:
    assert judge([ROOMY, WEB, *probe["documents"]]).stack == probe["verdict"]


def test_what_is_declared_replaces_what_is_stored() -> None:
    stored = deployment("web", 9, ONE)
    stored["metadata"]["uid"] = "7a0f"
    for documents in ([stored, WEB], [WEB, stored]):
        (judged,) = judge([SMALL, *documents]).workloads
        assert judged.verdict is FITS


def test_a_service_that_is_refused_leaves_workloads_alone() -> None:
    found = judge([ROOMY, WEB, namespaced("v1", "Service", "web", spec={"ports": [{"port": 0}]})])
    assert (found.stack, found.workloads[0].verdict) == (CANNOT, FITS)


def test_a_list_may_hold_lists() -> None:
    inner = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}]}"
    (found,) = read(f"{{apiVersion: v1, kind: List, items: [{inner}]}}", "list.yaml")
    assert found["kind"] == "Pod"


@pytest.mark.parametrize(
    ("selector", "expected"), [({"matchLabels": {"a": "b"}}, OPEN), ({}, FITS)]
)
def test_pods_that_a_namespace_selector_finds_may_come_too_late(
    selector: Manifest, expected: Verdict
) -> None:
    near = affinity(app="a")
    [term] = near["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = selector
    other = deployment("a", 1, template({"app": "a"}))
    assert judge([ROOMY, namespace(a="b"), other, web(affinity=near)]).stack is expected


def test_an_evicted_pod_of_a_job_may_be_its_last() -> None:
    nodes = [node("a", cpu="1", memory="8Gi"), node("b", {"k": "two"}, cpu="1", memory="8Gi")]
    selecting = {"priorityClassName": "high", "nodeSelector": {"k": "two"}}
    high = [priority_class("high", 10), web(containers=[container(cpu=1)], **selecting)]
    assert judge([*nodes, *high, train()]).stack is FITS
    assert judge([*nodes, *high, train(backoffLimit=0)]).stack is OPEN


def test_a_job_with_space_for_one_pod_may_evict_others() -> None:
    high = priority_class("high", 10)
    important = {"containers": [container(cpu=1)], "priorityClassName": "high"}
    nodes = [node("a", cpu="2", memory="8Gi"), high, web(**important)]

    def two(**spec: Any) -> Manifest:
        return job("train", 2, using({"app": "train"}, cpu=1), completions=2, **spec)

    assert judge([*nodes, two()]).stack is FITS
    found = judge([*nodes, two(backoffLimit=0)])
    assert (found.stack, found.of_stack[0].rule) == (OPEN, "preemption")
    assert judge([node("a", cpu="3"), *nodes[1:], two(backoffLimit=0)]).stack is FITS
    assert judge([*nodes, two(backoffLimit=0, podFailurePolicy=IGNORED)]).stack is FITS
    eight = job("train", 8, using({"app": "train"}, cpu=1), completions=8)
    judged = judge([node("a", cpu="8"), high, web(7, **important), eight])
    assert judged.stack is OPEN  # it bears six


def test_a_deadline_goes_on_while_pods_wait() -> None:
    pods = using({"app": "train"}, cpu=1)
    one, two = node("a", cpu="1", memory="8Gi"), quota(hard={"pods": "2"})
    other = job("other", 1, pods)

    def timed(parallelism: int, completions: int = 2) -> Manifest:
        return job("train", parallelism, pods, completions=completions, activeDeadlineSeconds=100)

    (alone,) = judge([one, timed(2)]).workloads
    assert (alone.verdict, alone.reasons[0].path) == (OPEN, "activeDeadlineSeconds")
    for documents, expected in (
        ([ROOMY, timed(2)], FITS),
        # One after the other, whatever the nodes.
        ([one, timed(1)], FITS),
        ([one, timed(1), other], OPEN),
        ([ROOMY, two, timed(2)], FITS),
        ([ROOMY, two, timed(2), other], OPEN),
        ([ROOMY, two, timed(3, completions=3)], OPEN),
    ):
        assert judge(documents).stack is expected, documents


@pytest.mark.parametrize(("pods", "expected"), [(2, FITS), (3, OPEN)])
def test_pods_of_a_work_queue_have_their_claims_at_once(pods: int, expected: Verdict) -> None:
    own = {"volumeClaimTemplate": {"spec": claim_spec(storageClassName="disks")}}
    made = template({"app": "train"}, [container(cpu=1)], volumes=[{"name": "v", "ephemeral": own}])
    disks = storage_class("disks", "a/b", volumeBindingMode=None)
    claims = quota(hard={"persistentvolumeclaims": "2"})
    assert judge([ROOMY, disks, claims, job("train", pods, made)]).stack is expected


def test_a_stored_job_has_the_labels_of_its_controller() -> None:
    stored = train()
    stored["metadata"]["uid"] = "7a0f"
    stored["spec"]["template"]["metadata"]["labels"] |= {
        "controller-uid": "7a0f",
        "job-name": "train",
    }
    assert judge([ROOMY, stored]).stack is FITS


def test_a_pod_evicts_nothing_that_it_needs_itself() -> None:
    nodes = [node("a", {"k": "one"}, cpu="2", memory="8Gi"), node("b", cpu="1", memory="8Gi")]

    def of_app(name: str, **spec: Any) -> Manifest:
        return deployment(name, 1, template({"app": name}, [container(cpu=1)], **spec))

    attracting = of_app("attracting", nodeSelector={"k": "one"})
    high = of_app("high", priorityClassName="high", affinity=affinity(app="attracting"))
    documents = [*nodes, priority_class("high", 10), of_app("other"), attracting, high]
    assert judge(documents).stack is OPEN


def test_unknown_pods_may_be_those_that_others_wait_for() -> None:
    nodes = [node(zone, {ZONE: zone}, cpu="2", memory="8Gi") for zone in "ab"]
    one = [container(cpu=1)]
    apart = {"topologySpreadConstraints": [spread(nodeAffinityPolicy="Ignore")]}
    in_a = web(2, containers=one, nodeSelector={ZONE: "a"}, **apart)
    other = deployment("other", 1, using({"app": "other"}, cpu="100m"))
    windows = {"os": {"name": "windows"}, "nodeSelector": {ZONE: "b"}}
    unsure = deployment("unsure", 1, template({"app": "web", "x": "y"}, one, **windows))
    assert judge([*nodes, in_a, other]).stack is CANNOT
    assert judge([*nodes, in_a, other, unsure]).stack is OPEN


def test_a_daemon_set_may_evict_what_runs() -> None:
    runs = pod("p", template(containers=[container(cpu=8)], nodeName="n"))
    runs["status"] = {"phase": "Running"}
    small = daemon_set("agent", using(cpu=1))
    assert judge([ROOMY, runs, small]).stack is CANNOT
    small["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    assert judge([ROOMY, runs, small]).stack is OPEN


def with_header(name: str) -> Manifest:
    headers = [{"name": name, "value": "x"}]
    return {"readinessProbe": {"httpGet": {"port": 80, "httpHeaders": headers}}}


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
SECRET_OF_DRIVER = {"driver": "d", "nodePublishSecretRef": {"name": "S_"}}
IN_PODS = [
    ({"dnsConfig": {"searches": ["_a._b.", "."]}}, FITS),
    ({"dnsConfig": {"searches": ["a..b"]}}, CANNOT),
    ({"dnsConfig": {"searches": ["a"] * 33}}, CANNOT),
    ({"volumes": [{"name": "v", "csi": SECRET_OF_DRIVER}]}, CANNOT),
    ({"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "A_"}}}, CANNOT),
    ({"securityContext": {"windowsOptions": {"runAsUserName": ""}}}, CANNOT),
]


@pytest.mark.parametrize(("fields", "verdict"), IN_CONTAINERS)
def test_fields_of_containers_as_the_api_server_took_them(
    fields: Manifest, verdict: Verdict
) -> None:
    found = judge([ROOMY, pod("p", template(containers=[container() | fields]))])
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


UNREADABLE = [
    (secret("tls", **{"tls.crt": "not base64"}), "data.tls.crt must be base64"),
    (namespaced("v1", "ConfigMap", "c", binaryData={"a": "?"}), "binaryData.a must be base64"),
    (service(ports=[{"port": 80}], healthCheckNodePort=2**31), "spec.healthCheckNodePort must be below 2147483648"),
    (namespaced("coordination.k8s.io/v1", "Lease", "l", spec={"leaseDurationSeconds": 2**31}), "must be below 2147483648"),
    (job_set("x") | {"spec": {"replicatedJobs": [], "startupPolicy": {"startupPolicyOrder": "Some"}}}, "must be one of AnyOrder, InOrder"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "words"), UNREADABLE)
def test_what_kubernetes_does_not_read(document: Manifest, words: str) -> None:
    found = judge([ROOMY, WEB, document])
    assert found.stack is CANNOT
    told = (*found.findings, *(reason for item in found.workloads for reason in item.reasons))
    assert any(words in each.message for each in told)
