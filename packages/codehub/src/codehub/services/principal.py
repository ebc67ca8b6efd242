"""Who is asking: a person's session, or an API token that acts for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from codehub.domain.errors import Denied

Clock: TypeAlias = Callable[[], datetime]
Ids: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Principal:
    user_id: str
    username: str
    is_admin: bool
    bearer_id: str  # the session's or the token's
    by_token: bool
    expires_at: datetime | None
    # The token behind it, also of a session that a token's sign-in link made.
    token_id: str | None = None
    # The only workspace this token is good for.
    workspace_id: str | None = None
    # Where the request came from, for the audit trail.
    address: str = ""

    def must_be_admin(self) -> None:
        if not self.is_admin:
            raise Denied("only an administrator may do this")

    def must_be_present(self) -> None:
        """Some things a token must not do, or a leaked one could make itself permanent."""
        if self.token_id is not None or self.by_token:
            raise Denied("an API token may not do this: sign in with a password")
