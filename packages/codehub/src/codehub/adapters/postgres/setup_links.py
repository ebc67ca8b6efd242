"""Statements of the coordinator's setup links: which starts need a link, who owns them, and their progress."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.pool import Transaction
from codehub.adapters.postgres.rows import workspace_of
from codehub.domain.model import Workspace
from codehub.domain.setup import SetupState, setup_column
from codehub.ports.setup import Linkable

# Lists the workspaces that run or start and whose desired state is RUNNING.
_LINKABLE = """
    SELECT w.id, w.instance_backend, w.owner_user_id, w.setup_retry, u.setup_revision
    FROM workspaces w JOIN users u ON u.id = w.owner_user_id
    WHERE w.deleted_at IS NULL AND w.desired_state = 'RUNNING'
        AND (w.phase = 'RUNNING' OR w.operation = 'STARTING')
"""


async def linkable(tx: Transaction) -> list[Linkable]:
    """Return every workspace that runs or starts and whose desired state is RUNNING."""
    rows = await (await tx.execute(_LINKABLE)).fetchall()
    return [
        Linkable(
            row["id"], row["instance_backend"], row["owner_user_id"], (row["setup_revision"], row["setup_retry"])
        )
        for row in rows
    ]


# Binds a start to its owner. A start that was bound to another owner does not match.
_BIND = """
    UPDATE workspaces SET setup_instance = %(instance)s, setup_owner = %(owner)s
    WHERE id = %(id)s AND owner_user_id = %(owner)s
        AND (setup_instance IS DISTINCT FROM %(instance)s OR setup_owner = %(owner)s)
    RETURNING id
"""


async def bind(tx: Transaction, workspace_id: str, instance: str, owner_user_id: str) -> bool:
    """Return whether this start may receive this owner's secrets.

    The workspace must be theirs now, and must have been when it was first linked.
    """
    row = await (
        await tx.execute(_BIND, {"instance": instance, "owner": owner_user_id, "id": workspace_id})
    ).fetchone()
    return row is not None


# Checks that a start is bound to this owner and that the workspace is still theirs.
_IS_BOUND = """
    SELECT 1 FROM workspaces WHERE id = %s AND setup_instance = %s AND setup_owner = %s AND owner_user_id = %s
        AND deleted_at IS NULL
"""


async def is_bound(tx: Transaction, workspace_id: str, instance: str, owner_user_id: str) -> bool:
    row = await (await tx.execute(_IS_BOUND, [workspace_id, instance, owner_user_id, owner_user_id])).fetchone()
    return row is not None


async def workspace(tx: Transaction, workspace_id: str) -> Workspace | None:
    row = await (await tx.execute("SELECT * FROM workspaces WHERE id = %s", [workspace_id])).fetchone()
    return None if row is None else workspace_of(row)


async def note(tx: Transaction, workspace_id: str, state: SetupState) -> None:
    await tx.execute(
        "UPDATE workspaces SET setup = %(setup)s WHERE id = %(id)s AND setup IS DISTINCT FROM %(setup)s",
        {"setup": Jsonb(setup_column(state)), "id": workspace_id},
    )
