"""A workspace's SSH host key: made by the workspace, kept by CodeHub, so that it stays the same for its clients."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from codehub.adapters.postgres import ssh_keys
from codehub.adapters.postgres.pool import Transaction
from codehub.domain.errors import Invalid, UpstreamUnavailable
from codehub.domain.ssh_keys import HostKey, parse_public_key
from codehub.services.workspace_rows import locked_of_owner

NO_KEYS: Final = "you have no SSH key here: add one with `codehub keys add FILE` or on the account page"
_LONGEST: Final = 16 << 10


async def keep_host_key(
    tx: Transaction, workspace_id: str, owner_user_id: str, private: str, public: str, now: datetime
) -> HostKey:
    """Store a host key that the workspace made for this owner. Returns the stored one: the first wins.

    A transfer meanwhile has removed the previous owner's key, who knows its private half.
    """
    await locked_of_owner(tx, workspace_id, owner_user_id)
    if len(private) > _LONGEST:
        raise UpstreamUnavailable("the workspace made no usable host key: it is too long")
    try:
        made = HostKey(private, parse_public_key(public).line)
    except Invalid as error:
        raise UpstreamUnavailable(f"the workspace made no usable host key: {error}") from error
    await ssh_keys.insert_host_key(tx, workspace_id, made, now)
    kept = await ssh_keys.host_key(tx, workspace_id)
    assert kept is not None
    return kept
