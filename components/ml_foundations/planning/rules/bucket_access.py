"""Pods that mount a bucket, if the program does not give them access to it.

The way leads from the pod's service account, or the Google account that its annotation names, to a
role on the bucket, as far as the program declares it. Pods that run as the account default have a
warning, because nobody chose their account. Others may have their role from outside if the program
neither makes the bucket nor grants roles on it: they have a note, and nothing if their Google
account is from outside, too.

Sources: GKE, "Authenticate to Google Cloud APIs from GKE workloads" (the members, and the role for
acting as a Google account); gcs-fuse-csi-driver@5fcdc04a, docs/authentication.md and
pkg/cloud_provider/auth/token_sources.go (with the annotation, only the Google account counts).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ml_foundations.catalog.injections import SCAN, SCAN_ROLE, SERVICE_AGENT, injections
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.labels import GOOGLE_ACCOUNT
from ml_foundations.kubernetes.objects import Manifest, annotations_of, items, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.api_server.defaults import is_profiled
from ml_foundations.planning.input import iam, program
from ml_foundations.planning.model.declared import full_name, key_of
from ml_foundations.planning.model.volumes import Volumes, writes
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.rules.findings import Finding, Severity, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_READ = frozenset({"get", "list"})
_WRITE = frozenset({"get", "list", "create"})
"""What a mount needs, in the words of bucket_roles.csv."""
_ACTING = ("roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator")
"""The predefined roles that let an account of Kubernetes act as a Google account: those with
iam.serviceAccounts.getAccessToken (gcp-iam-role-permissions@2026-08-22)."""
_POOL = "PROJECT.svc.id.goog"
"""A Workload Identity pool that is not known, in a fix."""
_AGENTS = (SERVICE_AGENT, "[gke-managed-")
"""Parts of the names of GKE's own accounts."""


class _Account(NamedTuple):
    """A service account of Kubernetes."""

    namespace: Any
    name: Any
    google_account: Any
    """The Google account that its pods act as; None without one, UNKNOWN if it is not known."""
    pool: str
    """The Workload Identity pool of the cluster; empty if it is not known."""

    @property
    def described(self) -> str:
        """The account that Google sees, in words."""
        if isinstance(self.google_account, str):
            return self.google_account
        return f"the service account {self.namespace}/{self.name}"

    @property
    def member(self) -> str:
        """The account that Google sees, as a member of a grant."""
        if isinstance(self.google_account, str):
            return f"serviceAccount:{self.google_account}"
        if self.google_account is UNKNOWN:
            return "its Google account"
        pool = f"workloadIdentityPools/{self.pool or _POOL}"
        subject = f"{pool}/subject/ns/{self.namespace}/sa/{self.name}"
        return f"principal://iam.googleapis.com/projects/NUMBER/locations/global/{subject}"

    def is_in(self, member: Any) -> bool:
        """Return whether a member of a grant is its pods, or may have them in it."""
        if not isinstance(member, str) or member.startswith(("all", "group:")):
            return True
        if self.google_account is UNKNOWN:
            return not _is_agent(member)
        if self.google_account is not None:
            return member == f"serviceAccount:{self.google_account}"
        if self.pool not in member:
            return False
        subjects = {
            "/subject/": f"ns/{self.namespace}/sa/{self.name}",
            "/namespace/": self.namespace,
        }
        for part, value in subjects.items():
            if part in member:
                return member.endswith(f"{part}{value}")
        is_shared = member.startswith("principal")
        return is_shared or member.endswith(f".svc.id.goog[{self.namespace}/{self.name}]")


def _is_agent(member: Any) -> bool:
    return any(agent in str(member) for agent in _AGENTS)


