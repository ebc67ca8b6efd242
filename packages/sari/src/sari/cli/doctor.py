"""`sari doctor`: what is wrong with this installation, its surroundings and this workspace, and how to mend it.

Changes nothing, but starts a daemon to have the index examined, unless told not to.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sari.cli.types import Subparsers
    from sari.daemon.checks import Finding

_SIGNS = {"ok": "ok     ", "warning": "warning", "error": "error  "}


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor", help="what is wrong here, and how to mend it (exit code 1: something is)"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the workspace root (else found from here)")
    parser.add_argument("--no-index", action="store_true", help="leave the index out, start no daemon")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from sari.daemon.checks import CHECKS, Finding
    from sari.install.checks import machine_findings
    from sari.protocol.errors import SariError
    from sari.registry.places import find_places, home_directory
    from sari.registry.roots import find_root, resolve_root

    places = find_places(os.environ)
    findings = [finding for check in CHECKS for finding in check(places)]
    root = ""
    try:
        home, named = home_directory(os.environ), arguments.workspace
        root = resolve_root(named, home) if named else find_root(os.environ, [], os.getcwd(), home).path
    except SariError as error:
        findings.append(Finding("error" if arguments.workspace else "warning", f"no workspace: {error}"))
    findings += machine_findings(os.environ, Path(root) if root else None)
    if root and not arguments.no_index:
        findings += _index_findings(root)
    if arguments.json:
        print(json.dumps([{"level": one.level, "what": one.what, "mend": one.mend} for one in findings], indent=1))
    else:
        for one in findings:
            print(f"{_SIGNS[one.level]} {one.what}" + (f"\n        → {one.mend}" if one.mend else ""))
    return 1 if any(one.level == "error" for one in findings) else 0


def _index_findings(root: str) -> list[Finding]:
    from sari.cli.ask import ask
    from sari.daemon.checks import Finding
    from sari.protocol.errors import SariError

    try:
        answer = ask("doctor", {}, root)
    except SariError as error:
        return [Finding("error", f"the index of {root}: {error}", "see the daemon's log, or `sari daemon restart`")]
    found = answer.structured.get("checks")
    return [
        Finding(
            "ok" if check["ok"] else "error", f"index, {check['name']}: {check['detail']}", check.get("mend") or ""
        )
        for check in (found if isinstance(found, list) else [])
    ]
