"""The addresses of a workspace's ports are kept for a short time: there are 65,535 of them."""

from __future__ import annotations

from typing import cast

from codehub.domain.doors import IDE, Door, Kind
from codehub.domain.profiles import CODE_SERVER
from codehub.ports.activity import ActivityStore
from codehub.ports.instances import Upstream
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.targets import Targets
from codehub.proxy.coarse_clock import CoarseClock
from testing.codehub.workspaces import workspace


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
