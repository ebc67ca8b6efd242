"""Heartbeats of the components' loops, and the error handling that they share.

An error in one tick skips the rest of that tick and is reported; an error of the loop itself ends the term. `last_tick_at`
advances with every iteration, which distinguishes a component that hangs from one that is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from codehub.control.metrics import Metrics
from codehub.domain.errors import BackendDown, Deposed, FenceLost, Transient
from codehub.ports.clock import Clock
from codehub.ports.control_store import ControlStore
from codehub.ports.leadership import Lease

_log = structlog.get_logger()

# How often heartbeats are written to the database.
_TELL_EVERY_S: Final = 5.0


@dataclass(slots=True)
class Heartbeat:
    """One component's heartbeat."""

    name: str
    clock: Clock
    metrics: Metrics
    fence: Callable[[], None]
    last_tick_at: datetime | None = None
    last_error: str | None = None

    def beat(self) -> None:
        """Record an iteration without work."""
        self.last_tick_at = self.clock.now()

    @asynccontextmanager
    async def tick(self) -> AsyncIterator[None]:
        """One iteration. An error skips the rest of it, is logged and counted, and the loop continues."""
        began = self.clock.monotonic()
        try:
            self.fence()
            yield
        except Deposed:
            raise
        except FenceLost:
            self.fence()  # raises if the term has ended; another incarnation only skips the tick
            self._failed("fenced")
        except (BackendDown, Transient) as error:
            self._failed(str(error))
            _log.info("a tick is skipped", component=self.name, error=str(error))
        except Exception as error:  # noqa: BLE001 - one failed tick must not end the term; it is logged and shown in health
            self._failed(f"{type(error).__name__}: {error}")
            _log.exception("a tick failed", component=self.name)
        else:
            self.last_error = None
            self.metrics.ticks.labels(self.name, "ok").inc()
        self.last_tick_at = self.clock.now()
        self.metrics.tick_seconds.labels(self.name).observe(self.clock.monotonic() - began)

    def _failed(self, message: str) -> None:
        self.last_error = message
        self.metrics.ticks.labels(self.name, "failed").inc()

    def as_json(self) -> Mapping[str, object]:
        at = self.last_tick_at
        return {"last_tick_at": at.isoformat() if at else None, "last_error": self.last_error}


async def publish_heartbeats(heartbeats: list[Heartbeat], store: ControlStore, lease: Lease) -> None:
    """Write the heartbeats to `system_locks`, where the API reads them."""
    while True:
        try:
            await store.note_components(
                lease.epoch, {heartbeat.name: heartbeat.as_json() for heartbeat in heartbeats}
            )
        except (BackendDown, Transient) as error:
            _log.info("the components' state is not written", error=str(error))
        await asyncio.sleep(_TELL_EVERY_S)
