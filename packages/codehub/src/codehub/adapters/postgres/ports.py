"""Statements on shared ports and on the links that open them (hashes only)."""

from __future__ import annotations

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


async def shares(tx: Transaction, workspace_id: str) -> dict[int, str]:
    """Those that are not the owner's alone."""
    rows = await (
        await tx.execute("SELECT port, share FROM workspace_ports WHERE workspace_id = %s", [workspace_id])
    ).fetchall()
    return {row["port"]: row["share"] for row in rows}


async def share_of(tx: Transaction, workspace_id: str, port: int) -> str:
    row = await (
        await tx.execute(
            "SELECT share FROM workspace_ports WHERE workspace_id = %s AND port = %s", [workspace_id, port]
        )
    ).fetchone()
    return "owner" if row is None else str(row["share"])


async def any_shared(tx: Transaction, workspace_id: str) -> bool:
    return any(share != "owner" for share in (await shares(tx, workspace_id)).values())


async def link_is_live(tx: Transaction, secret_hash: bytes, workspace_id: str, port: int, now: datetime) -> bool:
    row = await (
        await tx.execute(
            "SELECT 1 FROM port_links WHERE secret_hash = %s AND workspace_id = %s AND port = %s AND expires_at > %s",
            [secret_hash, workspace_id, port, now],
        )
    ).fetchone()
    return row is not None


async def set_share(tx: Transaction, workspace_id: str, port: int, share: str, now: datetime) -> None:
    """Sharing less revokes the links: they were for those who are now kept out."""
    await tx.execute(
        "INSERT INTO workspace_ports (workspace_id, port, share, changed_at) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (workspace_id, port) DO UPDATE SET share = EXCLUDED.share, changed_at = EXCLUDED.changed_at",
        [workspace_id, port, share, now],
    )
    if share != "link":
        await tx.execute("DELETE FROM port_links WHERE workspace_id = %s AND port = %s", [workspace_id, port])


async def insert_link(tx: Transaction, link: PortLink, secret_hash: bytes) -> None:
    await tx.execute(
        "INSERT INTO port_links (id, secret_hash, workspace_id, port, created_at, expires_at)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        [link.id, secret_hash, link.workspace_id, link.port, link.created_at, link.expires_at],
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
