"""A complete installation for tests of coordinators as processes.

Real PostgreSQL and Valkey, real homes, archives and process instances, and any number of `codehub serve coordinator`, plain
or killed at a point (`testing.codehub.crash_points`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg

from codehub.adapters.postgres import system
from codehub.adapters.postgres.pool import Database
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.records import Record, read_record
from codehub.domain.leadership import Leadership
from codehub.domain.model import DesiredState, Operation, Phase, Workspace
from codehub.ports.fence import no_fence
from codehub.wiring import new_id
from testing.codehub import tiny_ide
from testing.codehub.coordinators import row_of
from testing.codehub.rows import put_workspace
from testing.codehub.services import service_dir
from testing.codehub.workspaces import workspace

TIMEOUT_S = 240.0
_LOCK_ID = 12345


@dataclass(slots=True)
class Coordinator:
    process: subprocess.Popen[bytes]
    node_id: str
    log_file: Path

    async def died(self) -> None:
        """Wait until the coordinator was killed at its point."""
        await asyncio.to_thread(self.process.wait, TIMEOUT_S)
        assert self.process.returncode == -signal.SIGKILL, self.log_file.with_suffix(".log").read_text()[-3000:]

    async def froze(self) -> None:
        await until(lambda: _now(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED), "it is frozen")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def answers(self) -> list[str]:
        """Return the answers that it received after its freeze."""
        return self.log_file.read_text().splitlines()[1:] if self.log_file.exists() else []


class Installation:
    """The installation. `environment`: additional settings of its coordinators."""

    def __init__(self, place: Path, database: Database, redis_url: str, environment: Mapping[str, str]) -> None:
        self.database = database
        self.row = replace(workspace(new_id(), created_at=datetime.now(UTC)), image_ref="tiny")
        self.data_dir = place / "data"
        self._coordinators: list[Coordinator] = []
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "CODEHUB_DATA_DIR": str(self.data_dir),
            "CODEHUB_DATABASE_URL": database.url,
            "CODEHUB_REDIS_URL": redis_url,
            "CODEHUB_RUNTIME": "process",
            "CODEHUB_PROFILES_FILE": str(place / "profiles.toml"),
            "CODEHUB_DEFAULT_PROFILE": "tiny",
            "COORDINATOR_IDLE_INTERVAL": "1",
            "COORDINATOR_ACTIVE_INTERVAL": "0.2",
            "COORDINATOR_RETRY_INTERVAL": "1",
            **environment,
        }
        command = json.dumps(["python3", "-u", "-c", tiny_ide.SOURCE, "{socket}", "{id}"])
        (place / "profiles.toml").write_text(f'[profiles.tiny]\ncommand = {command}\nhealth_path = "/healthz"\n')
        self.data_dir.mkdir(mode=0o711)

    @property
    def files(self) -> Path:
        return self.data_dir / "homes" / self.row.home_store_key / "files"

    @property
    def instance(self) -> Record | None:
        return read_record(self.data_dir / "run/instances" / self.row.id)

    def configure(self, **environment: str) -> None:
        """Change settings for coordinators that start from now on."""
        self._environment |= environment

    def coordinator(
        self, point: str = "", do: str = "kill", *, environment: Mapping[str, str] | None = None, **more: object
    ) -> Coordinator:
        """Start another `codehub serve coordinator`, with a point one that crashes there."""
        node_id = f"node-{len(self._coordinators)}"
        log_file = self.data_dir.parent / f"{node_id}.answers"
        job = {"do": do, "point": point, "log_file": str(log_file), **more}
        with log_file.with_suffix(".log").open("wb") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "testing.codehub.crash_points", json.dumps(job), "serve", "coordinator"],
                env={**self._environment, "COORDINATOR_NODE_ID": node_id, **(environment or {})},
                cwd=Path(__file__).resolve().parents[2],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._coordinators.append(Coordinator(started, node_id, log_file))
        return self._coordinators[-1]

    async def create(self, desired: DesiredState) -> None:
        now = datetime.now(UTC)
        await put_workspace(self.database, replace(self.row, desired_state=desired, last_access_at=now))

    async def ask(self, desired: DesiredState) -> None:
        await self.change("desired_state = %s", desired.value)

    async def change(self, what: str, *values: object) -> None:
        async with self.database.transaction() as tx:
            await tx.execute(f"UPDATE workspaces SET {what} WHERE id = %s".encode(), [*values, self.row.id])

    async def now(self) -> Workspace:
        return await row_of(self.database, self.row.id)

    async def reaches(self, phase: Phase) -> Workspace:
        async def there() -> bool:
            row = await self.now()
            return row.phase is phase and row.operation is Operation.NONE

        await until(there, f"it becomes {phase}", self._logs)
        return await self.now()

    async def leads(self, coordinator: Coordinator) -> int:
        async def there() -> bool:
            found = await self.leadership()
            return found.held and found.holder_id == coordinator.node_id and bool(found.components)

        await until(there, f"{coordinator.node_id} leads", self._logs)
        return (await self.leadership()).epoch

    async def leadership(self) -> Leadership:
        async with self.database.transaction() as tx:
            return await system.leadership(tx, _LOCK_ID)

    async def stands(self) -> None:
        """Wait until a coordinator waits inside the lock call, when its earlier work is over."""

        async def there() -> bool:
            async with self.database.transaction() as tx:
                found = await (
                    await tx.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                ).fetchall()
            return bool(found)

        await until(there, "a standby waits", self._logs)

    async def version(self) -> str:
        """Return the row's version, which changes with every write."""
        async with self.database.transaction() as tx:
            row = await (
                await tx.execute("SELECT xmin::text AS v FROM workspaces WHERE id = %s", [self.row.id])
            ).fetchone()
        assert row is not None
        return str(row["v"])

    def archives(self) -> list[str]:
        """Return the committed archives."""
        return sorted(path.parent.name for path in (self.data_dir / "archives").rglob("home.tar.zst.meta"))

    async def end(self) -> None:
        for one in self._coordinators:
            one.process.kill()
            one.process.wait(TIMEOUT_S)
        await ProcessInstances(self.data_dir / "run/instances").delete(self.row.id, no_fence)

    def _logs(self) -> str:
        logs = sorted(self.data_dir.parent.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in logs)


@asynccontextmanager
async def installation(
    database: Database, redis_url: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Installation]:
    place = service_dir()
    made = Installation(place, database, redis_url, environment or {})
    try:
        yield made
    finally:
        await made.end()
        shutil.rmtree(place, ignore_errors=True)


async def _now(value: bool) -> bool:
    return value


async def until(holds: Callable[[], Awaitable[bool]], what: str, details: Callable[[], str] = str) -> None:
    """Wait for a condition, with a generous deadline. An unavailable database counts as False."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    while True:
        try:
            if await holds():
                return
        except psycopg.Error:
            pass
        assert asyncio.get_running_loop().time() < deadline, f"it never came to it that {what}\n{details()}"
        await asyncio.sleep(0.02)
