"""The way from a pod to its bucket: whole, and with each link removed, for each kind of workload and form of Workload Identity."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ml_foundations.catalog.injections import SERVICE_AGENT
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.program import Resource, granted_buckets, is_judged, named
from ml_foundations.planning.model.workloads import workload_kinds
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict import program

from tests.factories import claim, container, job, namespaced, resource, template
from tests.planning.test_program import cluster
from tests.planning.test_program import pool as node_pool
from tests.planning.test_train_jobs import runtime, train_job
from tests.rehearsal import secret_pods
from tests.support.cluster_objects import namespace, volume

Manifest = dict[str, Any]
FUSE = "gcsfuse.csi.storage.gke.io"
POOL = "p.svc.id.goog"
PRINCIPALS = f"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/{POOL}"
GOOGLE = "trainer@p.iam.gserviceaccount.com"
ON_GKE = cluster(
    addonsConfig={"gcsFuseCsiDriverConfig": {"enabled": True}},
    workloadIdentityConfig={"workloadPool": POOL},
)
GKE = [ON_GKE, node_pool("n2-standard-32", nodes=4)]
BUCKET = "gcp:storage/bucket:Bucket", {"name": "weights"}
MADE = "gcp:serviceaccount/account:Account", {"accountId": "trainer", "project": "p"}
RULES = ("bucket-access", "workload-identity")


def pod_specs(tree: Any) -> Iterator[Manifest]:
    if isinstance(tree, dict):
        if "containers" in tree:
            yield tree
        for value in tree.values():
            yield from pod_specs(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from pod_specs(item)


def of_kind(kind: str) -> list[Manifest]:
    """A workload of a kind, and what it needs."""
    if kind == "TrainJob":
        return [runtime(), train_job()]
    made = secret_pods.manifest(kind, lambda place: place.replace("-", ""))
    return [json.loads(json.dumps(made))]  # each set of pods has a template of its own


KINDS = sorted({*workload_kinds(), "TrainJob"})


def inline(**csi: Any) -> tuple[Manifest, list[Manifest]]:
    """A bucket in the pod's own volumes, and the objects that it needs."""
    return {"csi": {"driver": FUSE, "volumeAttributes": {"bucketName": "weights"}, **csi}}, []


def claimed(**csi: Any) -> tuple[Manifest, list[Manifest]]:
    """A bucket by a claim and a PersistentVolume."""
    many: Any = {"mode": "ReadWriteMany", "storageClassName": "none"}
    bound = {
        "claimRef": {"namespace": "team", "name": "data"},
        "csi": {"driver": FUSE, "volumeHandle": "weights:eu", **csi},
    }
    objects = [claim(volumeName="pv", **many), volume(**many, **bound)]
    return {"persistentVolumeClaim": {"claimName": "data"}}, objects


def mounting(
    objects: list[Manifest],
    source: tuple[Manifest, list[Manifest]],
    account: Any = "trainer",
    **mount: Any,
) -> list[Manifest]:
    """The objects, with a bucket in all of their pods."""
    for spec in [found for each in objects for found in pod_specs(each)]:
        if account:
            spec["serviceAccountName"] = account
        spec["volumes"] = [*spec.get("volumes", []), {"name": "b", **source[0]}]
        for each in spec["containers"]:
            each["volumeMounts"] = [{"name": "b", "mountPath": "/b", **mount}]
    return [*objects, *source[1]]


def account(google: Any = None, name: str = "trainer") -> Manifest:
    annotations = {} if google is None else {"iam.gke.io/gcp-service-account": google}
    made = namespaced("v1", "ServiceAccount", name)
    made["metadata"]["annotations"] = annotations
    return made


def on_bucket(member: Any, role: Any = "roles/storage.objectUser", bucket: Any = "weights") -> Any:
    inputs = {"bucket": bucket, "role": role, "member": member}
    return "gcp:storage/bucketIAMMember:BucketIAMMember", inputs


