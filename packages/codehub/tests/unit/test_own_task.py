"""A cancellation that comes together with a failure ends the loop that handles the failure."""

from __future__ import annotations

import asyncio

import pytest

from codehub.own_task import in_own_task

TIMEOUT_S = 60.0


async def test_a_task_group_that_fails_while_it_is_cancelled_does_not_swallow_the_cancellation() -> None:
    """A loop like this once went on for ever: the API did not stop while the bus was away."""
    loop_task: asyncio.Task[None]
    rounds = 0

    async def fail_while_cancelled() -> None:
        loop_task.cancel()
        raise OSError

    async def attempt() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_while_cancelled())
                group.create_task(asyncio.Event().wait())
        except* OSError:
            pass

    async def loop() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await in_own_task(attempt())

    loop_task = asyncio.create_task(loop())
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(asyncio.CancelledError):
            await loop_task
    assert rounds == 1


async def test_results_and_errors_are_those_of_the_coroutine() -> None:
    async def number() -> int:
        return 3

    async def fails() -> None:
        raise ValueError("why")

    assert await in_own_task(number()) == 3
    with pytest.raises(ValueError, match="why"):
        await in_own_task(fails())
