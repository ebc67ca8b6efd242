"""A terminal program for tests: attaches to a workspace's terminal like a browser and draws it on a model."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from codehub.workspaced.vt import Terminal as Model
from testing.codehub.doors import Doors
from testing.codehub.full_stack import TIMEOUT_S


class Viewer:
    """A terminal program that draws and acknowledges what it receives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.model = Model(80, 24)
        self.next = -1
        self.received = 0
        self.exit: int | None = None

    def take(self) -> bytes:
        message = self.socket.recv(timeout=TIMEOUT_S)
        assert isinstance(message, bytes)
        kind, body = message[:1], message[1:]
        if kind == b"S":
            self.next, cols, rows = struct.unpack(">QHH", body[:12])
            self.model = Model(cols, rows)
            self.model.feed(body[12:])
        elif kind == b"O":
            (begin,) = struct.unpack(">Q", body[:8])
            assert begin == self.next, "a byte was lost or came twice"
            self.model.feed(body[8:])
            self.received += len(body) - 8
            self.next = begin + len(body) - 8
            # A terminal that has ended needs no acknowledgement, but its output must still be read.
            with suppress(ConnectionClosed):
                self.socket.send(b"A" + struct.pack(">Q", self.next))
        elif kind == b"R":
            size = json.loads(body)
            self.model.resize(size["cols"], size["rows"])
        elif kind == b"X":
            self.exit = json.loads(body)["exit_code"]
        return kind

    def type(self, text: str) -> None:
        self.socket.send(b"I" + text.encode())

    def resize(self, cols: int, rows: int) -> None:
        self.socket.send(b"R" + json.dumps({"cols": cols, "rows": rows}).encode())

    @property
    def lines(self) -> list[str]:
        return [line.text for line in self.model.screen.lines]

    def until(self, text: str, times: int = 1) -> None:
        """Wait until this many lines of the screen contain the text."""
        deadline = time.monotonic() + TIMEOUT_S
        while sum(text in line for line in self.lines) < times:
            assert time.monotonic() < deadline, self.lines
            self.take()


def opened(doors: Doors, command: object = None) -> str:
    with doors.client() as client:
        body = {"cols": 80, "rows": 24} | ({"command": command} if command else {})
        made = client.post(doors.api + "/terminals", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@contextmanager
def attached(doors: Doors, terminal: str, after: int | None = None) -> Iterator[Viewer]:
    address = f"{doors.stack.url.replace('http', 'ws', 1)}{doors.api}/terminals/{terminal}/attach"
    query = f"?after={after}" if after is not None else ""
    headers = {"Authorization": f"Bearer {doors.token}"}
    with connect(address + query, additional_headers=headers, max_size=None, proxy=None) as socket:
        yield Viewer(socket)
