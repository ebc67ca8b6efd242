"""What a backup consists of: the names of its parts, its manifest, and the rows that `backup` and `restore` look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import DictRow

from codehub.adapters.embedded.layout import write_private
from codehub.adapters.homes.layout import home_paths, inspect_home
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.layout import OWNER_KEY
from codehub.domain.errors import Invalid
from codehub.domain.gc import archive_key_of
from codehub.domain.ids import time_of
from codehub.domain.model import Operation
from codehub.ports.homes import HomeKey

MANIFEST: Final = "codehub-backup.json"
DUMP: Final = "database.dump"
HOMES: Final = "homes"
ARCHIVES: Final = "archives"
# Files of the data directory that are kept in addition to the database.
INSTALLATION_FILE: Final = "installation-id"
KEPT_FILES: Final = ("admin-password", INSTALLATION_FILE, "secrets.key")
# A volume of an engine or a cluster is read only through that, so only archives of it are in a backup.
IN_A_VOLUME: Final = "its home is a volume, of which a backup contains only archives"

# Lists the live workspaces with what is needed to find their homes and archives.
_ROWS = """
    SELECT id, name, home_store_key, storage_backend, desired_state, operation, archive_op_id, archive_key,
        home_ctx ->> 'incarnation' AS incarnation, home_ctx ->> 'restore_marker' AS restore_marker,
        coalesce(error_reason = 'DataLost', FALSE) AS was_lost,
        (SELECT a.sha256 FROM workspace_archives a WHERE a.workspace_id = w.id AND a.archive_key = w.archive_key)
            AS archive_sha256
    FROM workspaces w WHERE deleted_at IS NULL ORDER BY id
"""
# Returns the installation's id.
_INSTALLATION = "SELECT value #>> '{}' AS id FROM system_facts WHERE name = 'installation_id'"
# Returns the id of the archive store, once a coordinator has used it.
_ARCHIVE_STORE = "SELECT value ->> 'id' AS id FROM system_facts WHERE name = 'store.archives'"
# Lists the recorded archives of the live workspaces, oldest first.
_RECORDED = """
    SELECT a.workspace_id, a.archive_key, a.op_id FROM workspace_archives a JOIN workspaces w ON w.id = a.workspace_id
    WHERE w.deleted_at IS NULL ORDER BY a.committed_at, a.op_id
"""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    name: str
    home_store_key: str
    storage_backend: str
    desired_state: str
    operation: str
    archive_op_id: str | None
    archive_key: str | None
    incarnation: str | None
    restore_marker: str | None
    was_lost: bool
    archive_sha256: str | None

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def has_directory(self) -> bool:
        """Whether the home is a directory, not a volume of an engine or a cluster."""
        return self.storage_backend == LocalDirHomes.name

    @property
    def archive_replaces_home(self) -> bool:
        """Whether the archive of the operation in progress is committed: the home's content is in it (INV-8)."""
        return (
            self.archive_key is not None
            and self.operation in (Operation.ARCHIVING, Operation.DELETING)
            and self.archive_key == archive_key_of(self.id, self.archive_op_id or "")
        )


def rows_of(connection: psycopg.Connection[DictRow]) -> list[Row]:
    return [Row(**found) for found in connection.execute(_ROWS).fetchall()]


def installation_of(connection: psycopg.Connection[DictRow]) -> str:
    """Return the id of the installation in a database; empty if it never ran."""
    found = connection.execute(_INSTALLATION).fetchone()
    return "" if found is None else str(found["id"])


def archive_store_of(connection: psycopg.Connection[DictRow]) -> str:
    """Return the id of the archive store that a database knows; empty if it knows none."""
    found = connection.execute(_ARCHIVE_STORE).fetchone()
    return "" if found is None else str(found["id"])


@dataclass(frozen=True, slots=True)
class Recorded:
    workspace_id: str
    archive_key: str
    op_id: str


def recorded_archives(connection: psycopg.Connection[DictRow]) -> list[Recorded]:
    return [Recorded(**found) for found in connection.execute(_RECORDED).fetchall()]


def home_in(homes: Path, row: Row) -> Path:
    return home_paths(homes, HomeKey(row.id, row.home_store_key)).home


def has_home(homes: Path, row: Row) -> bool:
    """Return whether this directory contains exactly the incarnation that the database names."""
    found = inspect_home(home_in(homes, row))
    return row.incarnation is not None and found.ctx is not None and found.ctx.incarnation == row.incarnation


def stand_in(row: Row, before: Sequence[Recorded], after: Sequence[Recorded]) -> str | None:
    """Return the archive that has the content of a home that the snapshot names and the backup lacks, or None.

    `before` are the archives that were recorded in the snapshot, `after` those recorded now. An older archive has older
    files, so only two may stand in: the one whose operation was about to remove the home, and the first one recorded
    since. The home was removed only after that (INV-8). If it was lost before, an administrator may have chosen other
    content meanwhile.
    """
    if row.archive_replaces_home:
        return row.archive_key
    if row.was_lost:
        return None
    known = {one.op_id for one in before if one.workspace_id == row.id}
    # An id with a suffix is of another volume, or of one that was copied for another workspace.
    new = [one for one in after if one.workspace_id == row.id and one.op_id not in known and time_of(one.op_id)]
    return next((one.archive_key for one in new if "." not in one.op_id), None)


@dataclass(frozen=True, slots=True)
class Manifest:
    created_at: str
    # The URL of the archive store, if its archives are not in the backup.
    archives_outside: str
    # The store's own ids (`codehub-installation`, `codehub-store`).
    store_ids: Mapping[str, str] = field(default_factory=dict)
    # By workspace: the archive that has the content of its home.
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    # By workspace: why its current files are not in the backup, or not all of them.
    incomplete: Mapping[str, str] = field(default_factory=dict)
    # The id of the installation, as the database has it.
    installation: str = ""
    # Identifies the backup.
    digest: str = ""

    def write(self, directory: Path, codehub: str) -> None:
        content = {
            "codehub": codehub,
            "created_at": self.created_at,
            "archives_outside": self.archives_outside,
            "store_ids": dict(self.store_ids),
            "stand_ins": dict(self.stand_ins),
            "incomplete": dict(self.incomplete),
            "installation": self.installation,
        }
        write_private(directory / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(directory: Path) -> Manifest:
    try:
        raw = (directory / MANIFEST).read_bytes()
    except FileNotFoundError as error:
        raise Invalid(
            f"{directory} is not a complete backup: {MANIFEST}, which is written last, is missing"
        ) from error
    try:
        found: dict[str, Any] = json.loads(raw)
        return Manifest(
            created_at=str(found.get("created_at", "")),
            archives_outside=str(found.get("archives_outside", "")),
            store_ids=_texts(found, "store_ids"),
            stand_ins=_texts(found, "stand_ins"),
            incomplete=_texts(found, "incomplete"),
            installation=str(found.get("installation", "")) or _kept_installation(directory),
            digest=hashlib.sha256(raw).hexdigest(),
        )
    except (ValueError, AttributeError) as error:
        raise Invalid(f"{directory / MANIFEST} is damaged: {error}") from error


def _kept_installation(directory: Path) -> str:
    """Return the installation's id for a backup of an older version, whose manifest does not have it."""
    for place in (directory / INSTALLATION_FILE, directory / ARCHIVES / OWNER_KEY):
        if place.exists() and (found := place.read_text(errors="replace").strip()):
            return found
    return ""


def _texts(found: Mapping[str, Any], name: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in found.get(name, {}).items()}
