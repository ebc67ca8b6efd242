"""What a full disk is said to need."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from codehub.adapters.homes.space import check_room_for_restore
from codehub.adapters.objectstore.layout import Meta
from codehub.domain.errors import OutOfSpace


@pytest.mark.parametrize("free", [0, 1 << 20, 16 << 20])
def test_a_home_that_does_not_fit_needs_more_than_is_left(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    with pytest.raises(OutOfSpace) as refused:
        check_room_for_restore(Path("/homes"), Meta("0" * 64, size=400, tar_bytes=5000, entries=1))
    found = re.search(r"has (\d+) MiB left, and this home needs (\d+) MiB", str(refused.value))
    assert found is not None
    assert int(found[1]) < int(found[2])
