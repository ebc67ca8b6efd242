"""The proxy's data path alone: a proxy in a thread, with an admitter that admits everything to one upstream.

Tests use raw sockets to talk to it and to the scripted upstream, without an event loop.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvloop

from codehub.ports.instances import Upstream
from codehub.proxy.activity.background_traffic import BackgroundTraffic
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.decision import Admission, Reply, Target, refusal
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.connections.upstream import UpstreamPool
from codehub.proxy.http1.headers import PathRewrite as AddressMapping
from codehub.proxy.http1.messages import RequestHead
from codehub.proxy.server import ProxyServer
from testing.codehub.memory.activity import MemoryActivity
from testing.codehub.rawhttp import TIMEOUT_S, Peer, ScriptedUpstream, scripted_upstream

WORKSPACE = "01890000-0000-7000-8000-000000000001"
PREFIX = f"/w/{WORKSPACE}"


class AdmitAll:
    """Routes everything below `/w/` to one upstream."""

    def __init__(
        self, upstream: Upstream, buffer: ActivityBuffer, *, strip: bool, background: tuple[str, ...]
    ) -> None:
        secret = upstream.secret
        self._upstream = upstream
        self._mapping = AddressMapping(
            PREFIX.encode(), strip, (secret[0].lower().encode(), secret[1].encode()) if secret else None
        )
        self._background = BackgroundTraffic(background)
        self._activity = buffer.of(WORKSPACE)
        self.admission: Admission | None = None

    def _target(self) -> Target:
        pool = UpstreamPool(self._upstream, asyncio.get_running_loop())
        return Target(WORKSPACE.encode(), pool, self._mapping, self._background, self._activity, 1001)

    def recall(self, request: RequestHead, cookies: list[bytes]) -> Admission | None:
        if self.admission is None:
            self.admission = Admission((WORKSPACE.encode(), b""), self._target(), b"", b"", float("inf"))
        return self.admission if request.target.startswith(PREFIX.encode() + b"/") else None

    async def decide(
        self, request: RequestHead, cookies: list[bytes], *, failed: Admission | None
    ) -> Admission | Reply:
        if failed is not None:
            return refusal(502, "the upstream is away")
        return refusal(404, "no such workspace")

    def renew(self, admission: Admission) -> None:
        """Renew an admission. It never expires."""

    def close(self) -> None:
        if self.admission is not None:
            self.admission.target.pool.close()

    def local(self, request: RequestHead, peer: bytes) -> Reply | None:
        return None

    def away(self, request: RequestHead, admission: Admission) -> Reply:
        return refusal(502, "the upstream is away")


class RunningProxy:
    """A proxy in a separate thread and loop."""

    def __init__(self, port: int, proxy: ProxyServer, admitter: AdmitAll, activity: ActivityBuffer) -> None:
        self.port = port
        self.proxy = proxy
        self.admitter = admitter
        self.activity = activity
        self.skipped_s = 0.0  # how far the coarse clock is ahead, so that tests of deadlines need not wait
        self.stop: Callable[[], None] = lambda: None

    def connect(self) -> Peer:
        return Peer(socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S))

    def skip(self, seconds: float) -> None:
        self.skipped_s += seconds


@contextmanager
def in_a_thread(main: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> Iterator[Callable[[], None]]:
    """Run `main(ready)` on uvloop in a thread until the block ends or the yielded function is called."""
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def supervised() -> None:
        state["loop"] = asyncio.get_running_loop()
        state["task"] = asyncio.current_task()
        with suppress(asyncio.CancelledError):
            await main(ready.set)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(supervised())
        except BaseException as error:
            state["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60), "the proxy did not start"

    def stop() -> None:
        if thread.is_alive() and "task" in state:
            state["loop"].call_soon_threadsafe(state["task"].cancel)
        thread.join(60)
        assert not thread.is_alive(), "the proxy did not stop"

    try:
        yield stop
    finally:
        stop()
    if "error" in state:
        raise state["error"]


@contextmanager
def running_proxy(
    upstream: Upstream, *, strip: bool = True, background: tuple[str, ...] = (), grace_s: float = 2.0
) -> Iterator[RunningProxy]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    made: list[RunningProxy] = []

    async def main(ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        clock = CoarseClock(lambda: loop.time() + (made[0].skipped_s if made else 0.0), time.time)
        buffer = ActivityBuffer(MemoryActivity(), clock, flush_interval_s=3600, shortest_ttl_s=7200)
        admitter = AdmitAll(upstream, buffer, strip=strip, background=background)
        proxy = ProxyServer(admitter, admitter, clock, grace_s=grace_s)
        proxy.on_stop.append(admitter.close)
        made.append(RunningProxy(listener.getsockname()[1], proxy, admitter, buffer))
        await proxy.run([listener], ready)

    with in_a_thread(main) as stop:
        made[0].stop = stop
        yield made[0]


@contextmanager
def wired(*, strip: bool = True, background: tuple[str, ...] = ()) -> Iterator[tuple[RunningProxy, ScriptedUpstream]]:
    """Yield a proxy in front of a scripted upstream."""
    with scripted_upstream() as upstream:
        with running_proxy(Upstream("one", "127.0.0.1", upstream.port), strip=strip, background=background) as proxy:
            yield proxy, upstream


def main(upstream_port: int) -> None:
    """Run a proxy as a process. It prints its port on the first line and ends when its standard input ends."""
    with running_proxy(Upstream("one", "127.0.0.1", upstream_port), grace_s=0.1) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
