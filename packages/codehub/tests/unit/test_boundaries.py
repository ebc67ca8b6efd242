"""What the results of trying a boundary mean, and where `codehub doctor` finds what it tries to reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.cli.boundary_targets import Place, bound_place, database_place, redis_place
from codehub.domain.boundaries import Attempt, Boundary, Means, Outcome, Verdict, judge

ATTEMPTS = tuple(Attempt(Means.TCP, "127.0.0.1", port) for port in range(1, 5))
OUTCOMES = st.dictionaries(
    st.sampled_from(ATTEMPTS), st.builds(Outcome, st.sampled_from([True, False, None]), st.just("seen"))
)


@given(OUTCOMES)
def test_a_boundary_held_only_if_every_attempt_was_made_and_failed(outcomes: dict[Attempt, Outcome]) -> None:
    results = [outcomes[one].succeeded if one in outcomes else None for one in ATTEMPTS]
    judged = judge(Boundary("b", ATTEMPTS, "fix it", retry="again"), outcomes)
    if True in results:
        assert (judged.verdict, judged.fix) == (Verdict.NOT_HELD, "fix it")
    elif None in results:
        assert (judged.verdict, judged.fix) == (Verdict.NOT_TRIED, "again")
        assert judged.why
    else:
        assert (judged.verdict, judged.fix, judged.why) == (Verdict.HELD, "", "")


def test_what_has_no_attempts_did_not_hold() -> None:
    judged = judge(Boundary("b", (), "fix it", "it is not running"), {})
    assert (judged.verdict, judged.why) == (Verdict.NOT_TRIED, "it is not running")


@pytest.mark.parametrize(
    ("place", "targets"),
    [
        (bound_place("0.0.0.0:8000"), [("127.0.0.1", 8000), ("198.18.0.2", 8000)]),
        (bound_place("[::]:8000"), [("::1", 8000), ("198.18.0.2", 8000)]),
        (bound_place("192.0.2.7:8000"), [("192.0.2.7", 8000)]),
        (database_place("postgresql://u:p@127.0.0.1:6000/x"), [("127.0.0.1", 6000), ("198.18.0.2", 6000)]),
        (database_place("postgresql://u@192.0.2.7/x"), [("192.0.2.7", 5432)]),
        (database_place("postgresql://u@192.0.2.7:1,192.0.2.8:2/x"), [("192.0.2.7", 1)]),
        (database_place("postgresql:///x?host=/run/pg&port=7"), [("/run/pg/.s.PGSQL.7", 0)]),
        (redis_place("redis://192.0.2.7:1/0"), [("192.0.2.7", 1)]),
        (redis_place("rediss://:p@192.0.2.7"), [("192.0.2.7", 6379)]),
        (redis_place("unix:///run/valkey.sock?db=1"), [("/run/valkey.sock", 0)]),
    ],
)
def test_the_address_of_each_part_is_found_in_the_settings(
    place: Place | None, targets: list[tuple[str, int]]
) -> None:
    assert place is not None
    assert [(one.target, one.amount) for one in place.attempts("198.18.0.2")] == targets
