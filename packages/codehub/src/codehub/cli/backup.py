"""`codehub backup`: writes an installation to one directory while it runs.

    homes ──► the database, in one snapshot ──► homes created meanwhile ──► archives ──► the manifest, last

A home that is archived after it was copied is in the backup twice; one that was archived before is in its archive. The
manifest names every workspace whose current files are not in the backup: nothing that one user does keeps the others' out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import psycopg
from psycopg.rows import dict_row

from codehub import __version__
from codehub.adapters.embedded.layout import write_private
from codehub.adapters.embedded.postgres import EmbeddedPostgres
from codehub.adapters.filesystem.copy import NO_ROOM, IncompleteCopy, copy_tree
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.filesystem.safe_path import make_private_dir
from codehub.adapters.homes.layout import CTX, inspect_home, sync_below, sync_dir
from codehub.adapters.homes.mark import MARK
from codehub.adapters.objectstore.layout import ID_KEY, META_SUFFIX, OWNER_KEY
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import find_receipt
from codehub.adapters.postgres.errors import translated
from codehub.cli import pg_programs
from codehub.cli.backup_format import (
    ARCHIVES,
    DUMP,
    HOMES,
    IN_A_VOLUME,
    KEPT_FILES,
    MANIFEST,
    Manifest,
    Recorded,
    Row,
    archive_store_of,
    has_home,
    home_in,
    installation_of,
    recorded_archives,
    rows_of,
    stand_in,
)
from codehub.cli.effective_settings import EffectiveSettings, effective_settings
from codehub.cli.output import console, printable
from codehub.cli.progress_line import ProgressLine
from codehub.data_dir import Lock
from codehub.domain.errors import ArchiveCorrupted, Conflict, Incomplete, Invalid, Transient
from codehub.settings import Settings

_COPY_TRIES: Final = 3


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def backup(directory: Path) -> None:
    """Back up this installation to a new DIRECTORY.

    CodeHub and its workspaces keep running. The backup contains the database, the homes and, if they are stored as
    files, the archives. Archives in an object store stay there. `codehub restore` restores it.

    The exit code is 8 if the backup can be restored, but lacks the current files of some workspaces. They are listed.

    \b
    Examples:
      codehub backup /mnt/backup/2026-11-16
      CODEHUB_DATABASE_URL=postgresql://… codehub backup /mnt/backup/today
    """
    state = effective_settings(os.environ)
    _refuse_used(directory)
    try:
        make_private_dir(directory)
        _refuse_used(directory)  # nobody else can put something there any more
        with database_of(state) as url, translated(), ProgressLine() as progress:
            rows, manifest = _copy(state.settings, url, directory, progress)
    except OSError as error:
        raise Transient(f"the backup in {directory} is not complete: {error}") from error
    for row in rows:
        if row.id in manifest.incomplete:
            console(err=True).print(f"warning: {row}: {manifest.incomplete[row.id]}. {_remedy(row)}")
    click.echo(f"{len(rows) - len(manifest.incomplete)} of {len(rows)} workspaces are completely in {directory}")
    if manifest.incomplete:
        raise Incomplete(f"the backup lacks the current files of {len(manifest.incomplete)} workspaces (see above)")


def _remedy(row: Row) -> str:
    if row.has_directory:
        return "Fix that and make another backup"
    return f"To include its files, archive it (codehub ws archive {row.id}) and make another backup"


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


def _copy(settings: Settings, url: str, directory: Path, progress: ProgressLine) -> tuple[list[Row], Manifest]:
    copies = _HomeCopies(settings.homes, directory / HOMES, progress)
    copies.copy_all()
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        exported = connection.execute("SELECT pg_export_snapshot() AS id").fetchone()
        assert exported is not None
        progress.begin("Copying the database")
        pg_programs.dump(url, directory / DUMP, exported["id"], settings.data_dir)
        rows, before = rows_of(connection), recorded_archives(connection)
        installation, store_id = installation_of(connection), archive_store_of(connection)
    copies.copy_new(rows)
    store = Store(settings.archives)
    try:
        outside = not settings.archives.startswith("file:")
        ids = {key: found.decode("utf-8", "replace") for key in (OWNER_KEY, ID_KEY) if (found := store.get(key))}
        failed = {} if outside else _copy_archives(Path(store.place), directory / ARCHIVES, progress)
        kept = store if outside else Store((directory / ARCHIVES).absolute().as_uri())
        # After the archives were copied: a home that was removed until then had its archive recorded before.
        with psycopg.connect(url, row_factory=dict_row) as connection:
            after = recorded_archives(connection)
        stand_ins, incomplete = _judge(rows, before, after, copies, kept)
        if store_id and ids.get(ID_KEY, "").strip() != store_id:
            failed |= {one.workspace_id: _not_the_store(store) for one in before}
        incomplete |= {row.id: failed[row.id] for row in rows if row.id in failed and row.id not in incomplete}
    finally:
        store.close()
    for name in KEPT_FILES:
        if (settings.data_dir / name).exists():
            write_private(directory / name, (settings.data_dir / name).read_text())
    progress.begin("Waiting for the disk")
    sync_below(directory)
    created_at = datetime.now(UTC).isoformat()
    manifest = Manifest(created_at, settings.archives if outside else "", ids, stand_ins, incomplete, installation)
    manifest.write(directory, __version__)
    sync_dir(directory)
    return rows, manifest


@dataclass(slots=True)
class _HomeCopies:
    """Copies homes one by one, each within limits of its own."""

    homes: Path
    target: Path
    progress: ProgressLine
    # By path: why not all of it was copied.
    incomplete: dict[Path, str] = field(default_factory=dict)

    def copy_all(self) -> None:
        self.target.mkdir(mode=0o711)
        if (self.homes / MARK).exists():
            shutil.copy2(self.homes / MARK, self.target / MARK)
        found = sorted(self.homes.glob("users/*/workspaces/*/home"))
        self.progress.begin("Copying homes:", len(found))
        for home in found:
            self.progress.next()
            self._copy(home)

    def copy_new(self, rows: list[Row]) -> None:
        """Copy those that were created, or restored, until the snapshot."""
        for row in rows:
            home = home_in(self.homes, row)
            if row.has_directory and home not in self.incomplete and not has_home(self.target, row):
                self._copy(home)

    def _copy(self, home: Path) -> None:
        target = self.target / home.relative_to(self.homes)
        target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        reason = ""
        for _ in range(_COPY_TRIES):
            remove_tree(target)
            before = _identity(home)
            if before is None:
                return
            reason, again = self._copy_once(home, target)
            if reason and not again:
                break
            if _identity(home) != before:
                # It is being archived, and what was removed already is not in the copy.
                reason = "it was replaced while it was copied"
                remove_tree(target)
            elif not reason:
                return
        if _identity(home) is None:
            remove_tree(target)
            return
        self.incomplete[home] = f"its home could not be copied completely: {_storable(reason)}"

    def _copy_once(self, home: Path, target: Path) -> tuple[str, bool]:
        """Returns why the copy is incomplete, if so, and whether another attempt may help."""
        try:
            copy_tree(home, target, self.progress.add)
        except IncompleteCopy as error:
            reason, again = str(error), error.changed
        except OSError as error:
            reason, again = error.strerror or str(error), False
            if error.errno in NO_ROOM:
                reason = f"no space left for it in {self.target.parent}"
        else:
            return "", False
        # Without its mark it is never taken for a complete home.
        (target / CTX).unlink(missing_ok=True)
        if reason.startswith("no space"):
            # Its user decides how much it takes there (holes, shared data): it must leave room for the others.
            with contextlib.suppress(OSError):
                remove_tree(target)
        return reason, again


def _identity(home: Path) -> tuple[int, int, str] | None:
    """Which home this is: another directory, or another incarnation, is another home. None if there is none."""
    try:
        found = os.lstat(home)
    except FileNotFoundError:
        return None
    ctx = inspect_home(home).ctx
    return found.st_dev, found.st_ino, "" if ctx is None else ctx.incarnation


def _storable(text: str) -> str:
    """Without control characters and what is no text: names of files are in it."""
    return printable(text.encode("utf-8", "backslashreplace").decode())


def _copy_archives(root: Path, target: Path, progress: ProgressLine) -> dict[str, str]:
    """Copy the committed archives, each one's data before its meta, so that an incomplete copy never looks complete.

    Return why archives could not be copied, by workspace.
    """
    target.mkdir(mode=0o700)
    for name in (OWNER_KEY, ID_KEY):
        if (root / name).exists():
            shutil.copy2(root / name, target / name)
    found = sorted(root.glob(f"*/*/home.tar.zst{META_SUFFIX}"))
    progress.begin("Copying archives:", len(found))
    failed = {}
    for meta in found:
        progress.next()
        data = meta.with_name(meta.name.removesuffix(META_SUFFIX))
        place = target / meta.parent.relative_to(root)
        try:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(data, place / data.name)
            shutil.copy2(meta, place / meta.name)
            progress.add((place / data.name).stat().st_size)
        except FileNotFoundError:
            continue  # removed by the GC meanwhile
        except OSError as error:
            remove_tree(place)
            failed[meta.parent.parent.name] = f"its archive {meta.parent.name} could not be copied: {error.strerror}"
    return failed


def _judge(
    rows: list[Row], before: list[Recorded], after: list[Recorded], copies: _HomeCopies, kept: Store
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the archives that stand in for homes, and why the current files of a workspace are not in the backup."""
    stand_ins, incomplete = {}, {}
    for row in rows:
        if row.incarnation is None:
            if row.archive_key is not None and not _is_kept(kept, row.archive_key, row.archive_sha256):
                incomplete[row.id] = f"its archive {row.archive_key} is missing or damaged"
            continue
        if row.has_directory and has_home(copies.target, row):
            continue
        key = stand_in(row, before, after)
        if key is not None and _is_kept(kept, key):
            stand_ins[row.id] = key
        elif not row.has_directory:
            incomplete[row.id] = IN_A_VOLUME
        else:
            home = home_in(copies.homes, row)
            incomplete[row.id] = copies.incomplete.get(home) or _unlike(row, home)
    return stand_ins, incomplete


def _not_the_store(store: Store) -> str:
    return (
        f"its archives are not in {store.place}, which is not the archive store that it was: is its disk mounted, and "
        "CODEHUB_ARCHIVE_URL that of `codehub up`?"
    )


def _unlike(row: Row, home: Path) -> str:
    if not home.exists():
        return f"its home {home} does not exist"
    return f"its home {home} is not the one that the database names: its {CTX} is missing, damaged or another's"


def _is_kept(store: Store, key: str, sha256: str | None = None) -> bool:
    """Return whether an archive is there: whole, and the one that the database names."""
    try:
        receipt = find_receipt(store, key)
    except ArchiveCorrupted:
        return False
    return receipt is not None and sha256 in (None, receipt.sha256)
