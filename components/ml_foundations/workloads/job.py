"""The arguments that Jobs share: ports, failures, retries, completions and waiting."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import derived
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.pod import WorkloadSpec
from ml_foundations.workloads.pod_template import pod_template

_DEFAULT_RETRIES = 3
_IGNORE_DISRUPTIONS = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""Preemption, drains and the loss of a node are no failures of the training."""


class ContainerPort(Spec):
    """A port on which a pod listens."""

    port: int = Field(ge=1, le=65535)
    """The number of the port."""
    name: str | None = Field(None, max_length=15)
    """The name of the port."""


class JobSpec(WorkloadSpec):
    """Arguments that all Jobs have.

    They set how failures are retried, and when the Job ends.
    """

    ports: list[ContainerPort] = []
    """Ports on which its pods listen. To Kubernetes, they are only documentation."""
    restart_policy: Literal["Never", "OnFailure"] = "Never"
    """Never: a new pod replaces a failed one. OnFailure: the container restarts in the same pod.
    The default is Never."""
    backoff_limit: int | None = Field(None, ge=0)
    """Failures that are retried before the Job fails. The default is 3."""
    fail_on_exit_codes: list[int] = []
    """Exit codes of errors that no retry can fix, such as that of an invalid argument. The Job then
    fails at once."""
    ignore_disruptions: bool | None = None
    """Do not count preempted, drained and lost pods as failures. The default is true if
    restart_policy is Never."""
    pod_failure_rules: list[dict[str, Any]] = []
    """More rules of the podFailurePolicy in Kubernetes' form. They follow the rule of
    fail_on_exit_codes."""
    active_deadline_seconds: int | None = Field(None, ge=1)
    """The most seconds that the Job may run, including retries."""
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    """Seconds after its end until the Job is deleted. A later refresh finds it missing, and the
    next up trains again."""

    @property
    def retries(self) -> int | None:
        """Failures before the Job fails; None where they count per index."""
        return _DEFAULT_RETRIES if self.backoff_limit is None else self.backoff_limit

    @property
    def deadline(self) -> int | None:
        """The longest that the Job may take, in seconds."""
        return self.active_deadline_seconds

    @property
    def ignores_disruptions(self) -> bool:
        """Return whether preempted, drained and lost pods do not count as failures."""
        return self.ignore_disruptions is not False

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.restart_policy != "Never":
            for field in ("fail_on_exit_codes", "pod_failure_rules", "ignore_disruptions"):
                if getattr(self, field):
                    yield field, f"requires restart_policy Never, not {self.restart_policy}"
        if wrong := [code for code in self.fail_on_exit_codes if not 1 <= code <= 255]:
            yield "fail_on_exit_codes", f"{wrong} are no exit codes of a failure: 1 to 255"

    def hostname_errors(
        self, pods: int, before: str = "", after: str = ""
    ) -> Iterator[tuple[str, str]]:
        """Yield an error if the host name of the Job's last pod is too long.

        It is the Job's name with the last index, and with ``before`` and ``after`` around the
        index.

        Something may stand between the Job's name and the index, and after the index.
        """
        try:
            derived(self.workload_name, f"{before}-{pods - 1}{after}")
        except ValueError as error:
            yield self.name_field or "", f"is too long for the host names of its pods: {error}"

    def template(
        self,
        env: Mapping[str, Mapping[str, Any]] | None = None,
        container: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the pod template, with the component's variables and further fields.

        The user's variables replace the component's.
        """
        ports = [
            without_none({"name": port.name, "containerPort": port.port}) for port in self.ports
        ]
        fields = {**({"ports": ports} if ports else {}), **(container or {})}
        return pod_template(self, self.restart_policy, fields, env, pod)

    def job_body(self, indexes: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of the Job, with the fields about its number of pods."""
        fields = {
            **indexes,
            "backoffLimit": self.retries,
            "activeDeadlineSeconds": self.deadline,
            "ttlSecondsAfterFinished": self.ttl_seconds_after_finished,
            "podFailurePolicy": self._pod_failure_policy(),
            "template": template,
        }
        return without_none(fields)

    def _pod_failure_policy(self) -> dict[str, Any] | None:
        """Return the rules for failures; the first match decides.

        Errors that no retry can fix come first, disruptions last.
        """
        if self.restart_policy != "Never":
            return None
        fatal = {
            "containerName": self.container_name,
            "operator": "In",
            "values": sorted({*self.fail_on_exit_codes}),
        }
        rules = [
            *([{"action": "FailJob", "onExitCodes": fatal}] if self.fail_on_exit_codes else []),
            *self.pod_failure_rules,
            *([_IGNORE_DISRUPTIONS] if self.ignores_disruptions else []),
        ]
        return {"rules": rules} if rules else None
