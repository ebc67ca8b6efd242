"""`GET /events` on a real listener: what comes, to whom, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.adapters.redis.bus import RedisBus
from codehub.adapters.redis.client import connect
from codehub.services.event_stream import Pace
from testing.codehub.api import Api, listening, new_name, put_in_state, running_api, until
from testing.codehub.sse import EventStream

W = "/api/v1/workspaces"
# Polls never: what arrives, arrived by a hint. Heartbeats at once, sessions looked at at once.
HINTS_ONLY = Pace(tick_s=0.05, poll_s=10_000, retry_s=0.5, probe_s=10_000, heartbeat_s=0.2, send_s=60)


def cookie(client: httpx.AsyncClient) -> dict[str, str]:
    key = client.headers["X-CodeHub-Session-Key"]
    return {"Cookie": f"session={client.cookies['session']}", "X-CodeHub-Session-Key": key}


@asynccontextmanager
async def live_api(database: Database, redis_url: str, pace: Pace = HINTS_ONLY) -> AsyncIterator[tuple[Api, str]]:
    """The API on a listener, hearing hints."""
    client = connect(redis_url)
    try:
        async with running_api(database, RedisBus(client), pace=pace) as api, listening(api) as address:
            await until(lambda: api.live.connected)
            yield api, address
    finally:
        await client.aclose()


async def hint(api: Api, ws: dict[str, Any]) -> None:
    """What the EventListener publishes when a row has changed."""
    await api.deps.bus.publish(f"codehub:sse:{ws['owner']}", json.dumps({"id": ws["id"]}))


async def made(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(W, json={"name": new_name(), "start": False, **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_stream_begins_with_everything_then_tells_changes_and_deletions(
    database: Database, redis_url: str
) -> None:
    async with live_api(database, redis_url) as (api, address):
        ada = await api.user("ada")
        ws = await made(ada)
        async with await EventStream.open(f"{address}/api/v1/events", cookie(ada)) as stream:
            assert await stream.event() == ("snapshot", {"items": [ws]})
            assert await stream.next("heartbeat") == {}
            changed = (await ada.patch(f"{W}/{ws['id']}", json={"name": "two"})).json()
            await hint(api, ws)
            assert await stream.next("workspace_updated") == changed
            new = await made(ada, name="three")
            await hint(api, new)
            assert await stream.next("workspace_updated") == new
            await put_in_state(database, ws["id"], deleted_at="2026-11-01", desired_state="DELETED")
            await hint(api, ws)
            assert await stream.next("workspace_deleted") == {"id": ws["id"]}


async def test_a_stream_of_everybodys_ends_with_the_role_of_an_administrator(
    database: Database, redis_url: str
) -> None:
    async with live_api(database, redis_url) as (api, address):
        admin, other = await api.signed_in(), await api.user("other", is_admin=True)
        other_id = (await other.get("/api/v1/session")).json()["user"]["id"]
        async with await EventStream.open(f"{address}/api/v1/events?all=true", cookie(other)) as stream:
            assert await stream.next("snapshot") == {"items": []}
            assert (await admin.patch(f"/api/v1/users/{other_id}", json={"is_admin": False})).status_code == 200
            async with asyncio.timeout(90):
                while await stream.event() is not None:
                    pass
        assert (await other.get(W)).status_code == 200, "the session goes on"


async def test_one_sees_ones_own_and_an_administrator_who_asks_sees_all(database: Database, redis_url: str) -> None:
    async with live_api(database, redis_url) as (api, address):
        ada, bob, admin = await api.user("ada"), await api.user("bob"), await api.signed_in()
        refused = httpx.AsyncClient(base_url=address, headers=cookie(bob))
        async with refused:
            assert (await refused.get("/api/v1/events", params={"all": "true"})).status_code == 403
            assert (await refused.get("/api/v1/events", headers={"cookie": ""})).status_code == 401
        async with (
            await EventStream.open(f"{address}/api/v1/events", cookie(bob)) as bobs,
            await EventStream.open(f"{address}/api/v1/events", cookie(admin)) as own,
            await EventStream.open(f"{address}/api/v1/events?all=true", cookie(admin)) as everybodys,
        ):
            for stream in (bobs, own, everybodys):
                assert await stream.next("snapshot") == {"items": []}
            adas, bobs_own = await made(ada), await made(bob, name="bob's")
            await hint(api, adas)
            await hint(api, bobs_own)
            seen = [(await everybodys.next("workspace_updated"))["owner"] for _ in range(2)]
            assert sorted(seen) == ["ada", "bob"]
            assert (await bobs.next("workspace_updated"))["owner"] == "bob"
            name, _ = await own.event() or ("", None)
            assert name == "heartbeat"


@pytest.mark.parametrize("ending", ["logout", "expiry", "disabled", "password", "token"])
async def test_a_stream_ends_when_its_session_does(database: Database, redis_url: str, ending: str) -> None:
    async with live_api(database, redis_url) as (api, address):
        ada, admin = await api.user("ada"), await api.signed_in()
        headers = cookie(ada)
        minted = (await ada.post("/api/v1/tokens", json={"name": "t"})).json()
        if ending == "token":
            headers = {"Authorization": f"Bearer {minted['token']}"}
        async with await EventStream.open(f"{address}/api/v1/events", headers) as stream:
            await stream.next("snapshot")
            if ending == "logout":
                await ada.post("/api/v1/logout")
            elif ending == "expiry":
                api.clock.forward(hours=25)
            elif ending == "token":
                await ada.delete(f"/api/v1/tokens/{minted['id']}")
            elif ending == "password":
                other = await api.signed_in("ada", "ada-ada")
                body = {"current_password": "ada-ada", "new_password": "another one"}
                assert (await other.post("/api/v1/password", json=body)).status_code == 204
            else:
                async with database.transaction() as tx:
                    await tx.execute("UPDATE users SET disabled_at = now() WHERE username = 'ada'")
            await stream.end()
        await until(lambda: api.live.open_streams == 0)
        assert (await admin.get("/health")).status_code == 200


async def test_streams_hold_no_database_connection(database: Database, redis_url: str) -> None:
    async with live_api(database, redis_url) as (api, address):
        ada = await api.user("ada")
        ws = await made(ada)
        streams = [await EventStream.open(f"{address}/api/v1/events", cookie(ada)) for _ in range(60)]
        try:
            for stream in streams:
                await stream.next("snapshot")
            await ada.patch(f"{W}/{ws['id']}", json={"memo": "to all"})
            await hint(api, ws)
            for stream in streams:
                assert (await stream.next("workspace_updated"))["memo"] == "to all"
            async with database.transaction() as tx:
                row = await (
                    await tx.execute(
                        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
                        " AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()"
                    )
                ).fetchone()
            assert row is not None
            assert row["n"] <= 5
        finally:
            for stream in streams:
                await stream.close()


async def test_a_client_that_reads_nothing_is_dropped_without_harm_to_others(
    database: Database, redis_url: str
) -> None:
    pace = Pace(tick_s=5, poll_s=10_000, retry_s=0.5, probe_s=10_000, heartbeat_s=30, send_s=5)
    client = connect(redis_url)
    try:
        async with running_api(database, RedisBus(client), pace=pace) as api:
            async with listening(api, send_buffer=4_096) as address:
                await until(lambda: api.live.connected)
                ada = await api.user("ada")
                big = [await made(ada, name=f"n{number}", memo="m" * 65_000) for number in range(5)]
                deaf = await EventStream.open(f"{address}/api/v1/events", cookie(ada), receive_buffer=4_096)
                async with await EventStream.open(f"{address}/api/v1/events", cookie(ada)) as good:
                    assert len((await good.next("snapshot"))["items"]) == 5
                    number = 0
                    async with asyncio.timeout(90):
                        while api.live.open_streams > 1:
                            number += 1
                            await ada.patch(f"{W}/{big[0]['id']}", json={"description": str(number)})
                            await hint(api, big[0])
                            assert (await good.next("workspace_updated"))["description"] == str(number)
                await deaf.close()
            metrics = (await ada.get("/metrics")).text
            assert "codehub_api_event_streams_dropped_total 1.0" in metrics
            assert "codehub_api_event_streams 0.0" in metrics
    finally:
        await client.aclose()


async def test_without_the_bus_changes_come_by_polling_and_with_it_again_by_hints(
    database: Database, valkey_server: EmbeddedValkey
) -> None:
    pace = Pace(tick_s=0.1, poll_s=10_000, retry_s=0.2, probe_s=0.2, heartbeat_s=0.5, send_s=60)
    async with live_api(database, valkey_server.url, pace) as (api, address):
        ada = await api.user("ada")
        ws = await made(ada)
        async with await EventStream.open(f"{address}/api/v1/events", cookie(ada)) as stream:
            await stream.next("snapshot")
            valkey_server.stop()
            await until(lambda: not api.live.connected)
            await ada.patch(f"{W}/{ws['id']}", json={"name": "while away"})
            assert (await stream.next("workspace_updated"))["name"] == "while away"
            valkey_server.start()
            await until(lambda: api.live.connected)
            await ada.patch(f"{W}/{ws['id']}", json={"name": "back"})
            await hint(api, ws)
            while (await stream.next("workspace_updated"))["name"] != "back":
                pass


async def test_a_stream_outlives_a_restart_of_the_database(postgres_server: EmbeddedPostgres, redis_url: str) -> None:
    await migrate(postgres_server.url("postgres"))
    pace = Pace(tick_s=0.2, poll_s=0.2, retry_s=0.2, probe_s=10_000, heartbeat_s=0.5, send_s=60)
    async with Database(postgres_server.url("postgres"), timeout_s=4.0) as database:
        async with live_api(database, redis_url, pace) as (api, address):
            admin = await api.signed_in()
            ws = await made(admin)
            async with await EventStream.open(f"{address}/api/v1/events", cookie(admin)) as stream:
                await stream.next("snapshot")
                postgres_server.stop()
                away = await admin.get(W)
                assert (away.status_code, away.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
                assert int(away.headers["retry-after"]) > 0
                assert (await admin.get("/health/ready")).status_code == 503
                assert (await admin.get("/health")).status_code == 200
                assert await stream.next("heartbeat") == {}
                postgres_server.start()
                async with asyncio.timeout(90):
                    while (await admin.get("/health/ready")).status_code != 200:
                        await asyncio.sleep(0.05)
                async with asyncio.timeout(90):
                    while (await admin.patch(f"{W}/{ws['id']}", json={"name": "after"})).status_code != 200:
                        await asyncio.sleep(0.05)
                while (await stream.next("workspace_updated"))["name"] != "after":
                    pass


async def test_leaving_ends_every_stream(database: Database, redis_url: str) -> None:
    client = connect(redis_url)
    try:
        async with running_api(database, RedisBus(client)) as api:
            ada = await api.user("ada")
            async with listening(api) as address:
                stream = await EventStream.open(f"{address}/api/v1/events", cookie(ada))
                await stream.next("snapshot")
            await stream.end()
            await stream.close()
    finally:
        await client.aclose()
