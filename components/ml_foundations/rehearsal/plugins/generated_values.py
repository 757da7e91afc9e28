"""A base of the providers whose resources are generated values, which only Pulumi's state keeps."""

from typing import ClassVar

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties


class StatelessProvider(Provider):
    """A provider that generates each value once, and again if an input changes."""

    changes_in_place: ClassVar[frozenset[str]] = frozenset()
    """The inputs that may change without a new value."""

    def generate(self, kind: str, inputs: Properties) -> tuple[str, Properties]:
        """Return the id and the computed outputs of a new value of a kind, such as ``RandomId``."""
        raise NotImplementedError

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Refuse types and inputs that the package does not have."""
        if resource.type not in self.sdk:
            package = f"pulumi-{self.sdk.package} {self.sdk.version}"
            raise CheckError(("", f"{resource.type} is not a type of {package}"))
        if errors := self.sdk.input_errors(resource.type, new):
            raise CheckError(*errors)
        return new

    def diff(self, resource: Resource, old: State, new: Properties) -> Diff:
        """Replace the value for every change, except those of ``changes_in_place``."""
        changed = list(changed_paths(old.inputs, new))
        replaces = [path for path in changed if not is_below(path, self.changes_in_place)]
        return Diff(changed, replaces)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """Return the inputs and the outputs; those of a new value are unknown."""
        outputs = dict.fromkeys(self.sdk[resource.type].computed, UNKNOWN)
        return outputs | (old.outputs if old else {}) | new

    def create(self, resource: Resource, new: Properties) -> State:
        """Generate a value."""
        identity, outputs = self.generate(resource.type.rpartition(":")[2], new)
        return State(identity, new, new | outputs)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Keep the value, with the new inputs."""
        return State(old.id, new, old.outputs | new)

    def read(self, resource: Resource, old: State) -> State | None:
        """Return the value as it was generated."""
        if not old.outputs:
            failure = f"{resource.type} cannot be imported in a rehearsal"
            raise RehearsalError(f"{failure}. Let the program make it")
        return old

    def delete(self, resource: Resource, old: State) -> None:
        """Do nothing: only Pulumi's state has the value."""
