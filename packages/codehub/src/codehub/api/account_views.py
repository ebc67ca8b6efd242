"""Users, sessions, tokens and the audit trail as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from pydantic import Field

from codehub.api.views import LimitsView, View
from codehub.domain.accounts import Session, Token, User
from codehub.domain.audit import AuditEvent


class UserBrief(View):
    id: str
    username: str
    is_admin: bool


class SessionView(View):
    """The signed-in user, and how they signed in."""

    user: UserBrief
    by_token: bool
    expires_at: datetime | None
    limits: LimitsView
    workspace_id: str | None = Field(
        default=None, description="The only workspace that the token is valid for; null for all."
    )
    # Only in the response to a login: pages of the dashboard's origin then send it along with the cookie.
    session_key: str | None = None


class SessionItem(View):
    id: str
    current: bool
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    address: str
    user_agent: str


class SessionPage(View):
    items: list[SessionItem]
    page: int
    per_page: int
    total: int


class TokenView(View):
    id: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    workspace_id: str | None = Field(
        None, description="The only workspace that it is valid for; null for all of one's own."
    )


class MintedTokenView(TokenView):
    token: str = Field(description="The secret. It is shown only once.")


class TokenPage(View):
    items: list[TokenView]
    page: int
    per_page: int
    total: int


class UserView(View):
    id: str
    username: str
    is_admin: bool
    disabled: bool
    created_at: datetime
    workspaces: int


class UserPage(View):
    items: list[UserView]
    page: int
    per_page: int
    total: int


class AuditEventView(View):
    id: int
    at: datetime
    event: str
    actor: str
    actor_id: str | None
    token_id: str | None
    address: str
    target: str
    workspace_id: str | None
    detail: Mapping[str, object]


class AuditPageView(View):
    items: list[AuditEventView]
    next_cursor: str | None


def session_item(session: Session, current_id: str) -> SessionItem:
    return SessionItem(
        id=session.id,
        current=session.id == current_id,
        created_at=session.created_at,
        expires_at=session.expires_at,
        last_seen_at=session.last_seen_at,
        address=session.address,
        user_agent=session.user_agent,
    )


def token_view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        workspace_id=token.workspace_id,
    )


def user_view(user: User) -> UserView:
    return UserView(
        id=user.id,
        username=user.username,
        is_admin=user.is_admin,
        disabled=user.disabled_at is not None,
        created_at=user.created_at,
        workspaces=user.workspaces,
    )


def audit_view(event: AuditEvent) -> AuditEventView:
    return AuditEventView(**asdict(event))
