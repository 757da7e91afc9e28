"""Find code that decides by the text of a message, a remedy or a reason: ``make lint`` runs it.

    python -m tools.texts

Reasons are data: a branch asks for a cause, a rule or a field. A comparison, a cut, a regular
expression or a look-up whose operand is such a text is an error, and so is a comparison with a
phrase. ``ALLOWED`` has the texts that come from outside and have no field to ask for instead.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("components", "stacks", "policy")
TEXTS = frozenset(
    {
        *("because", "detail", "fault", "fix", "hint", "message", "msg", "problem", "reason"),
        *("remedy", "sentence", "warning", "why"),
    }
)
"""The names of variables and attributes that hold a text for people."""
SEVERAL = frozenset({f"{name}s" for name in TEXTS} | {"fixes", "remedies"})
"""The names of those that hold several."""
KEYS = frozenset({"message", "msg"})
"""The keys of such texts in objects of others. Kubernetes' ``reason`` is a code."""
CUTS = frozenset(
    f"{side}{method}"
    for side in ("", "r", "l")
    for method in ("split", "partition", "find", "index", "strip")
) | {"startswith", "endswith", "removeprefix", "removesuffix", "splitlines", "count", "replace"}
SEARCHES = frozenset(
    {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
)
LOOK_UPS = frozenset({"get", "setdefault", "pop"})
PHRASE = 4
"""The words of a text for people; names, codes and types have fewer."""
_PLANNING = "components/ml_foundations/planning"
_REHEARSAL = "components/ml_foundations/rehearsal"
_SECRETS = "Kubernetes quotes values, which may be secret, in the text of an error or event only"
_PYDANTIC = "what a value must be is in the text only (pydantic_core, ErrorDetails)"
_LOG = "a process that ends leaves nothing except its log"
ALLOWED = {
    "components/ml_foundations/component/errors.py._reason": _PYDANTIC,
    "components/ml_foundations/kubernetes/reading.py._read_errors": (
        "PyYAML's errors quote the file in their text, and a ValueError has only its text"
    ),
    "components/ml_foundations/kinds/kind_files.py._explained": _PYDANTIC,
    f"{_PLANNING}/unexpected.py.described": "the text of any exception, cut to one line",
    f"{_PLANNING}/rules/compute_classes.py._class_findings": (
        "the reason of a condition is a code of GKE, such as NodePoolNotExist"
    ),
    f"{_REHEARSAL}/api.py._error": _SECRETS,
    f"{_REHEARSAL}/control_plane/kwok.py._ended_early": _LOG,
    f"{_REHEARSAL}/engine/stack.py.up": (
        "Pulumi's DiagnosticEvent has a severity and no code (sdk/go/common/apitype, events.go)"
    ),
    f"{_REHEARSAL}/plugins/kubernetes/helm.py._fetch_obstacle": (
        "the helm command has one exit code for every failure"
    ),
    f"{_REHEARSAL}/plugins/kubernetes/provider.py._may_succeed_later": (
        "the Status about a dry run that a webhook does not support is a BadRequest without "
        "details (apiserver, pkg/admission/plugin/webhook/errors, NewDryRunUnsupportedErr)"
    ),
    f"{_REHEARSAL}/report/disruptions.py._reports": (
        "JobSet's event about a Job has the same reason for every failure"
    ),
    f"{_REHEARSAL}/report/workloads.py.without_values": _SECRETS,
    f"{_REHEARSAL}/tools/downloads.py.sentence": (
        "servers that fail alike, by the text of the network's error, are one sentence"
    ),
}
"""Functions that read a text from outside, each with why there is no field to read."""


class Place(NamedTuple):
    """A place that decides by a text."""

    function: str
    """Its file and function, as in ``ALLOWED``."""
    line: int
    what: str


class _Reader(ast.NodeVisitor):
    """Collects the places of one file."""

    def __init__(self, file: str) -> None:
        self.places: list[Place] = []
        self._file = file
        self._functions: list[str] = []
        self._caught: set[str] = set()
        """The names of caught exceptions; ``str`` returns the text of one."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._caught |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        is_identity = all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        is_membership = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
        if not is_identity and any(map(self._is_text, operands)):
            self._add(node, "compares a text")
        elif is_membership and _name(node.comparators[-1]) in SEVERAL:
            self._add(node, "looks for a text")
        elif not is_identity and any(map(_has_phrase, operands)):
            self._add(node, "compares with a phrase")
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        has_values = any(isinstance(case.pattern, ast.MatchValue) for case in node.cases)
        if has_values and self._is_text(node.subject):
            self._add(node, "matches a text")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._is_key(node.slice):
            self._add(node, "looks up a text")
        is_number = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
        if (is_number or isinstance(node.slice, ast.Slice)) and self._is_text(node.value):
            self._add(node, "cuts a text")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            method = node.func.attr
            is_of_text = self._is_text(node.func.value)
            if is_of_text and method in CUTS:
                self._add(node, "cuts a text")
            elif method in SEARCHES and any(map(self._is_text, node.args)):
                self._add(node, "searches a text")
            elif method in LOOK_UPS and any(map(self._is_key, node.args[:1])):
                self._add(node, "looks up a text")
        self.generic_visit(node)

    def _is_key(self, node: ast.expr) -> bool:
        return self._is_text(node) or _has_phrase(node)

    def _is_text(self, node: ast.expr) -> bool:
        """Return whether an expression is a text for people, by its name."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in TEXTS
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return key in KEYS
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
                return name in self._caught or name in TEXTS
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]):
                return key in KEYS
            case ast.Call(func=ast.Attribute(value=value, attr="lower" | "upper" | "casefold")):
                return self._is_text(value)
            case _:
                return False

    def _add(self, node: ast.expr | ast.stmt, what: str) -> None:
        function = ".".join([self._file, *self._functions])
        self.places.append(Place(function, node.lineno, what))


def _name(node: ast.expr) -> str:
    """Return the name of a variable or an attribute; empty for another expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _has_phrase(node: ast.expr) -> bool:
    """Return whether an operand is a sentence or a part of one, or has one among its items."""
    match node:
        case ast.Constant(value=str(text)):
            return sum(word.strip(".,:;").isalpha() for word in text.split()) >= PHRASE
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(map(_has_phrase, items))
        case _:
            return False


def places(file: str, text: str) -> list[Place]:
    """Return the places of a file that decide by a text for people."""
    reader = _Reader(file)
    reader.visit(ast.parse(text))
    return reader.places


def violations() -> Iterator[str]:
    """Yield the places of the product that are not allowed, and what is allowed for nothing."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    used: set[str] = set()
    for file in listed.stdout.splitlines():
        path = ROOT / file
        for place in places(file, path.read_text()) if file.endswith(".py") else ():
            used.add(place.function)
            if place.function not in ALLOWED:
                yield f"{file}:{place.line}: {place.what}. Decide by a cause, a rule or a field."
    for function in ALLOWED.keys() - used:
        yield f"tools/texts.py: {function} decides by no text. Remove it from ALLOWED."


def main() -> int:
    """Print the violations, and return the exit code."""
    lines = list(violations())
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
