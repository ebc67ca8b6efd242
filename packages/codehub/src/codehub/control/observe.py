"""Observes one workspace: fresh facts, before anything is decided about it.

Facts from a backend that does not answer are None (Unknown), never a guess.
"""

from __future__ import annotations

import asyncio

import structlog

from codehub.control.breaker import OBSERVED_WITHIN_S
from codehub.control.deps import ProfileOf
from codehub.control.guarded_backends import GuardedBackends
from codehub.control.health import HealthTracker
from codehub.domain.errors import BackendDown, CodeHubError
from codehub.domain.model import Operation, Workspace
from codehub.domain.observed import InstanceSeen, Observed, VolumeSeen, VolumeState
from codehub.domain.template_options import NO_OPTIONS
from codehub.ports.homes import HomeKey, HomeStatus
from codehub.ports.instances import InstanceStatus

_log = structlog.get_logger()

# These operations wait for the archive itself.
_ABOUT_ARCHIVES = frozenset(
    {Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE, Operation.RESTORING, Operation.DELETING}
) | {Operation.DUPLICATING}


def home_key(workspace: Workspace) -> HomeKey:
    template = workspace.template
    options = NO_OPTIONS if template is None else template.kubernetes
    return HomeKey(workspace.id, workspace.home_store_key, options)


def volume_seen(status: HomeStatus) -> VolumeSeen:
    return VolumeSeen(VolumeState(status.state.value), status.ctx)


class Observer:
    def __init__(self, backends: GuardedBackends, health: HealthTracker, profile_of: ProfileOf) -> None:
        self._backends = backends
        self._health = health
        self._profile_of = profile_of

    async def observe(self, workspace: Workspace) -> Observed:
        async with asyncio.TaskGroup() as group:  # both may be on an engine that hangs: wait for it once
            seen = group.create_task(self._volume(workspace))
            instance = group.create_task(self._instance(workspace))
        volume = seen.result()
        archive = await self._archive(workspace, volume)
        return self.observed(workspace, volume, archive, instance.result())

    def observed(
        self, workspace: Workspace, volume: VolumeSeen | None, archive: bool | None, instance: InstanceSeen | None
    ) -> Observed:
        """Adds the reason for each part that could not be observed; identical for a listing and a single observation."""
        parts = {"volume": volume, "archive": archive, "instance": instance}
        troubles = {part: self._backends.trouble(part, workspace) for part, seen in parts.items() if seen is None}
        unseen = {part: trouble for part, trouble in troubles.items() if trouble is not None}
        return Observed(volume, archive, instance, unseen)

    async def _volume(self, workspace: Workspace) -> VolumeSeen | None:
        try:
            status = await self._backends.with_homes(
                workspace.storage_backend,
                lambda homes: homes.status(home_key(workspace)),
                within_s=OBSERVED_WITHIN_S,
            )
        except CodeHubError as error:
            _unseen("volume", workspace, error)
            return None
        return volume_seen(status)

    async def _instance(self, workspace: Workspace) -> InstanceSeen | None:
        try:
            status = await self._backends.with_instances(
                workspace.instance_backend,
                lambda instances: instances.status(workspace.id),
                within_s=OBSERVED_WITHIN_S,
            )
            if status.running and self._health.verdict(workspace.id, status.identity) is None:
                await self.probe(workspace, status.identity)
        except CodeHubError as error:
            _unseen("instance", workspace, error)
            return None
        return self.instance_seen(workspace, status)

    def instance_seen(self, workspace: Workspace, status: InstanceStatus) -> InstanceSeen:
        if not status.running:
            self._health.forget(
                workspace.id
            )  # otherwise records of all past instances would stay until the term ends
        healthy = self._health.verdict(workspace.id, status.identity) if status.running else None
        return InstanceSeen(status.exists, status.running, healthy, status.exit_reason or "", status.unknown)

    async def probe(self, workspace: Workspace, identity: str) -> bool:
        """Probe the IDE. Returns whether its health verdict changed."""
        _, profile = self._profile_of(workspace)
        answered = await self._backends.with_instances(
            workspace.instance_backend, lambda instances: instances.probe(workspace.id, profile)
        )
        return self._health.note(workspace.id, identity, answered)

    async def _archive(self, workspace: Workspace, volume: VolumeSeen | None) -> bool | None:
        key = workspace.archive_key
        if key is None:
            return None
        known = workspace.conditions.archive_ready
        whole = volume is not None and volume.state is VolumeState.COMPLETE
        if whole and workspace.operation not in _ABOUT_ARCHIVES and not known.is_unknown:
            return known.is_true  # next to a complete volume the archive does not matter: save the request
        try:
            found = await self._backends.with_archives(
                lambda archives: archives.committed([key]), within_s=OBSERVED_WITHIN_S
            )
            return found[key]
        except CodeHubError as error:
            _unseen("archive", workspace, error)
            return None


def _unseen(what: str, workspace: Workspace, error: CodeHubError) -> None:
    if not isinstance(error, BackendDown):
        _log.warning("could not be observed", what=what, workspace_id=workspace.id, error=str(error))
