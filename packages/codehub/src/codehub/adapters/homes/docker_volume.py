"""Homes as Docker volumes, for an engine that is not on this machine.

A volume is complete if a second, empty volume of the same incarnation marks it. The marker is created last and removed
first. The volume's name is fixed, so its hold (`volume_copy`) protects the next incarnation from a late removal. Content
goes through the engine's archive stream, so user xattrs, holes and fractions of seconds are not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codehub.adapters.docker.engine import WORKSPACE, Engine
from codehub.adapters.docker.volume_copy import FOLDER, OWNER, Door, copy_container, make_door, remove_copies
from codehub.adapters.filesystem.ownership import container_uid_for
from codehub.adapters.homes.bridge import FromThread, from_loop
from codehub.adapters.homes.space import check_room_for_restore
from codehub.adapters.homes.stored import StoredHomes
from codehub.adapters.homes.usage import disk_usage
from codehub.adapters.homes.work import Kind, Workers
from codehub.adapters.objectstore.layout import Meta, parse_key
from codehub.adapters.objectstore.layout import archive_key as key_of
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import (
    Checkpoint,
    Job,
    download,
    find_receipt,
    nowhere,
    read_meta,
    upload,
)
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.pack import Packed
from codehub.adapters.tarball.retar import into, out_of, renamed
from codehub.domain.errors import ArchiveCorrupted, CodeHubError, Conflict, DataLost, FenceLost, Transient
from codehub.domain.model import HomeCtx
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import Mount, MountKind

_ROLE_HOME, _ROLE_MARK, _ROLE_HOLD = "home", "home-whole", "home-hold"
_INCARNATION, _RESTORED = "codehub.incarnation", "codehub.restored-from"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Found:
    """Everything that exists of a workspace's home.

    All names except the volume's contain the incarnation, so removing these objects never removes later ones.
    """

    home: Mapping[str, str] | None
    marks: tuple[Mapping[str, str], ...]
    holds: tuple[str, ...]

    @property
    def status(self) -> HomeStatus:
        return _judge(self.home, self.marks)


class DockerVolumeHomes(StoredHomes):
    name = "docker-volume"

    def __init__(
        self, engine: Engine, store: Store, *, workers: Workers | None = None, at: Checkpoint = nowhere
    ) -> None:
        super().__init__(store, workers, at)
        self._engine = engine

    async def ping(self) -> None:
        await self._engine.ping()

    def mount(self, home: HomeKey) -> Mount:
        return Mount(MountKind.VOLUME, volume_name(home.workspace_id))

    async def list_all(self) -> Mapping[str, HomeStatus]:
        homes = {labels[WORKSPACE]: labels for labels in await self._volumes(_ROLE_HOME)}
        marks: dict[str, list[Mapping[str, str]]] = {}
        for labels in await self._volumes(_ROLE_MARK):
            marks.setdefault(labels[WORKSPACE], []).append(labels)
        return {workspace: _judge(labels, marks.get(workspace, [])) for workspace, labels in homes.items()}

    async def status(self, home: HomeKey) -> HomeStatus:
        labels = await self._labels(volume_name(home.workspace_id))
        mark = None if labels is None else await self._labels(_mark_name(home, labels[_INCARNATION]))
        return _judge(labels, [mark] if mark is not None else [])

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        return False  # the engine's default volumes have no size

    async def size(self, home: HomeKey) -> int | None:
        """Where the engine's disk can be read. The engine itself measures only all volumes at once, which is not cheap."""
        if not self._engine.is_local:
            return None
        name = volume_name(home.workspace_id)
        volume = await self._engine.get(f"volumes/{name}")
        if volume is None:
            return None
        self._engine.check_ours(volume.get("Labels"), name)
        cancelled = threading.Event()
        try:
            return await asyncio.to_thread(disk_usage, Path(volume["Mountpoint"]), cancelled)
        finally:
            cancelled.set()

    async def _inspect(self, home: HomeKey) -> _Found:
        labels = await self._labels(volume_name(home.workspace_id))
        marks = await self._volumes(_ROLE_MARK, home.workspace_id)
        filters = self._engine.filters(_ROLE_HOLD, home.workspace_id)
        holds = await self._engine.get("containers/json", all="true", filters=filters)
        return _Found(labels, tuple(marks), tuple(item["Id"] for item in holds))

    async def _volumes(self, role: str, workspace_id: str | None = None) -> list[Mapping[str, str]]:
        listed = await self._engine.get("volumes", filters=self._engine.filters(role, workspace_id))
        return [volume["Labels"] for volume in listed.get("Volumes") or []]

    async def _labels(self, name: str) -> dict[str, str] | None:
        volume = await self._engine.get(f"volumes/{name}")
        if volume is None:
            return None
        self._engine.check_ours(volume.get("Labels"), name)
        labels: dict[str, str] = volume["Labels"]
        return labels

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        there = await self._clear_the_way(home, fence)
        if there is not None:
            return there
        ctx = HomeCtx(incarnation)
        fence()
        door = await self._make(home, ctx)
        self._at("provision:staged")
        await door.put(tar.encode(_root_of(home)) + tar.END)
        await self._mark(home, ctx, fence, "provision")
        return ctx

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        key = key_of(home.workspace_id, op_id)
        if (receipt := await asyncio.to_thread(find_receipt, self._store, key)) is not None:
            return receipt
        status = await self.status(home)
        if status.state is HomeState.ABSENT:
            raise DataLost(f"the volume {volume_name(home.workspace_id)} is gone from the Docker engine")
        if status.ctx is None or status.ctx.incarnation != ctx.incarnation:
            raise FenceLost(f"the home of {home.workspace_id} is of another incarnation than requested")
        await remove_copies(self._engine, home.workspace_id, fence)
        loop = asyncio.get_running_loop()
        async with copy_container(self._engine, home.workspace_id, volume_name(home.workspace_id)) as door:
            async with door.get() as response:
                chunks = response.content.iter_chunked(_READ_BYTES)

                def work(cancelled: threading.Event) -> ArchiveReceipt:
                    packed = Packed()
                    stream = _of_engine(renamed(from_loop(aiter(chunks), loop), out_of(FOLDER), packed))
                    return upload(self._store, key, stream, packed, None, Job(report, fence, cancelled, self._at))

                return await self._workers.run(work, Kind.ARCHIVE)

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        parse_key(archive_key)
        there = await self._clear_the_way(home, fence)
        if there is not None:
            if there.restore_marker == archive_key:
                return there
            raise Conflict(f"{home.workspace_id} has a complete home that was not restored from {archive_key}")
        meta = await asyncio.to_thread(read_meta, self._store, archive_key, sha256)
        await self._check_room(meta)
        ctx = HomeCtx(incarnation, archive_key)
        fence()
        door = await self._make(home, ctx)
        self._at("restore:staged")
        cancelled = threading.Event()
        job = Job(report, fence, cancelled, self._at)
        # An archive of an empty home does not record the home's owner.
        root = tar.encode(_root_of(home))
        stream = download(self._store, archive_key, meta, job)
        made = FromThread(_after(root, renamed(stream, into(FOLDER), Packed(), meta.tar_bytes, _uid(home))))
        try:
            await door.put(made)
            self._at("restore:unpacked")
            await self._mark(home, ctx, fence, "restore")
        except BaseException:
            cancelled.set()
            # The first error is the one that is reported. The next attempt cleans up.
            with contextlib.suppress(CodeHubError):
                await asyncio.shield(self._drop(home, incarnation))
            if made.error is not None:
                raise made.error from None
            raise
        return ctx

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        labels = await self._labels(volume_name(home.workspace_id))
        if labels is not None and labels.get(_INCARNATION) != ctx.incarnation:
            raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")
        fence()
        self._at("deprovision:fenced")
        await self._engine.remove(f"volumes/{_mark_name(home, ctx.incarnation)}")
        self._at("deprovision:renamed")
        await remove_copies(self._engine, home.workspace_id, fence)
        self._at("deprovision:half-removed")
        fence()
        await self._drop(home, ctx.incarnation)
        self._at("deprovision:removed")

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        await remove_copies(self._engine, home.workspace_id, fence)
        await self._remove(home, await self._inspect(home), fence)

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        await remove_copies(self._engine, home.workspace_id, fence)
        found = await self._inspect(home)
        if found.status.state is not HomeState.COMPLETE:
            await self._remove(home, found, fence)

    async def _clear_the_way(self, home: HomeKey, fence: Fence) -> HomeCtx | None:
        found = await self._inspect(home)
        if found.status.state is HomeState.COMPLETE:
            return found.status.ctx
        await remove_copies(self._engine, home.workspace_id, fence)
        await self._remove(home, found, fence)
        return None

    async def _remove(self, home: HomeKey, found: _Found, fence: Fence) -> None:
        """Remove what was found, and nothing that was created since."""
        fence()
        self._at("remove:fenced")
        for mark in found.marks:
            await self._engine.remove(f"volumes/{_mark_name(home, mark[_INCARNATION])}")
        for hold in found.holds:
            await self._engine.remove(f"containers/{hold}", force="true")
        if found.home is not None:
            await self._remove_volume(home, found.home[_INCARNATION])

    async def _drop(self, home: HomeKey, incarnation: str) -> None:
        """Remove everything of this incarnation."""
        await self._engine.remove(f"volumes/{_mark_name(home, incarnation)}")
        await self._engine.remove(f"containers/{_hold_name(home, incarnation)}", force="true")
        await self._remove_volume(home, incarnation)

    async def _remove_volume(self, home: HomeKey, incarnation: str) -> None:
        name = volume_name(home.workspace_id)
        try:
            await self._engine.remove(f"volumes/{name}")
        except Transient as error:
            # The engine refuses while a container references the volume, as the next incarnation's hold does from the
            # start.
            labels = await self._labels(name)
            if labels is not None and labels.get(_INCARNATION) != incarnation:
                raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed") from error
            raise

    async def _make(self, home: HomeKey, ctx: HomeCtx) -> Door:
        """Create the volume and its hold, in one step of the engine."""
        name = volume_name(home.workspace_id)
        door = await make_door(
            self._engine,
            _hold_name(home, ctx.incarnation),
            self._engine.labels(home.workspace_id, _ROLE_HOLD),
            name,
            self._labelled(home, ctx, _ROLE_HOME),
        )
        # The volume may already have existed, in which case its labels did not change.
        labels = await self._labels(name)
        if labels is None or labels.get(_INCARNATION) != ctx.incarnation:
            await self._engine.remove(f"containers/{door.container}", force="true")
            raise Conflict(f"a volume {name} of another incarnation appeared on the Docker engine")
        return door

    async def _mark(self, home: HomeKey, ctx: HomeCtx, fence: Fence, doing: str) -> None:
        fence()
        body = {"Name": _mark_name(home, ctx.incarnation), "Labels": self._labelled(home, ctx, _ROLE_MARK)}
        await self._engine.send("POST", "volumes/create", body)
        self._at(f"{doing}:swapped")

    def _labelled(self, home: HomeKey, ctx: HomeCtx, role: str) -> dict[str, str]:
        labels = self._engine.labels(home.workspace_id, role)
        labels |= {_INCARNATION: ctx.incarnation, OWNER: str(_uid(home))}
        return labels if ctx.restore_marker is None else labels | {_RESTORED: ctx.restore_marker}

    async def _check_room(self, meta: Meta) -> None:
        """Check the free space if the engine's disk is visible here.

        An engine on another machine reports a full disk itself.
        """
        if not self._engine.is_local:
            return
        place = Path((await self._engine.get("info")).get("DockerRootDir") or "/") / "volumes"
        if place.is_dir():
            check_room_for_restore(place, meta)


