"""Whether workloads fit: pure Python over manifests, without Pulumi and without a cluster."""

from ml_foundations.kubernetes.manifests import UNKNOWN
from ml_foundations.planning.verdict.findings import Finding, Severity, Verdict
from ml_foundations.planning.verdict.judging import Verdicts, WorkloadVerdict, judge

__all__ = ["UNKNOWN", "Finding", "Severity", "Verdict", "Verdicts", "WorkloadVerdict", "judge"]
