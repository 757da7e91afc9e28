"""Namespaces: claims that are lost with them."""

from collections.abc import Iterator

from ml_foundations.planning.model.declared import key_of, of_kind
from ml_foundations.planning.rules.findings import Finding, Severity, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack


@rule(
    "namespace-data",
    Severity.WARNING,
    "Namespaces whose claims are kept are kept as well.",
    source='Kubernetes, "Namespaces": deletion deletes what is in them',
    example="""
        apiVersion: v1
        kind: Namespace
        metadata: {name: ml}
        ---
        apiVersion: storage.k8s.io/v1
        kind: StorageClass
        metadata: {name: ssd}
        provisioner: pd.csi.storage.gke.io
        parameters: {type: pd-ssd}
        ---
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata: {name: data, namespace: ml}
        spec:
          storageClassName: ssd
          accessModes: [ReadWriteOnce]
          resources: {requests: {storage: 1Ti}}
        options: {retainOnDelete: true}
    """,
)
def lost_claims(stack: Stack) -> Iterator[Finding]:
    """Yield the claims that Pulumi keeps, in namespaces that it deletes with the claims."""
    kept_claims = set(map(key_of, of_kind(stack.kept, "PersistentVolumeClaim")))
    kept_namespaces = set(map(key_of, of_kind(stack.kept, "Namespace")))
    deleted = set(map(key_of, stack.of_kind("Namespace"))) - kept_namespaces
    names = {name for _, name in deleted}
    for volume in stack.stored:
        namespace, name = key_of(volume.claim)
        is_kept = volume.owner is None and (namespace, name) in kept_claims
        retains = volume.storage_class.get("reclaimPolicy") == "Retain"
        if is_kept and namespace in names and not retains:
            message = (
                f"Pulumi keeps the claim, but not the Namespace {namespace}: whoever deletes that "
                "deletes the claim and its data"
            )
            remedy = (
                "Set data: true of the TeamNamespace, or protect and retain_on_delete of the "
                "Namespace."
            )
            about = f"PersistentVolumeClaim {namespace}/{name}"
            yield warning("namespace-data", about, "", message, remedy)
