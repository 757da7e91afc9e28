"""Objects other than workloads, and rarer fields of Jobs: what planning refuses, the API server refuses, no more."""

import random
from collections import Counter
from typing import Any

import pytest
from ml_foundations.planning import Severity, Verdict, judge

from tests.factories import Manifest, deployment, node, template
from tests.planning.mutations import ISCSI, SELECTOR, draw
from tests.support.cluster import Cluster

CASES = 2400
FEW = 10 * [None]
"""A field is left out most of the time, so that few are wrong at once."""
NAME = [*15 * ["o"], "o.p", "O", "a_b"]
REFERENCE = {
    "name": ["s", "s", "S", "", None],
    "namespace": ["default", "default", "a.b", "", None],
}
MODES = [
    *15 * [("ReadWriteOnce",)],
    (),
    ("ReadWriteOncePod",),
    ("ReadWriteOncePod", "ReadWriteOnce"),
    ("x",),
    None,
]
TERMS: Manifest = {
    "nodeSelectorTerms": [({"matchExpressions": ({"key": "a", "operator": "Exists"},)},), ()]
}
NODE_TERM = {
    "key": ["a", "a b"],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "x"],
    "values": [None, ("1",), ("a b",), ("1", "2")],
}
VOLUMES: list[Any] = [
    *4
    * [
        {
            "csi": {
                "driver": [*3 * ["a.b"], "a_b", ""],
                "volumeHandle": ["h", "h", "h", ""],
                **{
                    f"{of}SecretRef": [*FEW, REFERENCE]
                    for of in (
                        "controllerPublish",
                        "controllerExpand",
                        "nodeStage",
                        "nodePublish",
                        "nodeExpand",
                    )
                },
            }
        }
    ],
    {"hostPath": {"path": ["/a", "", "/../a"], "type": [None, "Directory", "x"]}},
    {"nfs": {"server": ["s", ""], "path": ["/p", "p"]}},
    {"local": {"path": ["/l", "/../l", ""]}, "nodeAffinity": [None, {"required": TERMS}, {}]},
    {"hostPath": {"path": "/a"}, "nfs": {"server": "s", "path": "/p"}},
    {
        "local": {"path": "/l"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": ({"matchExpressions": (NODE_TERM,)},)}},
    },
    {"iscsi": ISCSI},
    {"rbd": {"monitors": [("a",), ()], "image": ["i", ""]}},
    {},
]
CLAIM = {
    "accessModes": MODES,
    "storageClassName": [None, None, "", "c", "C_"],
    "volumeMode": [*FEW, "Block", "x", ""],
}
SCOPES = [
    *FEW,
    ("Terminating",),
    ("PriorityClass",),
    ("x",),
    ("BestEffort",),
    ("BestEffort", "NotBestEffort"),
]
EXPRESSION = {
    "scopeName": ["PriorityClass", "PriorityClass", "BestEffort", "Terminating", "x", None],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "x"],
    "values": [None, ("a",), ()],
}
HARD: list[Manifest] = [
    *4 * [{"pods": "5"}],
    *(
        {key: "5"}
        for key in (
            "cpu",
            "requests.storage",
            "count/pods",
            "requests.nvidia.com/gpu",
            "hugepages-2Mi",
        )
    ),
]
SELECTED = {"matchExpressions": (EXPRESSION,)}
LIMITS = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
AMOUNTS = {"cpu": [None, "1", "2", "500m"], "nvidia.com/gpu": [None, None, "1", "2"]}
CODES = {"operator": ["In", "NotIn", "x", None], "values": [(1,), (1, 2), (2, 1), (0,), (0, 1), ()]}
CONDITION = {"type": ["DisruptionTarget", "a b"], "status": ["True", "x"]}
FAILURE: Manifest = {
    "action": ["Ignore", "FailJob", "Count", "FailIndex", "x", None],
    "onExitCodes": [None, CODES],
    "onPodConditions": [None, None, (CONDITION,)],
}
PODS = {"containers": ({"name": "main", "image": "i"},), "restartPolicy": "Never"}
SUCCESS = {
    "succeededIndexes": [None, "0", "0-1", "1-0", "0,0", "1-1", "0,2-3", "12", "x", ""],
    "succeededCount": [None, 1, 2, 0, 40],
}
JOB: Manifest = {
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": PODS},
    "podFailurePolicy": [None, {"rules": [(FAILURE,), (FAILURE, FAILURE)]}],
    "completionMode": [None, "Indexed"],
    "completions": [1, 1, 11],
    "backoffLimitPerIndex": [None, None, 1],
    "successPolicy": [*FEW, {"rules": [(), (SUCCESS,), (SUCCESS,), (SUCCESS,)]}],
}
LABELS = {"team": "ml", "a/b": "", "c": "d"}
METADATA: Manifest = {
    "labels": [*FEW, LABELS, {"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}],
    "annotations": [*FEW, {"A.b/C": "any text"}, {"a b": "c"}, {"/a": "c"}],
    "finalizers": [*FEW, ("a.b/c",), ("a",), ("orphan",)],
    "ownerReferences": [
        *FEW,
        ({"apiVersion": ["v1", ""], "kind": "Pod", "name": ["p", ""], "uid": ["u", ""]},),
    ],
}
"""What every kind has."""
SHARE = [None, None, 1, "50%", "101%", -1, "x"]
PORT = {
    "port": [80, 80, 81, 0, 70000],
    "name": [None, "a", "b", "A"],
    "protocol": [*FEW, "UDP", "x"],
    "targetPort": [*FEW, "http", 90, 0, "Http"],
}
TAINT = {
    "key": ["k", "k", "l", "a b", ""],
    "effect": ["NoSchedule", "NoExecute", "x", ""],
    "value": [None, "v", "a b"],
}
SCHEDULES = (
    *(
        "61 * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * JAN-mar *",
        "* * * * 7",
    ),
    *(
        "1,2, * * * *",
        "*/90 * * * *",
        "@every 1h30m",
        "@every 1.5ms",
        "@every 1x",
        "@daily",
        "@often",
        "* * * *",
        "*-5 * * * *",
    ),
    *(
        "? ? ? ? ?",
        " 1 * * * *",
        "TZ=UTC 1 * * * *",
        "a * * * *",
        "1- * * * *",
        "1-2-3 * * * *",
        "1/2/3 * * * *",
        ", * * * *",
    ),
)
SHAPES: dict[str, tuple[str, Manifest]] = {
    "Namespace": ("/api/v1/namespaces", {}),
    "Node": (
        "/api/v1/nodes",
        {
            "spec": {
                "taints": [None, (TAINT,), (TAINT, TAINT)],
                "podCIDR": [*FEW, "10.0.0.0/24", "10.0.0.0", "x"],
            }
        },
    ),
    "ServiceAccount": ("/api/v1/namespaces/default/serviceaccounts", {}),
    "ConfigMap": (
        "/api/v1/namespaces/default/configmaps",
        {
            "data": [None, {"a": "b"}, {"a/b": "c"}, {"..": "c"}, {"a": "c" * (2**20 + 1)}],
            "binaryData": [*FEW, {"_x.y-Z": "YQ=="}, {"a b": ""}],
        },
    ),
    "Service": (
        "/api/v1/namespaces/default/services",
        {
            "spec": {
                "type": [*FEW, "NodePort", "ExternalName", "x"],
                "clusterIP": [*FEW, "None"],
                "externalName": [*FEW, "a.b", "A_"],
                "sessionAffinity": [*FEW, "x"],
                "selector": [None, {"a": "b"}, {"a b": "c"}],
                "ports": [(PORT,), (PORT,), (PORT, PORT), None],
            }
        },
    ),
    "PodDisruptionBudget": (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "spec": {
                "minAvailable": SHARE,
                "maxUnavailable": SHARE,
                "unhealthyPodEvictionPolicy": [*FEW, "AlwaysAllow", "x"],
                "selector": [None, SELECTOR],
            }
        },
    ),
    "PersistentVolume": (
        "/api/v1/persistentvolumes",
        {
            "spec": [
                {
                    "accessModes": MODES,
                    "capacity": [
                        *15 * [{"storage": "1Gi"}],
                        {"storage": "0"},
                        {"cpu": "1"},
                        {},
                        None,
                    ],
                    "persistentVolumeReclaimPolicy": [*FEW, "Retain", "x"],
                    "storageClassName": [None, None, "c", "C_"],
                    "volumeMode": [*FEW, "Block", "x"],
                    **volume,
                }
                for volume in VOLUMES
            ]
        },
    ),
    "PersistentVolumeClaim": (
        "/api/v1/namespaces/default/persistentvolumeclaims",
        {
            "spec": CLAIM
            | {
                "resources": [
                    *4 * [{"requests": {"storage": "1Gi"}}],
                    {"requests": {"storage": "0"}},
                    {},
                ]
            }
        },
    ),
    "StorageClass": (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "provisioner": ["a.b/c", "A.b", ""],
            "reclaimPolicy": [*FEW, "Delete", "x"],
            "volumeBindingMode": [*FEW, "Immediate", "x", ""],
            "allowedTopologies": [
                *FEW,
                ({"matchLabelExpressions": ({"key": ["zone", "a b"], "values": [("a",), ()]},)},),
            ],
        },
    ),
    "ResourceQuota": (
        "/api/v1/namespaces/default/resourcequotas",
        {"spec": {"hard": HARD, "scopes": SCOPES, "scopeSelector": [*FEW, SELECTED]}},
    ),
    "LimitRange": (
        "/api/v1/namespaces/default/limitranges",
        {
            "spec": {
                "limits": [
                    (
                        {
                            "type": ["Container", "Pod"],
                            "max": {"cpu": "2"},
                            "default": [None, {"cpu": "1"}],
                        },
                    ),
                    ({"type": "Pod", "defaultRequest": [None, {"cpu": "1"}]},),
                    ({"type": "Container"}, {"type": ["Pod", "Container"]}),
                    *6 * [({"type": "Container"} | {key: [None, AMOUNTS] for key in LIMITS},)],
                    (
                        {
                            "type": "PersistentVolumeClaim",
                            "min": [None, {"storage": ["1", "3"]}],
                            "max": {"storage": "2"},
                        },
                    ),
                    ({"type": "PersistentVolumeClaim", "min": [None, {"storage": "1"}]},),
                ]
            }
        },
    ),
    "PriorityClass": (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "value": [1, 0, 1_000_000_000, 1_000_000_001, -5],
            "preemptionPolicy": [*FEW, "Never", "x", ""],
        },
    ),
    "RuntimeClass": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "handler": ["h", "h", "H", "", "a.b"],
            "scheduling": [
                None,
                {
                    "nodeSelector": [None, {"a": "b"}, {"a b": "c"}],
                    "tolerations": [
                        None,
                        (
                            {
                                "key": ["k", "a b"],
                                "operator": ["Exists", "x"],
                                "effect": [None, "y"],
                            },
                        ),
                    ],
                },
            ],
        },
    ),
    "HorizontalPodAutoscaler": (
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        {
            "spec": {
                "maxReplicas": [3, 3, 3, 0],
                "minReplicas": [None, 1, 3, 4, 0],
                "scaleTargetRef": {
                    "apiVersion": [*4 * ["apps/v1"], "v1", "", None],
                    "kind": ["Deployment", "Deployment", "ReplicationController", ""],
                    "name": ["web", "web", ""],
                },
            }
        },
    ),
    "Job": ("/apis/batch/v1/namespaces/default/jobs", {"spec": JOB}),
    "CronJob": (
        "/apis/batch/v1/namespaces/default/cronjobs",
        {
            "spec": {
                "schedule": [*3 * ["* * * * *"], *SCHEDULES],
                "timeZone": [
                    None,
                    "Europe/Berlin",
                    "Mars/Base",
                    "UTC",
                    "",
                    "Local",
                    "local",
                    "Europe",
                    "../x",
                ],
                "jobTemplate": {"spec": JOB},
            }
        },
    ),
}
CLUSTER_WIDE = (
    "Namespace",
    "Node",
    "PersistentVolume",
    "StorageClass",
    "PriorityClass",
    "RuntimeClass",
)
ROOMY = node("n", cpu="1k", memory="1Ti")
WEB = deployment("web", 1, template())


