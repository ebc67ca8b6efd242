"""`sari roots`: lists the workspaces in the registry and the daemon that serves each."""

from __future__ import annotations

import argparse
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("roots", help="list the workspaces that are being served")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from sari.registry.layout import find_layout
    from sari.registry.store import Store

    registry = Store(find_layout(os.environ)).read()
    rows = [
        {
            "root": root,
            "pid": daemon.pid,
            "version": daemon.version,
            "http": f"http://{entry.http_host}:{entry.http_port}/" if entry.http_port else None,
            "last_active_ts": entry.last_active_ts,
        }
        for root, entry in sorted(registry.workspaces.items())
        if (daemon := registry.daemons.get(entry.boot_id)) is not None
    ]
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False))
    elif not rows:
        print("No workspace is being served; the next client starts a daemon.")
    else:
        for row in rows:
            print(f"{row['root']}\tsari {row['version']}, process {row['pid']}, {row['http'] or 'no HTTP'}")
    return 0
