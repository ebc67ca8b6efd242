"""`codehub migrate`."""

from __future__ import annotations

import asyncio
import os

import click

from codehub.adapters.postgres import migrate as migrations
from codehub.cli.effective_settings import effective_settings


@click.command()
@click.option("--check", is_flag=True, help="Only check whether the schema is outdated; the exit code is 1 if it is.")
def migrate(check: bool) -> None:
    """Update the database schema.

    Safe to run several times at once, and while processes of the previous version are running.

    \b
    Example:
      CODEHUB_DATABASE_URL=postgresql://… codehub migrate
    """
    url = effective_settings(os.environ).require_database()
    if check:
        current = asyncio.run(migrations.current_version(url))
        click.echo(f"the database is at version {current}, this CodeHub at {migrations.latest()}")
        raise click.exceptions.Exit(0 if current >= migrations.latest() else 1)
    for migration in asyncio.run(migrations.migrate(url)):
        click.echo(f"applied {migration.version:04d} {migration.name}")
    click.echo(f"the database is at version {migrations.latest()}")
