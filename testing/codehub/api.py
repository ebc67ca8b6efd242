"""The API in this process for tests: the real app on a real database, called over ASGI, with a clock that tests control."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx
from argon2 import PasswordHasher
from fastapi import FastAPI

from codehub.adapters.postgres.pool import Database
from codehub.adapters.secret_box import SecretBox
from codehub.api.app import create_app
from codehub.api.config import ApiConfig, ApiDeps, uuid7
from codehub.api.context import Context, make_users
from codehub.api.server import serve_api
from codehub.domain.errors import BackendDown
from codehub.domain.limits import RunningLimits
from codehub.domain.profiles import AppProfile, Runs
from codehub.ports.bus import Bus
from codehub.services.event_stream import EventBroadcaster
from codehub.services.passwords import Passwords
from codehub.services.workspaces import BackendChoice

PUBLIC = "http://127.0.0.1:8000"
ADMIN = ("admin", "admin-password")
PROFILES = {
    "code-server": AppProfile("code-server", command=("code-server", "{port}"), image="example/code-server:1"),
    "jupyterlab": AppProfile("jupyterlab", command=("jupyter-lab", "{port}"), image="example/jupyterlab:1"),
    "only-image": AppProfile("only-image", image="example/only:1"),
}
CONFIG = ApiConfig(
    public_url=PUBLIC,
    workspace_url="http://localhost:8001",
    workspace_host="",
    trusted_proxies=(),
    limits=RunningLimits(2, 100),
    default_profile="code-server",
    allowed_images=("allowed.example/*",),
    ttl_standby_s=600,
    ttl_archive_s=1800,
    deleted_retention_s=86_400,
    sse_prefix="codehub:sse:",
    lock_id=12345,
    node_id="test-node",
)


class TestClock:
    """A clock that starts at the current time and that tests can move."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def forward(self, **by: float) -> None:
        self._ahead += timedelta(**by)


class AwayBus:
    """A bus that is unavailable, which the API must tolerate."""

    async def publish(self, channel: str, payload: str) -> None:
        raise BackendDown("the bus is away")

    def subscribe(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        raise BackendDown("the bus is away")


async def process_backends() -> BackendChoice:
    return BackendChoice("process", "local-dir", Runs.COMMAND)


async def docker_backends() -> BackendChoice:
    return BackendChoice("local-docker", "local-dir", Runs.IMAGE)


def cheap_passwords() -> Passwords:
    """Return real argon2id with the smallest parameters, because tests sign in hundreds of times."""
    return Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


def api_deps(database: Database, bus: Bus | None = None, **given: Any) -> ApiDeps:
    config: Mapping[str, Any] = given.pop("config", {})
    return ApiDeps(
        database=database,
        bus=bus or AwayBus(),
        config=replace(CONFIG, **config),
        instances=given.pop("instances", {}),
        choose_backends=given.pop("choose_backends", process_backends),
        profiles=PROFILES,
        passwords=cheap_passwords(),
        secret_box=given.pop("secret_box", lambda: SecretBox((bytes(32),))),
        **given,
    )


@dataclass
class Api:
    """The app, called without a network."""

    app: FastAPI
    deps: ApiDeps
    clock: TestClock
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    @property
    def live(self) -> EventBroadcaster:
        return cast(Context, self.app.state.context).live

    def client(self, *, address: str = "127.0.0.1", **headers: str) -> httpx.AsyncClient:
        """Return a client that is not signed in, with this address and these headers (underscores become dashes)."""
        made = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=(address, 50_000)),
            base_url=PUBLIC,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            timeout=120,
        )
        self._clients.append(made)
        return made

    async def signed_in(self, username: str = ADMIN[0], password: str = ADMIN[1]) -> httpx.AsyncClient:
        client = self.client()
        answer = await client.post("/api/v1/login", json={"username": username, "password": password})
        assert answer.status_code == 200, answer.text
        client.headers["X-CodeHub-Session-Key"] = answer.json()["session_key"]
        return client

    async def user(self, username: str, *, is_admin: bool = False) -> httpx.AsyncClient:
        """Create a user and return its signed-in client. The password is the name repeated."""
        password = f"{username}-{username}"
        await make_users(self.deps)._insert(username, password, None, is_admin=is_admin)
        return await self.signed_in(username, password)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def running_api(database: Database, bus: Bus | None = None, **given: Any) -> AsyncIterator[Api]:
    """Yield the app with an administrator. Live events need `listening`, which runs the app's lifespan."""
    clock = TestClock()
    deps = api_deps(database, bus, clock=clock, **given)
    await make_users(deps).ensure_first_admin(*ADMIN)
    app = create_app(deps)
    api = Api(app, deps, clock)
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def listening(api: Api, *, send_buffer: int | None = None) -> AsyncIterator[str]:
    """Serve the same app on a real listener and yield its address.

    A small send buffer makes a client that does not read block soon.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ready = asyncio.Event()
    serving = asyncio.create_task(serve_api(api.app, [listener], ready=ready.set))
    try:
        async with asyncio.timeout(60):
            await ready.wait()
        yield address
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def until(true: Callable[[], bool], *, within_s: float = 90) -> None:
    """Wait until a condition holds. The deadline allows for a busy machine."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


async def put_in_state(database: Database, workspace_id: str, **columns: Any) -> None:
    """Write what the coordinator would have written: phase, operation, error_reason, home_ctx, …"""
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    async with database.transaction() as tx:
        await tx.execute(
            f"UPDATE workspaces SET {assignments} WHERE id = %(id)s".encode(), {**columns, "id": workspace_id}
        )


def new_id() -> str:
    return uuid7()
