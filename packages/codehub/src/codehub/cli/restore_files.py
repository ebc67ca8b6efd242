"""Copies the homes and archives of a backup to where an empty installation will have them.

Nothing that is not of this restore is overwritten or removed.
"""

from __future__ import annotations

from pathlib import Path

from codehub.adapters.filesystem.copy import NO_ROOM, IncompleteCopy, copy_tree
from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.layout import CTX, PASS_THROUGH, make_way
from codehub.adapters.homes.mark import MARK
from codehub.adapters.objectstore import files
from codehub.adapters.objectstore.layout import ID_KEY, META_SUFFIX, OWNER_KEY
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import find_receipt
from codehub.cli.backup_format import Manifest
from codehub.cli.output import console
from codehub.cli.progress_line import ProgressLine
from codehub.domain.errors import ArchiveCorrupted, Conflict, OutOfSpace
from codehub.ports.homes import ArchiveReceipt


def copy_homes(source: Path, homes: Path, progress: ProgressLine) -> None:
    """Copy each home within limits of its own. One that cannot be copied completely is there without its mark."""
    homes.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
    if (source / MARK).exists():
        (homes / MARK).write_bytes((source / MARK).read_bytes())
    found = sorted(source.glob("users/*/workspaces/*/home"))
    progress.begin("Restoring homes:", len(found))
    for home in found:
        progress.next()
        target = homes / home.relative_to(source)
        make_way(homes, target.parent)
        remove_tree(target)  # of an interrupted restore; there was none before
        try:
            copy_tree(home, target, progress.add)
        except (OSError, IncompleteCopy) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise OutOfSpace(
                    f"{home} could not be copied to {target}: {error.strerror}. The restore is not complete: repeat it."
                ) from error
            (target / CTX).unlink(missing_ok=True)
            progress.clear()
            console(err=True).print(f"warning: {home} could not be restored completely: {error}")


def refuse_foreign_store(saved: Path, manifest: Manifest, store: Store) -> None:
    """Raise Conflict unless the archive store is empty, or was that of the backup."""
    ids = _ids_of(saved, manifest)
    there = {key: (store.get(key) or b"").decode("utf-8", "replace").strip() for key in (OWNER_KEY, ID_KEY)}
    if not any(there.values()) and next(iter(store.paths()), None) is None:
        return
    if not any(ids.values()) or any(there[key] != found for key, found in ids.items()):
        raise Conflict(
            f"the archive store {store.place} has files of another installation: set CODEHUB_ARCHIVE_URL to an empty one, "
            "or to the one that was backed up"
        )


def _ids_of(saved: Path, manifest: Manifest) -> dict[str, str]:
    """Return what the store had. Of an object store, a backup of an older version knows only whose it was."""
    if manifest.store_ids:
        return {key: manifest.store_ids.get(key, "").strip() for key in (OWNER_KEY, ID_KEY)}
    ids = {
        key: (saved / key).read_text(errors="replace").strip()
        for key in (OWNER_KEY, ID_KEY)
        if (saved / key).exists()
    }
    if manifest.installation:
        ids.setdefault(OWNER_KEY, manifest.installation)
    return ids


def copy_archives(saved: Path, store: Store, progress: ProgressLine) -> None:
    """Copy the archives that are not in the store yet. Its ids come first: they say whose the rest is."""
    if not saved.is_dir():
        return
    for name in (OWNER_KEY, ID_KEY):
        if (saved / name).exists() and store.get(name) is None:
            store.put(name, (saved / name).read_bytes())
    source = Store(saved.absolute().as_uri())
    found = sorted(saved.glob(f"*/*/home.tar.zst{META_SUFFIX}"))
    progress.begin("Restoring archives:", len(found))
    for meta in found:
        progress.next()
        key = str(meta.relative_to(saved)).removesuffix(META_SUFFIX)
        saved_receipt, there = _receipt(source, key), _receipt(store, key)
        if saved_receipt is None or there == saved_receipt:
            continue  # it is damaged, which is found where it is needed, or it is there
        if there is not None:
            raise Conflict(f"the archive {key} in {store.place} is another one than in the backup: move it away")
        store.put_stream(key, files.stream(saved / key))
        store.sync(key)
        store.put(key + META_SUFFIX, meta.read_bytes())
        progress.add(saved_receipt.bytes)


def _receipt(store: Store, key: str) -> ArchiveReceipt | None:
    try:
        return find_receipt(store, key)
    except ArchiveCorrupted:
        return None
