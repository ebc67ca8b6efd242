"""What all kinds of homes share: an archive store, threads to copy on, and the archive of an empty home."""

from __future__ import annotations

from codehub.adapters.homes.work import Workers
from codehub.adapters.objectstore.layout import archive_key
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import Checkpoint, Job, upload_empty
from codehub.ports.fence import Fence, ignore_progress
from codehub.ports.homes import ArchiveReceipt, HomeKey


class StoredHomes:
    """Base class of homes. `at` names the points at which tests crash it."""

    def __init__(self, store: Store, workers: Workers | None, at: Checkpoint) -> None:
        self._store = store
        self._workers = workers or Workers()
        self._at = at

    async def archive_empty(self, home: HomeKey, op_id: str, fence: Fence) -> ArchiveReceipt:
        key = archive_key(home.workspace_id, op_id)
        return await self._workers.run(
            lambda cancelled: upload_empty(self._store, key, Job(ignore_progress, fence, cancelled, self._at))
        )
