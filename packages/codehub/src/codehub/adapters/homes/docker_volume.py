"""Homes as Docker volumes, for an engine that is not on this machine.

Whole is a volume beside which a second, empty one stands as its marker, with the same incarnation on its label: made last,
removed first. Contents go through the engine's archive stream of a created, never started container of an empty image, so
user xattrs, holes and parts of seconds are not kept.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Any

from codehub.adapters.docker.engine import WORKSPACE, Engine
from codehub.adapters.homes.bridge import FromThread, from_loop
from codehub.adapters.homes.stored import StoredHomes
from codehub.adapters.homes.volume_copy import FOLDER, CopyContainer, remove_copies
from codehub.adapters.homes.work import Workers
from codehub.adapters.objectstore.layout import archive_key as key_of
from codehub.adapters.objectstore.layout import parse_key
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
from codehub.domain.errors import Conflict, DataLost, FenceLost
from codehub.domain.model import HomeCtx
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import Mount

_ROLE_HOME, _ROLE_MARK = "home", "home-whole"
_INCARNATION, _RESTORED = "codehub.incarnation", "codehub.restored-from"
_READ_BYTES = 1 << 20


class DockerVolumeHomes(StoredHomes):
    name = "docker-volume"

    def __init__(
        self, engine: Engine, store: Store, *, workers: Workers | None = None, at: Checkpoint = nowhere
    ) -> None:
        super().__init__(store, workers, at)
        self._engine = engine

    @property
    def _uid(self) -> int:
        return 1000 if os.geteuid() == 0 else os.geteuid()

    async def ping(self) -> None:
        await self._engine.ping()

    def mount(self, home: HomeKey) -> Mount:
        return Mount("volume", volume_name(home.workspace_id))

    async def list_all(self) -> Mapping[str, HomeStatus]:
        found: dict[str, dict[str, dict[str, str]]] = {}
        for role in (_ROLE_HOME, _ROLE_MARK):
            listed = await self._engine.get("volumes", filters=self._engine.filters(role))
            for volume in listed.get("Volumes") or []:
                found.setdefault(volume["Labels"][WORKSPACE], {})[role] = volume["Labels"]
        statuses = {w: _judge(labels.get(_ROLE_HOME), labels.get(_ROLE_MARK)) for w, labels in found.items()}
        return {w: status for w, status in statuses.items() if status.state is not HomeState.ABSENT}

    async def status(self, home: HomeKey) -> HomeStatus:
        name = volume_name(home.workspace_id)
        return _judge(await self._labels(name), await self._labels(f"{name}-whole"))

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
        await self._make(home, ctx)
        self._at("provision:staged")
        root = tar.encode(tar.Entry(FOLDER, tar.DIR, 0o700, self._uid, self._uid)) + tar.END
        async with CopyContainer(self._engine, home.workspace_id, volume_name(home.workspace_id)) as copy:
            await copy.put(root)
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
            raise FenceLost(f"the home of {home.workspace_id} is another incarnation than the one asked for")
        await remove_copies(self._engine, home.workspace_id)
        loop = asyncio.get_running_loop()
        async with CopyContainer(self._engine, home.workspace_id, volume_name(home.workspace_id)) as copy:
            async with copy.get() as response:
                chunks = response.content.iter_chunked(_READ_BYTES)

                def work(cancelled: threading.Event) -> ArchiveReceipt:
                    packed = Packed()
                    stream = renamed(from_loop(aiter(chunks), loop), out_of(FOLDER), packed)
                    return upload(self._store, key, stream, packed, None, Job(report, fence, cancelled, self._at))

                return await self._workers.run(work)

    async def restore(
        self, home: HomeKey, archive_key: str, incarnation: str, report: Report, fence: Fence
    ) -> HomeCtx:
        parse_key(archive_key)
        there = await self._clear_the_way(home, fence)
        if there is not None:
            if there.restore_marker == archive_key:
                return there
            raise Conflict(f"{home.workspace_id} has a whole home that was not restored from {archive_key}")
        meta = await asyncio.to_thread(read_meta, self._store, archive_key)
        ctx = HomeCtx(incarnation, archive_key)
        fence()
        await self._make(home, ctx)
        self._at("restore:staged")
        cancelled = threading.Event()
        job = Job(report, fence, cancelled, self._at)
        # An archive of nothing does not say whose the home is.
        root = tar.encode(tar.Entry(FOLDER, tar.DIR, 0o700, self._uid, self._uid))
        stream = download(self._store, archive_key, meta, job)
        made = FromThread(_after(root, renamed(stream, into(FOLDER), Packed(), meta.tar_bytes)))
        try:
            async with CopyContainer(self._engine, home.workspace_id, volume_name(home.workspace_id)) as copy:
                await copy.put(made)
            self._at("restore:unpacked")
            await self._mark(home, ctx, fence, "restore")
        except BaseException:
            cancelled.set()
            await asyncio.shield(self._forget(home))
            if made.error is not None:
                raise made.error from None
            raise
        return ctx

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        name = volume_name(home.workspace_id)
        labels = await self._labels(name)
        if labels is not None and labels.get(_INCARNATION) != ctx.incarnation:
            raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")
        fence()
        await self._engine.remove(f"volumes/{name}-whole")
        self._at("deprovision:renamed")
        await remove_copies(self._engine, home.workspace_id)
        self._at("deprovision:half-removed")
        if labels is not None:
            fence()
            await self._engine.remove(f"volumes/{name}")
        self._at("deprovision:removed")

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        fence()
        await self.status(home)  # refuses what is another installation's
        fence()
        await self._forget(home)

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        fence()
        await remove_copies(self._engine, home.workspace_id)
        if (await self.status(home)).state is HomeState.INCOMPLETE:
            fence()
            await self._forget(home)

    async def _clear_the_way(self, home: HomeKey, fence: Fence) -> HomeCtx | None:
        status = await self.status(home)
        if status.state is HomeState.WHOLE:
            return status.ctx
        fence()
        await self._forget(home)
        return None

    async def _forget(self, home: HomeKey) -> None:
        name = volume_name(home.workspace_id)
        await remove_copies(self._engine, home.workspace_id)
        await self._engine.remove(f"volumes/{name}-whole")
        await self._engine.remove(f"volumes/{name}")

    async def _make(self, home: HomeKey, ctx: HomeCtx) -> None:
        await self._volume(volume_name(home.workspace_id), home, ctx, _ROLE_HOME)

    async def _mark(self, home: HomeKey, ctx: HomeCtx, fence: Fence, doing: str) -> None:
        fence()
        await self._volume(f"{volume_name(home.workspace_id)}-whole", home, ctx, _ROLE_MARK)
        self._at(f"{doing}:swapped")

    async def _volume(self, name: str, home: HomeKey, ctx: HomeCtx, role: str) -> None:
        labels = self._engine.labels(home.workspace_id, role) | {_INCARNATION: ctx.incarnation}
        if ctx.restore_marker is not None:
            labels[_RESTORED] = ctx.restore_marker
        made: dict[str, Any] = await self._engine.send("POST", "volumes/create", {"Name": name, "Labels": labels})
        # Creating what is there changes nothing and says nothing.
        if (made.get("Labels") or {}).get(_INCARNATION) != ctx.incarnation:
            raise Conflict(f"a volume {name} of another incarnation appeared on the Docker engine")


def volume_name(workspace_id: str) -> str:
    return f"codehub-ws-{workspace_id}-home"


def _judge(home: Mapping[str, str] | None, mark: Mapping[str, str] | None) -> HomeStatus:
    if home is None:
        return HomeStatus(HomeState.ABSENT)
    if mark is None or mark.get(_INCARNATION) != home.get(_INCARNATION):
        return HomeStatus(HomeState.INCOMPLETE)
    return HomeStatus(HomeState.WHOLE, HomeCtx(mark[_INCARNATION], mark.get(_RESTORED)))


def _after(head: bytes, chunks: Any) -> Any:
    yield head
    yield from chunks
