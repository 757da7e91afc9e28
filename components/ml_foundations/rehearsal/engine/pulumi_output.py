"""The output of ``pulumi up``, read line by line: its progress, and the part to show at the end."""

import re

_PHASE = re.compile(r"(Previewing update|Updating) \(")
_PLANNED = re.compile(r" (\d+) to (?:create|update|delete|replace)\b|\+-(\d+) to replace\b")
_RESOURCE = re.compile(r" [ +~<>=-]* (?P<type>[^\s:]+:\S+) (?P<name>\S+) (?P<status>[a-z]+)")
UPDATE_BEGINS = "begins"
"""The progress when the update begins, after any preview."""
_MOST_CHANGES = 12
"""The most resources that are shown by name; if there are more, Pulumi's count is enough."""


class PulumiOutput:
    """The lines of one ``pulumi up``, which previews first.

    Each phase prints a line for each step of a resource, then sections that begin at the margin:
    diagnostics, outputs, the number of resources, the duration.
    """

    def __init__(self) -> None:
        self.planned = self.done = 0
        self._is_update = self._in_steps = False
        self._sections: list[str] = []
        self._changes: list[str] = []

    def add(self, line: str) -> str:
        """Add a line; return the progress that it shows, or nothing."""
        if phase := _PHASE.match(line):
            self._is_update = phase[1] == "Updating"
            self._in_steps = True
            self._sections = []
            self.planned = self.planned if self._is_update else 0
            return UPDATE_BEGINS if self._is_update else "previews"
        if self._in_steps and (not line.strip() or line[0] in " @"):
            return self._add_step(line)
        self._in_steps = False
        self._sections.append(line)
        if not self._is_update:
            for counts in _PLANNED.findall(line):
                self.planned += int("".join(counts))
        return ""

    def _add_step(self, line: str) -> str:
        step = _RESOURCE.match(line)
        if step is None:
            return ""
        if self._is_update and step["status"].endswith("ed"):
            self.done += 1
            self._changes.append(line)
        progress = f"{step['type'].rpartition(':')[2]} {step['name']} {step['status']}"
        if self._is_update and self.planned:
            done = min(self.done, self.planned)
            return f"{done} of {self.planned} changes, {progress}"
        return progress

    def summary(self) -> str:
        """Return the changed resources, if they are few, and the sections of the last phase."""
        changes = self._changes if len(self._changes) <= _MOST_CHANGES else []
        return "".join(changes + self._sections)
