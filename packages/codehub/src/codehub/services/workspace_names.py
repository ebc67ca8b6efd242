"""Keeps the names of an owner's workspaces unique. Callers lock the owner's row first.

Names that were equal before this rule stay as they are until one of them is changed.
"""

from __future__ import annotations

from codehub.adapters.postgres import workspaces
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.errors import NameTaken
from codehub.domain.names import free_name


async def check(tx: Transaction, owner_user_id: str, name: str, *, but: str) -> None:
    """Raise NameTaken if another live workspace of the owner has this name."""
    taken = (await workspaces.names_of(tx, owner_user_id, but=but)).get(name)
    if taken is not None:
        raise NameTaken(f"name: there is already a workspace named {name!r} ({taken}); choose another name")


async def free(tx: Transaction, owner_user_id: str, name: str, *, but: str) -> str:
    """Return the name, or the next one that is free."""
    return free_name(name, await workspaces.names_of(tx, owner_user_id, but=but))
