"""Forwards a request to the `workspaced` of a workspace and returns its answer, streaming in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Annotated, Any

import structlog
from fastapi import Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from codehub.adapters.workspaced_client import Answer
from codehub.api.context import Context, signed_out
from codehub.ports.instances import Upstream
from codehub.services.principal import Principal

_log = structlog.get_logger()

# The response headers that are passed back. The others are hop-by-hop, or a workspace's attempt to set ours.
_PASSED_BACK = ("content-type", "content-length", "content-range", "accept-ranges")
# A client that reads nothing for this long is disconnected, as by the proxy: its data takes memory here.
SEND_TIMEOUT_S = 120.0
Wake = Annotated[bool, Query(description="Wake the workspace when it sleeps, and wait until it runs.")]


class _NotReadError(Exception):
    """The client reads nothing."""


def abort(scope: Scope) -> None:
    """End the connection without waiting for the client to read what was sent."""
    scope["extensions"]["codehub.abort"]["abort"]()


class Forwarded(Response):
    """A streamed answer of the workspace. Ends when the client disconnects, or when its session has ended."""

    def __init__(
        self,
        context: Context,
        upstream: Upstream,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: AsyncIterable[bytes] | bytes | None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._context = context
        self._request = (upstream, method, target, headers, body)
        self._extra = extra or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams_up = self._request[4] is not None and not isinstance(self._request[4], bytes)

        async def bounded(message: Message) -> None:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(message)
            except TimeoutError:
                abort(scope)
                raise _NotReadError from None

        exchange = asyncio.ensure_future(self._exchange(bounded))
        # While the request body is being read, the read detects a disconnected client.
        leaving = asyncio.ensure_future(_forever() if streams_up else _left(receive))
        ended = asyncio.ensure_future(signed_out(HTTPConnection(scope)))
        tasks = (exchange, leaving, ended)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(results[0], _NotReadError):
            _log.info("a client that reads nothing was cut off", path=scope["path"])
        elif isinstance(results[0], Exception):
            raise results[0]

    async def _exchange(self, send: Send) -> None:
        async with self._context.doors.request(*self._request) as answer:
            await self._write(answer, send)

    async def _write(self, answer: Answer, send: Send) -> None:
        kept = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        # Content from a workspace is shown as text or saved, never executed in the dashboard's origin.
        kept |= {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}
        kept |= self._extra if answer.status < 400 else {}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in kept.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        async for part in answer.body:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _forever() -> None:
    await asyncio.Event().wait()


async def forward(
    context: Context,
    who: Principal,
    workspace_id: str,
    method: str,
    target: str,
    *,
    wake: bool,
    headers: Mapping[str, str] | None = None,
    body: AsyncIterable[bytes] | bytes | None = None,
    extra: Mapping[str, str] | None = None,
) -> Response:
    upstream = await context.doors.find(who, workspace_id, wake=wake)
    return Forwarded(context, upstream, method, target, headers or {}, body, extra)


async def body_of(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        if part:
            yield part


def passed_on(request: Request, *names: str) -> dict[str, str]:
    return {name: request.headers[name] for name in names if name in request.headers}


def describes(status: int, description: str, **content: Any) -> dict[int | str, dict[str, Any]]:
    """Describe a response whose body comes from the workspace, for OpenAPI."""
    return {status: {"description": description, **content}}
