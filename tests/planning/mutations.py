"""Workloads with fields that the API server may refuse, drawn at random: for each field, what it may be.

In a shape, a list is a choice, a tuple a list of items, a mapping one that has each key, or not where None is drawn.
"""

import copy
import random
from typing import Any

from tests.factories import Manifest

NAMES = ["a", "A", "", "a.b", "-a", "a_b", "x" * 64, "a/b", "a/B/c", "é", "a b"]
VALUES = [None, (), ("a",), ("a b",), ("a", "b")]
EXPRESSION: Manifest = {
    "key": ["app", "a b", "", "k"],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "X"],
    "values": VALUES,
}
SELECTOR: Manifest = {
    "matchLabels": [None, {"app": "web"}, {"app": "x y"}, {"a//b": "x"}, {"k": "v"}],
    "matchExpressions": [None, (EXPRESSION,)],
}
LABEL_KEYS = [None, None, ("app",), ("k",), ("a b",), ("pod-template-hash",)]
TERM: Manifest = {
    "topologyKey": ["zone", "zone", "zone", *NAMES],
    "labelSelector": [None, SELECTOR, SELECTOR],
    "matchLabelKeys": LABEL_KEYS,
    "mismatchLabelKeys": LABEL_KEYS,
    "namespaces": [None, None, None, (NAMES,)],
    "namespaceSelector": [None, None, SELECTOR],
}
PREFERENCE = {"weight": [1, 100, 0, 101], "podAffinityTerm": TERM}
OF_LABELS: Manifest = {
    "key": ["zone", "a b", ""],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "X"],
    "values": [*VALUES, ("1",)],
}
OF_FIELDS: Manifest = {
    "key": ["metadata.name", "x"],
    "operator": ["In", "NotIn", "Exists"],
    "values": [("n",), (), ("n", "m"), ("N_",)],
}
NODE_TERM: Manifest = {
    "matchExpressions": [None, (OF_LABELS,)],
    "matchFields": [None, None, (OF_FIELDS,)],
}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
SPREAD: Manifest = {
    "maxSkew": [1, 1, 1, 0, -1],
    "topologyKey": ["zone", "zone", "a b", ""],
    "whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway", "x", ""],
    "labelSelector": [None, SELECTOR],
    "matchLabelKeys": LABEL_KEYS,
    "minDomains": [None, None, 0, 1, 2],
    "nodeAffinityPolicy": [None, None, "Honor", "x"],
}
PORT: Manifest = {
    "containerPort": [80, 80, 81, 0, 70000, None],
    "hostPort": [None, None, 80, 81, -1],
    "hostIP": [None, None, "1.2.3.4"],
    "protocol": [None, "TCP", "UDP", "x", ""],
    "name": [None, None, "http", "HTTP", "1", "a--b", "x" * 16],
}
AMOUNTS = ["0", "1", "500m", "2", "4Mi", "3Mi", "1.5", "-1"]
NATIVE = ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "hugepages-x", "gpu")
OTHERS = ("ephemeral-storage", "pods", "kubernetes.io/x", "requests.cpu")
INVALID = ("requests.nvidia.com/gpu", "a b/c", "xkubernetes.io/x")
RESOURCES = {
    field: {name: [None, None, None, *AMOUNTS] for name in (*NATIVE, *OTHERS, *INVALID)}
    for field in ("requests", "limits")
}
OF_POD = {
    field: {name: [None, None, *AMOUNTS] for name in ("cpu", "memory", "hugepages-2Mi")}
    for field in RESOURCES
}
PROFILE = {
    "type": ["Localhost", "RuntimeDefault", "Unconfined", "x", None],
    "localhostProfile": [None, None, "p", "/p", "../p", ""],
}
SE_LINUX = {"type": [None, "container_t", "x", "container_engine_t"], "user": [None, "x", ""]}
CONTEXT: Manifest = {
    "runAsUser": [None, None, 0, 1, -1],
    "runAsNonRoot": [None, True, False],
    "seccompProfile": [None, None, PROFILE],
    "appArmorProfile": [None, None, None, PROFILE],
    "seLinuxOptions": [None, None, SE_LINUX],
}
ADDED = [None, ("CHOWN",), ("NET_RAW",), ("NET_BIND_SERVICE",), ("CAP_SYS_ADMIN",)]
CONTAINER_CONTEXT = CONTEXT | {
    "privileged": [None, None, True, False],
    "allowPrivilegeEscalation": [None, False, True],
    "capabilities": [None, {"add": ADDED, "drop": [None, ("ALL",), ("CHOWN",)]}],
    "procMount": [None, None, "Default", "Unmasked", "x"],
}
GET = {"port": [80, "http", "-x", 0], "scheme": [None, "HTTP", "x"], "host": [None, None, "h", ""]}
HANDLER: Manifest = {
    "exec": [None, {"command": [("a",), ()]}],
    "httpGet": [None, GET],
    "tcpSocket": [None, None, {"port": [80, 70000]}],
    "grpc": [None, None, {"port": [1, 0]}],
}
PROBE = HANDLER | {
    "successThreshold": [None, None, 0, 1, 2],
    "periodSeconds": [None, None, -1, 1],
    "terminationGracePeriodSeconds": [None, None, None, 0, 1],
}
MODE = [None, None, 0o777, 0o1000]
IQN = "iqn.2001-04.com.example"
ISCSI: Manifest = {
    "targetPortal": ["a", "a", ""],
    "iqn": [f"{IQN}:a", f"{IQN}:a", "eui.0123456789abcdef", "naa.0", "example", ""],
    "lun": [0, 5, 256],
    "initiatorName": [None, None, f"{IQN}:b", "b"],
    "chapAuthSession": [None, None, True],
    "secretRef": [None, {"name": "s"}],
}
FILE = {"key": ["k", ""], "path": ["p", "/p", "../p"]}
SECRET = {"secretName": ["s", ""], "defaultMode": MODE, "items": [None, (FILE,)]}
SOURCE: Manifest = {"secret": [None, {"name": ["s", ""]}], "configMap": [None, {"name": "c"}]}
FIELD = {
    "path": ["p", "/p"],
    "fieldRef": {"fieldPath": ["metadata.name", "metadata.labels", "x"]},
}
VOLUMES: list[Any] = [
    {"iscsi": ISCSI},
    {"rbd": {"monitors": [("a",), ()], "image": ["i", ""]}},
    {"gcePersistentDisk": {"pdName": ["d", ""], "partition": [None, 1, 256]}},
    {},
    {"emptyDir": {"sizeLimit": [None, "1Gi", "-1"]}},
    {"hostPath": {"path": ["/a", "", "/a/../b"], "type": [None, "Directory", "x", ""]}},
    {"secret": SECRET},
    {"emptyDir": {}, "configMap": {"name": "c"}},
    {"configMap": {"name": ["c", ""], "defaultMode": MODE}},
    {"persistentVolumeClaim": {"claimName": "c"}},
    {"nfs": {"server": "s", "path": ["/p", "p", ""]}},
    {"csi": {"driver": ["a.b", "A.b", "a_b", ""]}},
    {"projected": {"sources": (SOURCE,)}},
    {"downwardAPI": {"items": (FIELD,)}},
    {"image": {"reference": ["r", ""]}},
]
VOLUME = [{"name": name, **volume} for name in ("v", "v", "w", "V", "", None) for volume in VOLUMES]
MOUNT: Manifest = {
    "name": ["v", "v", "z", None],
    "mountPath": ["/m", "/m", "/n", "", None],
    "subPath": [None, None, "a", "/a", "../a"],
    "subPathExpr": [None, None, None, "b"],
    "mountPropagation": [None, None, "None", "Bidirectional", "x"],
}
REFERENCE = {"name": ["s", "S", ""], "key": ["k", "", "a/b"]}
FIELD_PATHS = ["metadata.name", "metadata.x", "metadata.labels['a']", "spec.nodeName"]
ENV: Manifest = {
    "name": ["A", "A b", "A=b", "", "é", None],
    "value": [None, None, "x"],
    "valueFrom": [
        None,
        {"secretKeyRef": [None, REFERENCE], "configMapKeyRef": [None, None, REFERENCE]},
        {"fieldRef": {"fieldPath": FIELD_PATHS}},
        {"resourceFieldRef": {"resource": ["limits.cpu", "x"]}},
    ],
}
CONTAINER: Manifest = {
    "name": ["main", "b", "b", "B", None],
    "image": ["i", "i", "i", " i", "", None],
}
MORE: Manifest = {
    "imagePullPolicy": [None, "Always", "x", ""],
    "terminationMessagePolicy": [None, "File", "x"],
    "restartPolicy": [None, "Always", "Never", "x"],
}
INIT_CONTAINER = CONTAINER | {
    "restartPolicy": [None, "Always", "OnFailure", "x"],
    "ports": [None, (PORT, PORT)],
    "livenessProbe": [None, None, PROBE],
    "lifecycle": [None, None, {"preStop": HANDLER}],
    "securityContext": [None, CONTAINER_CONTEXT],
}
SHAPES: list[tuple[str, Any]] = [
    ("", {"restartPolicy": ["Always", "Never", "OnFailure", "x", ""]}),
    ("", {"dnsPolicy": ["None", "Default", "x"], "dnsConfig": {"nameservers": [None, ("1.2.3.4",), ("x",), ("::1",) * 4]}}),
    ("", {"activeDeadlineSeconds": [0, 1, 2**31]}),
    ("", {"hostname": [None, *NAMES], "subdomain": [None, *NAMES]}),
    ("", {"nodeName": ["n", *NAMES], "schedulingGates": [None, ({"name": NAMES},)]}),
    ("", {"readinessGates": ({"conditionType": NAMES},)}),
    ("", {"hostAliases": ({"ip": ["1.2.3.4", "x", ""], "hostnames": (NAMES,)},)}),
    ("", {"nodeSelector": [{"a": "v"}, {"a b": "v"}, {"a/b": "v v"}, {"": ""}]}),
    ("", {"preemptionPolicy": ["Never", "PreemptLowerPriority", "x"]}),
    ("", {"priorityClassName": [None, "high", "mild", "system-node-critical"], "priority": [None, 0, 100, 50]}),
    ("", {"priorityClassName": ["high", "mild"], "preemptionPolicy": [None, "Never", "PreemptLowerPriority"]}),
    ("", {"runtimeClassName": [None, "fixed", "selects", "plain"], "overhead": [None, {"cpu": "100m"}, {"cpu": "0.1"}, {"cpu": "1"}]}),
    ("", {"runtimeClassName": "selects", "nodeSelector": [{"a": "b"}, {"a": "c"}]}),
    ("", {"hostPID": [None, True], "hostIPC": [None, True], "hostUsers": [None, False, True], "shareProcessNamespace": [None, True]}),
    ("", {"os": {"name": ["linux", "x", ""]}}),
    ("", {"serviceAccountName": ["default", "a_b"]}),
    ("", {"ephemeralContainers": [None, ({"name": "e", "image": "i"},)]}),
    ("", {"hostNetwork": [True, False], "hostnameOverride": [None, *NAMES], "setHostnameAsFQDN": [None, True]}),
    *2 * [("", {"tolerations": ({
        "key": [None, "a", "a b", ""],
        "operator": [None, "Exists", "Equal", "Gt", "x"],
        "value": [None, "v", "v v"],
        "effect": [None, "NoSchedule", "NoExecute", "x"],
        "tolerationSeconds": [None, None, 0, 5],
    },)})],
    *2 * [("", {"topologySpreadConstraints": [(SPREAD,), (SPREAD, SPREAD)]})],
    ("affinity.podAffinity", {REQUIRED: (TERM,)}),
    ("affinity.podAntiAffinity", {REQUIRED: (TERM,), PREFERRED: [None, (PREFERENCE,)]}),
    ("affinity.nodeAffinity", {REQUIRED: {"nodeSelectorTerms": [(NODE_TERM,), (NODE_TERM,), ()]}}),
    ("affinity.nodeAffinity", {PREFERRED: ({"weight": [1, 0, 101], "preference": NODE_TERM},)}),
    *2 * [("", {"volumes": [(VOLUME,), (VOLUME, VOLUME)]})],
    ("", {"resourceClaims": [None, ({"name": ["g", "G", None], "resourceClaimName": [None, "c"], "resourceClaimTemplateName": [None, "t"]},)]}),
    ("", {"resources": OF_POD}),
    ("", {"securityContext": CONTEXT | {"fsGroup": [None, -1, 5], "sysctls": [None, ({"name": ["net.ipv4.tcp_rmem", "kernel.msgmax", "A"], "value": "1"},)]}}),
    ("", {"initContainers": [(INIT_CONTAINER,), (INIT_CONTAINER, INIT_CONTAINER)]}),
    ("containers.0", MORE),
    ("containers.0", CONTAINER),
    *2 * [("containers.0", {"resources": RESOURCES})],
    ("containers.0", {"resources": {"claims": ({"name": ["g", "h", ""]},)}}),
    ("containers.0", {"resources": {"requests": {"cpu": AMOUNTS}, "limits": {"cpu": "2"}}}),
    ("containers.0", {"ports": [(PORT,), (PORT, PORT)]}),
    *2 * [("containers.0", {"securityContext": CONTAINER_CONTEXT})],
    ("containers.0", {"livenessProbe": [None, PROBE], "readinessProbe": [None, PROBE]}),
    ("containers.0", {"lifecycle": {"preStop": HANDLER | {"sleep": [None, {"seconds": 1}]}}}),
    *2 * [("containers.0", {"env": (ENV,)})],
    ("containers.0", {"envFrom": ({"prefix": [None, "a", "a="], "secretRef": [None, {"name": ["s", ""]}], "configMapRef": [None, {"name": "c"}]},)}),
    ("containers.0", {"volumeMounts": [(MOUNT,), (MOUNT, MOUNT)]}),
    ("containers.0", {"volumeDevices": ({"name": ["v", "z"], "devicePath": ["/d", "/a/../b", ""]},)}),
    ("containers.0", {"resizePolicy": ({"resourceName": ["cpu", "x"], "restartPolicy": ["NotRequired", "RestartContainer", "x"]},)}),
]  # fmt: skip
"""Where in a pod's spec, and what to lay over it."""
OF_WORKLOAD: dict[str, Any] = {
    "Deployment": {
        "strategy": [None, {
            "type": [None, "Recreate", "RollingUpdate", "x"],
            "rollingUpdate": [None, {"maxSurge": [None, 0, 1, "25%"], "maxUnavailable": [None, 0, "0%", "150%"]}],
        }],
        "minReadySeconds": [None, None, -1, 600],
        "progressDeadlineSeconds": [None, None, 1, -1],
    },
    "StatefulSet": {
        "serviceName": [None, "s", "A", "a.b"],
        "podManagementPolicy": [None, "Parallel", "x"],
        "updateStrategy": [None, {"type": [None, "OnDelete", "x"], "rollingUpdate": [None, {"partition": [0, -1]}]}],
        "ordinals": [None, {"start": [0, -1]}],
    },
    "DaemonSet": {
        "updateStrategy": [None, {"type": [None, "OnDelete", "x"], "rollingUpdate": [None, {"maxSurge": [0, 1], "maxUnavailable": [None, 0, 1]}]}],
    },
    "Job": {
        "completionMode": [None, None, "Indexed", "x"],
        "completions": [None, 1, -1],
        "parallelism": [None, 1, -1],
        "backoffLimit": [None, None, -1],
        "backoffLimitPerIndex": [None, None, 1],
        "maxFailedIndexes": [None, None, 1],
        "podReplacementPolicy": [None, "Failed", "TerminatingOrFailed", "x"],
        "manualSelector": [None, None, True],
    },
}  # fmt: skip
KINDS = ["Pod", "Pod", "Deployment", "StatefulSet", "DaemonSet", "Job"]


