"""Caches the address of each workspace's instance for a short time, and the connection pool for it.

A new identity of the instance gets a new pool; the old pool accepts no new exchanges. A backend that does not answer stops
no workspace that runs on it: known addresses are used meanwhile, and nobody waits for it again until it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

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
from codehub.proxy.tab import tab_script

# How long an address is used without another query to its backend.
BELIEVED_S = 2.0
# A workspace without traffic for this long is dropped.
FORGOTTEN_S = 600.0
# The same for a port. A workspace has 65,535 of them, and a page of it can ask for each.
PORT_FORGOTTEN_S = 10.0
# How long a request waits for its backend. Some accept every request and answer none.
ANSWERS_WITHIN_S: Final = 5.0
# The same while it did not answer the last query. A request whose target is known does not wait at all.
SILENT_ANSWERS_WITHIN_S: Final = 1.0

K = TypeVar("K")
T = TypeVar("T")
_Place = tuple[str, str, bool]  # backend, workspace id, whether it is the helper's
Resolve = Callable[[str, str, bool], Awaitable[Upstream | None]]  # the parts of a place


@dataclass(slots=True)
class _Known:
    target: Target
    backend: str
    at: float


@dataclass(frozen=True, slots=True)
class _Address:
    upstream: Upstream | None
    at: float


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
        self._known: dict[bytes, _Known] = {}  # by door
        # By door, and whether they follow a failed connection: those must not share the result of an earlier query.
        self._queries: dict[tuple[bytes, bool], asyncio.Task[Target | None]] = {}
        # All ports of a workspace have the address of its helper, so they share one query to the backend.
        self._addresses: dict[_Place, _Address] = {}
        self._asked: dict[
            tuple[_Place, bool], asyncio.Task[_Address]
        ] = {}  # and whether it follows a failed connection
        self._silent: set[str] = set()  # the backends that did not answer the last query
        self._rule_sets: dict[tuple[str, ...], BackgroundTraffic] = {}

    async def find(self, workspace: Workspace, door: Door, *, again: bool = False) -> Target | None:
        """Return the target of a running instance, or None if none runs.

        While the backend does not answer, the cached target is kept.
        """
        key = door.key(workspace.id)
        known = self._known.get(key)
        if known is not None and not again and self._clock.now - known.at < BELIEVED_S:
            return known.target
        query = self._queries.get((key, again)) or self._start_query(workspace, door, again=again)
        wait_s = ANSWERS_WITHIN_S
        if workspace.instance_backend in self._silent:
            wait_s = 0.0 if known is not None else SILENT_ANSWERS_WITHIN_S
        # A request never cancels the query: others wait for it too.
        await asyncio.wait([query], timeout=wait_s)
        if query.done():
            return query.result()
        self._silent.add(workspace.instance_backend)
        return known.target if known is not None else None

    def _start_query(self, workspace: Workspace, door: Door, *, again: bool) -> asyncio.Task[Target | None]:
        key = (door.key(workspace.id), again)
        task = asyncio.get_running_loop().create_task(self._query(workspace, door, again=again), name="find target")
        self._queries[key] = task
        task.add_done_callback(lambda done: _forget(self._queries, key, done))
        return task

    def is_silent(self, backend: str) -> bool:
        """Return whether the backend did not answer when it was last asked for an address."""
        return backend in self._silent

    async def _address(self, place: _Place, *, again: bool) -> _Address:
        address = self._addresses.get(place)
        if address is not None and not again and self._clock.now - address.at < BELIEVED_S:
            return address
        task = self._asked.get((place, again))
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(place), name="ask backend")
            self._asked[place, again] = task
            task.add_done_callback(lambda done: _forget(self._asked, (place, again), done))
        return await asyncio.shield(task)

    async def _ask(self, place: _Place) -> _Address:
        address = _Address(await self._resolve(*place), self._clock.now)
        if address.upstream is not None:  # one that is starting is asked for again
            self._addresses[place] = address
        else:
            self._addresses.pop(place, None)
        return address

    async def _query(self, workspace: Workspace, door: Door, *, again: bool) -> Target | None:
        key = door.key(workspace.id)
        try:
            address = await self._address((workspace.instance_backend, workspace.id, door != IDE), again=again)
        except BackendDown:
            self._silent.add(workspace.instance_backend)
            known = self._known.get(key)
            return known.target if known is not None else None
        self._silent.discard(workspace.instance_backend)
        upstream = address.upstream
        if upstream is None:
            self._drop(key)
            return None
        known = self._known.get(key)
        target = known.target if known is not None and known.target.pool.upstream == upstream else None
        if target is None:
            self._drop(key)
            target = self._make(workspace, door, upstream)
        self._known[key] = _Known(target, workspace.instance_backend, address.at)
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
        tab = tab_script(profile, prefix)
        return Target(workspace.id.encode(), pool, rewrite, background, activity, profile.close_code, tab)

    def _rules(self, rules: tuple[str, ...]) -> BackgroundTraffic:
        background = self._rule_sets.get(rules)
        if background is None:
            background = self._rule_sets[rules] = BackgroundTraffic(rules)
        return background

    def _drop(self, key: bytes) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            known.target.pool.retire()

    def sweep(self) -> None:
        now = self._clock.now
        for key, known in list(self._known.items()):
            known.target.pool.sweep()
            kept_s = PORT_FORGOTTEN_S if isinstance(known.target.pool, PortPool) else FORGOTTEN_S
            if now - known.at > kept_s and not known.target.pool.open and known.backend not in self._silent:
                self._drop(key)
        for place in [place for place, address in self._addresses.items() if now - address.at >= BELIEVED_S]:
            del self._addresses[place]
        self._activity.forget_idle({read_key(key)[0] for key in self._known})

    def close(self) -> None:
        for query in [*self._queries.values(), *self._asked.values()]:
            query.cancel()
        for known in self._known.values():
            known.target.pool.close()


def _forget(tasks: dict[K, asyncio.Task[T]], key: K, done: asyncio.Task[T]) -> None:
    tasks.pop(key, None)
    if not done.cancelled():
        done.exception()  # also retrieved here, because nobody may wait any more
