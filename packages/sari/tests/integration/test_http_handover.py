"""HTTP clients notice nothing of a daemon that is replaced: each connection that is taken gets its answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.sari.home import SariHome, sari_home
from testing.sari.processes import wait_until
from testing.sari.web import Web

pytestmark = pytest.mark.xdist_group("sari-http")

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "needle"}},
}
CLIENTS = 4
RESTARTS = 3


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as made:
        made.write("a.txt", "needle\n")
        made.environment["SARI_WORKSPACE_IDLE_SEC"] = "600"
        made.start()
        yield made


class Load:
    """Clients that ask without a pause, each time on a connection of its own."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._stop = threading.Event()
        self.answers = [0] * CLIENTS
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        path = f"/mcp?workspace={self._web.home.workspace}"
        while not self._stop.is_set():
            try:
                answer = self._web.ask(path, "POST", CALL)
                if answer.status == 200 and b'"total":1' in answer.body:
                    self.answers[number] += 1
                else:
                    self.failures.append(f"{answer.status} {answer.body[:200]!r}")
            except OSError as error:
                self.failures.append(repr(error))

    def wait_for_more(self) -> None:
        before = list(self.answers)
        wait_until(
            lambda: all(now > then + 5 for now, then in zip(self.answers, before, strict=True)), "answers come"
        )


def test_no_call_over_http_fails_while_the_daemon_is_replaced_again_and_again(home: SariHome) -> None:
    with Load(Web(home)) as load:
        load.wait_for_more()
        for _ in range(RESTARTS):
            assert home.sari("daemon", "restart").returncode == 0
            load.wait_for_more()
    assert load.failures == []
