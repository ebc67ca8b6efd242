"""An installation whose rows, homes and archives are real, but of which nothing runs, for tests of backup and restore."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.layout import OWNER_KEY
from codehub.adapters.objectstore.store import Store
from codehub.adapters.postgres.pool import Database
from codehub.cli import main
from codehub.domain.model import HomeCtx, Workspace
from codehub.ports.fence import ignore_progress
from codehub.ports.homes import ArchiveReceipt, HomeKey
from codehub.wiring import new_id
from testing.codehub.rows import put_workspace
from testing.codehub.workspaces import workspace


def _fence() -> None:
    pass


@dataclass
class Installation:
    place: Path
    url: str
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    more: dict[str, str] = field(default_factory=dict)

    @property
    def homes_dir(self) -> Path:
        return self.place / "homes"

    @property
    def archives_dir(self) -> Path:
        return self.place / "archives"

    @contextmanager
    def homes(self) -> Iterator[LocalDirHomes]:
        store = Store(self.archives_dir.as_uri())
        if store.get(OWNER_KEY) is None:
            store.put(OWNER_KEY, b"the-installation")
        try:
            yield LocalDirHomes(self.homes_dir, store)
        finally:
            store.close()

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command in this process. Returns its exit code, and what it printed on both streams."""
        with self.monkeypatch.context() as patch:
            patch.setenv("CODEHUB_DATA_DIR", str(self.place))
            patch.setenv("CODEHUB_DATABASE_URL", self.url)
            for name, value in self.more.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["codehub", *arguments])
            self.capsys.readouterr()
            code = int(main._run())
        printed = self.capsys.readouterr()
        return code, printed.out + printed.err

    def create(self, name: str, *, storage: str = "local-dir") -> Workspace:
        """A workspace with a home, in which its name is written."""
        row = replace(workspace(new_id()), name=name, storage_backend=storage, home_ctx=HomeCtx(new_id()))
        assert row.home_ctx is not None
        if storage == "local-dir":
            with self.homes() as homes:
                asyncio.run(homes.provision(key_of(row), row.home_ctx.incarnation, _fence))
            (self.files(row) / "note").write_text(f"written in {name}\n")
        self.put(row)
        return row

    def archive(self, row: Workspace, *, remove: bool) -> ArchiveReceipt:
        """Archive the home, record that, and remove the home, as the coordinator does."""
        assert row.home_ctx is not None
        with self.homes() as homes:
            receipt = asyncio.run(homes.archive(key_of(row), row.home_ctx, new_id(), ignore_progress, _fence))
            self.execute(
                "INSERT INTO workspace_archives (workspace_id, archive_key, op_id, committed_at, bytes, sha256)"
                " VALUES (%s, %s, %s, clock_timestamp(), %s, %s)",
                [row.id, receipt.archive_key, receipt.op_id, receipt.bytes, receipt.sha256],
            )
            self.execute("UPDATE workspaces SET archive_key = %s WHERE id = %s", [receipt.archive_key, row.id])
            if remove:
                asyncio.run(homes.deprovision(key_of(row), row.home_ctx, _fence))
                self.execute("UPDATE workspaces SET home_ctx = NULL WHERE id = %s", [row.id])
        return receipt

    def files(self, row: Workspace) -> Path:
        return self.homes_dir / row.home_store_key / "files"

    def put(self, row: Workspace) -> None:
        async def work() -> None:
            async with Database(self.url) as database:
                await put_workspace(database, row)

        asyncio.run(work())

    def execute(self, statement: str, values: list[Any]) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), values)

    def row(self, row: Workspace) -> dict[str, Any]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            found = connection.execute("SELECT * FROM workspaces WHERE id = %s", [row.id]).fetchone()
        assert found is not None
        return found

    def events(self, row: Workspace) -> list[str]:
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "SELECT message FROM workspace_events WHERE workspace_id = %s ORDER BY id", [row.id]
            )
            return [str(one[0]) for one in found.fetchall()]


def key_of(row: Workspace) -> HomeKey:
    return HomeKey(row.id, row.home_store_key)
