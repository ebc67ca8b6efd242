"""Health, metrics, and an instance's output through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from codehub.adapters.postgres.control_store import PostgresControlStore
from codehub.adapters.postgres.pool import Database
from codehub.api import context
from codehub.domain.errors import BackendDown
from codehub.ports.instances import ABSENT, Instances, InstanceStatus
from testing.codehub.api import Api, listening, running_api, until

W = "/api/v1/workspaces"


class Output:
    """The reading half of a backend: two lines of output, and, when followed, more as the test says it."""

    def __init__(self) -> None:
        self.more: asyncio.Queue[bytes] = asyncio.Queue()
        self.down = False
        self.followers = 0

    async def status(self, workspace_id: str) -> InstanceStatus:
        if self.down:
            raise BackendDown("no engine")
        return ABSENT

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        if self.down:
            raise BackendDown("no engine")
        return {"cpu_percent": 12.5, "memory_bytes": 1024.0}

    async def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        lines = [b"first\n", b"second \xff\n"]
        for line in lines if tail is None else lines[len(lines) - tail :]:
            yield line
        self.followers += 1
        try:
            while follow:
                yield await self.more.get()
        finally:
            self.followers -= 1


async def with_workspace(api: Api) -> tuple[httpx.AsyncClient, str]:
    ada = await api.user("ada")
    return ada, (await ada.post(W, json={"name": "x", "start": False})).json()["id"]


@pytest.mark.parametrize("change", [{"is_admin": False}, {"disabled": True}])
async def test_followed_logs_end_with_the_role_and_the_session(
    database: Database, monkeypatch: pytest.MonkeyPatch, change: dict[str, bool]
) -> None:
    monkeypatch.setattr(context, "CHECK_EVERY_S", 0.05)
    output = Output()
    async with running_api(database, instances={"process": cast(Instances, output)}) as api:
        _, ws = await with_workspace(api)
        admin, other = await api.signed_in(), await api.user("other", is_admin=True)
        other_id = (await other.get("/api/v1/session")).json()["user"]["id"]
        headers = {**other.headers, "Cookie": f"session={other.cookies['session']}"}
        async with (
            listening(api) as address,
            httpx.AsyncClient(base_url=address, headers=headers, trust_env=False, timeout=90) as client,
            client.stream("GET", f"{W}/{ws}/logs?follow=true") as answer,
        ):
            assert answer.status_code == 200
            await until(lambda: output.followers == 1)
            assert (await admin.patch(f"/api/v1/users/{other_id}", json=change)).status_code == 200
            await until(lambda: output.followers == 0)


async def test_logs_are_plain_text_and_follow_goes_on_until_the_client_leaves(database: Database) -> None:
    output = Output()
    async with running_api(database, instances={"process": cast(Instances, output)}) as api:
        ada, ws = await with_workspace(api)
        whole = await ada.get(f"{W}/{ws}/logs")
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.content == b"first\nsecond \xff\n"
        assert (await ada.get(f"{W}/{ws}/logs", params={"tail": 1})).content == b"second \xff\n"
        async with listening(api) as address:
            headers = {
                "Cookie": f"session={ada.cookies['session']}",
                "X-CodeHub-Session-Key": ada.headers["X-CodeHub-Session-Key"],
            }
            async with httpx.AsyncClient(base_url=address, headers=headers, timeout=90) as client:
                async with client.stream("GET", f"{W}/{ws}/logs?follow=true") as answer:
                    lines = answer.aiter_lines()
                    assert await anext(lines) == "first"
                    await anext(lines)
                    await output.more.put(b"third\n")
                    assert await anext(lines) == "third"
                    assert output.followers == 1
            await until(lambda: output.followers == 0)


async def test_followed_logs_end_when_the_process_leaves(database: Database) -> None:
    output = Output()
    async with running_api(database, instances={"process": cast(Instances, output)}) as api:
        ada, ws = await with_workspace(api)
        headers = {
            "Cookie": f"session={ada.cookies['session']}",
            "X-CodeHub-Session-Key": ada.headers["X-CodeHub-Session-Key"],
        }
        async with httpx.AsyncClient(headers=headers, timeout=90) as client:
            async with listening(api) as address:
                following = client.stream("GET", f"{address}{W}/{ws}/logs?follow=true")
                answer = await following.__aenter__()
                assert answer.status_code == 200
                await until(lambda: output.followers == 1)
            await until(lambda: output.followers == 0)
            await answer.aclose()


async def test_a_backend_that_is_away_is_502_and_so_is_one_this_process_does_not_have(database: Database) -> None:
    output = Output()
    async with running_api(database, instances={"process": cast(Instances, output)}) as api:
        ada, ws = await with_workspace(api)
        assert (await ada.get(f"{W}/{ws}/usage")).json() == {
            "cpu_percent": 12.5,
            "memory_bytes": 1024.0,
            "memory_limit_bytes": None,
        }
        output.down = True
        for path in ("logs", "usage"):
            answer = await ada.get(f"{W}/{ws}/{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "UPSTREAM_UNAVAILABLE")
    async with running_api(database) as api:
        ada = await api.signed_in("ada", "ada-ada")
        assert (await ada.get(f"{W}/{ws}/logs")).status_code == 502


async def test_health_and_metrics_need_no_session(api: Api) -> None:
    client = api.client()
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.get("/health/ready")).json() == {"status": "ok"}
    await client.get("/api/v1/session")
    metrics = await client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'codehub_api_requests_total{method="GET",route="/health",status="200"} 1.0' in metrics.text
    assert 'route="/api/v1/session",status="401"' in metrics.text


async def test_the_coordinators_health_is_what_the_lock_says_and_errors_are_for_administrators(
    api: Api, database: Database, database_url: str
) -> None:
    client, admin = api.client(), await api.signed_in()
    nobody = (await client.get("/health/coordinator")).json()
    assert (nobody["is_leader"], nobody["leader"], nobody["node_id"]) == (False, None, "test-node")
    tick = {"last_tick_at": "2026-11-16T00:00:00Z", "last_error": "with detail"}
    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE system_locks SET epoch = 7, holder_id = 'test-node', acquired_at = now(), components = %s",
            [Jsonb({"ttl": tick})],
        )
    assert (await client.get("/health/coordinator")).json()["leader"] is None, "recorded, but nobody holds the lock"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as leader:
        await leader.execute("SELECT pg_advisory_lock(12345)")
        led = (await client.get("/health/coordinator")).json()
        assert led["is_leader"] is True
        assert (led["leader"]["holder_id"], led["leader"]["epoch"]) == ("test-node", 7)
        assert led["components"] == {"ttl": {**tick, "last_error": None}}
        seen = (await admin.get("/health/coordinator")).json()
        assert seen["components"]["ttl"]["last_error"] == "with detail"
        assert seen["uptime_seconds"] >= 0


async def test_why_a_coordinator_refuses_to_lead_is_shown_to_administrators_while_it_lasts(
    api: Api, database: Database
) -> None:
    store, admin = PostgresControlStore(database), await api.signed_in()

    async def refusals(client: httpx.AsyncClient) -> object:
        return (await client.get("/health/coordinator")).json()["refuses_to_lead"]

    assert await refusals(admin) == []
    await store.note_refusal("b", "its homes are elsewhere")
    await store.note_refusal("a", "its archives are elsewhere")
    await store.note_refusal("b", "its archives are elsewhere too")
    assert await refusals(admin) == [
        {"node_id": "a", "reason": "its archives are elsewhere"},
        {"node_id": "b", "reason": "its archives are elsewhere too"},
    ]
    assert await refusals(api.client()) == [{"node_id": "a", "reason": None}, {"node_id": "b", "reason": None}]
    await store.note_refusal("a", "")
    async with database.transaction() as tx:  # a coordinator that is gone cannot take it back
        await tx.execute(
            "UPDATE system_facts SET value = jsonb_set(value, '{at}', to_jsonb(now() - interval '2 minutes'))"
            " WHERE name = 'refuses_to_lead.b'"
        )
    assert await refusals(admin) == []


async def test_about_says_what_the_installation_offers(api: Api) -> None:
    ada = await api.user("ada")
    about = (await ada.get("/api/v1/about")).json()
    assert [each["name"] for each in about["profiles"] if each["default"]] == ["code-server"]
    assert about["limits"] == {
        "max_running_per_user": 2,
        "max_running_global": 100,
        "max_workspaces_per_user": 0,
    }
    assert (about["ttl_standby_seconds"], about["deleted_retention_seconds"]) == (600, 86_400)
    assert (await api.client().get("/api/v1/about")).status_code == 401
