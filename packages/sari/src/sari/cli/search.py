"""`sari search`: what the tools find, for people and scripts. Exit code 0: found, 1: nothing found."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("search", help="search a workspace's text")
    parser.add_argument("query")
    parser.add_argument("--mode", choices=["literal", "regex", "words"], default="literal")
    parser.add_argument("--case", choices=["smart", "sensitive", "insensitive"], default="smart")
    parser.add_argument("--glob", action="append", dest="globs", metavar="GLOB", help="only these paths (repeatable)")
    parser.add_argument(
        "--language", action="append", dest="languages", metavar="NAME", help="only this (repeatable)"
    )
    parser.add_argument("--context", type=int, metavar="LINES", help="lines shown around each match")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="budget of the answer")
    parser.add_argument("--cursor", help="from an earlier answer, for the next page")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace root (else found from here)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.cli.ask import ask

    names = ("query", "mode", "case", "globs", "languages", "context", "max_tokens", "cursor")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    answer = ask("search", given, arguments.workspace)
    print(json.dumps(answer.structured, ensure_ascii=False) if arguments.json else answer.text)
    return 0 if answer.structured.get("total") else 1
