"""The Helm releases of the replica, above all that of the NVIDIA GPU Operator."""

import base64
import gzip
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.reading import json_value
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal

HELM_SECRETS = "owner=helm,status=deployed"
"""The label selector of the Secrets in which Helm keeps deployed releases."""


def find(rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]) -> Operator | None:
    """Return the operator if its chart is released. The arguments are those of ``find_release``."""
    release = find_release(GPU_OPERATOR.name, rehearsal, releases)
    if release is None:
        return None
    return Operator.of(release.get("values") or {}, release.get("version"))


def find_release(
    chart: str, rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return chart, version and values of the release of a chart, or None.

    The rehearsal records the releases of charts that are not available. Helm's own releases are in
    Secrets, which ``helm uninstall`` deletes; ``releases`` is what ``read_release`` reads of them.
    """
    records = map(partial(read_json, default={}), rehearsal.releases_dir.glob("*.json"))
    recorded = [record for record in records if not record.get("installed")]
    for release in (*recorded, *releases):
        if str(release.get("chart", "")).rpartition("/")[2] == chart:
            return release
    return None


def read_release(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return chart, version and values of the Helm release in a Secret."""
    release = unpacked(secret)
    chart = section(release, "chart", "metadata")
    values = release.get("config") or {}
    return {"chart": chart.get("name"), "version": chart.get("version"), "values": values}


def unpacked(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Helm release in a Secret as Helm writes it, or nothing if it cannot be read."""
    # Helm stores JSON that is zipped and encoded. The Secret encodes it a second time.
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        return json_value(gzip.decompress(packed))
    except (KeyError, ValueError, OSError, EOFError, zlib.error):
        return {}
