"""Slots that users take turns for: nobody waits for more than one turn of each other user, and no slot is lost."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.turns import next_turn
from codehub.fair_slots import FairSlots
from testing.codehub.simulation.loop import VirtualLoop, run_virtual

USERS = st.sampled_from("abcd")


def test_of_those_who_wait_the_one_with_the_fewest_slots_is_next() -> None:
    assert next_turn([], {}, {}) is None
    assert next_turn(["a", "b"], {}, {}) == "a"
    assert next_turn(["a", "b"], {"a": 1}, {}) == "b"
    assert next_turn(["a", "b"], {"a": 1, "b": 1}, {"a": 7, "b": 3}) == "b", "served the longest ago"


@given(st.lists(USERS, max_size=30), st.integers(1, 3))
def test_each_turn_goes_to_another_user_while_others_wait(arrivals: list[str], most: int) -> None:
    """All arrive at once and take equally long: of two who still wait, neither is ahead by more than one turn."""
    waiting, running, served = Counter(arrivals), Counter[str](), dict[str, int]()
    had: Counter[str] = Counter()
    for number in range(len(arrivals)):
        if number >= most:
            running[min(running.elements(), key=lambda user: served[user])] -= 1
        user = next_turn([each for each in waiting if waiting[each]], running, served)
        assert user is not None
        waiting[user] -= 1
        running[user] += 1
        had[user] += 1
        served[user] = number + 1
        others = [had[each] for each in waiting if waiting[each]]
        assert not others or had[user] - min(others) <= 1
    assert not +waiting


def test_a_user_with_a_hundred_requests_delays_another_by_one_turn() -> None:
    began: list[str] = []

    async def work(slots: FairSlots, user: str) -> None:
        async with slots.turn(user):
            began.append(user)
            await asyncio.sleep(60)

    async def main() -> float:
        slots = FairSlots(2)
        crowd = [asyncio.create_task(work(slots, "crowd")) for _ in range(100)]
        await asyncio.sleep(1)
        assert slots.is_full()
        before = asyncio.get_running_loop().time()
        await work(slots, "one")
        took = asyncio.get_running_loop().time() - before
        await asyncio.gather(*crowd)
        assert not slots.is_full()
        return took

    assert run_virtual(main(), VirtualLoop()) < 121
    assert began.index("one") == 2
    assert len(began) == 101


@given(st.lists(st.tuples(USERS, st.integers(0, 5), st.integers(0, 5)), max_size=25), st.integers(1, 3))
def test_no_slot_is_lost_or_given_twice_when_requests_are_cancelled(
    requests: list[tuple[str, int, int]], most: int
) -> None:
    now = [0, 0]  # and at most

    async def work(slots: FairSlots, user: str, takes_s: int) -> None:
        async with slots.turn(user):
            now[0] += 1
            now[1] = max(now)
            try:
                await asyncio.sleep(takes_s)
            finally:
                now[0] -= 1

    async def main() -> None:
        loop, slots = asyncio.get_running_loop(), FairSlots(most)
        tasks = []
        for user, takes_s, cancelled_after_s in requests:
            task = asyncio.create_task(work(slots, user, takes_s))
            loop.call_later(cancelled_after_s, task.cancel)  # in the very moment in which others end, too
            tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(1):
            async with asyncio.TaskGroup() as group:
                for _ in range(most):
                    group.create_task(work(slots, "after", 0))
        assert not slots.is_full()
        assert slots._served == {}, "nothing is kept of those who left"

    run_virtual(main(), VirtualLoop())
    assert now[0] == 0
    assert now[1] <= most
