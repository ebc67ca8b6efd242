"""One-time sign-in links (ADR 0251): created with a token by `codehub ws open`, opened by a browser.

A navigation that was not caused by a page signs in immediately. Any other asks first, so that following a link cannot sign
a user in as someone else.
"""

from __future__ import annotations

from html import escape
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from codehub.api.context import Address, Context, Ctx, Who, session_secrets
from codehub.api.openapi import signed_in
from codehub.api.router import api_router, root_router
from codehub.api.schemas import Wire
from codehub.api.sessions import set_session_cookie
from codehub.api.views import View
from codehub.api.workspace_views import address_of
from codehub.domain.errors import Unauthorized
from codehub.services.login_links import LoginLinks
from codehub.web.assets import assets

router = api_router("sessions")
pages = root_router()

Secret = Annotated[str, Query(min_length=20, max_length=100)]

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · CodeHub</title><link rel="stylesheet" href="/assets/{version}/style.css"></head>
<body><header class="bar"><a class="brand" href="/"><span class="mark" aria-hidden="true"></span>CodeHub</a></header>
<main class="narrow"><h1>{title}</h1><p>{text}</p>{form}</main></body></html>
"""
# Stores the session's key where only the dashboard's origin can read it, then redirects.
_SIGNED_IN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Signed in · CodeHub</title>
<meta name="codehub-session-key" content="{key}"><meta name="codehub-next" content="{target}">
<script type="module" src="/assets/{version}/signed_in.js"></script></head>
<body><main><h1>Signed in</h1><p>One moment.</p></main></body></html>
"""


class LoginLinkCreate(Wire):
    workspace_id: str | None = None


class LoginLinkView(View):
    url: str
    expires_in_seconds: int


@router.post("/login-links", status_code=201, responses=signed_in(404, 429))
async def make_login_link(body: LoginLinkCreate, ctx: Ctx, who: Who) -> LoginLinkView:
    """Create a link that signs a browser in as you, once and within a minute, and opens the workspace if one is given."""
    secret = await _links(ctx).make(who, body.workspace_id)
    return LoginLinkView(url=f"{ctx.config.public_url}/login-link?secret={secret}", expires_in_seconds=60)


@pages.get("/login-link")
async def open_login_link(request: Request, secret: Secret, ctx: Ctx, address: Address) -> Response:
    try:
        link = await _links(ctx).peek(secret)
    except Unauthorized as error:
        return _expired(ctx, error)
    here = await ctx.accounts.signed_in_here(session_secrets(request))
    others = [name for user_id, name in here if user_id != link.user_id]
    if _nobody_led_here(request) and not others:
        return await _redeem(request, secret, ctx, address, keep_session=bool(here))
    instead = f" You are signed in as {escape(' or '.join(others))} now." if others else ""
    button = (
        f'<form method="post" action="/login-link?secret={escape(secret)}">'
        f'<button class="primary" autofocus>Sign in as {escape(link.username)}</button></form>'
    )
    name = escape(link.username)
    text = f"This link signs this browser in as <b>{name}</b>.{instead} Go on only if you made it yourself."
    return _page(ctx, 200, f"Sign in as {link.username}?", text, button)


@pages.post("/login-link")
async def confirm_login_link(request: Request, secret: Secret, ctx: Ctx, address: Address) -> Response:
    try:
        return await _redeem(request, secret, ctx, address)
    except Unauthorized as error:
        return _expired(ctx, error)


def _expired(ctx: Context, error: Unauthorized) -> HTMLResponse:
    again = '<p><a class="button primary" href="/">Sign in</a></p>'
    return _page(ctx, 401, "This link has expired", f"{escape(str(error).capitalize())}.", again)


async def _redeem(
    request: Request, secret: str, ctx: Context, address: str, *, keep_session: bool = False
) -> Response:
    if keep_session:
        # Already signed in as the same user, perhaps with a password: that session may have more rights than the link's
        # would.
        workspace, signed_in_now = await _links(ctx).use_up(secret), None
    else:
        agent = "".join(filter(str.isprintable, request.headers.get("user-agent", "")))
        signed_in_now = await _links(ctx).redeem(secret, address=address, user_agent=agent)
        workspace = signed_in_now.workspace
    target = address_of(workspace, ctx.config) if workspace is not None else f"{ctx.config.public_url}/"
    if signed_in_now is None:
        return RedirectResponse(target, 303, {"Cache-Control": "no-store"})
    answer = HTMLResponse(
        _SIGNED_IN.format(key=escape(signed_in_now.key), target=escape(target), version=assets().version),
        headers={
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; base-uri 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-store",
        },
    )
    set_session_cookie(answer, ctx.config, signed_in_now.secret, signed_in_now.session)
    return answer


def _nobody_led_here(request: Request) -> bool:
    """Return whether the address was typed or opened by a program: no page can cause this value of Sec-Fetch-Site."""
    headers = request.headers
    return (
        headers.get("sec-fetch-site") == "none"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and "sec-purpose" not in headers
    )


def _page(ctx: Context, status: int, title: str, text: str, form: str = "") -> HTMLResponse:
    # After the form is submitted, the browser is redirected to the workspace, and checks that redirect against form-action
    # too.
    onwards = ctx.config.workspace_origins
    policy = (
        f"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self' {onwards}; base-uri 'none';"
        " frame-ancestors 'none'"
    )
    body = _PAGE.format(title=escape(title), text=text, form=form, version=assets().version)
    return HTMLResponse(body, status, {"Content-Security-Policy": policy, "Cache-Control": "no-store"})


def _links(ctx: Context) -> LoginLinks:
    return LoginLinks(ctx.deps.database, ctx.workspaces, ctx.accounts, ctx.deps.clock)
