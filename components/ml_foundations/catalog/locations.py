"""Zones and regions of Google Cloud, by their names."""

import re

REGION = r"[a-z]+-[a-z]+\d+"
"""The form of a region's name."""
_ZONE = re.compile(f"{REGION}-[a-z]")


def is_zone(location: str) -> bool:
    """Return whether a location is a zone rather than a region."""
    return _ZONE.fullmatch(location) is not None


def is_region(location: str) -> bool:
    """Return whether a location has the form of a region's name."""
    return re.fullmatch(REGION, location) is not None


def region_of(location: str) -> str:
    """Return the region that a location is or belongs to."""
    return location.rpartition("-")[0] if is_zone(location) else location


def zone_fault(zone: str, region: str) -> str:
    """Return why nodes of a cluster in a region cannot be in a zone; nothing if they can."""
    if not is_zone(zone):
        return f"{zone} is not a zone; set one such as {region}-a"
    if region_of(zone) != region:
        return f"{zone} is in {region_of(zone)}, and location is {region}; correct one"
    return ""