def acting(member: Any = f"serviceAccount:{POOL}[team/trainer]", **more: Any) -> Resource:
    inputs = {"serviceAccountId": f"projects/p/serviceAccounts/{GOOGLE}", "member": member}
    inputs |= {"role": "roles/iam.workloadIdentityUser", **more}
    return "gcp:serviceaccount/iAMMember:IAMMember", inputs


DIRECT = f"principal:{PRINCIPALS}/subject/ns/team/sa/trainer"
FORMS: dict[str, dict[str, Any]] = {
    "direct": {"account": account(), "role": on_bucket(DIRECT)},
    "google": {
        "account": account(GOOGLE),
        "acting": acting(),
        "role": on_bucket(f"serviceAccount:{GOOGLE}"),
    },
}
"""The links of both forms of Workload Identity, by name."""


def findings(
    objects: list[Manifest], *more: Resource, gke: list[Resource] | None = None
) -> list[Finding]:
    found = [*(GKE if gke is None else gke), *map(resource, [namespace(), *objects]), *more]
    found = [each for each in found if is_judged(each[0])]
    return [each for each in program.judge_program(found).findings if each.rule in RULES]


def told(*given: Any, **more: Any) -> list[tuple[str, str]]:
    return [(each.rule, each.severity.value) for each in findings(*given, **more)]


def along(form: str, workload: list[Manifest], *, without: str = "", changed: Any = None) -> Any:
    """The findings on a chain without a link, or with another in its place."""
    links = FORMS[form] | ({without: changed} if without else {})
    if links["account"] is None:  # then pods run as default
        for spec in [found for each in workload for found in pod_specs(each)]:
            spec.pop("serviceAccountName")
    objects = [*workload, *filter(None, [links.pop("account")])]
    return findings(objects, BUCKET, MADE, *filter(None, links.values()))


@pytest.mark.parametrize("source", [inline, claimed])
@pytest.mark.parametrize("kind", KINDS)
def test_each_link_of_each_form_counts(kind: str, source: Callable[[], Any]) -> None:
    for form, links in FORMS.items():
        assert along(form, mounting(of_kind(kind), source())) == []
        for link in links:
            found = along(form, mounting(of_kind(kind), source()), without=link)
            wanted = "workload-identity" if link == "acting" else "bucket-access"
            assert {(each.rule, each.severity) for each in found} >= {(wanted, "warning")}, link
            abouts = {each.object for each in found if each.rule == "bucket-access"}
            assert len(abouts) == (link != "acting")
            assert all(kind in about for about in abouts)


TRAIN = "train"


def train(*volumes: Any, spec: Manifest | None = None, **mount: Any) -> list[Manifest]:
    made = job(TRAIN, 1, template(containers=[container(cpu=1)], **(spec or {})))
    return mounting([made], *volumes or (inline(),), **mount)


ANYONE = [
    DIRECT,
    f"principalSet:{PRINCIPALS}/namespace/team",
    f"principalSet:{PRINCIPALS}/*",
    f"principal:{PRINCIPALS}/kubernetes.serviceaccount.uid/7",
    f"serviceAccount:{POOL}[team/trainer]",
    "allUsers",
    "allAuthenticatedUsers",
    "group:ml@example.com",
    UNKNOWN,
]
OTHERS = [
    f"principal:{PRINCIPALS}/subject/ns/team/sa/loader",
    f"principal:{PRINCIPALS}/subject/ns/other/sa/trainer",
    f"principal:{PRINCIPALS.replace(POOL, 'q.svc.id.goog')}/subject/ns/team/sa/trainer",
    f"principalSet:{PRINCIPALS}/namespace/other",
    f"serviceAccount:{POOL}[team/loader]",
    f"serviceAccount:{GOOGLE}",
    "user:a@example.com",
]


def bound_to_bucket(*members: Any) -> Resource:
    _, granted = on_bucket(None)
    inputs = {key: value for key, value in granted.items() if key != "member"}
    return "gcp:storage/bucketIAMBinding:BucketIAMBinding", inputs | {"members": [*members]}


