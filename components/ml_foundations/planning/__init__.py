"""Whether workloads fit: pure Python over manifests, without Pulumi and without a cluster."""

from ml_foundations.planning.findings import Finding, Severity, Verdict
from ml_foundations.planning.judging import Verdicts, WorkloadVerdict, judge
from ml_foundations.planning.manifests import UNKNOWN

__all__ = ["UNKNOWN", "Finding", "Severity", "Verdict", "Verdicts", "WorkloadVerdict", "judge"]
