"""Whether workloads fit: pure Python over manifests, without Pulumi and without a cluster.

The rooms, of which each imports those before it: ``model`` (workloads, pods, nodes, volumes, and what is decided about
them), ``input`` (YAML documents and Pulumi programs), ``scheduler`` (where pods may go), ``api_server`` (what it fills
in, and what it refuses) and ``verdict`` (judging, then putting the reasons into words).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ml_foundations.kubernetes.trees import UNKNOWN

if TYPE_CHECKING:  # it is loaded when it is first used: who needs one room does not pay for all
    from ml_foundations.planning.verdict.judging import (
        Finding,
        Severity,
        Verdict,
        Verdicts,
        WorkloadVerdict,
        judge,
    )

__all__ = ["UNKNOWN", "Finding", "Severity", "Verdict", "Verdicts", "WorkloadVerdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.verdict.judging"), name)
