"""The API's listener beside a `workspaced` that its workspace replaced, and beside clients that read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from websockets.asyncio.client import connect

from codehub.adapters import workspaced_client
from codehub.adapters.postgres.pool import Database
from codehub.api import context, forwarding, terminals
from codehub.api.context import Context
from codehub.ports.instances import Instances, InstanceStatus, Upstream
from codehub.services import doors, event_stream
from testing.codehub.api import Api, listening, new_name, put_in_state, running_api, until

W = "/api/v1/workspaces"
OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: codehub-stream\r\n\r\n"
CHUNK = b"10000\r\n" + bytes(0x10000) + b"\r\n"
SCREEN = b"O" + (0x10000).to_bytes(4, "big") + bytes(0x10000)


@dataclass
class Helper:
    """Answers every request with `first`, then with `rest` for as long as it is read. Stands in for the backend too."""

    first: bytes
    rest: bytes
    path: str = ""
    open: int = 0
    begun: int = 0
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def status(self, workspace_id: str) -> InstanceStatus:
        found = Upstream("one", socket_path=self.path, secret=("Authorization", "Bearer x"), uid=os.getuid())
        return InstanceStatus(True, True, "one", workspaced=found)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")  # a connection without a request only looks who listens
            self.open += 1
            self.begun += 1
            try:
                writer.write(self.first)
                while self.rest:
                    writer.write(self.rest)
                    await writer.drain()
                await self.let_go.wait()
            finally:
                self.open -= 1
        writer.close()


@dataclass
class Running:
    api: Api
    address: str
    path: str
    token: dict[str, str]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.address, headers=self.token, timeout=60, trust_env=False)


@contextlib.asynccontextmanager
async def running(database: Database, helper: Helper, place: Path) -> AsyncIterator[Running]:
    helper.path = str(place / "helper.sock")
    instances = {"process": cast(Instances, helper)}
    async with (
        await asyncio.start_unix_server(helper.serve, helper.path),
        running_api(database, instances=instances) as api,
        listening(api, send_buffer=4096) as address,
    ):
        ada = await api.user("ada")
        made = (await ada.post(W, json={"name": new_name()})).json()
        await put_in_state(database, made["id"], phase="RUNNING", operation="NONE")
        token = (await ada.post("/api/v1/tokens", json={"name": "t"})).json()["token"]
        yield Running(api, address, f"{W}/{made['id']}", {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("target", ["processes/0/output?follow=1", "files/large"])
async def test_a_client_that_reads_nothing_of_an_answer_is_disconnected(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(forwarding, "SEND_TIMEOUT_S", 0.5)
    helper = Helper(OK, CHUNK)
    async with asyncio.timeout(120), running(database, helper, tmp_path) as there:
        port = int(there.address.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        lines = [f"GET {there.path}/{target} HTTP/1.1", "Host: 127.0.0.1:8000", *map(": ".join, there.token.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await until(lambda: helper.begun == 1)
        await until(lambda: helper.open == 0)
        writer.transport.abort()


async def test_a_viewer_of_a_terminal_that_reads_nothing_is_disconnected(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "SEND_TIMEOUT_S", 0.5)
    helper = Helper(SWITCHED, SCREEN)
    async with asyncio.timeout(120), running(database, helper, tmp_path) as there:
        url = there.address.replace("http", "ws") + there.path + "/terminals/1/attach"
        async with connect(url, additional_headers=there.token, max_queue=1, ping_interval=None) as viewer:
            await until(lambda: helper.begun == 1)
            await until(lambda: helper.open == 0)
            viewer.transport.abort()


async def test_empty_messages_of_a_terminal_are_read_slowly(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, received = 100, 0
    monkeypatch.setattr(workspaced_client, "_SMALL_PARTS_PER_S", rate)
    helper = Helper(SWITCHED, b"O\0\0\0\0" * 10_000)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(120), running(database, helper, tmp_path) as there:
        url = there.address.replace("http", "ws") + there.path + "/terminals/1/attach"
        async with connect(url, additional_headers=there.token) as viewer:
            begun = loop.time()
            while received < rate:
                await viewer.recv()
                received += 1
            received += len(cast(Any, viewer).recv_messages.frames)
            # However slow this machine is: no more than the rate allows, and what one may begin with.
            assert received <= rate * (loop.time() - begun + 2 * workspaced_client._BURST_S) + 1


async def test_a_followed_answer_ends_with_its_token(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CHECK_EVERY_S", 0.05)
    helper = Helper(OK, CHUNK)
    async with asyncio.timeout(120), running(database, helper, tmp_path) as there, there.client() as client:
        async with client.stream("GET", f"{there.path}/processes/0/output?follow=1") as answer:
            assert answer.status_code == 200
            token_id = (await client.get("/api/v1/tokens")).json()["items"][0]["id"]
            assert (await client.delete(f"/api/v1/tokens/{token_id}")).status_code == 204
            with pytest.raises(httpx.RemoteProtocolError):
                async for _ in answer.aiter_raw():
                    pass
        await until(lambda: helper.open == 0)


async def test_requests_to_one_workspace_are_limited_in_number(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_AT_ONCE", 3)
    helper = Helper(b"", b"")
    async with asyncio.timeout(120), running(database, helper, tmp_path) as there, there.client() as client:
        waiting = [asyncio.create_task(client.get(there.path + "/processes")) for _ in range(3)]
        await until(lambda: helper.begun == 3)
        refused = await client.get(there.path + "/processes")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "TOO_MANY_REQUESTS"
        helper.let_go.set()  # the helper hangs up
        for answer in await asyncio.gather(*waiting):
            assert answer.status_code == 502
        assert cast(Context, there.api.app.state.context).doors.under_way == {}


async def test_event_streams_of_one_user_are_limited_in_number(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MOST_STREAMS", 2)
    async with asyncio.timeout(120), running(database, Helper(b"", b""), tmp_path) as there, there.client() as client:
        other = await there.api.user("bob")
        bob = (await other.post("/api/v1/tokens", json={"name": "t"})).json()["token"]
        async with client.stream("GET", "/api/v1/events"), client.stream("GET", "/api/v1/events"):
            assert (await client.get("/api/v1/events")).status_code == 429
            async with client.stream("GET", "/api/v1/events", headers={"Authorization": f"Bearer {bob}"}) as theirs:
                assert theirs.status_code == 200, "others are not affected"
        await until(lambda: there.api.live.open_streams == 0)
        async with client.stream("GET", "/api/v1/events", headers={"Last-Event-ID": "x" * 5000}) as again:
            assert again.status_code == 200
