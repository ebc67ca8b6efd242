"""Duplicating a workspace: asked over the API, done by a coordinator on real PostgreSQL, with files on a real disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.control_gc import PostgresGcStore
from codehub.adapters.postgres.pool import Database
from codehub.domain.gc import is_protected
from codehub.domain.model import ErrorReason, HomeCtx, Operation, Phase, Workspace
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey
from testing.codehub.api import Api, put_in_state, running_api
from testing.codehub.coordinators import MemoryParts, leading, row_of, until
from testing.codehub.homes import local_world

W = "/api/v1/workspaces"


class Stand:
    """A CodeHub with homes and archives in directories; its IDEs are the only thing in memory."""

    def __init__(self, database: Database, api: Api, ada: httpx.AsyncClient, homes: LocalDirHomes) -> None:
        self.database, self.api, self.ada, self.homes = database, api, ada, homes

    async def create(self, name: str, **body: Any) -> str:
        answer = await self.ada.post(W, json={"name": name, **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def reaches(self, workspace_id: str, phase: Phase) -> Workspace:
        async def there() -> bool:
            row = await row_of(self.database, workspace_id)
            return row.phase is phase and row.operation is Operation.NONE

        await until(there, f"it becomes {phase}")
        return await row_of(self.database, workspace_id)

    async def files(self, workspace_id: str) -> Path:
        row = await row_of(self.database, workspace_id)
        return Path(self.homes.mount(HomeKey(row.id, row.home_store_key)).source)

    async def ask(self, workspace_id: str, verb: str, phase: Phase) -> Workspace:
        answer = await self.ada.post(f"{W}/{workspace_id}:{verb}")
        assert answer.status_code == 202, answer.text
        return await self.reaches(workspace_id, phase)

    async def duplicate(self, workspace_id: str, name: str, **body: Any) -> str:
        answer = await self.ada.post(f"{W}/{workspace_id}:duplicate", json={"name": name, **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@asynccontextmanager
async def stand(database: Database, tmp_path: Path) -> AsyncIterator[Stand]:
    store = Store(f"file://{tmp_path}/archives")
    world, parts = local_world(tmp_path, store), MemoryParts()
    parts.homes, parts.archives = cast(Any, world.homes), cast(Any, world.archives)
    try:
        async with running_api(database) as api, leading(database, parts):
            yield Stand(database, api, await api.user("ada"), world.homes)
    finally:
        store.close()


async def test_a_stopped_home_is_copied_and_the_original_stays_as_it_is(database: Database, tmp_path: Path) -> None:
    async with stand(database, tmp_path) as here:
        original = await here.create("api")
        await here.reaches(original, Phase.RUNNING)
        refused = await here.ada.post(f"{W}/{original}:duplicate", json={"name": "copy"})
        assert refused.status_code == 409
        assert "you cannot duplicate it now" in refused.json()["error"]["message"]
        (await here.files(original) / "notes").write_text("mine")
        before = await here.ask(original, "stop", Phase.STANDBY)

        copy = await here.duplicate(original, "copy")
        await here.reaches(copy, Phase.RUNNING)
        assert (await here.files(copy) / "notes").read_text() == "mine"
        (await here.files(copy) / "notes").write_text("the copy's")
        assert (await here.files(original) / "notes").read_text() == "mine"
        after = await row_of(database, original)
        assert (after.home_ctx, after.phase, after.archive_key) == (
            before.home_ctx,
            Phase.STANDBY,
            before.archive_key,
        )


async def test_an_archived_one_is_copied_from_its_archive_which_outlives_the_original(
    database: Database, tmp_path: Path
) -> None:
    async with stand(database, tmp_path) as here:
        original = await here.create("api")
        await here.reaches(original, Phase.RUNNING)
        (await here.files(original) / "notes").write_text("mine")
        archived = await here.ask(original, "archive", Phase.ARCHIVED)
        copy = await here.duplicate(original, "copy", start=False)
        again = await here.reaches(copy, Phase.ARCHIVED)
        assert again.archive_key == archived.archive_key, "nothing is copied until it is needed"

        await put_in_state(database, original, deleted_at=here.api.clock(), purged_at=here.api.clock())
        claim = (await PostgresGcStore(database).claims([original], 2))[original]
        assert archived.archive_op_id is not None
        assert is_protected(claim, archived.archive_op_id), "the copy begins from it"
        await here.ask(copy, "start", Phase.RUNNING)
        assert (await here.files(copy) / "notes").read_text() == "mine"
        await put_in_state(database, copy, purged_at=here.api.clock(), deleted_at=here.api.clock())
        claim = (await PostgresGcStore(database).claims([original], 2))[original]
        assert not is_protected(claim, archived.archive_op_id), "nobody needs it any more"


async def test_a_copy_whose_original_was_started_meanwhile_says_so_and_can_be_tried_again(
    database: Database, tmp_path: Path
) -> None:
    async with stand(database, tmp_path) as here:
        original = await here.create("api")
        await here.reaches(original, Phase.RUNNING)
        (await here.files(original) / "notes").write_text("mine")
        await here.ask(original, "stop", Phase.STANDBY)
        # What the race looks like to the coordinator: a copy whose original runs.
        async with here.api.deps.database.transaction() as tx:
            await tx.execute("UPDATE workspaces SET desired_state = 'RUNNING' WHERE id = %s", [original])
        await here.reaches(original, Phase.RUNNING)
        copy = await here.create("copy", start=False)
        # Its row is changed only at rest: the operation that creates its empty archive would overwrite the change.
        await here.reaches(copy, Phase.ARCHIVED)
        await put_in_state(
            database, copy, copy_of=original, archive_key=None, phase="PENDING", desired_state="RUNNING"
        )
        failed = await here.reaches(copy, Phase.ERROR)
        assert failed.error_reason is ErrorReason.ACTION_FAILED
        assert "stop it first" in str(failed.error_message)
        await here.ask(original, "stop", Phase.STANDBY)
        await here.ask(copy, "start", Phase.RUNNING)
        assert (await here.files(copy) / "notes").read_text() == "mine"


async def test_a_copy_whose_original_is_archived_meanwhile_is_made_from_that_archive(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stand(database, tmp_path) as here:
        original = await here.create("api")
        await here.reaches(original, Phase.RUNNING)
        (await here.files(original) / "notes").write_text("mine")
        await here.ask(original, "stop", Phase.STANDBY)
        archive, archived = here.homes.archive, asyncio.Event()

        async def archive_after_the_original(
            home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence
        ) -> ArchiveReceipt:
            if "." in op_id and not archived.is_set():  # only the copy's op id has a stamp
                await here.ask(original, "archive", Phase.ARCHIVED)
                archived.set()
            return await archive(home, ctx, op_id, report, fence)

        monkeypatch.setattr(here.homes, "archive", archive_after_the_original)
        copy = await here.duplicate(original, "copy")
        await here.reaches(copy, Phase.RUNNING)
        assert archived.is_set(), "the original's volume was removed before the copy read it"
        assert (await here.files(copy) / "notes").read_text() == "mine"


async def test_another_persons_workspace_cannot_be_duplicated(database: Database, tmp_path: Path) -> None:
    async with running_api(database) as api:
        ada, eve = await api.user("ada"), await api.user("eve")
        made = (await ada.post(W, json={"name": "secret", "start": False})).json()
        refused = await eve.post(f"{W}/{made['id']}:duplicate", json={"name": "mine"})
        assert refused.status_code == 403
        assert (await eve.get(W)).json()["total"] == 0
