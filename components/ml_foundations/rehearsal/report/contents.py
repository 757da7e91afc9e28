"""The state of a rehearsal as data: pools, workloads, quotas, and what was only recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ml_foundations.catalog.versions import DRA_DRIVER, GPU_OPERATOR, NFS_PROVISIONER
from ml_foundations.kubernetes.manifests import RELEASE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud import overview
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import workloads
from ml_foundations.rehearsal.report.workloads import Workload

_SIMULATED = {
    GPU_OPERATOR.name: "its labels and GPUs are simulated",
    DRA_DRIVER.name: "its ResourceSlices are simulated",
    NFS_PROVISIONER.name: "its volumes are simulated",
}
"""What a rehearsal has in place of a chart that it only records."""


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota: what it allows and what is used."""

    namespace: str
    name: str
    hard: dict[str, str]
    used: dict[str, str]


@dataclass(frozen=True)
class Report:
    """The state of one rehearsal, as data."""

    stack: str
    pools: list[dict[str, Any]]
    workloads: list[Workload]
    quotas: list[Quota]
    recorded: list[dict[str, str]]

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2)

    @property
    def unwell(self) -> list[Workload]:
        """The workloads that neither run nor have run to completion."""
        return [workload for workload in self.workloads if not workload.is_well]


def collect(rehearsal: Rehearsal) -> Report:
    """Read the replica and the simulated Google Cloud."""
    api = Api(Access(rehearsal.kubeconfig))
    return Report(
        stack=rehearsal.stack,
        pools=overview.pools(rehearsal),
        workloads=workloads.collect(api, overview.history(rehearsal), overview.pools_without_operator(rehearsal)),
        quotas=_quotas(api),
        recorded=overview.recorded(rehearsal) + _recorded_releases(rehearsal),
    )


def _quotas(api: Api) -> list[Quota]:
    return [
        Quota(
            quota["metadata"]["namespace"],
            quota["metadata"]["name"],
            quota["status"].get("hard") or quota["spec"].get("hard") or {},
            quota["status"].get("used") or {},
        )
        for quota in api.get("/api/v1/resourcequotas")["items"]
        if not workloads.is_system(quota["metadata"]["namespace"])
    ]


def _recorded_releases(rehearsal: Rehearsal) -> list[dict[str, str]]:
    releases = (read_json(path, {}) for path in sorted(rehearsal.releases_dir.glob("*.json")))
    return [
        {
            "type": RELEASE,
            "name": f"{r['namespace']}/{r['name']}",
            "instead": _SIMULATED.get(r["chart"]) or r["instead"],
        }
        for r in releases
        if not r["installed"]
    ]
