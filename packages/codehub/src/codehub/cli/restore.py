"""`codehub restore`: restores a backup into an empty installation.

If the snapshot names a home that the backup contains only as an archive (it was archived while the backup ran), the
workspace continues from that archive: existing data is never marked as lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
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
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.migrate import migrate
from codehub.cli import pg_programs
from codehub.cli.backup import _ROWS, ARCHIVES, DUMP, HOMES, KEPT_FILES, MANIFEST, Row, has_directory, has_home
from codehub.cli.stack import datadir
from codehub.domain.errors import Conflict, Invalid, Transient
from codehub.domain.ids import time_of
from codehub.ports.homes import ArchiveReceipt
from codehub.settings import Settings, load_settings


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def restore(directory: Path) -> None:
    """Restore a backup made by `codehub backup` into an empty installation.

    CODEHUB_DATA_DIR, CODEHUB_DATABASE_URL, CODEHUB_HOMES_DIR and CODEHUB_ARCHIVE_URL name the target, as for `codehub up`.
    CodeHub must not run there yet.

    \b
    Examples:
      codehub restore /mnt/backup/2026-11-16 && codehub up
      CODEHUB_DATA_DIR=/srv/codehub codehub restore /mnt/backup/today
    """
    if not (directory / MANIFEST).exists():
        raise Invalid(f"{directory} is no whole backup: {MANIFEST} is missing, which is written last")
    settings = load_settings(os.environ)
    datadir.prepare(settings.data_dir)
    with datadir.Lock(settings.data_dir):
        if any(settings.homes.glob("users/*")):
            raise Conflict(f"{settings.homes} has homes already: restore into an empty installation")
        with _empty_database(settings) as url:
            pg_programs.load(url, directory / DUMP, settings.data_dir)
            asyncio.run(migrate(url))
            _copy_tree(directory / HOMES, settings.homes)
            if (directory / ARCHIVES).exists() and settings.archives.startswith("file:"):
                _copy_tree(directory / ARCHIVES, Path(Store(settings.archives).place))
            changed = _go_on_from_archives(url, settings)
        for name in KEPT_FILES:
            if (directory / name).exists():
                write_private(settings.data_dir / name, (directory / name).read_text())
    click.echo(f"restored from {directory}; workspaces that continue from their archives: {changed}")


@contextmanager
def _empty_database(settings: Settings) -> Iterator[str]:
    server = None if settings.database_url else EmbeddedPostgres(settings.data_dir, user=settings.server_user)
    if server is not None:
        server.start()
    try:
        url = settings.database_url if server is None else server.url()
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT to_regclass('workspaces') IS NULL").fetchone()
        if found is None or not found[0]:
            raise Conflict("the database has a CodeHub in it already: restore into an empty one")
        yield url
    finally:
        if server is not None:
            server.stop()


def _copy_tree(source: Path, target: Path) -> None:
    target.mkdir(mode=0o711, parents=True, exist_ok=True)
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", "--", f"{source}/.", str(target)],
        env={"PATH": os.defpath, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise Transient(f"{source} could not be copied to {target}: {done.stderr.strip()[:500]}")
    shutil.copystat(source, target)


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


def _take_archive(connection: psycopg.Connection[dict[str, object]], row: Row, receipt: ArchiveReceipt) -> None:
    now = datetime.now(UTC)
    connection.execute(
        "UPDATE workspaces SET archive_key = %s, home_ctx = NULL, operation = 'NONE', op_started_at = NULL,"
        " progress = NULL WHERE id = %s",
        [receipt.archive_key, row.id],
    )
    connection.execute(
        "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
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
