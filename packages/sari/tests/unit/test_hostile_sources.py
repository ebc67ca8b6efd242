"""Files with very many lines and definitions: what is computed for each of them grows with the file, not its square."""

import random
import time

from sari.edits.plan import diff_of
from sari.edits.transaction import FileChange
from sari.languages.parse import Symbol
from sari.tools.code import _SCOPES, _around


def one_by_one(symbols: list[Symbol], line: int, name: str) -> str | None:
    """The definition itself: the last of those that contain the line."""
    inner = None
    for symbol in symbols:
        within = symbol.line <= line <= symbol.end_line and symbol.kind in _SCOPES
        if within and not (symbol.name == name and symbol.line == line):
            inner = symbol
    return None if inner is None else f"{inner.container}.{inner.name}" if inner.container else inner.name


def test_the_definition_around_a_line_is_the_innermost_one() -> None:
    chosen = random.Random(14)
    for _ in range(300):
        symbols: list[Symbol] = []

        def nest(first: int, last: int, depth: int) -> None:
            at = first
            while at <= last and len(symbols) < 30:  # noqa: B023 - called in this round only
                end = chosen.randint(at, last)
                kind = chosen.choice(["class", "function", "method", "variable"])
                symbols.append(Symbol(chosen.choice("abc"), kind, at, end, chosen.choice([None, "C"])))  # noqa: B023
                if depth:
                    nest(chosen.choice([at, min(at + 1, end)]), end, depth - 1)
                at = end + chosen.randint(0, 2) + 1

        nest(1, 20, 3)
        lines = chosen.sample(range(1, 25), 12)
        expected = {line: found for line in lines if (found := one_by_one(symbols, line, "a")) is not None}
        assert _around(symbols, lines, "a") == expected


def test_a_large_file_of_few_different_lines_is_compared_in_linear_time() -> None:
    rows = [f"name x{at * 7919 % 150}" if at % 2 else f"y{at % 140}" for at in range(60_000)]
    before = "\n".join(rows)
    began = time.process_time()
    renamed = diff_of(FileChange(b"a.py", before.encode(), before.replace("name", "other").encode()))
    longer = diff_of(
        FileChange(b"a.py", before.encode(), "\n".join([*rows[:9], "new", *rows[10:20], *rows[30:]]).encode())
    )
    # Difflib takes hours.
    assert time.process_time() - began < 60
    assert renamed.startswith("@@ -2,1 +2,1 @@\n-name x119\n+other x119\n@@ -4,1 +4,1 @@\n")
    assert renamed.count("\n-") == 30_000
    assert longer.startswith("@@ -10,21 +10,11 @@\n-")
    assert longer.splitlines()[22] == "+new"
    assert len(longer.splitlines()) == 1 + 21 + 11
