"""`sari web`: opens the search page in a browser, signed in, for the current workspace."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from sari.cli.types import Subparsers


_INFO_S = 30.0


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("web", help="open the search page in a browser, signed in")
    parser.add_argument(
        "--workspace", metavar="DIR", help="the workspace root (default: found from the current directory)"
    )
    parser.add_argument("--no-open", action="store_true", help="only print the URL (valid once, for two minutes)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    import webbrowser
    from pathlib import Path

    from sari.registry.layout import find_layout

    address = _address(arguments.workspace)
    if not arguments.no_open:
        file = Path(find_layout(os.environ).data_dir) / "open.html"
        _write_redirect(file, address)
        if webbrowser.open(file.as_uri()):
            print("If no page opens, open this URL (valid once, for two minutes):")
    print(address)
    return 0


def _address(workspace: str | None) -> str:
    import time
    from urllib.parse import urlencode

    from sari import __version__
    from sari.protocol.errors import SariError
    from sari.registry.client import DaemonClient
    from sari.registry.find import Finder
    from sari.registry.layout import find_layout, home_directory
    from sari.registry.roots import find_root, resolve_root
    from sari.registry.settings import Settings
    from sari.registry.store import read_token
    from sari.web.guard import one_time_key

    home = home_directory(os.environ)
    root = resolve_root(workspace, home) if workspace else find_root(os.environ, [], os.getcwd(), home).path
    where = find_layout(os.environ)
    found = Finder(where, Settings.from_environ(os.environ), __version__).find_or_start(root)
    with DaemonClient(found.sock) as client:
        port = client.request("sari/info", {}, _INFO_S).get("http_port")
    token = found.entry.token or read_token(where)
    if not port or not token:
        raise SariError("the running daemon serves no HTTP: see its log, or run `sari daemon restart`")
    return f"http://127.0.0.1:{port}/#" + urlencode({"key": one_time_key(token, time.time()), "workspace": root})


def _write_redirect(file: Path, address: str) -> None:
    """Write a private page that redirects to the address. Other users could read a key in the browser's arguments."""
    from html import escape

    forward = f'<meta http-equiv="refresh" content="0;url={escape(address)}">'
    page = f'<!doctype html><meta charset="utf-8"><title>sari</title>{forward}'
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file_out:
        file_out.write(page)
