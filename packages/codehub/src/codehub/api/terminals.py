"""Terminals in a workspace, and the WebSocket that shows one.

Messages are binary; the first byte is the type. From the server: `S` (the screen: number of the next byte, columns, rows,
then the data that draws it), `O` (output: number of its first byte, then the bytes), `R` (a new size, JSON), `X` (it ended,
JSON). From the client: `I` (input), `A` (acknowledges output up to a number), `R` (a new size, JSON).
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import Annotated

from fastapi import Query, WebSocket
from pydantic import Field
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from codehub.adapters.workspaced_client import Answer, ByteStream
from codehub.api.context import Context, Ctx, Who, principal, signed_out
from codehub.api.errors import http_error
from codehub.api.exec import Command
from codehub.api.forwarding import SEND_TIMEOUT_S, Wake, abort, forward
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Wire
from codehub.api.views import View
from codehub.domain.errors import CodeHubError, Denied

router = api_router("terminals")
_JSON = {"Content-Type": "application/json"}
_LONGEST = 8 << 20  # a screen with its scrollback is far smaller
# Longer frames are held for a few viewers of a workspace at a time: hundreds could be attached and read nothing. Output
# comes in frames of 64 KB.
_LARGE = 128 << 10
_LONGEST_INPUT = 1 << 20
_LAST_KEYS_S = 5.0
# The protocol that a browser offers besides its session key (`codehub.key.…`), and gets.
_PROTOCOL = "codehub.terminal"
# The base of the close code of a rejected WebSocket: 4000 plus the HTTP status.
_REFUSED = 4000


class TerminalCreate(Wire):
    command: Command | None = Field(None, description="The user's login shell by default.")
    cols: Annotated[int, Field(ge=1, le=1000)] = 80
    rows: Annotated[int, Field(ge=1, le=1000)] = 24
    cwd: str | None = Field(None, description="Relative to the home.")


class TerminalView(View):
    id: str
    command: str
    cols: int
    rows: int
    viewers: int
    started_at: datetime


class TerminalList(View):
    items: list[TerminalView]


@router.get(
    "/workspaces/{workspace_id}/terminals",
    response_class=Response,
    responses={200: {"model": TerminalList, "description": "Oldest first."}, **signed_in(404, 409, 429, 502)},
)
async def list_terminals(workspace_id: str, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """List the open terminals, attached or not."""
    return await forward(ctx, who, workspace_id, "GET", "/terminals", wake=wake)


@router.post(
    "/workspaces/{workspace_id}/terminals",
    status_code=201,
    response_class=Response,
    responses={201: {"model": TerminalView, "description": "Open."}, **signed_in(404, 409, 413, 429, 502)},
)
async def open_terminal(workspace_id: str, body: TerminalCreate, ctx: Ctx, who: Who, wake: Wake = True) -> Response:
    """Open a terminal. It continues to run without viewers, until its program ends or it is deleted."""
    raw = body.model_dump_json().encode()
    return await forward(ctx, who, workspace_id, "POST", "/terminals", wake=wake, headers=_JSON, body=raw)


@router.delete(
    "/workspaces/{workspace_id}/terminals/{terminal_id}",
    status_code=204,
    response_class=Response,
    responses=signed_in(404, 409, 429, 502),
)
async def close_terminal(workspace_id: str, terminal_id: str, ctx: Ctx, who: Who) -> Response:
    """Close a terminal and end its programs."""
    return await forward(ctx, who, workspace_id, "DELETE", f"/terminals/{_id(terminal_id)}", wake=False)


@router.websocket("/workspaces/{workspace_id}/terminals/{terminal_id}/attach")
async def attach_terminal(
    socket: WebSocket, workspace_id: str, terminal_id: str, after: Annotated[int | None, Query(ge=0)] = None
) -> None:
    """Attach to a terminal: first the screen, or the output after byte `after`; then live. Never wakes the workspace."""
    context: Context = socket.app.state.context
    offered = socket.scope.get("subprotocols") or ()
    await socket.accept(_PROTOCOL if _PROTOCOL in offered else None)
    try:
        origin = socket.headers.get("origin")
        if origin is not None and origin.lower() != context.config.public_url.lower():
            raise Denied(f"terminals are shown by {context.config.public_url} only")
        who = await principal(socket)
        upstream = await context.doors.find(who, workspace_id, wake=False)
        target = f"/terminals/{_id(terminal_id)}/attach" + (f"?after={after}" if after is not None else "")
        async with context.doors.stream(upstream, target) as stream:
            if isinstance(stream, Answer):
                await socket.close(_REFUSED + stream.status, "the terminal has ended")
                return
            await _carry(socket, stream, context, workspace_id)
    except CodeHubError as error:
        await close_refused(socket, error)
    except (WebSocketDisconnect, OSError):
        await _closed(socket, 1011, "the connection to the workspace ended")


async def close_refused(socket: WebSocket, error: Exception) -> None:
    refusal = http_error(error)
    await _closed(socket, _REFUSED + refusal.status, refusal.message)


async def _closed(socket: WebSocket, code: int, reason: str) -> None:
    try:
        await socket.close(code, reason.encode()[:120].decode("utf-8", "ignore"))
    except (RuntimeError, WebSocketDisconnect):
        return  # already closed, or the client is gone


async def _carry(socket: WebSocket, stream: ByteStream, context: Context, workspace_id: str) -> None:
    tasks: list[asyncio.Future[object]] = [
        asyncio.ensure_future(_to_client(socket, stream)),
        asyncio.ensure_future(_to_workspace(socket, stream, context, workspace_id)),
        asyncio.ensure_future(context.leaving.wait()),
        asyncio.ensure_future(signed_out(socket)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0] in done and isinstance(tasks[0].exception(), WebSocketDisconnect):
            # What the client sent before it left is still typed.
            done, _ = await asyncio.wait(tasks[1:], timeout=_LAST_KEYS_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if tasks[2] in done:
        await _closed(socket, 1012, "CodeHub restarts: attach again")
    elif tasks[3] in done:
        await _closed(socket, _REFUSED + 401, "the session or API token has ended")
    elif tasks[0] in done and tasks[0].exception() is None:
        await _closed(socket, 1000, "the terminal has ended")
    else:
        await _closed(socket, 1011, "the connection to the workspace ended")


async def _to_client(socket: WebSocket, stream: ByteStream) -> None:
    """Send the helper's frames as messages, until one reports that the terminal has ended."""
    buffer = bytearray()
    kind = b""
    while kind != b"X":
        await _fill(stream, buffer, 5)
        size = int.from_bytes(buffer[1:5], "big")
        if size > _LONGEST:
            raise ConnectionResetError("a frame is too long")
        async with stream.large if size > _LARGE else contextlib.nullcontext():
            await _fill(stream, buffer, 5 + size)
            kind = await _send(socket, stream, buffer, size)


