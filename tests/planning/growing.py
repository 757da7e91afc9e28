"""Documents that grow: the fields of each kind, from the schema, and objects that are about each other.

A case is a name and a function from a size to documents. ``fields`` makes one for each list, map, text and
number of each kind, in the places where the schema has it first; ``RELATIONS`` are the ways in which objects
decide about each other.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ml_foundations.planning.input import field_catalog

from tests.factories import (
    HOSTNAME,
    ZONE,
    Manifest,
    anti_affinity,
    claim,
    cluster_wide,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
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
from tests.planning.queues import cluster_queue, cohort, flavor, waiting

Documents = list[Manifest]


class Case(NamedTuple):
    """Something that grows."""

    name: str
    grown: Callable[[int], Documents]
    """Returns the documents of a size."""
    sizes: tuple[int, ...]
    """The sizes to compare; of a number, its values."""


# --- Fields

LENGTHS = (512, 2048)
"""The numbers of items and of keys."""
CHARACTERS = (16_384, 65_536)
NUMBERS = (2**10, 2**31 - 1)
_IDENTITY = ("name", "key", "mountPath", "devicePath", "containerPort", "port", "ip", "topologyKey")
"""The fields that tell items of a list apart."""
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "schedule": ("@every 1h1.5m", "*/5 1-9,7 * jan-dec 1"),
    "succeededIndexes": ("0-1,3",),
    "image": ("a.example/b/c:1.2@sha256:0",),
    "expression": ("a.b == 'c' && (d || !e)",),
    "cidr": ("10.0.0.0/8",),
    "path": ("/a/../b",),
    "value": ("a b $(A) --c=d,e=f",),
    "args": ("--a=b",),
}
"""Texts with a syntax; all others begin as a word, an amount and a number."""
_WORDS = ("a", "9", "1.5Gi", "a.b/c-d_e", "a,b=c:d")
_SCALARS: Mapping[str, Any] = {
    **dict.fromkeys(("int32", "integer", "integer or string"), 1),
    "boolean": True,
    "quantity": "1",
    "time": "2026-01-01T00:00:00Z",
    "byte": "YQ==",
}
AROUND = [
    node("n", {ZONE: "a"}, cpu="64", memory="256Gi"),
    deployment("other", 1, template({"app": "other"})),
]


def fields(kinds: Mapping[str, str], *, once: bool) -> Iterator[Case]:
    """Yield a case for each field that can grow, each type once or again in each kind; with few words or all."""
    seen: set[str] = set()
    for kind, type_ in kinds.items():
        version, _, name = kind.rpartition(" ")
        if type_ not in field_catalog.schema()["types"]:
            continue
        for steps, text in _places(type_, seen if once else set()):
            yield from _cases(version, name, steps, text, _WORDS[1:4:2])


def _places(type_: str, seen: set[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields below a type with their types; each type is visited once."""
    pending: list[tuple[tuple[str, ...], str]] = [((), type_)]
    while pending:
        steps, name = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        for key, text in field_catalog.schema()["types"][name].items():
            below = (*steps, key)
            if below[0] in ("apiVersion", "kind"):
                continue
            yield below, text
            inner = text.strip("[]{}")
            if inner in field_catalog.schema()["types"]:
                pending.append(
                    ((*below, "[]" if text[0] == "[" else "{}"), inner)
                    if text[0] in "[{"
                    else (below, inner)
                )


def _cases(
    version: str, kind: str, steps: tuple[str, ...], text: str, words: tuple[str, ...]
) -> Iterator[Case]:
    name = f"{version} {kind} {'.'.join(steps).replace('.[]', '[]')}"

    def case(variant: str, value: Callable[[int], Any], sizes: tuple[int, ...]) -> Case:
        return Case(
            name + variant, lambda size: [*AROUND, _with(version, kind, steps, value(size))], sizes
        )

    inner = text.strip("[]{}")
    if text[0] == "[":
        yield case(
            "", lambda size: [_item(inner, steps[-1], index) for index in range(size)], LENGTHS
        )
    elif text[0] == "{":
        yield case(
            "",
            lambda size: {f"k{index}.example/a": _value(inner, steps[-1]) for index in range(size)},
            LENGTHS,
        )
    elif inner.partition(":")[0] in (
        "string",
        "any",
        "quantity",
        "time",
        "byte",
        "integer or string",
    ):
        for word in (*_TEXTS.get(steps[-1], ()), *words):
            for at in range(len(word)) if word in _TEXTS.get(steps[-1], ()) else (0,):
                yield case(
                    f" {word} at {at}",
                    lambda size, word=word, at=at: (
                        word[:at] + word[at] * size + word[at + 1 :] + "!"
                    ),
                    CHARACTERS,
                )
    if inner in ("int32", "integer", "integer or string"):
        yield case("", lambda size: size, NUMBERS)