def draw(at: random.Random, shape: Any) -> Any:
    if isinstance(shape, list):
        return draw(at, at.choice(shape)) if shape else None
    if isinstance(shape, tuple):
        return [draw(at, item) for item in shape]
    if isinstance(shape, dict):
        drawn = {key: draw(at, value) for key, value in shape.items()}
        return {key: value for key, value in drawn.items() if value is not None}
    return copy.deepcopy(shape)


def workload(seed: int, namespace: str) -> Manifest:
    """A workload in a namespace, valid but for one or two fields."""
    at = random.Random(seed)
    kind, spec = at.choice(KINDS), {"containers": [{"name": "main", "image": "i"}]}
    if at.random() < 0.3:
        spec = copy.deepcopy(RESTRICTED)
    if kind == "Job":
        spec["restartPolicy"] = "Never"
    own: Manifest = {}
    for path, shape in at.sample(SHAPES, at.choice((0, 1, 1, 1, 2))):
        place: Any = spec
        for key in filter(None, path.split(".")):
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place |= draw(at, shape)
    if spec["containers"] and at.random() < 0.2:
        own = draw(at, OF_WORKLOAD.get(kind, {}))
    metadata = {"labels": {"app": "web"} | at.choice([{}, {}, {}, {}, {"k": "v"}, {"a b": "v"}])}
    head = {"name": "w", "namespace": namespace}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": head | metadata, "spec": spec}
    own |= {"template": {"metadata": metadata, "spec": spec}}
    if kind != "Job":
        own["selector"] = at.choice(
            [{"matchLabels": {"app": "web"}}] * 12 + [{"matchLabels": {"app": "y"}}, {}]
        )
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": head, "spec": own}


HARMLESS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESTRICTED: Manifest = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "main", "image": "i", "securityContext": HARMLESS}],
}
"""The spec of a pod that every namespace accepts."""
