"""`sari doctor`: checks the installation, the daemon and this workspace's index, and says how to fix each problem.

Changes nothing, but starts a daemon to check the index, unless `--no-index` is given.
"""

from __future__ import annotations

import argparse
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers
    from sari.diagnostics.finding import Finding

_SIGNS = {"ok": "ok     ", "warning": "warning", "error": "error  "}


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check the installation and the index, and say how to fix problems (exit code 1: problems found)",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="the workspace root (default: found from the current directory)"
    )
    parser.add_argument("--no-index", action="store_true", help="do not check the index (starts no daemon)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from sari.diagnostics.daemon_checks import CHECKS
    from sari.diagnostics.finding import Finding
    from sari.diagnostics.machine_checks import machine_findings
    from sari.protocol.deprecated import fix_fields
    from sari.protocol.errors import SariError
    from sari.registry.layout import find_layout, home_directory
    from sari.registry.roots import find_root, resolve_root

    layout = find_layout(os.environ)
    findings = [finding for check in CHECKS for finding in check(layout)]
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
        print(
            json.dumps([{"level": one.level, "what": one.what, **fix_fields(one.fix)} for one in findings], indent=1)
        )
    else:
        for one in findings:
            print(f"{_SIGNS[one.level]} {one.what}" + (f"\n        → {one.fix}" if one.fix else ""))
    return 1 if any(one.level == "error" for one in findings) else 0


def _index_findings(root: str) -> list[Finding]:
    from sari.cli.tool_client import call_tool
    from sari.diagnostics.finding import Finding
    from sari.protocol.errors import SariError

    try:
        answer = call_tool("doctor", {}, root)
    except SariError as error:
        return [Finding("error", f"the index of {root}: {error}", "see the daemon's log, or `sari daemon restart`")]
    found = answer.structured.get("checks")
    return [
        Finding(
            "ok" if check["ok"] else "error", f"index, {check['name']}: {check['detail']}", check.get("fix") or ""
        )
        for check in (found if isinstance(found, list) else [])
    ]
