"""`codehub migrate`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import click

from codehub.adapters.postgres import migrate as migrations
from codehub.cli.effective_settings import effective_settings
from codehub.domain.errors import BackendDown

_POLL_INTERVAL_S: Final = 1.0


@click.command()
@click.option("--check", is_flag=True, help="Only check whether the schema is outdated; the exit code is 1 if it is.")
@click.option(
    "--wait", "wait_s", type=float, default=0.0, help="Wait this many seconds for a database that does not answer."
)
def migrate(check: bool, wait_s: float) -> None:
    """Update the database schema.

    Safe to run several times in parallel, and while processes of the previous version are running.

    \b
    Example:
      CODEHUB_DATABASE_URL=postgresql://… codehub migrate
    """
    url = effective_settings(os.environ).require_database()
    if check:
        current = asyncio.run(migrations.current_version(url))
        click.echo(f"the database is at version {current}, this CodeHub at {migrations.latest()}")
        raise click.exceptions.Exit(0 if current >= migrations.latest() else 1)
    for migration in asyncio.run(_migrated(url, wait_s)):
        click.echo(f"applied {migration.version:04d} {migration.name}")
    click.echo(f"the database is at version {migrations.latest()}")


async def _migrated(url: str, wait_s: float) -> Sequence[migrations.Migration]:
    """Return the applied migrations, once the database answers."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait_s
    while True:
        try:
            return await migrations.migrate(url)
        except BackendDown:
            if loop.time() >= give_up:
                raise
        await asyncio.sleep(_POLL_INTERVAL_S)
