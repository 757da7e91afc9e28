"""Cases at the edges of single rules, of each what the control plane does: they are tried with the regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.differential.case import GANG, MAX_NODES, PLACEHOLDER, Case, Document, isolated

NAMESPACE = f"{PLACEHOLDER}-team"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
LOCAL = f"{PLACEHOLDER}-local"
AT_ONCE = f"{PLACEHOLDER}-at-once"
MADE = f"{PLACEHOLDER}-made"
OTHER = f"{PLACEHOLDER}-other"
FIRST, SECOND = f"{PLACEHOLDER}-n0", f"{PLACEHOLDER}-n1"


# --- Documents


def node(index: int = 0, host: str = "", cpu: str = "4", zone: str = "", most: int = 0) -> Document:
    labels = {key: f"{PLACEHOLDER}-{value}" for key, value in ((HOST, host), (ZONE, zone)) if value}
    metadata: Document = {"name": f"{PLACEHOLDER}-n{index}", "labels": labels}
    if most:
        metadata["annotations"] = {MAX_NODES: str(most)}
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {},
        "status": {"allocatable": allocatable},
    }


def named(version: str, kind: str, name: str, **fields: Any) -> Document:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        **fields,
    }


def pod_template(name: str, cpu: str = "1", **spec: Any) -> Document:
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def pod(name: str, **spec: Any) -> Document:
    made = pod_template(name, **spec)
    document = named("v1", "Pod", name, spec=made["spec"])
    document["metadata"] |= made["metadata"]
    return document


def _apps(kind: str, name: str, fields: Document, spec: Document) -> Document:
    selector = {"matchLabels": {"app": name}}
    return named(
        "apps/v1",
        kind,
        name,
        spec={"selector": selector, "template": pod_template(name, **spec), **fields},
    )


def deployment(name: str, replicas: int, **spec: Any) -> Document:
    return _apps("Deployment", name, {"replicas": replicas}, spec)


def daemon_set(name: str, **spec: Any) -> Document:
    return _apps("DaemonSet", name, {}, spec)


def stateful_set(
    name: str, replicas: int, claims: Sequence[Document] = (), **spec: Any
) -> Document:
    templates = [
        {"metadata": {"name": f"data-{index}"}, "spec": claim} for index, claim in enumerate(claims)
    ]
    fields = {"replicas": replicas, "serviceName": name, "volumeClaimTemplates": templates}
    return _apps("StatefulSet", name, fields | {"podManagementPolicy": "Parallel"}, spec)


def job(name: str, parallelism: int, *, gang: bool = False, **spec: Any) -> Document:
    template = pod_template(name, restartPolicy="Never", **spec)
    fields = {"parallelism": parallelism, "completions": parallelism, "template": template}
    document = named("batch/v1", "Job", name, spec=fields)
    return (
        document
        if not gang
        else document | {"metadata": document["metadata"] | {"annotations": {GANG: "true"}}}
    )


def quota(**hard: int | str) -> Document:
    keys = {"revisions": "count/controllerrevisions.apps", "replicasets": "count/replicasets.apps"}
    keys |= {
        "claims": "persistentvolumeclaims",
        "storage": "requests.storage",
        "memory": "requests.memory",
    }
    return named(
        "v1",
        "ResourceQuota",
        "team",
        spec={"hard": {keys.get(k, k): str(v) for k, v in hard.items()}},
    )


def storage_class(name: str, provisioner: str = "kubernetes.io/no-provisioner") -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "Immediate" if name == AT_ONCE else "WaitForFirstConsumer",
    }


def volume(
    name: str = "a",
    size: int = 10,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    given: Document = {"storageClassName": LOCAL, "accessModes": ["ReadWriteOnce"], **spec}
    given |= {"capacity": {"storage": f"{size}Gi"}, "nfs": {"server": "nfs.invalid", "path": "/a"}}
    if on:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
        given["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = {"name": f"{PLACEHOLDER}-{name}", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": given}


def asking(size: int = 5, **spec: Any) -> Document:
    """The spec of a claim."""
    resources = {"requests": {"storage": f"{size}Gi"}}
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": LOCAL,
        "resources": resources,
        **spec,
    }


def claim(name: str = "a", size: int = 5, **spec: Any) -> Document:
    return named("v1", "PersistentVolumeClaim", name, spec=asking(size, **spec))


def mounting(*claims: str) -> list[Document]:
    return [{"name": f"of-{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims]


def scratch(**spec: Any) -> list[Document]:
    return [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asking(**spec)}}}]


def disk(**source: Any) -> list[Document]:
    return [{"name": "disk", **source}]


def image(*monitors: str) -> list[Document]:
    return disk(rbd={"monitors": list(monitors), "image": "i"})


def iscsi(portal: str, lun: int) -> list[Document]:
    return disk(iscsi={"targetPortal": portal, "iqn": "iqn.2001-04.com.example:a", "lun": lun})


def _term(app: str, **fields: Any) -> list[Document]:
    return [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}, **fields}]


def near(app: str) -> Document:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _term(app)}}


def apart(app: str) -> Document:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _term(app)}}


def spread(app: str) -> list[Document]:
    return _term(app, maxSkew=1, whenUnsatisfiable="DoNotSchedule")


# --- Cases

NODE, NODES = node(), [node(0), node(1)]
SHARED = [node(0, "h"), node(1, "h")]
WAITS, BINDS, MAKES = (
    storage_class(LOCAL),
    storage_class(AT_ONCE),
    storage_class(MADE, "example.com/disk"),
)
NOWHERE = {"disk": "none"}
MADE_DISK = scratch(storageClassName=MADE)
WRITTEN = disk(gcePersistentDisk={"pdName": "a"})
READ = disk(gcePersistentDisk={"pdName": "a", "readOnly": True})
READ_EBS = disk(awsElasticBlockStore={"volumeID": "a", "readOnly": True})
ON_FIRST = [volume("a", on=FIRST), volume("b", on=FIRST)]
ONE_EACH = [volume("a", on=FIRST), volume("b", on=SECOND)]
CLAIMS = [claim("a"), claim("b")]
USER = pod("one", volumes=mounting("a"))
AT_MOST_4 = {"type": "PersistentVolumeClaim", "max": {"storage": "4Gi"}}
NOTHING = dict.fromkeys(("count/endpoints", "count/events", "count/leases.coordination.k8s.io"), 0)
BLOCK_DEVICE = {"name": "main", "image": "a"}
BLOCK_DEVICE |= {"volumeDevices": [{"name": "of-a", "devicePath": "/a"}]}


def case(*documents: Document) -> list[Document]:
    """Return the documents of a case."""
    return [*documents]


RULES: Mapping[str, Mapping[str, Sequence[Document]]] = {
    "object-quota": {
        "A DaemonSet's controller makes a ControllerRevision before the pods": case(
            NODE, quota(revisions=0), daemon_set("one")
        ),
        "so does a StatefulSet's": case(NODE, quota(revisions=0), stateful_set("one", 1)),
        "and two make two": case(
            *NODES, quota(revisions=1), stateful_set("one", 1), daemon_set("two-one")
        ),
        "without pods nothing is made for them": case(
            NODE, quota(revisions=0, replicasets=0), deployment("one", 0)
        ),
        "no pod waits for endpoints, events and leases": case(
            NODE, quota(**NOTHING), deployment("one", 1)
        ),
        "claims of ephemeral volumes count": case(
            NODE, MAKES, quota(claims=1), deployment("one", 2, volumes=MADE_DISK)
        ),
        "their storage too": case(
            NODE, MAKES, quota(storage="9Gi"), deployment("one", 2, volumes=MADE_DISK)
        ),
        "and both suffice": case(
            NODE, MAKES, quota(claims=2, storage="10Gi"), deployment("one", 2, volumes=MADE_DISK)
        ),
        "of a Job one pod gets its volume": case(
            NODE, MAKES, quota(claims=1), job("one", 3, volumes=MADE_DISK)
        ),
        "claims of a StatefulSet count": case(
            NODE, MAKES, quota(claims=1), stateful_set("one", 2, [asking(storageClassName=MADE)])
        ),
        "a declared claim counts once": case(
            *NODES,
            MAKES,
            quota(claims=1),
            claim(storageClassName=MADE),
            deployment("one", 2, volumes=mounting("a")),
        ),
    },
    "limit-range": {
        "the claim of an ephemeral volume is above the maximum": case(
            NODE,
            MAKES,
            named("v1", "LimitRange", "limits", spec={"limits": [AT_MOST_4]}),
            pod("one", volumes=MADE_DISK),
        )
    },
    "quota": {
        "a DaemonSet that no node is for makes no pod that could be refused": case(
            NODE, quota(pods=0, memory=0), daemon_set("one", nodeSelector=NOWHERE)
        ),
        "nor does a StatefulSet without replicas": case(
            NODE, quota(pods=0, memory=0), stateful_set("one", 0)
        ),
    },
    "pod-anti-affinity": {
        "a node mounts a disk that is written for one pod": case(
            NODE, deployment("one", 2, volumes=WRITTEN)
        ),
        "another node for one more": case(*NODES, deployment("one", 2, volumes=image("a"))),
        "and for any number that only read it": case(NODE, deployment("one", 2, volumes=READ)),
        "not for one that writes it beside": case(
            NODE, deployment("one", 2, volumes=READ), pod("two-one", volumes=WRITTEN)
        ),
        "an EBS volume is not even read twice": case(NODE, deployment("one", 2, volumes=READ_EBS)),
        "iSCSI disks are told apart by their qualified names alone": case(
            NODE,
            pod("one", volumes=iscsi("10.0.0.1", 0)),
            pod("two-one", volumes=iscsi("10.0.0.2", 1)),
        ),
        "images with a common monitor are the same": case(
            NODE, pod("one", volumes=image("a", "b")), pod("two-one", volumes=image("b", "c"))
        ),
        "others are not": case(
            NODE, pod("one", volumes=image("a")), pod("two-one", volumes=image("c"))
        ),
        "a gang of three needs three nodes for its image": case(
            *NODES, job("one", 3, gang=True, volumes=image("a"))
        ),
        "a DaemonSet's disk": case(
            NODE, daemon_set("one", volumes=WRITTEN), pod("two-one", volumes=WRITTEN)
        ),
        "nodes with one host name are one domain": case(
            *SHARED, deployment("one", 2, affinity=apart("one"))
        ),
        "a third node is another": case(
            *SHARED, node(2, "i"), deployment("one", 2, affinity=apart("one"))
        ),
        "a node has the name of another as its host name": case(
            node(0, "n1"), node(1, "n1"), node(2), deployment("one", 3, affinity=apart("one"))
        ),
        "nodes of a pool have names of their own": case(
            *SHARED, node(2, most=2), deployment("one", 3, affinity=apart("one"))
        ),
        "a DaemonSet's pods exclude others, whichever come first": case(
            NODE, daemon_set("one"), deployment("two-one", 1, affinity=apart("one"))
        ),
        "or others exclude them": case(
            NODE, daemon_set("one", affinity=apart("two-one")), deployment("two-one", 1)
        ),
    },
    "pod-affinity": {
        "pods that share a host name are on two nodes": case(
            *SHARED, deployment("one", 8, affinity=near("one"))
        ),
        "pods follow a DaemonSet's": case(
            *NODES,
            daemon_set("one", nodeSelector={HOST: FIRST}),
            deployment("two-one", 3, affinity=near("one")),
        ),
        "as far as there is room": case(
            *NODES,
            daemon_set("one", nodeSelector={HOST: FIRST}),
            deployment("two-one", 4, affinity=near("one")),
        ),
    },
    "topology-spread": {
        "nodes with one host name count as one domain": case(
            *SHARED,
            node(2, "i", cpu="2"),
            deployment("one", 5, topologySpreadConstraints=spread("one")),
        ),
        "which takes no more than one above the other": case(
            *SHARED,
            node(2, "i", cpu="2"),
            deployment("one", 6, topologySpreadConstraints=spread("one")),
        ),
    },
    "daemon-overhead": {
        "a DaemonSet has no room on the small node": case(
            node(0, cpu="2"), node(1), daemon_set("one", cpu="3"), deployment("two-one", 3)
        ),
        "two DaemonSets do not fit together": case(
            NODE, daemon_set("one", cpu="3"), daemon_set("two-one", cpu="2")
        ),
    },
    "volumes": {
        "one volume is not bound to two claims of a pod": case(
            NODE, WAITS, volume(), *CLAIMS, pod("one", volumes=mounting("a", "b"))
        ),
        "nor to those of two pods": case(
            NODE, WAITS, volume(), *CLAIMS, USER, pod("two-one", volumes=mounting("b"))
        ),
        "claims that no pod mounts take none": case(
            NODE, WAITS, volume(), *CLAIMS, claim("c"), USER
        ),
        "small claims take small volumes": case(
            NODE,
            WAITS,
            volume("a", 5),
            volume("b", 10),
            claim("a", 5),
            claim("b", 10),
            USER,
            pod("two-one", volumes=mounting("b")),
        ),
        "the claim selects other labels": case(
            NODE, WAITS, volume(), claim(selector={"matchLabels": {"a": "b"}}), USER
        ),
        "the claim selects the volume's label": case(
            NODE,
            WAITS,
            volume(labels={"a": "b"}),
            claim(selector={"matchLabels": {"a": "b"}}),
            USER,
        ),
        "the claim asks for a block device": case(
            NODE,
            WAITS,
            volume(),
            claim(volumeMode="Block"),
            pod("one", containers=[BLOCK_DEVICE], volumes=mounting("a")),
        ),
        "the volume has the claim's mode among others": case(
            NODE,
            WAITS,
            volume(accessModes=["ReadWriteOnce", "ReadOnlyMany"]),
            claim(accessModes=["ReadOnlyMany"]),
            USER,
        ),
        "one pod at a time may use the claim": case(
            *NODES,
            WAITS,
            volume(accessModes=["ReadWriteOncePod"]),
            claim(accessModes=["ReadWriteOncePod"]),
            USER,
            pod("two-one", volumes=mounting("a")),
        ),
        "a StatefulSet uses up the volumes": case(
            NODE, WAITS, volume(), stateful_set("one", 2, [asking()])
        ),
        "two claims for each of its pods": case(
            NODE, WAITS, *map(volume, "abc"), stateful_set("one", 2, [asking(), asking()])
        ),
        "both volumes are on the node with room for one": case(
            node(0, cpu="1"), node(1), WAITS, *ON_FIRST, stateful_set("one", 2, [asking()])
        ),
        "both volumes are on the node with room for two": case(
            node(0, cpu="2"), node(1), WAITS, *ON_FIRST, stateful_set("one", 2, [asking()])
        ),
        "two volumes are on a node that anti-affinity keeps for one": case(
            *NODES,
            WAITS,
            *ON_FIRST,
            volume("c", on=SECOND),
            stateful_set("one", 3, [asking()], affinity=apart("one")),
        ),
        "two sets share the volumes of two nodes": case(
            *NODES,
            WAITS,
            *ONE_EACH,
            stateful_set("one", 1, [asking()]),
            stateful_set("two-one", 2, [asking()]),
        ),
        "a gang's ephemeral volumes use them up": case(
            *NODES, WAITS, volume(on=FIRST), job("one", 2, gang=True, volumes=scratch())
        ),
        "of a Job one pod gets the volume": case(
            *NODES, WAITS, volume(), job("one", 2, volumes=scratch())
        ),
        "each node has one for the DaemonSet's pod": case(
            *NODES, WAITS, *ONE_EACH, daemon_set("one", volumes=scratch())
        ),
        "one node has both": case(*NODES, WAITS, *ON_FIRST, daemon_set("one", volumes=scratch())),
        "a shared claim's volume is on one node": case(
            *NODES,
            WAITS,
            volume(on=FIRST),
            claim(),
            deployment("one", 2, affinity=apart("one"), volumes=mounting("a")),
        ),
        "when they are used up the class makes more": case(
            *NODES,
            MAKES,
            volume(storageClassName=MADE),
            stateful_set("one", 2, [asking(storageClassName=MADE)]),
        ),
        "bound at once to the smallest, which no node reaches": case(
            *NODES,
            BINDS,
            volume("a", 6, on="nowhere", storageClassName=AT_ONCE),
            volume("b", 9, on=FIRST, storageClassName=AT_ONCE),
            claim(storageClassName=AT_ONCE),
            USER,
        ),
        "bound at once to the smallest, which a node reaches": case(
            *NODES,
            BINDS,
            volume("a", 9, on="nowhere", storageClassName=AT_ONCE),
            volume("b", 6, on=FIRST, storageClassName=AT_ONCE),
            claim(storageClassName=AT_ONCE),
            USER,
        ),
        "two claims are bound at once, to one volume": case(
            *NODES,
            BINDS,
            volume(storageClassName=AT_ONCE),
            *(claim(name, storageClassName=AT_ONCE) for name in "ab"),
            pod("one", volumes=mounting("a", "b")),
        ),
    },
}
"""What the control plane does, and a case of it; the first of a row is told in full."""

NAMING: Mapping[str, tuple[Document, Document]] = {
    "has not its mode": ({"accessModes": ["ReadOnlyMany"]}, {}),
    "is too small": ({}, {"size": 11}),
    "is of another class": ({"storageClassName": OTHER}, {}),
    "is a block device": ({"volumeMode": "Block"}, {}),
    "has not the labels that it selects": ({}, {"selector": {"matchLabels": {"a": "b"}}}),
    "is kept for another": ({"claimRef": {"namespace": NAMESPACE, "name": "b"}}, {}),
    "is as it asks": ({}, {}),
}
"""How a volume and a claim differ, one of which names the other, or both do."""


def _naming(theirs: Document, wanted: Document, by_claim: bool, by_volume: bool) -> list[Document]:
    theirs, wanted = (
        {"storageClassName": AT_ONCE, **theirs},
        {"storageClassName": AT_ONCE, **wanted},
    )
    if by_volume:
        theirs.setdefault("claimRef", {"namespace": NAMESPACE, "name": "a"})
    if by_claim:
        wanted["volumeName"] = f"{PLACEHOLDER}-a"
    return [NODE, BINDS, volume(**theirs), claim(**wanted), USER]


def edges() -> list[Case]:
    """All cases, and what is compared of each."""
    cases = [(rule, documents) for rule, told in RULES.items() for documents in told.values()]
    cases += [
        ("volumes", _naming(*differing, by_claim, by_volume))
        for differing in NAMING.values()
        for by_claim, by_volume in ((True, False), (False, True), (True, True))
    ]
    return [part for rule, documents in cases for part in Case(rule, isolated(documents)).parts()]
