"""Statements that write the columns of the workspace service.

These are desired_state, last_access_at, keep_awake_until, name, description, memo, the reset of an error on recovery, and
the clearing of deleted_at on undelete (INV-3). The API, the proxy's wake and other callers that may request a state use
them; nothing else writes these columns.

Lock order, everywhere: the user's row, then RUNNING_LIMIT, then the template's row, then the workspace's row. Several users
or workspaces are locked in the order of their ids. Two requests can therefore never wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from codehub.adapters.postgres import locks
from codehub.adapters.postgres.pool import Transaction
from codehub.adapters.postgres.rows import repo_column, workspace_of
from codehub.domain.applied_template import encode
from codehub.domain.dev_image import encode_dev_image
from codehub.domain.limits import RunningLimits, check_running_limits
from codehub.domain.model import DesiredState, Workspace, WorkspaceWithOwner
from codehub.domain.repository import RepositorySource

# Returns workspaces by id, deleted or not, with what is shown of their owner and archive.
_BY_ID = """
    SELECT w.*, w.xmin::text AS version, u.username,
        CASE WHEN u.disabled_at IS NULL THEN u.time_zone END AS schedule_zone,
        (SELECT a.bytes FROM workspace_archives a WHERE a.archive_key = w.archive_key LIMIT 1) AS archive_bytes
    FROM workspaces w JOIN users u ON u.id = w.owner_user_id
    WHERE w.id = ANY(%s)
"""
# The same for one page, newest first: of one owner or of all (NULL), live ones or those that can still be undeleted.
# PostgreSQL plans it for the values that it gets, so a NULL does not cost the index. LIMIT NULL means all.
_PAGE = """
    SELECT w.*, w.xmin::text AS version, u.username,
        CASE WHEN u.disabled_at IS NULL THEN u.time_zone END AS schedule_zone,
        (SELECT a.bytes FROM workspace_archives a WHERE a.archive_key = w.archive_key LIMIT 1) AS archive_bytes
    FROM workspaces w JOIN users u ON u.id = w.owner_user_id
    WHERE (%(owner)s::text IS NULL OR w.owner_user_id = %(owner)s)
        AND CASE WHEN %(deleted)s THEN w.deleted_at IS NOT NULL AND w.purged_at IS NULL ELSE w.deleted_at IS NULL END
    ORDER BY w.created_at DESC, w.id DESC LIMIT %(limit)s OFFSET %(offset)s
"""
# Counts what the pages show in all.
_COUNT = """
    SELECT count(*) AS n FROM workspaces w
    WHERE (%(owner)s::text IS NULL OR w.owner_user_id = %(owner)s)
        AND CASE WHEN %(deleted)s THEN w.deleted_at IS NOT NULL AND w.purged_at IS NULL ELSE w.deleted_at IS NULL END
"""
# Returns the version of each live workspace of these owners, or of all (NULL).
_VERSIONS = """
    SELECT id, owner_user_id, xmin::text AS version FROM workspaces
    WHERE (%(owners)s::text[] IS NULL OR owner_user_id = ANY(%(owners)s)) AND deleted_at IS NULL
