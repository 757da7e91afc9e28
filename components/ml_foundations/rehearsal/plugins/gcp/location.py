"""The location of a resource: project, region and zone, by its inputs or by default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ml_foundations.catalog.locations import is_region, is_zone, region_of
from ml_foundations.rehearsal.plugins.gcp.errors import bad_request
from ml_foundations.rehearsal.progress import RehearsalError

Inputs = Mapping[str, Any]

_ZONES = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
"""The letters of a region's zones if they are not a, b and c."""


@dataclass(frozen=True)
class GcpLocation:
    """Project, region and zone in the provider's configuration; empty if it does not set them."""

    project: str = ""
    region: str = ""
    zone: str = ""

    def project_of(self, inputs: Inputs) -> str:
        """Return the project of a resource."""
        project = inputs.get("project") or self.project
        if not project:
            fix = "Set it: pulumi config set gcp:project <project>"
            raise RehearsalError(f"project: required field is not set. {fix}")
        return project

    def region_of(self, inputs: Inputs) -> str:
        """Return the region of a resource; empty if it has none, and there is no default."""
        return inputs.get("region") or self.region or region_of(self.zone)

    def location_of(self, inputs: Inputs) -> str:
        """Return the location of a cluster or pool: a region or a zone."""
        location = inputs.get("location") or self.zone or self.region
        if not location:
            raise RehearsalError("location: required field is not set. Set it, or gcp:region")
        if not (is_zone(location) or is_region(location)):
            raise bad_request(f'Location "{location}" does not exist')
        return location


def default_zones(location: str) -> list[str]:
    """Return the zones that GKE uses in a location: the zone itself, or three zones of a region."""
    return [location] if is_zone(location) else zones_of(location)[:3]


def zones_of(region: str) -> list[str]:
    """Return all known zones of a region."""
    return [f"{region}-{letter}" for letter in _ZONES.get(region, "abc")]


def check_zones(zones: list[str], location: str) -> None:
    """Refuse zones that do not belong to a location's region."""
    region = region_of(location)
    letters = _ZONES.get(region, "abcdef")
    for zone in zones:
        prefix, _, letter = zone.rpartition("-")
        if prefix != region or letter not in list(letters):
            raise bad_request(f'Location "{zone}" does not exist in region "{region}"')
