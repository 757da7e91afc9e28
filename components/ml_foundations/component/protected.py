"""One line about the protected resources of a program, with the argument that protects each.

Pulumi refuses to delete or replace them, and then names a protect flag that no user wrote. Only the
engine knows what it will delete, so a preview prints the line before it is needed. A rehearsal
prints a separate hint, only if Pulumi refuses.
"""

import os
from collections.abc import Iterable

import pulumi

from ml_foundations.component.children import ChildResource
from ml_foundations.component.program import ProgramNotes
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.words import names

_GUARDS = ("data", "deletion_protection")
"""The arguments that protect children."""


def note(component: str, arguments: Iterable[str], children: Iterable[ChildResource]) -> None:
    """Note whether Pulumi must not delete children of a component, for a line at the end."""
    guards = [guard for guard in _GUARDS if guard in arguments]
    is_protected = any(child.options.protect for child in children)
    if not guards or not is_protected or "ML_FOUNDATIONS_REHEARSAL" in os.environ:
        return
    components = _components.of_program()
    if components is not None:
        components.setdefault(guards[0], []).append(component)


def _log(components: dict[str, list[str]]) -> None:
    for guard, protected in components.items():
        text = (
            f"{names(protected)}: {guard} protects them from deletion and replacement. "
            f"To let Pulumi delete one, set its {guard} to false and run pulumi up first"
        )
        pulumi.log.info(printable.line(text))


_components = ProgramNotes(dict[str, list[str]], _log)
"""The components by the argument that protects their children."""
