"""What ``pulumi up`` prints, read as it comes: how far it is, and what of it is worth showing at the end."""

import re

_PHASE = re.compile(r"(Previewing update|Updating) \(")
_PLANNED = re.compile(r" (\d+) to (?:create|update|delete|replace)\b|\+-(\d+) to replace\b")
_RESOURCE = re.compile(r" [ +~<>=-]* (?P<type>[^\s:]+:\S+) (?P<name>\S+) (?P<status>[a-z]+)")
BEGINS = "begins"
"""How far pulumi is when the update begins, after any preview."""
_MOST_CHANGES = 12
"""As many changed resources as are shown by name; of more, pulumi's own count tells."""


class PulumiOutput:
    """The lines of one ``pulumi up``, which previews first.

    Each phase prints a line for each step of a resource, then sections that begin at the margin: diagnostics, outputs,
    the number of resources, the duration.
    """

    def __init__(self) -> None:
        self.planned = self.done = 0
        self._is_update = self._in_steps = False
        self._sections: list[str] = []
        self._changes: list[str] = []

    def take(self, line: str) -> str:
        """Read a line; returns how far pulumi is, or nothing where the line does not tell."""
        if phase := _PHASE.match(line):
            self._is_update, self._in_steps, self._sections = phase[1] == "Updating", True, []
            self.planned = self.planned if self._is_update else 0
            return BEGINS if self._is_update else "previews"
        if self._in_steps and (not line.strip() or line[0] in " @"):
            return self._step(line)
        self._in_steps = False
        self._sections.append(line)
        if not self._is_update:
            self.planned += sum(
                int(count) for found in _PLANNED.findall(line) for count in found if count
            )
        return ""

    def _step(self, line: str) -> str:
        step = _RESOURCE.match(line)
        if step is None:
            return ""
        if self._is_update and step["status"].endswith("ed"):
            self.done += 1
            self._changes.append(line)
        kind = step["type"].rpartition(":")[2]
        far = (
            f"{min(self.done, self.planned)} of {self.planned} changes, "
            if self._is_update and self.planned
            else ""
        )
        return f"{far}{kind} {step['name']} {step['status']}"

    def shown(self) -> str:
        """What is worth showing: the resources that changed, where they are few, and the sections of the last phase."""
        return "".join(
            [*(self._changes if len(self._changes) <= _MOST_CHANGES else ()), *self._sections]
        )
