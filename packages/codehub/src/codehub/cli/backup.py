"""`codehub backup`: writes a complete installation to one directory while it runs.

    homes ──► the database, in one snapshot ──► homes created meanwhile ──► archives ──► the manifest, last

A home that is archived after it was copied is in the backup twice; one that was archived before is in its archive. The
backup therefore contains the home or the archive of every workspace in the snapshot; this is checked before the manifest is
written.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import psycopg
from psycopg.rows import dict_row

from codehub import __version__
from codehub.adapters.embedded.layout import write_private
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.filesystem.copy import IncompleteCopy, copy_tree, sync_disk
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.layout import inspect_home
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import MARK
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.layout import ID_KEY, META_SUFFIX, OWNER_KEY
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.errors import translated
from codehub.cli import pg_programs
from codehub.cli.effective_settings import EffectiveSettings, effective_settings
from codehub.data_dir import Lock
from codehub.domain.errors import Conflict, Invalid, Transient
from codehub.settings import Settings

MANIFEST: Final = "codehub-backup.json"
DUMP: Final = "database.dump"
HOMES: Final = "homes"
ARCHIVES: Final = "archives"
# Files of the data directory that are kept in addition to the database.
KEPT_FILES: Final = ("admin-password", "installation-id", "secrets.key")

_COPY_TRIES = 3
# Lists the live workspaces with what is needed to find their homes and archives.
_ROWS = """
    SELECT id, name, home_store_key, storage_backend, home_ctx ->> 'incarnation' AS incarnation, archive_key
    FROM workspaces WHERE deleted_at IS NULL ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    name: str
    home_store_key: str
    storage_backend: str
    incarnation: str | None
    archive_key: str | None


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def backup(directory: Path) -> None:
    """Back up this installation to a new DIRECTORY.

    CodeHub and its workspaces keep running. The backup contains the database, the homes and, if they are stored as
    files, the archives. Archives in an object store stay there. `codehub restore` restores it.

    \b
    Examples:
      codehub backup /mnt/backup/2026-11-16
      CODEHUB_DATABASE_URL=postgresql://… codehub backup /mnt/backup/today
    """
    state = effective_settings(os.environ)
    _refuse_used(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    try:
        with database_of(state) as url, translated():
            rows = _copy(state.settings, url, directory)
    except OSError as error:
        raise Transient(f"the backup in {directory} is not complete: {error}") from error
    for row in filter(is_elsewhere, rows):
        click.echo(
            f"warning: the home of {row.name} ({row.id}) is a volume and not in the backup, only archives of it are. "
            f"To include its files, archive it (codehub ws archive {row.id}) and make another backup",
            err=True,
        )
    click.echo(f"{len(rows)} workspaces are in {directory}")


def _refuse_used(directory: Path) -> None:
    if not directory.exists() or not any(directory.iterdir()):
        return
    if (directory / HOMES).exists() and not (directory / MANIFEST).exists():
        raise Conflict(f"{directory} has a backup that was not completed: remove it, or name a new directory")
    raise Conflict(f"{directory} is not empty: name a new directory")


@contextmanager
def database_of(state: EffectiveSettings) -> Iterator[str]:
    """Return the database's URL. Starts the embedded database if CodeHub is not running."""
    settings = state.settings
    if settings.database_url:
        yield settings.database_url
        return
    if not (settings.data_dir / "postgres").exists():
        raise Invalid(f"there is no CodeHub at {settings.data_dir}, and CODEHUB_DATABASE_URL is not set")
    with Lock(settings.data_dir):
        server = EmbeddedPostgres(settings.data_dir, user=settings.server_user)
        server.start()
        try:
            yield server.url()
        finally:
            server.stop()


def _copy(settings: Settings, url: str, directory: Path) -> list[Row]:
    _copy_homes(settings.homes, directory / HOMES)
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        exported = connection.execute("SELECT pg_export_snapshot() AS id").fetchone()
        assert exported is not None
        pg_programs.dump(url, directory / DUMP, exported["id"], settings.data_dir)
        rows = [Row(**found) for found in connection.execute(_ROWS).fetchall()]
    for row in rows:
        if has_directory(row) and not has_home(directory / HOMES, row):
            _copy_home(settings.homes / row.home_store_key, directory / HOMES / row.home_store_key)
    store = Store(settings.archives)
    try:
        outside = not settings.archives.startswith("file:")
        if not outside:
            _copy_archives(Path(store.place), directory / ARCHIVES)
        missing = _missing(rows, directory, store if outside else None)
    finally:
        store.close()
    for name in KEPT_FILES:
        if (settings.data_dir / name).exists():
            write_private(directory / name, (settings.data_dir / name).read_text())
    if missing:
        raise Transient(f"neither home nor archive could be copied of: {', '.join(missing)}. Run it again.")
    sync_disk(directory)
    _write_manifest(directory, settings.archives if outside else "")
    return rows


def _copy_homes(homes: Path, target: Path) -> None:
    target.mkdir(mode=0o711)
    if (homes / MARK).exists():
        shutil.copy2(homes / MARK, target / MARK)
    for home in sorted(homes.glob("users/*/workspaces/*/home")):
        _copy_home(home, target / home.relative_to(homes))


def _copy_home(home: Path, target: Path) -> None:
    """Copy a home in its current state.

    A file that is removed during the copy is skipped; any other failure is an error.
    """
    if not home.is_dir():
        return
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    reason = ""
    for _ in range(_COPY_TRIES):
        remove_tree(target)
        try:
            copy_tree(home, target)
        except IncompleteCopy as error:
            reason = str(error)
            continue
        except OSError as error:
            raise Transient(f"{home} could not be copied: {error}") from error
        return
    # Its owner alone can cause this, and must not keep everybody else from being backed up.
    click.echo(f"warning: {home} is incomplete: {reason} ({_COPY_TRIES} attempts)", err=True)


def _copy_archives(root: Path, target: Path) -> None:
    """Copy the committed archives, each one's data before its meta, so that an incomplete copy never looks complete."""
    target.mkdir(mode=0o700)
    for name in (OWNER_KEY, ID_KEY):
        if (root / name).exists():
            shutil.copy2(root / name, target / name)
    for meta in sorted(root.glob(f"*/*/home.tar.zst{META_SUFFIX}")):
        data = meta.with_name(meta.name.removesuffix(META_SUFFIX))
        place = target / meta.parent.relative_to(root)
        place.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(data, place / data.name)
            shutil.copy2(meta, place / meta.name)
        except FileNotFoundError:
            continue  # removed by the GC meanwhile


def has_directory(row: Row) -> bool:
    """Return whether the home is a directory, not a volume of an engine or a cluster."""
    return row.storage_backend == LocalDirHomes.name


def is_elsewhere(row: Row) -> bool:
    """Return whether the workspace has a home that a backup cannot contain."""
    return row.incarnation is not None and not has_directory(row)


def has_home(homes: Path, row: Row) -> bool:
    """Return whether this directory contains exactly the incarnation that the database names."""
    found = inspect_home(homes / row.home_store_key)
    return row.incarnation is not None and found.ctx is not None and found.ctx.incarnation == row.incarnation


def _missing(rows: list[Row], directory: Path, outside: Store | None) -> list[str]:
    """Return the workspaces that have data according to the database, but none in the backup."""
    store = outside or Store((directory / ARCHIVES).absolute().as_uri())
    archives = ObjectArchives(store)
    missing = []
    for row in rows:
        if row.incarnation is None and row.archive_key is None:
            continue
        if row.incarnation is not None and has_home(directory / HOMES, row):
            continue
        if not asyncio.run(archives.receipts(row.id)):
            missing.append(f"{row.name} ({row.id})")
    return missing


def _write_manifest(directory: Path, archives_outside: str) -> None:
    manifest: Mapping[str, Any] = {
        "codehub": __version__,
        "created_at": datetime.now(UTC).isoformat(),
        "archives_outside": archives_outside,
    }
    write_private(directory / MANIFEST, json.dumps(manifest, indent=1) + "\n")
