"""The faults: each replaces one expression or statement."""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
_CALLED = {"sum": "max", "max": "min", "min": "max", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """A fault in a module. begin, end: line and column, in bytes, of the replaced code. before, after: the code."""

    operator: str
    begin: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: str

    @property
    def line(self) -> int:
        return self.begin[0]


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of the source."""
    lines = source.encode().splitlines(keepends=True)
    made = []
    for node in _changeable(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        for operator, change in OPERATORS.items():
            for changed in change(node):
                after = ast.unparse(changed)
                # In parentheses, an expression may be anywhere.
                text = f"({after})" if isinstance(node, ast.expr) else after
                made.append(Mutant(operator, begin, end, _between(lines, begin, end).decode(), text))
    return made


def changed(source: str, mutant: Mutant) -> str:
    """Return the source of a module with a mutant."""
    lines = source.encode().splitlines(keepends=True)
    last = (len(lines), len(lines[-1]))
    rest = _between(lines, (1, 0), mutant.begin), mutant.after.encode(), _between(lines, mutant.end, last)
    return b"".join(rest).decode()


def _between(lines: list[bytes], begin: tuple[int, int], end: tuple[int, int]) -> bytes:
    """Return the bytes from one place to another one."""
    (first, column), (last, end_column) = begin, end
    if first == last:
        return lines[first - 1][column:end_column]
    return b"".join([lines[first - 1][column:], *lines[first : last - 1], lines[last - 1][:end_column]])


def _changeable(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the expressions and statements that are executed: no annotations, and no text."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or _is_of_class(tree, name):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr) or _is_type_checking(child):
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            yield from _changeable(child)


def _is_of_class(tree: ast.AST, name: str) -> bool:
    """Return whether a field holds keywords of a class, such as frozen=True, or of zip: strict=True only finds bugs."""
    return name == "keywords" and (isinstance(tree, ast.ClassDef) or _is_call_of(tree, "zip"))


def _is_call_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _comparisons(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = _COMPARED[type(operator)]()
            yield changed


def _arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        changed = copy.deepcopy(node)
        changed.op = _COMPUTED[type(node.op)]()
        yield changed


def _numbers(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield ast.Constant(node.value + 1)


def _truths(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        changed = copy.deepcopy(node)
        changed.func = ast.Name(_CALLED[node.func.id])
        yield changed


def _ends(node: ast.AST) -> Iterator[ast.AST]:
    """Take the first item in place of the last one."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "-1":
        changed = copy.deepcopy(node)
        changed.slice = ast.Constant(0)
        yield changed


def _sums(node: ast.AST) -> Iterator[ast.AST]:
    """Keep the last value in place of the sum."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield ast.Assign([node.target], node.value, lineno=node.lineno)


OPERATORS: dict[str, Callable[[ast.AST], Iterator[ast.AST]]] = {
    "comparison": _comparisons, "arithmetic": _arithmetic, "number": _numbers, "truth": _truths, "call": _calls,
    "end": _ends, "sum": _sums,
}  # fmt: skip
