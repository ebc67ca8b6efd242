"""Indexes that a test opens and that are closed after it, all in one data directory of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from sari.index.live import Index

Open: TypeAlias = Callable[[Path], Index]


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Open]:
    opened: list[Index] = []

    def make(root: Path) -> Index:
        opened.append(Index(root, tmp_path / "data"))
        return opened[-1]

    yield make
    for index in opened:
        index.close()
