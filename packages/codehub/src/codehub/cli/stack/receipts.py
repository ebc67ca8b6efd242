"""Lists a workspace's archives for an API that may not read the store.

The archives contain all users' files and are readable only by root. `up` answers one query about them on a socket for the
API: a line with a workspace's id, answered with the receipts as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path

from codehub.adapters.embedded.account import Account, myself
from codehub.adapters.embedded.layout import readable_dir, socket_dir
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown, CodeHubError
from codehub.domain.ids import is_id
from codehub.ports.homes import ArchiveReceipt

_LINE_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 60.0
_LONGEST_LINE = 200


class ReceiptsView:
    """The API's side."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def receipts(self, workspace_id: str) -> Sequence[ArchiveReceipt]:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._place)
                with contextlib.closing(writer):
                    writer.write(f"{workspace_id}\n".encode())
                    answer = json.loads(await reader.read())
        except (OSError, TimeoutError, ValueError) as error:
            raise BackendDown(f"the archive store does not answer: {str(error) or type(error).__name__}") from error
        return [ArchiveReceipt(**each) for each in answer]


@contextlib.asynccontextmanager
async def receipts_view(archive_url: str, data_dir: Path, account: Account) -> AsyncIterator[Path | None]:
    """Serve the socket while this context is open. None for a store that the API accesses directly."""
    if not archive_url.startswith("file:"):
        yield None
        return
    archives = ObjectArchives(await asyncio.to_thread(Store, archive_url))
    place = readable_dir(socket_dir(data_dir, "receipts", myself()), account) / "receipts.sock"
    place.unlink(missing_ok=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, CodeHubError):
            async with asyncio.timeout(_LINE_TIMEOUT_S):
                workspace_id = (await reader.readline()).decode().strip()
            if is_id(workspace_id):
                found = await archives.receipts(workspace_id)
                writer.write(json.dumps([asdict(each) for each in found]).encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, path=place, limit=_LONGEST_LINE)
    try:
        os.chown(place, -1, account.gid, follow_symlinks=False)
        place.chmod(0o660)
        yield place
    finally:
        server.close()
        place.unlink(missing_ok=True)
