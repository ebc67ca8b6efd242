"""What ends and what goes on: revoked sign-ins, a database that is away, shutdowns, activity."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest
import pytest_asyncio
import websockets

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from testing.codehub.proxy_access import NAVIGATION, World, world
from testing.codehub.rawhttp import Peer

SWITCH = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n"


@pytest_asyncio.fixture
async def here(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


def websocket_echo(peer: Peer) -> None:
    """Completes one WebSocket handshake, or begins an event stream, and says nothing; other requests get 200."""
    while True:
        request = peer.read_message()
        if "/stream" in request.start:
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            peer.ended()
            return
        key = request.get("Sec-WebSocket-Key")
        if key is None:
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            continue
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        peer.send(SWITCH.format(base64.b64encode(digest).decode()))
        while peer.read_some():
            pass
        return


async def open_socket(here: World, workspace_id: str, browser: httpx.AsyncClient) -> websockets.ClientConnection:
    return await websockets.connect(
        f"ws://localhost:{here.port}/w/{workspace_id}/socket",
        host="127.0.0.1",
        port=here.port,
        origin=websockets.Origin(f"http://localhost:{here.port}"),
        additional_headers={"Cookie": f"codehub_ws={browser.cookies['codehub_ws']}"},
        compression=None,
        proxy=None,
        ping_interval=None,
    )


async def test_signing_out_ends_requests_streams_and_open_websockets(here: World) -> None:
    here.upstream.script = websocket_echo
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    socket = await open_socket(here, workspace_id, browser)
    assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
    async with asyncio.timeout(60), browser.stream("GET", f"/w/{workspace_id}/stream") as stream:
        events = stream.aiter_bytes()
        assert await anext(events) == b"data: 1\n\n"
        assert (await here.owner.post("/api/v1/logout")).status_code == 204
        await socket.wait_closed()
        with suppress(httpx.HTTPError):
            assert [event async for event in events] == []
        while (await browser.get(f"/w/{workspace_id}/x")).status_code != 401:
            await asyncio.sleep(0.1)


async def test_a_revoked_token_ends_what_it_opened(here: World) -> None:
    here.upstream.script = websocket_echo
    workspace_id = await here.workspace()
    token = await here.token()
    socket = await websockets.connect(
        f"ws://127.0.0.1:{here.port}/w/{workspace_id}/socket",
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        proxy=None,
        ping_interval=None,
    )
    async with here.database.transaction() as tx:
        await tx.execute("DELETE FROM api_tokens")
    async with asyncio.timeout(60):
        await socket.wait_closed()


async def test_activity_is_what_a_person_does_and_not_what_a_page_does_by_itself(here: World) -> None:
    here.upstream.script = websocket_echo
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    await browser.get(f"/w/{workspace_id}/poll/1")
    socket = await open_socket(here, workspace_id, browser)
    await socket.ping()
    keepalive = bytes([9]) + bytes(12)
    await socket.send(keepalive)
    await browser.get(f"/w/{workspace_id}/_codehub/status")
    await socket.close()
    await here.stop_proxy()
    assert workspace_id not in await here.activity.pending()


@pytest.mark.parametrize("work", ["request", "message"])
async def test_work_is_flushed_at_the_latest_by_a_shutdown(here: World, work: str) -> None:
    here.upstream.script = websocket_echo
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    if work == "request":
        await browser.get(f"/w/{workspace_id}/save")
    else:
        socket = await open_socket(here, workspace_id, browser)
        await socket.send(bytes([1]) + bytes(8) + (12).to_bytes(4, "big") + b"a key stroke")
        await socket.close()
    await here.stop_proxy()
    assert workspace_id in await here.activity.pending()


async def refused(port: int) -> None:
    """Until nobody listens any more."""
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.02)


async def test_a_shutdown_lets_a_request_finish_and_tells_websockets_1001(here: World) -> None:
    held = asyncio.Event()
    loop = asyncio.get_running_loop()
    released = asyncio.Event()

    def slow(peer: Peer) -> None:
        peer.read_message()
        loop.call_soon_threadsafe(held.set)
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(60)
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    here.upstream.script = websocket_echo
    workspace_id = await here.workspace()
    browser = await here.signed_in(workspace_id)
    socket = await open_socket(here, workspace_id, browser)
    here.upstream.script = slow
    request = asyncio.create_task(browser.get(f"/w/{workspace_id}/slow"))
    await held.wait()
    stopping = asyncio.create_task(here.stop_proxy())
    await refused(here.port)
    released.set()
    answer = await request
    assert (answer.status_code, answer.text, answer.headers["connection"]) == (200, "late", "close")
    async with asyncio.timeout(60):
        await socket.wait_closed()
        await stopping
    assert socket.close_code == 1001


async def test_one_of_two_replicas_leaves_without_a_failed_page_load(database: Database) -> None:
    """Both accept from one listening socket, as a service manager hands it over."""
    async with world(database) as here:
        workspace_id = await here.workspace()
        secret = (await here.signed_in(workspace_id)).cookies["codehub_ws"]
        leaving = here.proxy
        assert leaving is not None
        await here.start_proxy(here.listener.dup())
        left = asyncio.Event()
        leaving.add_done_callback(lambda _: left.set())
        loads = failed = 0

        async def load() -> None:
            nonlocal loads, failed
            while not left.is_set() or loads < 100:
                async with httpx.AsyncClient(headers={"Host": here.authority()}, timeout=60) as fresh:
                    answer = await fresh.get(
                        f"http://127.0.0.1:{here.port}/w/{workspace_id}/x", headers={"Cookie": f"codehub_ws={secret}"}
                    )
                loads += 1
                failed += answer.status_code != 200

        loading = asyncio.gather(*(load() for _ in range(8)))
        async with asyncio.timeout(60):
            while loads < 40:
                await asyncio.sleep(0.01)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        await loading
        assert failed == 0


async def test_without_the_database_those_inside_go_on_and_new_ones_get_503(
    postgres_server: EmbeddedPostgres,
) -> None:
    url = postgres_server.url("postgres")
    await migrate(url)
    async with Database(url, timeout_s=1.0) as database, world(database) as here:
        workspace_id = await here.workspace()
        browser = await here.signed_in(workspace_id)
        assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
        postgres_server.stop()
        for _ in range(3):
            assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
        stranger = here.browser(Cookie="codehub_ws=other")
        answer = await stranger.get(f"/w/{workspace_id}/x")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        page = await here.browser().get(f"/w/{workspace_id}/", headers=NAVIGATION)
        assert (page.status_code, "retries automatically" in page.text) == (503, True)
        await asyncio.sleep(2.5)  # past the remembered decision: the kept one carries on
        assert (await browser.get(f"/w/{workspace_id}/x")).status_code == 200
        postgres_server.start()
        async with asyncio.timeout(90):
            while (await stranger.get(f"/w/{workspace_id}/x")).status_code != 401:
                await asyncio.sleep(0.2)
