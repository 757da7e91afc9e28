"""How many pods a Job has, and how their failures count."""

from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.workloads.job import JobSpec


class CompletionsSpec(JobSpec):
    """How many pods a Job has, and how their failures count."""

    completions: int = Field(1, ge=1)
    """Pods that must succeed; default 1."""
    parallelism: int = Field(1, ge=0)
    """Pods that run at once; default 1."""
    indexed: bool = False
    """Whether each pod has its own number, from 0 on, as JOB_COMPLETION_INDEX; default false."""
    backoff_limit_per_index: int | None = Field(None, ge=0)
    """Failures that are retried for each index, rather than for the Job. Requires indexed."""
    max_failed_indexes: int | None = Field(None, ge=0)
    """Indexes that may fail before the Job fails; by default all. Requires backoff_limit_per_index."""
    success_rules: list[dict[str, Any]] = []
    """Rules of the successPolicy, as Kubernetes writes them: when some indexes are enough. Requires indexed."""

    @property
    @override
    def retries(self) -> int | None:
        if self.backoff_limit is None and self.backoff_limit_per_index is not None:
            return None
        return super().retries

    def completion_fields(self) -> dict[str, Any]:
        """The fields of the Job's spec."""
        return {
            "completions": self.completions,
            "parallelism": self.parallelism,
            "completionMode": "Indexed" if self.indexed else None,
            "backoffLimitPerIndex": self.backoff_limit_per_index,
            "maxFailedIndexes": self.max_failed_indexes,
            "successPolicy": {"rules": self.success_rules} if self.success_rules else None,
        }
