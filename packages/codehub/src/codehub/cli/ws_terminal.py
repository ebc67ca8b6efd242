"""`codehub ws terminal`: shows a terminal of a workspace, as the dashboard does, in the terminal that runs this command.

docs/doors.md describes the messages. After a lost connection it attaches again at the same byte; keys typed meanwhile are
dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from codehub.cli.client import HERE, KINDS
from codehub.cli.credentials import Credentials
from codehub.cli.options import connect, find_workspace, inside, server_option, workspace_argument
from codehub.cli.output import console
from codehub.cli.ws_copy import quoted
from codehub.domain.errors import CodeHubError, Unavailable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_FIRST_RETRY_S: Final = 0.25
_LONGEST_RETRY_S: Final = 3.0
_LAST_KEYS_S: Final = 2.0
_LONGEST_MESSAGE: Final = 9 << 20  # the API sends at most 8 MB
_REFUSED: Final = 4000  # a refusal closes the socket with this plus the HTTP status
_ENDED: Final = 1000
# The state that a screen is drawn into and that the user's shell expects: the main screen, no mouse, no margins.
_RESET: Final = (
    b"\x1b[?47l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1004l\x1b[?2004l\x1b[?2026l"
    b"\x1b[?1l\x1b>\x1b[r\x1b[!p\x1b[?7h\x1b[?25h\x1b[0 q\x1b(B\x0f\x1b[m"
)
_CLEAR: Final = b"\x1b[H\x1b[2J"
_LAST_LINE: Final = b"\x1b[999;1H\r\n"


@click.command()
@workspace_argument
@click.argument("terminal", required=False)
@server_option
def terminal(workspace: str, terminal: str | None, server: str | None) -> None:
    """Open a terminal in a workspace, or attach to TERMINAL, an id of `codehub ws terminals`.

    It is one of the terminals that the dashboard shows: it goes on when you detach or lose the connection. Press Enter,
    then `~.` to detach. Opening wakes the workspace, attaching does not.

    \b
    Examples:
      codehub ws terminal api
      codehub ws terminal api 4f1c22d0
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("This needs a terminal. For scripts, use `codehub ws exec`.")
    credentials = Credentials(os.environ)
    address = credentials.server(server)
    if terminal is None:
        with inside(server, workspace) as (client, found):
            terminal = str(client.post(f"workspaces/{found['id']}/terminals", dict(_size()))["id"])
    else:
        with connect(server) as client:
            found = find_workspace(client, workspace)
    url = f"{address.replace('http', 'ws', 1)}/api/v1/workspaces/{found['id']}/terminals/{quoted(terminal)}/attach"
    viewer = Viewer(url, credentials.token(address))
    with _raw_mode():
        code = asyncio.run(viewer.run())
    if viewer.exited:
        raise click.exceptions.Exit(1 if code is None else code)
    console(err=True).print(f"Detached. Attach again with `codehub ws terminal {workspace} {terminal}`.")


def _size() -> Iterator[tuple[str, int]]:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    yield "cols", columns or 80
    yield "rows", rows or 24


@contextlib.contextmanager
def _raw_mode() -> Iterator[None]:
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)  # keeps what was typed already
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Keys:
    """Finds `~.` at the beginning of a line in what is typed. `~~` there is one `~`, as with `ssh`."""

    def __init__(self) -> None:
        self._line_start = True
        self._tilde = False

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """Return what is to be sent, and whether the user detaches."""
        out = bytearray()
        for key in typed:
            if self._tilde:
                self._tilde = False
                if key == ord("."):
                    return bytes(out), True
                out += b"~" if key == ord("~") else bytes((ord("~"), key))
            elif self._line_start and key == ord("~"):
                self._tilde = True
                continue
            else:
                out.append(key)
            self._line_start = key in b"\r\n"
        return bytes(out), False


