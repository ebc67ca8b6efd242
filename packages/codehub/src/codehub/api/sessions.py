"""Sign-in and sign-out, sessions, password."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from codehub.api.account_views import SessionPage, SessionView, UserBrief, session_item
from codehub.api.config import ApiConfig
from codehub.api.context import Address, Ctx, Who
from codehub.api.openapi import may_answer, signed_in
from codehub.api.router import api_router
from codehub.api.schemas import Login, PageQuery, PasswordChange
from codehub.domain.accounts import Session

router = api_router("sessions")


@router.post("/login", responses=may_answer(401, 403, 413, 429))
async def login(body: Login, request: Request, response: Response, ctx: Ctx, address: Address) -> SessionView:
    """Sign in. Five failures lock out this user and address for 30 s, doubling up to 30 min."""
    done = await ctx.accounts.sign_in(
        body.username, body.password, address=address, user_agent=_printable(request.headers.get("user-agent", ""))
    )
    set_session_cookie(response, ctx.config, done.secret, done.session)
    return SessionView(
        user=UserBrief(id=done.user.id, username=done.user.username, is_admin=done.user.is_admin),
        by_token=False,
        expires_at=done.session.expires_at,
        session_key=done.key,
        limits=ctx.config.limits_view,
    )


@router.post("/logout", status_code=204, responses=signed_in())
async def logout(response: Response, ctx: Ctx, who: Who) -> None:
    """End this session."""
    await ctx.accounts.sign_out(who)
    response.delete_cookie(
        ctx.config.session_cookie, path="/", secure=ctx.config.secure, httponly=True, samesite="lax"
    )


@router.get("/session", responses=signed_in())
async def session(ctx: Ctx, who: Who) -> SessionView:
    """Get the current session."""
    return SessionView(
        user=UserBrief(id=who.user_id, username=who.username, is_admin=who.is_admin),
        by_token=who.by_token,
        expires_at=who.expires_at,
        limits=ctx.config.limits_view,
        workspace_id=who.workspace_id,
    )


@router.get("/sessions", responses=signed_in())
async def list_sessions(query: Annotated[PageQuery, Query()], ctx: Ctx, who: Who) -> SessionPage:
    """List your sessions, newest first."""
    found, total = await ctx.accounts.list_sessions(who, query.per_page, query.offset)
    return SessionPage(
        items=[session_item(each, who.bearer_id) for each in found],
        page=query.page,
        per_page=query.per_page,
        total=total,
    )


@router.delete("/sessions", status_code=204, responses=signed_in())
async def end_other_sessions(ctx: Ctx, who: Who) -> None:
    """End all other sessions."""
    await ctx.accounts.end_other_sessions(who)


@router.delete("/sessions/{session_id}", status_code=204, responses=signed_in(404))
async def end_session(session_id: str, ctx: Ctx, who: Who) -> None:
    """End a session."""
    await ctx.accounts.end_session(who, session_id)


@router.post("/password", status_code=204, responses=signed_in(413, 429))
async def change_password(body: PasswordChange, ctx: Ctx, who: Who, address: Address) -> None:
    """Change your password. Ends all other sessions and revokes all API tokens."""
    await ctx.accounts.change_password(who, body.current_password, body.new_password, address=address)


def set_session_cookie(response: Response, config: ApiConfig, secret: str, session: Session) -> None:
    response.set_cookie(
        config.session_cookie,
        secret,
        max_age=int((session.expires_at - session.created_at).total_seconds()),
        path="/",
        secure=config.secure,
        httponly=True,
        samesite="lax",
    )


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())
