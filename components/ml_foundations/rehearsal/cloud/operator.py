"""Whether the NVIDIA GPU Operator runs in the replica, and how it is set."""

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.kubernetes.objects import section
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal

HELM_SECRETS = "owner=helm,status=deployed"
"""The label selector of the Secrets in which Helm keeps the releases that are deployed."""


def find(rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]) -> Operator | None:
    """The operator, where its chart is released; for the arguments see ``released``."""
    release = released(GPU_OPERATOR.name, rehearsal, releases)
    if release is None:
        return None
    return Operator.of(release.get("values") or {}, release.get("version"))


def released(
    chart: str, rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The release of a chart: its values and version; None where there is none.

    Helm's releases are as ``read_release`` gives them; the rehearsal recorded those whose chart is out of reach.
    """
    recorded = (read_json(path, {}) for path in rehearsal.releases_dir.glob("*.json"))
    # Of a release that Helm installed, Helm's own Secret is the truth: `helm uninstall` deletes it.
    for release in (*(entry for entry in recorded if not entry.get("installed")), *releases):
        if str(release.get("chart", "")).rpartition("/")[2] == chart:
            return release
    return None


def read_release(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return chart, version and values of the Helm release that a Secret holds."""
    release = unpacked(secret)
    chart = section(release, "chart", "metadata")
    known = {"chart": chart.get("name"), "version": chart.get("version")}
    return known | {"values": release.get("config") or {}}


def unpacked(secret: Mapping[str, Any]) -> dict[str, Any]:
    """The Helm release that a Secret holds, as Helm writes it; empty if it cannot be read."""
    try:
        return json.loads(
            gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"])))
        )
    except (KeyError, ValueError, OSError, EOFError, zlib.error):
        return {}
