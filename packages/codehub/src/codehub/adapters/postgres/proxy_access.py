"""Statements of the workspace proxy's access check: who holds a credential, tickets and workspace cookies (hashes only)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from codehub.adapters.postgres.pool import Transaction
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.model import Workspace


@dataclass(frozen=True, slots=True)
class Holder:
    """A live credential and its user. `secret_hash` identifies which of the presented secrets it was."""

    secret_hash: bytes
    user_id: str
    username: str
    workspace_id: str | None = None  # the only workspace that a token is valid for


async def workspace(tx: Transaction, workspace_id: str) -> Workspace | None:
    row = await (await tx.execute("SELECT * FROM workspaces WHERE id = %s", [workspace_id])).fetchone()
    return None if row is None else workspace_of(row)


# Finds the live workspace cookie among these. The owner's comes first, then the oldest.
_BY_COOKIES = """
    SELECT p.secret_hash, u.id, u.username FROM proxy_sessions p JOIN sessions s ON s.id = p.session_id
        JOIN users u ON u.id = s.user_id JOIN workspaces w ON w.id = p.workspace_id
    WHERE p.secret_hash = ANY(%s) AND p.workspace_id = %s AND s.expires_at > %s AND u.disabled_at IS NULL
    ORDER BY u.id <> w.owner_user_id, p.created_at LIMIT 1
"""


async def by_cookies(
    tx: Transaction, secret_hashes: Sequence[bytes], workspace_id: str, now: datetime
) -> Holder | None:
    """Return a live workspace cookie for this workspace. Its owner's wins: a guest's may be planted."""
    row = await (await tx.execute(_BY_COOKIES, [list(secret_hashes), workspace_id, now])).fetchone()
    return None if row is None else Holder(bytes(row["secret_hash"]), row["id"], row["username"])


# Finds the user of a live API token.
_BY_BEARER = """
    SELECT u.id, u.username, t.workspace_id FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.secret_hash = %s AND (t.expires_at IS NULL OR t.expires_at > %s) AND u.disabled_at IS NULL
"""


async def by_token(tx: Transaction, secret_hash: bytes, now: datetime) -> Holder | None:
    row = await (await tx.execute(_BY_BEARER, [secret_hash, now])).fetchone()
    return None if row is None else Holder(secret_hash, row["id"], row["username"], row["workspace_id"])


# Finds those of the cookies, tokens and links that are still valid.
_STILL_LIVE = """
    SELECT p.secret_hash FROM proxy_sessions p JOIN sessions s ON s.id = p.session_id
        JOIN users u ON u.id = s.user_id JOIN workspaces w ON w.id = p.workspace_id
    WHERE p.secret_hash = ANY(%(hashes)s) AND s.expires_at > %(now)s AND u.disabled_at IS NULL AND w.deleted_at IS NULL
        AND (w.owner_user_id = u.id
            OR EXISTS (SELECT 1 FROM workspace_ports o WHERE o.workspace_id = w.id AND o.share <> 'owner'))
    UNION ALL
    SELECT t.secret_hash FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.secret_hash = ANY(%(hashes)s) AND (t.expires_at IS NULL OR t.expires_at > %(now)s)
        AND u.disabled_at IS NULL
    UNION ALL
    SELECT l.secret_hash FROM port_links l WHERE l.secret_hash = ANY(%(hashes)s) AND l.expires_at > %(now)s
"""


async def still_live(tx: Transaction, secret_hashes: Collection[bytes], now: datetime) -> set[bytes]:
    """Return those of the cookies and tokens that are still valid."""
    rows = await (await tx.execute(_STILL_LIVE, {"hashes": list(secret_hashes), "now": now})).fetchall()
    return {bytes(row["secret_hash"]) for row in rows}


# Adds a ticket.
_INSERT_TICKET = """
    INSERT INTO proxy_tickets (ticket_hash, nonce_hash, session_id, workspace_id, expires_at)
    VALUES (%s, %s, %s, %s, %s)
"""


async def insert_ticket(
    tx: Transaction,
    *,
    ticket_hash: bytes,
    nonce_hash: bytes,
    session_id: str,
    workspace_id: str,
    expires_at: datetime,
) -> None:
    await tx.execute(_INSERT_TICKET, [ticket_hash, nonce_hash, session_id, workspace_id, expires_at])


async def delete_expired_tickets(tx: Transaction, now: datetime) -> None:
    await tx.execute("DELETE FROM proxy_tickets WHERE expires_at < %s", [now])


async def take_ticket(tx: Transaction, ticket_hash: bytes, now: datetime) -> tuple[bytes, str, str] | None:
    """Consume a ticket and return its (nonce hash, session, workspace). It is removed no matter who presented it."""
    row = await (
        await tx.execute(
            "DELETE FROM proxy_tickets WHERE ticket_hash = %s RETURNING nonce_hash, session_id, workspace_id, expires_at",
            [ticket_hash],
        )
    ).fetchone()
    if row is None or row["expires_at"] < now:
        return None
    return bytes(row["nonce_hash"]), row["session_id"], row["workspace_id"]


# One session is one browser, which has one cookie of a workspace. Earlier ones may be on their way for a moment.
_COOKIES_KEPT = 20
# Ends the oldest cookies of a browser for a workspace.
_KEEP_NEWEST = """
    DELETE FROM proxy_sessions WHERE secret_hash IN (
        SELECT secret_hash FROM proxy_sessions WHERE session_id = %s AND workspace_id = %s
        ORDER BY created_at DESC, secret_hash OFFSET %s)
"""


async def insert_proxy_session(
    tx: Transaction, *, secret_hash: bytes, session_id: str, workspace_id: str, now: datetime
) -> None:
    """Add a workspace cookie. The oldest ones of the same browser and workspace end."""
    await tx.execute(
        "INSERT INTO proxy_sessions (secret_hash, session_id, workspace_id, created_at) VALUES (%s, %s, %s, %s)",
        [secret_hash, session_id, workspace_id, now],
    )
    await tx.execute(_KEEP_NEWEST, [session_id, workspace_id, _COOKIES_KEPT])


# Lists the workspaces of a user that count against the limit, oldest first.
_RUNNING_OF = """
    SELECT id, name FROM workspaces WHERE owner_user_id = %s AND desired_state = 'RUNNING'
        AND phase <> 'ERROR' AND deleted_at IS NULL ORDER BY created_at, id
"""


async def running_of(tx: Transaction, user_id: str) -> list[tuple[str, str]]:
    """Return (id, name) of the user's workspaces that count against the limit."""
    rows = await (await tx.execute(_RUNNING_OF, [user_id])).fetchall()
    return [(row["id"], row["name"]) for row in rows]
