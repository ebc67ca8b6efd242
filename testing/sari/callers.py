"""Clients that call continuously and check every answer while a test disturbs the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable

from testing.sari.processes import DEADLINE_S
from testing.sari.shim import Shim


class Caller(threading.Thread):
    """One client in a thread. `call` makes one checked call."""

    def __init__(self, shim: Shim, call: Callable[[Shim], None]) -> None:
        super().__init__(daemon=True)
        self._shim = shim
        self._call = call
        self._stop_asked = threading.Event()
        self.calls = 0
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            self._shim.initialize()
            while not self._stop_asked.is_set():
                self._call(self._shim)
                self.calls += 1
        except BaseException as failure:
            self.failures.append(failure)

    def stop(self) -> None:
        """Finish the current call and stop."""
        self._stop_asked.set()


def total(callers: list[Caller]) -> int:
    """Return how many calls were answered so far. Any failure fails the test."""
    failures = [failure for caller in callers for failure in caller.failures]
    if failures:
        raise AssertionError(f"a call failed: {failures[0]!r}") from failures[0]
    return sum(caller.calls for caller in callers)


def stop_all(callers: list[Caller]) -> int:
    """Stop all callers and return how many calls were answered."""
    for caller in callers:
        caller.stop()
    for caller in callers:
        caller.join(DEADLINE_S)
        assert not caller.is_alive()
    return total(callers)