def _item(type_: str, key: str, index: int) -> Any:
    value = _value(type_, key)
    if isinstance(value, dict):
        for identity in value.keys() & set(_IDENTITY):
            value[identity] = index if isinstance(value[identity], int) else f"a{index}"
        return value
    return index if isinstance(value, int) else f"a{index}"


def _value(type_: str, key: str, depth: int = 0) -> Any:
    """Return a value of a type: of a mapping, its plain fields and those of its only child."""
    shapes = field_catalog.schema()["types"].get(type_)
    if shapes is None:
        name, _, values = type_.partition(": ")
        return values.split()[0] if values else _SCALARS.get(name, "a")
    made: Manifest = {}
    for name, text in shapes.items():
        if text[0] not in "[{" and text not in field_catalog.schema()["types"]:
            made[name] = _value(text, name)
    return made


def _with(version: str, kind: str, steps: tuple[str, ...], value: Any) -> Manifest:
    """Return an object of a kind with a value in a place."""
    document: Manifest = base(version, kind)
    holder: Any = document
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        if following is None:
            holder[step] = value
        elif step in ("[]", "{}"):
            continue
        elif following == "[]":
            holder[step] = [dict((holder.get(step) or [{}])[0])]
            holder = holder[step][0]
        elif following == "{}":
            holder[step] = {"a": dict((holder.get(step) or {"a": {}}).get("a", {}))}
            holder = holder[step]["a"]
        else:
            holder[step] = dict(holder.get(step) or {})
            holder = holder[step]
    return document


POD = template(containers=[container(cpu=1)])
_JOB = job("w", 1, POD)["spec"]
_SPECS: Mapping[str, Callable[[], Manifest]] = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), lambda: deployment("w", 1, template())["spec"]),
    "ReplicationController": lambda: {"replicas": 1, "template": template()},
    "Pod": lambda: template()["spec"],
    "Job": lambda: job("w", 1, template())["spec"],
    "CronJob": lambda: {"schedule": "@daily", "jobTemplate": {"spec": job("w", 1, template())["spec"]}},
    "JobSet": lambda: {"replicatedJobs": [{"name": "w", "template": {"spec": job("w", 1, template())["spec"]}}]},
    "LeaderWorkerSet": lambda: {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
    "RayCluster": lambda: {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template()}]},
    "PersistentVolumeClaim": lambda: claim()["spec"],
}  # fmt: skip


def base(version: str, kind: str) -> Manifest:
    """Return an object of a kind to which a field is added."""
    made = namespaced(version, kind, "w")
    if kind in _SPECS:
        made["spec"] = _SPECS[kind]()
        if kind in ("DaemonSet",):
            del made["spec"]["replicas"]
    return made


# --- Objects that are about each other


def _labels(index: int, **more: str) -> Manifest:
    return {"app": f"w{index}", "all": "same", "next": f"x{index}", **more}


def _nodes(count: int, **allocatable: Any) -> Documents:
    """Return nodes of three zones that differ by a label."""
    offered = {"cpu": "9999", "memory": "99Ti", "pods": "9999"} | allocatable
    return [
        node(f"n{index}", {ZONE: "abc"[index % 3], "own": f"n{index}"}, **offered)
        for index in range(count)
    ]


def _deployments(count: int, replicas: int = 1, **spec: Any) -> Documents:
    """Return Deployments; the keywords are functions from a number to a field of the pods' spec."""
    made: Documents = []
    for index in range(count):
        own = {key: value(index) if callable(value) else value for key, value in spec.items()}
        own.setdefault("containers", [container(cpu=1)])
        made.append(deployment(f"w{index}", replicas, template(_labels(index), **own)))
    return made


