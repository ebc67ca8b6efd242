"""After a restore: which archives stand in for homes, and which workspaces lack their files.

Runs in one transaction, before any coordinator, and may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from codehub.adapters.homes.layout import CTX, FILES, inspect_home, sync_dir
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import find_receipt
from codehub.cli.backup_format import IN_A_VOLUME, Manifest, Row, has_home, home_in, rows_of
from codehub.domain.errors import ArchiveCorrupted
from codehub.domain.ids import time_of
from codehub.domain.model import DesiredState
from codehub.ports.homes import ArchiveReceipt, HomeState

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
# Says that a workspace's files are not there, once. A coordinator clears the error if it finds them.
_MARK_LOST = """
    UPDATE workspaces SET phase = 'ERROR', phase_changed_at = %(now)s, operation = 'NONE', op_started_at = NULL,
        progress = NULL, blocked = NULL, error_reason = 'DataLost', error_message = %(message)s,
        error_count = error_count + 1, retry_at = NULL
    WHERE id = %(id)s AND (error_reason IS DISTINCT FROM 'DataLost' OR error_message IS DISTINCT FROM %(message)s)
    RETURNING id
"""
_ADD_EVENT = "INSERT INTO workspace_events (workspace_id, at, kind, message, detail) VALUES (%s, %s, %s, %s, %s)"


@dataclass(slots=True)
class Outcome:
    from_archives: int = 0
    # What is lost, and what was accepted although it is incomplete: one text for each workspace.
    lost: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


def settle_rows(url: str, homes: Path, store: Store, manifest: Manifest, *, accept_incomplete: bool) -> Outcome:
    outcome = Outcome()
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for row in rows_of(connection):
            reason = _settle(connection, row, homes, store, manifest, outcome)
            if not reason:
                continue
            if accept_incomplete and _accepted(row, homes):
                _add_event(connection, row, "restored", f"Restored from a backup, but not completely: {reason}", {})
                outcome.accepted.append(f"{row}: {reason}")
                continue
            newest = asyncio.run(_newest(store, row))
            outcome.lost.append(f"{row}: {reason}. {_said_of(newest)}")
            _mark_lost(connection, row, f"The restored backup does not contain its files: {reason}", newest)
    return outcome


def _settle(
    connection: psycopg.Connection[DictRow], row: Row, homes: Path, store: Store, manifest: Manifest, outcome: Outcome
) -> str:
    """Return why the workspace's current files are not there; empty if they are."""
    if row.incarnation is None:
        if row.archive_key is None or _is_there(store, row.archive_key, row.archive_sha256):
            return ""
        return f"its archive {row.archive_key} is missing or damaged"
    if row.has_directory and has_home(homes, row):
        return ""
    key = row.archive_key if row.archive_replaces_home else manifest.stand_ins.get(row.id)
    receipt = None if key is None else _receipt(store, key)
    if receipt is not None:
        _take_archive(connection, row, receipt)
        outcome.from_archives += 1
        return ""
    if not row.has_directory:
        return IN_A_VOLUME
    return manifest.incomplete.get(row.id) or "its home is not in the backup, or could not be restored completely"


def _is_there(store: Store, key: str, sha256: str | None) -> bool:
    receipt = _receipt(store, key)
    return receipt is not None and sha256 in (None, receipt.sha256)


def _receipt(store: Store, key: str) -> ArchiveReceipt | None:
    with contextlib.suppress(ArchiveCorrupted):
        return find_receipt(store, key)
    return None


def _accepted(row: Row, homes: Path) -> bool:
    """Make an incomplete home this workspace's home, by its mark. Returns False if there is none."""
    home = home_in(homes, row)
    if not row.has_directory or not (home / FILES).is_dir() or inspect_home(home).state is not HomeState.INCOMPLETE:
        return False
    new = home / f"{CTX}.new"
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump({"incarnation": row.incarnation, "restore_marker": row.restore_marker}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(home / CTX)
    sync_dir(home)
    return True


async def _newest(store: Store, row: Row) -> ArchiveReceipt | None:
    return max(await ObjectArchives(store).receipts(row.id), key=lambda one: one.op_id, default=None)


def _said_of(newest: ArchiveReceipt | None) -> str:
    if newest is None:
        return "There is no archive of it either"
    made = time_of(newest.op_id)
    return f"Its newest archive{f', of {made:%Y-%m-%d %H:%M} UTC,' if made else ''} is {newest.archive_key}"


def _mark_lost(
    connection: psycopg.Connection[DictRow], row: Row, message: str, newest: ArchiveReceipt | None
) -> None:
    if row.desired_state == DesiredState.DELETED:
        return  # its deletion goes on
    named = {"now": datetime.now(UTC), "message": message, "id": row.id}
    if connection.execute(_MARK_LOST, named).fetchone() is not None:
        detail = {"operation": row.operation, "reason": "DataLost", "detail": f"{message}. {_said_of(newest)}"}
        _add_event(connection, row, "error", f"DataLost: {message}. {_said_of(newest)}", detail)


def _take_archive(connection: psycopg.Connection[DictRow], row: Row, receipt: ArchiveReceipt) -> None:
    connection.execute(_CONTINUE_FROM_ARCHIVE, [receipt.archive_key, row.id])
    connection.execute(
        _RECORD_ARCHIVE,
        [
            row.id,
            receipt.archive_key,
            receipt.op_id,
            time_of(receipt.op_id) or datetime.now(UTC),
            receipt.bytes,
            receipt.sha256,
        ],
    )
    message = "Restored from a backup: its home continues from the archive made during the backup"
    _add_event(connection, row, "restored", message, {"archive_key": receipt.archive_key})


def _add_event(
    connection: psycopg.Connection[DictRow], row: Row, kind: str, message: str, detail: Mapping[str, str]
) -> None:
    connection.execute(_ADD_EVENT, [row.id, datetime.now(UTC), kind, message, Jsonb(dict(detail))])