@pytest.mark.parametrize("member", ANYONE, ids=str)
def test_who_has_the_account_in_it(member: Any) -> None:
    assert along("direct", train(), without="role", changed=on_bucket(member)) == []
    assert along("google", train(), without="acting", changed=acting(member)) == []
    binding = bound_to_bucket("user:a@example.com", member)
    assert along("direct", train(), without="role", changed=binding) == []


@pytest.mark.parametrize("member", OTHERS, ids=str)
def test_who_has_not(member: Any) -> None:
    for changed in (on_bucket(member), bound_to_bucket("user:a@example.com", member)):
        found = along("direct", train(), without="role", changed=changed)
        assert [each.rule for each in found] == ["bucket-access"]
    found = along("google", train(), without="acting", changed=acting(member))
    assert [each.rule for each in found] == ["workload-identity"]


def test_with_a_google_account_the_pods_themselves_do_not_count() -> None:
    found = along("google", train(), without="role", changed=on_bucket(DIRECT))
    assert [each.rule for each in found] == ["bucket-access"]
    assert GOOGLE in found[0].message and f"serviceAccount:{GOOGLE}" in found[0].remedy


@pytest.mark.parametrize(
    ("roles", "reads", "is_enough"),
    [
        (["roles/storage.objectViewer"], True, True),
        (["roles/storage.objectViewer"], False, False),
        (["roles/storage.objectUser"], False, True),
        (["roles/storage.objectAdmin"], False, True),
        (["roles/storage.admin"], False, True),
        (["roles/storage.objectCreator"], True, False),
        (["roles/storage.objectCreator", "roles/storage.objectViewer"], False, True),
        (["roles/storage.legacyBucketReader"], True, False),
        (["roles/storage.legacyBucketReader", "roles/storage.legacyObjectReader"], True, True),
        (["roles/logging.logWriter"], True, False),
        (["projects/p/roles/own"], False, True),
        (["roles/editor"], False, True),
        ([UNKNOWN], False, True),
    ],
    ids=str,
)
def test_the_role_allows_what_the_mount_needs(
    roles: list[Any], reads: bool, is_enough: bool
) -> None:
    granted = [on_bucket(DIRECT, role) for role in roles]
    assert (told([*train(readOnly=reads), account()], BUCKET, *granted) == []) is is_enough
    for source in (inline, claimed):
        objects = [*train(source(readOnly=reads)), account()]
        assert (told(objects, BUCKET, *granted) == []) is is_enough
    project = [
        ("gcp:projects/iAMMember:IAMMember", {**made, "bucket": None}) for _, made in granted
    ]
    assert (told([*train(readOnly=reads), account()], BUCKET, *project) == []) is is_enough


def test_a_role_that_reads_only_may_do_with_a_mount_that_does() -> None:
    reading = on_bucket(DIRECT, "roles/storage.objectViewer")
    (found,) = along("direct", train(), without="role", changed=reading)
    assert "write to the bucket weights" in found.message and "mount it read-only" in found.remedy


