"""The kinds of GKE's add-ons are there by the cluster's settings."""

from typing import Any

import pytest
from ml_foundations.rehearsal.cloud.addons import Addons

PROMETHEUS = {"monitoringConfig": {"managedPrometheus": {"enabled": False}}}
RAPID = {"releaseChannel": {"channel": "RAPID"}}
MULTI = {"enableMultiNetworking": True}
OF_NETWORKS = [
    "GKENetworkParamSet",
    "MutatingAdmissionPolicy networks.networking.gke.io",
    "MutatingAdmissionPolicyBinding networks.networking.gke.io",
    "Network",
]


OF_BUCKETS = {
    f"MutatingAdmissionPolicy{binding} gcsfuse.csi.storage.gke.io" for binding in ("", "Binding")
}
OF_GATEWAYS = [
    *("GCPBackendPolicy", "GCPRoutingExtension", "Gateway", "GatewayClass", "HTTPRoute"),
    *("HealthCheckPolicy", "InferencePool"),
]
CHECKPOINTING = {"addonsConfig": {"highScaleCheckpointingConfig": {"enabled": True}}}
WITH_GATEWAYS = {"gatewayApiConfig": {"channel": "CHANNEL_STANDARD"}} | CHECKPOINTING


class Recorded:
    """Stands for the API server, and notes what is made."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def ensure(self, _path: str, manifest: dict[str, Any]) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "CustomResourceDefinition":
            name = manifest["spec"]["names"]["kind"]
        self.kinds.append(f"{kind} {name}" if "Policy" in kind else name)

    def get(self, _path: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Established", "status": "True"}]}}

    def patch(self, _path: str, body: dict[str, Any]) -> None:
        (established,) = body["status"]["conditions"]
        assert established["lastTransitionTime"] < "2026", (
            "younger ones hold up their first objects"
        )


def made(*clusters: dict[str, Any] | None) -> list[str]:
    api: Any = Recorded()
    addons = Addons(api)
    for cluster in clusters:
        addons.reconcile(cluster)
    assert len(set(api.kinds)) == len(api.kinds), "what is deleted stays deleted"
    return api.kinds


@pytest.mark.parametrize(
    ("clusters", "without"),
    [
        ([None], []),
        ([MULTI | RAPID | WITH_GATEWAYS], []),
        ([MULTI | RAPID | CHECKPOINTING], OF_GATEWAYS),
        ([MULTI | RAPID | WITH_GATEWAYS | {"addonsConfig": {}}], ["CheckpointConfiguration"]),
        ([WITH_GATEWAYS | RAPID], OF_NETWORKS),
        ([MULTI | WITH_GATEWAYS], ["AutoscalingMetric"]),
        ([MULTI | PROMETHEUS | WITH_GATEWAYS], ["AutoscalingMetric", "PodMonitoring"]),
        ([MULTI, MULTI | RAPID | WITH_GATEWAYS], []),
        ([RAPID, MULTI | WITH_GATEWAYS], []),
        ([MULTI, MULTI | WITH_GATEWAYS], ["AutoscalingMetric"]),
    ],
)
def test_a_kind_comes_with_the_setting_that_brings_it(
    clusters: list[dict[str, Any] | None], without: list[str]
) -> None:
    missing = set(made(None)) - set(made(*clusters)) - OF_BUCKETS
    assert sorted(missing) == without

    assert {"ProvisioningRequest", "VolumeSnapshot", "standard-rwo", "gcp-critical-pods"} <= set(
        made(*clusters)
    )


def test_pods_get_the_sidecar_of_a_bucket_where_its_driver_is() -> None:
    buckets = {"addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}}
    identity = {"workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}}
    assert set(made(buckets | identity)) >= OF_BUCKETS
    assert OF_BUCKETS.isdisjoint(made(MULTI))
