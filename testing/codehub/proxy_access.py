"""The complete proxy in the test's loop: real database, real API for the hand-over, a scripted instance behind it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import httpx

from codehub.adapters.postgres.pool import Database
from codehub.api.server import serve_api
from codehub.domain.errors import BackendDown
from codehub.domain.profiles import AppProfile, Catalog, Runs
from codehub.ports.instances import Instances, Upstream
from codehub.proxy.run import ProxyDeps, listen, run_proxy
from codehub.settings import Settings
from testing.codehub.api import ADMIN, Api, new_name, put_in_state, running_api
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.rawhttp import ScriptedUpstream, scripted_upstream

PROFILE = AppProfile("code-server", command=("x", "{port}"), background_traffic=("GET /poll*", "ws:vscode-keepalive"))
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}


@dataclass
class Placed:
    """Where instances answer: the part of `Instances` that the proxy uses."""

    upstreams: dict[str, Upstream] = field(default_factory=dict)
    down: bool = False
    hung: asyncio.Event | None = None  # accepts every request and answers none until this is set
    runs: Runs = Runs.COMMAND

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        if self.hung is not None:
            await self.hung.wait()
        if self.down:
            raise BackendDown("the backend is away")
        return self.upstreams.get(workspace_id)


@dataclass
class World:
    api: Api
    database: Database
    upstream: ScriptedUpstream
    placed: Placed
    activity: MemoryActivity
    settings: Settings
    port: int
    owner: httpx.AsyncClient
    _clients: list[httpx.AsyncClient] = field(default_factory=list)
    proxy: asyncio.Task[None] | None = None
    deps: ProxyDeps | None = None
    listener: socket.socket = field(default_factory=socket.socket)

    async def start_proxy(self, listener: socket.socket | None = None) -> None:
        """Start the proxy again at the same address."""
        assert self.deps is not None
        ready = asyncio.Event()
        place = listener or listen(f"127.0.0.1:{self.port}")
        self.proxy = asyncio.create_task(
            run_proxy(self.settings, self.deps, sockets=[place], ready=ready.set, grace_s=2.0)
        )
        async with asyncio.timeout(60):
            await ready.wait()

    def authority(self, workspace_id: str = "") -> str:
        suffix = self.settings.workspace_host[1:]
        return f"{workspace_id}{suffix}:{self.port}" if suffix else f"localhost:{self.port}"

    def browser(self, workspace_id: str = "", **headers: str) -> httpx.AsyncClient:
        """Return a browser-like client of the proxy that keeps cookies and follows no redirects."""
        made = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Host": self.authority(workspace_id), **headers},
            timeout=60,
        )
        self._clients.append(made)
        return made

    async def workspace(self, client: httpx.AsyncClient | None = None, **columns: Any) -> str:
        """Create a workspace of the owner, by default RUNNING at the scripted upstream."""
        answer = await (client or self.owner).post("/api/v1/workspaces", json={"name": new_name("w"), "start": False})
        assert answer.status_code == 201, answer.text
        workspace_id = str(answer.json()["id"])
        state: Mapping[str, Any] = {"phase": "RUNNING", "desired_state": "RUNNING", "operation": "NONE", **columns}
        await put_in_state(self.database, workspace_id, **state)
        self.placed.upstreams[workspace_id] = Upstream("one", "127.0.0.1", self.upstream.port)
        return workspace_id

    async def ticket_address(self, browser: httpx.AsyncClient, path: str) -> str:
        """Open a workspace, follow the hand-over through the dashboard, and return the address with the ticket."""
        sent = await browser.get(path, headers=NAVIGATION)
        assert sent.status_code == 303, sent.text
        back = await self.hand_over(sent.headers["location"])
        assert back.status_code == 200, back.text
        return str(back.json()["url"]).partition(str(self.port))[2]

    async def hand_over(self, location: str, client: httpx.AsyncClient | None = None) -> httpx.Response:
        """Send the request of the dashboard's page at this address, by default as the owner."""
        page = httpx.URL(location)
        workspace_id = page.path.split("/")[2]
        body = {"nonce": page.params["nonce"], "next": page.params.get("next", "")}
        return await (client or self.owner).post(f"/api/v1/workspaces/{workspace_id}/handover", json=body)

    async def signed_in(self, workspace_id: str) -> httpx.AsyncClient:
        """Return a client that has the workspace's cookie."""
        browser = self.browser(workspace_id)
        address = await self.ticket_address(browser, f"/w/{workspace_id}/")
        done = await browser.get(address, headers=NAVIGATION)
        assert done.status_code == 303, done.text
        return browser

    async def token(self) -> str:
        answer = await self.owner.post("/api/v1/tokens", json={"name": "t"})
        assert answer.status_code == 201, answer.text
        return next(str(value) for value in answer.json().values() if str(value).startswith("cht_"))

    async def row(self, workspace_id: str) -> dict[str, Any]:
        async with self.database.transaction() as tx:
            row = await (await tx.execute("SELECT * FROM workspaces WHERE id = %s", [workspace_id])).fetchone()
        assert row is not None
        return row

    async def stop_proxy(self) -> None:
        if self.proxy is not None:
            self.proxy.cancel()
            with suppress(asyncio.CancelledError):
                await self.proxy
            self.proxy = None


@asynccontextmanager
async def world(
    database: Database,
    *,
    host_pattern: str = "",
    profiles: Mapping[str, AppProfile] | None = None,
    for_browsers: bool = False,
    public_host: str = "127.0.0.1",
    **given: Any,
) -> AsyncIterator[World]:
    """Yield the proxy in front of a scripted upstream. With `for_browsers`, the dashboard has a real listener too.

    `public_host` is then its name.
    """
    public = "http://127.0.0.1:8000"
    dashboards: list[socket.socket] = []
    if for_browsers:
        dashboards.append(socket.create_server(("127.0.0.1", 0), backlog=256))
        public = f"http://{public_host}:{dashboards[0].getsockname()[1]}"
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    port: int = listener.getsockname()[1]
    workspaces = f"http://localhost:{port}"
    settings = Settings.model_validate(
        {
            "CODEHUB_PUBLIC_BASE_URL": public,
            "CODEHUB_WORKSPACE_BASE_URL": workspaces,
            "CODEHUB_WORKSPACE_HOST": host_pattern,
            "ACTIVITY_FLUSH_INTERVAL": "3000",
            "TTL_STANDBY_SECONDS": "7200",
            **given,
        }
    )
    config = {"public_url": public, "workspace_url": workspaces, "workspace_host": host_pattern}
    async with running_api(database, config=config) as api:
        with scripted_upstream() as upstream:
            owner = await api.signed_in(*ADMIN)
            placed = Placed()
            activity = MemoryActivity()
            made = World(api, database, upstream, placed, activity, settings, port, owner)
            instances = {name: cast(Instances, placed) for name in ("process", "local-docker")}
            deps = ProxyDeps(
                database,
                activity,
                instances,
                Catalog(profiles or {"code-server": PROFILE}),
                lambda: datetime.now(UTC),
            )
            made.deps = deps
            made.listener.close()
            made.listener = listener
            serving = asyncio.create_task(serve_api(api.app, dashboards)) if dashboards else None
            try:
                await made.start_proxy(listener)
                yield made
            finally:
                for client in made._clients:
                    await client.aclose()
                await made.stop_proxy()
                if serving is not None:
                    serving.cancel()
                    with suppress(asyncio.CancelledError):
                        await serving