def drawn(kind: str, seed: int) -> Manifest:
    path, shape = SHAPES[kind]
    version = path.removeprefix("/apis/").removeprefix("/api/").partition("/namespaces")[0]
    version = version if "namespaces" in path else version.rpartition("/")[0]
    at = random.Random(seed)
    names = {"Job": [*6 * ["o"], "o" * 61, "o" * 62, "o.p"], "CronJob": "o", "Pod": "o"}
    metadata = {"name": draw(at, names.get(kind, NAME))} | draw(at, METADATA)
    if kind not in CLUSTER_WIDE:
        metadata["namespace"] = "default"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **draw(at, shape)}


def refused(document: Manifest) -> tuple[list[str], bool]:
    """The findings that say so, and whether the verdict is certain."""
    verdicts = judge([ROOMY, WEB, document])
    own = [
        each for each in verdicts.workloads if str(each.workload).startswith(f"{document['kind']} ")
    ]
    found = [*verdicts.findings, *(reason for each in own for reason in each.reasons)]
    errors = [
        each.message for each in found if each.rule == "invalid" and each.severity is Severity.ERROR
    ]
    return errors, not own or own[0].verdict is not Verdict.UNDETERMINED


def test_what_planning_refuses_the_api_server_refuses(cluster: Cluster) -> None:
    wrong, seen = [], Counter[tuple[str, bool]]()
    for seed in range(CASES):
        kind = list(SHAPES)[seed % len(SHAPES)]
        document, headers = drawn(kind, seed), {"Content-Type": "application/json"}
        url = f"{cluster.api.configuration.host}{SHAPES[kind][0]}?dryRun=All"
        response = cluster.api.call_api("POST", url, headers, document)
        words = response.read().decode()
        assert response.status in (201, 400, 403, 422), words
        errors, is_certain = refused(document)
        seen[kind, response.status == 201] += 1
        if bool(errors) == (response.status == 201) and is_certain:
            wrong.append(f"{seed}: {errors or words}\n{document}")
    assert not wrong, f"{len(wrong)} are wrong:\n" + "\n".join(wrong[:8])
    assert len(seen) == 2 * len(SHAPES)


