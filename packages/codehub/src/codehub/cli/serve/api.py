"""`codehub serve api`: the API and the dashboard."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import click

from codehub.adapters.front_socket import listen_front
from codehub.adapters.git_remote import GitRemote
from codehub.adapters.ide.xterm import XtermInstall
from codehub.api.app import create_app
from codehub.api.config import ApiDeps, api_config
from codehub.api.server import serve_api
from codehub.cli.serve.part import FD_HELP, inherited, part_settings, run_part
from codehub.cli.serve.user_secrets import git_ca_of, secret_box
from codehub.cli.stack.ports import listen
from codehub.cli.stack.receipts import ReceiptsView
from codehub.ports.archives import ArchiveReceipts
from codehub.services.workspaces import BackendChoice
from codehub.settings import Settings
from codehub.wiring import World, open_world

_NO_SECOND_USER = (
    "workspaces cannot be kept apart on this machine (`codehub doctor` says why): install bubblewrap and slirp4netns, or "
    "use CODEHUB_RUNTIME=docker, before adding a second user"
)


@click.command()
@click.option("--fd", type=int, help=FD_HELP, hidden=True)
@click.option("--receipts", type=Path, help="Ask this socket which archives there are.", hidden=True)
def api(fd: int | None, receipts: Path | None) -> None:
    """Run the API and the dashboard on CODEHUB_API_BIND.

    If there is no user yet, the first one is created from CODEHUB_ADMIN_USERNAME and
    CODEHUB_ADMIN_PASSWORD.

    \b
    Example:
      CODEHUB_API_BIND=0.0.0.0:8000 codehub serve api
    """
    settings = part_settings()
    listening = inherited(fd) or listen(settings.api_bind, explicit=True, name="CODEHUB_API_BIND")
    listeners = [listening]
    if settings.api_socket is not None:
        listeners.append(listen_front(settings.api_socket, "CODEHUB_API_SOCKET"))
    run_part(_serve(settings, listeners, receipts))


async def _serve(settings: Settings, listeners: list[socket.socket], receipts: Path | None) -> None:
    async with open_world(settings, name="api", chooses=True) as world:
        app = create_app(api_deps(world, None if receipts is None else ReceiptsView(receipts)))
        if settings.admin_password:
            # The first user of an installation without `codehub up`, which would create it otherwise.
            await app.state.context.users.ensure_first_admin(settings.admin_username, settings.admin_password)
        await serve_api(app, listeners)


def api_deps(world: World, receipts: ArchiveReceipts | None = None) -> ApiDeps:
    """`receipts` replaces the store for an API that may not read it."""
    backends = world.backends

    async def choose() -> BackendChoice:
        chosen = backends.instances[backends.instance_backend]
        return BackendChoice(chosen.name, backends.storage_backend, chosen.runs)

    return ApiDeps(
        database=world.database,
        bus=world.bus,
        config=replace(
            api_config(world.settings),
            folder_addresses={name: profile.folder_address for name, profile in world.catalog.profiles.items()},
        ),
        instances=backends.instances,
        archives=receipts or backends.archives,
        choose_backends=choose,
        profiles=world.catalog.profiles,
        secret_box=secret_box(world.settings),
        git_remote=GitRemote(world.settings.instance_networks, git_ca_of(world.settings)),
        terminal_program=XtermInstall(world.settings.data_dir / "ide"),
        second_user_refused=lambda: None if backends.isolates_users() else _NO_SECOND_USER,
    )
