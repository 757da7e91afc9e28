"""The interface of an embedded plugin, in plain Python values."""

import hashlib
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, kept_secret, redacted

_MOVED = "If the program has renamed the resource or moved it to another parent"
RENAMED = f"{_MOVED}, add the old name to its aliases"
"""A fix for an existing object: without an alias, Pulumi creates the new resource first."""


@dataclass(frozen=True)
class Resource:
    """The resource that a call is about."""

    urn: str
    type: str
    """Such as ``kubernetes:core/v1:Namespace``."""
    name: str
    """The name in the program."""
    id: str = ""
    timeout: float = 0
    """Seconds that the user allows, by customTimeouts; 0 if not set."""
    ignore: tuple[str, ...] = ()
    """Paths whose changes the user ignores (ignoreChanges)."""
    seed: bytes = b""
    """The engine's random bytes for a new name: those of the preview are those of the update."""
    proposed_name: str = ""
    """The name to use if the program sets none (pulumi:autonaming); empty if not configured."""
    must_be_named: bool = False
    """Whether the user wants an error if the program sets no name."""
    message_inputs: Any = None
    """The inputs as the message has them, with secrets marked."""

    @property
    def digits(self) -> str:
        """Return the hexadecimal digits for a new name."""
        return hashlib.sha256(self.seed or secrets.token_bytes()).hexdigest()

    def redacted(self, value: Any) -> Any:
        """Return inputs or outputs as they may be written to a file: without secrets."""
        return redacted(kept_secret(value, self.message_inputs))


@dataclass(frozen=True)
class Diff:
    """The changes of an update. Paths are Pulumi property paths, such as ``spec.template``."""

    changed: list[str] = field(default_factory=list[str])
    replaces: list[str] = field(default_factory=list[str])
    delete_before_replace: bool = False


@dataclass(frozen=True)
class State:
    """A resource's state: its id, inputs and outputs."""

    id: str
    inputs: Properties
    outputs: Properties


class CheckError(Exception):
    """Invalid inputs: pairs of a property path and the reason."""

    def __init__(self, *failures: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{path}: {reason}" for path, reason in failures))
        self.failures = failures


class InitFailedError(Exception):
    """A resource that exists but is not ready: Pulumi keeps it, and the next update tries again."""

    def __init__(self, state: State, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.state = state
        self.reasons = reasons


class Provider:
    """The interface of an embedded plugin. Methods may block: each call has its own thread."""

    sdk: ClassVar[Sdk]
    """The resource types, whose schema programs in other languages get."""
    keeps_nulls: ClassVar[bool] = False
    """Whether a null inside a property has a meaning, as in Helm's values; else it is dropped."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        """Set when the user interrupts the update: every wait must end soon."""
        self.log: Callable[[Resource, str, str], None] = lambda resource, severity, message: None
        """Show a message about a resource: severity is debug, info, warning, error or status."""

    def check_config(self, config: Properties) -> None:
        """Check the provider's own configuration; raises CheckError."""

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Return the changes of the provider's configuration; by default they replace nothing."""
        return Diff([key for key in {*old, *new} if old.get(key) != new.get(key)])

    def configure(self, config: Properties) -> None:
        """Accept the provider's configuration."""

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """Return the result of a function; raises RehearsalError for an unknown one."""
        fix = "Declare what it would look up instead"
        raise RehearsalError(f"{function}: a rehearsal does not answer this function. {fix}")

    def construct(self, type: str, name: str, inputs: Mapping[str, Any], options: Any) -> Any:
        """Return a ``pulumi.ComponentResource``; raises RehearsalError for an unknown type."""
        fix = "Declare the objects that it would make"
        raise RehearsalError(f"{type} is not supported in a rehearsal. {fix}")

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Return the inputs with defaults and names filled in; raises CheckError."""
        raise NotImplementedError

    def diff(self, resource: Resource, old: State, new: Properties) -> Diff:
        """Return the changes of an update."""
        raise NotImplementedError

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """Return the expected outputs of a create or update; UNKNOWN for those not known yet."""
        raise NotImplementedError

    def create(self, resource: Resource, new: Properties) -> State:
        """Create it; raises InitFailedError if it exists but is not ready."""
        raise NotImplementedError

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Update it; raises InitFailedError if it is not ready afterwards."""
        raise NotImplementedError

    def read(self, resource: Resource, old: State) -> State | None:
        """Return the live resource, or None if it is gone. ``old`` is empty on an import."""
        raise NotImplementedError

    def delete(self, resource: Resource, old: State) -> None:
        """Delete it; one that is already gone is not an error."""
        raise NotImplementedError
