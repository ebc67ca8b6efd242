"""Statements on `sessions` and `api_tokens`. Secrets are passed as hashes only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.accounts import Bearer, Session, Token

# How stale `last_seen_at` and `last_used_at` may be: not every request should cost a write.
_SEEN_EVERY = timedelta(minutes=1)


def _session_of(row: dict[str, Any]) -> Session:
    return Session(
        row["id"],
        row["user_id"],
        row["created_at"],
        row["expires_at"],
        row["last_seen_at"],
        row["address"],
        row["user_agent"],
    )


def _token_of(row: dict[str, Any]) -> Token:
    return Token(
        row["id"],
        row["user_id"],
        row["name"],
        row["created_at"],
        row["expires_at"],
        row["last_used_at"],
        row["workspace_id"],
    )


# Adds a session.
_INSERT_SESSION = """
    INSERT INTO sessions (id, user_id, secret_hash, created_at, expires_at, last_seen_at, address, user_agent,
        token_id, key_hash)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


async def insert_session(
    tx: Transaction, session: Session, secret_hash: bytes, key_hash: bytes, *, token_id: str | None = None
) -> None:
    await tx.execute(
        _INSERT_SESSION,
        [
            session.id,
            session.user_id,
            secret_hash,
            session.created_at,
            session.expires_at,
            session.last_seen_at,
            session.address,
            session.user_agent,
            token_id,
            key_hash,
        ],
    )


# Ends the oldest sessions beyond a number: of those that a password began, or of those that one token began.
_KEEP_NEWEST = """
    DELETE FROM sessions WHERE id IN (
        SELECT id FROM sessions WHERE user_id = %s AND token_id IS NOT DISTINCT FROM %s
        ORDER BY created_at DESC, id DESC OFFSET %s)
"""


async def keep_newest(tx: Transaction, user_id: str, token_id: str | None, most: int) -> None:
    await tx.execute(_KEEP_NEWEST, [user_id, token_id, most])


# Finds the live session of one of these cookies, with its user and the workspace that its token is limited to.
_LIVE_SESSION = """
    SELECT s.id, s.user_id, s.expires_at, s.last_seen_at AS used_at, s.token_id, u.username, u.is_admin,
        t.workspace_id
    FROM sessions s JOIN users u ON u.id = s.user_id LEFT JOIN api_tokens t ON t.id = s.token_id
    WHERE s.secret_hash = ANY(%s) AND s.key_hash = %s AND s.expires_at > %s AND u.disabled_at IS NULL
"""


async def by_session_secrets(
    tx: Transaction, secret_hashes: Sequence[bytes], key_hash: bytes, now: datetime
) -> Bearer | None:
    """Return the live session of one of these cookies and its key. Updates `last_seen_at` at most once a minute."""
    row = await (await tx.execute(_LIVE_SESSION, [list(secret_hashes), key_hash, now])).fetchone()
    if row is not None and row["used_at"] < now - _SEEN_EVERY:
        await tx.execute("UPDATE sessions SET last_seen_at = %s WHERE id = %s", [now, row["id"]])
    return None if row is None else _bearer_of(row)


# Finds the users of live sessions by their cookies alone.
_USERS_OF_COOKIES = """
    SELECT DISTINCT u.id, u.username FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.secret_hash = ANY(%s) AND s.key_hash IS NOT NULL AND s.expires_at > %s AND u.disabled_at IS NULL
"""


async def users_of_cookies(tx: Transaction, secret_hashes: Sequence[bytes], now: datetime) -> list[tuple[str, str]]:
    """Return each (id, user name) that cookies alone point to.

    Good enough to show who is signed in, but not to grant access.
    """
    rows = await (await tx.execute(_USERS_OF_COOKIES, [list(secret_hashes), now])).fetchall()
    return [(row["id"], row["username"]) for row in rows]


# Finds a live API token and its user.
_LIVE_BEARER = """
    SELECT t.id, t.user_id, t.expires_at, t.last_used_at AS used_at, t.id AS token_id, u.username, u.is_admin,
        t.workspace_id
    FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.secret_hash = %s AND (t.expires_at IS NULL OR t.expires_at > %s) AND u.disabled_at IS NULL
"""


async def by_token_secret(tx: Transaction, secret_hash: bytes, now: datetime) -> Bearer | None:
    """Return the live API token behind a header. Updates `last_used_at` at most once a minute."""
    row = await (await tx.execute(_LIVE_BEARER, [secret_hash, now])).fetchone()
    if row is not None and (row["used_at"] is None or row["used_at"] < now - _SEEN_EVERY):
        await tx.execute("UPDATE api_tokens SET last_used_at = %s WHERE id = %s", [now, row["id"]])
    return None if row is None else _bearer_of(row)


