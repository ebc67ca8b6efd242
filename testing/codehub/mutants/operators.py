"""Mutation operators: every small change of a module that a test of it should notice. Pure.

Text is not changed: what a message says is for people, and a test that compares it letter by letter only repeats it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a module and which of its replacements to make there."""

    node: int  # in the order of `ast.walk`
    variant: int
    line: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the line it is on, what it is, and the whole module with it."""

    line: int
    what: str
    source: str


def sites(source: str) -> list[Site]:
    """Return every place of this module that can be changed."""
    tree = ast.parse(source)
    ignored = set(_ignored(tree))
    return [
        Site(index, variant, getattr(node, "lineno", 1))
        for index, node in enumerate(ast.walk(tree))
        if id(node) not in ignored
        for variant in range(len(_replacements(node)))
    ]


def change_at(source: str, site: Site) -> Change:
    tree = ast.parse(source)
    old = next(node for index, node in enumerate(ast.walk(tree)) if index == site.node)
    new = _replacements(old)[site.variant]
    what = f"{_shown(old)}  →  {_shown(new)}"
    _replace(tree, old, new)
    return Change(site.line, what, ast.unparse(ast.fix_missing_locations(tree)))


def _ignored(tree: ast.Module) -> Iterator[int]:
    """Yield what runs never or never differently: annotations, decorators, assertions."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts += [] if node.annotation is None else [node.annotation]
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            parts.extend(node.decorator_list)
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                parts.append(node.returns)
        elif isinstance(node, ast.Assert):
            parts.append(node)
        for part in parts:
            yield from (id(inner) for inner in ast.walk(part))


def _replacements(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Compare(ops=[one]) if type(one) in _COMPARISONS:
            return [ast.Compare(node.left, [_COMPARISONS[type(one)]()], node.comparators)]
        case ast.BoolOp(op=ast.And()):
            return [ast.BoolOp(ast.Or(), node.values)]
        case ast.BoolOp(op=ast.Or()):
            return [ast.BoolOp(ast.And(), node.values)]
        case ast.UnaryOp(op=ast.Not()):
            return [node.operand]
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC and not _is_text(node):
            return [ast.BinOp(node.left, _ARITHMETIC[type(operator)](), node.right)]
        case ast.Constant(value=bool() as value):
            return [ast.Constant(not value)]
        case ast.Constant(value=int() as value):
            return [ast.Constant(value + 1)]
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            return [ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)]
        case ast.Raise():
            return [ast.Pass()]
        case ast.Continue():
            return [ast.Break()]
        # None is as false as False, which is changed to True on its own.
        case ast.Return(value=value) if value is not None and not _is_none_or_false(value):
            return [ast.Return(ast.Constant(None))]
        case _:
            return []


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _is_none_or_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(one is old for one in value):
                value[[one is old for one in value].index(True)] = new
                return


def _shown(node: ast.AST) -> str:
    """The first line of it, shortened."""
    if isinstance(node, ast.If):
        node = node.test
    return ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0][:70]
