"""`GET /events`: live events as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import EventsQuery
from codehub.api.streaming import StreamedAnswer
from codehub.services.event_stream import Stream

router = api_router("events")

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`snapshot` `{items}` first, then `workspace_updated` (the whole object), `workspace_deleted` "
        "`{id}`, and `heartbeat` `{}` every 30 s. Ends when the session does.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/events", response_class=Response, responses={**_ANSWER, **signed_in(429)})
async def live_events(query: Annotated[EventsQuery, Query()], ctx: Ctx, who: Who) -> Response:
    """Live changes as server-sent events. Starts with a snapshot, so a reconnect misses nothing."""
    stream = ctx.live.open(who, everybody=query.all)
    ctx.metrics.streams.inc()

    def closed() -> None:
        ctx.live.close(stream)
        ctx.metrics.streams.dec()

    return StreamedAnswer(
        _frames(stream, ctx.live.pace.heartbeat_s),
        media_type="text/event-stream",
        send_s=ctx.live.pace.send_s,
        leaving=ctx.leaving,
        closed=closed,
        dropped=ctx.metrics.dropped.inc,
    )


async def _frames(stream: Stream, heartbeat_s: float) -> AsyncIterator[bytes]:
    while (frames := await stream.next(heartbeat_s)) is not None:
        yield frames
