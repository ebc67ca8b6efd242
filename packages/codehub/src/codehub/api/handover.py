"""Hand-over to the workspace proxy: the dashboard's side of the one-time ticket.

A browser that opened a workspace without its cookie comes here, is known by its session, and is sent back with a ticket
that only it can use. Return addresses are paths inside the workspace, never anything else.
"""

from __future__ import annotations

import re
from html import escape
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from codehub.api.context import Ctx
from codehub.domain.errors import Denied, WorkspaceNotFound
from codehub.domain.ids import is_id
from codehub.domain.routing import is_local_path, workspace_origin, workspace_path
from codehub.services.workspace_access import WorkspaceAccess

router = APIRouter(include_in_schema=False)

_NONCE = re.compile(r"[0-9a-f]{64}")
_QUIET = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


@router.get("/handover/{workspace_id}")
async def hand_over(
    request: Request,
    context: Ctx,
    workspace_id: str,
    nonce: Annotated[str, Query()] = "",
    next: Annotated[str, Query()] = "",
) -> Response:
    """`nonce` is the SHA-256 of what the browser keeps in a cookie at the proxy."""
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
    path = next if is_local_path(next, workspace_id) else workspace_path(workspace_id)
    config = context.config
    secret = request.cookies.get(config.session_cookie, "")
    who = await context.accounts.by_cookie(secret) if secret else None
    if who is None:
        here = f"/handover/{workspace_id}?{urlencode({'nonce': nonce, 'next': path})}"
        return RedirectResponse(f"/?next={quote(here, safe='')}", 303, headers=_QUIET)
    access = WorkspaceAccess(context.deps.database, config.limits, context.deps.clock)
    try:
        ticket = await access.issue(who, workspace_id, bytes.fromhex(nonce))
    except WorkspaceNotFound:
        return _page(404, "There is no such workspace", "It may have been deleted.")
    except Denied:
        return _page(403, "This workspace belongs to someone else", "Only its owner can open it.")
    origin = workspace_origin(config.workspace_url, config.workspace_host, workspace_id)
    joint = "&" if "?" in path else "?"
    return RedirectResponse(f"{origin}{path}{joint}codehub_ticket={ticket}", 303, headers=_QUIET)


def _page(status: int, title: str, text: str) -> Response:
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)} · CodeHub</title>'
        f'<h1>{escape(title)}</h1><p>{escape(text)}</p><p><a href="/">My workspaces</a></p></html>'
    )
    return HTMLResponse(body, status, headers=_QUIET)
