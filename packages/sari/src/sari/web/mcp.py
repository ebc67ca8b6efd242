"""Streamable HTTP at `/mcp`: both eras of MCP, one JSON-RPC message (or a batch in the older eras) per POST.

The `initialize` revisions have sessions, which are leases. The 2026-07-28 revision sends everything in each request,
and its headers must match its body. The facade interprets the messages; this module adds only HTTP.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sari.protocol.facade import Facade, Gone
from sari.web.guard import Guard
from sari.web.http1 import Rejected, Request, Response, as_json, problem

_STATELESS: Final = "2026-07-28"
_SESSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_HEADER_MISMATCH: Final = -32020
_UNSUPPORTED_VERSION: Final = -32022
# The stateless era defines the HTTP status for each error.
_STATUS: Final[Mapping[int, int]] = {
    -32700: 400,
    -32600: 400,
    -32602: 400,
    -32601: 404,
    _HEADER_MISMATCH: 400,
    -32021: 400,
    _UNSUPPORTED_VERSION: 400,
}
_NAMED: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LARGEST_BATCH: Final = 100
_MOST_ENDED: Final = 10_000
_EVENTS: Final = "text/event-stream"

Write = Callable[[bytes], None]


class McpEndpoint:
    """Answers authenticated requests."""

    def __init__(self, facade: Facade, guard: Guard) -> None:
        self._facade = facade
        self._guard = guard
        self._ended: dict[str, None] = {}

    def answer(self, request: Request) -> Response:
        match request.method:
            case "POST":
                return self._post(request)
            case "DELETE":
                return self._delete(request)
            case _:
                return problem(405, "send MCP messages by POST", {"Allow": "POST, DELETE"})

    def _delete(self, request: Request) -> Response:
        session = request.headers.get("mcp-session-id")
        if session is None:
            return problem(400, "say which session with Mcp-Session-Id")
        if not self._known(session):
            return problem(404, "there is no such session")
        self._ended[session] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._facade.end_session(session)
        return Response(204)

    def _known(self, session: str) -> bool:
        return session not in self._ended and self._guard.own_session(session)

    def _post(self, request: Request) -> Response:
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            return problem(415, "MCP messages are application/json")
        accept = request.headers.get("accept", "*/*").lower()
        if not any(kind in accept for kind in ("application/json", _EVENTS, "*/*", "application/*")):
            return problem(406, "accept application/json and text/event-stream")
        try:
            message = request.json()
        except Rejected as rejected:
            return as_json(_error(None, -32700, rejected.why), 400)
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in _SESSIONS:
            return self._stateless(request, message, version, streams=_EVENTS in accept)
        return self._with_session(request, message, streams=_EVENTS in accept)

    # The stateless era.

    def _stateless(self, request: Request, message: object, version: str, *, streams: bool) -> Response:
        if not isinstance(message, dict):
            return as_json(_error(None, -32600, "one request a POST"), 400)
        identifier = message.get("id")
        if version != _STATELESS:
            supported = {"supported": [_STATELESS, *_SESSIONS], "requested": version}
            why = f"sari does not speak {version}"
            return as_json(_error(identifier, _UNSUPPORTED_VERSION, why, supported), 400)
        if "id" not in message:
            return Response(202)
        mismatch = _mismatch(request.headers, message, version)
        if mismatch is not None:
            return as_json(_error(identifier, _HEADER_MISMATCH, mismatch), 400)
        # In this era a client cancels by disconnecting. In the others it sends a message, and may disconnect and
        # return.
        if streams and _wants_progress(message):
            return self._streamed(message, None, _root(request), request.gone)
        answer = self._facade.handle_mcp(message, None, _root(request), gone=request.gone)
        return Response(202) if answer is None else as_json(answer, _http_status(answer))

    # The eras with sessions.

    def _with_session(self, request: Request, message: object, *, streams: bool) -> Response:
        session = request.headers.get("mcp-session-id")
        headers: dict[str, str] = {}
        if session is not None and not self._known(session):
            return as_json(_error(None, -32001, "this session has ended: initialize again"), 404)
        if isinstance(message, dict) and message.get("method") == "initialize":
            session = self._guard.new_session()
            headers["Mcp-Session-Id"] = session
            self._facade.lease(session, _client_name(message))
        elif session is not None:
            # The client sent its name with `initialize`, and it is kept.
            self._facade.lease(session, "")
        root = _root(request)
        if isinstance(message, list):
            return self._batch(message, session, root)
        if streams and isinstance(message, dict) and _wants_progress(message):
            return self._streamed(message, session, root)
        answer = self._facade.handle_mcp(message, session, root)
        return Response(202) if answer is None else as_json(answer, headers=headers)

    def _batch(self, messages: list[object], session: str | None, root: Path | None) -> Response:
        if not 0 < len(messages) <= _LARGEST_BATCH:
            return as_json(_error(None, -32600, f"a batch holds 1 to {_LARGEST_BATCH} messages"), 400)
        answers = [self._facade.handle_mcp(message, session, root) for message in messages]
        responses = [answer for answer in answers if answer is not None]
        return as_json(responses) if responses else Response(202)

    def _streamed(
        self, message: Mapping[str, object], session: str | None, root: Path | None, gone: Gone | None = None
    ) -> Response:
        """Return a response that streams progress and then the answer, as server-sent events."""

        def stream(write: Write) -> None:
            # Progress comes from the call's thread. After the answer the stream is closed.
            lock = threading.Lock()
            over = False

            def notify(note: Mapping[str, object]) -> None:
                with lock:
                    if not over:
                        write(_event(note))

            answer = self._facade.handle_mcp(message, session, root, notify, gone)
            with lock:
                over = True
                if answer is not None:
                    write(_event(answer))

        return Response(200, content_type=_EVENTS, stream=stream)


def _event(message: Mapping[str, object]) -> bytes:
    return b"event: message\ndata: " + json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _error(identifier: object, code: int, why: str, data: object = None) -> dict[str, object]:
    error: dict[str, object] = {"code": code, "message": why}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def _http_status(answer: Mapping[str, object]) -> int:
    error = answer.get("error")
    code = error.get("code") if isinstance(error, Mapping) else None
    return _STATUS.get(code, 200) if isinstance(code, int) else 200


def _mismatch(headers: Mapping[str, str], message: Mapping[str, object], version: str) -> str | None:
    """Return how the headers, by which a gateway routes, differ from the body."""
    params = message.get("params")
    fields: Mapping[str, object] = params if isinstance(params, dict) else {}
    meta = fields.get("_meta")
    claimed = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    if claimed is not None and claimed != version:
        return "MCP-Protocol-Version does not agree with the request's own"
    method = message.get("method")
    if headers.get("mcp-method") != method:
        return "Mcp-Method does not agree with the request's method"
    name = fields.get(_NAMED.get(str(method), ""))
    if name is not None and _plain(headers.get("mcp-name")) != name:
        return "Mcp-Name does not agree with the request's parameters"
    return None


def _plain(value: str | None) -> str | None:
    """Decode a header's value. One that is not plain ASCII is sent as =?base64?…?=."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def _wants_progress(message: Mapping[str, object]) -> bool:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and "progressToken" in meta and "id" in message


def _client_name(message: Mapping[str, object]) -> str:
    params = message.get("params")
    info = params.get("clientInfo") if isinstance(params, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) and name else "http"


def _root(request: Request) -> Path | None:
    """Return the workspace named in the URL (`/mcp?workspace=…`), for clients that have no other way to name it."""
    named = request.one("workspace")
    return Path(named) if named else None
