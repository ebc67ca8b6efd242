"""Where each workspace's instance answers, remembered for a moment, and the pool of connections that goes with it.

Another identity of the instance is another pool: the old one takes no new exchanges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from codehub.domain.errors import BackendDown
from codehub.domain.model import Workspace
from codehub.domain.profiles import AppProfile
from codehub.domain.routing import workspace_path
from codehub.ports.instances import Upstream
from codehub.proxy.activity.background_traffic import BackgroundTraffic
from codehub.proxy.activity.buffer import ActivityBuffer
from codehub.proxy.admission.decision import Target
from codehub.proxy.coarse_clock import CoarseClock
from codehub.proxy.connections.upstream import UpstreamPool
from codehub.proxy.http1.headers import PathRewrite

# How long an address is believed without asking its backend again.
BELIEVED_S = 2.0
# A workspace nobody talked to for this long is forgotten.
FORGOTTEN_S = 600.0

Resolve = Callable[[str, str], Awaitable[Upstream | None]]  # (backend, workspace id)


class Targets:
    def __init__(
        self,
        resolve: Resolve,
        profile_of: Callable[[str, str], AppProfile],
        activity: ActivityBuffer,
        clock: CoarseClock,
        scheme: bytes,
    ) -> None:
        self._resolve = resolve
        self._profile_of = profile_of
        self._activity = activity
        self._clock = clock
        self._scheme = scheme
        self._known: dict[str, tuple[Target, float]] = {}
        self._rule_sets: dict[tuple[str, ...], BackgroundTraffic] = {}

    async def find(self, workspace: Workspace, *, again: bool = False) -> Target | None:
        """The target of a running instance, or None when none runs. A backend that is away leaves what was known."""
        known = self._known.get(workspace.id)
        if known is not None and not again and self._clock.now - known[1] < BELIEVED_S:
            return known[0]
        try:
            upstream = await self._resolve(workspace.instance_backend, workspace.id)
        except BackendDown:
            return known[0] if known is not None else None
        if upstream is None:
            self._drop(workspace.id)
            return None
        target = known[0] if known is not None and known[0].pool.upstream == upstream else None
        if target is None:
            self._drop(workspace.id)
            target = self._make(workspace, upstream)
        self._known[workspace.id] = (target, self._clock.now)
        return target

    def _make(self, workspace: Workspace, upstream: Upstream) -> Target:
        profile = self._profile_of(workspace.image_ref, workspace.instance_backend)
        background = self._rule_sets.get(profile.background_traffic)
        if background is None:
            background = self._rule_sets[profile.background_traffic] = BackgroundTraffic(profile.background_traffic)
        secret = upstream.secret
        rewrite = PathRewrite(
            workspace_path(workspace.id).rstrip("/").encode(),
            profile.strip_prefix,
            (secret[0].lower().encode(), secret[1].encode()) if secret is not None else None,
            self._scheme,
        )
        pool = UpstreamPool(upstream, asyncio.get_running_loop())
        activity = self._activity.of(workspace.id)
        return Target(workspace.id.encode(), pool, rewrite, background, activity, profile.close_code)

    def _drop(self, workspace_id: str) -> None:
        known = self._known.pop(workspace_id, None)
        if known is not None:
            known[0].pool.retire()

    def sweep(self) -> None:
        now = self._clock.now
        for workspace_id, (target, at) in list(self._known.items()):
            target.pool.sweep()
            if now - at > FORGOTTEN_S and not target.pool.open:
                del self._known[workspace_id]
        self._activity.forget_idle(set(self._known))

    def close(self) -> None:
        for target, _ in self._known.values():
            target.pool.close()
