"""The table of files tells its readers which files changed since they last asked."""

from hypothesis import given
from hypothesis import strategies as st

from sari.index.table import Table

_PATHS = st.sampled_from([b"a", b"b/c", b"b/d", b"e"])
_STEPS = st.lists(st.tuples(st.booleans(), _PATHS), max_size=30)


@given(_STEPS, _STEPS)
def test_a_reader_learns_of_exactly_what_changed_since_a_number(
    before: list[tuple[bool, bytes]], after: list[tuple[bool, bytes]]
) -> None:
    table = Table()
    for is_mark, path in before:
        (table.mark if is_mark else table.remove)(path)
    number = table.change
    known = set(table.paths())
    touched: set[bytes] = set()
    for is_mark, path in after:
        if is_mark or path in known:
            touched.add(path)
        known = known | {path} if is_mark else known - {path}
        (table.mark if is_mark else table.remove)(path)
    assert table.changed_since(number) == (touched & known, touched - known)


def test_changes_that_are_no_longer_remembered_are_unknown() -> None:
    table = Table()
    for number in range(5_000):
        table.mark(b"%d" % number)
    assert table.changed_since(0) is None
    assert table.changed_since(table.change - 2) == ({b"4998", b"4999"}, set())
    assert table.changed_since(table.change + 1) is None


def test_a_new_table_does_not_repeat_the_numbers_of_the_previous_one() -> None:
    table = Table()
    table.mark(b"a")
    successor = Table(table.change + 1)
    successor.mark(b"b")
    assert successor.changed_since(table.change) is None
