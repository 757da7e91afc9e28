"""Generate the part of docs/workloads.md about the objects that each workload creates."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_foundations
from ml_foundations.component.children import ChildResource, CloudResource
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.spec import check

from codegen import ROOT

PAGE = ROOT / "docs" / "workloads.md"
START = "<!-- generated: make generate -->"
END = "<!-- end -->"

_Arguments = dict[str, Any]

_POD: _Arguments = {"namespace": "ml", "image": "i", "cpu": "8", "memory": "64Gi"}
_SERVER: _Arguments = {
    "name": "chat",
    "namespace": "ml",
    "selector": {"app": "chat"},
    "port": 8000,
    "health_path": "/health",
}
_TEAM: _Arguments = {"namespace": "ml", "cpu": "8", "memory": "64Gi", "gpus": {"l4": 1}}

_MORE: dict[str, _Arguments] = {
    "DistributedTraining": {"nodes": 2},
    "NcclTest": {"nodes": 2, "gpu_fabric": {"kind": "rdma", "gpus_per_node": 8}},
    "Sweep": {"command": ["python", "train.py"], "parameters": {"LR": {"values": [0.1]}}},
    "ScheduledTraining": {"schedule": "@daily"},
    "ShardedSet": {"shards": 2},
    "RayJob": {"entrypoint": ["python", "train.py"]},
}
"""The arguments that a workload requires in addition to its pod."""

LEAST: dict[str, _Arguments] = {
    **{
        name: _POD | _MORE.get(name, {})
        for name, module in ml_foundations.COMPONENTS.items()
        if module.startswith("workloads.")
    },
    "InferenceGateway": {
        "namespace": "ml",
        "servers": [_SERVER],
        "proxy_only_cidr": "10.21.0.0/23",
    },
    "ModelCache": {"namespace": "ml", "bucket": "my-models"},
    "TrainJob": {"namespace": "ml", "runtime": "torch"},
    "GpuMonitor": {},
    "TrainingQueue": {"flavors": [{"name": "l4", "gpu": "L4"}], "teams": [_TEAM]},
}
"""The components for workloads, each with what it must be given."""

_CLAIM: _Arguments = {"gpus": 1, "gpu_claim": {}}
CHOICES: dict[str, _Arguments] = {
    "gpu_claim": _CLAIM,
    "jobset: true": {"jobset": True},
    "nodes: 2": {"nodes": 2, "launcher": "none"},
    "autoscaling": {"autoscaling": {"max_replicas": 2, "cpu_percent": 80}},
    "served_by: gke": {
        "autoscaling": {"max_replicas": 2, "metric": "m", "target": "1", "served_by": "gke"}
    },
    "disruption_budget: false": {"disruption_budget": False},
    "callers": {"callers": ["web"]},
    "api_key_env": {"api_key_env": "VLLM_API_KEY"},
    "monitoring: google": {"monitoring": "google"},
    "monitoring: prometheus": {"monitoring": "prometheus"},
    "files": {"files": {"/a.yaml": "a: 1"}},
    "service: false": {"service": False},
    "port: 0": {"port": 0},
    "image": {"bucket": None, "image": "models/r1@sha256:0"},
    "size": {
        "bucket": None,
        "size": "1Ti",
        "download": {"image": "google/cloud-sdk", "command": ["gcloud"]},
    },
    "create_namespace: false": {"create_namespace": False},
    "install: false": {"install": False},
}
"""Arguments on which it depends which objects are made."""


def files() -> dict[Path, str]:
    """Return the page, with its generated part."""
    before, _, rest = PAGE.read_text().partition(START)
    lines = ["| component | makes | and, by argument |", "|---|---|---|", *map(_row, LEAST)]
    return {PAGE: f"{before}{START}\n\n{chr(10).join(lines)}\n\n{END}{rest.partition(END)[2]}"}


def _kinds(component: str, args: _Arguments) -> list[str]:
    """Return the kinds of the objects that a component creates, each once."""
    spec = getattr(ml_foundations, component).spec_type()
    named = {spec.name_field: "x"} if spec.name_field else {}
    return sorted(
        {_kind(part) for part in check(spec, component, named | args).declared_children()}
    )


def _kind(part: ChildResource) -> str:
    return (
        part.declared.type.rpartition(":")[2]
        if isinstance(part.declared, CloudResource)
        else part.declared["kind"]
    )


def _row(component: str) -> str:
    """Return the objects of a component, and those that each argument adds or removes."""
    least = _kinds(component, LEAST[component])
    said: list[str] = []
    for choice, args in CHOICES.items():
        with suppress(ArgumentsError):  # not a choice that this component has
            made = _kinds(component, LEAST[component] | args)
            said += [f"`{choice}`: {change}"] if (change := _changed(least, made)) else []
    name = f"[{component}](components/{component}.md)"
    return f"| {name} | {', '.join(least)} | {'; '.join(said)} |"


def _changed(before: list[str], after: list[str]) -> str:
    """Return the difference between two lists of kinds, in words."""
    come = [kind for kind in after if kind not in before]
    gone = [kind for kind in before if kind not in after]
    if come and gone:
        return f"{', '.join(come)} in place of {', '.join(gone)}"
    return ", ".join(come) or (f"no {', no '.join(gone)}" if gone else "")
