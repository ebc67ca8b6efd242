"""`sari search`: prints every matching line in ripgrep's format, for people and scripts. Exit code 0: found, 1: nothing
found.

Matches go to standard output and messages to standard error, so a pipe receives only matches.
"""

from __future__ import annotations

import argparse
import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sari.cli.types import Subparsers

# The token budget of one request. Without --max-tokens, all pages are printed.
_PAGE_TOKENS = 100_000


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("search", help="search the text of a workspace")
    parser.add_argument("query", help="the text to search for (literal unless --mode is given)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--mode", choices=["literal", "regex", "words", "ranked"], default="literal")
    mode.add_argument(
        "-E", "--regex", dest="mode", action="store_const", const="regex", help="ripgrep's regex syntax"
    )
    mode.add_argument("-w", "--word", dest="mode", action="store_const", const="words", help="whole words only")
    mode.add_argument(
        "-r",
        "--ranked",
        dest="mode",
        action="store_const",
        const="ranked",
        help="ask a question in plain words: prints the best places, best first",
    )
    case = parser.add_mutually_exclusive_group()
    case.add_argument("--case", choices=["smart", "sensitive", "insensitive"], default="smart")
    case.add_argument("-i", "--ignore-case", dest="case", action="store_const", const="insensitive")
    case.add_argument("-s", "--case-sensitive", dest="case", action="store_const", const="sensitive")
    parser.add_argument(
        "-g", "--glob", action="append", dest="globs", metavar="GLOB", help="only these paths (repeatable)"
    )
    parser.add_argument(
        "-t",
        "--language",
        action="append",
        dest="languages",
        metavar="NAME",
        help="only files in this language (repeatable)",
    )
    parser.add_argument("-C", "--context", type=int, metavar="LINES", help="lines of context around each match")
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="print one page of at most N tokens (default: everything)"
    )
    parser.add_argument("--cursor", help="cursor of the previous page")
    parser.add_argument(
        "--workspace", metavar="DIR", help="the workspace root (default: found from the current directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one page as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.cli.search_source import SearchSource

    names = ("query", "mode", "case", "globs", "languages", "context", "max_tokens", "cursor")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    whole = not (arguments.json or arguments.max_tokens or arguments.cursor)
    if arguments.mode == "ranked":
        return _run_ranked(given, arguments)
    if whole:
        given["max_tokens"] = _PAGE_TOKENS
    source = SearchSource(arguments.workspace)
    while True:
        answer = source.page(given).structured
        if arguments.json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            sys.stdout.writelines(f"{row}\n" for row in _rows(answer, follows="cursor" in given))
        cursor = answer.get("cursor")
        if not whole or not cursor:
            break
        given["cursor"] = cursor
    if not arguments.json and answer.get("note"):
        print(answer["note"], *([f"cursor: {cursor}"] if cursor else []), sep="\n", file=sys.stderr)
    source.finish()
    return 0 if answer.get("total") else 1


def _run_ranked(given: dict[str, object], arguments: argparse.Namespace) -> int:
    from sari.cli.tool_client import call_tool

    answer = call_tool("search", given, arguments.workspace)
    found = answer.structured
    if arguments.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        matches = found.get("matches")
        assert isinstance(matches, list)
        print("\n\n".join(f"{match['path']}:{match['line']}\n{match['text']}" for match in matches))
        if found.get("note"):
            print(found["note"], file=sys.stderr)
    return 0 if found.get("matches") else 1


def _rows(answer: Mapping[str, object], follows: bool) -> Iterator[str]:
    """Yield the lines to print. With context, groups are separated as in ripgrep."""
    matches = answer.get("matches")
    assert isinstance(matches, list)
    for match in matches:
        path, line = match["path"], match["line"]
        before, after = match.get("before", []), match.get("after", [])
        if follows and (before or after):
            yield "--"
        follows = True
        yield from (f"{path}-{line - len(before) + at}-{row}" for at, row in enumerate(before))
        yield f"{path}:{line}:{match['text']}"
        yield from (f"{path}-{line + 1 + at}-{row}" for at, row in enumerate(after))
