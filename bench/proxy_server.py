"""`python -m bench.proxy_server UPSTREAM_PORT`: our proxy; its port and its workspace are the first line of output.

Every check is on: a real database, a session's workspace cookie, decisions remembered as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import uuid_utils
import uvloop

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.domain.profiles import AppProfile, Catalog, Runs
from codehub.ports.instances import Instances, Upstream
from codehub.proxy.run import ProxyDeps, run_proxy, settle_memory
from codehub.services.passwords import hash_secret
from codehub.settings import Settings
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.services import service_dir

SECRET = "bench-secret"


class OnePlace:
    runs = Runs.COMMAND

    def __init__(self, port: int) -> None:
        self._upstream = Upstream("bench", "127.0.0.1", port)

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        return self._upstream


async def proxy(port: int) -> None:
    place = service_dir()
    server = EmbeddedPostgres(place)
    server.start()
    try:
        url = server.url("postgres")
        await migrate(url)
        async with Database(url) as database:
            workspace_id = await _seed(database)
            listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            own = listener.getsockname()[1]
            settings = Settings.model_validate({"CODEHUB_WORKSPACE_BASE_URL": f"http://127.0.0.1:{own}"})
            deps = ProxyDeps(
                database,
                MemoryActivity(),
                {"process": cast(Instances, OnePlace(port))},
                Catalog(
                    {"code-server": AppProfile("code-server", command=("x",), background_traffic=("GET /healthz",))}
                ),
                lambda: datetime.now(UTC),
            )
            settle_memory()
            await run_proxy(
                settings, deps, sockets=[listener], ready=lambda: print(own, workspace_id, flush=True), grace_s=0.1
            )
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


async def _seed(database: Database) -> str:
    user, session, workspace = (str(uuid_utils.uuid7()) for _ in range(3))
    now = datetime.now(UTC)
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO users (id, username, password_hash) VALUES (%s, 'bench', '')", [user])
        await tx.execute(
            "INSERT INTO sessions (id, user_id, secret_hash, expires_at) VALUES (%s, %s, '\\x00', %s)",
            [session, user, now + timedelta(hours=1)],
        )
        await tx.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, instance_backend, storage_backend,"
            " home_store_key, desired_state, phase) VALUES (%s, %s, 'b', 'code-server', 'process', 'local-dir', 'k',"
            " 'RUNNING', 'RUNNING')",
            [workspace, user],
        )
        await tx.execute(
            "INSERT INTO proxy_sessions (secret_hash, session_id, workspace_id) VALUES (%s, %s, %s)",
            [hash_secret(SECRET), session, workspace],
        )
    return workspace


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """SIGTERM is an orderly end: a database that was started here must not outlive it."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with contextlib.suppress(asyncio.CancelledError):
            runner.run(until_told(proxy(int(sys.argv[1]))))
