"""Hand-over to the workspace proxy: the dashboard's side of the one-time ticket.

A browser that opened a workspace without its cookie is redirected here. The page proves both halves of its session and is
sent back with a ticket that only this browser can use. Return addresses are paths inside the workspace.
"""

from __future__ import annotations

import re
from html import escape
from typing import Annotated

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router, root_router
from codehub.api.schemas import Wire
from codehub.api.views import View
from codehub.domain.doors import public_url
from codehub.domain.errors import Denied, WorkspaceNotFound
from codehub.domain.ids import is_id
from codehub.domain.routing import is_local_path, workspace_path
from codehub.services.workspace_access import WorkspaceAccess
from codehub.web.assets import assets

router = api_router("workspaces")
pages = root_router()

_NONCE = re.compile(r"[0-9a-f]{64}")
_QUIET = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


@pages.get("/handover/{workspace_id}")
async def hand_over_page(
    request: Request, workspace_id: str, nonce: Annotated[str, Query()] = "", next: Annotated[str, Query()] = ""
) -> Response:
    """The page that requests the ticket: a navigation carries only the cookie, which is not enough for access."""
    headers = request.headers
    if (
        headers.get("sec-fetch-mode", "navigate") != "navigate"
        or headers.get("sec-fetch-dest", "document") != "document"
    ):
        return _page(403, "Open the workspace in a window of its own", "It cannot be opened inside another page.")
    if not is_id(workspace_id):
        return _page(404, "There is no such workspace", "It may have been deleted.")
    if not _NONCE.fullmatch(nonce):
        return _page(400, "This address is not complete", "Open the workspace from the list of workspaces.")
    return _page(200, "Opening the workspace", "One moment.", script=f"/assets/{assets().version}/handover.js")


class HandOver(Wire):
    """`nonce` is the SHA-256 of the value in the browser's cookie at the proxy; `next` is a path in the workspace."""

    nonce: Annotated[str, Field(pattern=f"^{_NONCE.pattern}$")]
    next: Annotated[str, Field(max_length=8192)] = ""


class HandOverView(View):
    url: str


@router.post("/workspaces/{workspace_id}/handover", responses=signed_in(403, 404), include_in_schema=False)
async def hand_over(workspace_id: str, body: HandOver, context: Ctx, who: Who) -> HandOverView:
    """Create a one-time ticket for this browser. Returns the URL that uses it."""
    if who.by_token:
        raise Denied("a browser's session opens a workspace; use the token with the workspace itself")
    if not is_id(workspace_id):
        raise WorkspaceNotFound("there is no such workspace")
    config = context.config
    path = body.next if is_local_path(body.next, workspace_id) else workspace_path(workspace_id)
    access = WorkspaceAccess(context.deps.database, config.limits, context.deps.clock)
    try:
        ticket = await access.issue(who, workspace_id, bytes.fromhex(body.nonce))
    except Denied:
        await context.workspaces.refused(who, workspace_id)
        raise
    joint = "&" if "?" in path else "?"
    address = f"{path}{joint}codehub_ticket={ticket}"
    return HandOverView(url=public_url(config.workspace_url, config.workspace_host, workspace_id, address))


def _page(status: int, title: str, text: str, *, script: str = "") -> Response:
    run = f'<script type="module" src="{script}"></script>' if script else ""
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)} · CodeHub</title>'
        f'<h1>{escape(title)}</h1><p>{escape(text)}</p><p><a href="/">My workspaces</a></p>{run}</html>'
    )
    return HTMLResponse(body, status, headers=_QUIET)
