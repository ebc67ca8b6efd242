"""`sari doctor`: what is wrong on this machine and with this workspace's index, and how to mend it."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sari.cli.types import Subparsers
    from sari.install.checks import Check

_SIGNS = {"fine": "ok   ", "note": "note ", "wrong": "WRONG"}


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("doctor", help="say what is wrong and how to mend it")
    parser.add_argument("--workspace", metavar="DIR", help="the workspace root (else found from here)")
    parser.add_argument("--no-index", action="store_true", help="leave the index out, start no daemon")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from sari.install.checks import Check, machine_checks
    from sari.protocol.errors import SariError
    from sari.registry.places import home_directory
    from sari.registry.roots import find_root, resolve_root

    home = home_directory(os.environ)
    try:
        named = arguments.workspace
        root = resolve_root(named, home) if named else find_root(os.environ, [], os.getcwd(), home).path
    except SariError as error:
        root = ""
        workspace = Check("workspace", "wrong" if arguments.workspace else "note", str(error))
    else:
        workspace = Check("workspace", "fine", root)
    checks = [workspace, *machine_checks(os.environ, Path(root) if root else None)]
    if root and not arguments.no_index:
        checks += _index_checks(root)
    if arguments.json:
        print(json.dumps([check.as_dict() for check in checks], ensure_ascii=False))
    else:
        for check in checks:
            print(f"{_SIGNS[check.level]} {check.name}: {check.detail}")
            if check.mend and check.level != "fine":
                print(f"      {check.mend}")
    return 1 if any(check.level == "wrong" for check in checks) else 0


def _index_checks(root: str) -> list[Check]:
    from sari.cli.ask import ask
    from sari.install.checks import Check
    from sari.protocol.errors import SariError

    try:
        answer = ask("doctor", {}, root)
    except SariError as error:
        return [Check("index", "wrong", str(error), "See the daemon's log, or run `sari daemon restart`.")]
    found = answer.structured.get("checks")
    return [
        Check(f"index: {check['name']}", "fine" if check["ok"] else "wrong", check["detail"], check.get("mend", ""))
        for check in (found if isinstance(found, list) else [])
    ]
