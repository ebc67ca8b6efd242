"""Caches the address of each workspace's instance for a short time, and the connection pool for it.

A new identity of the instance gets a new pool; the old pool accepts no new exchanges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from codehub.domain.doors import IDE, Door, Kind, prefix_of, read_key
from codehub.domain.errors import BackendDown
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.instances import Upstream
from codehub.proxy.activity.background_traffic import BackgroundTraffic
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.decision import Target
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.connections.port_pool import PortPool
from codehub.proxy.connections.upstream import UpstreamPool
from codehub.proxy.http1.headers import PathRewrite

# How long an address is used without another query to its backend.
BELIEVED_S = 2.0
# A workspace without traffic for this long is dropped.
FORGOTTEN_S = 600.0

Resolve = Callable[
    [str, str, bool], Awaitable[Upstream | None]
]  # (backend, workspace id, whether to resolve the helper)


class Targets:
    def __init__(
        self,
        resolve: Resolve,
        profile_of: Callable[[Workspace], AppProfile],
        activity: ActivityBuffer,
        clock: CoarseClock,
        scheme: bytes,
    ) -> None:
        self._resolve = resolve
        self._profile_of = profile_of
        self._activity = activity
        self._clock = clock
        self._scheme = scheme
        self._known: dict[bytes, tuple[Target, float]] = {}  # by door
        self._rule_sets: dict[tuple[str, ...], BackgroundTraffic] = {}

    async def find(self, workspace: Workspace, door: Door, *, again: bool = False) -> Target | None:
        """Return the target of a running instance, or None if none runs.

        If the backend is down, the cached target is kept.
        """
        key = door.key(workspace.id)
        known = self._known.get(key)
        if known is not None and not again and self._clock.now - known[1] < BELIEVED_S:
            return known[0]
        try:
            upstream = await self._resolve(workspace.instance_backend, workspace.id, door != IDE)
        except BackendDown:
            return known[0] if known is not None else None
        if upstream is None:
            self._drop(key)
            return None
        target = known[0] if known is not None and known[0].pool.upstream == upstream else None
        if target is None:
            self._drop(key)
            target = self._make(workspace, door, upstream)
        self._known[key] = (target, self._clock.now)
        return target

    def _make(self, workspace: Workspace, door: Door, upstream: Upstream) -> Target:
        loop = asyncio.get_running_loop()
        activity = self._activity.of(workspace.id)
        prefix = prefix_of(workspace.id, door).encode()
        secret = upstream.secret
        header = (secret[0].lower().encode(), secret[1].encode()) if secret is not None else None
        if door.kind is Kind.PORT:
            rewrite = PathRewrite(prefix, True, None, self._scheme, learns=not door.own_host)
            return Target(
                workspace.id.encode(), PortPool(upstream, door.port, loop), rewrite, self._rules(()), activity, 1001
            )
        if door.is_stream:
            rewrite = PathRewrite(prefix, True, header, self._scheme)
            return Target(
                workspace.id.encode(), UpstreamPool(upstream, loop), rewrite, self._rules(()), activity, 1001
            )
        profile = self._profile_of(workspace)
        rewrite = PathRewrite(prefix, profile.strip_prefix, header, self._scheme)
        background = self._rules(profile.background_traffic)
        pool = UpstreamPool(upstream, loop)
        return Target(workspace.id.encode(), pool, rewrite, background, activity, profile.close_code)

    def _rules(self, rules: tuple[str, ...]) -> BackgroundTraffic:
        background = self._rule_sets.get(rules)
        if background is None:
            background = self._rule_sets[rules] = BackgroundTraffic(rules)
        return background

    def _drop(self, key: bytes) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            known[0].pool.retire()

    def sweep(self) -> None:
        now = self._clock.now
        for key, (target, at) in list(self._known.items()):
            target.pool.sweep()
            if now - at > FORGOTTEN_S and not target.pool.open:
                del self._known[key]
        self._activity.forget_idle({read_key(key)[0] for key in self._known})

    def close(self) -> None:
        for target, _ in self._known.values():
            target.pool.close()
