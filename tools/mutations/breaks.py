"""The small ways in which a line of Python can be broken."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PRODUCT = ("components/ml_foundations", "stacks", "policy")
GENERATED = ("typed_args.py",)
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
}


class Break(NamedTuple):
    """A change of one expression or statement of a file."""

    path: str
    line: int
    """The first line of what changes, from 1."""
    statement: int
    """The line before which a statement may be put, to notice that this one runs."""
    old: str
    new: str
    text: str
    """The file with the change."""


def draw(root: Path, seed: int, count: int) -> list[Break]:
    """Return breaks of different lines of the product, each line as likely as any other."""
    files = [path for top in PRODUCT for path in sorted((root / top).rglob("*.py"))]
    lines: dict[tuple[str, int], list[Break]] = {}
    for path in files:
        if path.name not in GENERATED:
            for broken in breaks_of(path, str(path.relative_to(root))):
                lines.setdefault((broken.path, broken.line), []).append(broken)
    chance = random.Random(seed)
    return [chance.choice(lines[key]) for key in chance.sample(sorted(lines), count)]


def breaks_of(path: Path, name: str) -> Iterator[Break]:
    """Yield all breaks of a file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, statement in _nodes(ast.parse(source), 0):
        new = _broken(node)
        if new is None:
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        data = source.encode()
        text = (data[:begin] + new.encode() + data[end:]).decode()
        yield Break(name, node.lineno, statement, data[begin:end].decode(), new, text)


def _nodes(node: ast.AST, statement: int) -> Iterator[tuple[ast.expr | ast.stmt, int]]:
    """Yield the nodes below one, without docstrings, annotations and parts of f-strings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_text_alone(child):
                continue
            is_elif = name == "orelse" and isinstance(node, ast.If) and isinstance(child, ast.If)
            is_new = isinstance(child, ast.stmt) and not (is_elif and len(value) == 1)
            below = child.lineno if is_new and isinstance(child, ast.stmt) else statement
            if isinstance(child, ast.expr | ast.stmt):
                yield child, below
            yield from _nodes(child, below)


def _is_text_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _broken(node: ast.expr | ast.stmt) -> str | None:
    """Return what an expression or a statement is replaced with; None if it stays."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITES:
            node = ast.Compare(node.left, [OPPOSITES[type(operator)]()], node.comparators)  # type: ignore[list-item]
        case ast.BoolOp():
            node = ast.BoolOp(OPPOSITES[type(node.op)](), node.values)  # type: ignore[arg-type]
        case ast.BinOp() if type(node.op) in OPPOSITES:
            node = ast.BinOp(node.left, OPPOSITES[type(node.op)](), node.right)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not()):
            node = node.operand
        case ast.IfExp():
            node = ast.IfExp(node.test, node.orelse, node.body)
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
        case ast.Constant(value=str() as value):
            return repr(value + "x")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.Expr(value=ast.Call()):
            return "pass"
        case _:
            return None
    return f"({ast.unparse(node)})"
