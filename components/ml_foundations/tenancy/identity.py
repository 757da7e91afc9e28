"""The identity of a team: its Kubernetes group, and the service account of its pods."""

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from ml_foundations.component.children import ChildResource, Secret, cloud_child
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputStr, InputText, Name, concat
from ml_foundations.kubernetes.labels import GOOGLE_ACCOUNT
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.kubernetes.reading import ReadError, embedded_json

_PULL_SECRET = "image-pull"
_AFTER = ["namespace"]
_RBAC = "rbac.authorization.k8s.io"


class ServiceAccount(Spec):
    """The service account of the team's pods."""

    name: Name = "workloads"
    """Its name in Kubernetes. The default is workloads."""
    google_account: InputStr = None
    """The e-mail address of the Google service account that its pods act as (Workload Identity
    Federation)."""
    workload_pool: InputText | None = None
    """The cluster's Workload Identity pool. If it is set, the pods are also allowed to act as
    google_account."""
    image_pull_secret: InputStr = None
    """Credentials of image registries, in the form of a Docker configuration file (JSON). Pulumi
    keeps them as a secret."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.google_account, str) and "@" not in self.google_account:
            reason = "it must be the e-mail address of a service account"
            yield "google_account", f'is "{self.google_account}"; {reason}'
        secret = self.image_pull_secret
        if isinstance(secret, str) and not _is_docker_config(secret):
            reason = 'must be JSON with the key "auths", as docker login writes it'
            yield "image_pull_secret", reason


def _is_docker_config(text: str) -> bool:
    try:
        config = embedded_json(text)
    except ReadError:
        return False
    return isinstance(config, dict) and "auths" in config


def identity_children(namespace: str, account: ServiceAccount) -> Iterator[ChildResource]:
    """Yield the ServiceAccount, its pull Secret, and its right to act as a Google account."""
    if account.image_pull_secret is not None:
        metadata = {"name": _PULL_SECRET, "namespace": namespace}
        kind = "kubernetes.io/dockerconfigjson"
        data = {".dockerconfigjson": Secret(account.image_pull_secret)}
        secret = api_object("v1", "Secret", metadata, type=kind, stringData=data)
        yield ChildResource("image-pull", secret, _AFTER)
    annotations = without_none({GOOGLE_ACCOUNT: account.google_account})
    names = {"name": account.name, "namespace": namespace}
    metadata = without_none({**names, "annotations": annotations or None})
    # Pods get an API token only if they ask for one.
    fields: dict[str, Any] = {"automountServiceAccountToken": False}
    if account.image_pull_secret is not None:
        fields["imagePullSecrets"] = [{"name": _PULL_SECRET}]
    manifest = api_object("v1", "ServiceAccount", metadata, **fields)
    yield ChildResource("service-account", manifest, _AFTER)
    if account.google_account is not None and account.workload_pool is not None:
        pods = f"[{namespace}/{account.name}]"
        binding = {
            "serviceAccountId": concat("projects/-/serviceAccounts/", account.google_account),
            "role": "roles/iam.workloadIdentityUser",
            "member": concat("serviceAccount:", account.workload_pool, pods),
        }
        type_ = "gcp:serviceaccount/iAMMember:IAMMember"
        yield cloud_child("workload-identity", type_, binding, depends_on=_AFTER)


def group_child(namespace: str, who: str, role: str, group: str) -> ChildResource:
    """Return the binding of a group to a role in the namespace, such as edit or view."""
    metadata = {"name": f"team-{who}", "namespace": namespace}
    cluster_role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": group}
    fields = {"roleRef": cluster_role, "subjects": [subject]}
    return ChildResource(who, api_object(f"{_RBAC}/v1", "RoleBinding", metadata, **fields), _AFTER)
