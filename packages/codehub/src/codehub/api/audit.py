"""The audit trail, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime, Field
from starlette.responses import Response

from codehub.api.account_views import AuditEventView, AuditPageView, audit_view
from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router
from codehub.api.schemas import LoginName
from codehub.api.schemas import Query as QueryModel
from codehub.domain.audit import AuditFilter

router = api_router("audit")
_LINES = "application/x-ndjson"
_LARGEST = 2**63 - 1


class AuditQuery(QueryModel):
    cursor: int | None = Field(None, ge=0, le=_LARGEST, description="`next_cursor` of the page before.")
    after: int | None = Field(
        None, ge=0, le=_LARGEST, description="Oldest first, from behind this id; 0 begins with the first."
    )
    limit: int = Field(50, ge=1, le=1000)
    event: str | None = Field(
        None, max_length=64, pattern=r"^[a-z_.]+\*?$", description="Only this kind of event, or a pattern: `user.*`."
    )
    actor: LoginName | None = Field(None, description="What this user did.")
    workspace_id: str | None = Field(None, pattern=r"^[0-9a-f-]{36}$")
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


@router.get(
    "/audit",
    responses={**signed_in(), 200: {"content": {_LINES: {"schema": {"type": "string"}}}, "model": AuditPageView}},
    response_model=AuditPageView,
)
async def list_audit_events(query: Annotated[AuditQuery, Query()], request: Request, ctx: Ctx, who: Who) -> object:
    """Security events, newest first. With `Accept: application/x-ndjson`, one JSON object per line."""
    which = AuditFilter(query.event, query.actor, query.workspace_id, query.since, query.until)
    if query.after is not None:
        page = await ctx.audit.after(who, which, query.after, query.limit)
    else:
        page = await ctx.audit.newest(who, which, query.cursor, query.limit)
    items: list[AuditEventView] = [audit_view(each) for each in page.items]
    if _LINES in request.headers.get("accept", ""):
        lines = "".join(f"{item.model_dump_json()}\n" for item in items)
        return Response(lines, media_type=_LINES, headers={"X-Next-Cursor": page.next_cursor or ""})
    return AuditPageView(items=items, next_cursor=page.next_cursor)
