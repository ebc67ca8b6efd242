"""HTTP byte by byte over blocking sockets: a peer that reads and writes exactly what a test specifies.

Used on both sides of the proxy, so that only the proxy interprets the traffic.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Message:
    """A head as received, and a body according to its framing (chunks decoded; `raw_body` as received)."""

    start: str
    headers: list[tuple[str, str]]
    body: bytes
    raw_body: bytes

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if values else None


class Peer:
    """One connected socket with a read buffer."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) if sock.family != socket.AF_UNIX else None
        self._buffer = bytearray()  # with bytes, a transfer of 96 MB would copy 18 GB

    def send(self, data: bytes | str) -> None:
        self.sock.sendall(data.encode() if isinstance(data, str) else data)

    def read_some(self) -> bytes:
        """Return the available bytes; empty at the end."""
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            return data
        return self.sock.recv(262_144)

    def read_exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = self.sock.recv(262_144)
            if not data:
                raise EOFError(f"ended after {len(self._buffer)} of {count} bytes: {self._buffer[:200]!r}")
            self._buffer += data
        return self._take(count)

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            data = self.sock.recv(262_144)
            if not data:
                raise EOFError(f"ended before {mark!r}: {self._buffer[:200]!r}")
            self._buffer += data
        return self._take(self._buffer.index(mark) + len(mark))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def read_to_end(self) -> bytes:
        """Read until the other side closes. A reset raises ConnectionResetError."""
        while piece := self.sock.recv(262_144):
            self._buffer += piece
        return self._take(len(self._buffer))

    def ended(self) -> bool:
        """Return whether the connection ended in any way, with nothing more to read."""
        try:
            return self.read_to_end() == b""
        except ConnectionError:
            return True

    def read_head(self) -> tuple[str, list[tuple[str, str]]]:
        start, *lines = self.read_until(b"\r\n\r\n").decode("latin-1")[:-4].split("\r\n")
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return start, pairs

    def read_message(self, *, bodiless: bool = False) -> Message:
        """Read a complete request or response."""
        start, headers = self.read_head()
        head = Message(start, headers, b"", b"")
        length = head.get("Content-Length")
        if bodiless or (start.startswith("HTTP/") and head.status in (204, 304)):
            return head
        if (head.get("Transfer-Encoding") or "").lower() == "chunked":
            body, raw = self._read_chunks()
        elif length is not None:
            body = raw = self.read_exactly(int(length))
        elif start.startswith("HTTP/") and head.status >= 200:
            body = raw = self.read_to_end()
        else:
            body = raw = b""
        return Message(start, headers, body, raw)

    def _read_chunks(self) -> tuple[bytes, bytes]:
        body, raw = bytearray(), bytearray()
        while True:
            line = self.read_until(b"\r\n")
            raw += line
            size = int(line.split(b";")[0], 16)
            if not size:
                break
            piece = self.read_exactly(size + 2)
            raw += piece
            body += piece[:-2]
        while True:
            line = self.read_until(b"\r\n")
            raw += line
            if line == b"\r\n":
                return bytes(body), bytes(raw)

    def end_sending(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close the connection with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Script = Callable[[Peer], None]


class ScriptedUpstream:
    """A server that runs the current script for each new connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self.listener.getsockname()[1]
        self.script: Script = echo
        self.connections = 0
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._peers: list[Peer] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            peer = Peer(sock)
            self._peers.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer, self.script), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer, script: Script) -> None:
        try:
            script(peer)
        except (EOFError, OSError):
            pass  # the peer disconnected, which the test judges
        except BaseException as error:
            self.errors.append(error)
        finally:
            peer.close()

    def wait(self) -> None:
        """Wait until the scripts so far have ended. `close` would reset connections that they still read from."""
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), "a script did not end"

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(TIMEOUT_S)
        self.listener.close()
        for peer in self._peers:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)


@contextmanager
def scripted_upstream() -> Iterator[ScriptedUpstream]:
    server = ScriptedUpstream()
    try:
        yield server
    finally:
        server.close()
    for error in server.errors:
        raise error


def echo(peer: Peer) -> None:
    """Answer each request with a text that describes its head and body."""
    while True:
        request = peer.read_message()
        lines = [request.start, *(f"{name}: {value}" for name, value in request.headers), "", ""]
        body = "\r\n".join(lines).encode("latin-1") + request.raw_body
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body))
        if not request.start.startswith("HEAD "):
            peer.send(body)


def answer(raw: bytes | str, *, times: int = 1) -> Script:
    """Return a script that reads a request and sends these bytes, `times` times, then closes."""

    def script(peer: Peer) -> None:
        for _ in range(times):
            peer.read_message()
            peer.send(raw)

    return script