POLICIES = [
    ("gcp:storage/bucketIAMPolicy:BucketIAMPolicy", {"bucket": "weights", "policyData": "{}"}),
    ("gcp:storage/bucketACL:BucketACL", {"bucket": "weights", "predefinedAcl": "publicRead"}),
    ("gcp:projects/iAMPolicy:IAMPolicy", {"project": "p", "policyData": UNKNOWN}),
    on_bucket(DIRECT, bucket=UNKNOWN),
    on_bucket(DIRECT, bucket="b/weights"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_what_is_not_read_may_grant(policy: Resource) -> None:
    assert along("direct", train(), without="role", changed=policy) == []


ELSEWHERE = [
    on_bucket(DIRECT, bucket="other"),
    ("gcp:projects/iAMCustomRole:IAMCustomRole", {"roleId": "own", "permissions": []}),
    ("gcp:pubsub/topicIAMMember:TopicIAMMember", {"topic": "t", "member": DIRECT, "role": "r"}),
    ("gcp:storage/bucketIAMBinding:BucketIAMBinding", {"bucket": "weights", "role": "r", "members": []}),
]  # fmt: skip


@pytest.mark.parametrize("other", ELSEWHERE, ids=str)
def test_what_grants_nothing_on_the_bucket(other: Resource) -> None:
    found = along("direct", train(), without="role", changed=other)
    assert [each.rule for each in found] == ["bucket-access"]


SCAN = on_bucket(f"serviceAccount:service-1{SERVICE_AGENT}")
CHECKPOINTS = on_bucket(f"serviceAccount:{POOL}[gke-managed-checkpointing/agent]")
OTHER = on_bucket("user:a@example.com")


@pytest.mark.parametrize(
    ("named", "google", "more", "severity"),
    [
        # Nobody chose the account default.
        ("", None, [], "warning"),
        # A named account may have its role from outside, and the program cannot know.
        ("trainer", None, [], "info"),
        ("trainer", None, [SCAN, CHECKPOINTS], "info"),
        ("trainer", None, [OTHER], "warning"),
        ("trainer", None, [BUCKET], "warning"),
        # So may a Google account; one from outside most likely has.
        ("trainer", GOOGLE, [MADE, acting()], "info"),
        ("trainer", GOOGLE, [], None),
        ("trainer", GOOGLE, [OTHER], "warning"),
        ("trainer", GOOGLE, [BUCKET], "warning"),
        ("trainer", UNKNOWN, [], None),
        ("trainer", UNKNOWN, [BUCKET], "warning"),
        ("trainer", UNKNOWN, [BUCKET, OTHER], None),
    ],
    ids=str,
)
def test_what_the_program_does_not_make(
    named: str, google: Any, more: list[Resource], severity: str | None
) -> None:
    objects = [*train(account=named), account(google)]
    assert told(objects, *more) == ([] if severity is None else [("bucket-access", severity)])


def test_the_account_default_of_others_may_have_a_google_account() -> None:
    existing = train(account="")
    assert told(existing, gke=[]) == [("bucket-access", "warning")]
    existing[0]["metadata"]["namespace"] = "theirs"
    assert told(existing, gke=[]) == []
    patch = "kubernetes:core/v1:ServiceAccountPatch", account(GOOGLE, "default")
    assert told(train(account=""), patch) == []
    assert told(train(account=""), ("kubernetes:core/v1:ServiceAccount", account(name="default")))


@pytest.mark.parametrize("bucket", [UNKNOWN, "_"], ids=str)
def test_a_bucket_without_a_name_is_not_judged(bucket: Any) -> None:
    assert told([*train(inline(volumeAttributes={"bucketName": bucket})), account()], BUCKET) == []


def test_pods_on_the_network_of_the_node_have_its_account() -> None:
    assert told([*train(spec={"hostNetwork": True}), account()], BUCKET) == []


def test_a_google_account_needs_the_way_also_without_a_bucket() -> None:
    assert told([account(GOOGLE)], MADE) == [("workload-identity", "warning")]
    assert told([account(GOOGLE)]) == []
    of_others = acting("user:a@example.com")
    assert told([account(GOOGLE)], of_others) == [("workload-identity", "warning")]
    creator = acting(role="roles/iam.serviceAccountTokenCreator")
    assert told([account(GOOGLE)], MADE, creator) == []
    user = acting(role="roles/iam.serviceAccountUser")
    assert told([account(GOOGLE)], MADE, user) == [("workload-identity", "warning")]
    project = "gcp:projects/iAMMember:IAMMember", acting()[1]
    assert told([account(GOOGLE)], MADE, project) == []


def test_a_bucket_that_pulumi_names_is_known_by_that_name() -> None:
    type_, _ = BUCKET
    assert named((type_, {}), "weights", "weights-1a2b3c4")[1]["name"] == "weights-1a2b3c4"
    assert named(BUCKET, "w", "other") == BUCKET


def test_the_proof_sees_who_scans_the_bucket_of_a_cache() -> None:
    """The rule bucket-scan reads the same grants."""
    type_, inputs = SCAN
    assert is_judged(type_)
    assert [*granted_buckets([(type_, inputs), BUCKET, MADE])] == ["weights"]
