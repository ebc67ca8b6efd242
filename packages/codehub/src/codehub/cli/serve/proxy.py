"""`codehub serve proxy`: the workspace proxy."""

from __future__ import annotations

import socket

import click
import uvloop

from codehub.adapters.system_clock import SystemClock
from codehub.cli.serve.part import FD_HELP, inherited, part_settings, run_part
from codehub.proxy.run import ProxyDeps, run_proxy, settle_memory
from codehub.settings import Settings
from codehub.wiring import World, open_world


@click.command()
@click.option("--fd", type=int, help=FD_HELP, hidden=True)
def proxy(fd: int | None) -> None:
    """Run the workspace proxy on CODEHUB_PROXY_BIND.

    \b
    Example:
      CODEHUB_PROXY_BIND=0.0.0.0:8001 codehub serve proxy
    """
    listening = inherited(fd)
    # Only the proxy uses uvloop, for throughput: a coordinator on it was never notified when its children ended.
    run_part(_serve(part_settings(), [listening] if listening else None), uvloop.new_event_loop)


async def _serve(settings: Settings, sockets: list[socket.socket] | None) -> None:
    async with open_world(settings, name="proxy") as world:
        settle_memory()
        await run_proxy(settings, proxy_deps(world), sockets=sockets)


def proxy_deps(world: World) -> ProxyDeps:
    return ProxyDeps(
        database=world.database,
        activity=world.activity,
        instances=world.backends.instances,
        catalog=world.catalog,
        now=SystemClock().now,
    )
