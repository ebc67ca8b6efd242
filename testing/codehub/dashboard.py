"""A real CodeHub API with its dashboard for browser and CLI tests: real PostgreSQL, a real listener.

`Stage` writes into a workspace's row what the coordinator would have written, for pages that need a certain state. The
pages and commands themselves use the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest_asyncio
import uuid_utils
import uvicorn
from psycopg import sql

from codehub.adapters.postgres.pool import Database
from codehub.adapters.postgres.rows import conditions_column
from codehub.api.app import ApiDeps, api_config, create_app
from codehub.domain.model import Condition, Conditions, ConditionStatus
from codehub.domain.profiles import AppProfile
from codehub.ports.bus import Bus
from codehub.services.event_stream import Pace
from codehub.settings import load_settings
from testing.codehub.api import AwayBus, cheap_passwords, process_backends
from testing.codehub.memory.world import MemoryInstances
from testing.ports import free_port

ADMIN: Final = "admin"
PASSWORD: Final = "correct horse battery"
TIMEOUT_S: Final = 90.0
_PROFILES: Final = {
    name: AppProfile(name=name, command=("true",), image=f"example/{name}:1")
    for name in ("code-server", "jupyterlab")
}


@dataclass(slots=True)
class DashboardServer:
    """A CodeHub API that can be stopped and restarted on the same port."""

    database: Database
    port: int = field(default_factory=free_port)
    offset: timedelta = timedelta(0)
    max_running: int = 1_000
    environment: Mapping[str, str] = field(default_factory=dict)
    bus: Bus = field(default_factory=AwayBus)
    instances: MemoryInstances = field(default_factory=MemoryInstances)
    _server: uvicorn.Server | None = None
    _task: asyncio.Task[None] | None = None
    _end_streams: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clock(self) -> datetime:
        """Return the real time plus an offset that tests set to expire a session."""
        return datetime.now(UTC) + self.offset

    async def start(self) -> None:
        settings = load_settings(
            {
                "CODEHUB_API_BIND": f"127.0.0.1:{self.port}",
                "LIMITS_MAX_RUNNING_PER_USER": str(self.max_running),
                "LIMITS_MAX_RUNNING_GLOBAL": "100000",
                **self.environment,
            }
        )

        deps = ApiDeps(
            database=self.database,
            bus=self.bus,
            config=api_config(settings),
            instances={"process": self.instances},
            choose_backends=process_backends,
            profiles=_PROFILES,
            clock=self.clock,
            passwords=cheap_passwords(),
            pace=Pace(tick_s=0.1, poll_s=0.1, retry_s=0.1, heartbeat_s=2.0),
        )
        app = create_app(deps)
        await app.state.context.users.ensure_first_admin(ADMIN, PASSWORD)
        self._end_streams = app.state.context.live.stop
        config = uvicorn.Config(
            app, host="127.0.0.1", port=self.port, log_config=None, lifespan="on", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        # The test runner handles signals.
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        self._task = asyncio.create_task(self._server.serve())
        await until(lambda: self._server is not None and self._server.started, "the server to listen")

    async def stop(self) -> None:
        if self._server is not None and self._task is not None and self._end_streams is not None:
            # Like a process that is shutting down: streams end first, because the listener would wait for them.
            self._end_streams()
            self._server.should_exit = True
            await self._task
            self._server = self._task = None


async def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for a condition, with a generous deadline."""
    async with asyncio.timeout(TIMEOUT_S):
        while not happened():
            await asyncio.sleep(0.02)
    assert happened(), what


