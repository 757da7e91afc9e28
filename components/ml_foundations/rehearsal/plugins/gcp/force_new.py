"""The properties of clusters and node pools whose change replaces them, as the provider marks them."""

from __future__ import annotations

from collections.abc import Mapping

from ml_foundations.rehearsal.plugins.gcp.container import CLUSTER, NODE_POOL

_NODE_CONFIG = """
    advancedMachineFeatures bootDiskKmsKey confidentialNodes enableConfidentialStorage ephemeralStorageConfig
    ephemeralStorageLocalSsdConfig flexStart guestAccelerators hostMaintenancePolicy localNvmeSsdBlockConfig
    localSsdCount localSsdEncryptionMode maxRunDuration metadata minCpuPlatform nodeGroup oauthScopes preemptible
    reservationAffinity sandboxConfig secondaryBootDisks serviceAccount shieldedInstanceConfig soleTenantConfig spot
"""
_CLUSTER = """
    clusterIpv4Cidr confidentialNodes datapathProvider defaultMaxPodsPerNode description enableAutopilot
    enableKubernetesAlpha enableMultiNetworking enableTpu initialNodeCount ipAllocationPolicy location
    masterAuth.clientCertificateConfig name network networkingMode privateClusterConfig.masterIpv4CidrBlock
    privateClusterConfig.privateEndpointSubnetwork project subnetwork
"""
_NODE_POOL = """
    cluster initialNodeCount location maxPodsPerNode name namePrefix networkConfig.acceleratorNetworkProfile
    networkConfig.additionalNodeNetworkConfigs networkConfig.additionalPodNetworkConfigs
    networkConfig.createPodRange networkConfig.podIpv4CidrBlock networkConfig.podRange placementPolicy project
    queuedProvisioning
"""


def _properties(own: str) -> tuple[str, ...]:
    return (*own.split(), *(f"nodeConfig.{key}" for key in _NODE_CONFIG.split()))


FORCES_NEW: Mapping[str, tuple[str, ...]] = {CLUSTER: _properties(_CLUSTER), NODE_POOL: _properties(_NODE_POOL)}
