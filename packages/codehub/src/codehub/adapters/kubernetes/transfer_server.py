"""The program of an archive or restore Job: serves a home's bytes to the one caller that knows the Job's secret.

The coordinator reads an archive from here and streams it into the archive store, or streams one from the store to here.
A workspace namespace therefore holds no store credentials and needs no outbound network. A transfer can be repeated from
the beginning at any time, also by the next leader. If two run at once, the later one wins. Imports only CodeHub's tar and
zstd code.

    GET  /archive   the home as home.tar.zst, chunked; not terminated properly if anything went wrong
    GET  /result    the result of the last complete /archive: {"sha256", "bytes", "tar_bytes", "entries"}, or its error
    PUT  /restore   a home.tar.zst with its metadata in headers → 200 once it is unpacked, verified and on the disk
    POST /finish    write the termination message and exit
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import hmac
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.objectstore.compression import compressed, decompressed
from codehub.adapters.objectstore.layout import Meta
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import CodeHubError, OutOfSpace, Transient
from codehub.workspaced.listening import listen

_LIBC = ctypes.CDLL(None, use_errno=True)
PORT: Final = 7070
# A deposed leader is replaced within seconds. A Job without requests for this long is left over.
_IDLE_TIMEOUT_S: Final = 900.0
_TERMINATION_LOG: Final = Path("/dev/termination-log")
# Created by mkfs, owned by root and not part of the home.
LEFT_OUT: Final = frozenset({"lost+found"})
_LONGEST_CHUNK_HEADER: Final = 64


class Superseded(Transient):
    """Raised when a later request has taken over."""


class NeedsWriting(Transient):
    """Raised if a file's mode denies access to its owner: it can only be read from a volume that is mounted read-write."""


