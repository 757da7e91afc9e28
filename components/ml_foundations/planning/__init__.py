"""Whether workloads fit: pure Python over manifests, without Pulumi and without a cluster.

The rooms, of which each imports those before it: ``model`` (workloads, pods, nodes, volumes, and what is decided about
them), ``input`` (YAML documents and Pulumi programs), ``scheduler`` (where pods may go), ``api_server`` (what it fills
in, and what it refuses) and ``verdict`` (judging, then putting the reasons into words).
"""

from ml_foundations.kubernetes.manifests import UNKNOWN
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict

__all__ = ["UNKNOWN", "Finding", "Severity", "Verdict", "Verdicts", "WorkloadVerdict", "judge"]
