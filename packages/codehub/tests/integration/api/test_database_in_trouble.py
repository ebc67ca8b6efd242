"""The API while its database takes no writes, holds what a newer version wrote, or surprises the live events."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.api.app import create_app
from codehub.domain.actions import Viewer
from codehub.domain.model import WorkspaceWithOwner
from codehub.domain.ttl import Span
from codehub.services.event_stream import Pace
from testing.codehub.api import Api, TestClock, api_deps, listening, running_api, until
from testing.codehub.services import service_dir
from testing.codehub.sse import EventStream

W = "/api/v1/workspaces"


async def test_a_read_only_database_makes_the_api_not_ready_until_it_accepts_writes_again(
    database_url: str, database: Database
) -> None:
    async with running_api(database) as api:
        ada = await api.user("ada")
        name = database_url.rpartition("/")[2].partition("?")[0]
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            async with Database(database_url) as read_only, another_api(read_only) as degraded:
                refused = await degraded.client().post("/api/v1/login", json={"username": "x", "password": "y"})
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), refused.text
                assert (await degraded.client().get("/health/ready")).status_code == 503
                signed_in = degraded.client()
                signed_in.headers.update(ada.headers)
                signed_in.cookies.update(ada.cookies)
                listed = await signed_in.get(W)
                assert (listed.status_code, listed.json()["items"]) == (200, []), "what is only read is still there"
                for refused in (
                    await signed_in.post(W, json={"name": "new"}),
                    await signed_in.post("/api/v1/tokens", json={"name": "new"}),
                ):
                    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), refused.text
                admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
                # The sessions that the pool opened meanwhile would stay read-only for as long as it keeps them.
                await until_ready(degraded)
                wrong = await degraded.client().post("/api/v1/login", json={"username": "x", "password": "y"})
                assert wrong.status_code == 401, wrong.text
        assert (await ada.get(W)).status_code == 200
        assert (await api.client().get("/health/ready")).status_code == 200


@asynccontextmanager
async def another_api(database: Database) -> AsyncIterator[Api]:
    """A second API on the same installation, without an administrator of its own: making one is a write."""
    deps = api_deps(database)
    api = Api(create_app(deps), deps, TestClock())
    try:
        yield api
    finally:
        await api.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 96 MB; as root, in a directory the servers' user can reach."""
    place = service_dir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=711", "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.needs("root")
async def test_a_full_database_disk_makes_the_api_not_ready_until_there_is_room(small_disk: Path) -> None:
    server = EmbeddedPostgres(small_disk, settings=("fsync=off", "max_wal_size=32MB", "min_wal_size=32MB"))
    server.start()
    try:
        await migrate(server.url())
        async with Database(server.url()) as database, running_api(database) as api:
            ada = await api.user("ada")
            assert (await ada.get("/health/ready")).status_code == 200
            # As much as the disk holds; what is there already stays usable.
            filler = small_disk / "filler"
            with filler.open("wb") as file:
                try:
                    while True:
                        file.write(bytes(65536))
                        file.flush()
                except OSError:
                    pass
            answers = set()
            for number in range(200):
                answer = await ada.post(W, json={"name": f"w{number}", "start": False, "memo": "m" * 8000})
                answers.add(answer.status_code)
                if answer.status_code != 201:
                    break
            assert answers <= {201, 503}, answers
            assert 503 in answers
            assert (await api.client().get("/health/ready")).status_code == 503
            filler.unlink()
            await until_ready(api)
            assert (await ada.post(W, json={"name": "again", "start": False})).status_code == 201
    finally:
        server.stop()


async def until_ready(api: Api) -> None:
    async with asyncio.timeout(90):
        while (await api.client().get("/health/ready")).status_code != 200:
            await asyncio.sleep(0.05)


async def test_what_a_newer_version_wrote_is_shown_and_left_to_it(database: Database, api: Api) -> None:
    ada = await api.user("ada")
    old = (await ada.post(W, json={"name": "old", "start": False})).json()
    new = (await ada.post(W, json={"name": "new", "start": False})).json()
    async with database.transaction() as tx:
        await tx.execute("ALTER TABLE workspaces DROP CONSTRAINT workspaces_phase_check")
        await tx.execute("ALTER TABLE workspaces DROP CONSTRAINT workspaces_operation_check")
        await tx.execute(
            "UPDATE workspaces SET phase = 'HIBERNATED', operation = 'MIGRATING', error_reason = 'SomethingNew'"
            " WHERE id = %s",
            [new["id"]],
        )
    listed = await ada.get(W)
    assert listed.status_code == 200, listed.text
    assert {item["name"] for item in listed.json()["items"]} == {"old", "new"}
    async with listening(api) as address:
        key = ada.headers["X-CodeHub-Session-Key"]
        headers = {"Cookie": f"session={ada.cookies['session']}", "X-CodeHub-Session-Key": key}
        async with await EventStream.open(f"{address}/api/v1/events", headers) as stream:
            assert {item["name"] for item in (await stream.next("snapshot"))["items"]} == {"old", "new"}
    refused = await ada.post(f"{W}/{new['id']}:start")
    assert (refused.status_code, "newer" in refused.text) == (409, True)
    assert (await ada.post(f"{W}/{old['id']}:start")).status_code == 202


async def test_live_events_begin_again_after_an_unforeseen_failure(database: Database) -> None:
    pace = Pace(tick_s=0.05, poll_s=0.1, retry_s=0.05, heartbeat_s=0.2, send_s=60)
    async with running_api(database, pace=pace) as api, listening(api) as address:
        ada = await api.user("ada")
        render = api.live._render
        failures = 0

        def broken_once(owned: WorkspaceWithOwner, viewer: Viewer, gaps: Sequence[Span]) -> str:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise RuntimeError("nobody thought of this")
            return render(owned, viewer, gaps)

        await ada.post(W, json={"name": "one", "start": False})
        api.live._render = broken_once
        key = ada.headers["X-CodeHub-Session-Key"]
        headers = {"Cookie": f"session={ada.cookies['session']}", "X-CodeHub-Session-Key": key}
        async with await EventStream.open(f"{address}/api/v1/events", headers) as stream:
            assert len((await stream.next("snapshot"))["items"]) == 1
            await ada.post(W, json={"name": "two", "start": False})
            assert (await stream.next("workspace_updated"))["name"] == "two"
        await until(lambda: api.live.failures == 1)
        assert "codehub_api_event_stream_failures 1.0" in (await api.client().get("/metrics")).text
