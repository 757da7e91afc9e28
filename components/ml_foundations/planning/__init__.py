"""Judge whether workloads fit, from manifests alone: without Pulumi and without a cluster.

Each of these packages imports only those before it: ``model`` (workloads, pods, nodes, volumes, and
the decisions about them), ``input`` (YAML documents and Pulumi programs), ``scheduler`` (the nodes
that pods may run on), ``api_server`` (its defaults and rejections), ``rules`` (what a stack should
meet besides) and ``verdict`` (the judgement, and its reasons in words).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ml_foundations.kubernetes.trees import UNKNOWN

if TYPE_CHECKING:  # loaded at the first use: importing one package must not load all of them
    from ml_foundations.planning.rules.findings import Finding, Severity
    from ml_foundations.planning.verdict.judging import Verdict, Verdicts, WorkloadVerdict, judge

__all__ = ["UNKNOWN", "Finding", "Severity", "Verdict", "Verdicts", "WorkloadVerdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "rules.findings" if name in ("Finding", "Severity") else "verdict.judging"
    return getattr(import_module(f"{__name__}.{module}"), name)