SECRET = {"csi": {"driver": "a.b", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}}


def test_a_refused_object_refuses_the_stack_and_settles_nothing() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **SECRET}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": spec,
    }
    found = judge([ROOMY, WEB, volume])
    assert (found.stack, found.workloads[0].verdict) == (Verdict.CANNOT_FIT, Verdict.UNDETERMINED)
    paths = {(each.object, each.path) for each in found.findings if each.rule == "invalid"}
    assert paths == {("PersistentVolume pv", "spec.csi.nodePublishSecretRef.namespace")}
    volume["metadata"] = {"name": "pv", "uid": "7a0f"}
    assert judge([ROOMY, WEB, volume]).stack is Verdict.FITS


@pytest.mark.parametrize("surge", ["x", [], {}, True, "-5%", -1, 2**31])
def test_a_malformed_value_is_a_finding(surge: Any) -> None:
    web = deployment("web", 1, template(), strategy={"rollingUpdate": {"maxSurge": surge}})
    found = judge([ROOMY, web]).workloads[0]
    assert found.verdict is Verdict.CANNOT_FIT
    assert [each.path for each in found.reasons] == ["spec.strategy.rollingUpdate.maxSurge"]


POD_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, ""),
        ({"containers": None}, "template.spec.containers must be given"),
        ({"hostNetwork": True, "restartPolicy": "Now"}, "template.spec.restartPolicy must be one of"),
        ({"containers": 2 * POD_TEMPLATE["spec"]["containers"]}, "template.spec.containers[1] must not have the name"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}, "template.spec.volumes"),
    ],
)  # fmt: skip
def test_the_pods_of_a_pod_template_are_checked(spec: Manifest, problem: str) -> None:
    changed = {**POD_TEMPLATE, "spec": {**POD_TEMPLATE["spec"], **spec}}
    stored = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "o"}}
    found = judge([stored | {"template": changed}, deployment("web", 1, template()), node("n")])
    assert found.stack is (Verdict.CANNOT_FIT if problem else Verdict.FITS)
    assert problem in str([reason.message for reason in found.reasons])


def test_no_remedy_leaves_out_a_field_of_which_planning_is_not_sure() -> None:
    """Followed, such a remedy led to an object without a required field."""
    config = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig"}
    selector = [{"key": "a b", "valueFromProvisioningClassDetail": "d"}]
    updates = {"provisioningClassName": "c", "podSetUpdates": {"nodeSelector": selector}}
    found = judge([config | {"metadata": {"name": "o"}, "spec": updates}, node("n")]).reasons
    doubts = {reason.rule: reason for reason in found}
    assert "must be a qualified name" in doubts["beyond-planning"].message
    assert "Leave" not in doubts["beyond-planning"].remedy
