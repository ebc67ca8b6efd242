"""Statements on `users` and `login_failures`. Each one takes the transaction that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.accounts import User
from codehub.domain.audit import AuditKind


@dataclass(frozen=True, slots=True)
class Credentials:
    """The data that a login is checked against. It never leaves the accounts service."""

    user: User
    password_hash: str


def user_of(row: dict[str, Any]) -> User:
    return User(
        row["id"],
        row["username"],
        row["is_admin"],
        row["disabled_at"],
        row["created_at"],
        row.get("workspaces", 0),
    )


# Returns users by name, or one of them, with the number of their workspaces. LIMIT NULL means all.
_COUNTED = """
    SELECT u.*,
        (SELECT count(*) FROM workspaces w WHERE w.owner_user_id = u.id AND w.deleted_at IS NULL) AS workspaces
    FROM users u WHERE %(id)s::text IS NULL OR u.id = %(id)s
    ORDER BY u.username LIMIT %(limit)s OFFSET %(offset)s
"""


# Returns the name of a workspace's owner.
_OWNER_NAME = "SELECT u.username FROM workspaces w JOIN users u ON u.id = w.owner_user_id WHERE w.id = %s"


async def owner_name(tx: Transaction, workspace_id: str) -> str:
    """Return the name of a workspace's owner, empty if there is no such workspace."""
    row = await (await tx.execute(_OWNER_NAME, [workspace_id])).fetchone()
    return "" if row is None else str(row["username"])


async def credentials(tx: Transaction, username: str) -> Credentials | None:
    row = await (await tx.execute("SELECT * FROM users WHERE username = %s", [username])).fetchone()
    return None if row is None else Credentials(user_of(row), row["password_hash"])


async def locked_credentials(tx: Transaction, user_id: str) -> Credentials | None:
    """Return the current credentials, locked against changes until the transaction ends."""
    row = await (await tx.execute("SELECT * FROM users WHERE id = %s FOR UPDATE", [user_id])).fetchone()
    return None if row is None else Credentials(user_of(row), row["password_hash"])


async def credentials_by_id(tx: Transaction, user_id: str) -> Credentials | None:
    row = await (await tx.execute("SELECT * FROM users WHERE id = %s", [user_id])).fetchone()
    return None if row is None else Credentials(user_of(row), row["password_hash"])


async def page(tx: Transaction, limit: int, offset: int) -> tuple[list[User], int]:
    rows = await (await tx.execute(_COUNTED, {"id": None, "limit": limit, "offset": offset})).fetchall()
    return [user_of(row) for row in rows], await count(tx)


async def count(tx: Transaction) -> int:
    row = await (await tx.execute("SELECT count(*) AS n FROM users")).fetchone()
    assert row is not None
    return int(row["n"])


async def get(tx: Transaction, user_id: str) -> User | None:
    row = await (await tx.execute(_COUNTED, {"id": user_id, "limit": 1, "offset": 0})).fetchone()
    return None if row is None else user_of(row)


async def lock(tx: Transaction, user_id: str) -> bool:
    """Lock a user's row against removal and other lockers. Return False if there is none."""
    row = await (await tx.execute("SELECT 1 FROM users WHERE id = %s FOR UPDATE", [user_id])).fetchone()
    return row is not None


async def lock_all_admins(tx: Transaction) -> set[str]:
    """Return and lock the ids of the administrators who can sign in.

    The lock prevents two requests from removing the last two at once.
    """
    rows = await (
        await tx.execute("SELECT id FROM users WHERE is_admin AND disabled_at IS NULL ORDER BY id FOR NO KEY UPDATE")
    ).fetchall()
    return {row["id"] for row in rows}


# Adds a user, unless the name is taken.
_INSERT = """
    INSERT INTO users (id, username, password_hash, is_admin, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (username) DO NOTHING
"""


async def insert(
    tx: Transaction, *, user_id: str, username: str, password_hash: str, is_admin: bool, now: datetime
) -> bool:
    """Create a user. Return False if the name is taken."""
    result = await tx.execute(_INSERT, [user_id, username, password_hash, is_admin, now, now])
    return result.rowcount == 1


