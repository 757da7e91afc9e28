"""The number of pods of a Job, and how their failures count."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.workloads.job import JobSpec


class CompletionsSpec(JobSpec):
    """Arguments about the pods of a Job.

    They set the number of pods, and how their failures count.
    """

    completions: int = Field(1, ge=1)
    """Pods that must succeed. The default is 1."""
    parallelism: int = Field(1, ge=0)
    """Pods that run at once. The default is 1."""
    indexed: bool = False
    """Number the pods from 0 on, with the variable JOB_COMPLETION_INDEX. The default is false."""
    backoff_limit_per_index: int | None = Field(None, ge=0)
    """Failures that are retried for each index, instead of for the whole Job. Requires indexed."""
    max_failed_indexes: int | None = Field(None, ge=0)
    """Indexes that may fail before the Job fails. By default, all. Requires
    backoff_limit_per_index."""
    success_rules: list[dict[str, Any]] = []
    """Rules of the successPolicy in Kubernetes' form, for Jobs that succeed with some of the
    indexes. Requires indexed."""

    @property
    @override
    def retries(self) -> int | None:
        if self.backoff_limit is None and self.backoff_limit_per_index is not None:
            return None
        return super().retries

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.backoff_limit_per_index is not None:
            if not self.indexed:
                yield "backoff_limit_per_index", "requires indexed: true"
            if self.restart_policy != "Never":
                reason = f"requires restart_policy Never, not {self.restart_policy}"
                yield "backoff_limit_per_index", reason
        if self.success_rules and not self.indexed:
            yield "success_rules", "requires indexed: true"
        if self.max_failed_indexes is not None:
            if self.backoff_limit_per_index is None:
                yield "max_failed_indexes", "requires backoff_limit_per_index"
            if self.max_failed_indexes > self.completions:
                reason = f"is {self.max_failed_indexes}, above completions ({self.completions})"
                yield "max_failed_indexes", reason

    def completion_fields(self) -> dict[str, Any]:
        """Return the fields of the Job's spec about its number of pods."""
        return {
            "completions": self.completions,
            "parallelism": self.parallelism,
            "completionMode": "Indexed" if self.indexed else None,
            "backoffLimitPerIndex": self.backoff_limit_per_index,
            "maxFailedIndexes": self.max_failed_indexes,
            "successPolicy": {"rules": self.success_rules} if self.success_rules else None,
        }
