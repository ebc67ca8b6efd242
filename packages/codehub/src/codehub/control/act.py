"""The effects of each operation. Every step is idempotent: an operation is carried on by doing all of it again.

Knows backends and the fence; knows nothing of phases, retries or rows, but for `record`, by which the archive's key is
committed before its volume goes (INV-8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from codehub.control.deps import ProfileOf
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.control.observe import home_key
from codehub.domain.errors import (
    BackendDown,
    Conflict,
    DataLost,
    FenceLost,
    NotFound,
    OutOfSpace,
    Terminal,
    Transient,
)
from codehub.domain.model import HomeCtx, Operation, Progress, Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.clock import Clock
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeState
from codehub.ports.instances import InstanceSpec

T = TypeVar("T")

# Inside an action transient faults are tried again at once, with jitter; the controller's own retries come on top.
_TRIES: Final = 3
_PAUSE_S: Final = 0.2
# How often a starting IDE is asked: quick at first, since a page waits for it.
_FIRST_PROBE_S: Final = 0.05
_SLOWEST_PROBE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one operation."""

    workspace: Workspace
    fence: Fence
    report: Report
    # Commits a verified archive: as the workspace's `archive_key` when `current`, else as a generation only.
    record: Callable[[ArchiveReceipt, bool], Awaitable[None]]
    retention_is_over: bool = False


