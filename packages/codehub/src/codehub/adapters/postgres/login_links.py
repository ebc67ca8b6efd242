"""Statements on `login_links`. Secrets are passed as hashes only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from codehub.adapters.postgres.pool import Transaction


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A link that can still be used, and the user it signs in."""

    user_id: str
    username: str
    is_admin: bool
    token_id: str | None
    token_expires_at: datetime | None
    workspace_id: str | None


async def count_of(tx: Transaction, user_id: str, now: datetime) -> int:
    """Remove expired links that were never opened, and count the user's other ones."""
    await tx.execute("DELETE FROM login_links WHERE expires_at <= %s", [now])
    row = await (await tx.execute("SELECT count(*) AS n FROM login_links WHERE user_id = %s", [user_id])).fetchone()
    assert row is not None
    return int(row["n"])


async def insert(
    tx: Transaction,
    secret_hash: bytes,
    *,
    user_id: str,
    token_id: str | None,
    workspace_id: str | None,
    expires_at: datetime,
) -> None:
    await tx.execute(
        "INSERT INTO login_links (secret_hash, user_id, token_id, workspace_id, expires_at) VALUES (%s, %s, %s, %s, %s)",
        [secret_hash, user_id, token_id, workspace_id, expires_at],
    )


# Finds a link that has not expired, of a user who is not disabled, and whose token still holds if it was created with one.
_PEEK = """
    SELECT l.user_id, l.token_id, l.workspace_id, u.username, u.is_admin,
        (SELECT t.expires_at FROM api_tokens t WHERE t.id = l.token_id) AS token_expires_at
    FROM login_links l JOIN users u ON u.id = l.user_id
    WHERE l.secret_hash = %(secret_hash)s AND l.expires_at > %(now)s AND u.disabled_at IS NULL
        AND (l.token_id IS NULL OR EXISTS (
            SELECT FROM api_tokens t WHERE t.id = l.token_id AND (t.expires_at IS NULL OR t.expires_at > %(now)s)))
"""
# Removes a link by the same rule. If two requests try at once, only one gets it, because the other no longer finds the row.
_TAKE = """
    DELETE FROM login_links l USING users u
    WHERE u.id = l.user_id
        AND l.secret_hash = %(secret_hash)s AND l.expires_at > %(now)s AND u.disabled_at IS NULL
        AND (l.token_id IS NULL OR EXISTS (
            SELECT FROM api_tokens t WHERE t.id = l.token_id AND (t.expires_at IS NULL OR t.expires_at > %(now)s)))
    RETURNING l.user_id, l.token_id, l.workspace_id, u.username, u.is_admin,
        (SELECT t.expires_at FROM api_tokens t WHERE t.id = l.token_id) AS token_expires_at
"""


async def peek(tx: Transaction, secret_hash: bytes, now: datetime) -> LoginLink | None:
    """Return the user that a link would sign in, without using the link."""
    return await _found(tx, _PEEK, secret_hash, now)


async def take(tx: Transaction, secret_hash: bytes, now: datetime) -> LoginLink | None:
    """Use up a link and return the user that it signs in."""
    return await _found(tx, _TAKE, secret_hash, now)


async def _found(tx: Transaction, statement: LiteralString, secret_hash: bytes, now: datetime) -> LoginLink | None:
    row = await (await tx.execute(statement, {"secret_hash": secret_hash, "now": now})).fetchone()
    return None if row is None else _link_of(row)


def _link_of(row: dict[str, Any]) -> LoginLink:
    return LoginLink(
        row["user_id"],
        row["username"],
        row["is_admin"],
        row["token_id"],
        row["token_expires_at"],
        row["workspace_id"],
    )
