"""Instances, homes and archives in memory: the world of the simulation. Passes the suites of the real backends.

Each effect is one atomic step right after its fence check. A home's content is a mapping of names to bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codehub.domain.errors import (
    ArchiveCorrupted,
    Conflict,
    DataLost,
    Denied,
    FenceLost,
    NotFound,
    OutOfSpace,
    Transient,
)
from codehub.domain.gc import archive_key_of
from codehub.domain.model import HomeCtx, Progress
from codehub.domain.profiles import AppProfile, Runs
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import ABSENT, InstanceSpec, InstanceStatus, Mount, MountKind, Upstream
from testing.codehub.memory.answering import Answering

Files = Mapping[str, bytes]


@dataclass(slots=True)
class StoredArchive:
    files: Files | None = None
    meta: bool = False


class MemoryArchives(Answering):
    """Implements ports.archives.Archives."""

    def __init__(self) -> None:
        super().__init__("the archive store")
        self.places: dict[ArchivePlace, StoredArchive] = {}
        self._owner: str | None = None

    async def ping(self) -> None:
        await self.answer()

    async def claim(self, installation_id: str) -> None:
        await self.answer()
        if self._owner not in (None, installation_id):
            raise Denied(f"the archive store belongs to {self._owner}")
        self._owner = installation_id

    async def committed(self, archive_keys: Collection[str]) -> Mapping[str, bool]:
        await self.answer()
        return {key: self.find(key) is not None for key in archive_keys}

    async def receipts(self, workspace_id: str) -> Sequence[ArchiveReceipt]:
        await self.answer()
        return [
            _receipt(place.archive_key, place.op_id, stored.files)
            for place, stored in sorted(self.places.items(), key=lambda one: one[0].op_id)
            if place.workspace_id == workspace_id and stored.meta and stored.files is not None
        ]

    async def list_places(self) -> AsyncIterator[ArchivePlace]:
        await self.answer()
        for place in list(self.places):
            yield place

    async def remove(self, place: ArchivePlace, fence: Fence) -> None:
        await self.answer()
        fence()
        if (stored := self.places.get(place)) is not None:
            stored.meta = False
        fence()
        self.places.pop(place, None)

    def find(self, key: str) -> Files | None:
        """Return the content of a committed archive."""
        workspace_id, _, rest = key.partition("/")
        stored = self.places.get(ArchivePlace(workspace_id, rest.rpartition("/")[0], key))
        return stored.files if stored is not None and stored.meta else None

    def put(self, place: ArchivePlace, files: Files) -> None:
        self.places[place] = StoredArchive(dict(files), meta=True)


@dataclass(slots=True)
class Volume:
    ctx: HomeCtx
    files: dict[str, bytes] = field(default_factory=dict)
    limit: int | None = None


class MemoryHomes(Answering):
    """Implements ports.homes.Homes."""

    def __init__(self, archives: MemoryArchives, name: str = "local-dir") -> None:
        super().__init__("the storage backend")
        self._name = name
        # The full disk, if any.
        self.full = ""
        # As if the directory had been moved away: nothing can be observed or changed.
        self.hidden = False
        self.archives = archives
        self.volumes: dict[str, Volume] = {}

    @property
    def name(self) -> str:
        return self._name

    async def ping(self) -> None:
        await self.answer()

    async def list_all(self) -> Mapping[str, HomeStatus]:
        await self.answer()
        if self.hidden:
            return {}
        return {id_: HomeStatus(HomeState.COMPLETE, volume.ctx) for id_, volume in self.volumes.items()}

    async def status(self, home: HomeKey) -> HomeStatus:
        await self.answer()
        volume = None if self.hidden else self.volumes.get(home.workspace_id)
        return HomeStatus(HomeState.ABSENT) if volume is None else HomeStatus(HomeState.COMPLETE, volume.ctx)

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        await self.answer()
        volume = self.volumes.get(home.workspace_id)
        if volume is not None:
            volume.limit = limit
        return volume is not None and limit is not None

    async def size(self, home: HomeKey) -> int | None:
        await self.answer()
        volume = None if self.hidden else self.volumes.get(home.workspace_id)
        return None if volume is None else sum(map(len, volume.files.values()))

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        await self.answer()
        if home.workspace_id not in self.volumes:
            self._room()
            fence()
            self.volumes[home.workspace_id] = Volume(HomeCtx(incarnation))
        return self.volumes[home.workspace_id].ctx

    def mount(self, home: HomeKey) -> Mount:
        return Mount(MountKind.DIR, f"/homes/{home.store_key}")

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        await self.answer()
        await self.archives.answer()
        key = archive_key_of(home.workspace_id, op_id)
        if (there := self.archives.find(key)) is not None:
            return _receipt(key, op_id, there)
        files = dict(self._expect(home, ctx).files)
        self._room()
        report(Progress("archiving", 0, len(files)))
        fence()
        self.archives.put(ArchivePlace(home.workspace_id, op_id, key), files)
        return _receipt(key, op_id, files)

    async def archive_empty(self, home: HomeKey, op_id: str, fence: Fence) -> ArchiveReceipt:
        await self.answer()
        await self.archives.answer()
        key = archive_key_of(home.workspace_id, op_id)
        if self.archives.find(key) is None:
            fence()
            self.archives.put(ArchivePlace(home.workspace_id, op_id, key), {})
        return _receipt(key, op_id, {})

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        await self.answer()
        await self.archives.answer()
        volume = self.volumes.get(home.workspace_id)
        if volume is not None:
            if volume.ctx.restore_marker == archive_key:
                return volume.ctx
            raise Conflict("another whole volume is there")
        files = self.archives.find(archive_key)
        if files is None:
            raise NotFound(f"there is no archive {archive_key}")
        if sha256 is not None and _receipt(archive_key, "", files).sha256 != sha256:
            raise ArchiveCorrupted(f"{archive_key} has been replaced")
        self._room()
        report(Progress("restoring", 0, len(files)))
        fence()
        self.volumes[home.workspace_id] = Volume(HomeCtx(incarnation, archive_key), dict(files))
        return self.volumes[home.workspace_id].ctx

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        await self.answer()
        if home.workspace_id in self.volumes and not self.hidden:
            fence()
            self._expect(home, ctx)
            del self.volumes[home.workspace_id]

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        await self.answer()
        fence()
        self.volumes.pop(home.workspace_id, None)

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        await self.answer()

    def _room(self) -> None:
        if self.hidden:
            raise Transient("the homes' directory is not there")
        if self.full:
            raise OutOfSpace(f"no room left on {self.full}")

    def _expect(self, home: HomeKey, ctx: HomeCtx) -> Volume:
        volume = self.volumes.get(home.workspace_id)
        if volume is None:
            raise DataLost("the volume is gone")
        if volume.ctx.incarnation != ctx.incarnation:
            raise FenceLost("the volume is another incarnation")
        return volume


def _receipt(key: str, op_id: str, files: Files) -> ArchiveReceipt:
    content = b"".join(name.encode() + b"\0" + files[name] + b"\0" for name in sorted(files))
    return ArchiveReceipt(key, op_id, len(content) + 50, hashlib.sha256(content).hexdigest())


class MemoryInstances(Answering):
    """Implements ports.instances.Instances. `deaf` instances run, but answer no health check."""

    runs = Runs.COMMAND

    def __init__(self, name: str = "process") -> None:
        super().__init__("the instance backend")
        self._name = name
        self.there: dict[str, InstanceStatus] = {}
        self.deaf: set[str] = set()
        self._number = 0
        self._watchers: list[asyncio.Queue[str]] = []

    @property
    def name(self) -> str:
        return self._name

    async def ping(self) -> None:
        await self.answer()

    async def start(self, spec: InstanceSpec, report: Report, fence: Fence, *, replace: bool = False) -> None:
        await self.answer()
        digest = f"{spec.image} {spec.profile.name} {spec.mount}"
        there = self.there.get(spec.workspace_id, ABSENT)
        if there.running and there.spec_digest == digest and not replace:
            return
        fence()
        self._number += 1
        identity = f"i-{self._number}"
        upstream = Upstream(identity, socket_path=f"/run/{spec.workspace_id}.sock")
        self.there[spec.workspace_id] = InstanceStatus(True, True, identity, digest, upstream)
        self.hint(spec.workspace_id)

    async def stop(self, workspace_id: str, fence: Fence) -> None:
        await self.answer()
        if self.there.get(workspace_id, ABSENT).running:
            fence()
            self.end(workspace_id, "ExitCode:0")

    async def delete(self, workspace_id: str, fence: Fence) -> None:
        await self.answer()
        if workspace_id in self.there:
            fence()
            del self.there[workspace_id]
            self.hint(workspace_id)

    async def status(self, workspace_id: str) -> InstanceStatus:
        await self.answer()
        return self.there.get(workspace_id, ABSENT)

    async def list_all(self) -> Mapping[str, InstanceStatus]:
        await self.answer()
        return dict(self.there)

    async def probe(self, workspace_id: str, profile: AppProfile) -> bool:
        await self.answer()
        return self.there.get(workspace_id, ABSENT).running and workspace_id not in self.deaf

    async def resolve_upstream(self, workspace_id: str) -> Upstream | None:
        await self.answer()
        return self.there.get(workspace_id, ABSENT).upstream

    async def watch(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)

    async def logs(self, workspace_id: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        await self.answer()
        if workspace_id in self.there:
            yield f"hello from {workspace_id}\n".encode()
            if follow:
                await asyncio.Event().wait()

    async def usage(self, workspace_id: str) -> Mapping[str, float] | None:
        await self.answer()
        return None

    def end(self, workspace_id: str, reason: str) -> None:
        """End the instance, for any reason."""
        status = self.there[workspace_id]
        self.there[workspace_id] = replace(status, running=False, upstream=None, exit_reason=reason)
        self.hint(workspace_id)

    def hint(self, workspace_id: str) -> None:
        for queue in self._watchers:
            queue.put_nowait(workspace_id)
