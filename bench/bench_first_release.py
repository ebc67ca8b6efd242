"""Whether isolation and everything since made starts and requests slower: the first release beside ours, in turns.

Both run a whole `codehub up` with process workspaces and the tests' tiny IDE. The first release shares the network of the
machine with its workspaces and gives them no helper; ours does neither.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx

from testing.codehub.first_release import unpack_first_release
from testing.codehub.full_stack import Stack, fresh_stack

_STARTS = 9
_ROUNDS, _REQUESTS = 5, 200
_TIMEOUT_S = 120
_POLL_INTERVAL_S = 0.01
_LIST, _ONE, _PAGE = "GET /workspaces, 10 of them", "GET /workspaces/{id}", "GET through the proxy"


class _Release:
    """One running CodeHub, as a program with a token uses it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        port = stack.value("CODEHUB_PROXY_BIND").rpartition(":")[2]
        with httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
            answer = client.post("/api/v1/login", json={"username": "admin", "password": stack.password()})
            if "session_key" in answer.json():  # the first release has none
                client.headers["X-CodeHub-Session-Key"] = answer.json()["session_key"]
            token = client.post("/api/v1/tokens", json={"name": "bench"}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        self._api = httpx.Client(base_url=stack.url, timeout=60, trust_env=False, headers=headers)
        self._proxy = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            timeout=60,
            trust_env=False,
            headers=headers | {"Host": f"localhost:{port}", "Accept": "application/json"},
        )
        self._last = ""

    def start(self) -> float:
        """Create a workspace and return the seconds until its IDE answers."""
        began = time.perf_counter()
        made = self._api.post("/api/v1/workspaces", json={"name": f"b{uuid.uuid4().hex[:8]}"})
        assert made.status_code == 201, made.text
        self._last = made.json()["id"]
        while time.perf_counter() < began + _TIMEOUT_S:
            with contextlib.suppress(httpx.TransportError):
                if self._proxy.get(f"/w/{self._last}/healthz").status_code == 200:
                    return time.perf_counter() - began
            time.sleep(_POLL_INTERVAL_S)
        raise TimeoutError(self._stack.output())

    def request(self, what: str) -> tuple[list[float], float]:
        """Return the seconds of each of many requests, and the CPU seconds of the part that answers them."""
        client = self._proxy if what == _PAGE else self._api
        workspaces = "/api/v1/workspaces"
        path = {_LIST: workspaces, _ONE: f"{workspaces}/{self._last}", _PAGE: f"/w/{self._last}/healthz"}[what]
        (part,) = self._stack.processes("proxy" if what == _PAGE else "api")
        taken, before = [], sum(part.cpu_times()[:2])
        for _ in range(_REQUESTS):
            began = time.perf_counter()
            answer = client.get(path)
            taken.append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
        return taken, sum(part.cpu_times()[:2]) - before


def measure() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="first-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)  # parts of a whole CodeHub are other users
        source = unpack_first_release(Path(place))
        with _running(source) as first, _running(None) as ours:
            for each in (first, ours):
                each.start()  # once unmeasured: caches are warm
            pairs = [(first.start(), ours.start()) for _ in range(_STARTS)]
            rows = [_row("create → first page", [then for then, _ in pairs], [now for _, now in pairs])]
            for what in (_LIST, _ONE, _PAGE):
                for each in (first, ours):
                    each.request(what)
                rounds = [(first.request(what), ours.request(what)) for _ in range(_ROUNDS)]
                then, now = ([time_s for one in rounds for time_s in one[side][0]] for side in (0, 1))
                rows.append(_row(what, then, now))
                cpu = [sum(one[side][1] for one in rounds) / (_ROUNDS * _REQUESTS) for side in (0, 1)]
                rows.append(_row(f"{what}, CPU", [cpu[0]], [cpu[1]]))
    return rows


@contextlib.contextmanager
def _running(source: Path | None) -> Iterator[_Release]:
    with fresh_stack() as stack:
        stack.with_tiny_ide()
        stack.environment |= {"LIMITS_MAX_RUNNING_PER_USER": "100", "LIMITS_MAX_RUNNING_GLOBAL": "100"}
        if source is not None:
            stack.environment["PYTHONPATH"] = str(source)
        else:
            stack.environment["CODEHUB_WORKSPACE_HOST"] = "none"  # path mode, as the first release
        stack.up()
        yield _Release(stack)


def _row(what: str, then: list[float], now: list[float]) -> dict[str, object]:
    theirs, mine = statistics.median(then) * 1000, statistics.median(now) * 1000
    return {
        "what": f"{what}, median",
        "value": round(mine, 2),
        "unit": "ms",
        "peer": f"first release: {theirs:.2f}",
        "ratio": round(mine / theirs, 2),
    }
