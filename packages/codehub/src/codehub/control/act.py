"""Carries out operations. Every step is idempotent: an interrupted operation continues by running all of its steps again.

Knows backends and the fence. Knows nothing of phases, retries or rows, except `record`, which commits the archive's key
before its volume is removed (INV-8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from codehub.control.deps import ProfileOf
from codehub.control.dev_images import DevImages
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.control.polling import next_pause_s
from codehub.control.setup_links import SetupLinks
from codehub.control.transfer_turns import Direction
from codehub.control.workspace_backends import WorkspaceBackends
from codehub.domain.disk import disk_limit
from codehub.domain.duplicate import FromArchive, FromHome, NotNow, Source, source_of
from codehub.domain.errors import Conflict, DataLost, FenceLost, NotFound, Terminal, Transient
from codehub.domain.model import HomeCtx, Operation, Progress, Workspace
from codehub.domain.profiles import AppProfile
from codehub.ports.clock import Clock
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeState
from codehub.ports.instances import InstanceSpec, Mount


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one operation."""

    workspace: Workspace
    fence: Fence
    report: Report
    # Commits a verified archive: as the workspace's `archive_key` when `current`, else as a generation only.
    record: Callable[[ArchiveReceipt, bool], Awaitable[None]]
    # Entered during each transfer of a home. Raises NotYourTurn if others are transferred first.
    turn: Callable[[Direction], AbstractContextManager[None]]
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
        load: Callable[[str], Awaitable[Workspace | None]],
        setup: SetupLinks | None = None,
        dev_images: DevImages | None = None,
        digest_of: Callable[[str, str], Awaitable[str | None]] | None = None,
    ) -> None:
        self._digest_of = digest_of
        self._dev_images = dev_images
        self._load = load
        self._setup = setup
        self._backends = backends
        self._health = health
        self._profile_of = profile_of
        self._clock = clock
        self._new_id = new_id
        self._random = random

    async def act(self, task: Task) -> HomeCtx | None:
        """Run the operation. Returns the context of the volume it created, if any."""
        match task.workspace.operation:
            case Operation.PROVISIONING:
                return await self._provision(task)
            case Operation.RESTORING:
                return await self._restore(task)
            case Operation.CREATE_EMPTY_ARCHIVE:
                await self._create_empty_archive(task)
            case Operation.DUPLICATING:
                await self._duplicate(task)
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
        """Remove staging data of finished operations. Called when the workspace is at rest."""
        await self._of(workspace, fence).sweep()

    def _of(self, workspace: Workspace, fence: Fence) -> WorkspaceBackends:
        return WorkspaceBackends(self._backends, workspace, fence, self._random)

    async def _provision(self, task: Task) -> HomeCtx:
        return await self._of(task.workspace, task.fence).provision(self._new_id())

    async def _restore(self, task: Task) -> HomeCtx:
        key, backends = task.workspace.archive_key, self._of(task.workspace, task.fence)
        if key is None:
            raise DataLost("there is no archive to restore from")
        sha256 = None if self._digest_of is None else await self._digest_of(task.workspace.id, key)
        try:
            with task.turn(Direction.RESTORE):
                return await backends.restore(key, self._new_id(), task.report, sha256)
        except NotFound as error:
            raise DataLost(f"the archive {key} is gone") from error
        except Conflict:
            await self._archive_other_volume(task, backends)
        with task.turn(Direction.RESTORE):
            return await backends.restore(key, self._new_id(), task.report, sha256)

    async def _archive_other_volume(self, task: Task, backends: WorkspaceBackends) -> None:
        """Archive, then remove, a complete volume that a deposed leader created late and that is in the way."""
        status = await backends.home_status()
        if status.state is HomeState.COMPLETE and status.ctx is not None:
            await self._archive_and_remove(task, backends, status.ctx, current=False)

    async def _create_empty_archive(self, task: Task) -> None:
        receipt = await self._of(task.workspace, task.fence).archive_empty(_op_id(task.workspace))
        await task.record(receipt, True)

    async def _duplicate(self, task: Task) -> None:
        """An archive of the original's home, or the one it has, is where this one begins. The original is only read.

        Nothing keeps the original from being started meanwhile: what was read then is not used, and read again.
        """
        original, source = await self._original_of(task.workspace)
        receipt: ArchiveReceipt | None
        match source:
            case NotNow(why):
                raise Terminal(why)
            case FromArchive(key):
                receipt = await self._receipt(key)
            case FromHome(ctx, stamp):
                backends = self._of(original, task.fence)
                try:
                    with task.turn(Direction.ARCHIVE):
                        receipt = await backends.archive(ctx, f"{_op_id(task.workspace)}.{stamp}", task.report)
                except DataLost as error:
                    # The original's volume, not the copy's. Archiving the original removes it; if it is really lost, the
                    # original goes to ERROR, and the next attempt reports that.
                    raise Transient("the volume of the original was removed while it was copied") from error
                if (await backends.instance_status()).running:
                    raise Transient("the original was started while it was copied")
        _, now = await self._original_of(task.workspace)
        if now != source:
            raise Transient("the original was started or archived while it was copied")
        await task.record(receipt, True)

    async def _receipt(self, archive_key: str) -> ArchiveReceipt:
        """Of an archive that is there, whosever place it is in: an original may itself be a copy."""
        owner = archive_key.partition("/")[0]
        found = await self._backends.with_archives(lambda archives: archives.receipts(owner))
        for receipt in found:
            if receipt.archive_key == archive_key:
                return receipt
        raise Transient(f"the archive {archive_key} of the original cannot be read")

    async def _original_of(self, copy: Workspace) -> tuple[Workspace, Source]:
        assert copy.copy_of is not None
        original = await self._load(copy.copy_of)
        if original is None:
            raise Terminal("the original no longer exists")
        return original, source_of(original)

    async def _start(self, task: Task) -> None:
        workspace, backends = task.workspace, self._of(task.workspace, task.fence)
        image, profile = await self._image(workspace)
        awaits = self._setup is not None and await self._setup.awaits_environment(workspace.owner_user_id)
        spec = _spec(workspace, image, profile, backends.mount(), awaits_environment=awaits)
        # At each start: the limit follows from the template's version, and older homes have none yet.
        await backends.limit_home(disk_limit(workspace))
        # Replace an instance that runs but never answered, and anything that a failed attempt left behind.
        container = workspace.conditions.container_ready
        again = workspace.error_count > 0 or container.reason == "NotHealthy"
        try:
            await backends.start_instance(spec, task.report, replace=again)
        except Terminal as error:
            if workspace.dev_image is None or image != workspace.dev_image.ref:
                raise
            # The next attempt starts it with the template's image.
            raise Transient(f"it does not start with the image of its devcontainer.json: {error}") from error
        if self._setup is not None:
            self._setup.started(workspace.id)
        await self._wait_until_healthy(task, backends, profile)
        if self._setup is not None:
            status = await backends.instance_status()
            if status.workspaced is not None:
                await self._setup.configured(workspace.id, status.identity)

    async def _image(self, workspace: Workspace) -> tuple[str, AppProfile]:
        """Return what to start: the image of devcontainer.json if there is one that works, else the template's."""
        image, profile = self._profile_of(workspace)
        wanted = workspace.dev_image
        # The first attempt failed: a workspace that runs with the template's image is better than none.
        if wanted is None or self._dev_images is None or workspace.error_count > 0:
            return image, profile
        if not await self._dev_images.usable(wanted):
            return image, profile
        return wanted.ref, replace(profile, image=wanted.ref, own_image=False)

    async def _wait_until_healthy(self, task: Task, backends: WorkspaceBackends, profile: AppProfile) -> None:
        """Wait until the health check succeeds, at most as long as the profile allows."""
        began = self._clock.monotonic()
        while True:
            status = await backends.instance_status()
            if not status.running:
                raise Transient(f"the instance ended while starting: {status.exit_reason or 'no reason given'}")
            if await backends.probe(profile):
                self._health.note(task.workspace.id, status.identity, answered=True)
                return
            waited_s = self._clock.monotonic() - began
            if waited_s >= profile.health_timeout_s:
                raise Transient(f"it did not answer {profile.health_path} within {profile.health_timeout_s:g} s")
            task.report(Progress("waiting for the IDE to answer", unit=""))
            await asyncio.sleep(next_pause_s(waited_s))

    async def _stop(self, task: Task) -> None:
        backends = self._of(task.workspace, task.fence)
        if task.workspace.conditions.volume_ready.is_true:
            await backends.stop_instance()
        else:  # INV-6: an instance does not outlive its volume
            await self._remove_instance(backends)

    async def _archive(self, task: Task) -> None:
        ctx, backends = task.workspace.home_ctx, self._of(task.workspace, task.fence)
        if ctx is None:
            raise DataLost("no volume is recorded that could be archived")
        await self._remove_instance(backends)
        await self._archive_and_remove(task, backends, ctx, current=True)

    async def _delete(self, task: Task) -> None:
        workspace, backends = task.workspace, self._of(task.workspace, task.fence)
        await self._remove_instance(backends)
        status = await backends.home_status()
        if status.state is HomeState.ABSENT:
            return
        if task.retention_is_over or (status.state is HomeState.INCOMPLETE and workspace.home_ctx is None):
            # Retention is over, or this is an incomplete volume that was never a home.
            with task.turn(Direction.ARCHIVE):
                await backends.purge()
            return
        if status.state is HomeState.INCOMPLETE or status.ctx is None:
            raise Terminal("the volume is incomplete and cannot be archived; it is removed when its retention ends")
        is_recorded = workspace.home_ctx is not None or workspace.archive_key is None
        await self._archive_and_remove(task, backends, status.ctx, current=is_recorded)

    async def _remove_instance(self, backends: WorkspaceBackends) -> None:
        """Delete the instance and verify that it is gone."""
        await backends.delete_instance()
        if (await backends.instance_status()).exists:
            raise Transient("the instance is still there after it was deleted")

    async def _archive_and_remove(
        self, task: Task, backends: WorkspaceBackends, ctx: HomeCtx, *, current: bool
    ) -> None:
        """INV-8: verify the archive, commit its key, then remove the volume of exactly this incarnation."""
        workspace, op_id = task.workspace, _op_id(task.workspace)
        if workspace.home_ctx is None or workspace.home_ctx.incarnation != ctx.incarnation:
            # INV-7: an op id is never written twice, so the content of another volume needs its own.
            op_id = f"{op_id}.{ctx.incarnation}"
        # Removing takes long too: its user decides how many files there are.
        with task.turn(Direction.ARCHIVE):
            receipt = await backends.archive(ctx, op_id, task.report)
            await task.record(receipt, current)
            try:
                await backends.deprovision(ctx)
            except FenceLost:
                task.fence()  # raises if the term has ended
                if not current:
                    raise
            else:
                return
        # Our volume is already gone; a deposed leader created another one late.
        await self._archive_other_volume(task, backends)


def _spec(
    workspace: Workspace, image: str, profile: AppProfile, mount: Mount, *, awaits_environment: bool
) -> InstanceSpec:
    spec = InstanceSpec(workspace.id, image, profile, mount, awaits_environment=awaits_environment)
    template = workspace.template
    if template is None:
        return spec
    return replace(spec, size=template.size, env=template.env, kubernetes=template.kubernetes)


def _op_id(workspace: Workspace) -> str:
    assert workspace.archive_op_id is not None, "the intent takes an op id (INV-8)"
    return workspace.archive_op_id
