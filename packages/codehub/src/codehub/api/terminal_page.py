"""The web terminal's page and the files it loads. Its content comes from the API, like the rest of the dashboard.

It is a separate document because xterm.js writes style sheets at run time: inline styles are allowed only here. The
dashboard shows it as a panel, so its own origin may frame it.
"""

from __future__ import annotations

from html import escape
from typing import Annotated, Final

from fastapi import Query
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from codehub.api.context import Ctx, Who
from codehub.api.openapi import signed_in
from codehub.api.router import api_router, root_router
from codehub.api.views import View
from codehub.domain.errors import NotFound
from codehub.domain.ids import is_id
from codehub.web.assets import assets

router = api_router("terminals", in_schema=False)
pages = root_router()

_TYPES: Final = {"mjs": "text/javascript", "css": "text/css"}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class TerminalProgramView(View):
    version: str
    ready: bool
    problem: str | None = Field(description="Why the last attempt to install it failed.")


@router.post("/terminal-program", responses=signed_in())
async def ensure_terminal_program(ctx: Ctx, who: Who) -> TerminalProgramView:
    """Install xterm.js. Repeat the request until it is ready."""
    files = ctx.terminal_program
    problem = None if files.ready else files.begin()
    return TerminalProgramView(version=files.version, ready=files.ready, problem=problem)


@pages.get("/terminal/{workspace_id}")
async def terminal_page(workspace_id: str, ctx: Ctx, panel: Annotated[bool, Query()] = False) -> Response:
    if not is_id(workspace_id):
        raise NotFound("there is no such workspace")
    version = assets().version
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Terminal · CodeHub</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1, interactive-widget=resizes-content">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="/assets/{version}/icon.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="/assets/{version}/style.css">'
        f'<link rel="stylesheet" href="/assets/{version}/terminal/terminal.css">'
        f'<script type="module" src="/assets/{version}/terminal/page.js"></script></head>'
        f'<body class="terminal-page" data-workspace="{escape(workspace_id)}"{" data-panel" if panel else ""}>'
        '<p class="quiet" id="first">Loading…</p>'
        "<noscript><p>The terminal needs JavaScript.</p></noscript></body></html>\n"
    )
    return HTMLResponse(body, headers=_headers(ctx.config.public_url))


@pages.get("/xterm/{version}/{name}")
async def terminal_file(version: str, name: str, ctx: Ctx) -> Response:
    """A file of xterm.js. Its URL contains the version, so it is cached indefinitely."""
    if version != ctx.terminal_program.version:
        raise NotFound(f"there is no xterm.js {version} here")
    body = await ctx.terminal_program.read(name)
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(body, headers={"Cache-Control": _FOR_EVER}, media_type=f"{kind}; charset=utf-8")


def _headers(public_url: str) -> dict[str, str]:
    # 'self' does not cover WebSockets in every browser.
    sockets = public_url.replace("http", "ws", 1)
    policy = "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self'",
            f"connect-src 'self' {sockets}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )
    return {"Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN", "Cache-Control": "no-cache"}