@rule(
    "bucket-access",
    Severity.WARNING,
    (
        "The account of pods that mount a bucket may read it, or write to it, by the roles that "
        "the program grants."
    ),
    source=(
        'GKE, "Authenticate to Google Cloud APIs from GKE workloads"; gcs-fuse-csi-driver, '
        "docs/authentication.md"
    ),
    example="""
        type: gcp:storage/bucket:Bucket
        name: my-bucket
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: train, namespace: ml, annotations: {gke-gcsfuse/volumes: "true"}}
        spec:
          containers:
            - {name: train, image: train:1, volumeMounts: [{name: data, mountPath: /data}]}
          volumes:
            - name: data
              csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: my-bucket}}
    """,
)
@rule(
    "workload-identity",
    Severity.WARNING,
    "A service account may act as the Google account that it names.",
    source=(
        'GKE, "Authenticate to Google Cloud APIs from GKE workloads"; gcs-fuse-csi-driver, '
        "docs/authentication.md"
    ),
    example="""
        type: gcp:serviceaccount/account:Account
        accountId: train
        ---
        apiVersion: v1
        kind: ServiceAccount
        metadata:
          name: train
          namespace: ml
          annotations: {iam.gke.io/gcp-service-account: train@my-project.iam.gserviceaccount.com}
    """,
)
def bucket_access(stack: Stack) -> Iterator[Finding]:
    """Yield pods without access to a bucket, and accounts that may not act as a Google account."""
    if not stack.is_program:
        return
    access = _Access(stack)
    yield from access.of_google_accounts()
    kinds = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass")
    volumes = Volumes({kind: [*stack.of_kind(kind)] for kind in kinds})
    for workload, *_ in stack.workloads:
        for pods in workload.pods:
            spec = section(pods.template, "spec")
            # On the network of the node, pods have its account: see the rule bucket-identity.
            mounted = () if spec.get("hostNetwork") else items(spec, "volumes")
            for index, volume in enumerate(mounted):
                alone: Manifest = {**spec, "volumes": [volume]}
                buckets = [*volumes.buckets(alone, workload.namespace)]
                if len(buckets) == 1:
                    path = f"{pods.path}.volumes[{index}]"
                    yield from access.of_bucket(workload, path, alone, buckets[0])


@rule(
    "bucket-scan",
    Severity.WARNING,
    "GKE may scan a bucket with one of its classes: until then its pods do not start.",
    source='GKE, "Cloud Storage FUSE CSI driver performance: StorageClasses"',
    example="""
        apiVersion: v1
        kind: PersistentVolume
        metadata: {name: data}
        spec:
          storageClassName: gcsfusecsi-training
          accessModes: [ReadWriteMany]
          capacity: {storage: 1Ti}
          csi: {driver: gcsfuse.csi.storage.gke.io, volumeHandle: my-bucket}
    """,
)
def bucket_scans(stack: Stack) -> Iterator[Finding]:
    """Yield the buckets whose pods wait for a scan that nobody is allowed to make."""
    if not stack.is_program:
        return
    granted = list(program.granted_buckets(stack.resources))
    for volume in stack.of_kind("PersistentVolume"):
        bucket = section(volume, "spec", "csi").get("volumeHandle")
        is_open = UNKNOWN in (bucket, *granted) or None in granted
        if is_profiled(section(volume, "spec")) and not is_open and bucket not in granted:
            message = (
                f"its pods keep the gate {injections()[SCAN].gate} until GKE's service agent has "
                f"scanned {bucket}, and nothing grants that"
            )
            remedy = (
                f"Grant {SCAN_ROLE} on it to service-PROJECT_NUMBER{SERVICE_AGENT} (project_number "
                "of a ModelCache)."
            )
            yield warning("bucket-scan", full_name(volume), "spec", message, remedy)


