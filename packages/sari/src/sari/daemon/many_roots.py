"""Calls that name several workspaces: splits the request per workspace and merges the answers. Pure.

Each row of the merged answer names its workspace. A cursor contains the cursors of the workspaces that have more rows.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from sari.protocol.tooling import ToolResult

MOST_ROOTS = 10
# The tools that return lists, and the field that contains the rows.
ROWS = {
    "search": "matches",
    "find_files": "files",
    "symbols": "symbols",
    "references": "references",
    "callers": "callers",
    "implementations": "implementations",
    "recent": "files",
    "history": "commits",
}
_DEFAULT_TOKENS = 4_000


def named_workspaces(value: object) -> list[str] | None:
    """Return the workspaces that a call names if it names several, else None."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        # Some models send a list as a JSON string.
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        return None
    return list(dict.fromkeys(value))


def arguments_by_root(arguments: Mapping[str, object], roots: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the arguments for each workspace. Raises `ValueError` for a cursor that sari did not create."""
    left: Mapping[str, object] = dict.fromkeys(roots)
    cursor = arguments.get("cursor")
    if cursor:
        try:
            left = json.loads(base64.urlsafe_b64decode(str(cursor)))
            left = {root: left[root] for root in roots if root in left}
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise ValueError("`cursor` is not one that sari gave for these workspaces. Leave it out.") from error
    budget = arguments.get("max_tokens")
    each = (budget if isinstance(budget, int) else _DEFAULT_TOKENS) // max(1, len(left))
    by_root: dict[str, dict[str, object]] = {}
    for root, after in left.items():
        own = {name: value for name, value in arguments.items() if name not in ("workspace", "cursor")}
        if "max_tokens" in own or len(left) > 1:
            own["max_tokens"] = max(100, each)
        if after:
            own["cursor"] = after
        by_root[root] = own
    return by_root


def merge(tool: str, is_ranked: bool, answers: Mapping[str, ToolResult]) -> ToolResult:
    """Merge the answers. Ranked results are interleaved; others are concatenated."""
    failed = {root: result for root, result in answers.items() if result.is_error}
    good = {root: result for root, result in answers.items() if not result.is_error}
    if not good:
        return next(iter(answers.values()))
    key = ROWS[tool]
    lists = [[{**row, "workspace": root} for row in _rows(one, key)] for root, one in good.items()]
    if is_ranked:
        rows = [row for turn in zip_longest(*lists) for row in turn if row is not None]
    else:
        rows = [row for one in lists for row in one]
    structured: dict[str, object] = {
        key: rows,
        "complete": not failed and all(_complete(one) for one in good.values()),
    }
    totals = [one.structured["total"] for one in good.values() if isinstance(one.structured.get("total"), int)]
    if len(totals) == len(good):
        structured["total"] = sum(total for total in totals if isinstance(total, int))
    cursors = {root: one.structured["cursor"] for root, one in good.items() if one.structured.get("cursor")}
    structured["cursor"] = base64.urlsafe_b64encode(json.dumps(cursors).encode()).decode() if cursors else None
    notes = [f"{root}: {one.text}" for root, one in failed.items()]
    notes += [f"{root}: {one.structured['note']}" for root, one in good.items() if one.structured.get("note")]
    if notes:
        structured["note"] = " ".join(notes)
    blocks = [f"{root}:\n{one.text}" for root, one in answers.items()]
    more = [f"cursor: {structured['cursor']}"] if cursors else []
    return ToolResult("\n\n".join([*blocks, *more]), structured)


def _rows(result: ToolResult, key: str) -> list[dict[str, object]]:
    rows = result.structured.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _complete(result: ToolResult) -> bool:
    return result.structured.get("complete") is not False
