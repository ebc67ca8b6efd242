"""What VS Code's Remote-SSH sends over `ssh`, with a real VS Code server: code-server contains one.

The extension itself cannot be had here. This is its sequence: a shell script over standard input that finds the server or
asks for an upload, starts it apart from the connection and prints where it listens; then the protocol of the server through
a forwarded port, a forwarded socket, or an exec server on the standard input and output of `ssh`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import tarfile
import threading
from pathlib import Path

from testing.codehub.full_stack import TIMEOUT_S
from testing.codehub.ide import installed_code_server

# A third of the server that these tests do not use: the pages of the browser, telemetry and parsers.
_NOT_NEEDED = ("/out/vs/code/browser", "/out/media", "/@xterm", "/katex", "/zod", "tree-sitter-wasm", "1ds-post-js")
# Prints lines of `name=value`. The upload is complete when a second file is there, as in the "local download" mode.
SCRIPT = """
set -e
commit={commit} where={where} base="$HOME/.vscode-server"
folder="$base/bin/$commit"
echo "platform=$(uname -s)-$(uname -m)"
umask 077
mkdir -p "$folder"
if [ ! -x "$folder/node" ]; then
    echo "upload=$base/server.tar"
    while [ ! -e "$base/server.tar.done" ]; do sleep 0.1; done
    tar -xf "$base/server.tar" -C "$folder"
    rm "$base/server.tar" "$base/server.tar.done"
fi
state="$base/.$commit.$where"
if ! kill -0 "$(cat "$state.pid" 2>/dev/null)" 2>/dev/null; then
    if [ "$where" = port ]; then at=--port=0; else at="--socket-path=$state.sock"; fi
    printf %s "{token}" > "$state.token"
    nohup sh "$folder/bin/code-server-oss" --start-server --host=127.0.0.1 "$at" --connection-token-file "$state.token" \\
        --accept-server-license-terms --telemetry-level off --enable-remote-auto-shutdown > "$state.log" 2>&1 < /dev/null &
    echo $! > "$state.pid"
fi
until grep -q "^Extension host agent listening on" "$state.log"; do
    kill -0 "$(cat "$state.pid")" || {{ cat "$state.log"; exit 1; }}
    sleep 0.1
done
echo "pid=$(cat "$state.pid")"
echo "token=$(cat "$state.token")"
echo "listening=$(sed -n 's/^Extension host agent listening on //p' "$state.log")"
"""
# A frame is the number of a stream, a length, and bytes. A stream begins with a socket's path and ends with an empty frame.
EXEC_SERVER = r"""
import os, socket, struct, sys, threading
streams, lock = {}, threading.Lock()
def send(number, data):
    with lock:
        sys.stdout.buffer.write(struct.pack(">II", number, len(data)) + data)
        sys.stdout.buffer.flush()
def forward(number, sock):
    while data := sock.recv(65536):
        send(number, data)
    send(number, b"")
while head := sys.stdin.buffer.read(8):
    number, size = struct.unpack(">II", head)
    data = sys.stdin.buffer.read(size)
    if number not in streams:
        streams[number] = socket.socket(socket.AF_UNIX)
        streams[number].connect(data)
        threading.Thread(target=forward, args=(number, streams[number]), daemon=True).start()
    elif data:
        streams[number].sendall(data)
    else:
        streams[number].shutdown(socket.SHUT_WR)
"""


def make_archive(target: Path) -> str:
    """Write the archive that is uploaded, and return the commit of the server in it."""
    ide = installed_code_server().parent
    server = ide / "node_modules/code-server/lib/vscode"
    with tarfile.open(target, "w") as out:
        for name in ("bin", "out", "node_modules", "package.json", "product.json"):
            out.add(server / name, name, filter=lambda file: None if file.name.endswith(_NOT_NEEDED) else file)
        out.add(ide / "node/bin/node", "node")
    return str(json.loads((server / "product.json").read_text())["commit"])


def read_value(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Return the next line of the form `name=value`."""
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    name, equals, value = line.strip().partition("=")
    assert equals, (line, process.stderr and process.stderr.read())
    return name, value


