"""The addresses of a workspace's ports are kept for a short time: there are 65,535 of them."""

from __future__ import annotations

import asyncio
from typing import cast

from codehub.domain.doors import IDE, Door, Kind
from codehub.domain.profiles import CODE_SERVER
from codehub.ports.activity import ActivityStore
from codehub.ports.instances import Upstream
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.targets import Targets
from codehub.proxy.coarse_clock import CoarseClock
from testing.codehub.workspaces import workspace

OTHER = "01980000-0000-7000-8000-000000000002"


async def test_ports_without_traffic_are_forgotten_soon_and_the_ide_is_not() -> None:
    now = [100.0]
    clock = CoarseClock(lambda: now[0], lambda: now[0])
    clock.tick()
    buffer = ActivityBuffer(cast(ActivityStore, None), clock, flush_interval_s=10, shortest_ttl_s=60)
    upstream = Upstream("instance", "127.0.0.1", 1)

    async def resolve(backend: str, workspace_id: str, helper: bool) -> Upstream:
        return upstream

    targets = Targets(resolve, lambda _: CODE_SERVER, buffer, clock, b"http")
    row = workspace()
    ide = await targets.find(row, IDE)
    ports = [await targets.find(row, Door(Kind.PORT, number)) for number in range(3000, 3100)]
    assert len(targets._known) == 101
    now[0] += 11
    clock.tick()
    targets.sweep()
    assert [known.target for known in targets._known.values()] == [ide]
    assert None not in ports


async def test_the_ports_of_a_workspace_are_asked_for_together() -> None:
    """Each was a query to the backend: somebody who tried all ports kept the engine busy for everybody."""
    now = [100.0]
    clock = CoarseClock(lambda: now[0], lambda: now[0])
    clock.tick()
    buffer = ActivityBuffer(cast(ActivityStore, None), clock, flush_interval_s=10, shortest_ttl_s=60)
    asked: list[tuple[str, bool]] = []
    answers: list[Upstream | None] = [Upstream("first", "127.0.0.1", 1)]

    async def resolve(backend: str, workspace_id: str, helper: bool) -> Upstream | None:
        asked.append((workspace_id, helper))
        await asyncio.sleep(0)
        return answers[-1]

    targets = Targets(resolve, lambda _: CODE_SERVER, buffer, clock, b"http")
    one, other = workspace(), workspace(OTHER)
    doors = [Door(Kind.PORT, number) for number in range(3000, 3200)]
    await asyncio.gather(*(targets.find(one, door) for door in doors[:100]))
    for door in doors[100:]:
        assert await targets.find(one, door) is not None
    assert asked == [(one.id, True)]
    # The IDE and another workspace have addresses of their own.
    await targets.find(one, IDE)
    await targets.find(other, doors[0])
    assert asked[1:] == [(one.id, False), (other.id, True)]
    # After a failed connection, and when the answer is old, it is asked for again. One that does not run is not believed.
    answers.append(Upstream("second", "127.0.0.1", 1))
    moved = await targets.find(one, doors[0], again=True)
    assert moved is not None
    assert moved.pool.upstream.identity == "second"
    now[0] += 3
    clock.tick()
    answers.append(None)
    assert await targets.find(one, doors[1]) is None
    answers.append(answers[0])
    assert await targets.find(one, doors[1]) is not None
    assert len(asked) == 6