class Viewer:
    """One terminal, attached until its program ends or the user detaches."""

    def __init__(self, url: str, token: str | None) -> None:
        self.exited = False
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._next: int | None = None  # the number of the next byte; None before the first screen
        self._keys = Keys()
        self._outgoing: asyncio.Queue[bytes] | None = None  # None while there is no connection
        self._left = asyncio.Event()
        self._exit_code: int | None = None
        self._asked_for_size = False
        self._sent_size: dict[str, int] | None = None

    async def run(self) -> int | None:
        """Return the exit code of the program, or None if the user detached."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._left.set)
        attached = asyncio.ensure_future(self._stay_attached())
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait((attached, left), return_when=asyncio.FIRST_COMPLETED)
            if not attached.done():
                await self._flush_keys()
                return None
            attached.result()
            self.exited = True
            return self._exit_code
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for task in (attached, left):
                task.cancel()
            await asyncio.gather(attached, left, return_exceptions=True)
            if self._next is not None:
                with contextlib.suppress(OSError):  # the terminal is gone
                    _write(_RESET + _LAST_LINE)

    def _typed(self) -> None:
        typed = b""
        with contextlib.suppress(OSError):  # the terminal is gone
            typed = os.read(sys.stdin.fileno(), 64 << 10)
        if not typed:
            self._left.set()
            return
        self._resized()  # the signal may come later than what was typed after the change
        sent, leaves = self._keys.feed(typed)
        if sent:
            self._send(b"I" + sent)
        if leaves:
            self._left.set()

    def _resized(self) -> None:
        if self._outgoing is not None and dict(_size()) != self._sent_size:
            self._send(self._size_message())

    def _size_message(self) -> bytes:
        self._sent_size = dict(_size())
        return b"R" + json.dumps(self._sent_size).encode()

    async def _flush_keys(self) -> None:
        """Wait for what was typed before the user detached, but not long: the connection may have stalled."""
        if self._outgoing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._outgoing.join(), _LAST_KEYS_S)

    def _send(self, message: bytes) -> None:
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    async def _stay_attached(self) -> None:
        from websockets.asyncio.client import connect as open_socket
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        local = urlsplit(self._url).hostname in HERE
        retry_s = _FIRST_RETRY_S
        while True:
            url = self._url if self._next is None else f"{self._url}?after={self._next}"
            before = self._next
            try:
                async with open_socket(
                    url,
                    additional_headers=self._headers,
                    max_size=_LONGEST_MESSAGE,
                    compression=None,
                    proxy=None if local else True,
                ) as socket:
                    await self._show(socket)
                    continue  # for the screen in the new size
            except ConnectionClosed as error:
                code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd else (1006, "")
                if code == _ENDED:
                    return
                _check_refusal(code - _REFUSED, reason)
            except (OSError, InvalidHandshake) as error:
                if self._next is None:
                    raise Unavailable(f"the terminal cannot be reached ({error})") from error
            if self._next != before:
                retry_s = _FIRST_RETRY_S
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _LONGEST_RETRY_S)

    async def _show(self, socket: ClientConnection) -> None:
        """Draw what comes, until the connection ends with an error. Returns when the screen has to be drawn again."""
        await socket.send(self._size_message())
        self._outgoing = asyncio.Queue()
        self._resized()  # while the message was sent
        sending = asyncio.ensure_future(self._send_all(socket, self._outgoing))
        try:
            while True:
                message = await socket.recv()
                assert isinstance(message, bytes)
                if not await self._take(message):
                    return
        finally:
            self._outgoing = None
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self, socket: ClientConnection, outgoing: asyncio.Queue[bytes]) -> None:
        while True:
            await socket.send(await outgoing.get())
            outgoing.task_done()

    async def _take(self, message: bytes) -> bool:
        """Returns False for a screen in another size than ours: ours was sent, so the next one fits."""
        kind = message[:1]
        if kind == b"S":
            self._next, columns, rows = struct.unpack(">QHH", message[1:13])
            if not self._asked_for_size and dict(_size()) != {"cols": columns, "rows": rows}:
                self._asked_for_size = True
                self._next = None
                return False
            await asyncio.to_thread(_write, _RESET + _CLEAR + message[13:])
            # What was typed until now is read now. The connection before may have ended for a screen in another size.
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._typed)
        elif kind == b"O":
            (begin,) = struct.unpack(">Q", message[1:9])
            # In a thread: if the user's terminal is slow or stopped, keys are still read.
            await asyncio.to_thread(_write, message[9:])
            self._next = begin + len(message) - 9
            self._send(b"A" + struct.pack(">Q", self._next))
        elif kind == b"X":
            self._exit_code = json.loads(message[1:])["exit_code"]
        return True


def _check_refusal(status: int, reason: str) -> None:
    """Raise what the API refused with, unless it may be different at the next attempt."""
    if 400 <= status < 500 and status != 429:
        raise KINDS.get(status, CodeHubError)(reason or f"the server answered {status}")


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
