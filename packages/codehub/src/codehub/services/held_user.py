"""Locks the row of the user who asks, and checks again that they are signed in.

What outlives a session or counts towards a limit is created under this lock: tokens, links, keys, credentials, secrets. A
request may be on its way while the password is changed or the session ended, which locks the row too; and of several
requests at once, each sees what the one before has created.
"""

from __future__ import annotations

from datetime import datetime

from codehub.adapters.postgres import sessions, users
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.errors import Unauthorized
from codehub.services.principal import Principal


async def hold_user(tx: Transaction, who: Principal, now: datetime) -> None:
    """Raise Unauthorized if the session or token has ended. Call it before any other row is locked."""
    if not await users.lock(tx, who.user_id) or not await sessions.still_live(tx, [who.bearer_id], now):
        raise Unauthorized("sign in first: the session or API token has ended")
