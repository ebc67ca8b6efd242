"""ports.image_builds.DevImageStore on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection

from psycopg.types.json import Jsonb

from codehub.adapters.postgres.control_term import as_leader
from codehub.adapters.postgres.pool import Database
from codehub.domain.dev_image import DevImage, encode_dev_image

# Offers an image to the start that built it, while that start is still wanted.
_PUT_NEXT = """
    UPDATE workspaces SET dev_image_next = %(image)s
    WHERE id = %(id)s AND setup_instance = %(instance)s AND deleted_at IS NULL AND desired_state = 'RUNNING'
    RETURNING id
"""
_DROP = "UPDATE workspaces SET dev_image = NULL WHERE id = %(id)s AND dev_image ->> 'digest' = %(digest)s"
# Lists the images that workspaces use now or from their next start.
_USED = """
    SELECT dev_image ->> 'ref' AS ref FROM workspaces WHERE purged_at IS NULL AND dev_image IS NOT NULL
    UNION SELECT dev_image_next ->> 'ref' FROM workspaces WHERE purged_at IS NULL AND dev_image_next IS NOT NULL
"""


class PostgresDevImageStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put_next(self, epoch: int, workspace_id: str, instance: str, image: DevImage) -> bool:
        values = {"id": workspace_id, "instance": instance, "image": Jsonb(encode_dev_image(image))}
        async with as_leader(self._database, epoch) as tx:
            return await (await tx.execute(_PUT_NEXT, values)).fetchone() is not None

    async def drop(self, epoch: int, workspace_id: str, digest: str) -> None:
        async with as_leader(self._database, epoch) as tx:
            await tx.execute(_DROP, {"id": workspace_id, "digest": digest})

    async def used(self) -> Collection[str]:
        async with self._database.statement() as connection:
            rows = await (await connection.execute(_USED)).fetchall()
        return {row["ref"] for row in rows}