def _each(count: int, make: Callable[[int], Manifest | Documents]) -> Documents:
    made: Documents = []
    for index in range(count):
        one = make(index)
        made += one if isinstance(one, list) else [one]
    return made


def _selecting(kind: str, key: str, selector: Manifest) -> Manifest:
    term = {"topologyKey": key, "labelSelector": selector}
    if kind == "spread":
        return {"topologySpreadConstraints": [{**spread(key), **term}]}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _rules(kind: str, key: str, whom: str) -> Callable[[int], Documents]:
    """Return Deployments with a rule about pods: their own, the next ones or all."""

    def grown(size: int) -> Documents:
        made = _nodes(20)
        for index in range(size):
            selector: Manifest = {
                "own": {"matchLabels": {"app": f"w{index}"}},
                "next": {"matchLabels": {"app": f"w{(index + 1) % size}"}},
                "all": {"matchLabels": {"all": "same"}},
                "in": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": [f"w{index}"]}]
                },
                "not": {
                    "matchExpressions": [
                        {"key": "app", "operator": "NotIn", "values": [f"w{index}"]}
                    ]
                },
                "none": {"matchLabels": {"app": "of-nobody"}},
            }[whom]
            made.append(
                deployment(
                    f"w{index}", 2, template(_labels(index), **_selecting(kind, key, selector))
                )
            )
        return made

    return grown


WAITS = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
_CLASS = cluster_wide("storage.k8s.io/v1", "StorageClass", "c", **WAITS)


def _volume(index: int, **spec: Any) -> Manifest:
    own = {
        "capacity": {"storage": f"{index + 1}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
    }
    return cluster_wide(
        "v1", "PersistentVolume", f"v{index}", spec={**own, "hostPath": {"path": "/x"}, **spec}
    )


def _mounting(*names: str) -> list[Manifest]:
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}
        for number, name in enumerate(names)
    ]


def _own_disk(index: int) -> Documents:
    pods = template(_labels(index), volumes=_mounting(f"c{index}"))
    return [_volume(index), claim(f"c{index}", storageClassName="c"), pod(f"p{index}", pods)]


def _kept_disk(index: int) -> Documents:
    kept = _volume(index, claimRef={"namespace": "team", "name": f"c{index}"})
    return [kept, *_own_disk(index)[1:]]


def _local_disk(index: int) -> Documents:
    on_node = {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [f"n{index}"]}]}
            ]
        }
    }
    return [_volume(index, nodeAffinity=on_node), *_own_disk(index)[1:], *_nodes(index + 1)[-1:]]


def _templated(index: int) -> Manifest:
    return stateful_set(
        f"w{index}", 3, template(_labels(index)), volumeClaimTemplates=[claim(storageClassName="c")]
    )


def _with_labels(document: Manifest, **labels: str) -> Manifest:
    return {**document, "metadata": {**document["metadata"], "labels": labels}}


def _priority(index: int) -> Manifest:
    return cluster_wide("scheduling.k8s.io/v1", "PriorityClass", f"p{index}", value=index)


def _service(index: int) -> Manifest:
    return namespaced(
        "v1",
        "Service",
        f"s{index}",
        spec={
            "selector": {"app": f"w{index}"},
            "ports": [{"port": 80, "nodePort": 30000 + index % 2767}],
        },
    )


def _policy(index: int, peer: Manifest | None = None) -> Manifest:
    spec = {
        "podSelector": {"matchLabels": {"app": f"w{index}"}},
        "policyTypes": ["Ingress", "Egress"],
    }
    peers = [{"podSelector": peer or {"matchLabels": {"app": f"w{index + 1}"}}}]
    ways = {"ingress": [{"from": peers}], "egress": [{"to": peers}]}
    return namespaced("networking.k8s.io/v1", "NetworkPolicy", f"np{index}", spec=spec | ways)


def _budget(index: int) -> Manifest:
    return namespaced(
        "policy/v1",
        "PodDisruptionBudget",
        f"b{index}",
        spec={"maxUnavailable": 0, "selector": {"matchLabels": {"app": f"w{index}"}}},
    )


