"""What each component is given: the settings of its section, and what follows from the rest of the stack file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import devices
from existing import ExistingClusterSettings

QUEUES = "training-queue"
"""The component of the queues, and their cohort."""

if TYPE_CHECKING:
    from ml_foundations.component.spec import Spec
    from ml_foundations.workloads.pod import WorkloadSettings
    from settings import Settings, Team


def cluster(settings: Settings) -> Any:
    """The cluster's: drivers that storage classes need are switched on."""
    add_ons = dict.fromkeys(settings.storage.add_ons, True)
    return add_ons | settings.cluster.given() | {"project": settings.project}


def storage(settings: Settings) -> Any:
    """Filestore and Lustre are in the cluster's own network, where the file names no other."""
    if isinstance(settings.cluster, ExistingClusterSettings):
        return settings.storage.given()
    brought = settings.cluster.network
    return {"network": brought.network if brought else settings.cluster.name} | settings.storage.given()


def pool(name: str, section: Spec, common: dict[str, Any]) -> Any:
    """A node pool's, with what it has in common with the others."""
    return common | {"pool_name": name} | section.given()


def tenancy(name: str, team: Team, settings: Settings) -> Any:
    """A namespace's: the team's service account is one of the project's Workload Identity pool."""
    arguments = team.tenancy | {"namespace": name}
    if "service_account" in arguments:
        arguments["service_account"] = {"workload_pool": settings.workload_pool} | arguments["service_account"]
    return arguments


def volume(claim: str, section: Spec, team_name: str) -> Any:
    """A volume's."""
    return section.given() | {"namespace": team_name, "claim_name": claim}


def workload(name_argument: str, name: str, section: WorkloadSettings, team_name: str, team: Team) -> Any:
    """A workload's: its priority class counts its GPUs, where they are counted by model."""
    arguments = section.given() | {"namespace": team_name, name_argument: name}
    if (priority := devices.priority_class(section, team_name, team)) is not None:
        arguments["priority_class"] = priority
    return arguments