def volume_name(workspace_id: str) -> str:
    return f"codehub-ws-{workspace_id}-home"


def _mark_name(home: HomeKey, incarnation: str) -> str:
    return f"{volume_name(home.workspace_id)}-whole-{incarnation}"


def _hold_name(home: HomeKey, incarnation: str) -> str:
    return f"{volume_name(home.workspace_id)}-hold-{incarnation}"


def _judge(home: Mapping[str, str] | None, marks: Sequence[Mapping[str, str]]) -> HomeStatus:
    if home is None:
        return HomeStatus(HomeState.ABSENT)
    for mark in marks:
        if mark[_INCARNATION] == home[_INCARNATION]:
            return HomeStatus(HomeState.COMPLETE, HomeCtx(mark[_INCARNATION], mark.get(_RESTORED)))
    return HomeStatus(HomeState.INCOMPLETE)


def _uid(home: HomeKey) -> int:
    uid = container_uid_for(home.workspace_id)
    return os.geteuid() if uid is None else uid


def _of_engine(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the stream of a volume. If it ends early, the volume is still there: the archive is repeated."""
    try:
        yield from chunks
    except ArchiveCorrupted as error:
        raise Transient(f"the Docker engine sent something else than a volume's content: {error}") from error


def _root_of(home: HomeKey) -> tar.Entry:
    return tar.Entry(FOLDER, tar.DIR, 0o700, _uid(home), _uid(home))


def _after(head: bytes, chunks: Any) -> Any:
    yield head
    yield from chunks
