"""Statements on what users bring into their workspaces: git credentials, their git key, secrets and dotfiles.

Every change increments `users.setup_revision` in the same transaction, so that linked workspaces are sent the new state.
"""

from __future__ import annotations

import json
from datetime import datetime

from codehub.adapters.postgres.pool import Transaction
from codehub.domain.ssh_keys import parse_public_key
from codehub.domain.user_secrets import GitCredential, GitKey, SecretKind, UserSecret


async def changed(tx: Transaction, user_id: str) -> None:
    await tx.execute("UPDATE users SET setup_revision = setup_revision + 1 WHERE id = %s", [user_id])
    await tx.execute("SELECT pg_notify('user_setup', %s)", [json.dumps({"id": "", "owner": user_id})])


async def is_withheld(tx: Transaction, user_id: str) -> bool:
    """Return whether the user is disabled: their workspaces may run on, without what they brought in."""
    row = await (await tx.execute("SELECT disabled_at FROM users WHERE id = %s", [user_id])).fetchone()
    return row is None or row["disabled_at"] is not None


# --- git credentials


async def credentials(tx: Transaction, user_id: str) -> list[GitCredential]:
    rows = await (
        await tx.execute("SELECT * FROM git_credentials WHERE user_id = %s ORDER BY host, scheme", [user_id])
    ).fetchall()
    return [GitCredential(row["id"], row["scheme"], row["host"], row["username"], row["created_at"]) for row in rows]


# Stores a git credential, and replaces the one for the same host.
_PUT_CREDENTIAL = """
    INSERT INTO git_credentials (id, user_id, scheme, host, username, sealed, created_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (user_id, scheme, host) DO UPDATE
        SET id = excluded.id, username = excluded.username, sealed = excluded.sealed, created_at = excluded.created_at
"""


async def put_credential(tx: Transaction, user_id: str, credential: GitCredential, sealed: bytes) -> None:
    """Store a credential, replacing the one for the same host."""
    await tx.execute(
        _PUT_CREDENTIAL,
        [
            credential.id,
            user_id,
            credential.scheme,
            credential.host,
            credential.username,
            sealed,
            credential.created_at,
        ],
    )
    await changed(tx, user_id)


async def delete_credential(tx: Transaction, user_id: str, credential_id: str) -> bool:
    result = await tx.execute("DELETE FROM git_credentials WHERE id = %s AND user_id = %s", [credential_id, user_id])
    await changed(tx, user_id)
    return result.rowcount == 1


async def sealed_credential(tx: Transaction, user_id: str, scheme: str, host: str) -> tuple[str, bytes] | None:
    """Return (username, sealed token) for one host."""
    row = await (
        await tx.execute(
            "SELECT username, sealed FROM git_credentials WHERE user_id = %s AND scheme = %s AND host = %s",
            [user_id, scheme, host],
        )
    ).fetchone()
    return None if row is None else (row["username"], bytes(row["sealed"]))


# --- the git key


async def git_key(tx: Transaction, user_id: str) -> tuple[GitKey, bytes] | None:
    """Return the public key and the sealed private key."""
    row = await (await tx.execute("SELECT * FROM git_keys WHERE user_id = %s", [user_id])).fetchone()
    if row is None:
        return None
    fingerprint = parse_public_key(row["public_key"]).fingerprint
    return GitKey(row["public_key"], fingerprint, row["created_at"]), bytes(row["sealed"])


# Stores the user's git key, and replaces an earlier one.
_PUT_GIT_KEY = """
    INSERT INTO git_keys (user_id, public_key, sealed, created_at) VALUES (%s, %s, %s, %s)
    ON CONFLICT (user_id) DO UPDATE
        SET public_key = excluded.public_key, sealed = excluded.sealed, created_at = excluded.created_at
"""


async def put_git_key(tx: Transaction, user_id: str, public_key: str, sealed: bytes, now: datetime) -> None:
    await tx.execute(_PUT_GIT_KEY, [user_id, public_key, sealed, now])
    await changed(tx, user_id)


async def delete_git_key(tx: Transaction, user_id: str) -> bool:
    result = await tx.execute("DELETE FROM git_keys WHERE user_id = %s", [user_id])
    await changed(tx, user_id)
    return result.rowcount == 1


# --- secrets


async def secrets_of(tx: Transaction, user_id: str) -> list[UserSecret]:
    return [secret for secret, _ in await sealed_secrets(tx, user_id)]


async def sealed_secrets(tx: Transaction, user_id: str) -> list[tuple[UserSecret, bytes]]:
    rows = await (
        await tx.execute("SELECT * FROM user_secrets WHERE user_id = %s ORDER BY name", [user_id])
    ).fetchall()
    return [
        (UserSecret(row["name"], SecretKind(row["kind"]), row["bytes"], row["updated_at"]), bytes(row["sealed"]))
        for row in rows
    ]


# Stores a secret, and replaces the one of the same name.
_PUT_SEALED = """
    INSERT INTO user_secrets (user_id, name, kind, sealed, bytes, updated_at) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (user_id, name) DO UPDATE SET kind = excluded.kind, sealed = excluded.sealed,
        bytes = excluded.bytes, updated_at = excluded.updated_at
"""


async def put_secret(tx: Transaction, user_id: str, secret: UserSecret, sealed: bytes) -> None:
    await tx.execute(_PUT_SEALED, [user_id, secret.name, secret.kind.value, sealed, secret.bytes, secret.updated_at])
    await changed(tx, user_id)


async def delete_secret(tx: Transaction, user_id: str, name: str) -> bool:
    result = await tx.execute("DELETE FROM user_secrets WHERE user_id = %s AND name = %s", [user_id, name])
    await changed(tx, user_id)
    return result.rowcount == 1


# --- dotfiles


async def dotfiles(tx: Transaction, user_id: str) -> tuple[str, str]:
    row = await (await tx.execute("SELECT dotfiles_url, dotfiles_ref FROM users WHERE id = %s", [user_id])).fetchone()
    return ("", "") if row is None else (row["dotfiles_url"], row["dotfiles_ref"])


async def set_dotfiles(tx: Transaction, user_id: str, url: str, ref: str) -> None:
    await tx.execute("UPDATE users SET dotfiles_url = %s, dotfiles_ref = %s WHERE id = %s", [url, ref, user_id])
    await changed(tx, user_id)
