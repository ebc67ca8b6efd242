"""`codehub restore`: restores a backup into an empty installation.

If the snapshot names a home that the backup contains only as an archive (it was archived while the backup ran), the
workspace continues from that archive. A workspace whose current files are not there gets the error DataLost: older or
partial files never replace them without a decision of an administrator.

A file in the data directory (`UNFINISHED_RESTORE`) exists from before the first change until after the last. While it does,
`codehub up` refuses to start, and the same restore, to the same places, can be repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
import psycopg
from psycopg.rows import dict_row

from codehub.adapters.embedded.layout import write_private
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.filesystem.safe_path import check_dir
from codehub.adapters.homes.layout import sync_below, sync_dir
from codehub.adapters.homes.mark import MARK
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.errors import translated
from codehub.adapters.postgres.migrate import migrate
from codehub.cli import pg_programs
from codehub.cli.backup_format import ARCHIVES, DUMP, HOMES, KEPT_FILES, Manifest, installation_of, read_manifest
from codehub.cli.output import console
from codehub.cli.progress_line import ProgressLine
from codehub.cli.restore_files import copy_archives, copy_homes, refuse_foreign_store
from codehub.cli.restore_rows import Outcome, settle_rows
from codehub.cli.stack import datadir
from codehub.data_dir import Lock
from codehub.domain.errors import Conflict, Incomplete, Invalid, Transient
from codehub.settings import Settings, load_settings


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--accept-incomplete",
    is_flag=True,
    help="Use homes that the backup contains only in part. Without it, their workspaces get the error DataLost.",
)
def restore(directory: Path, accept_incomplete: bool) -> None:
    """Restore a backup made by `codehub backup` into an empty installation.

    CODEHUB_DATA_DIR, CODEHUB_DATABASE_URL, CODEHUB_HOMES_DIR and CODEHUB_ARCHIVE_URL name the target, as for `codehub up`.
    CodeHub must not run there yet. A restore that was interrupted is repeated with the same command.

    The exit code is 8 if everything in the backup was restored, but it lacks the current files of some workspaces. They
    are listed.

    \b
    Examples:
      codehub restore /mnt/backup/2026-11-16 && codehub up
      CODEHUB_DATA_DIR=/srv/codehub codehub restore /mnt/backup/today
    """
    check_dir(directory)
    manifest = read_manifest(directory)
    settings = load_settings(os.environ)
    datadir.prepare(settings.data_dir)
    try:
        with (
            Lock(settings.data_dir),
            _database(settings) as url,
            translated(),
            ProgressLine() as progress,
        ):
            outcome = _restore(settings, url, directory, manifest, accept_incomplete, progress)
    except OSError as error:
        raise Transient(f"{error}. The restore is not complete: repeat it.") from error
    for text in outcome.accepted:
        console(err=True).print(f"warning: {text}")
    for text in outcome.lost:
        console(err=True).print(f"lost: {text}")
    click.echo(f"restored from {directory}; workspaces that continue from their archives: {outcome.from_archives}")
    if outcome.lost:
        raise Incomplete(
            f"the current files of {len(outcome.lost)} workspaces are not there (see above): they have the error DataLost. "
            "An administrator continues from an archive with `codehub admin recover`"
        )


def _restore(
    settings: Settings,
    url: str,
    directory: Path,
    manifest: Manifest,
    accept_incomplete: bool,
    progress: ProgressLine,
) -> Outcome:
    """The database is loaded last, in one transaction: no coordinator sees a row before its files are there."""
    unfinished = settings.data_dir / datadir.UNFINISHED_RESTORE
    loaded = _has_codehub(url)
    target = {
        "the backup": manifest.digest,
        "CODEHUB_HOMES_DIR": str(settings.homes.absolute()),
        "CODEHUB_ARCHIVE_URL": settings.archives,
        "CODEHUB_DATABASE_URL": _identity(url),
    }
    store = Store(settings.archives)
    try:
        if not unfinished.exists():
            _refuse_used(settings, directory, manifest, store, loaded)
            write_private(unfinished, f"{directory.absolute()}\n{json.dumps(target)}\n")
            sync_dir(settings.data_dir)
        else:
            _refuse_another(unfinished, target)
            if loaded:
                _refuse_other_installation(url, manifest)
        if not loaded:
            copy_homes(directory / HOMES, settings.homes, progress)
            copy_archives(directory / ARCHIVES, store, progress)
            for name in KEPT_FILES:
                if (directory / name).exists():
                    write_private(settings.data_dir / name, (directory / name).read_text())
            progress.begin("Waiting for the disk")
            sync_below(settings.homes)
            progress.begin("Loading the database")
            pg_programs.load(url, directory / DUMP, settings.data_dir)
        asyncio.run(migrate(url))
        outcome = settle_rows(url, settings.homes, store, manifest, accept_incomplete=accept_incomplete)
    finally:
        store.close()
    sync_below(settings.homes)
    sync_dir(settings.data_dir)
    unfinished.unlink()
    return outcome


def _refuse_used(settings: Settings, directory: Path, manifest: Manifest, store: Store, loaded: bool) -> None:
    if loaded:
        raise Conflict("the database has a CodeHub in it already: restore into an empty one")
    if any(settings.homes.glob("users/*")):
        raise Conflict(f"{settings.homes} has homes already: restore into an empty installation")
    for name, mine, saved in (
        ("homes' directory", settings.homes / MARK, directory / HOMES / MARK),
        *(("data directory", settings.data_dir / name, directory / name) for name in KEPT_FILES),
    ):
        if mine.exists() and saved.exists() and mine.read_bytes() != saved.read_bytes():
            raise Conflict(f"{mine} is of another installation: move it away, or restore into another {name}")
    if manifest.archives_outside and settings.archives.startswith("file:"):
        raise Invalid(
            f"the archives of this backup are in {manifest.archives_outside}: set CODEHUB_ARCHIVE_URL to that, or to a copy"
        )
    refuse_foreign_store(directory / ARCHIVES, manifest, store)


def _refuse_another(unfinished: Path, target: dict[str, str]) -> None:
    first, _, rest = unfinished.read_text().partition("\n")
    try:
        began: dict[str, str] = json.loads(rest)
        differ = [name for name, value in target.items() if began.get(name) != value]
    except (ValueError, AttributeError):
        differ = ["the version of CodeHub"]
    if differ:
        raise Conflict(
            f"an earlier restore into {unfinished.parent}, of {first}, was interrupted, and this one has another target "
            f"({', '.join(differ)}): repeat that one with its settings, or start with an empty data directory, an empty "
            "database and empty directories for homes and archives"
        )


def _refuse_other_installation(url: str, manifest: Manifest) -> None:
    """What was loaded may also be an empty CodeHub, created since by `codehub migrate`."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        if installation_of(connection) != manifest.installation:
            raise Conflict("the database has another CodeHub in it since the restore was interrupted: empty it")


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.database_url:
        yield settings.database_url
        return
    server = EmbeddedPostgres(settings.data_dir, user=settings.server_user)
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()


def _has_codehub(url: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regclass('workspaces') IS NOT NULL").fetchone()
    return found is not None and bool(found[0])


def _identity(url: str) -> str:
    """Which database it is, however it is reached."""
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            found = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        except psycopg.errors.InsufficientPrivilege:
            found = (urlsplit(url).hostname or "",)
        name = connection.execute("SELECT current_database()").fetchone()
    assert found is not None
    assert name is not None
    return f"{found[0]}/{name[0]}"
