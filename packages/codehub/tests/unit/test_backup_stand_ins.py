"""Which archive may stand in for a home that a backup lacks: never one with older files."""

from __future__ import annotations

import pytest

from codehub.cli.backup_format import Recorded, Row, stand_in
from codehub.domain.gc import archive_key_of

W = "01980000-0000-7000-8000-000000000001"
BEFORE, NOW, LATER = (f"01980000-0000-7000-8000-0000000001{number:02}" for number in range(3))


def row(
    *, operation: str = "NONE", op_id: str | None = BEFORE, key: str | None = None, was_lost: bool = False
) -> Row:
    return Row(
        W, "w", f"users/u/workspaces/{W}/home", "local-dir", "RUNNING", operation, op_id, key, "i", None, was_lost, ""
    )


def recorded(*op_ids: str) -> list[Recorded]:
    return [Recorded(W, archive_key_of(W, op_id), op_id) for op_id in op_ids]


@pytest.mark.parametrize(
    ("found", "after", "expected"),
    [
        (row(key=archive_key_of(W, BEFORE)), (), None),  # the archive that the home was once restored from
        (row(operation="ARCHIVING", key=archive_key_of(W, BEFORE)), (), BEFORE),
        (row(operation="ARCHIVING", op_id=NOW, key=archive_key_of(W, BEFORE)), (), None),
        (row(operation="ARCHIVING", op_id=NOW), (NOW,), NOW),
        (row(), (NOW, LATER), NOW),
        (row(), (f"{NOW}.another-volume",), None),
        (row(was_lost=True), (NOW,), None),
    ],
)
def test_only_the_archive_that_replaced_the_home_stands_in(
    found: Row, after: tuple[str, ...], expected: str | None
) -> None:
    before = recorded(BEFORE)
    other = [Recorded("another", archive_key_of("another", LATER), LATER)]
    key = stand_in(found, before, [*before, *other, *recorded(*after)])
    assert key == (None if expected is None else archive_key_of(W, expected))