@dataclass
class State:
    """State shared by the request threads of one Job."""

    root: Path
    secret: str
    direction: str
    result: dict[str, object] | None = None
    attested: dict[str, object] | None = None
    latest: int = 0
    last_asked: float = 0.0

    def __post_init__(self) -> None:
        self.turn = threading.Lock()
        self.counter = threading.Lock()
        self.finished = threading.Event()

    def take_turn(self) -> int:
        with self.counter:
            self.latest += 1
            return self.latest

    def begin(self, number: int) -> None:
        """Begin a turn, before anything of the home is changed: from now on, no earlier result holds."""
        with self.counter:
            self.check(number)
            self.result = None

    def check(self, number: int) -> None:
        self.last_asked = time.monotonic()
        if number != self.latest or self.finished.is_set():
            raise Superseded("another request has taken over")

    def finish(self) -> None:
        """Attest the result. Nothing changes the home any more, unless that began before: then there is no result."""
        with self.counter:
            self.attested = self.result
            self.finished.set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 300.0  # of one read or write: a peer that disappeared silently must not hold its turn forever
    state: State

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the coordinator already logs its requests."""

    def _is_allowed(self) -> bool:
        given = self.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self.state.secret.encode()):
            self.state.last_asked = time.monotonic()
            return True
        self.close_connection = True
        self._answer(401, {"error": "Unauthorized", "message": "this Job serves the coordinator that created it"})
        return False

    def _answer(self, code: int, body: dict[str, object]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self.path == "/archive" and self.state.direction == "archive":
            self._archive()
        elif self.path == "/result" and self.state.result is not None:
            self._answer(200, self.state.result)
        else:
            self._answer(404, {"error": "NotFound", "message": self.path})

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        if self.path != "/finish":
            self._answer(404, {"error": "NotFound", "message": self.path})
            return
        with contextlib.suppress(OSError):  # the caller is gone, but what it asked for holds
            self._answer(200, {})
        self.state.finish()

    def do_PUT(self) -> None:
        if not self._is_allowed():
            return
        if self.path != "/restore" or self.state.direction != "restore":
            self.close_connection = True
            self._answer(404, {"error": "NotFound", "message": self.path})
            return
        self.close_connection = True  # after an error, the rest of the body is not read
        number = self.state.take_turn()
        with self.state.turn:
            try:
                self._answer(200, self._restore(number))
            except (CodeHubError, OSError, ValueError) as error:
                failed = error if isinstance(error, CodeHubError) else _of_unpacking(error)
                with contextlib.suppress(OSError):
                    self._answer(500, _described(failed))

    def _archive(self) -> None:
        number = self.state.take_turn()
        self.close_connection = True
        with self.state.turn:
            self.state.result = None
            self.send_response(200)
            self.send_header("content-type", "application/zstd")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            packed, digest, sent = Packed(), hashlib.sha256(), 0
            try:
                for piece in compressed(pack_tree(self.state.root, packed, leave_out=LEFT_OUT)):
                    self.state.check(number)
                    if piece:
                        digest.update(piece)
                        sent += len(piece)
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            except (CodeHubError, OSError) as error:
                self.state.result = _described(_of_packing(error))
                return  # without the last chunk, so that the reader cannot take it for the complete archive
            self.state.result = {
                "sha256": digest.hexdigest(),
                "bytes": sent,
                "tar_bytes": packed.tar_bytes,
                "entries": packed.entries,
            }
            self.wfile.write(b"0\r\n\r\n")

    def _restore(self, number: int) -> dict[str, object]:
        self.state.begin(number)
        meta = Meta.parse(self.headers.get("x-codehub-meta", "").replace(" ", "\n").encode())
        for entry in list(self.state.root.iterdir()):
            if entry.name not in LEFT_OUT:
                remove_tree(entry)
        chunks = decompressed(self._body(number), "home.tar.zst", meta, lambda count: None)
        entries = unpack_tree(chunks, self.state.root, meta.tar_bytes, root_is_ours=False)
        for _ in chunks:  # reaching the end verifies digest and sizes
            pass
        _sync(self.state.root)
        self.state.check(number)
        self.state.result = {
            "sha256": meta.sha256, "bytes": meta.size, "tar_bytes": meta.tar_bytes, "entries": entries,
        }  # fmt: skip
        return self.state.result

    def _body(self, number: int) -> Iterator[bytes]:
        """Yield a chunked request body, which http.server does not decode."""
        while True:
            line = self.rfile.readline(_LONGEST_CHUNK_HEADER)
            size = int(line.split(b";")[0].strip() or b"", 16)
            if size == 0:
                self.rfile.readline(_LONGEST_CHUNK_HEADER)
                return
            while size:
                self.state.check(number)
                piece = self.rfile.read(min(size, 1 << 20))
                if not piece:
                    raise Transient("the connection ended before the archive did")
                size -= len(piece)
                yield piece
            self.rfile.readline(_LONGEST_CHUNK_HEADER)


def _of_packing(error: CodeHubError | OSError) -> CodeHubError:
    if isinstance(error, CodeHubError):
        return error
    if error.errno == errno.EROFS:
        return NeedsWriting("a file of the home is closed to its own user; it is archived from a writable mount")
    return Transient(f"the home cannot be read: {error}")


def _of_unpacking(error: OSError | ValueError) -> CodeHubError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace("no space left on the volume: raise CODEHUB_K8S_HOME_SIZE")
    return Transient(f"{type(error).__name__}: {error}")


def _described(error: CodeHubError) -> dict[str, object]:
    return {"error": type(error).__name__, "message": str(error)[:2000]}


def _sync(root: Path) -> None:
    """Sync this volume to its disk before the home is reported as complete."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _LIBC.syncfs(fd) != 0:  # what was unpacked may not be on the disk
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(root))
    finally:
        os.close(fd)


def serve(direction: str, root: Path, secret: str, port: int = PORT) -> int:
    state = State(root, secret, direction)
    state.last_asked = time.monotonic()
    handler = type("BoundHandler", (Handler,), {"state": state})
    with ThreadingHTTPServer(("", port), handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listen(f"*:{port}")
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        while not state.finished.wait(1.0):
            if time.monotonic() - state.last_asked > _IDLE_TIMEOUT_S:
                print(f"no request for {_IDLE_TIMEOUT_S:g} s", file=sys.stderr)
                return 1
        server.shutdown()
    try:
        _TERMINATION_LOG.write_text(json.dumps(state.attested or {}))
    except OSError as error:
        print(f"the termination message cannot be written: {error}", file=sys.stderr)
        return 1
    return 0


def _end_now(number: int, frame: FrameType | None) -> None:
    """Exit on a signal.

    As PID 1 the process gets no default action: otherwise every deletion would wait for its grace period.
    """
    os._exit(128 + number)


def main(direction: str, root: Path, secret: str, port: int = PORT) -> NoReturn:
    """Serve, and exit without finalizing the interpreter.

    A request thread whose caller hangs up during finalization is ended by pthread_exit, which aborts the process in images
    without libgcc_s. The transfer would be complete and its exit code wrong, so that it would not count.
    """
    signal.signal(signal.SIGTERM, _end_now)
    os._exit(serve(direction, root, secret, port))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), os.environ["CODEHUB_TRANSFER_SECRET"])