class _Access:
    """The service accounts of a program, and the roles that it grants them."""

    def __init__(self, stack: Stack) -> None:
        self._grants = list(iam.grants(stack.resources))
        self._buckets = [inputs.get("name") for inputs in stack.of_type(program.BUCKET)]
        self._made = [inputs.get("accountId") for inputs in stack.of_type(iam.GOOGLE_ACCOUNT)]
        self._namespaces = list(map(name_of, stack.of_kind("Namespace")))
        self._clusters = stack.clusters
        pools = [section(c, "workloadIdentityConfig").get("workloadPool") for c in self._clusters]
        self._pool = pools[0] if len(pools) == 1 and isinstance(pools[0], str) else ""
        self._declared: dict[str, _Account] = {}
        for type_, inputs in stack.resources:
            # A ServiceAccountPatch may give default an annotation.
            if type_.startswith("kubernetes:") and inputs.get("kind") == "ServiceAccount":
                is_open = section(inputs, "metadata").get("annotations") is UNKNOWN
                google_account = UNKNOWN if is_open else annotations_of(inputs).get(GOOGLE_ACCOUNT)
                account = _Account(*key_of(inputs), google_account, self._pool)
                self._declared[str(key_of(inputs))] = account
        self._allowed: dict[Any, frozenset[str]] = {}
        for row in rows("bucket_roles.csv"):
            allowed = frozenset(row["allows"].split())
            self._allowed |= dict.fromkeys(row["roles"].split(), allowed)

    def _is_made(self, google_account: Any) -> bool:
        return any(str(google_account).startswith(f"{name}@") for name in self._made)

    def _grants_on(self, name: str) -> bool:
        """Return whether the program grants roles on a bucket or account, and not only to GKE."""
        for grant in self._grants:
            if grant.on == name and not all(map(_is_agent, grant.members)):
                return True
        return False

    def _held(self, on: str, account: _Account) -> list[Any]:
        """Return the roles on a bucket or an account that an account has, or may have."""
        roles: list[Any] = []
        for grant in self._grants:
            if grant.on in (None, UNKNOWN, on) and any(map(account.is_in, grant.members)):
                roles.append(grant.role)
        return roles

    def of_google_accounts(self) -> Iterator[Finding]:
        """Yield service accounts that may not act as the Google account that they name."""
        for account in self._declared.values():
            namespace, name, google_account, pool = account
            is_ours = self._is_made(google_account) or self._grants_on(google_account)
            if not isinstance(google_account, str) or not is_ours:
                continue
            held = self._held(google_account, account._replace(google_account=None))
            if not any(role in _ACTING or not str(role).startswith("roles/") for role in held):
                message = f"the program does not let its pods act as {google_account}"
                member = f"serviceAccount:{pool or _POOL}[{namespace}/{name}]"
                argument = "workload_pool of service_account of a TeamNamespace"
                remedy = f"Grant {_ACTING[0]} on it to {member} ({argument})."
                about = f"ServiceAccount {namespace}/{name}"
                path = "metadata.annotations"
                yield warning("workload-identity", about, path, message, remedy)

    def of_bucket(
        self, workload: Workload, path: str, spec: Manifest, source: Manifest
    ) -> Iterator[Finding]:
        """Yield pods that mount a bucket, without a role for what they do with it."""
        named = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        is_new = self._clusters or workload.namespace in self._namespaces
        google_account = None if named == "default" and is_new else UNKNOWN
        undeclared = _Account(workload.namespace, named, google_account, self._pool)
        account = self._declared.get(str((workload.namespace, named)), undeclared)
        # The name "_" means all buckets. A handle may have more, after a colon (see
        # gcs-fuse-csi-driver@5fcdc04a, pkg/util/util.go, ParseVolumeID; pkg/csi_driver/node.go).
        csi = section(source, "csi")
        handle = section(csi, "volumeAttributes").get("bucketName", csi.get("volumeHandle"))
        bucket: Any = handle.partition(":")[0] if isinstance(handle, str) else UNKNOWN
        allowed = frozenset[str]()
        for role in self._held(bucket, account):
            allowed |= self._allowed.get(str(role), _WRITE)
        is_written = writes(spec) and not csi.get("readOnly")
        is_allowed = allowed >= (_WRITE if is_written else _READ)
        if is_allowed or bucket == "_" or UNKNOWN in (account.namespace, account.name, bucket):
            return
        does, role = ("write to", "objectUser") if is_written else ("read", "objectViewer")
        grants_none = f"{account.described}, to which the program grants no role for that"
        message = f"its pods {does} the bucket {bucket} as {grants_none}"
        more = "mount it read-only" if allowed >= _READ else "run them as an account that has it"
        remedy = f"Grant roles/storage.{role} on it to {account.member}, or {more}."
        finding = warning("bucket-access", str(workload), path, message, remedy)
        google_account = account.google_account
        is_ours = google_account is None or self._is_made(google_account)
        is_unchosen = google_account is None and account.name == "default"
        if is_unchosen or bucket in self._buckets or self._grants_on(bucket):
            yield finding
        elif is_ours:
            yield replace(finding, severity=Severity.INFO)
