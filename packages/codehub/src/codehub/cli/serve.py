"""`codehub serve api|proxy|coordinator`: runs one part of CodeHub until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from codehub.adapters.front_socket import listen_front
from codehub.api.app import create_app
from codehub.api.server import serve_api
from codehub.cli import logs
from codehub.cli.composition import api_deps, coordinator_deps, coordinator_settings, proxy_deps
from codehub.cli.effective_settings import effective_settings
from codehub.cli.stack.ports import listen
from codehub.cli.stack.receipts import ReceiptsView
from codehub.cli.stack.rights import raise_open_files
from codehub.control.coordinator import run_coordinator
from codehub.proxy.run import run_proxy, settle_memory
from codehub.settings import Settings
from codehub.wiring import open_world

_FD_HELP = "Serve on this inherited listening socket."


@click.group()
def serve() -> None:
    """Run one process: api, proxy or coordinator.

    Any number of each may run against the same CODEHUB_DATABASE_URL and CODEHUB_REDIS_URL.
    """


@serve.command()
@click.option("--fd", type=int, help=_FD_HELP, hidden=True)
@click.option("--receipts", type=Path, help="Ask this socket which archives there are.", hidden=True)
def api(fd: int | None, receipts: Path | None) -> None:
    """Run the API and the dashboard on CODEHUB_API_BIND.

    If there is no user yet, the first one is created from CODEHUB_ADMIN_USERNAME and
    CODEHUB_ADMIN_PASSWORD.

    \b
    Example:
      CODEHUB_API_BIND=0.0.0.0:8000 codehub serve api
    """
    settings = _settings()
    listening = _inherited(fd) or listen(settings.api_bind, explicit=True, name="CODEHUB_API_BIND")
    listeners = [listening]
    if settings.api_socket is not None:
        listeners.append(listen_front(settings.api_socket, "CODEHUB_API_SOCKET"))
    _run(_api(settings, listeners, receipts))


async def _api(settings: Settings, listeners: list[socket.socket], receipts: Path | None) -> None:
    async with open_world(settings, name="api", chooses=True) as world:
        app = create_app(api_deps(world, None if receipts is None else ReceiptsView(receipts)))
        if settings.admin_password:
            # The first user of an installation without `codehub up`, which would create it otherwise.
            await app.state.context.users.ensure_first_admin(settings.admin_username, settings.admin_password)
        await serve_api(app, listeners)


@serve.command()
@click.option("--fd", type=int, help=_FD_HELP, hidden=True)
def proxy(fd: int | None) -> None:
    """Run the workspace proxy on CODEHUB_PROXY_BIND.

    \b
    Example:
      CODEHUB_PROXY_BIND=0.0.0.0:8001 codehub serve proxy
    """
    inherited = _inherited(fd)
    _run(_proxy(_settings(), [inherited] if inherited else None), uvloop.new_event_loop)


async def _proxy(settings: Settings, sockets: list[socket.socket] | None) -> None:
    async with open_world(settings, name="proxy") as world:
        settle_memory()
        await run_proxy(settings, proxy_deps(world), sockets=sockets)


@serve.command()
def coordinator() -> None:
    """Run a coordinator. One leads, the others stand by.

    \b
    Example:
      env $(codehub env) codehub serve coordinator    a second one in addition to `codehub up`
    """
    _run(_coordinator(_settings()))


async def _coordinator(settings: Settings) -> None:
    async with open_world(settings, name="coordinator") as world:
        await asyncio.to_thread(world.backends.record_isolation)
        await run_coordinator(coordinator_settings(settings), coordinator_deps(world))


def _settings() -> Settings:
    raise_open_files()
    state = effective_settings(os.environ)
    state.require_database()
    logs.configure(state.settings.log_level, state.settings.log_format)
    return state.settings


def _inherited(fd: int | None) -> socket.socket | None:
    return None if fd is None else socket.socket(fileno=fd)


def _run(
    part: Coroutine[Any, Any, None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Run a part. SIGTERM and SIGINT cancel it, which is a clean exit.

    Only the proxy uses uvloop, for throughput: a coordinator on it was never notified when its children ended.
    """

    async def until_told() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        await part

    with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(until_told())
