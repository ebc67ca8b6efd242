"""A workspace's timeline, archives, output and resource usage."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from codehub.api.context import Ctx, Who, signed_out
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import LogsQuery, PageQuery
from codehub.api.streaming import StreamedAnswer
from codehub.api.views import View
from codehub.domain.history import Generation, TimelineEntry

router = api_router("diagnostics")

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The output, oldest first.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


class EventView(View):
    id: int
    at: datetime
    kind: str
    message: str
    actor: str
    detail: Mapping[str, object]


class EventPage(View):
    items: list[EventView]
    page: int
    per_page: int
    total: int


class ArchiveView(View):
    archive_key: str
    committed_at: datetime
    bytes: int
    sha256: str


class ArchiveList(View):
    items: list[ArchiveView]


class UsageView(View):
    cpu_percent: float | None = None
    memory_bytes: float | None = None
    memory_limit_bytes: float | None = None


@router.get("/workspaces/{workspace_id}/events", responses=signed_in(404))
async def workspace_timeline(
    workspace_id: str, query: Annotated[PageQuery, Query()], ctx: Ctx, who: Who
) -> EventPage:
    """The timeline: what changed, why, and who requested it; newest first."""
    found, total = await ctx.diagnostics.timeline(who, workspace_id, query.per_page, query.offset)
    return EventPage(items=[_event(each) for each in found], page=query.page, per_page=query.per_page, total=total)


@router.get("/workspaces/{workspace_id}/archives", responses=signed_in(404))
async def workspace_archives(workspace_id: str, ctx: Ctx, who: Who) -> ArchiveList:
    """The workspace's archives, newest first."""
    return ArchiveList(items=[_archive(each) for each in await ctx.diagnostics.archives(who, workspace_id)])


@router.get("/workspaces/{workspace_id}/logs", response_class=Response, responses={**_TEXT, **signed_in(404, 502)})
async def workspace_logs(workspace_id: str, query: Annotated[LogsQuery, Query()], ctx: Ctx, who: Who) -> Response:
    """The instance's output; with `follow`, new output as it arrives."""
    chunks = await ctx.diagnostics.logs(who, workspace_id, follow=query.follow, tail=query.tail)
    return StreamedAnswer(
        chunks,
        media_type="text/plain; charset=utf-8",
        send_s=ctx.live.pace.send_s,
        leaving=ctx.leaving,
        ended=partial(signed_out, was_admin=who.is_admin),
    )


@router.get("/workspaces/{workspace_id}/usage", responses=signed_in(404, 502))
async def workspace_usage(workspace_id: str, ctx: Ctx, who: Who) -> UsageView:
    """The instance's current resource usage, as far as the backend measures it."""
    used = await ctx.diagnostics.usage(who, workspace_id) or {}
    return UsageView(
        cpu_percent=used.get("cpu_percent"),
        memory_bytes=used.get("memory_bytes"),
        memory_limit_bytes=used.get("memory_limit_bytes"),
    )


def _event(entry: TimelineEntry) -> EventView:
    return EventView(
        id=entry.id, at=entry.at, kind=entry.kind, message=entry.message, actor=entry.actor, detail=entry.detail
    )


def _archive(generation: Generation) -> ArchiveView:
    return ArchiveView(
        archive_key=generation.archive_key,
        committed_at=generation.committed_at,
        bytes=generation.bytes,
        sha256=generation.sha256,
    )
