"""The ways in which a source can be changed in one place: an operator, a number, a slice, a statement that is missing.

Left alone is what means nothing to a program or only words its errors: annotations, docstrings, f-strings, what is
raised, what it says we `got` and `need`, assertions (`zip`'s `strict` is one), decorators.
"""

import ast
from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

Node = ast.expr | ast.stmt | ast.keyword
Replacement = tuple[Node, str]

_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
# What they are called on, or with, is nearly the same without them.
_LEFT_AWAY = {"abs", "clone", "next_up", "sorted", "up_digits"}
_REMOVED = (ast.Raise, ast.AugAssign, ast.Continue, ast.Break)


class Mutation(NamedTuple):
    """The text from one byte to another becomes another text."""

    line: str  # the source line it begins in
    change: str  # "x < y -> x <= y"
    begin: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        data = source.encode()
        return (data[: self.begin] + self.text.encode() + data[self.end :]).decode()


def mutations_of(source: str, without: tuple[str, ...] = ()) -> list[Mutation]:
    """Give every mutation of a source once; none in the functions and classes of the given names."""
    lines = source.encode().splitlines(keepends=True)
    mutations = {}
    for node, new in _replacements(ast.parse(source), ("__repr__", *without)):
        begin, end = (
            sum(map(len, lines[: line - 1])) + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        )
        text = f"({new})" if isinstance(node, ast.expr) and not isinstance(node, ast.Slice) else new
        line, change = lines[node.lineno - 1].decode().strip(), f"{ast.unparse(node)} -> {new}"
        mutations[begin, end, text] = Mutation(line, change, begin, end, text)
    return list(mutations.values())


def _replacements(node: ast.AST, without: tuple[str, ...]) -> Iterator[Replacement]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in without:
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield from _of_statement(node)
    yield from _of_operators(node)
    yield from _of_value(node)
    for child in _parts(node):
        yield from _replacements(child, without)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Give the parts of a node in which a change would mean something."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("got", "need"):
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST))


def _of_statement(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, _REMOVED) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, "pass"
    if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield node, "pass"
    if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node, "return None"
    tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
    for test in tests:
        # The others have changes of their own.
        if isinstance(test, ast.expr) and not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield test, f"not ({ast.unparse(test)})"


def _of_operators(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in _OPERATORS[type(op)]:
                yield node, _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and not _is_of_types(node):
        for other in _OPERATORS.get(type(node.op), ()):
            yield node, _with(node, op=other())
    elif isinstance(node, ast.UnaryOp):
        yield node, ast.unparse(node.operand)


def _of_value(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Constant):
        yield from ((node, repr(value)) for value in _other_numbers(node.value))
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield node, _NAMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield node, _with(node, attr=_NAMES[node.attr])
    elif isinstance(node, ast.Attribute) and node.attr == "inf":
        yield node, "0.0"
    elif isinstance(node, ast.keyword) and node.arg in _NAMES:
        yield node, _with(node, arg=_NAMES[node.arg])
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _LEFT_AWAY:
            yield node, ast.unparse(node.args[0])
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _LEFT_AWAY:
            yield node, ast.unparse(node.func.value)
    elif isinstance(node, ast.Slice):
        for end in ("lower", "upper"):
            if value := getattr(node, end):
                yield node, _with(node, **{end: None})
                yield node, _with(node, **{end: ast.BinOp(value, ast.Add(), ast.Constant(1))})


def _other_numbers(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        # Not -1 for 0: of a single element, as there often is, it is the same.
        yield from sorted({value + 1, max(value - 1, 0), 0} - {value})
    elif isinstance(value, float):
        yield from sorted({2 * value, 0.0 if value else 1.0} - {value})


def _is_of_types(node: ast.BoolOp | ast.BinOp | ast.AugAssign) -> bool:
    """Whether it is a union of types, or the text of a message."""
    if not isinstance(node, ast.BinOp):
        return False
    parts = (node.left, node.right)
    if isinstance(node.op, ast.BitOr):
        return all(isinstance(part, ast.Name | ast.Attribute) or ast.unparse(part) == "None" for part in parts)
    return any(isinstance(part, ast.JoinedStr) for part in parts)


def _with(node: ast.AST, **fields: object) -> str:
    """Write a node with other fields."""
    changed = copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)
