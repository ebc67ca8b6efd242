"""People and how they are signed in, as values. Secrets are nowhere in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class User:
    id: str
    username: str
    is_admin: bool
    disabled_at: datetime | None
    created_at: datetime
    workspaces: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    user_id: str
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    address: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    user_id: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    workspace_id: str | None = None  # the only one it is good for


@dataclass(frozen=True, slots=True)
class Bearer:
    """A live session or token with the user it belongs to."""

    id: str
    user_id: str
    username: str
    is_admin: bool
    expires_at: datetime | None
    # The token itself, or the one a session was made with (a sign-in link's); such a session may do no more.
    token_id: str | None
    # The only workspace that the token, or the session made with it, is good for.
    workspace_id: str | None = None
