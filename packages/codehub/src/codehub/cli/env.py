"""`codehub env`."""

from __future__ import annotations

import os

import click

from codehub.cli.effective_settings import effective_settings
from codehub.settings import NAMES, Settings


@click.command()
def env() -> None:
    """Print the effective settings as NAME=value lines.

    The output contains secrets. Do not show it to others.

    \b
    Examples:
      psql "$(codehub env | sed -n 's/^CODEHUB_DATABASE_URL=//p')"
      env $(codehub env) codehub serve coordinator
    """
    for name, value in values_of(effective_settings(os.environ).settings).items():
        click.echo(f"{name}={value}")


def values_of(settings: Settings) -> dict[str, str]:
    """Return every effective setting by its environment name, without empty ones. A node's name is not shared."""
    values = {name: _text(getattr(settings, field)) for name, field in NAMES.items() if name != "COORDINATOR_NODE_ID"}
    values["CODEHUB_ARCHIVE_URL"] = settings.archives
    values["CODEHUB_PUBLIC_BASE_URL"] = settings.public_url
    values["CODEHUB_WORKSPACE_BASE_URL"] = settings.workspace_url
    values["CODEHUB_HOMES_DIR"] = str(settings.homes)
    # A given password is only for creating the admin once; nothing needs it afterwards.
    del values["CODEHUB_ADMIN_PASSWORD"]
    return {name: value for name, value in values.items() if value}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value)
