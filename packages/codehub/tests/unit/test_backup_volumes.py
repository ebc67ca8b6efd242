"""A backup says which homes it cannot contain: volumes of a Docker engine, and claims of a cluster."""

from __future__ import annotations

import pytest

from codehub.cli.backup import Row, is_elsewhere


@pytest.mark.parametrize(
    ("storage", "incarnation", "named"),
    [
        ("docker-volume", "i-1", True),
        ("pvc", "i-1", True),
        ("local-dir", "i-1", False),
        ("docker-volume", None, False),
    ],
)
def test_a_home_in_a_volume_is_named_and_an_archived_one_is_not(
    storage: str, incarnation: str | None, named: bool
) -> None:
    assert is_elsewhere(Row("w-1", "name", "u/w", storage, incarnation, "w-1/op/home.tar.zst")) is named