def through_socks(proxy: socket.socket, port: int) -> socket.socket:
    """Connect to a port of the workspace's loopback through `ssh -D`."""
    proxy.sendall(b"\5\1\0")
    assert proxy.recv(2) == b"\5\0"
    proxy.sendall(b"\5\1\0\1\x7f\0\0\1" + port.to_bytes(2, "big"))
    assert proxy.recv(10)[:2] == b"\5\0"
    return proxy


class ExecServer:
    """The client's side of an exec server: many connections over the standard input and output of one `ssh`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._streams: dict[int, socket.socket] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def connect(self, path: str) -> socket.socket:
        ours, other = socket.socketpair()
        ours.settimeout(TIMEOUT_S)
        number = len(self._streams)
        self._streams[number] = other
        self._send(number, path.encode())
        threading.Thread(target=self._forward, args=(number, other), daemon=True).start()
        return ours

    def _send(self, number: int, data: bytes) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(struct.pack(">II", number, len(data)) + data)
            self._process.stdin.flush()

    def _forward(self, number: int, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, ValueError):
            while data := sock.recv(65536):
                self._send(number, data)
            self._send(number, b"")

    def _receive(self) -> None:
        assert self._process.stdout is not None
        # Whoever ends the process closes its output, maybe during a read.
        with contextlib.suppress(ValueError):
            while len(head := self._process.stdout.read(8)) == 8:
                number, size = struct.unpack(">II", head)
                data = self._process.stdout.read(size)
                with contextlib.suppress(OSError):
                    self._streams[number].sendall(data) if data else self._streams[number].shutdown(socket.SHUT_WR)
        for each in self._streams.values():
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # which ends the threads that forward


def get(connection: socket.socket, path: str) -> tuple[int, bytes]:
    """Return the status and the body of an HTTP response. Closes the connection."""
    with connection, connection.makefile("rb") as answer:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        status = int(answer.readline().split()[1])
        return status, answer.read().partition(b"\r\n\r\n")[2]


class Desktop:
    """A connection of the desktop application to its server: WebSocket upgrade, then frames of VS Code's own protocol."""

    _CONTROL = 2

    def __init__(self, connection: socket.socket, commit: str) -> None:
        self._connection = connection
        self._commit = commit
        self._answers = connection.makefile("rb")

    def open(self, token: str, session: str, *, again: bool) -> dict[str, str]:
        """Sign in, and return the server's answer to a new session or to one that was interrupted."""
        query = f"reconnectionToken={session}&reconnection={str(again).lower()}&skipWebSocketFrames=true"
        self._connection.sendall(
            f"GET ws://localhost/stable-{self._commit}?{query} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert self._answers.readline().startswith(b"HTTP/1.1 101")
        while self._answers.readline() != b"\r\n":
            pass
        self._control({"type": "auth", "auth": token, "data": "challenge"})
        asked = self._answer()
        if asked["type"] != "sign":
            return asked
        self._control({"type": "connectionType", "signedData": "signed", "desiredConnectionType": 1})
        return self._answer()

    def wait_for_end(self) -> None:
        """Return when the connection has ended. What the server sends until then is ignored."""
        with contextlib.suppress(ConnectionResetError):
            while self._answers.read(1):
                pass

    def close(self) -> None:
        self._answers.close()
        self._connection.close()

    def _control(self, message: dict[str, object]) -> None:
        body = json.dumps(message).encode()
        self._connection.sendall(struct.pack(">BIII", self._CONTROL, 0, 0, len(body)) + body)

    def _answer(self) -> dict[str, str]:
        while True:
            kind, _, _, size = struct.unpack(">BIII", self._answers.read(13))
            body = self._answers.read(size)
            if kind == self._CONTROL:
                answer: dict[str, str] = json.loads(body)
                return answer
