"""Filling the volumes of `/opt/codehub` must not hold up the coordinator, which would lose its leadership."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from codehub.adapters.docker import tools
from codehub.adapters.filesystem.remove import remove_tree


async def test_staged_files_are_removed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    removed_by: list[threading.Thread] = []

    def remove(place: Path) -> None:
        removed_by.append(threading.current_thread())
        remove_tree(place)

    monkeypatch.setattr(tools, "remove_tree", remove)
    async with tools._staged(lambda place: (place / "file").touch()) as place:
        assert (place / "file").exists()
    assert not place.exists()
    assert [thread is threading.main_thread() for thread in removed_by] == [False]