"""


def _with_owner(row: Mapping[str, Any]) -> WorkspaceWithOwner:
    return WorkspaceWithOwner(
        workspace_of(row), row["username"], row["version"], row["archive_bytes"], row["schedule_zone"]
    )


async def get(tx: Transaction, workspace_id: str) -> WorkspaceWithOwner | None:
    """Return a workspace, deleted or not. The service decides whether it may be seen."""
    row = await (await tx.execute(_BY_ID, [[workspace_id]])).fetchone()
    return None if row is None else _with_owner(row)


async def lock(tx: Transaction, workspace_id: str) -> Workspace | None:
    """Return the current row, locked until the transaction ends."""
    row = await (
        await tx.execute("SELECT * FROM workspaces WHERE id = %s FOR NO KEY UPDATE", [workspace_id])
    ).fetchone()
    return None if row is None else workspace_of(row)


async def many(tx: Transaction, ids: Collection[str]) -> dict[str, WorkspaceWithOwner]:
    rows = await (await tx.execute(_BY_ID, [list(ids)])).fetchall()
    return {row["id"]: _with_owner(row) for row in rows}


async def page(
    tx: Transaction, owner_user_id: str | None, limit: int, offset: int, *, deleted: bool = False
) -> tuple[list[WorkspaceWithOwner], int]:
    """Return the workspaces of one owner or of all, newest first. `deleted`: those that can still be undeleted instead."""
    arguments = {"owner": owner_user_id, "deleted": deleted, "limit": limit, "offset": offset}
    rows = await (await tx.execute(_PAGE, arguments)).fetchall()
    counted = await (await tx.execute(_COUNT, arguments)).fetchone()
    assert counted is not None
    return [_with_owner(row) for row in rows], int(counted["n"])


async def all_of(tx: Transaction, owner_user_id: str | None) -> list[WorkspaceWithOwner]:
    """Return every live workspace of one owner, or of all."""
    arguments = {"owner": owner_user_id, "deleted": False, "limit": None, "offset": 0}
    rows = await (await tx.execute(_PAGE, arguments)).fetchall()
    return [_with_owner(row) for row in rows]


async def versions(tx: Transaction, owner_user_ids: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """Return id → (owner, version) of every live workspace of these owners, or of all: enough to detect changes."""
    owners = None if owner_user_ids is None else list(owner_user_ids)
    rows = await (await tx.execute(_VERSIONS, {"owners": owners})).fetchall()
    return {row["id"]: (row["owner_user_id"], row["version"]) for row in rows}


# Adds a workspace.
_INSERT = """
    INSERT INTO workspaces (id, owner_user_id, name, description, memo, image_ref, instance_backend,
        storage_backend, home_store_key, desired_state, archive_key, last_access_at, phase_changed_at, created_at,
        updated_at, repo, template, template_latest, copy_of, dev_image, dev_image_auto)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


async def insert(tx: Transaction, workspace: Workspace) -> None:
    """Insert a row.

    Columns that the controller owns keep their defaults, except the archive that the workspace is created from.
    """
    await tx.execute(
        _INSERT,
        [
            workspace.id,
            workspace.owner_user_id,
            workspace.name,
            workspace.description,
            workspace.memo,
            workspace.image_ref,
            workspace.instance_backend,
            workspace.storage_backend,
            workspace.home_store_key,
            workspace.desired_state.value,
            workspace.archive_key,
            workspace.last_access_at,
            workspace.phase_changed_at,
            workspace.created_at,
            workspace.updated_at,
            None if workspace.repo is None else Jsonb(repo_column(workspace.repo)),
            None if workspace.template is None else Jsonb(encode(workspace.template)),
            workspace.template_latest,
            workspace.copy_of,
            None if workspace.dev_image is None else Jsonb(encode_dev_image(workspace.dev_image)),
            workspace.dev_image_auto,
        ],
    )


# Lists the other names in use by an owner.
_NAMES_OF = """
    SELECT name, id FROM workspaces WHERE owner_user_id = %s AND id <> %s AND deleted_at IS NULL
        AND desired_state <> 'DELETED'
"""


async def names_of(tx: Transaction, owner_user_id: str, *, but: str) -> dict[str, str]:
    """Return name → id of the owner's live workspaces except one. A name is free again once its deletion is requested.

    Lock the owner's row first: then no concurrent request takes the same name.
    """
    rows = await (await tx.execute(_NAMES_OF, [owner_user_id, but])).fetchall()
    return {row["name"]: row["id"] for row in rows}


