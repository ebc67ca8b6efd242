"""A whole CodeHub whose parts die at random while people work: what was acknowledged is there, whatever died when."""

from __future__ import annotations

import pytest

from testing.codehub.chaos import chaos


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        pytest.param(11, 2, marks=pytest.mark.timeout(900)),
        pytest.param(12, 20, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_nothing_that_was_acknowledged_is_lost_whatever_dies(seed: int, rounds: int) -> None:
    with chaos(seed, workspaces=2) as running:
        for _ in range(rounds):
            for _ in range(15):
                running.step()
            running.settle()
    assert {"write", "ask", "kill_part"} <= set(running.happened), running.happened
