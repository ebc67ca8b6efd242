"""All backends, each behind its circuit breaker. A backend that is not configured here counts as down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from codehub.control.breaker import Breaker
from codehub.domain.errors import BackendDown
from codehub.domain.model import Workspace
from codehub.domain.observed import Unseen
from codehub.ports.archives import Archives
from codehub.ports.clock import Clock
from codehub.ports.homes import Homes
from codehub.ports.instances import Instances

T = TypeVar("T")


class GuardedBackends:
    def __init__(
        self, instances: Mapping[str, Instances], homes: Mapping[str, Homes], archives: Archives, clock: Clock
    ) -> None:
        self.instances = instances
        self.homes = homes
        self.archives = archives
        self._instances = {name: Breaker(name, one.ping, clock) for name, one in instances.items()}
        self._homes = {name: Breaker(name, one.ping, clock) for name, one in homes.items()}
        self._archives = Breaker("archives", archives.ping, clock)

    async def with_instances(
        self, name: str, what: Callable[[Instances], Awaitable[T]], *, within_s: float | None = None
    ) -> T:
        backend = self.instances.get(name)
        if backend is None:
            raise BackendDown(f"the instance backend {name} is not available here")
        return await self._instances[name].call(lambda: what(backend), within_s)

    async def with_homes(
        self, name: str, what: Callable[[Homes], Awaitable[T]], *, within_s: float | None = None
    ) -> T:
        return await self._homes_breaker(name).call(lambda: what(self.homes[name]), within_s)

    async def with_archives(self, what: Callable[[Archives], Awaitable[T]], *, within_s: float | None = None) -> T:
        return await self._archives.call(lambda: what(self.archives), within_s)

    async def with_both(self, name: str, what: Callable[[Homes], Awaitable[T]]) -> T:
        """A call between a home and the archive store. Failures count for the store; the home's show in its other calls."""
        if self._homes_breaker(name).is_open:
            await self.with_homes(name, lambda homes: homes.ping())
        return await self._archives.call(lambda: what(self.homes[name]))

    def home_backend(self, name: str) -> Homes:
        backend = self.homes.get(name)
        if backend is None:
            raise BackendDown(f"the storage backend {name} is not available here")
        return backend

    def trouble(self, part: str, workspace: Workspace) -> Unseen | None:
        """Why the volume, instance or archive cannot be observed. The text stays the same until the backend answers."""
        match part:
            case "volume":
                name, breaker = workspace.storage_backend, self._homes.get(workspace.storage_backend)
            case "instance":
                name, breaker = workspace.instance_backend, self._instances.get(workspace.instance_backend)
            case _:
                name, breaker = "archives", self._archives
        if breaker is None:
            return Unseen(f"the backend {name} is not available here")
        return Unseen(breaker.trouble, breaker.down_since) if breaker.down_since is not None else None

    def health(self) -> Mapping[str, str]:
        """Each backend's current problem by name; empty if it has none."""
        every = [*self._instances.values(), *self._homes.values(), self._archives]
        return {breaker.name: breaker.trouble for breaker in every}

    def _homes_breaker(self, name: str) -> Breaker:
        self.home_backend(name)
        return self._homes[name]