class Actor:
    def __init__(
        self,
        backends: GuardedBackends,
        health: HealthTracker,
        profile_of: ProfileOf,
        clock: Clock,
        new_id: Callable[[], str],
        random: Callable[[], float],
    ) -> None:
        self._backends = backends
        self._health = health
        self._profile_of = profile_of
        self._clock = clock
        self._new_id = new_id
        self._random = random

    async def act(self, task: Task) -> HomeCtx | None:
        """Do it; the ctx of the volume that was made, if one was."""
        match task.workspace.operation:
            case Operation.PROVISIONING:
                return await self._provision(task)
            case Operation.RESTORING:
                return await self._restore(task)
            case Operation.CREATE_EMPTY_ARCHIVE:
                await self._create_empty_archive(task)
            case Operation.STARTING:
                await self._start(task)
            case Operation.STOPPING:
                await self._stop(task)
            case Operation.ARCHIVING:
                await self._archive(task)
            case Operation.DELETING:
                await self._delete(task)
            case Operation.NONE:
                raise AssertionError("nothing to do")
        return None

    async def cleanup_staging(self, workspace: Workspace, fence: Fence) -> None:
        """At rest: staging of operations that are over goes."""
        await self._backends.with_homes(
            workspace.storage_backend, lambda homes: homes.sweep(home_key(workspace), fence)
        )

    async def _provision(self, task: Task) -> HomeCtx:
        home, incarnation = home_key(task.workspace), self._new_id()
        return await self._retry(
            lambda: self._backends.with_homes(
                task.workspace.storage_backend, lambda homes: homes.provision(home, incarnation, task.fence)
            )
        )

    async def _restore(self, task: Task) -> HomeCtx:
        key = task.workspace.archive_key
        if key is None:
            raise DataLost("there is no archive to restore from")
        try:
            return await self._restore_from(task, key)
        except NotFound as error:
            raise DataLost(f"the archive {key} is gone") from error
        except Conflict:
            await self._set_aside(task)
            return await self._restore_from(task, key)

    async def _restore_from(self, task: Task, key: str) -> HomeCtx:
        home, incarnation = home_key(task.workspace), self._new_id()
        return await self._retry(
            lambda: self._backends.with_both(
                task.workspace.storage_backend,
                lambda homes: homes.restore(home, key, incarnation, task.report, task.fence),
            )
        )

    async def _set_aside(self, task: Task) -> None:
        """Another whole volume is in the way (a deposed leader's late effect): archived first, never just removed."""
        ctx = await self._whole_ctx(task.workspace)
        if ctx is not None:
            await self._archive_and_remove(task, ctx, current=False)

    async def _create_empty_archive(self, task: Task) -> None:
        home, op_id = home_key(task.workspace), _op_id(task.workspace)
        receipt = await self._retry(
            lambda: self._backends.with_both(
                task.workspace.storage_backend, lambda homes: homes.archive_empty(home, op_id, task.fence)
            )
        )
        await task.record(receipt, True)

    async def _start(self, task: Task) -> None:
        workspace = task.workspace
        image, profile = self._profile_of(workspace)
        name = workspace.instance_backend
        mount = self._backends.homes[workspace.storage_backend].mount(home_key(workspace))
        spec = InstanceSpec(workspace.id, image, profile, mount)
        # One that runs and never answered is made again; so is whatever a failed attempt left behind.
        container = workspace.conditions.container_ready
        replace = workspace.error_count > 0 or container.reason == "NotHealthy"
        await self._retry(
            lambda: self._backends.with_instances(
                name, lambda instances: instances.start(spec, task.report, task.fence, replace=replace)
            )
        )
        await self._answers(task, profile)

    async def _answers(self, task: Task, profile: AppProfile) -> None:
        """Wait until it answers its health check, for as long as its profile says."""
        name, workspace_id = task.workspace.instance_backend, task.workspace.id
        deadline = self._clock.monotonic() + profile.health_timeout_s
        pause_s = _FIRST_PROBE_S
        while True:
            status = await self._backends.with_instances(name, lambda instances: instances.status(workspace_id))
            if not status.running:
                raise Transient(f"the instance ended while starting: {status.exit_reason or 'no reason given'}")
            answered = await self._backends.with_instances(
                name, lambda instances: instances.probe(workspace_id, profile)
            )
            if answered:
                self._health.note(workspace_id, status.identity, answered=True)
                return
            if self._clock.monotonic() >= deadline:
                raise Transient(f"it did not answer {profile.health_path} within {profile.health_timeout_s:g} s")
            task.report(Progress("waiting for the IDE to answer", unit=""))
            await asyncio.sleep(pause_s)
            pause_s = min(_SLOWEST_PROBE_S, pause_s * 1.5)

    async def _stop(self, task: Task) -> None:
        # Without a volume the instance is not kept: INV-6.
        if task.workspace.conditions.volume_ready.is_true:
            await self._retry(
                lambda: self._backends.with_instances(
                    task.workspace.instance_backend,
                    lambda instances: instances.stop(task.workspace.id, task.fence),
                )
            )
        else:
            await self._remove_instance(task)

    async def _archive(self, task: Task) -> None:
        ctx = task.workspace.home_ctx
        if ctx is None:
            raise DataLost("no volume is recorded that could be archived")
        await self._remove_instance(task)
        await self._archive_and_remove(task, ctx, current=True)

    async def _delete(self, task: Task) -> None:
        workspace = task.workspace
        await self._remove_instance(task)
        status = await self._backends.with_homes(
            workspace.storage_backend, lambda homes: homes.status(home_key(workspace))
        )
        if status.state is HomeState.ABSENT:
            return
        if task.retention_is_over or (status.state is HomeState.INCOMPLETE and workspace.home_ctx is None):
            # The end of retention; or something half-made that was never anybody's home.
            await self._retry(
                lambda: self._backends.with_homes(
                    workspace.storage_backend, lambda homes: homes.purge(home_key(workspace), task.fence)
                )
            )
            return
        if status.state is HomeState.INCOMPLETE or status.ctx is None:
            raise Terminal("the volume is not whole and cannot be archived; it goes when retention ends")
        is_recorded = workspace.home_ctx is not None or workspace.archive_key is None
        await self._archive_and_remove(task, status.ctx, current=is_recorded)

    async def _remove_instance(self, task: Task) -> None:
        """Delete it, and see it gone."""
        name, workspace_id = task.workspace.instance_backend, task.workspace.id
        await self._retry(
            lambda: self._backends.with_instances(name, lambda instances: instances.delete(workspace_id, task.fence))
        )
        status = await self._backends.with_instances(name, lambda instances: instances.status(workspace_id))
        if status.exists:
            raise Transient("the instance is still there after it was deleted")

    async def _archive_and_remove(self, task: Task, ctx: HomeCtx, *, current: bool) -> None:
        """INV-8: verified, then its key committed, then the volume of this very incarnation removed."""
        workspace, home, op_id = task.workspace, home_key(task.workspace), _op_id(task.workspace)
        if workspace.home_ctx is None or workspace.home_ctx.incarnation != ctx.incarnation:
            # INV-7: what is at an op id is never made again, so another volume's content needs another one.
            op_id = f"{op_id}.{ctx.incarnation}"
        receipt = await self._retry(
            lambda: self._backends.with_both(
                workspace.storage_backend,
                lambda homes: homes.archive(home, ctx, op_id, task.report, task.fence),
            )
        )
        await task.record(receipt, current)
        try:
            await self._retry(
                lambda: self._backends.with_homes(
                    workspace.storage_backend, lambda homes: homes.deprovision(home, ctx, task.fence)
                )
            )
        except FenceLost:
            task.fence()  # raises when it was the term that ended
            if not current:
                raise
            # Ours is gone already, and a deposed leader's late one is in its place.
            await self._set_aside(task)

    async def _whole_ctx(self, workspace: Workspace) -> HomeCtx | None:
        status = await self._backends.with_homes(
            workspace.storage_backend, lambda homes: homes.status(home_key(workspace))
        )
        return status.ctx if status.state is HomeState.WHOLE else None

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """A few tries at what may pass by itself. A backend that is down is the breaker's business, not ours."""
        for tried in range(1, _TRIES):
            try:
                return await call()
            except (BackendDown, OutOfSpace):
                raise
            except Transient:
                await asyncio.sleep(_PAUSE_S * tried * (0.5 + self._random()))
        return await call()


def _op_id(workspace: Workspace) -> str:
    assert workspace.archive_op_id is not None, "the intent takes an op id (INV-8)"
    return workspace.archive_op_id