async def set_password(tx: Transaction, user_id: str, password_hash: str, now: datetime) -> None:
    await tx.execute(
        "UPDATE users SET password_hash = %s, updated_at = %s WHERE id = %s", [password_hash, now, user_id]
    )


# Sets both flags. The revision grows only if the user was disabled or enabled.
_SET_FLAGS = """
    UPDATE users SET is_admin = %(is_admin)s, disabled_at = %(disabled_at)s, updated_at = %(now)s,
        setup_revision = setup_revision + (disabled_at IS DISTINCT FROM %(disabled_at)s)::int
    WHERE id = %(id)s
"""


async def set_flags(
    tx: Transaction, user_id: str, *, is_admin: bool, disabled_at: datetime | None, now: datetime
) -> None:
    """Set both. Running workspaces of a user who is disabled or enabled are sent what they may have now."""
    await tx.execute(_SET_FLAGS, {"is_admin": is_admin, "disabled_at": disabled_at, "now": now, "id": user_id})


async def unpurged_workspaces(tx: Transaction, user_id: str) -> int:
    """Return the user's workspaces that still hold data: live ones, and deleted ones that can be undeleted."""
    row = await (
        await tx.execute(
            "SELECT count(*) AS n FROM workspaces WHERE owner_user_id = %s AND purged_at IS NULL", [user_id]
        )
    ).fetchone()
    assert row is not None
    return int(row["n"])


async def hand_over_tombstones(tx: Transaction, user_id: str, heir_id: str) -> None:
    """Give purged workspace rows to another user: the GC removes only archives that have a row."""
    await tx.execute(
        "UPDATE workspaces SET owner_user_id = %s WHERE owner_user_id = %s AND purged_at IS NOT NULL",
        [heir_id, user_id],
    )


async def delete(tx: Transaction, user_id: str) -> None:
    await tx.execute("DELETE FROM users WHERE id = %s", [user_id])


@dataclass(frozen=True, slots=True)
class Failures:
    count: int
    locked_until: datetime | None
    last_at: datetime


# Returns the row of a user and address, created if absent. The UPDATE without a change locks it.
_LOCK_FAILURES = """
    INSERT INTO login_failures AS f (username, address, failures, last_at) VALUES (%s, %s, 0, %s)
    ON CONFLICT (username, address) DO UPDATE SET failures = f.failures RETURNING *
"""


async def lock_failures(tx: Transaction, username: str, address: str, now: datetime) -> Failures:
    """Return the row of this user and address, created if absent and locked until the transaction ends."""
    row = await (await tx.execute(_LOCK_FAILURES, [username, address, now])).fetchone()
    assert row is not None
    return Failures(row["failures"], row["locked_until"], row["last_at"])


async def record_failure(
    tx: Transaction, username: str, address: str, *, count: int, locked_until: datetime | None, now: datetime
) -> None:
    await tx.execute(
        "UPDATE login_failures SET failures = %s, locked_until = %s, last_at = %s WHERE username = %s AND address = %s",
        [count, locked_until, now, username, address],
    )


async def forget_failures(tx: Transaction, username: str, address: str) -> None:
    await tx.execute("DELETE FROM login_failures WHERE username = %s AND address = %s", [username, address])


async def forget_old_failures(tx: Transaction, before: datetime) -> None:
    await tx.execute("DELETE FROM login_failures WHERE last_at < %s", [before])


async def forgive_one_failure(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    """Uncount an attempt that turned out to be correct. Failures of others stay counted."""
    for username, address in keys:
        await tx.execute(
            "UPDATE login_failures SET failures = greatest(failures - 1, 0) WHERE username = %s AND address = %s",
            [username, address],
        )


async def signed_in_from(tx: Transaction, username: str, address: str, since: datetime) -> bool:
    row = await (
        await tx.execute(
            "SELECT 1 FROM audit_events WHERE actor = %s AND event = %s AND address = %s AND at > %s LIMIT 1",
            [username, AuditKind.SIGN_IN, address, since],
        )
    ).fetchone()
    return row is not None
