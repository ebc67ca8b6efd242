"""Calls one tool from the command line: finds or starts the daemon and sends it the request from this process.

A search takes a few milliseconds, so what this imports is most of what a user waits for. The rules for finding and
starting a daemon are loaded only if the usual case does not apply.
"""

from __future__ import annotations

import json
import os
import time

from sari import __version__
from sari.protocol.errors import SariError, Transient
from sari.registry.layout import Layout, find_layout, home_directory
from sari.registry.roots import find_root, resolve_root
from sari.registry.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from sari.registry.client import DaemonClient

# If this call opened the workspace, it is still being parsed and the answer says to retry. At a terminal, waiting is
# better than a partial answer.
_AGAIN_S = 60.0
_ASK_AGAIN = "ask again in a moment"
_PAUSE_S = 0.2
# The daemon may be replaced or killed during the call. The request is then sent to its successor.
_ATTEMPTS = 5


class Answer:
    """The tool's result."""

    __slots__ = ("structured", "text")

    def __init__(self, text: str, structured: Mapping[str, object]) -> None:
        self.text = text
        self.structured = structured


def call_tool(tool: str, arguments: Mapping[str, object], workspace: str | None) -> Answer:
    """Call a tool in a workspace, by default the one found from the current directory. Raises `SariError` with the
    tool's error.
    """
    from sari.registry.client import DaemonClient

    root = workspace_root(workspace)
    settings = Settings.from_environ(os.environ)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with DaemonClient(_connect(root, settings)) as client:
                client.open_session("sari-cli")
                return _until_complete(client, root, tool, arguments, settings.request_timeout_s)
        except Transient:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def call_if_warm(tool: str, arguments: Mapping[str, object], root: str) -> Answer | None:
    """Call a tool if a daemon runs in which the workspace is warm. Otherwise returns None, and starts nothing."""
    layout = find_layout(os.environ)
    if not _is_registered(layout):
        return None
    from sari.registry.client import DaemonClient

    settings = Settings.from_environ(os.environ)
    try:
        sock = _connect_running(layout, root, settings)
        if sock is None:
            return None
        with DaemonClient(sock) as client:
            if not client.open_session("sari-cli", root):
                return None
            return _until_complete(client, root, tool, arguments, settings.request_timeout_s)
    except Transient:
        # It was replaced or killed during the call.
        return call_tool(tool, arguments, root)


def workspace_root(workspace: str | None) -> str:
    """Return the workspace that the user named, or the one found from the current directory."""
    home = home_directory(os.environ)
    if workspace:
        return resolve_root(workspace, home)
    try:
        directory = os.getcwd()
    except OSError as error:
        raise SariError(
            f"the current directory cannot be used ({error.strerror}): change to another one, or pass --workspace"
        ) from error
    return find_root(os.environ, [], directory, home).path


def _is_registered(layout: Layout) -> bool:
    """Return whether the registry names a daemon. If it does not, what talks to one need not be loaded."""
    try:
        with open(layout.registry_file, encoding="utf-8") as file:
            return bool(json.load(file)["daemons"])
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True


def _connect(root: str, settings: Settings) -> socket.socket:
    from sari.registry.usual import connect_usual

    layout = find_layout(os.environ)
    usual = connect_usual(layout, root, __version__)
    if usual is not None:
        return usual[0]
    from sari.registry.find import Finder
    from sari.registry.start import StartCutOff

    try:
        return Finder(layout, settings, __version__).find_or_start(root).sock
    except StartCutOff as error:
        raise Transient(str(error)) from error


def _connect_running(layout: Layout, root: str, settings: Settings) -> socket.socket | None:
    """Connect to the daemon if one runs."""
    from sari.registry.usual import connect_usual

    usual = connect_usual(layout, root, __version__)
    if usual is not None:
        return usual[0]
    from sari.registry.find import Finder

    found = Finder(layout, settings, __version__).find(root)
    return found.sock if found is not None else None


def _until_complete(
    client: DaemonClient, root: str, tool: str, arguments: Mapping[str, object], timeout_s: float
) -> Answer:
    deadline = time.monotonic() + _AGAIN_S
    while True:
        answer = _answer(client.call_tool(root, tool, arguments, timeout_s))
        if _ASK_AGAIN not in str(answer.structured.get("note")) or time.monotonic() > deadline:
            return answer
        time.sleep(_PAUSE_S)


def _answer(result: Mapping[str, object]) -> Answer:
    content, structured = result.get("content"), result.get("structuredContent")
    parts = content if isinstance(content, list) else []
    text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    if result.get("isError"):
        raise SariError(text)
    return Answer(text, structured if isinstance(structured, dict) else {})
