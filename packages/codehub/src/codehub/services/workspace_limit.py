"""Limits how many workspaces a user has, running or not. Callers lock the owner's row first.

Workspaces that were above the limit before it was set stay.
"""

from __future__ import annotations

from codehub.adapters.postgres import workspaces
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.limits import check_workspace_limit
from codehub.services.principal import Principal


async def check(tx: Transaction, who: Principal, owner_user_id: str, owner: str, most: int) -> None:
    """Raise WorkspaceLimitExceeded unless this owner may have one more workspace."""
    if most:
        have = await workspaces.count_of(tx, owner_user_id)
        check_workspace_limit(most, have, owner="" if who.user_id == owner_user_id else owner)