async def _fill(stream: ByteStream, buffer: bytearray, size: int) -> None:
    while len(buffer) < size:
        data = await stream.read()
        if not data:
            raise ConnectionResetError("workspaced went away")
        buffer += data


async def _send(socket: WebSocket, stream: ByteStream, buffer: bytearray, size: int) -> bytes:
    """Take one frame from the buffer and send it. Returns its kind."""
    message = bytes(buffer[:1]) + bytes(buffer[5 : 5 + size])
    del buffer[: 5 + size]
    await stream.charge(size)
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await socket.send_bytes(message)
    except TimeoutError:
        abort(socket.scope)
        raise
    return message[:1]


async def _to_workspace(socket: WebSocket, stream: ByteStream, context: Context, workspace_id: str) -> None:
    while True:
        received = await socket.receive()  # also after the client could not be sent something
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1005))
        message = received.get("bytes")
        if not message or len(message) > _LONGEST_INPUT:
            raise ConnectionResetError("not a known message")
        await stream.write(message[:1] + (len(message) - 1).to_bytes(4, "big") + message[1:])
        if message[:1] == b"I":
            # Keystrokes are user activity; an open tab is not.
            with contextlib.suppress(CodeHubError):
                await context.doors.touch(workspace_id)


def _id(text: str) -> str:
    return text if text.isalnum() and text.isascii() else "none"
