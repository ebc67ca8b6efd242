"""`codehub restore`: restores a backup into an empty installation.

If the snapshot names a home that the backup contains only as an archive (it was archived while the backup ran), the
workspace continues from that archive: existing data is never marked as lost.

A file in the data directory (`UNFINISHED_RESTORE`) exists from before the first change until after the last. While it does,
`codehub up` refuses to start, and the same restore can be repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from codehub.adapters.embedded.layout import write_private
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.filesystem.copy import IncompleteCopy, copy_tree, sync_disk
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.errors import translated
from codehub.adapters.postgres.migrate import migrate
from codehub.cli import pg_programs
from codehub.cli.backup import _ROWS, ARCHIVES, DUMP, HOMES, KEPT_FILES, MANIFEST, Row, has_directory, has_home
from codehub.cli.stack import datadir
from codehub.data_dir import Lock
from codehub.domain.errors import Conflict, Invalid, Transient
from codehub.domain.ids import time_of
from codehub.ports.homes import ArchiveReceipt
from codehub.settings import Settings, load_settings


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def restore(directory: Path) -> None:
    """Restore a backup made by `codehub backup` into an empty installation.

    CODEHUB_DATA_DIR, CODEHUB_DATABASE_URL, CODEHUB_HOMES_DIR and CODEHUB_ARCHIVE_URL name the target, as for `codehub up`.
    CodeHub must not run there yet. A restore that was interrupted is repeated with the same command.

    \b
    Examples:
      codehub restore /mnt/backup/2026-11-16 && codehub up
      CODEHUB_DATA_DIR=/srv/codehub codehub restore /mnt/backup/today
    """
    if not (directory / MANIFEST).exists():
        raise Invalid(f"{directory} is not a complete backup: {MANIFEST}, which is written last, is missing")
    settings = load_settings(os.environ)
    datadir.prepare(settings.data_dir)
    try:
        with Lock(settings.data_dir), _database(settings) as url, translated():
            changed = _restore(settings, url, directory)
    except OSError as error:
        raise Transient(f"{error}. The restore is not complete: repeat it.") from error
    click.echo(f"restored from {directory}; workspaces that continue from their archives: {changed}")


def _restore(settings: Settings, url: str, directory: Path) -> int:
    """The database is loaded last, in one transaction: no coordinator sees a row before its files are there."""
    unfinished = settings.data_dir / datadir.UNFINISHED_RESTORE
    manifest = (directory / MANIFEST).read_text()
    loaded = _has_codehub(url)
    if not unfinished.exists():
        _refuse_used(settings, loaded)
        write_private(unfinished, f"{directory.absolute()}\n{manifest}")
    elif unfinished.read_text().partition("\n")[2] != manifest:
        raise Conflict(
            f"an earlier restore into {settings.data_dir} was interrupted: repeat that one ({unfinished} names it), "
            "or start with an empty data directory and an empty database"
        )
    if not loaded:
        _copy_files(settings, directory)
        pg_programs.load(url, directory / DUMP, settings.data_dir)
    asyncio.run(migrate(url))
    changed = _go_on_from_archives(url, settings)
    unfinished.unlink()
    return changed


def _copy_files(settings: Settings, directory: Path) -> None:
    remove_tree(settings.homes / "users")  # of an interrupted restore; there were none before
    _copy(directory / HOMES, settings.homes)
    if (directory / ARCHIVES).exists() and settings.archives.startswith("file:"):
        _copy(directory / ARCHIVES, Path(Store(settings.archives).place))
    for name in KEPT_FILES:
        if (directory / name).exists():
            write_private(settings.data_dir / name, (directory / name).read_text())


def _refuse_used(settings: Settings, loaded: bool) -> None:
    if any(settings.homes.glob("users/*")):
        raise Conflict(f"{settings.homes} has homes already: restore into an empty installation")
    if loaded:
        raise Conflict("the database has a CodeHub in it already: restore into an empty one")


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


def _copy(source: Path, target: Path) -> None:
    target.mkdir(mode=0o711, parents=True, exist_ok=True)
    try:
        copy_tree(source, target)
    except (OSError, IncompleteCopy) as error:
        raise Transient(
            f"{source} could not be copied to {target}: {error}. The restore is not complete: repeat it."
        ) from error
    sync_disk(target)


def _go_on_from_archives(url: str, settings: Settings) -> int:
    """Assign the newest archive, if any, to each workspace whose recorded home is missing."""
    store = Store(settings.archives)
    changed = 0
    try:
        archives = ObjectArchives(store)
        with psycopg.connect(url, row_factory=dict_row) as connection:
            for found in connection.execute(_ROWS).fetchall():
                row = Row(**found)
                if row.incarnation is None or not has_directory(row) or has_home(settings.homes, row):
                    continue
                receipts = asyncio.run(archives.receipts(row.id))
                if receipts:
                    _take_archive(connection, row, max(receipts, key=lambda one: one.op_id))
                    changed += 1
    finally:
        store.close()
    return changed


# Lets a workspace continue from an archive instead of its missing home.
_CONTINUE_FROM_ARCHIVE = """
    UPDATE workspaces SET archive_key = %s, home_ctx = NULL, operation = 'NONE', op_started_at = NULL,
        progress = NULL
    WHERE id = %s
"""
# Records an archive, unless it is recorded already.
_RECORD_ARCHIVE = """
    INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""


def _take_archive(connection: psycopg.Connection[dict[str, object]], row: Row, receipt: ArchiveReceipt) -> None:
    now = datetime.now(UTC)
    connection.execute(_CONTINUE_FROM_ARCHIVE, [receipt.archive_key, row.id])
    connection.execute(
        _RECORD_ARCHIVE,
        [row.id, receipt.archive_key, receipt.op_id, time_of(receipt.op_id) or now, receipt.bytes, receipt.sha256],
    )
    connection.execute(
        "INSERT INTO workspace_events (workspace_id, at, kind, message, detail) VALUES (%s, %s, %s, %s, %s)",
        [
            row.id,
            now,
            "restored",
            "Restored from a backup: its home continues from the archive made during the backup",
            Jsonb({"archive_key": receipt.archive_key}),
        ],
    )
