"""The daemon killed −9 in the middle of calls, a hundred times: no client notices."""

import random
import time
from functools import partial

import pytest

from testing.sari.callers import Caller, stop_all, total
from testing.sari.processes import kill, wait_until
from testing.sari.shim import Shim, found_paths
from testing.sari.world import World

pytestmark = pytest.mark.xdist_group("sari-chaos")

ROUNDS = 100
CLIENTS = 2


def _caller(world: World, number: int) -> Caller:
    def call(shim: Shim) -> None:
        assert found_paths(shim.call("search", {"query": f"word{number}"})) == [f"file{number}.txt"]

    root = world.workspace(f"project{number}", **{f"file{number}__txt": f"word{number}\n"})
    return Caller(world.shim(root), call)


def _went_on(callers: list[Caller], before: list[int]) -> bool:
    """Return whether each client was answered since. Any failure fails the test."""
    return total(callers) > sum(before) and all(
        caller.calls > calls for caller, calls in zip(callers, before, strict=True)
    )


def test_a_hundred_kills_in_the_middle_of_calls_are_seen_by_no_client(world: World) -> None:
    moments = random.Random(7)
    callers = [_caller(world, number) for number in range(CLIENTS)]
    for caller in callers:
        caller.start()
    killed: set[int] = set()

    # A round counts when a daemon was there to be killed: one may have ended by itself, having lost a race to start.
    while len(killed) < ROUNDS:
        number, before = len(killed), [caller.calls for caller in callers]
        wait_until(lambda: total(callers) >= 0 and set(world.daemons()) - killed, "a daemon to kill")
        # Every tenth one is killed wherever it is in its start, the others while they answer calls. Each client is answered
        # meanwhile, or on a busy machine one of them may meet 15 kills in one request, which it gives up then.
        if number % 10:
            wait_until(partial(_went_on, callers, before), "the daemon answers")
        # Not to wait for anything: the moment itself is what is random.
        time.sleep(moments.uniform(0.0, 0.03))
        for pid in set(world.daemons()) - killed:
            kill(pid)
            killed.add(pid)
    answered = total(callers)
    wait_until(lambda: total(callers) > answered + CLIENTS, "calls go on after the last kill")
    calls = stop_all(callers)
    world.end_shims()
    world.wait_for_only(world.one_daemon())
    print(f"rounds {ROUNDS}, calls {calls}, failures 0, processes left 1 (the daemon)")