def _scaler(index: int) -> Manifest:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"w{index}"}
    metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    return namespaced(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        f"h{index}",
        spec={"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]},
    )


def _named_webhook(index: int) -> Manifest:
    hook = webhook("deployments", "apps", objectSelector={"matchLabels": {"app": f"w{index}"}})
    return {**hook, "metadata": {"name": f"hook{index}"}}


def _backed_webhook(index: int) -> Manifest:
    hook = webhook("pods", namespaceSelector={"matchLabels": {"app": f"w{index}"}})
    client = {"service": {"name": f"s{index}", "namespace": "team"}}
    hooks = [{**hook["webhooks"][0], "clientConfig": client, "failurePolicy": "Fail"}]
    return {**hook, "metadata": {"name": f"hook{index}"}, "webhooks": hooks}


def _validating_policy(index: int) -> Documents:
    version, rule = (
        "admissionregistration.k8s.io/v1",
        {
            "apiGroups": ["apps"],
            "apiVersions": ["*"],
            "operations": ["CREATE"],
            "resources": ["deployments"],
        },
    )
    matching = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.spec.replicas < {index + 5}"}],
    }
    binding = {"policyName": f"vp{index}", "validationActions": ["Deny"]}
    return [
        cluster_wide(version, "ValidatingAdmissionPolicy", f"vp{index}", spec=matching),
        cluster_wide(version, "ValidatingAdmissionPolicyBinding", f"vp{index}", spec=binding),
    ]


def _definition(index: int) -> Manifest:
    names = {"kind": f"Kind{index}", "plural": f"kind{index}s"}
    spec = {
        "group": f"g{index}.example",
        "names": names,
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True}],
    }
    return cluster_wide(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"kind{index}s.g{index}.example",
        spec=spec,
    )


def _namespace(index: int, **labels: str) -> Manifest:
    return {
        **cluster_wide("v1", "Namespace", f"ns{index}"),
        "metadata": {"name": f"ns{index}", "labels": {"own": f"ns{index}", **labels}},
    }


def _in_namespace(index: int, document: Manifest) -> Manifest:
    return {**document, "metadata": {**document["metadata"], "namespace": f"ns{index}"}}


def _queue(index: int, **spec: Any) -> Documents:
    queue = cluster_queue(f"q{index}")
    queue["spec"] = {**queue["spec"], **spec}
    local = namespaced(
        "kueue.x-k8s.io/v1beta2", "LocalQueue", f"l{index}", spec={"clusterQueue": f"q{index}"}
    )
    return [queue, local]


def _waiting_job(index: int, queue: str) -> Manifest:
    return waiting(
        job(f"j{index}", 2, template(_labels(index), [container(gpu=1)]), gang=True), queue
    )


def _flavored(size: int) -> Documents:
    offered = [
        {"name": f"f{index}", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}
        for index in range(size)
    ]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": offered}
    flavors = _each(size, lambda index: flavor(f"f{index}"))
    return [
        *flavors,
        *_queue(0, resourceGroups=[group]),
        *_each(3, lambda index: _waiting_job(index, "l0")),
    ]


def _job_set(index: int, jobs: int = 1, **annotations: str) -> Manifest:
    spec = job("w", 2, template(_labels(index)))["spec"] | {"completions": 2}
    replicated = [
        {"name": f"r{number}", "replicas": 2, "template": {"spec": spec}} for number in range(jobs)
    ]
    made = namespaced(
        "jobset.x-k8s.io/v1alpha2", "JobSet", f"js{index}", spec={"replicatedJobs": replicated}
    )
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


def _leader_worker_set(index: int) -> Manifest:
    return namespaced(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        f"lws{index}",
        spec={
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 3, "workerTemplate": template(_labels(index))},
        },
    )


def _ray_cluster(index: int) -> Manifest:
    group = {
        "groupName": "g",
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
        "rayStartParams": {},
        "template": template(_labels(index)),
    }
    head = {"rayStartParams": {}, "template": template(_labels(index))}
    return namespaced(
        "ray.io/v1",
        "RayCluster",
        f"ray{index}",
        spec={"headGroupSpec": head, "workerGroupSpecs": [group]},
    )


