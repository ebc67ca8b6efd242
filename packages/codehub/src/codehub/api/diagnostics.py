"""A workspace's timeline, archives, output and resource usage."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.schemas import LogsQuery, PageQuery
from codehub.api.streaming import StreamedAnswer
from codehub.api.views import (
    ArchiveList,
    EventPage,
    UsageView,
    archive_view,
    event_view,
)

router = APIRouter(tags=["observing"])

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The output, oldest first.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/workspaces/{workspace_id}/events", responses=signed_in(404))
async def workspace_timeline(
    workspace_id: str, query: Annotated[PageQuery, Query()], ctx: Ctx, who: Who
) -> EventPage:
    """The timeline: what changed, why, and who asked for it; newest first."""
    found, total = await ctx.observing.timeline(who, workspace_id, query.per_page, query.offset)
    return EventPage(
        items=[event_view(each) for each in found], page=query.page, per_page=query.per_page, total=total
    )


@router.get("/workspaces/{workspace_id}/archives", responses=signed_in(404))
async def workspace_archives(workspace_id: str, ctx: Ctx, who: Who) -> ArchiveList:
    """The workspace's archives, newest first."""
    return ArchiveList(items=[archive_view(each) for each in await ctx.observing.archives(who, workspace_id)])


@router.get("/workspaces/{workspace_id}/logs", response_class=Response, responses={**_TEXT, **signed_in(404, 502)})
async def workspace_logs(workspace_id: str, query: Annotated[LogsQuery, Query()], ctx: Ctx, who: Who) -> Response:
    """The instance's output; with `follow`, new output as it arrives."""
    chunks = await ctx.observing.logs(who, workspace_id, follow=query.follow, tail=query.tail)
    return StreamedAnswer(
        chunks,
        media_type="text/plain; charset=utf-8",
        send_s=ctx.live.pace.send_s,
        leaving=ctx.leaving,
    )


@router.get("/workspaces/{workspace_id}/usage", responses=signed_in(404, 502))
async def workspace_usage(workspace_id: str, ctx: Ctx, who: Who) -> UsageView:
    """The instance's current resource usage, as far as the backend measures it."""
    used = await ctx.observing.usage(who, workspace_id) or {}
    return UsageView(
        cpu_percent=used.get("cpu_percent"),
        memory_bytes=used.get("memory_bytes"),
        memory_limit_bytes=used.get("memory_limit_bytes"),
    )
