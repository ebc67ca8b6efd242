"""The EventListener: turns database notifications into wake-ups in this process and hints in Redis for other processes.

The wake-up comes first and never waits for Redis. Hints go through a bounded queue that drops the oldest.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from codehub.control.heartbeat import Heartbeat
from codehub.domain.errors import BackendDown, Transient
from codehub.ports.bus import Bus
from codehub.ports.notifications import Notice, NoticeKind, Notifications

_log = structlog.get_logger()

_LISTEN_AGAIN_S: Final = 1.0
_MOST_HINTS: Final = 10_000


class EventListener:
    def __init__(
        self,
        notifications: Notifications,
        bus: Bus,
        wake: Callable[[Iterable[str]], None],
        heartbeat: Heartbeat,
        *,
        user_setup_changed: Callable[[], None] = lambda: None,
        sse_prefix: str,
        wake_prefix: str,
    ) -> None:
        self._notifications = notifications
        self._bus = bus
        self._wake = wake
        self._heartbeat = heartbeat
        self._user_setup_changed = user_setup_changed
        self._sse_prefix = sse_prefix
        self._wake_prefix = wake_prefix
        self._hints: deque[tuple[str, str]] = deque(maxlen=_MOST_HINTS)
        self._there_are_hints = asyncio.Event()
        self._unpublished: str | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen_for_ever())
            group.create_task(self._publish_for_ever())

    async def _listen_for_ever(self) -> None:
        while True:
            async with self._heartbeat.tick():
                async for notice in self._notifications.listen():
                    self._heartbeat.beat()
                    self._heartbeat.last_error = self._unpublished
                    if notice is not None:
                        self._take(notice)
            # Notifications sent in between are lost; the controller's resync finds the changes.
            self._wake(())
            await asyncio.sleep(_LISTEN_AGAIN_S)

    def _take(self, notice: Notice) -> None:
        payload = json.dumps({"id": notice.workspace_id})
        match notice.kind:
            case NoticeKind.WAKE:
                self._wake([notice.workspace_id])
                self._hint(f"{self._wake_prefix}wc", payload)
                self._hint(f"{self._wake_prefix}ob", payload)
            case NoticeKind.USER_SETUP:
                self._user_setup_changed()
            case NoticeKind.SHOWN | NoticeKind.DELETED:
                self._hint(f"{self._sse_prefix}{notice.owner_user_id}", payload)

    def _hint(self, channel: str, payload: str) -> None:
        self._hints.append((channel, payload))
        self._there_are_hints.set()

    async def _publish_for_ever(self) -> None:
        while True:
            await self._there_are_hints.wait()
            self._there_are_hints.clear()
            while self._hints:
                channel, payload = self._hints.popleft()
                try:
                    await self._bus.publish(channel, payload)
                except (BackendDown, Transient) as error:
                    self._cannot_publish(f"hints are dropped: {error}")
                    await asyncio.sleep(_LISTEN_AGAIN_S)
                else:
                    self._unpublished = None

    def _cannot_publish(self, message: str) -> None:
        if self._unpublished is None:
            _log.info(message)
        self._unpublished = self._heartbeat.last_error = message
        # Old hints are worthless once Redis is back: listeners poll meanwhile. One hint is retried until it succeeds, so
        # that the reported error is cleared as soon as Redis answers.
        self._hints.clear()
        self._hint(f"{self._wake_prefix}wc", "{}")
