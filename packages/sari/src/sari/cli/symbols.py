"""`sari symbols`: lists definitions, one per line as `path:line:kind name`. Exit code 0: found, 1: nothing found."""

from __future__ import annotations

import argparse
import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("symbols", help="find definitions in a workspace")
    parser.add_argument("query", help="a name or part of one; Class.method narrows the search")
    parser.add_argument("--kind", action="append", metavar="KIND", help="class, function, method, … (repeatable)")
    parser.add_argument(
        "--language", action="append", dest="languages", metavar="NAME", help="only this language (repeatable)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="print at most N symbols")
    parser.add_argument(
        "--workspace", metavar="DIR", help="the workspace root (default: found from the current directory)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.cli.tool_client import call_tool

    names = ("query", "kind", "languages", "limit")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    answer = call_tool("symbols", given, arguments.workspace)
    if arguments.json:
        print(json.dumps(answer.structured, ensure_ascii=False))
        return 0 if answer.structured.get("symbols") else 1
    symbols = answer.structured.get("symbols")
    assert isinstance(symbols, list)
    for one in symbols:
        dotted = f"{one['container']}.{one['name']}" if one["container"] else one["name"]
        print(f"{one['path']}:{one['line']}:{one['kind']} {dotted}")
    if answer.structured.get("note"):
        print(answer.structured["note"], file=sys.stderr)
    return 0 if answer.structured.get("symbols") else 1