async def count_of(tx: Transaction, owner_user_id: str) -> int:
    """Count the owner's workspaces that are not deleted. Lock the owner's row first, as for `names_of`."""
    row = await (
        await tx.execute(
            "SELECT count(*) AS n FROM workspaces WHERE owner_user_id = %s AND deleted_at IS NULL", [owner_user_id]
        )
    ).fetchone()
    assert row is not None
    return int(row["n"])


async def retry_setup(tx: Transaction, workspace_id: str, now: datetime) -> None:
    """Request that the running start retries its failed steps."""
    await tx.execute(
        "UPDATE workspaces SET setup_retry = setup_retry + 1, updated_at = %s WHERE id = %s", [now, workspace_id]
    )


async def set_repo(tx: Transaction, workspace_id: str, repo: RepositorySource) -> None:
    await tx.execute("UPDATE workspaces SET repo = %s WHERE id = %s", [Jsonb(repo_column(repo)), workspace_id])


# Counts the other workspaces that run or will run, of the user and of all.
_COUNT_RUNNING = """
    SELECT count(*) FILTER (WHERE owner_user_id = %s) AS mine, count(*) AS everybody FROM workspaces
    WHERE desired_state = 'RUNNING' AND phase <> 'ERROR' AND deleted_at IS NULL AND id <> %s
"""


async def take_running_slot(tx: Transaction, user_id: str, workspace_id: str, limits: RunningLimits) -> None:
    """Raise LimitExceeded unless one more of this user's workspaces may run.

    Holds the user's row and RUNNING_LIMIT until the transaction that sets desired_state to RUNNING ends, so that concurrent
    requests are counted one after another. Call it before the workspace's row is locked.
    """
    await tx.execute("SELECT 1 FROM users WHERE id = %s FOR NO KEY UPDATE", [user_id])
    await tx.execute("SELECT pg_advisory_xact_lock(%s)", [locks.RUNNING_LIMIT])
    row = await (await tx.execute(_COUNT_RUNNING, [user_id, workspace_id])).fetchone()
    assert row is not None
    check_running_limits(limits, others_of_user=row["mine"], others_in_all=row["everybody"])


# Sets desired_state. RUNNING counts as an access; recovery clears the error.
_SET_DESIRED_STATE = """
    UPDATE workspaces SET desired_state = %(desired)s, updated_at = %(now)s,
        last_access_at = CASE WHEN %(desired)s = 'RUNNING' THEN greatest(last_access_at, %(now)s)
            ELSE last_access_at END,
        error_reason = CASE WHEN %(recover)s THEN NULL ELSE error_reason END,
        error_count = CASE WHEN %(recover)s THEN 0 ELSE error_count END,
        error_message = CASE WHEN %(recover)s THEN NULL ELSE error_message END,
        retry_at = CASE WHEN %(recover)s THEN NULL ELSE retry_at END
    WHERE id = %(id)s
"""


async def set_desired_state(
    tx: Transaction, workspace_id: str, desired: DesiredState, now: datetime, *, recover: bool = False
) -> None:
    """Set desired_state. RUNNING counts as an access, so that a workspace that was just woken does not go to sleep."""
    await tx.execute(
        _SET_DESIRED_STATE, {"desired": desired.value, "now": now, "recover": recover, "id": workspace_id}
    )


async def cancel(tx: Transaction, workspace_id: str, desired: DesiredState, now: datetime) -> None:
    """Cancel the operation in progress in a locked row, if any, and request this state instead."""
    await tx.execute(
        "UPDATE workspaces SET desired_state = %s, cancel_op_started_at = op_started_at, updated_at = %s WHERE id = %s",
        [desired.value, now, workspace_id],
    )


async def touch(tx: Transaction, workspace_id: str, now: datetime) -> None:
    """Record an access now."""
    await tx.execute(
        "UPDATE workspaces SET last_access_at = greatest(last_access_at, %s) WHERE id = %s", [now, workspace_id]
    )


