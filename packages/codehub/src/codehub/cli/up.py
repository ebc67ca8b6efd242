"""`codehub up`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import click
import httpx

from codehub.adapters.backend_set import choose_runtime
from codehub.adapters.docker.engine import DEFAULT_HOST
from codehub.adapters.embedded.account import Account
from codehub.adapters.embedded.layout import kept_secret
from codehub.adapters.postgres.migrate import migrate
from codehub.adapters.postgres.pool import Database
from codehub.adapters.process.isolation import find_isolation
from codehub.cli import logs
from codehub.cli.env import values_of
from codehub.cli.local_users import users_of
from codehub.cli.stack import datadir
from codehub.cli.stack.children import Part, keep_running
from codehub.cli.stack.engine_view import engine_view
from codehub.cli.stack.hosts import LOCAL_PATTERN, with_own_hosts
from codehub.cli.stack.ports import listen
from codehub.cli.stack.receipts import receipts_view
from codehub.cli.stack.rights import environment_of, lent_files, raise_open_files, unprivileged_account
from codehub.cli.stack.servers import embedded_servers
from codehub.cli.stack.terminal_program import install_in_background
from codehub.data_dir import Lock
from codehub.domain.errors import BackendDown
from codehub.settings import NAMES, Settings, load_settings
from codehub.wiring import backend_options, catalog_of, isolated_before, keep_installation_id, refuse_remote_engine

_READY_TIMEOUT_S = 120.0


@click.command()
def up() -> None:
    """Run CodeHub on this machine with everything it needs.

    \b
    PostgreSQL and Valkey are embedded unless CODEHUB_DATABASE_URL and CODEHUB_REDIS_URL name servers.
    Ctrl-C stops CodeHub and leaves workspaces running; the next `up` takes them over.
    `codehub down` stops them as well.

    \b
    Examples:
      codehub up
      CODEHUB_DATA_DIR=/srv/codehub CODEHUB_API_BIND=127.0.0.1:9000 codehub up
    """
    settings = load_settings(os.environ)
    logs.configure(settings.log_level, settings.log_format)
    refuse_remote_engine(settings)
    datadir.prepare(settings.data_dir)
    raise_open_files()
    datadir.refuse_unfinished_restore(settings.data_dir)
    with Lock(settings.data_dir), _listeners(settings) as (settings, sockets):
        asyncio.run(_run(settings, sockets))


@contextlib.contextmanager
def _listeners(settings: Settings) -> Iterator[tuple[Settings, dict[str, socket.socket]]]:
    """Open both listening sockets. Yields the settings with the actual ports."""
    with contextlib.ExitStack() as stack:
        sockets: dict[str, socket.socket] = {}
        binds: dict[str, str] = {}
        for part, name in (("api", "CODEHUB_API_BIND"), ("proxy", "CODEHUB_PROXY_BIND")):
            wanted = getattr(settings, NAMES[name])
            made = stack.enter_context(listen(wanted, explicit=bool(os.environ.get(name)), name=name))
            sockets[part] = made
            host, port = made.getsockname()[:2]
            binds[name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            if binds[name] != wanted and not wanted.endswith(":0"):
                _say(f"port {wanted.rpartition(':')[2]} is taken: using {port} instead")
        yield with_own_hosts(load_settings({**os.environ, **binds})), sockets


async def _run(settings: Settings, sockets: dict[str, socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    account = unprivileged_account(settings, _say)
    async with contextlib.AsyncExitStack() as stack:
        settings = await stack.enter_async_context(embedded_servers(settings, _say))
        await migrate(settings.database_url)
        async with Database(settings.database_url, max_connections=2) as database:
            installation = await keep_installation_id(settings, database)
            fresh = await _ensure_admin(settings, database)
        values = values_of(settings)
        datadir.write_environment(settings.data_dir, values)
        less: dict[str, str] = {}
        receipts: Path | None = None
        if account is not None:
            datadir.share(settings.data_dir, account)
            less = lent_files(settings, account)
            less |= await stack.enter_async_context(_unprivileged_view(settings, installation, account))
            receipts = await stack.enter_async_context(receipts_view(settings.archives, settings.data_dir, account))
        # One node name for the parts of this `up`, by which the API recognizes its own coordinator as the leader.
        node = {"COORDINATOR_NODE_ID": settings.node_id}
        children = [
            asyncio.create_task(
                keep_running(part, environment_of(part, {**os.environ, **values, **node}, account, less), account),
                name=part.name,
            )
            for part in _parts(sockets, receipts)
        ]
        try:
            _say("starting CodeHub")
            await _ready(settings, stopping)
            if not stopping.is_set():
                _banner(settings, fresh)
                install_in_background(settings.data_dir, _say)
            await stopping.wait()
        finally:
            _say("stopping")
            for child in children:
                child.cancel()
            await asyncio.gather(*children, return_exceptions=True)


@contextlib.asynccontextmanager
async def _unprivileged_view(
    settings: Settings, installation: str, account: Account
) -> AsyncIterator[dict[str, str]]:
    """Yield the settings of parts that are not root: a view of the engine instead of the engine, and the chosen runtime.

    Only a privileged process can detect the runtime.
    """
    if settings.runtime == "auto":
        _say("looking for a Docker engine")
    runtime = await choose_runtime(backend_options(settings, installation), catalog_of(settings))
    host = settings.docker_host or DEFAULT_HOST
    if not host.startswith("unix://"):
        yield {"CODEHUB_RUNTIME": runtime}
        return
    async with engine_view(host, installation, settings.data_dir, account) as view:
        yield {"CODEHUB_RUNTIME": runtime, "DOCKER_HOST": view}


def _parts(sockets: dict[str, socket.socket], receipts: Path | None) -> list[Part]:
    for each in sockets.values():
        os.set_inheritable(each.fileno(), True)
    return [
        Part(
            "api",
            [
                "serve",
                "api",
                "--fd",
                str(sockets["api"].fileno()),
                *(["--receipts", str(receipts)] if receipts else []),
            ],
            [sockets["api"].fileno()],
        ),
        Part("proxy", ["serve", "proxy", "--fd", str(sockets["proxy"].fileno())], [sockets["proxy"].fileno()]),
        Part("coordinator", ["serve", "coordinator"], privileged=True),
    ]


async def _ensure_admin(settings: Settings, database: Database) -> bool:
    """Create the first user if there is none. Returns whether a password was generated, which is then shown once."""
    path = password_file(settings.data_dir)
    generated = not settings.admin_password and not path.exists()
    password = settings.admin_password or kept_secret(path)
    made = await users_of(database).ensure_first_admin(settings.admin_username, password)
    return made and generated


async def _ready(settings: Settings, stopping: asyncio.Event) -> None:
    """Wait until API, proxy and a leading coordinator answer. Prints progress every two seconds."""
    began = printed_at = time.monotonic()
    # Only http:// addresses of this machine are requested: reading the certificate authorities would be for nothing.
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=5.0) as client:  # noqa: S501
        while not stopping.is_set():
            missing = await _missing(client, settings)
            if not missing:
                return
            now = time.monotonic()
            if now - began > _READY_TIMEOUT_S:
                raise BackendDown(f"CodeHub did not start: no answer from {', '.join(missing)}. See the lines above.")
            if now - printed_at > 2:
                printed_at = now
                _say(f"waiting for {', '.join(missing)}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), 0.1)


async def _missing(client: httpx.AsyncClient, settings: Settings) -> list[str]:
    async def ok(url: str, host: str) -> httpx.Response | None:
        with contextlib.suppress(httpx.HTTPError):
            answer = await client.get(url, headers={"Host": host})
            return answer if answer.status_code == 200 else None
        return None

    host = settings.public_url.partition("://")[2]
    missing = []
    if await ok(f"http://{settings.api_bind}/health/ready", host) is None:
        missing.append("the API")
    if await ok(f"http://{settings.proxy_bind}/health", settings.workspace_url.partition("://")[2]) is None:
        missing.append("the workspace proxy")
    leader = await ok(f"http://{settings.api_bind}/health/coordinator", host)
    if leader is None or not (leader.json().get("leader") or {}).get("holder_id"):
        missing.append("the coordinator")
    return missing


def _banner(settings: Settings, fresh: bool) -> None:
    click.echo(f"\nCodeHub is ready:  {settings.public_url}")
    click.echo(f"  user             {settings.admin_username}")
    path = password_file(settings.data_dir)
    if fresh:
        click.echo(f"  password         {path.read_text().strip()}   (shown once; stored in {path})")
    elif not settings.admin_password:
        click.echo(f"  password         in {path}, unless you changed it")
    click.echo(f"  data             {settings.data_dir}")
    if settings.workspace_host == LOCAL_PATTERN:
        port = settings.proxy_bind.rpartition(":")[2]
        click.echo(
            f"  workspaces       http://ID.localhost:{port}, which Chrome, Edge and Firefox resolve. If yours does not:"
        )
        click.echo("                   CODEHUB_WORKSPACE_HOST=none codehub up")
    found = find_isolation()
    for why in found.missing if settings.runtime != "docker" else ():
        click.echo(f"  WARNING          {why}")
    if settings.runtime != "docker" and (refused := found.why_refused(settings.isolation, isolated_before(settings))):
        click.echo(f"  WARNING          no workspace is started, because {refused}: run `codehub doctor`")
    click.echo("Press Ctrl-C to stop CodeHub; workspaces keep running. `codehub down` stops them as well.\n")
    sys.stdout.flush()


def _say(message: str) -> None:
    click.echo(f"codehub: {message}", err=True)
    sys.stderr.flush()


def password_file(data_dir: Path) -> Path:
    """Return the path of a generated admin password."""
    return data_dir / "admin-password"
