"""Speaks the language server protocol with one server process. Thread-safe; answers are futures.

Refuses every request that a server makes of an editor: it cannot make sari write, run or open anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from sari.lsp import supervise

_LARGEST_MESSAGE = 64 << 20
_LONGEST_HEAD = 8 << 10
# A server that reads nothing for so long hangs.
_SEND_TIMEOUT_S = 60.0


class ServerGone(Exception):
    """Raised when the server ended or hangs."""


class RequestFailed(Exception):
    """Raised when the server answered a request with an error. It goes on running."""


class LspClient:
    """One running server."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        memory_mb: int,
        settings: Mapping[str, object],
        notified: Callable[[str, object], None] = lambda _method, _params: None,
    ) -> None:
        self._settings = settings
        self._notified = notified
        self._lock = threading.Lock()
        # Separate, so that a server that does not read can be ended.
        self._sending = threading.Lock()
        self._next = 0
        self._waiting: dict[int, Future[object]] = {}
        life, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", supervise.__file__, str(life), str(memory_mb), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=dict(environment),
                pass_fds=(life,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(life)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._reader = threading.Thread(target=self._read, name="sari-lsp", daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._reader.is_alive() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self._process.pid

    def request(self, method: str, params: object) -> Future[object]:
        """Send a request. The future fails with `ServerGone` or `RequestFailed`."""
        future: Future[object] = Future()
        with self._lock:
            self._next += 1
            number = self._next
            self._waiting[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if not self.is_running:
            self._fail_all()
        return future

    def notify(self, method: str, params: object) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self) -> None:
        """Stop the server and all processes that it started."""
        with self._lock:
            life, self._life = self._life, -1
        if life >= 0:
            os.close(life)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._fail_all()

    def _send(self, message: Mapping[str, object]) -> None:
        body = json.dumps(message).encode()
        assert self._process.stdin is not None
        with self._sending, contextlib.suppress(OSError, ValueError):
            _write_all(self._process.stdin.fileno(), b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                length = 0
                while line := self._process.stdout.readline(_LONGEST_HEAD).strip():
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                if not 0 < length <= _LARGEST_MESSAGE:
                    return
                body = self._process.stdout.read(length)
                if len(body) < length:
                    return
                self._take(json.loads(body))
        except (OSError, ValueError, RecursionError, ServerGone):
            return
        finally:
            self._fail_all()

    def _take(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if number is None:
                self._notified(method, message.get("params"))
            else:
                self._send({"jsonrpc": "2.0", "id": number, "result": self._answer(method, message.get("params"))})
            return
        with self._lock:
            future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is None:
            return
        if "error" in message:
            error = message["error"]
            said = error.get("message") if isinstance(error, dict) else error
            future.set_exception(RequestFailed(" ".join(str(said).split())[:200]))
        else:
            future.set_result(message.get("result"))

    def _answer(self, method: str, params: object) -> object:
        if method == "workspace/configuration" and isinstance(params, dict):
            items = params.get("items")
            return [self._setting(item) for item in items] if isinstance(items, list) else []
        if method == "workspace/applyEdit":
            return {"applied": False}
        return None

    def _setting(self, item: object) -> object:
        section = item.get("section") if isinstance(item, dict) else None
        value: object = self._settings
        for part in str(section or "").split("."):
            if part and isinstance(value, Mapping):
                value = value.get(part)
        return value

    def _fail_all(self) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            with contextlib.suppress(Exception):
                future.set_exception(ServerGone("the language server ended"))


def _write_all(target: int, data: bytes) -> None:
    """Write to a pipe that does not block. Raises `ServerGone` if nobody reads."""
    deadline = time.monotonic() + _SEND_TIMEOUT_S
    poll = select.poll()
    poll.register(target, select.POLLOUT)
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ServerGone("the language server does not read") from None
            poll.poll(left * 1000)
