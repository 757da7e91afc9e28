"""Who the team is: to Kubernetes its group, to Google Cloud its pods' service account."""

import json
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

import pulumi
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name
from ml_foundations.kubernetes.merging import without_none

GOOGLE_ACCOUNT = "iam.gke.io/gcp-service-account"
"""The annotation that names the Google service account of a Kubernetes service account."""

PULL_SECRET = "image-pull"


class ServiceAccountArgs(TypedDict):
    """The service account of the team's pods."""

    name: NotRequired[str]
    """Its name in Kubernetes; default workloads."""
    google_account: NotRequired[pulumi.Input[str]]
    """The e-mail address of the Google service account that its pods act as (Workload Identity Federation)."""
    workload_pool: NotRequired[str]
    """The cluster's Workload Identity pool. With it, the pods are also allowed to act as that account."""
    image_pull_secret: NotRequired[pulumi.Input[str]]
    """Credentials of image registries, as a Docker configuration file has them (JSON). Kept as a secret."""


class ServiceAccount(Spec):
    """A checked ServiceAccountArgs."""

    name: Name = "workloads"
    google_account: Any = None
    workload_pool: str | None = None
    image_pull_secret: Any = None

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.google_account, str) and "@" not in self.google_account:
            yield "google_account", f'is "{self.google_account}"; it must be the e-mail address of a service account'
        if isinstance(self.image_pull_secret, str) and not _is_docker_config(self.image_pull_secret):
            yield "image_pull_secret", 'must be JSON with the key "auths", as docker login writes it'


def _is_docker_config(text: str) -> bool:
    try:
        return "auths" in json.loads(text)
    except (ValueError, TypeError):
        return False


def service_account_manifest(namespace: str, account: ServiceAccount) -> dict[str, Any]:
    """The ServiceAccount; its pods get no token for the API server unless they ask for one."""
    annotations = without_none({GOOGLE_ACCOUNT: account.google_account})
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account.name, "namespace": namespace}
        | ({"annotations": annotations} if annotations else {}),
        "automountServiceAccountToken": False,
    }
    if account.image_pull_secret is not None:
        manifest["imagePullSecrets"] = [{"name": PULL_SECRET}]
    return manifest


def pull_secret_manifest(namespace: str, account: ServiceAccount) -> dict[str, Any]:
    """The Secret with which images are pulled."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": PULL_SECRET, "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": pulumi.Output.secret(account.image_pull_secret)},
    }


def workload_identity_member(namespace: str, account: ServiceAccount) -> str:
    """The pods of the service account, as Google's IAM names them."""
    return f"serviceAccount:{account.workload_pool}[{namespace}/{account.name}]"


def group_binding_manifest(namespace: str, name: str, role: str, group: str) -> dict[str, Any]:
    """A group's role in the namespace: edit changes all but quota and access, view changes nothing."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }
