"""One connection to the daemon: accepts nothing before the handshake, then sessions, calls and daemon commands.

Messages are lines of JSON-RPC. Calls run concurrently. One bad message never ends the connection, except before the
handshake.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sari.daemon.sessions import Session
from sari.protocol import jsonrpc, mcp
from sari.protocol.framing import LARGEST_MESSAGE, Decoder, Refused
from sari.protocol.handshake import client_proof, daemon_proof, is_nonce, is_proof
from sari.protocol.jsonrpc import Message, NotAMessage

if TYPE_CHECKING:
    from sari.daemon.service import Service

# Limits for a peer without a token: a short first message and a short time to send it.
_LARGEST_FIRST_MESSAGE = 16 * 1024
_FIRST_MESSAGE_S = 20.0
# Anyone on the machine can connect, and must not use up the daemon's file descriptors: the oldest of these is closed.
_MOST_STRANGERS = 256
# Of a session that moves here from a predecessor.
_LONGEST_IDLE_S = 1e9
# A few run, the others wait for their turn.
_MOST_CALLS = 1_000
_MOST_WAITING_BYTES = 64 << 20
_LONGEST_NAME = 200
_LARGEST_PID = 1 << 32
# The shim adds a few fields to the client's message.
_LARGEST_MESSAGE = LARGEST_MESSAGE + 64 * 1024


class Connection(asyncio.Protocol):
    """A connection to one peer, before and after authentication."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._decoder = Decoder(_LARGEST_FIRST_MESSAGE)
        self._trusted = False
        self._expected_proof = ""
        self._session: Session | None = None
        # By the request's id, which a client may use twice.
        self._calls: dict[object, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._auth_timer: asyncio.TimerHandle | None = None
        # What the calls that are not answered yet take in memory.
        self._waiting_bytes = 0
        # Set while the peer reads what it is sent.
        self._reads = asyncio.Event()
        self._reads.set()

    # asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._service.connections.add(self)
        strangers = self._service.strangers
        strangers[self] = None
        if len(strangers) > _MOST_STRANGERS:
            next(iter(strangers)).abort()
        self._auth_timer = asyncio.get_running_loop().call_later(_FIRST_MESSAGE_S, self._close_unauthenticated)

    def data_received(self, data: bytes) -> None:
        if self._trusted:
            self._service.touch()
        for item in self._decoder.feed(data):
            if self._transport.is_closing():
                return
            try:
                if isinstance(item, Refused):
                    raise NotAMessage(jsonrpc.failure(None, jsonrpc.INVALID_REQUEST, item.reason))
                self._take(jsonrpc.check(jsonrpc.decode(item)), jsonrpc.weigh(item))
            except NotAMessage as wrong:
                self.send(wrong.answer)
                if not self._trusted:
                    self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._auth_timer is not None:
            self._auth_timer.cancel()
        self._service.connections.discard(self)
        self._service.strangers.pop(self, None)
        for task in self._tasks:
            task.cancel()
        if self._session is not None:
            self._service.sessions.disconnect(self._session)
            self._session = None
        self._service.someone_left()

    def pause_writing(self) -> None:
        # Stop reading from a peer that does not read its answers.
        self._reads.clear()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._reads.set()
        self._transport.resume_reading()

    # Called by the service

    def send(self, message: Mapping[str, object]) -> None:
        """Send one message."""
        if not self._transport.is_closing():
            self._transport.write(jsonrpc.encode(message) + b"\n")

    def close(self) -> None:
        """Close the connection after everything has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._service.strangers.pop(self, None)
        self._transport.abort()

    @property
    def waits_for_reader(self) -> bool:
        """Whether the peer does not read what it is sent."""
        return not self._reads.is_set()

    @property
    def is_session(self) -> bool:
        """Whether the peer is a client's shim (rather than a command that sends a single request)."""
        return self._session is not None

    # Protocol

    def _close_unauthenticated(self) -> None:
        if not self._trusted:
            self.abort()

    def _take(self, message: Message, size: int) -> None:
        method = message.get("method")
        if not self._trusted:
            if method == "sari/hello" and not self._expected_proof:
                self.send(self._hello(message))
                return
            self._check_proof(message)
        if method == "notifications/cancelled":
            task = self._calls.get(_key(jsonrpc.params_of(message).get("requestId")))
            if task is not None:
                task.cancel()
        elif "id" in message and method is not None:
            self._take_request(message, str(method), size)

    def _hello(self, message: Message) -> Message:
        """Prove that the daemon holds the token, and require the same proof from the peer."""
        nonce = jsonrpc.params_of(message).get("nonce")
        if not is_nonce(nonce) or not isinstance(nonce, str):
            text = "`nonce` must be some random letters and digits"
            raise NotAMessage(jsonrpc.failure(message.get("id"), jsonrpc.INVALID_PARAMS, text))
        ours, port = os.urandom(16).hex(), self._transport.get_extra_info("sockname")[1]
        self._expected_proof = client_proof(self._service.token, nonce, ours, port)
        proof = daemon_proof(self._service.token, nonce, ours, port)
        return jsonrpc.success(message.get("id"), {"nonce": ours, "proof": proof})

    def _check_proof(self, message: Message) -> None:
        params = jsonrpc.params_of(message)
        proven = bool(self._expected_proof) and is_proof(params.get("proof"), self._expected_proof)
        # Shims of version 3.0 send the token itself.
        proven = proven or is_proof(params.get("token"), self._service.token)
        if message.get("method") != "sari/identify" or not proven:
            text = "this daemon serves its owner only: prove that you hold the token of its registry"
            raise NotAMessage(jsonrpc.failure(message.get("id"), jsonrpc.DENIED, text))
        self._trusted = True
        self._service.touch()
        self._service.strangers.pop(self, None)
        self._decoder.raise_limit(_LARGEST_MESSAGE)

    def _take_request(self, message: Message, method: str, size: int) -> None:
        own = _OWN_METHODS.get(method)
        if own is not None:
            self.send(own(self, message))
            return
        answer = mcp.answer(message)
        if answer is not None:
            self.send(answer)
        elif self._session is None:
            text = "open a session first (sari/session)"
            self.send(jsonrpc.failure(message["id"], jsonrpc.INVALID_REQUEST, text))
        elif len(self._tasks) >= _MOST_CALLS or self._waiting_bytes + size > _MOST_WAITING_BYTES:
            text = (
                f"{len(self._tasks)} calls of this client are not answered yet: wait for an answer before you send "
                "another"
            )
            self.send(jsonrpc.failure(message["id"], jsonrpc.UNAVAILABLE, text))
        else:
            self._session.last_request = time.monotonic()
            key = _key(message["id"])
            task = asyncio.get_running_loop().create_task(self._call(message, self._session))
            self._calls[key] = task
            self._tasks.add(task)
            self._waiting_bytes += size
            task.add_done_callback(lambda done: self._call_done(key, done, size))

    async def _call(self, message: Message, session: Session) -> None:
        loop = asyncio.get_running_loop()

        def notify(note: Mapping[str, object]) -> None:
            _soon(loop, self._tell, note)

        # Answers can be large, and a thousand calls can wait.
        self.send(await self._service.calls.answer(message, session, "", notify, self._reads.wait))

    def _tell(self, note: Mapping[str, object]) -> None:
        # Not to a peer that does not read: they would pile up for as long as a call takes.
        if self._reads.is_set():
            self.send(note)

    def _call_done(self, key: object, task: asyncio.Task[None], size: int) -> None:
        self._tasks.discard(task)
        self._waiting_bytes -= size
        if self._calls.get(key) is task:
            del self._calls[key]
        if not task.cancelled() and task.exception() is not None:
            self._service.note_defect(task.exception())
        self._service.someone_left()

    def _identify(self, message: Message) -> Message:
        return jsonrpc.success(message["id"], self._service.identity())

    def _begin_session(self, message: Message) -> Message:
        params = jsonrpc.params_of(message)
        session_id = params.get("session")
        if not isinstance(session_id, str) or not 0 < len(session_id) <= _LONGEST_NAME:
            return jsonrpc.failure(message["id"], jsonrpc.INVALID_PARAMS, "a session needs an id")
        if self._service.draining:
            text = "this daemon is being replaced: look the registry up again"
            asyncio.get_running_loop().call_soon(self.close)
            return jsonrpc.failure(message["id"], jsonrpc.UNAVAILABLE, text)
        if self._session is None:
            idle = params.get("idle_s")
            age = float(idle) if isinstance(idle, int | float) and 0 <= idle < _LONGEST_IDLE_S else 0.0
            client = params.get("client")
            roots, process = params.get("roots"), params.get("process")
            self._session = self._service.begin_session(
                session_id,
                client[:_LONGEST_NAME] if isinstance(client, str) else "",
                [root for root in roots if isinstance(root, str)] if isinstance(roots, list) else [],
                age,
                process if isinstance(process, int) and 1 < process < _LARGEST_PID else 0,
            )
        root = params.get("root")
        # The command line asks, because without a warm workspace it is faster alone.
        warm = {"warm": self._service.workspaces.is_warm(root)} if isinstance(root, str) else {}
        return jsonrpc.success(message["id"], warm)

    def _info(self, message: Message) -> Message:
        return jsonrpc.success(message["id"], self._service.info())

    def _stop(self, message: Message) -> Message:
        self._service.stop("asked to")
        return jsonrpc.success(message["id"], {})

    def _hand_over(self, message: Message) -> Message:
        path = jsonrpc.params_of(message).get("path")
        if not isinstance(path, str):
            return jsonrpc.failure(message["id"], jsonrpc.INVALID_PARAMS, "where to?")
        try:
            return jsonrpc.success(message["id"], {"sockets": self._service.hand_over(path)})
        except OSError as error:
            return jsonrpc.failure(message["id"], jsonrpc.INTERNAL_ERROR, f"the sockets cannot be passed: {error}")

    def _retire(self, message: Message) -> Message:
        self._service.drain("replaced")
        return jsonrpc.success(message["id"], {})


_OWN_METHODS: dict[str, Callable[[Connection, Message], Message]] = {
    "sari/identify": Connection._identify,
    "sari/session": Connection._begin_session,
    "sari/info": Connection._info,
    "sari/stop": Connection._stop,
    "sari/handover": Connection._hand_over,
    "sari/retire": Connection._retire,
}


def _key(value: object) -> object:
    return value if isinstance(value, str | int | float) else None


def _soon(
    loop: asyncio.AbstractEventLoop,
    send: Callable[[Mapping[str, object]], None],
    note: Mapping[str, object],
) -> None:
    # Progress comes from the tool's thread and may arrive after the loop has ended.
    if not loop.is_closed():
        loop.call_soon_threadsafe(send, note)
