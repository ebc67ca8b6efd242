"""Users, sessions and tokens as values. They never contain secrets."""

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
    workspace_id: str | None = None  # restricts the token to this workspace


@dataclass(frozen=True, slots=True)
class Bearer:
    """A live session or token and the user it belongs to."""

    id: str
    user_id: str
    username: str
    is_admin: bool
    expires_at: datetime | None
    # The token itself, or the token that created the session (through a sign-in link). Such a session has no more rights
    # than the token.
    token_id: str | None
    # Restricts the token, and any session created with it, to this workspace.
    workspace_id: str | None = None
