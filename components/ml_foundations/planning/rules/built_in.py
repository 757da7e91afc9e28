"""The rules of this package, in the order of their findings, and the names of all rules."""

from collections.abc import Mapping

from ml_foundations.catalog.tables import rows
from ml_foundations.planning.rules import (
    bucket_access,
    compute_classes,
    controllers,
    eviction_budgets,
    field_versions,
    gpu_operator,
    group_services,
    inference_gateways,
    kueue,
    model_servers,
    namespaces,
    network_policies,
    networks,
    node_networks,
    objects,
    pools,
    repeated,
    targets,
    values,
    webhooks,
)
from ml_foundations.planning.rules.rule import Description, Rule

OF_WORKLOADS: tuple[Rule, ...] = (values.impossible_values, model_servers.model_servers)
"""Rules whose findings are of the workload that they are about, and count for its verdict."""
OF_THE_STACK: tuple[Rule, ...] = (
    objects.own_logs,
    networks.addresses,
    networks.way_out,
    pools.all_pools,
    pools.refused_fields,
    pools.node_pools,
    networks.lacking_networks,
    node_networks.overlapping_networks,
    node_networks.network_objects,
    kueue.half_a_gang,
    gpu_operator.metrics,
    gpu_operator.device_plugins,
    gpu_operator.gpu_operator,
    pools.interfaces,
    webhooks.webhooks,
    kueue.managed_kinds,
    objects.quota_names,
    field_versions.versions,
    compute_classes.classes_and_pools,
    group_services.group_services,
    bucket_access.bucket_scans,
    inference_gateways.inference_gateways,
    targets.targets,
    network_policies.network_policies,
    eviction_budgets.eviction_budgets,
    bucket_access.bucket_access,
    controllers.controllers,
    controllers.shared_metrics_apis,
    controllers.flat_buckets,
    field_versions.later_fields,
    objects.placeholders,
    repeated.declared_twice,
    namespaces.lost_claims,
)
IF_ASKED: tuple[Rule, ...] = (objects.image_digests,)
"""Rules of the stack that a user switches on."""


def descriptions() -> list[Description]:
    """Return what users read about each rule of this package."""
    described: list[Description] = []
    for rule in (*OF_WORKLOADS, *OF_THE_STACK, *IF_ASKED):
        described += rule.descriptions
    return described


REFUSALS: Mapping[str, str] = {
    row["rule"]: row["wants"] for row in rows("refusals.csv", "ml_foundations.planning.rules")
}
"""What nodes, controllers and the API server require of each workload, by name."""
RULES: Mapping[str, str] = {
    **REFUSALS,
    **{described.name: described.condition for described in descriptions()},
}
"""What each rule requires, by the name that stack files and policy packs use."""
