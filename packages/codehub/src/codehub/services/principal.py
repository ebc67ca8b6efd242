"""The originator of a request: a user's session, or an API token that acts for the user."""

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
    bearer_id: str  # the id of the session or token
    by_token: bool
    expires_at: datetime | None
    # The token used, also for a session created by a token's sign-in link.
    token_id: str | None = None
    # Restricts the token to this workspace.
    workspace_id: str | None = None
    # The client address, for the audit trail.
    address: str = ""

    def must_be_admin(self) -> None:
        if not self.is_admin:
            raise Denied("only an administrator may do this")

    def must_not_be_limited(self) -> None:
        """Reject tokens of one workspace: what this creates is outside of it."""
        if self.workspace_id is not None:
            raise Denied(f"this API token is valid for workspace {self.workspace_id} only")

    def must_be_present(self) -> None:
        """Reject API tokens. Some actions need a session, or a leaked token could make itself permanent."""
        if self.token_id is not None or self.by_token:
            raise Denied("an API token may not do this: sign in with a password")
