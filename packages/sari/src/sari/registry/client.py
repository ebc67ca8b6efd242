"""A plain, blocking client for one daemon, used by the command line and by a daemon that takes over. Standard library
only.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from sari.protocol import jsonrpc
from sari.protocol.errors import SariError, Transient
from sari.protocol.framing import Decoder, Refused

_CHUNK = 1 << 18
_LARGEST_ANSWER = 1 << 28


class Refusal(SariError):
    """Raised when the daemon answered with an error."""


class Unavailable(Transient):
    """Raised when the daemon is being replaced: read the registry again."""


class DaemonClient:
    """One authenticated connection that sends one request at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = Decoder(_LARGEST_ANSWER)
        self._arrived: list[bytes] = []
        self._count = 0

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def request(self, method: str, params: Mapping[str, object], timeout_s: float = 120.0) -> dict[str, object]:
        """Send a request and wait for the result. Raises `Refusal`, or `Transient` if the daemon exits or does not
        answer.
        """
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": dict(params)}
        deadline = time.monotonic() + timeout_s
        try:
            self._sock.settimeout(timeout_s)
            self._sock.sendall(jsonrpc.encode(message) + b"\n")
            while True:
                answer = jsonrpc.decode_answer(self._next_line(deadline))
                if isinstance(answer, dict) and answer.get("id") == self._count and "method" not in answer:
                    break
        except (OSError, jsonrpc.NotAMessage) as error:
            raise Transient(f"the daemon did not answer {method}: {error or type(error).__name__}") from error
        failure = answer.get("error")
        if isinstance(failure, dict):
            kind = Unavailable if failure.get("code") == jsonrpc.UNAVAILABLE else Refusal
            raise kind(str(failure.get("message")))
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def open_session(self, client: str, root: str | None = None) -> bool:
        """Open a session, which tool calls require. Returns False if the daemon would have to read the files of this
        workspace before it can answer a search.
        """
        params: dict[str, object] = {
            "session": os.urandom(16).hex(), "client": client, "roots": [], "idle_s": 0, "process": os.getppid()
        }  # fmt: skip
        if root is not None:
            params["root"] = root
        return self.request("sari/session", params).get("warm") is not False

    def call_tool(
        self, root: str, tool: str, arguments: Mapping[str, object], timeout_s: float = 120.0
    ) -> dict[str, object]:
        """Call a tool in a workspace and return MCP's result: `content`, `structuredContent`, `isError`."""
        params = {"name": tool, "arguments": dict(arguments), "_meta": {"sari/root": root}}
        return self.request("tools/call", params, timeout_s)

    def _next_line(self, deadline: float) -> bytes:
        while not self._arrived:
            self._sock.settimeout(max(0.01, deadline - time.monotonic()))
            data = self._sock.recv(_CHUNK)
            if not data:
                raise ConnectionError("it closed the connection")
            self._arrived += [item for item in self._decoder.feed(data) if not isinstance(item, Refused)]
        return self._arrived.pop(0)
