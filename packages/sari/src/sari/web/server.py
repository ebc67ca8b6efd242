"""The daemon's HTTP server: accepts on the given socket and answers each connection in a separate thread.

The listening socket belongs to the daemon and may be shared with its successor: it is never shut down here, and another
process may win any race for a connection. Threads and times are bounded; `close` returns when no thread is left.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from enum import Enum, auto
from typing import Final

from sari.protocol.facade import ClientDisconnected, Facade
from sari.web.guard import Guard
from sari.web.http1 import Connection, Rejected, Request, Response, problem
from sari.web.routes import Routes

_log = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 128
_IDLE_S: Final = 30.0
# How long `close` waits for running requests.
_FINISH_S: Final = 5.0


class _ConnectionState(Enum):
    """The state of a connection: before its first request, answering one of the owner, or waiting for the next."""

    FRESH = auto()
    BUSY = auto()
    IDLE = auto()


class HttpServer:
    """One per daemon."""

    def __init__(self, facade: Facade, sock: socket.socket, token: str) -> None:
        self._sock = sock
        sock.setblocking(False)
        self._guard = Guard(token, sock.getsockname()[1])
        self._routes = Routes(facade, self._guard)
        self._wake_read, self._wake_write = socket.socketpair()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, _ConnectionState] = {}
        self._threads: set[threading.Thread] = set()
        self._acceptor = threading.Thread(target=self._accept, name="sari-http", daemon=True)

    def start(self) -> None:
        self._acceptor.start()

    def close(self, *, leaving: bool = False) -> None:
        """Stop accepting, let running requests finish, and leave no thread.

        With `leaving` (the socket goes to a successor), also wait for the first request of accepted connections, which
        must be answered. The wait is bounded, because browsers preconnect without sending a request.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake_write.send(b"x")
        if self._acceptor.ident is not None:
            self._acceptor.join()
        self._hang_up(_ConnectionState.IDLE, *([] if leaving else [_ConnectionState.FRESH]))
        self._wait(time.monotonic() + _FINISH_S)
        self._hang_up(*_ConnectionState)
        self._wait(time.monotonic() + 1.0)
        self._wake_read.close()
        self._wake_write.close()

    def _wait(self, deadline: float) -> None:
        with self._lock:
            running = list(self._threads)
        for thread in running:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _hang_up(self, *at: _ConnectionState) -> None:
        with self._lock:
            for connection, state in self._open.items():
                if state in at:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while not self._closing.is_set():
                selector.select()
                if not self._closing.is_set():
                    self._accept_one()

    def _accept_one(self) -> None:
        try:
            accepted, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            # The successor accepted it, or the client has disconnected.
            return
        except OSError as error:
            _log.warning("a connection could not be accepted: %s", error)
            self._closing.wait(0.1)
            return
        accepted.setblocking(True)
        thread = threading.Thread(target=self._serve, args=(accepted,), name="sari-http-connection", daemon=True)
        with self._lock:
            full = (len(self._open) >= _MOST_CONNECTIONS and not self._drop_waiting()) or (
                len(self._threads) >= 2 * _MOST_CONNECTIONS
            )
            if not full:
                self._open[accepted] = _ConnectionState.FRESH
                self._threads.add(thread)
        if full:
            _refuse(accepted)
            return
        thread.start()

    def _drop_waiting(self) -> bool:
        """Disconnect the client that has connected first of those without a request. Anyone on the machine can connect,
        and must not lock the owner out.
        """
        waiting = (sock for sock, state in self._open.items() if state is not _ConnectionState.BUSY)
        sock = next(waiting, None)
        if sock is None:
            return False
        del self._open[sock]
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        return True

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(sock, _IDLE_S, self._guard.largest_body)
        try:
            # The first request is always answered: it may have been sent before the server began to close.
            while self._one(connection, sock) and not self._closing.is_set():
                pass
        except (OSError, ClientDisconnected):
            # The client disconnected, so there is no one to report to.
            _log.debug("an HTTP client disconnected")
        finally:
            with self._lock:
                self._open.pop(sock, None)
                self._threads.discard(threading.current_thread())
            sock.close()

    def _one(self, connection: Connection, sock: socket.socket) -> bool:
        """Read one request and answer it. Returns False when the connection is over."""
        try:
            request = connection.read_request()
        except Rejected as rejected:
            connection.write(problem(rejected.status, rejected.why), keep_alive=False)
            return False
        if request is None:
            return False
        if self._guard.admit(request.headers) is not None:
            # Only the owner's: a stranger who does not read the answer would keep the place.
            self._mark(sock, _ConnectionState.BUSY)
        response = self._answer(request)
        keep = request.keep_alive and not self._closing.is_set() and response.stream is None
        connection.write(response, keep_alive=keep, head_only=request.method == "HEAD")
        self._mark(sock, _ConnectionState.IDLE)
        return keep

    def _answer(self, request: Request) -> Response:
        try:
            return self._routes.answer(request)
        except Rejected as rejected:
            return problem(rejected.status, rejected.why)
        except ClientDisconnected:
            raise
        except Exception:  # noqa: BLE001 - one bad request must not end the HTTP server
            _log.exception("an HTTP request failed")
            return problem(500, "sari failed on this request; its log says why")

    def _mark(self, sock: socket.socket, state: _ConnectionState) -> None:
        with self._lock:
            if sock in self._open:
                self._open[sock] = state


def _refuse(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.settimeout(1.0)
        Connection(sock, 1.0).write(problem(503, "too many connections"), keep_alive=False)
    sock.close()