@dataclass(frozen=True, slots=True)
class Stage:
    """Writes rows as the coordinator would."""

    database: Database

    async def user_id(self, username: str = ADMIN) -> str:
        async with self.database.transaction() as tx:
            row = await (await tx.execute("SELECT id FROM users WHERE username = %s", [username])).fetchone()
        assert row is not None, username
        return str(row["id"])

    async def add(self, name: str, *, owner: str = ADMIN, **columns: object) -> str:
        """Add a workspace, by default in STANDBY."""
        (made,) = await self.add_many([name], owner=owner, **columns)
        return made

    async def add_many(self, names: list[str], *, owner: str = ADMIN, **columns: object) -> list[str]:
        owner_id = await self.user_id(owner)
        values = _observed({**_RESTING, **columns})
        ids = [str(uuid_utils.uuid7()) for _ in names]
        names_of = [*_GIVEN, *values]
        statement = sql.SQL("INSERT INTO workspaces ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, names_of)), sql.SQL(", ").join(sql.Placeholder() for _ in names_of)
        )
        async with self.database.transaction() as tx, tx.cursor() as cursor:
            await cursor.executemany(
                statement,
                [
                    [made, owner_id, name, f"users/{owner_id}/workspaces/{made}/home", *map(_column, values.values())]
                    for made, name in zip(ids, names, strict=True)
                ],
            )
        return ids

    async def change(self, workspace_id: str, **columns: object) -> None:
        columns = _observed(columns)
        assignments = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in columns
        )
        statement = sql.SQL("UPDATE workspaces SET {}, updated_at = now() WHERE id = {}").format(
            assignments, sql.Placeholder()
        )
        async with self.database.transaction() as tx:
            await tx.execute(statement, [*map(_column, columns.values()), workspace_id])

    async def tell(self, workspace_id: str, kind: str, message: str, actor: str = "codehub") -> None:
        async with self.database.transaction() as tx:
            await tx.execute(
                "INSERT INTO workspace_events (workspace_id, kind, message, actor) VALUES (%s, %s, %s, %s)",
                [workspace_id, kind, message, actor],
            )

    async def row(self, workspace_id: str) -> dict[str, Any]:
        async with self.database.transaction() as tx:
            row = await (await tx.execute("SELECT * FROM workspaces WHERE id = %s", [workspace_id])).fetchone()
        assert row is not None
        return row

    async def until(self, workspace_id: str, **columns: object) -> dict[str, Any]:
        """Wait until a row has these values."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                row = await self.row(workspace_id)
                if all(row[name] == value for name, value in columns.items()):
                    return row
                await asyncio.sleep(0.05)

    async def named(self, name: str) -> str:
        """Return the id of the workspace with this name, once it exists."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                async with self.database.transaction() as tx:
                    row = await (await tx.execute("SELECT id FROM workspaces WHERE name = %s", [name])).fetchone()
                if row is not None:
                    return str(row["id"])
                await asyncio.sleep(0.05)


_GIVEN: Final = ("id", "owner_user_id", "name", "home_store_key")
STOPPED: Final = Conditions(container_ready=Condition(ConditionStatus.FALSE, "Absent"))
_RESTING: Final[dict[str, object]] = {
    "image_ref": "code-server",
    "instance_backend": "process",
    "storage_backend": "local-dir",
    "phase": "STANDBY",
    "desired_state": "STANDBY",
    "last_access_at": datetime(2026, 1, 2, tzinfo=UTC),
}


def conditions(*, volume: bool = True, archive: bool = False, container: bool = False) -> dict[str, object]:
    """Return the four conditions in their stored form."""

    def one(there: bool, yes: str, no: str) -> dict[str, str]:
        return {"status": str(there), "reason": yes if there else no, "message": ""}

    return {
        "storage.volume_ready": one(volume, "Ready", "NotFound"),
        "storage.archive_ready": one(archive, "ArchiveUploaded", "NoArchive"),
        "infra.container_ready": one(container, "Running", "Stopped"),
        "policy.healthy": one(True, "AllConditionsMet", ""),
    }


RUNNING: Final[dict[str, Any]] = {
    "phase": "RUNNING",
    "desired_state": "RUNNING",
    "operation": "NONE",
    "progress": None,
    "conditions": conditions(container=True),
}
ASLEEP: Final[dict[str, Any]] = {"phase": "STANDBY", "operation": "NONE", "conditions": conditions()}
ARCHIVED: Final[dict[str, Any]] = {
    "phase": "ARCHIVED",
    "desired_state": "ARCHIVED",
    "operation": "NONE",
    "progress": None,
    "conditions": conditions(volume=False, archive=True),
}


def _observed(columns: dict[str, object]) -> dict[str, object]:
    """Add that the instance is gone, which the coordinator has observed when it writes STANDBY."""
    if columns.get("phase") != "STANDBY" or "conditions" in columns:
        return columns
    return {**columns, "conditions": conditions_column(STOPPED)}


def _column(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


@pytest_asyncio.fixture
async def stage(database: Database) -> Stage:
    return Stage(database)


@pytest_asyncio.fixture
async def dashboard(database: Database) -> AsyncIterator[DashboardServer]:
    """Yield a listening CodeHub API with one admin."""
    server = DashboardServer(database)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
