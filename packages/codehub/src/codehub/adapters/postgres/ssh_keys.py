"""Statements on users' SSH public keys and on workspaces' SSH host keys."""

from __future__ import annotations

from datetime import datetime

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.ssh_keys import HostKey, SshKey


async def keys_of(tx: Transaction, user_id: str) -> list[SshKey]:
    rows = await (
        await tx.execute("SELECT * FROM ssh_keys WHERE user_id = %s ORDER BY created_at, id", [user_id])
    ).fetchall()
    return [
        SshKey(row["id"], row["user_id"], row["name"], row["public_key"], row["fingerprint"], row["created_at"])
        for row in rows
    ]


# Adds a key, unless the user has it already.
_INSERT_KEY = """
    INSERT INTO ssh_keys (id, user_id, name, public_key, fingerprint, created_at) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (user_id, fingerprint) DO NOTHING
"""


async def insert_key(tx: Transaction, key: SshKey) -> None:
    """Add a key. Adding the same key again changes nothing."""
    await tx.execute(_INSERT_KEY, [key.id, key.user_id, key.name, key.public_key, key.fingerprint, key.created_at])


async def delete_key(tx: Transaction, key_id: str, user_id: str) -> bool:
    result = await tx.execute("DELETE FROM ssh_keys WHERE id = %s AND user_id = %s", [key_id, user_id])
    return result.rowcount == 1


async def host_key(tx: Transaction, workspace_id: str) -> HostKey | None:
    row = await (
        await tx.execute("SELECT * FROM workspace_host_keys WHERE workspace_id = %s", [workspace_id])
    ).fetchone()
    return None if row is None else HostKey(row["private_key"], row["public_key"])


# Stores a host key, unless the workspace has one already.
_INSERT_HOST_KEY = """
    INSERT INTO workspace_host_keys (workspace_id, private_key, public_key, created_at) VALUES (%s, %s, %s, %s)
    ON CONFLICT (workspace_id) DO NOTHING
"""


async def insert_host_key(tx: Transaction, workspace_id: str, key: HostKey, now: datetime) -> None:
    """Store a host key. The first one wins if several are created at the same time."""
    await tx.execute(_INSERT_HOST_KEY, [workspace_id, key.private_key, key.public_key, now])
