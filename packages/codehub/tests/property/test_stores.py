"""Which stores a coordinator may lead with: no id, place or record leads to judging homes in another store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.stores import Absent, Claim, Foreign, StoreRecord, Use, judge_store, too_many_losses

ids = st.sampled_from(["a", "b"])
places = st.sampled_from(["/one", "/two"])
records = st.none() | st.builds(StoreRecord, ids, places)


@given(places, st.none() | ids, records, st.booleans(), st.booleans())
def test_only_the_recorded_store_is_used_and_only_a_new_one_is_claimed(
    place: str, seen: str | None, recorded: StoreRecord | None, has_data: bool, proven: bool
) -> None:
    verdict = judge_store("homes", place, seen, recorded, has_data=has_data, proven=proven)
    match verdict:
        case Use(store_id, record):
            assert store_id == seen
            assert recorded is None or recorded.id == seen
            assert record == (recorded != StoreRecord(store_id, place))
        case Claim():
            assert seen is None
            assert recorded is None
            assert proven or not has_data, "a mark is never written into an empty mount point"
        case Absent():
            assert recorded is None or (seen is None and recorded.place == place)
        case Foreign(message):
            assert recorded is not None
            assert recorded.place in message
            assert place in message


@given(st.integers(0, 200), st.integers(0, 1000), st.integers(1, 10))
def test_a_few_losses_are_believed_and_many_are_not(lost: int, total: int, most: int) -> None:
    assert too_many_losses(lost, total, most) == (lost > most and lost / 10 > total / 100)
