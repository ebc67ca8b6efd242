"""A directory of archives that cannot be listed is not taken for an empty one: what is not listed may be collected."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from codehub.adapters.objectstore.store import Store
from codehub.domain.errors import BackendDown


def test_archives_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"file://{tmp_path}")
    store.put("w-1/op-1/data", b"x")
    assert list(store.paths("w-1")) == ["w-1/op-1/data"]
    assert list(store.paths("w-2")) == []
    real = os.scandir

    def broken(path: Any) -> Any:
        if Path(path).name == "op-1":
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(BackendDown, match="list the archive store"):
        list(store.paths())
