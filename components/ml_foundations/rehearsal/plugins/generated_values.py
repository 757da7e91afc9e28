"""What the providers of made values have in common: a value is made once, and kept in Pulumi's state alone."""

from typing import ClassVar

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.input_errors import faults
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties


class StatelessProvider(Provider):
    """Makes a value once; a change of an input makes another."""

    changes_in_place: ClassVar[frozenset[str]] = frozenset()
    """The inputs whose change leaves the value as it is."""

    def make(self, kind: str, given: Properties) -> tuple[str, Properties]:
        """The id of a new value of a kind, such as ``RandomId``, and its outputs beside the inputs."""
        raise NotImplementedError

    def check(
        self, resource: Resource, old: Properties, new: Properties, seed: bytes
    ) -> Properties:
        """Refuse types and inputs that the package does not have."""
        if resource.type not in self.sdk:
            raise CheckError(
                [
                    (
                        "",
                        f"{resource.type} is not a type of pulumi-{self.sdk.package} {self.sdk.version}",
                    )
                ]
            )
        if found := list(faults(self.sdk, resource.type, self.sdk[resource.type], new)):
            raise CheckError(found)
        return new

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Nearly every change replaces."""
        changed = list(changed_paths(old.inputs, new))
        return Diff(
            changed, [path for path in changed if not is_below(path, self.changes_in_place)]
        )

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """The inputs; the value is not known before it is made."""
        return (
            dict.fromkeys(self.sdk[resource.type].computed, UNKNOWN)
            | (old.outputs if old else {})
            | new
        )

    def create(self, resource: Resource, new: Properties) -> State:
        """Make a value."""
        identity, outputs = self.make(resource.type.rpartition(":")[2], new)
        return State(identity, new, new | outputs)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """The value as it is, beside the new inputs."""
        return State(old.id, new, old.outputs | new)

    def read(self, resource: Resource, old: State) -> State | None:
        """The value as it was made."""
        if not old.outputs:
            raise RehearsalError(
                f"{resource.type} cannot be imported in a rehearsal. Let the program make it"
            )
        return old

    def delete(self, resource: Resource, old: State) -> None:
        """Nothing is kept outside Pulumi's state."""
