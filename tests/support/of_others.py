"""A program as Pulumi users write them: what it gives to the components are outputs of its other resources."""

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
from ml_foundations import (
    CpuNodePool,
    GkeCluster,
    GpuNodePool,
    Task,
    TeamNamespace,
    TrainingJob,
    Volume,
)
from ml_foundations.proof import Proof

ZONE = "us-central1-a"
IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"

with Proof():
    home = gcp.organizations.Project("home", name="ML", project_id="acme-ml-4711", org_id="1234")
    network = gcp.compute.Network("network", project=home.project_id, auto_create_subnetworks=False)
    region = {"project": home.project_id, "region": "us-central1"}
    subnetwork = gcp.compute.Subnetwork(
        "nodes",
        **region,
        network=network.self_link,
        ip_cidr_range="10.0.0.0/20",
        secondary_ip_ranges=[
            {"range_name": "pods", "ip_cidr_range": "10.16.0.0/14"},
            {"range_name": "services", "ip_cidr_range": "10.20.0.0/20"},
        ],
    )
    router = gcp.compute.Router("router", **region, network=network.self_link)
    gcp.compute.RouterNat(
        "nat",
        **region,
        router=router.name,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
    )
    reserved = gcp.compute.Reservation(
        "reserved",
        project=home.project_id,
        zone=ZONE,
        specific_reservation={"count": 2, "instance_properties": {"machine_type": "g2-standard-8"}},
        specific_reservation_required=True,
    )
    place = {"project": home.project_id, "location": "us-central1"}
    ranges = [subnetwork.secondary_ip_ranges[index]["range_name"] for index in range(2)]
    cluster = GkeCluster(
        "ml",
        {
            **place,
            "network": {
                "network": network.self_link,
                "subnetwork": subnetwork.self_link,
                "pod_range": ranges[0],
                "service_range": ranges[1],
            },
            "security_group": home.org_id.apply(lambda _: "gke-security-groups@acme.example"),
            "resource_labels": {"project": home.project_id},
            "deletion_protection": False,
        },
    )
    pool = {
        **place,
        "cluster_name": cluster.cluster_name,
        "node_service_account": cluster.node_service_account,
        "zones": [ZONE],
        "network_tags": [network.name],
    }
    system = CpuNodePool("system", **pool, machine_type="n2-standard-8", min_nodes=1, max_nodes=2)
    gpus = GpuNodePool(
        "gpus",
        {
            **pool,
            "machine_type": "g2-standard-8",
            "max_nodes": 2,
            "reservation": reserved.name,
            "deletion_protection": False,
        },
        pulumi.ResourceOptions(depends_on=[system]),
    )

    inside = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, gpus]))
    # Pulumi makes up its name, which nobody knows before it is there.
    namespace = k8s.core.v1.Namespace("work", opts=inside).metadata["name"]
    settings = k8s.core.v1.ConfigMap(
        "settings", metadata={"namespace": namespace}, data={"A": "1"}, opts=inside
    )
    claim = {"namespace": namespace, "size": "10Gi", "storage_class": "standard-rwo"}
    volume = Volume("results", {**claim, "data": False}, inside)
    pod = {"image": IMAGE, "command": ["nvidia-smi"], "gpu": "L4", "gpus": 1}
    pod |= {"cpu": "1", "memory": "4Gi"}
    job = TrainingJob(
        "train",
        {
            **pod,
            "namespace": namespace,
            "env": {"TOKEN": pulumi.Output.secret("hunter2"), "PROJECT": home.project_id},
            "env_from": [{"config_map": settings.metadata["name"]}],
            "mounts": [{"claim": volume.claim_name, "path": "/results"}],
        },
        inside,
    )
    quota = {"gpus": 2, "cpu": "8", "memory": "32Gi", "storage": "1Ti"}
    account = {
        "google_account": cluster.node_service_account,
        "workload_pool": cluster.workload_pool,
    }
    given = {
        "group": home.org_id.apply(lambda _: "ml@acme.example"),
        "egress_networks": [subnetwork.ip_cidr_range],
    }
    team = TeamNamespace("team", {**quota, **given, "service_account": account}, inside)
    plain = {**pod, "namespace": team.namespace}
    after_team = pulumi.ResourceOptions(depends_on=[team])
    Task("check", plain, pulumi.ResourceOptions.merge(inside, after_team))

    pulumi.export("namespace", job.namespace)
