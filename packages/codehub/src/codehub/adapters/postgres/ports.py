"""Statements on shared ports and on the links that open them (hashes only)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from codehub.adapters.postgres.pool import Transaction


@dataclass(frozen=True, slots=True)
class PortLink:
    id: str
    workspace_id: str
    port: int
    created_at: datetime
    expires_at: datetime


# Earlier versions kept a row for a port that is no longer shared.
_SHARES = "SELECT port, share FROM workspace_ports WHERE workspace_id = %s AND share <> 'owner'"


async def shares(tx: Transaction, workspace_id: str) -> dict[int, str]:
    """Return the ports that are shared with others than the owner."""
    rows = await (await tx.execute(_SHARES, [workspace_id])).fetchall()
    return {row["port"]: row["share"] for row in rows}


async def share_of(tx: Transaction, workspace_id: str, port: int) -> str:
    row = await (
        await tx.execute(
            "SELECT share FROM workspace_ports WHERE workspace_id = %s AND port = %s", [workspace_id, port]
        )
    ).fetchone()
    return "owner" if row is None else str(row["share"])


async def any_shared(tx: Transaction, workspace_id: str) -> bool:
    return bool(await shares(tx, workspace_id))


# Finds one of these links that has not expired and is for this port.
_LIVE_LINK = """
    SELECT secret_hash FROM port_links
    WHERE secret_hash = ANY(%s) AND workspace_id = %s AND port = %s AND expires_at > %s LIMIT 1
"""


async def live_link(
    tx: Transaction, secret_hashes: Sequence[bytes], workspace_id: str, port: int, now: datetime
) -> bytes | None:
    """Return one of these links that is valid for the port."""
    row = await (await tx.execute(_LIVE_LINK, [list(secret_hashes), workspace_id, port, now])).fetchone()
    return None if row is None else bytes(row["secret_hash"])


# Checks open connections: the owner by cookie or token, users whom the sharing admits, and valid links.
_STILL_OPEN = """
    WITH requested AS (
        SELECT * FROM unnest(%(ids)s::text[], %(ports)s::int[], %(hashes)s::bytea[]) AS a(workspace_id, port, secret_hash)
    ), holders AS (
        SELECT a.*, s.user_id FROM requested a JOIN proxy_sessions p ON p.secret_hash = a.secret_hash
            JOIN sessions s ON s.id = p.session_id
        UNION ALL
        SELECT a.*, t.user_id FROM requested a JOIN api_tokens t ON t.secret_hash = a.secret_hash
    )
    SELECT h.workspace_id, h.port, h.secret_hash FROM holders h JOIN workspaces w ON w.id = h.workspace_id
    WHERE w.owner_user_id = h.user_id OR (%(widest)s <> 'owner' AND EXISTS (
        SELECT 1 FROM workspace_ports o
        WHERE o.workspace_id = h.workspace_id AND o.port = h.port AND o.share <> 'owner'))
    UNION ALL
    SELECT a.* FROM requested a
        JOIN port_links l ON l.secret_hash = a.secret_hash AND l.workspace_id = a.workspace_id AND l.port = a.port
            AND l.expires_at > %(now)s
        JOIN workspace_ports o ON o.workspace_id = a.workspace_id AND o.port = a.port AND o.share = 'link'
    WHERE %(widest)s = 'link'
"""


async def still_open(
    tx: Transaction, requested: Sequence[tuple[str, int, bytes]], widest: str, now: datetime
) -> set[tuple[str, int, bytes]]:
    """Return those of the (workspace, port, hash) that belong to the owner or that the sharing admits.

    Each hash is of a cookie, token or link.
    """
    rows = await (
        await tx.execute(
            _STILL_OPEN,
            {
                "ids": [one[0] for one in requested],
                "ports": [one[1] for one in requested],
                "hashes": [one[2] for one in requested],
                "widest": widest,
                "now": now,
            },
        )
    ).fetchall()
    return {(row["workspace_id"], row["port"], bytes(row["secret_hash"])) for row in rows}


# Sets the sharing of a port.
_SET_SHARE = """
    INSERT INTO workspace_ports (workspace_id, port, share, changed_at) VALUES (%s, %s, %s, %s)
    ON CONFLICT (workspace_id, port) DO UPDATE SET share = EXCLUDED.share, changed_at = EXCLUDED.changed_at
"""


async def set_share(tx: Transaction, workspace_id: str, port: int, share: str, now: datetime) -> None:
    """Set a port's sharing. Reducing it revokes the links, because they were for people who no longer have access."""
    if share == "owner":
        await tx.execute("DELETE FROM workspace_ports WHERE workspace_id = %s AND port = %s", [workspace_id, port])
    else:
        await tx.execute(_SET_SHARE, [workspace_id, port, share, now])
    if share != "link":
        await tx.execute("DELETE FROM port_links WHERE workspace_id = %s AND port = %s", [workspace_id, port])


# Adds a link to a port.
_INSERT_LINK = """
    INSERT INTO port_links (id, secret_hash, workspace_id, port, created_at, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s)
"""


async def insert_link(tx: Transaction, link: PortLink, secret_hash: bytes) -> None:
    await tx.execute(
        _INSERT_LINK, [link.id, secret_hash, link.workspace_id, link.port, link.created_at, link.expires_at]
    )


async def links_of(tx: Transaction, workspace_id: str, port: int, now: datetime) -> list[PortLink]:
    rows = await (
        await tx.execute(
            "SELECT * FROM port_links WHERE workspace_id = %s AND port = %s AND expires_at > %s ORDER BY created_at, id",
            [workspace_id, port, now],
        )
    ).fetchall()
    return [
        PortLink(row["id"], row["workspace_id"], row["port"], row["created_at"], row["expires_at"]) for row in rows
    ]


async def delete_link(tx: Transaction, link_id: str, workspace_id: str) -> bool:
    result = await tx.execute("DELETE FROM port_links WHERE id = %s AND workspace_id = %s", [link_id, workspace_id])
    return result.rowcount == 1


async def delete_expired(tx: Transaction, now: datetime) -> None:
    await tx.execute("DELETE FROM port_links WHERE expires_at <= %s", [now])
