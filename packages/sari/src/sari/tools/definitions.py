"""Finds the definitions that a name means, and says which files may hold others: not parsed yet, or not parseable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from sari.languages.parse import MAX_PARSED_BYTES
from sari.languages.read import read_text
from sari.languages.store import Placed
from sari.tools.qualified_names import declared_namespaces, namespace_rank, qualifier_rank, split_name
from sari.tools.scope import Scope, path_tier, shown

PARTIAL = "Not every file is parsed yet, so some symbols may be missing; ask again in a moment."
MOST_SYMBOLS = 5_000
_MOST_FILES = 400
_MOST_LISTED = 5


def placed_named(scope: Scope, query: str) -> tuple[list[Placed], bool]:
    """Return the definitions with exactly this name, qualified or not, best match first; and whether all files were
    considered.
    """
    qualifier, name = split_name(query.removesuffix("()"))
    placed, complete = scope.symbols.exactly(name, MOST_SYMBOLS)
    ranked = qualifier_ranks(scope, qualifier, name, placed)
    fitting = [(rank, path_tier(shown(one.path)), one) for one, rank in ranked.items() if rank is not None]
    fitting.sort(key=lambda entry: (entry[0], entry[1], entry[2].path, entry[2].symbol.line))
    if fitting and fitting[0][0] == 0:
        # A definition in a class of that name takes precedence over one in a file of that name.
        fitting = [entry for entry in fitting if entry[0] == 0]
    return [one for _, _, one in fitting], complete


def qualifier_ranks(
    scope: Scope, qualifier: Sequence[str], name: str, placed: Sequence[Placed]
) -> dict[Placed, int | None]:
    """Return how well each symbol matches a qualifier; None if it does not."""
    if not qualifier:
        return dict.fromkeys(placed, 0)
    ranks = {one: qualifier_rank(qualifier, one.symbol.container, shown(one.path), scope.root.name) for one in placed}
    declared: dict[bytes, list[str]] = {}
    for one in placed:
        if ranks[one] is None and one.symbol.name == name and len(declared) < _MOST_FILES:
            if one.path not in declared:
                read = read_text(os.fsencode(scope.root), one.path, MAX_PARSED_BYTES)
                declared[one.path] = declared_namespaces(read[0]) if read is not None else []
            found = [namespace_rank(qualifier, one.symbol.container, space) for space in declared[one.path]]
            ranks[one] = min((rank for rank in found if rank is not None), default=None)
    return ranks


def unparsed_note(paths: Iterable[str], hint: str = "`search` finds the name there") -> str:
    """Return a note about files that an answer leaves out, because they cannot be parsed."""
    found = list(paths)
    if not found:
        return ""
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return f"Cannot be parsed: {', '.join(found[:_MOST_LISTED])}{more}; {hint}."
