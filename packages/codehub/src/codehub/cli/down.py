"""`codehub down`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import click
import psutil

from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.embedded.valkey import EmbeddedValkey
from codehub.cli.effective_settings import effective_settings
from codehub.data_dir import holder
from codehub.domain.errors import BackendDown, Transient
from codehub.ports.fence import no_fence
from codehub.settings import Settings
from codehub.wiring import open_local_backends

_TIMEOUT_S = 90.0
_POLL_S = 0.05


@click.command()
@click.option("--keep-workspaces", is_flag=True, help="Leave the workspaces running; the next `up` takes them over.")
def down(keep_workspaces: bool) -> None:
    """Stop the CodeHub that uses this data directory, and its workspaces.

    Nothing is lost. The next `codehub up` starts the workspaces that were running.

    \b
    Examples:
      codehub down
      codehub down --keep-workspaces    for a backup or an upgrade
    """
    state = effective_settings(os.environ)
    who = holder(state.settings.data_dir)
    if who is not None:
        click.echo(f"stopping CodeHub (pid {who.pid})")
        _end(who.pid)
    elif left := _stop_strays(state.settings.data_dir):
        click.echo(f"stopped {' and '.join(left)}, left behind by a CodeHub that was killed")
    else:
        click.echo(f"no CodeHub is running in {state.settings.data_dir}")
    if not keep_workspaces:
        stopped = asyncio.run(_stop_workspaces(state.settings))
        click.echo(f"stopped {stopped} workspace{'' if stopped == 1 else 's'}")


def _stop_strays(data_dir: Path) -> list[str]:
    """Stop embedded servers that run although no `up` holds the data directory: a killed `up` cannot stop them."""
    servers = (("PostgreSQL", EmbeddedPostgres(data_dir)), ("Valkey", EmbeddedValkey(data_dir)))
    return [name for name, server in servers if server.stop_stray()]


def _end(pid: int) -> None:
    """Send a stop signal and wait until the process has ended."""
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
        # A zombie has ended, although its parent has not collected it yet.
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                raise Transient(f"CodeHub (pid {pid}) did not stop within {_TIMEOUT_S:.0f} s; see its output")
            time.sleep(_POLL_S)
    except psutil.NoSuchProcess:
        return


async def _stop_workspaces(settings: Settings) -> int:
    """Stop every running instance of this installation. A backend that is not available runs none of them."""
    count = 0
    async with open_local_backends(settings) as backends:
        for backend in backends.instances.values():
            try:
                running = [name for name, status in (await backend.list_all()).items() if status.running]
            except BackendDown:
                continue
            await asyncio.gather(*(backend.stop(workspace_id, no_fence) for workspace_id in running))
            count += len(running)
    return count
