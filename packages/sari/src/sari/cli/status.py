"""`sari status`: shows the daemon, its open workspaces and its sessions. Starts nothing."""

from __future__ import annotations

import argparse
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser("status", help="show the daemon and its open workspaces (exit code 3: no daemon)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari import __version__
    from sari.registry.client import DaemonClient
    from sari.registry.find import Finder
    from sari.registry.layout import find_layout
    from sari.registry.settings import Settings

    found = Finder(find_layout(os.environ), Settings.from_environ(os.environ), __version__).find()
    if found is None:
        print("{}" if arguments.json else "no sari daemon is running; the next client starts one")
        return 3
    with DaemonClient(found.sock) as client:
        info = client.request("sari/info", {}, 30.0)
    if arguments.json:
        print(json.dumps(info, indent=1))
    else:
        print("\n".join(_lines(info)))
    return 0


def _lines(info: dict[str, object]) -> list[str]:
    draining = ", being replaced" if info.get("draining") else ""
    lines = [
        f"sari daemon {info.get('version')}: pid {info.get('pid')}, port {info.get('port')}, "
        f"HTTP port {info.get('http_port')}{draining}"
    ]
    for workspace in _dicts(info.get("workspaces")):
        status = workspace.get("status")
        state = status.get("state") if isinstance(status, dict) else None
        lines.append(f"  {workspace.get('root')}: {workspace.get('sessions')} sessions, {state or 'opening'}")
    if len(lines) == 1:
        lines.append("  no workspace is open")
    return lines


def _dicts(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
