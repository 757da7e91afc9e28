"""Locals without a role and parallel assignments, which STYLE.md forbids."""

import ast
from collections.abc import Iterator

CLEAN = ("codegen/", "components/", "policy/", "stacks/", "tools/")
"""The files that have neither, by how their paths start. `make lint` keeps them so."""
WITHOUT_ROLE = {"each", "found", "other", "own", "wanted"}


def violations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and a sentence for each name without a role and each parallel assignment."""
    for line, name in _bound(tree):
        if name in WITHOUT_ROLE:
            yield line, f"name {name!r} by its role, such as 'claim' or 'violations'"
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_parallel(node):
            yield node.lineno, "assign unrelated values in a line each"


def _bound(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of locals and arguments, with lines.

    Fields of classes are neither. Python itself names the argument of an operator ``other``.
    """
    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                allowed |= {field.target for field in body if isinstance(field, ast.AnnAssign)}
            case ast.FunctionDef(name=name, args=ast.arguments(args=[_, argument])):
                if name.startswith("__") and argument.arg == "other":
                    allowed.add(argument)
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if node not in allowed:
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case _:
                pass


def _is_parallel(node: ast.Assign) -> bool:
    """Return whether an assignment gives several names a value each, and could be several lines.

    ``a, b = b, a + b`` needs the values before it. ``first, *rest = *x, y`` takes a list apart.
    """
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            if any(isinstance(part, ast.Starred) for part in (*targets, *values)):
                return False
            used = {ast.unparse(part) for part in ast.walk(node.value)}
            return not any(ast.unparse(target) in used for target in targets)
        case _:
            return False
