"""`sari daemon start|stop|status|restart`: controls the daemon. Clients start it when they need it, so these commands
are rarely used.
"""

from __future__ import annotations

import argparse
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.cli.types import Subparsers
    from sari.registry.find import Finder


def register(subparsers: Subparsers) -> None:
    """Add `sari daemon` and its subcommands."""
    parser = subparsers.add_parser("daemon", help="start, stop, restart or show the daemon")
    commands = parser.add_subparsers(dest="daemon_command", metavar="COMMAND", required=True)
    for name, run, text in (
        ("start", _start, "start the daemon, or upgrade an older one; does nothing if it already runs"),
        ("restart", _restart, "replace the running daemon without downtime"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("--daemon-port", type=int, metavar="PORT", help="listen on exactly this port")
        one.add_argument("--http-port", type=int, metavar="PORT", help="serve HTTP on exactly this port")
        one.set_defaults(run=run)
    commands.add_parser("stop", help="stop the daemon and wait until its process has exited").set_defaults(run=_stop)
    status = commands.add_parser("status", help="list the running daemons (exit code 3: none)")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)


def _finder(arguments: argparse.Namespace) -> Finder:
    from sari import __version__
    from sari.registry.find import Finder
    from sari.registry.layout import find_layout
    from sari.registry.settings import Settings

    return Finder(
        find_layout(os.environ),
        Settings.from_environ(os.environ),
        __version__,
        getattr(arguments, "daemon_port", None),
        getattr(arguments, "http_port", None),
    )


def _start(arguments: argparse.Namespace) -> int:
    from sari.protocol.errors import SariError

    finder = _finder(arguments)
    found = finder.find_or_start()
    entry = found.entry
    found.sock.close()
    if found.older:
        newer = finder.upgrade()
        if newer is None:
            raise SariError(f"the daemon (version {entry.version}) was not upgraded: see `sari doctor`")
        entry = newer
    wanted = arguments.daemon_port
    if wanted is not None and wanted != entry.port:
        raise SariError(
            f"a daemon already runs on port {entry.port} (pid {entry.pid}): "
            f"move it with `sari daemon restart --daemon-port {wanted}`"
        )
    print(f"sari daemon is running: pid {entry.pid}, port {entry.port}")
    return 0


def _restart(arguments: argparse.Namespace) -> int:
    finder = _finder(arguments)
    entry = finder.restart()
    print(f"sari daemon is running: pid {entry.pid}, port {entry.port}")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    from sari.registry.stop import stop_all

    ended = stop_all(_finder(arguments).layout)
    print(f"sari daemon stopped: pid {', '.join(map(str, ended))}" if ended else "no sari daemon is running")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from sari.registry.store import Store

    registry = Store(_finder(arguments).layout).read()
    daemons = sorted(registry.daemons.values(), key=lambda entry: entry.start_ts)
    if arguments.json:
        shown = [
            {
                "boot_id": entry.boot_id,
                "pid": entry.pid,
                "port": entry.port,
                "version": entry.version,
                "draining": entry.draining,
                "start_ts": entry.start_ts,
                "workspaces": sorted(
                    root for root, place in registry.workspaces.items() if place.boot_id == entry.boot_id
                ),
            }
            for entry in daemons
        ]
        print(json.dumps(shown, indent=1))
    else:
        for entry in daemons:
            draining = ", being replaced" if entry.draining else ""
            print(f"sari daemon {entry.version}: pid {entry.pid}, port {entry.port}{draining}")
        if not daemons:
            print("no sari daemon is running")
    return 0 if daemons else 3
