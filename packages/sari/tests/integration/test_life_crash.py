"""The daemon killed −9 in the middle of calls, a hundred times: no client notices."""

import random
import threading
import time

import pytest

from testing.sari_processes import kill, wait_until
from testing.sari_shim import found_paths
from testing.sari_world import World

pytestmark = pytest.mark.xdist_group("sari-chaos")

ROUNDS = 100
CLIENTS = 3


class Caller(threading.Thread):
    """A client that calls without a pause and checks every answer."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(daemon=True)
        root = world.workspace(f"project{number}", **{f"file{number}__txt": f"word{number}\n"})
        self._number = number
        self._shim = world.shim(root)
        self.calls = 0
        self.failure: BaseException | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        try:
            self._shim.initialize()
            while not self.stop.is_set():
                result = self._shim.call("search", {"query": f"word{self._number}"})
                assert found_paths(result) == [f"file{self._number}.txt"]
                self.calls += 1
        except BaseException as failure:
            self.failure = failure


def test_a_hundred_kills_in_the_middle_of_calls_are_seen_by_no_client(world: World) -> None:
    moments = random.Random(7)
    callers = [Caller(world, number) for number in range(CLIENTS)]
    for caller in callers:
        caller.start()
    killed: set[int] = set()

    def calls() -> int:
        assert [caller.failure for caller in callers] == [None] * CLIENTS
        return sum(caller.calls for caller in callers)

    for number in range(ROUNDS):
        answered = calls()
        wait_until(lambda: calls() >= 0 and set(world.daemons()) - killed, "a daemon to kill")
        # Every tenth one is killed wherever it is in its start, the others while they answer calls.
        if number % 10:
            wait_until(lambda: calls() > answered, "the new daemon answers")  # noqa: B023 - used within the round
        # Not to wait for anything: the moment itself is what is random.
        time.sleep(moments.uniform(0.0, 0.03))
        for pid in set(world.daemons()) - killed:
            kill(pid)
            killed.add(pid)
    answered = calls()
    wait_until(lambda: calls() > answered + CLIENTS, "calls go on after the last kill")
    for caller in callers:
        caller.stop.set()
    for caller in callers:
        caller.join(90)
    total = calls()
    assert len(killed) >= ROUNDS
    world.end_shims()
    assert len(world.processes()) == 1
    print(f"rounds {ROUNDS}, calls {total}, failures 0, processes left 1 (the daemon)")
