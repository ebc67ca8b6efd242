"""Indexes that a test opens and that are closed after it, all in the test's own data directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from sari.index.workspace_index import WorkspaceIndex

Open: TypeAlias = Callable[[Path], WorkspaceIndex]


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Open]:
    opened: list[WorkspaceIndex] = []

    def make(root: Path) -> WorkspaceIndex:
        opened.append(WorkspaceIndex(root, tmp_path / "data"))
        return opened[-1]

    yield make
    for index in opened:
        index.close()