async def keep_awake(tx: Transaction, workspace_id: str, until: datetime | None, now: datetime) -> None:
    await tx.execute(
        "UPDATE workspaces SET keep_awake_until = %s, updated_at = %s WHERE id = %s", [until, now, workspace_id]
    )


async def edit(tx: Transaction, workspace_id: str, *, name: str, description: str, memo: str, now: datetime) -> None:
    await tx.execute(
        "UPDATE workspaces SET name = %s, description = %s, memo = %s, updated_at = %s WHERE id = %s",
        [name, description, memo, now, workspace_id],
    )


# Clears the error and its retries.
_RESET_ERROR = """
    UPDATE workspaces SET error_reason = NULL, error_message = NULL, error_count = 0, retry_at = NULL,
        updated_at = %s
    WHERE id = %s
"""


async def reset_error(tx: Transaction, workspace_id: str, now: datetime) -> None:
    await tx.execute(_RESET_ERROR, [now, workspace_id])


# Continues from an archive after data loss, and keeps a complete volume. Only in ERROR and without an operation.
_RECOVER_FROM_ARCHIVE = """
    UPDATE workspaces SET archive_key = %(key)s, error_reason = NULL, error_message = NULL, error_count = 0,
        retry_at = NULL, copy_of = CASE WHEN %(key)s::text IS NULL THEN NULL ELSE copy_of END,
        home_ctx = CASE WHEN conditions -> 'storage.volume_ready' ->> 'status' = 'True' THEN home_ctx END,
        updated_at = %(now)s
    WHERE id = %(id)s AND phase = 'ERROR' AND operation = 'NONE'
"""


async def recover_from_archive(tx: Transaction, workspace_id: str, archive_key: str | None, now: datetime) -> None:
    """After data loss, continue from this archive or from an empty home. An existing complete volume is kept.

    With an empty home it is no longer a copy: it would be copied again, from whatever its original contains by then.
    Apart from recovery, only the controller writes archive_key and home_ctx. Here the workspace is in ERROR, so no
    operation is in progress that could read them (docs/adr/0053).
    """
    await tx.execute(_RECOVER_FROM_ARCHIVE, {"key": archive_key, "now": now, "id": workspace_id})


async def rename(tx: Transaction, workspace_id: str, name: str) -> None:
    await tx.execute("UPDATE workspaces SET name = %s WHERE id = %s", [name, workspace_id])


async def transfer(tx: Transaction, workspace_id: str, owner_user_id: str, now: datetime) -> None:
    """Change the owner. The home keeps its location, because its key was fixed at creation."""
    await tx.execute(
        "UPDATE workspaces SET owner_user_id = %s, updated_at = %s WHERE id = %s", [owner_user_id, now, workspace_id]
    )
    # Ends the access of the previous owner and of those whom they let in. They could also read the host key.
    await tx.execute("DELETE FROM proxy_sessions WHERE workspace_id = %s", [workspace_id])
    await tx.execute("DELETE FROM proxy_tickets WHERE workspace_id = %s", [workspace_id])
    await tx.execute("DELETE FROM workspace_ports WHERE workspace_id = %s", [workspace_id])
    await tx.execute("DELETE FROM port_links WHERE workspace_id = %s", [workspace_id])
    await tx.execute("DELETE FROM workspace_host_keys WHERE workspace_id = %s", [workspace_id])


# Undeletes a workspace that was not purged: it continues from its archive.
_UNDELETE = """
    UPDATE workspaces SET deleted_at = NULL, desired_state = 'ARCHIVED', error_reason = NULL, error_message = NULL,
        error_count = 0, retry_at = NULL, updated_at = %s
    WHERE id = %s AND deleted_at IS NOT NULL AND purged_at IS NULL
"""


async def undelete(tx: Transaction, workspace_id: str, now: datetime) -> None:
    """Undelete a locked row that was not purged."""
    await tx.execute(_UNDELETE, [now, workspace_id])
