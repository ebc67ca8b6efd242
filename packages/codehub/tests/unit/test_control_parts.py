"""The small parts of the control plane: the queue, the breaker, health, deadline, and what a coordinator answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from codehub.control.breaker import FAILURES_TO_OPEN, OPEN_FOR_S, Breaker
from codehub.control.health import HealthTracker
from codehub.control.health_server import HealthState, health_server
from codehub.control.metrics import Metrics
from codehub.control.observe import Observer
from codehub.control.progress_deadline import ProgressDeadline, ProgressDeadlineExceeded
from codehub.control.queue import KeyedQueue
from codehub.domain.errors import BackendDown
from codehub.ports.instances import ABSENT, InstanceStatus
from testing.codehub.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from testing.codehub.workspaces import WORKSPACE_ID, workspace
from testing.ports import free_ports


def test_a_key_is_worked_on_by_one_worker_and_comes_again_when_it_was_added_meanwhile() -> None:
    async def scenario() -> None:
        queue = KeyedQueue()
        queue.add_all(["a", "b", "a"])
        assert [await queue.take(), await queue.take()] == ["a", "b"]
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert await queue.take() == "a"
        queue.done("a")
        queue.add_after("c", 50)
        queue.add_after("c", 10)
        began = asyncio.get_running_loop().time()
        assert await queue.take() == "c"
        assert asyncio.get_running_loop().time() - began == pytest.approx(10)
        assert len(queue) == 0

    run_virtual(scenario(), VirtualLoop())


def test_a_dead_backend_is_left_alone_and_closes_after_two_good_pings() -> None:
    loop = VirtualLoop()
    down, calls, pings = True, 0, 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if down:
            raise BackendDown("away")
        return "done"

    async def ping() -> None:
        nonlocal pings
        pings += 1
        if down:
            raise BackendDown("away")

    async def scenario() -> None:
        nonlocal down
        breaker = Breaker("docker", ping, VirtualClock(loop))
        for _ in range(FAILURES_TO_OPEN + 20):
            with pytest.raises(BackendDown):
                await breaker.call(call)
        assert calls == FAILURES_TO_OPEN
        assert breaker.is_open
        await asyncio.sleep(OPEN_FOR_S)
        with pytest.raises(BackendDown):
            await breaker.call(call)
        assert (calls, pings) == (FAILURES_TO_OPEN, 1)
        down = False
        with pytest.raises(BackendDown):
            await breaker.call(call)
        await asyncio.sleep(OPEN_FOR_S)
        assert await breaker.call(call) == "done"
        assert pings == 3
        assert not breaker.is_open

    run_virtual(scenario(), loop)


def test_an_instance_is_unhealthy_only_after_three_failures_over_thirty_seconds() -> None:
    loop = VirtualLoop()

    async def scenario() -> None:
        book = HealthTracker(VirtualClock(loop))
        book.note("w", "i-1", answered=True)
        for _ in range(10):
            assert not book.note("w", "i-1", answered=False)
        assert book.verdict("w", "i-1") is True
        await asyncio.sleep(30)
        assert book.note("w", "i-1", answered=False)
        assert book.verdict("w", "i-1") is False
        assert book.verdict("w", "i-2") is None

    run_virtual(scenario(), loop)


def test_what_is_known_of_an_instances_health_goes_when_it_stops() -> None:
    loop = VirtualLoop()

    async def scenario() -> None:
        tracker = HealthTracker(VirtualClock(loop))
        observer = Observer(cast(Any, None), tracker, cast(Any, None))
        tracker.note(WORKSPACE_ID, "i-1", answered=True)
        running = InstanceStatus(exists=True, running=True, identity="i-1")
        assert observer.instance_seen(workspace(), running).healthy is True
        observer.instance_seen(workspace(), ABSENT)
        assert observer.instance_seen(workspace(), running).healthy is None

    run_virtual(scenario(), loop)


def test_work_without_progress_is_ended_and_with_progress_it_is_not() -> None:
    loop = VirtualLoop()

    async def scenario() -> None:
        deadline = ProgressDeadline(VirtualClock(loop), 600)

        async def moves() -> str:
            for _ in range(10):
                await asyncio.sleep(500)
                deadline.renew()
            return "done"

        assert await deadline.run(moves()) == "done"
        with pytest.raises(ProgressDeadlineExceeded):
            await deadline.run(asyncio.sleep(10_000))

    run_virtual(scenario(), loop)


async def test_a_coordinator_answers_for_itself() -> None:
    loop = VirtualLoop()
    try:
        state = HealthState("node-1", VirtualClock(loop), Metrics())
        port = free_ports(1)[0]
        async with health_server(f"127.0.0.1:{port}", state):
            status, body = await _get(port, "/health/coordinator")
            assert status == 200
            assert json.loads(body) == {
                "is_leader": False,
                "node_id": "node-1",
                "uptime_seconds": 0.0,
                "leader": None,
                "refuses_to_lead": None,
                "components": {},
            }
            status, body = await _get(port, "/metrics")
            assert status == 200
            assert b"codehub_coordinator_is_leader 0.0" in body
            assert (await _get(port, "/else"))[0] == 404
    finally:
        loop.close()


async def _get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body