def _bearer_of(row: dict[str, Any]) -> Bearer:
    return Bearer(
        row["id"],
        row["user_id"],
        row["username"],
        row["is_admin"],
        row["expires_at"],
        row["token_id"],
        row["workspace_id"],
    )


# Finds those of the sessions and tokens that may still be used.
_STILL_LIVE = """
    SELECT s.id, u.is_admin FROM sessions s JOIN users u ON u.id = s.user_id
    WHERE s.id = ANY(%(ids)s) AND s.expires_at > %(now)s AND u.disabled_at IS NULL
    UNION ALL
    SELECT t.id, u.is_admin FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.id = ANY(%(ids)s) AND (t.expires_at IS NULL OR t.expires_at > %(now)s) AND u.disabled_at IS NULL
"""


async def still_live(tx: Transaction, ids: Collection[str], now: datetime) -> dict[str, bool]:
    """Return those of the sessions and tokens that may still be used, and whether their user is an administrator."""
    rows = await (await tx.execute(_STILL_LIVE, {"ids": list(ids), "now": now})).fetchall()
    return {row["id"]: row["is_admin"] for row in rows}


# Lists one page of a user's live sessions, newest first, with the number of all.
_SESSIONS_OF = """
    SELECT *, count(*) OVER () AS total FROM sessions WHERE user_id = %s AND expires_at > %s
    ORDER BY created_at DESC, id LIMIT %s OFFSET %s
"""


async def sessions_of(
    tx: Transaction, user_id: str, now: datetime, limit: int, offset: int
) -> tuple[list[Session], int]:
    rows = await (await tx.execute(_SESSIONS_OF, [user_id, now, limit, offset])).fetchall()
    total = rows[0]["total"] if rows else await _count_sessions(tx, user_id, now)
    return [_session_of(row) for row in rows], int(total)


async def _count_sessions(tx: Transaction, user_id: str, now: datetime) -> int:
    row = await (
        await tx.execute("SELECT count(*) AS n FROM sessions WHERE user_id = %s AND expires_at > %s", [user_id, now])
    ).fetchone()
    assert row is not None
    return int(row["n"])


async def delete_session(tx: Transaction, session_id: str, user_id: str) -> bool:
    result = await tx.execute("DELETE FROM sessions WHERE id = %s AND user_id = %s", [session_id, user_id])
    await _delete_links_of_sessions(tx, user_id)
    return result.rowcount == 1


async def delete_sessions_of(tx: Transaction, user_id: str, *, but: str | None) -> list[str]:
    """End all sessions of a user except one, and return those that ended."""
    rows = await (
        await tx.execute(
            "DELETE FROM sessions WHERE user_id = %s AND id IS DISTINCT FROM %s RETURNING id", [user_id, but]
        )
    ).fetchall()
    await _delete_links_of_sessions(tx, user_id)
    return [row["id"] for row in rows]


async def _delete_links_of_sessions(tx: Transaction, user_id: str) -> None:
    """Revoke sign-in links that sessions made: a session that was ended must not come back by one. Tokens' go with them."""
    await tx.execute("DELETE FROM login_links WHERE user_id = %s AND token_id IS NULL", [user_id])


async def delete_tokens_of(tx: Transaction, user_id: str) -> list[str]:
    """Revoke all API tokens of a user, and return those that were revoked."""
    rows = await (await tx.execute("DELETE FROM api_tokens WHERE user_id = %s RETURNING id", [user_id])).fetchall()
    return [row["id"] for row in rows]


async def delete_expired(tx: Transaction, now: datetime) -> None:
    await tx.execute("DELETE FROM sessions WHERE expires_at <= %s", [now])


# Adds an API token.
_INSERT_BEARER = """
    INSERT INTO api_tokens (id, user_id, name, secret_hash, created_at, expires_at, workspace_id)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""


async def insert_token(tx: Transaction, token: Token, secret_hash: bytes) -> None:
    await tx.execute(
        _INSERT_BEARER,
        [
            token.id,
            token.user_id,
            token.name,
            secret_hash,
            token.created_at,
            token.expires_at,
            token.workspace_id,
        ],
    )


async def tokens_of(tx: Transaction, user_id: str, limit: int, offset: int) -> tuple[list[Token], int]:
    rows = await (
        await tx.execute(
            "SELECT * FROM api_tokens WHERE user_id = %s ORDER BY created_at DESC, id LIMIT %s OFFSET %s",
            [user_id, limit, offset],
        )
    ).fetchall()
    counted = await (
        await tx.execute("SELECT count(*) AS n FROM api_tokens WHERE user_id = %s", [user_id])
    ).fetchone()
    assert counted is not None
    return [_token_of(row) for row in rows], int(counted["n"])


async def delete_token(tx: Transaction, token_id: str, user_id: str) -> bool:
    result = await tx.execute("DELETE FROM api_tokens WHERE id = %s AND user_id = %s", [token_id, user_id])
    return result.rowcount == 1
