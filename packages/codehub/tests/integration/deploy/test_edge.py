"""Caddy and nginx with the files of `deploy/`, in front of the real API and the proxy's real data path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from codehub.adapters.postgres.pool import Database
from codehub.ports.instances import Upstream
from testing.codehub.dashboard import ADMIN, PASSWORD, DashboardServer, Stage
from testing.codehub.edge import DASHBOARD_HOST, WORKSPACE_HOST, Edge, caddy, nginx
from testing.codehub.proxy import PREFIX, running_proxy

Runner = Callable[[Path, int, int], AbstractAsyncContextManager[Edge]]


class _ToEdge(httpx.AsyncHTTPTransport):
    """Both host names are the edge on this machine."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(verify=edge.trust)
        self._port = edge.port

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        here = request.url.copy_with(host="127.0.0.1", port=self._port)
        extensions = {**request.extensions, "sni_hostname": request.url.host}
        sent = httpx.Request(
            request.method, here, headers=request.headers, stream=request.stream, extensions=extensions
        )
        return await super().handle_async_request(sent)


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    "runner", [pytest.param(nginx, marks=pytest.mark.needs("nginx")), caddy], ids=["nginx", "caddy"]
)
async def test_dashboard_events_and_a_workspaces_websocket_pass_through_as_shipped(
    runner: Runner, database: Database, tmp_path: Path
) -> None:
    server = DashboardServer(
        database,
        environment={
            "CODEHUB_PUBLIC_BASE_URL": f"https://{DASHBOARD_HOST}",
            "CODEHUB_WORKSPACE_BASE_URL": f"https://{WORKSPACE_HOST}",
            "CODEHUB_TRUSTED_PROXIES": "127.0.0.1,::1",
        },
    )
    await server.start()
    try:
        async with serve(_echo, "127.0.0.1", 0) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            with running_proxy(Upstream("one", "127.0.0.1", port)) as proxy:
                async with runner(tmp_path, server.port, proxy.port) as edge:
                    await _dashboard_works(edge, Stage(database))
                    await _workspace_works(edge)
    finally:
        await server.stop()


async def _dashboard_works(edge: Edge, stage: Stage) -> None:
    base = f"https://{DASHBOARD_HOST}"
    async with httpx.AsyncClient(transport=_ToEdge(edge), base_url=base, timeout=90) as browser:
        # The API redirects whoever comes by another name: that it does not shows that the name arrives.
        page = await browser.get("/")
        assert (page.status_code, "CodeHub" in page.text) == (200, True)
        signed_in = await browser.post(
            "/api/v1/login", json={"username": ADMIN, "password": PASSWORD}, headers={"origin": base}
        )
        assert signed_in.status_code == 200, signed_in.text
        assert "__Host-session" in browser.cookies
        browser.headers["X-CodeHub-Session-Key"] = signed_in.json()["session_key"]
        sessions = (await browser.get("/api/v1/sessions")).json()["items"]
        assert [session["address"] for session in sessions] == ["127.0.0.1"]
        # An event arrives while the stream is open: nothing on the way waits for a buffer to fill.
        async with browser.stream("GET", "/api/v1/events") as events:
            lines = events.aiter_lines()
            async with asyncio.timeout(90):
                while (line := await anext(lines)) != "event: snapshot":
                    assert not line.startswith("event: workspace")
                workspace_id = await stage.add("through the edge")
                while not (line := await anext(lines)).startswith("data:") or workspace_id not in line:
                    pass


async def _workspace_works(edge: Edge) -> None:
    async with asyncio.timeout(90):
        async with connect(
            f"wss://{WORKSPACE_HOST}{PREFIX}/socket",
            host="127.0.0.1",
            port=edge.port,
            ssl=edge.trust,
            server_hostname=WORKSPACE_HOST,
            proxy=None,
        ) as socket:
            for message in ("hello", b"\x00\xff" * 40_000):
                await socket.send(message)
                assert await socket.recv() == message
