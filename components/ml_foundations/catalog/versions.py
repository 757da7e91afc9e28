"""The one home of the versions of charts and images that the components deploy."""

from typing import NamedTuple


class Chart(NamedTuple):
    """A Helm chart, pinned."""

    name: str
    version: str
    repo: str


GPU_OPERATOR = Chart("gpu-operator", "v26.7.0", "https://helm.ngc.nvidia.com/nvidia")
NFS_PROVISIONER = Chart(
    "nfs-subdir-external-provisioner",
    "4.0.18",
    "https://kubernetes-sigs.github.io/nfs-subdir-external-provisioner/",
)
DRA_DRIVER = Chart(
    "dra-driver-nvidia-gpu", "0.4.1", "oci://registry.k8s.io/dra-driver-nvidia/charts"
)

DRIVER_INSTALLER_IMAGES = {
    "cos": "cos-nvidia-installer:fixed",
    "ubuntu": "gke-nvidia-installer:fixed",
}
"""Images that are part of the node images of GKE; they have no other version than the node's."""

GPU_PARTITIONER_IMAGE = (
    "gcr.io/gke-release/nvidia-partition-gpu"
    "@sha256:de12f85ebfb4fb6c1893cd30c23aab662a72fa0448f97ef74fccb82d7522ef17"
)
PAUSE_IMAGE = (
    "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
)

DCGM_EXPORTER_IMAGE = (
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless"
    "@sha256:613ab03c11d442fd960ff515f547e9921537454a712d08160bc8f677f89f1c35"
)
"""The image of the GPU Operator's release (NVIDIA/gpu-operator v26.7.0, bundle/manifests)."""

TCPX_PLUGIN_IMAGE = (
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9"
)
TCPX_DAEMON_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12"
TCPXO_PLUGIN_IMAGE = (
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15"
    "@sha256:4c9f0de3f39455a2ea35e844e0fc92564ca5629f6b03250fde40e8160719dae4"
)
TCPXO_DAEMON_IMAGE = (
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21"
    "@sha256:8d9e10fd589a34ab8a0aa64f7e70ad075c8f1c69bea176350f8d211367697e3d"
)
"""The plugin of NCCL and its daemon are released as pairs (container-engine-accelerators@992db812,
gpudirect-tcpx and gpudirect-tcpxo)."""
GIB_PLUGIN_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.1"
DEVICE_INJECTOR_IMAGE = (
    "gcr.io/gke-release/nri-device-injector"
    "@sha256:6e79483d52abdc28454bf186320b10a56b0f117a10e8d65d5c74dbb821a76970"
)
HOST_SHELL_IMAGE = (
    "ubuntu:24.04@sha256:4fbb8e6a8395de5a7550b33509421a2bafbc0aab6c06ba2cef9ebffbc7092d90"
)
"""An image with nsenter, by which an installer runs commands in the node's own namespaces."""
GIB_TEST_IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:v1.1.1"
"""The plugin with ssh, MPI and the NCCL tests, which the other plugins' images have."""

ENDPOINT_PICKER_IMAGE = "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0"
BODY_ROUTER_IMAGE = "registry.k8s.io/gateway-api-inference-extension/bbr:v1.5.0"
"""The images of the last release of gateway-api-inference-extension that has both (v1.5.0,
config/charts)."""
DIVIDED_PICKER_IMAGE = (
    "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
    "@sha256:873179822ab0895a37ea09f2112ca39a6ae50a26612561c8bfad7f9a8c5af6f5"
)
ROUTING_SIDECAR_IMAGE = (
    "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
    "@sha256:4cc3f15f254c26df7611e3b92ff7c82f83ad4ecb325de639c9dfb32873c6ce90"
)
"""The picker that knows prefill and decode, and the sidecar of decode pods, are released together
(llm-d-router v0.9.0)."""

METRICS_ADAPTER_IMAGE = "gcr.io/gke-release/custom-metrics-stackdriver-adapter:v0.16.9-gke.0"

KUEUE = Chart("kueue", "0.19.2", "oci://registry.k8s.io/kueue/charts")
JOBSET = Chart("jobset", "0.11.1", "oci://registry.k8s.io/jobset/charts")
LWS = Chart("lws", "0.9.0", "oci://registry.k8s.io/lws/charts")
TRAINER = Chart("kubeflow-trainer", "2.2.1", "oci://ghcr.io/kubeflow/charts")

RANDOM_PROVIDER = "4.21.4"
"""The version of Pulumi's random provider (PyPI, 2026-10). Pulumi installs it: no SDK for it is
needed."""
KUBERAY = Chart("kuberay-operator", "1.6.2", "https://ray-project.github.io/kuberay-helm")
TRAINER_API = "trainer.kubeflow.org/v1alpha1"
"""The API version of TrainJobs and their runtimes (trainer v2.2.1, pkg/apis)."""
