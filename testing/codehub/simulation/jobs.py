"""Programs that work in instances while no user is there: every second instance runs one from its start to its end.

Contract: a workspace whose instance works is not put to sleep by the TTL, whatever fails while it is asked.
"""

from __future__ import annotations

import random
from datetime import datetime

from codehub.domain.busy import Work
from codehub.domain.errors import UpstreamUnavailable
from codehub.ports.instances import Upstream
from testing.codehub.simulation.world import World, works

_SILENT = 0.05  # how often an IDE does not answer


class SimAsks:
    """Implements ports.liveness.AsksActivity."""

    def __init__(self, world: World, dice: random.Random | None) -> None:
        self._world = world
        self._dice = dice

    async def work(self, upstream: Upstream, path: str, now: datetime) -> Work | None:
        assert self._dice is not None, "no profile has an activity_path"
        if self._dice.random() < _SILENT:
            self._world.count("no answer")
            raise UpstreamUnavailable("by chance")
        return Work(now, "a job") if works(upstream.identity) else None
