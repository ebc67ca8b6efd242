"""SQL of more than a line stands in named, described statements, and no statement is put together from pieces.

Read from the syntax trees of both packages: a check like the linter's, which has no rule for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_PACKAGES = Path(__file__).parents[3]
_SQL = re.compile(
    r"\bSELECT\s.*\bFROM\b|\bUPDATE\s+\w+\s+(?:\w+\s+)?SET\b|\bINSERT\s+INTO\b|\bDELETE\s+FROM\b|\bCREATE\s+(?:TABLE|INDEX)\b"
    r"|(?:^|\s)(?:WHERE|RETURNING|ORDER BY|GROUP BY|LEFT JOIN|AND)\s+[\w.]+",
    re.DOTALL,
)
# A piece of a statement that code would add: none of these words begins an English sentence in capitals.
_FRAGMENT = re.compile(r"^\s*(?:SELECT|FROM|WHERE|AND|SET|RETURNING|ORDER BY|LIMIT|JOIN|LEFT JOIN|VALUES)\s")


def _modules() -> list[Path]:
    return sorted(
        path
        for path in _PACKAGES.glob("*/src/**/*.py")
        if re.search(r"\bexecute(?:many|script)?\(", path.read_text())
    )


def _faults(source: str) -> Iterator[str]:
    tree, lines = ast.parse(source), source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr() if any(map(_is_sql, _texts(node))):
                yield f"line {node.lineno}: an f-string puts SQL together"
            case ast.BinOp(op=ast.Add() | ast.Mod()) if any(map(_is_sql, _texts(node))):
                yield f"line {node.lineno}: an operator puts SQL together"
            case ast.Call(func=ast.Attribute(attr="join" | "format" | "replace")) if any(map(_is_sql, _texts(node))):
                yield f"line {node.lineno}: a method puts SQL together"
            case ast.Constant(value=str(text)) if id(node) not in prose and node.lineno != node.end_lineno:
                if not _SQL.search(text):
                    continue
                if id(node) in inside:
                    yield f"line {node.lineno}: SQL of several lines in a function, not a named statement"
                elif '"""' not in lines[node.lineno - 1]:
                    yield f"line {node.lineno}: SQL of several strings"
                elif not lines[node.lineno - 2].startswith("#"):
                    yield f"line {node.lineno}: a statement without a description above it"


def _texts(node: ast.AST) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        match each:
            case ast.Constant(value=str(text)):
                yield text
            case ast.BinOp() | ast.Attribute() | ast.List() | ast.Tuple() | ast.GeneratorExp():
                yield from _texts(each)


def _is_sql(text: str) -> bool:
    return bool(_SQL.search(text) or _FRAGMENT.search(text))


def test_no_statement_is_put_together_and_long_ones_have_a_name_and_a_description() -> None:
    modules = _modules()
    assert len(modules) > 30, "the packages are elsewhere"
    found = [f"{path.relative_to(_PACKAGES)}, {fault}" for path in modules for fault in _faults(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'def f(tx, which):\n    tx.execute(f"SELECT * FROM users WHERE {which}")\n',
        'def f(tx):\n    tx.execute(_HEAD + " WHERE id = %s")\n',
        'def f(tx):\n    tx.execute(f"{_HEAD} WHERE id = %s")\n',
        'def f(tx):\n    tx.execute("SELECT %s FROM users" % _COLUMNS)\n',
        'def f(tx):\n    tx.execute("SELECT {} FROM users".format(_COLUMNS))\n',
        'def f(tx, some):\n    tx.execute(" AND ".join(some))\n',
        'def f(tx):\n    tx.execute("SELECT id FROM users"\n        " WHERE id = %s")\n',
        'def f(tx):\n    tx.execute("""\n        DELETE FROM users\n    """)\n',
        '_ALL = (\n    "SELECT id FROM users"\n    " ORDER BY id"\n)\n',
        '_ALL = """\n    SELECT id FROM users\n"""\n',
    ],
)
def test_each_way_to_put_sql_together_is_found(source: str) -> None:
    assert list(_faults(source))


def test_a_named_and_described_statement_is_accepted() -> None:
    source = (
        '# Lists all users.\n_ALL = """\n    SELECT id FROM users\n"""\n\n\ndef f(tx):\n    tx.execute("SELECT 1")\n'
    )
    assert not list(_faults(source))
