"""How slowly a request body may come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.body_pace import MIN_BYTES_PER_S, PAUSE_S, body_deadline

PIECES = st.lists(st.tuples(st.floats(0, PAUSE_S), st.integers(1, 100_000)), max_size=50)


@given(PIECES)
def test_no_body_is_held_for_longer_than_its_bytes_are_worth(pieces: list[tuple[float, int]]) -> None:
    now, deadline, received = 0.0, PAUSE_S, 0
    for pause, size in pieces:
        now += pause
        if now > deadline:
            break
        deadline = body_deadline(deadline, now, size)
        received += size
        assert deadline <= now + PAUSE_S
        assert deadline <= PAUSE_S + received / MIN_BYTES_PER_S + 1e-6


@given(st.lists(st.floats(0, PAUSE_S), max_size=50))
def test_a_body_that_keeps_the_rate_is_never_cut_off(pauses: list[float]) -> None:
    now, deadline = 0.0, PAUSE_S
    for pause in pauses:
        now += pause
        assert now <= deadline + 1e-6
        deadline = body_deadline(deadline, now, int(pause * MIN_BYTES_PER_S) + 1)
        assert deadline >= now
