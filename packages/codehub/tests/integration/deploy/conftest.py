"""Installations for tests of backup and restore, of which nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.codehub.backups import Installation


@pytest.fixture
def old(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Installation:
    return Installation(tmp_path / "old", database_url, monkeypatch, capsys)


@pytest.fixture
def new(
    tmp_path: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Installation:
    """Where nothing is yet."""
    return Installation(tmp_path / "new", empty_database_url, monkeypatch, capsys)