def _running(index: int, **spec: Any) -> Manifest:
    made = pod(f"r{index}", template(_labels(index), nodeName=f"n{index % 40}", **spec))
    made["metadata"] |= {"uid": f"u{index}", "resourceVersion": "1"}
    return {**made, "status": {"phase": "Running"}}


def _device_claim(index: int) -> Documents:
    request = {
        "name": "r",
        "exactly": {
            "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount",
            "count": 1,
        },
    }
    made = namespaced(
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        f"t{index}",
        spec={"spec": {"devices": {"requests": [request]}}},
    )
    pods = template(
        _labels(index), resourceClaims=[{"name": "g", "resourceClaimTemplateName": f"t{index}"}]
    )
    return [made, deployment(f"w{index}", 1, pods)]


def _route(index: int) -> Documents:
    pool_ref = {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": f"ip{index}",
    }
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": f"/{index}"}}],
            "backendRefs": [pool_ref],
        }
    ]
    selector = {"matchLabels": {"app": f"w{index}"}}
    return [
        namespaced(
            "gateway.networking.k8s.io/v1",
            "Gateway",
            f"g{index}",
            spec={
                "gatewayClassName": "gke-l7-rilb",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        ),
        namespaced(
            "gateway.networking.k8s.io/v1",
            "HTTPRoute",
            f"hr{index}",
            spec={"parentRefs": [{"name": f"g{index}"}], "rules": rules},
        ),
        namespaced(
            "inference.networking.k8s.io/v1",
            "InferencePool",
            f"ip{index}",
            spec={
                "selector": selector,
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": f"s{index}", "port": {"number": 9002}},
            },
        ),
        namespaced(
            "networking.gke.io/v1", "HealthCheckPolicy", f"hc{index}", spec={"targetRef": pool_ref}
        ),
        _service(index),
    ]


def _naming(index: int, *names: str) -> Manifest:
    """Return a Deployment that names Secrets, ConfigMaps and a ServiceAccount."""
    env = [
        {"name": f"E{number}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
        for number, name in enumerate(names)
    ]
    from_map = [{"configMapRef": {"name": name}} for name in names]
    pods = template(
        _labels(index),
        [container(cpu=1) | {"env": env, "envFrom": from_map}],
        serviceAccountName=names[0],
    )
    return deployment(f"w{index}", 1, pods)


def _named(index: int) -> Documents:
    return [
        namespaced("v1", kind, f"o{index}") for kind in ("Secret", "ConfigMap", "ServiceAccount")
    ]


SIZES = (64, 256)
"""The numbers of objects."""
TEAM = cluster_wide("v1", "Namespace", "team")
_SELECTORS = ("own", "next", "all", "in", "not", "none")
RELATIONS: dict[str, Callable[[int], Documents]] = {
    **{
        f"{kind} by {key} to {whom}": _rules(kind, key, whom)
        for kind in ("podAffinity", "podAntiAffinity", "spread")
        for key in (HOSTNAME, ZONE)
        for whom in _SELECTORS
    },
    # Comparing names is so fast that its square shows only next to thousands of them.
    "containers of one Pod": lambda size: [*_nodes(1), pod("p", template(containers=[{"name": f"c{index}", "image": "i"} for index in range(size * 128)]))],
    "Deployments": lambda size: [*_nodes(20), *_deployments(size)],
    "Deployments that are too many": lambda size: [*_nodes(2, cpu="4"), *_deployments(size)],
    "Deployments and as many nodes": lambda size: [*_nodes(size), *_deployments(size)],
    "Deployments on their own nodes": lambda size: [*_nodes(size), *_deployments(size, nodeSelector=lambda index: {"own": f"n{index}"})],
    "Deployments on two nodes each": lambda size: [
        *_nodes(size),
        *_deployments(size, affinity=lambda index: node_affinity({"key": "own", "operator": "In", "values": [f"n{index}", f"n{(index + 1) % size}"]})),
    ],
    "Deployments off a node each": lambda size: [
        *_nodes(size),
        *_deployments(size, affinity=lambda index: node_affinity({"key": "own", "operator": "NotIn", "values": [f"n{index}"]})),
    ],
    "Deployments that fit nowhere": lambda size: [*_nodes(size), *_deployments(size, nodeSelector={"own": "x"})],
    "tainted nodes": lambda size: [
        *_each(size, lambda index: node(f"n{index}", {"own": f"n{index}"}, [{"key": f"t{index}", "effect": "NoSchedule"}])),
        *_deployments(size, tolerations=lambda index: [{"key": f"t{index}", "operator": "Exists"}]),
    ],
    "Deployments with a host port": lambda size: [
        *_nodes(size),
        *_deployments(size, containers=lambda index: [container(cpu=1) | {"ports": [{"containerPort": 80, "hostPort": 80}]}]),
    ],
    "Deployments with their own host port": lambda size: [
        *_nodes(20),
        *_deployments(size, containers=lambda index: [container(cpu=1) | {"ports": [{"containerPort": 80, "hostPort": 1000 + index}]}]),
    ],
    "Deployments in all namespaces near each other": lambda size: [
        *_nodes(20),
        *_each(size, _namespace),
        *_each(size, lambda index: _in_namespace(index, deployment(f"w{index}", 1, template(_labels(index), affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "namespaceSelector": {"matchLabels": {"own": f"ns{index}"}}, "labelSelector": {}}]}})))),
    ],
    "DaemonSets": lambda size: [*_nodes(20), *_each(size, lambda index: daemon_set(f"d{index}", template(_labels(index), [container(cpu=0)])))],
    "DaemonSets and Deployments": lambda size: [*_nodes(20), *_deployments(size), *_each(size, lambda index: daemon_set(f"d{index}", template(_labels(index), [container(cpu=0)])))],
    "DaemonSets and as many nodes": lambda size: [*_nodes(size), *_each(size, lambda index: daemon_set(f"d{index}", template(_labels(index), [container(cpu=0)])))],
    "DaemonSets on their own nodes": lambda size: [
        *_nodes(size),
        *_each(size, lambda index: daemon_set(f"d{index}", template(_labels(index), nodeSelector={"own": f"n{index}"}))),
    ],
    "priorities": lambda size: [*_nodes(20), *_each(size, _priority), *_deployments(size, priorityClassName=lambda index: f"p{index}")],
    "priorities that evict": lambda size: [*_nodes(2, cpu="4"), *_each(size, _priority), *_deployments(size, priorityClassName=lambda index: f"p{index}")],
    "running pods": lambda size: [*_nodes(40), *_each(size, _running), *_deployments(5)],
    "running pods and pods apart": lambda size: [
        *_nodes(40),
        *_each(size, lambda index: _running(index, affinity=anti_affinity(app="x"))),
        *_deployments(5, affinity=anti_affinity(app="w1")),
    ],
    "running pods on as many nodes": lambda size: [
        *_nodes(size),
        *_each(size, lambda index: {**_running(index), "spec": {**_running(index)["spec"], "nodeName": f"n{index}"}}),
        *_deployments(5, affinity=anti_affinity(app="w1")),
    ],
    "Jobs": lambda size: [*_nodes(2, cpu="4"), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index))))],
    "gangs": lambda size: [*_nodes(4, cpu="4"), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index)), gang=True))],
    "gangs and Deployments": lambda size: [*_nodes(20), *_deployments(size), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index)), gang=True))],
    "Jobs with a deadline": lambda size: [*_nodes(2, cpu="4"), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index)), activeDeadlineSeconds=60))],
    "gangs that fit": lambda size: [*_nodes(20), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index)), gang=True))],
    "JobSets": lambda size: [*_nodes(20), *_each(size, _job_set)],
    "jobs of a JobSet": lambda size: [*_nodes(20), _job_set(0, size)],
    "exclusive JobSets": lambda size: [*_nodes(20), *_each(size, lambda index: _job_set(index, **{"alpha.jobset.sigs.k8s.io/exclusive-topology": ZONE}))],
    "LeaderWorkerSets": lambda size: [*_nodes(20), *_each(size, _leader_worker_set)],
    "RayClusters": lambda size: [*_nodes(20), *_each(size, _ray_cluster)],
    "Pods with volumes": lambda size: [*_nodes(20), _CLASS, *_each(size, _own_disk)],
    "Pods with volumes kept for them": lambda size: [*_nodes(20), _CLASS, *_each(size, _kept_disk)],
    "Pods with volumes of their nodes": lambda size: [_CLASS, *_each(size, _local_disk)],
    "claims of one Pod": lambda size: [
        *_nodes(20), _CLASS, *_each(size, lambda index: _own_disk(index)[:2]),
        pod("p", template(volumes=_mounting(*(f"c{index}" for index in range(size))))),
    ],
    "claims without a volume": lambda size: [*_nodes(20), _CLASS, *_each(size, lambda index: _own_disk(index)[1:])],
    "claims of a class that makes volumes": lambda size: [
        *_nodes(20), {**_CLASS, "provisioner": "pd.csi.storage.gke.io"}, *_each(size, lambda index: _own_disk(index)[1:]),
    ],
    "claims that select volumes": lambda size: [
        *_nodes(20), _CLASS,
        *_each(size, lambda index: [_with_labels(_volume(index), own=f"v{index}"), claim(f"c{index}", storageClassName="c", selector={"matchLabels": {"own": f"v{index}"}}), _own_disk(index)[2]]),
    ],
    "classes": lambda size: [
        *_nodes(20), *_each(size, lambda index: cluster_wide("storage.k8s.io/v1", "StorageClass", f"c{index}", **WAITS)),
        *_each(size, lambda index: [_volume(index, storageClassName=f"c{index}"), claim(f"c{index}", storageClassName=f"c{index}"), _own_disk(index)[2]]),
    ],
    "Pods of one claim": lambda size: [*_nodes(20), _CLASS, *_own_disk(0)[:2], *_each(size, lambda index: pod(f"p{index}", template(volumes=_mounting("c0"))))],
    "exclusive claims": lambda size: [
        *_nodes(20), _CLASS,
        *_each(size, lambda index: [_volume(index, accessModes=["ReadWriteOncePod"]), claim(f"c{index}", "ReadWriteOncePod", storageClassName="c"), _own_disk(index)[2]]),
    ],
    "StatefulSets with claims": lambda size: [*_nodes(20), _CLASS, *_each(3 * size, _volume), *_each(size, _templated)],
    "StatefulSets with their claims": lambda size: [
        *_nodes(20), _CLASS, *_each(size, _templated),
        *_each(size, lambda index: [_volume(index, claimRef={"namespace": "team", "name": f"data-w{index}-0"}), claim(f"data-w{index}-0", storageClassName="c", volumeName=f"v{index}")]),
    ],
    "inline disks": lambda size: [*_nodes(20), *_deployments(size, volumes=lambda index: [{"name": "d", "gcePersistentDisk": {"pdName": f"d{index}"}}])],
    "one inline disk": lambda size: [*_nodes(20), *_deployments(size, volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "d"}}])],
    "quotas": lambda size: [*_nodes(20), *_each(size, lambda index: quota(f"q{index}", {"pods": "9999", "requests.cpu": "9999"})), *_deployments(size)],
    "quotas that are exceeded": lambda size: [*_nodes(20), *_each(size, lambda index: quota(f"q{index}", {"pods": "1", "requests.cpu": "1"})), *_deployments(size)],
    "quotas and Jobs": lambda size: [*_nodes(20), quota(hard={"pods": "3"}), *_each(size, lambda index: job(f"j{index}", 2, template(_labels(index)), activeDeadlineSeconds=60))],
    "quotas of all namespaces": lambda size: [
        *_nodes(20),
        *_each(size, lambda index: [_namespace(index), _in_namespace(index, quota(hard={"pods": "9"})), *(_in_namespace(index, each) for each in _deployments(index + 1)[-1:])]),
    ],
    "LimitRanges": lambda size: [
        *_nodes(20), *_each(size, lambda index: {**limit_range({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}), "metadata": {"name": f"l{index}", "namespace": "team"}}), *_deployments(size),
    ],
    "Services": lambda size: [*_nodes(20), *_each(size, _service), *_deployments(size)],
    "NetworkPolicies": lambda size: [TEAM, *_nodes(20), *_each(size, _policy), *_deployments(size)],
    "NetworkPolicies and Services": lambda size: [
        TEAM, *_nodes(20), *_each(size, _policy), *_each(size, _service),
        *_deployments(size, containers=lambda index: [container(cpu=1) | {"env": [{"name": "URL", "value": f"http://s{(index + 1) % size}.team:80"}]}]),
    ],
    "budgets": lambda size: [*_nodes(20), *_each(size, _budget), *_deployments(size)],
    "autoscalers": lambda size: [*_nodes(20), *_each(size, _scaler), *_deployments(size)],
    "webhooks": lambda size: [*_nodes(20), *_each(size, _named_webhook), *_deployments(size)],
    "webhooks with Services": lambda size: [*_nodes(20), *_each(size, _backed_webhook), *_each(size, _service), *_deployments(size)],
    "policies": lambda size: [*_nodes(20), *_each(size, _validating_policy), *_deployments(size)],
    "policies and other objects": lambda size: [*_nodes(20), *_each(size, _validating_policy), *_each(size, _service)],
    "definitions": lambda size: [*_nodes(20), *_each(size, _definition), *_each(size, lambda index: namespaced(f"g{index}.example/v1", f"Kind{index}", "k"))],
    "unknown kinds": lambda size: [*_nodes(20), *_each(size, lambda index: namespaced("x.example/v1", f"Kind{index}", "k"))],
    "unknown kinds with pods": lambda size: [*_nodes(20), *_each(size, lambda index: namespaced("x.example/v1", "Set", f"k{index}", spec={"template": template(_labels(index))}))],
    "malformed objects": lambda size: [*_nodes(20), *_each(size, lambda index: deployment(f"w{index}", "x", template()))],
    "refused objects": lambda size: [*_nodes(20), *_each(size, lambda index: deployment(f"w{index}", 1, template(containers=[container(cpu=-1)])))],
    "names that nothing has": lambda size: [TEAM, *_nodes(20), *_each(size, lambda index: _in_namespace(index, deployment(f"w{index}", 1, template(_labels(index)))))],
    "namespaces that nothing has": lambda size: [*_each(size, _namespace), *_nodes(20), *_each(size, lambda index: _in_namespace(index + size, deployment(f"w{index}", 1, template(_labels(index)))))],
    "objects that are named": lambda size: [TEAM, *_nodes(20), *_each(size, _named), *_each(size, lambda index: _naming(index, f"o{index}"))],
    "objects that one names": lambda size: [TEAM, *_nodes(20), *_each(size, _named), _naming(0, *(f"o{index}" for index in range(size)))],
    "objects of one name": lambda size: [*_nodes(20), *_each(size, lambda index: deployment("w", 1, template(_labels(index))))],
    "queues": lambda size: [*flavor("h100"), *_each(size, _queue), *_each(size, lambda index: _waiting_job(index, f"l{index}"))],
    "Jobs of one queue": lambda size: [*flavor("h100"), *_queue(0), *_each(size, lambda index: _waiting_job(index, "l0"))],
    "Deployments of one queue": lambda size: [*flavor("h100"), *_queue(0), *_each(size, lambda index: waiting(deployment(f"w{index}", 1, template(_labels(index), [container(gpu=1)])), "l0"))],
    "cohorts": lambda size: [
        *flavor("h100"), *_each(size, lambda index: cohort(f"co{index}", 8, f"co{index - 1}" if index % 32 else None, lendingLimit=4)),
        *_each(size, lambda index: _queue(index, cohortName=f"co{index}")), *_each(size, lambda index: _waiting_job(index, f"l{index}")),
    ],
    "flavors of one queue": _flavored,
    "device claims": lambda size: [*_nodes(20), *_each(size, _device_claim)],
    "routes": lambda size: [TEAM, *_nodes(20), *_each(size, _route), *_deployments(size)],
}  # fmt: skip


def relations() -> Iterator[Case]:
    """Yield the cases of objects that are about each other."""
    for name, grown in RELATIONS.items():
        yield Case(name, grown, SIZES)
