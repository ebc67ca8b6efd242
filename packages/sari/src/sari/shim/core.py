"""The shim: answers what it can, forwards tool calls, and keeps each call until it is answered, even if it loses the
daemon.

    client ──stdin──► main thread ──► own answers ──► stdout
                           └──────► requests ──► link ──► daemon
                                       ▲ sent again on the next link when one breaks

Three threads besides the main one, each started when first needed: the link's reader, the connector, the deadline
watch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from sari.protocol import jsonrpc, mcp
from sari.protocol.framing import Refused
from sari.protocol.jsonrpc import Message, NotAMessage
from sari.shim.imports import IMPORTING
from sari.shim.requests import MOST_ATTEMPTS, Request, Requests
from sari.shim.stdio import ClientGone, Stdio
from sari.shim.workspace import WorkspaceRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.shim.connector import Connected
    from sari.shim.link import Link

_FIRST_INTERNAL_ID = -1_000_000_000_000
# How often, after stdin has ended, to check whether the client still reads our output.
_READER_CHECK_S = 0.5
_DEFAULT_TIMEOUT_S = 120.0


class Shim:
    """One client's connection to the daemon that serves it."""

    def __init__(self, stdio: Stdio, environ: Mapping[str, str], directory: str, flags: Mapping[str, str]) -> None:
        self._stdio = stdio
        self._environ = dict(environ)
        if flags.get("workspace"):
            self._environ["SARI_WORKSPACE_ROOT"] = flags["workspace"]
        self._flags = flags
        self._timeout_s = _timeout(environ)
        self._session = os.urandom(16).hex()
        self._changed = threading.Condition()
        self._requests = Requests()
        self._link: Link | None = None
        self._connecting = False
        self._watching = False
        self._initialize: Message | None = None
        self._client = ""
        self._last_request = 0.0
        self._sent_count = 0
        self._internal_count = 0
        self._negative_ids: set[object] = set()
        self._workspace = WorkspaceRoot(self._environ, directory, self._write)

    def run(self) -> int:
        """Serve the client until it closes stdin and has received all pending answers."""
        try:
            while (items := self._stdio.read()) is not None:
                for item in items:
                    self._take(item)
            self._finish()
        except ClientGone:
            return 0
        return 0

    # Client side

    def _take(self, item: bytes | Refused) -> None:
        try:
            if isinstance(item, Refused):
                raise NotAMessage(jsonrpc.failure(None, jsonrpc.INVALID_REQUEST, item.reason))
            value = jsonrpc.decode(item)
            if isinstance(value, list) and value:
                # A batch (2025-03-26): each message is answered separately, which JSON-RPC's ids allow.
                for one in value:
                    self._take_message(one)
            else:
                self._take_message(value)
        except NotAMessage as wrong:
            self._write(wrong.answer)

    def _take_message(self, value: object) -> None:
        try:
            message = jsonrpc.check(value)
        except NotAMessage as wrong:
            self._write(wrong.answer)
            return
        if "method" not in message:
            if self._workspace.take_answer(message):
                self._take_roots()
        elif "id" in message:
            self._take_request(message)
        else:
            self._take_notification(message)

    def _take_request(self, message: Message) -> None:
        request_id = message["id"]
        if isinstance(request_id, int | float) and request_id < 0:
            self._negative_ids.add(request_id)
        method = message["method"]
        # The tool catalogue is imported on first use.
        with IMPORTING:
            answer = mcp.answer(message)
        if answer is not None:
            self._write(answer)
            if method in ("initialize", "server/discover"):
                self._begin(message)
            return
        self._client = self._client or mcp.client_name(jsonrpc.params_of(message))
        self._forward(message)

    def _begin(self, message: Message) -> None:
        """Prepare a daemon for the client's first call, unless its roots must be requested first."""
        self._client = mcp.client_name(jsonrpc.params_of(message)) or self._client
        if message["method"] == "initialize":
            self._initialize = message
            if self._workspace.client_said(message):
                return
        self._connect(warm=True)

    def _take_notification(self, message: Message) -> None:
        method = message["method"]
        if method == "notifications/cancelled":
            self._cancel(jsonrpc.params_of(message).get("requestId"))
        elif method in ("notifications/initialized", "notifications/roots/list_changed"):
            self._workspace.ask_client()
            self._connect(warm=True)

    def _take_roots(self) -> None:
        """Use the roots that the client named for later calls, if a link exists."""
        with self._changed:
            if self._link is None:
                return
        with IMPORTING:
            from sari.registry.roots import RefusedRoot

        try:
            root, error = self._workspace.find()[0], ""
        except RefusedRoot as refused:
            root, error = "", str(refused)
        with self._changed:
            self._root, self._root_error = root, error

    def _forward(self, message: Message) -> None:
        with self._changed:
            self._last_request = time.monotonic()
            self._sent_count += 1
            key = f"{self._session}:{self._sent_count}"
            request = self._requests.add(
                _with_meta(_from_client(message), {"sari/key": key}), self._last_request + self._timeout_s
            )
            if request is not None and self._link is not None:
                self._send(request, self._link)
            self._watch_deadlines()
        if request is None:
            text = "another request with this id is still being answered: give each its own"
            self._write(jsonrpc.failure(message["id"], jsonrpc.INVALID_REQUEST, text))
        else:
            self._connect(warm=False)

    def _cancel(self, request_id: object) -> None:
        with self._changed:
            request = self._requests.settle(request_id)
            if request is None:
                return
            self._requests.forget(request)
            self._tell_cancelled(request)
            self._changed.notify_all()

    def _tell_cancelled(self, request: Request) -> None:
        if request.link is not None:
            note = jsonrpc.notification("notifications/cancelled", {"requestId": request.message["id"]})
            request.link.send(jsonrpc.encode(note))

    def _write(self, message: Message) -> None:
        self._stdio.write(jsonrpc.encode(message))

    def _settle(self, request_id: object, answer: bytes, link: Link | None = None) -> None:
        """Answer a pending request exactly once. It stays in the list until it is written: see `_finish`."""
        with self._changed:
            request = self._requests.settle(request_id, link)
        if request is None:
            return
        try:
            self._stdio.write(answer)
        except ClientGone:
            pass
        finally:
            with self._changed:
                self._requests.forget(request)
                self._changed.notify_all()

    def _finish(self) -> None:
        """After stdin has ended, wait for pending answers until their deadlines, while the client still reads."""
        with self._changed:
            while len(self._requests):
                self._changed.wait(_READER_CHECK_S)
                if not self._stdio.is_read():
                    return

    # Daemon side

    def _connect(self, *, warm: bool) -> None:
        """Ensure that a link exists if a request waits for one, or if `warm` (the client has just connected)."""
        with self._changed:
            if self._connecting or self._link is not None or not (warm or self._requests.unsent()):
                return
            self._connecting = True
        threading.Thread(target=self._connect_thread, args=(warm,), name="sari-connect", daemon=True).start()

    def _connect_thread(self, warm: bool) -> None:
        with IMPORTING:
            from sari.shim.connector import Connected, Connector

        connector = Connector(self._environ, self._flags, self._workspace)
        while True:
            outcome = connector.connect(warm)
            if isinstance(outcome, str):
                self._fail_unsent(outcome)
            with self._changed:
                if isinstance(outcome, Connected):
                    self._take_link(outcome)
                    return
                warm = False
                if not self._requests.unsent():
                    self._connecting = False
                    return

    def _take_link(self, connected: Connected) -> None:
        link = connected.link
        self._root = connected.root
        self._root_error = connected.root_error
        self._link = link
        self._connecting = False
        roots = [connected.root] if connected.root and (connected.chosen or self._last_request) else []
        idle_s = time.monotonic() - self._last_request if self._last_request else 0.0
        # A client that starts many shims is one client to the daemon.
        process = os.getppid()
        hello = {
            "session": self._session, "client": self._client, "roots": roots, "idle_s": idle_s, "process": process
        }  # fmt: skip
        session = {"jsonrpc": "2.0", "id": self._internal_id(link), "method": "sari/session", "params": hello}
        link.send(jsonrpc.encode(session))
        if self._initialize is not None:
            link.send(jsonrpc.encode({**self._initialize, "id": self._internal_id(link)}))
        for request in self._requests.unsent():
            self._send(request, link)
        link.start(self._from_daemon, self._link_ended)

    _root = ""
    _root_error = ""

    def _send(self, request: Request, link: Link) -> None:
        arguments = jsonrpc.params_of(request.message).get("arguments")
        names_root = isinstance(arguments, dict) and isinstance(arguments.get("workspace"), str)
        request.link = link
        request.attempts += 1
        meta: Message = {"sari/root": self._root, "sari/roots": self._workspace.client_roots()}
        if not names_root and self._root_error:
            meta = {"sari/root_error": self._root_error}
        link.send(jsonrpc.encode(_with_meta(request.message, meta)))

    def _internal_id(self, link: Link) -> int:
        while True:
            self._internal_count += 1
            fresh = _FIRST_INTERNAL_ID - self._internal_count
            if fresh not in self._negative_ids:
                link.internal_ids.add(fresh)
                return fresh

    def _from_daemon(self, link: Link, line: bytes) -> None:
        try:
            message = jsonrpc.decode_answer(line)
        except NotAMessage:
            return
        if not isinstance(message, dict):
            return
        if message.get("method") == "sari/move":
            self._move(link)
        elif "method" in message:
            self._stdio_or_end(line)
        elif message.get("id") in link.internal_ids:
            link.internal_ids.discard(message.get("id"))
            if "error" in message:
                link.close()
        else:
            self._settle(message.get("id"), line, link)
            self._close_if_done(link)

    def _stdio_or_end(self, line: bytes) -> None:
        try:
            self._stdio.write(line)
        except ClientGone:
            return

    def _move(self, link: Link) -> None:
        with self._changed:
            link.retired = True
            if self._link is link:
                self._link = None
        self._close_if_done(link)
        self._connect(warm=True)

    def _close_if_done(self, link: Link) -> None:
        with self._changed:
            done = link.retired and not self._requests.on(link)
        if done:
            link.close()

    def _link_ended(self, link: Link) -> None:
        poisoned: list[Request] = []
        with self._changed:
            if self._link is link:
                self._link = None
            for request in self._requests.on(link):
                request.link = None
                if request.attempts >= MOST_ATTEMPTS:
                    poisoned.append(request)
        for request in poisoned:
            text = (
                f"the sari daemon ended {MOST_ATTEMPTS} times during this request: see its log, or run `sari doctor`"
            )
            request_id = request.message["id"]
            self._settle(request_id, jsonrpc.encode(jsonrpc.failure(request_id, jsonrpc.UNAVAILABLE, text)))
        self._connect(warm=False)

    def _fail_unsent(self, why: str) -> None:
        with self._changed:
            unsent = self._requests.unsent()
        for request in unsent:
            request_id = request.message["id"]
            self._settle(request_id, jsonrpc.encode(jsonrpc.failure(request_id, jsonrpc.UNAVAILABLE, why)))

    # Deadlines

    def _watch_deadlines(self) -> None:
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch_thread, name="sari-deadlines", daemon=True).start()

    def _watch_thread(self) -> None:
        while True:
            with self._changed:
                deadline = self._requests.next_deadline()
                if deadline is None:
                    # All deadlines are equally far in the future, so there is nothing to watch now.
                    self._watching = False
                    return
                left = deadline - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                expired = self._requests.expired(time.monotonic())
                for request in expired:
                    self._tell_cancelled(request)
            for request in expired:
                text = f"no answer within {self._timeout_s:g} seconds (SARI_REQUEST_TIMEOUT_SEC)"
                request_id = request.message["id"]
                self._settle(request_id, jsonrpc.encode(jsonrpc.failure(request_id, jsonrpc.TIMED_OUT, text)))


def _with_meta(message: Message, fields: Message) -> Message:
    params = jsonrpc.params_of(message)
    meta = params.get("_meta")
    return {**message, "params": {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), **fields}}}


def _from_client(message: Message) -> Message:
    """Return a client's request without the fields that only the shim may set, since they control access."""
    params = jsonrpc.params_of(message)
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not any(str(key).startswith("sari/") for key in meta):
        return message
    kept = {key: value for key, value in meta.items() if not str(key).startswith("sari/")}
    return {**message, "params": {**params, "_meta": kept}}


def _timeout(environ: Mapping[str, str]) -> float:
    try:
        timeout = float(environ.get("SARI_REQUEST_TIMEOUT_SEC") or _DEFAULT_TIMEOUT_S)
    except ValueError:
        return _DEFAULT_TIMEOUT_S
    return timeout if 0 < timeout < 1e7 else _DEFAULT_TIMEOUT_S
