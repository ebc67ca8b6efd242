"""The rule for free names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.names import LONGEST, free_name

NAMES = st.text(st.sampled_from("ab-23"), min_size=1, max_size=6)


@given(NAMES, st.sets(NAMES, max_size=30))
def test_a_free_name_is_not_taken_and_unchanged_if_it_can_be(name: str, taken: set[str]) -> None:
    made = free_name(name, taken)
    assert made not in taken
    assert (made == name) == (name not in taken)


def test_numbers_begin_at_two_and_long_names_stay_short_enough() -> None:
    assert free_name("api", {"api"}) == "api-2"
    assert free_name("api", {"api", "api-2"}) == "api-3"
    long = "x" * LONGEST
    assert free_name(long, {long}) == "x" * (LONGEST - 2) + "-2"
