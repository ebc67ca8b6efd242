"""Homes as directories, archived from and restored to them (see `layout` for their layout on the disk).

Owns the order of steps: the caller decides the intent, the fence is checked right before each irreversible step, and `at`
names the points at which tests crash it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import structlog

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.layout import (
    DAMAGED,
    FILES,
    PASS_THROUGH,
    STAGING,
    TRASH,
    HomePaths,
    home_paths,
    inspect_home,
    listed,
    put_back,
    remove_box,
    set_aside,
    stage,
    sync_below,
    sync_dir,
    take_away,
)
from codehub.adapters.homes.mark import HomesMark
from codehub.adapters.homes.quota import begin_quota, limit_home
from codehub.adapters.homes.space import check_room_for_archive, check_room_for_restore, tree_bytes
from codehub.adapters.homes.stored import StoredHomes
from codehub.adapters.homes.usage import disk_usage
from codehub.adapters.homes.work import Kind, Workers
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
from codehub.adapters.own_threads import OwnThreads
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import BackendDown, Conflict, DataLost, FenceLost, OutOfSpace, Transient
from codehub.domain.model import HomeCtx
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt, HomeKey, HomeState, HomeStatus
from codehub.ports.instances import Mount, MountKind

_OBSERVED_AT_ONCE = 4
T = TypeVar("T")
_log = structlog.get_logger()


class LocalDirHomes(StoredHomes):
    """Homes below `root`.

    `host_root` is the path of `root` for an engine on the host, if CodeHub itself runs in a container. With a
    `mark`, the backend is down while the root lacks it.
    """

    name = "local-dir"

    def __init__(
        self,
        root: Path,
        store: Store,
        *,
        host_root: Path | None = None,
        workers: Workers | None = None,
        mark: HomesMark | None = None,
        at: Checkpoint = nowhere,
    ) -> None:
        super().__init__(store, workers, at)
        self._root = root
        self._host_root = host_root or root
        self._mark = mark
        self._threads = OwnThreads("codehub-homes", _OBSERVED_AT_ONCE)

    async def ping(self) -> None:
        def reach() -> None:
            try:
                self._root.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
                if self._mark is not None:
                    self._mark.check()
                os.statvfs(self._root)
            except OSError as error:
                raise BackendDown(f"the homes' directory {self._root} cannot be used: {error.strerror}") from error

        await self._threads.run(reach)

    def mount(self, home: HomeKey) -> Mount:
        inside = self._paths(home).files.relative_to(self._root)
        return Mount(MountKind.DIR, str(self._host_root / inside))

    async def list_all(self) -> Mapping[str, HomeStatus]:
        return await self._threads.run(self._list_all)

    def _list_all(self) -> dict[str, HomeStatus]:
        found: dict[str, HomeStatus] = {}
        self._must_be_there()
        try:
            for user in listed(self._root / "users"):
                for box in listed(user / "workspaces"):
                    status = _listed_status(box / "home")
                    if status.state is not HomeState.ABSENT:
                        found[box.name] = status
        except OSError as error:
            raise BackendDown(f"the homes below {self._root} cannot be listed: {error}") from error
        self._must_be_there()  # the disk may have gone meanwhile, and with it every home that was not seen
        return found

    async def status(self, home: HomeKey) -> HomeStatus:
        def work() -> HomeStatus:
            self._must_be_there()
            try:
                status = inspect_home(self._paths(home).home)
            except OSError as error:
                raise Transient(f"the home of {home.workspace_id} cannot be read: {error}") from error
            self._must_be_there()
            return status

        return await self._threads.run(work)

    async def size(self, home: HomeKey) -> int | None:
        # Not one of the workers: these may be busy with archives for a long time, and nothing is left behind here.
        cancelled = threading.Event()

        def work() -> int | None:
            self._must_be_there()
            return disk_usage(self._paths(home).files, cancelled)

        try:
            return await asyncio.to_thread(work)
        finally:
            cancelled.set()

    async def limit(self, home: HomeKey, limit: int | None) -> bool:
        # Not one of the workers: a start would wait for archives.
        return await asyncio.to_thread(lambda: limit_home(self._root, self._checked(home).home, limit))

    def _must_be_there(self) -> None:
        """Raise if the disk is not mounted: its homes are then Unknown, and must not be reported as lost."""
        if not self._root.is_dir():
            raise BackendDown(f"the homes' directory {self._root} does not exist")
        if self._mark is not None:
            self._mark.check()

    async def provision(self, home: HomeKey, incarnation: str, fence: Fence) -> HomeCtx:
        def work(cancelled: threading.Event) -> HomeCtx:
            paths = self._checked(home)
            there = self._clear_the_way(paths, fence)
            if there is not None:
                return there
            ctx = HomeCtx(incarnation)
            self._stage(paths, ctx, "provision")
            self._swap(paths, ctx, fence, "provision")
            return ctx

        return await self._run(work)

    async def archive(self, home: HomeKey, ctx: HomeCtx, op_id: str, report: Report, fence: Fence) -> ArchiveReceipt:
        def work(cancelled: threading.Event) -> ArchiveReceipt:
            key = key_of(home.workspace_id, op_id)
            if (receipt := find_receipt(self._store, key)) is not None:
                return receipt
            paths = self._checked(home)
            self._expect(paths, ctx, home)
            job = Job(report, fence, cancelled, self._at)
            packed = Packed()
            try:
                total = tree_bytes(paths.files)
                check_room_for_archive(self._store, total)
                return upload(self._store, key, pack_tree(paths.files, packed), packed, total, job)
            except FileNotFoundError as error:
                raise Transient(f"the home changed while it was archived: {error.filename!r} is gone") from error
            except OSError as error:
                raise Transient(f"the home could not be read: {error}") from error

        return await self._run(work, Kind.ARCHIVE)

    async def restore(
        self,
        home: HomeKey,
        archive_key: str,
        incarnation: str,
        report: Report,
        fence: Fence,
        sha256: str | None = None,
    ) -> HomeCtx:
        def work(cancelled: threading.Event) -> HomeCtx:
            parse_key(archive_key)
            paths = self._checked(home)
            there = self._clear_the_way(paths, fence)
            if there is not None:
                if there.restore_marker == archive_key:
                    return there
                raise Conflict(f"{home.workspace_id} has a complete home that was not restored from {archive_key}")
            meta = read_meta(self._store, archive_key, sha256)
            self._root.mkdir(mode=PASS_THROUGH, parents=True, exist_ok=True)
            check_room_for_restore(self._root, meta)
            ctx = HomeCtx(incarnation, archive_key)
            staging = self._stage(paths, ctx, "restore")
            job = Job(report, fence, cancelled, self._at)
            try:
                unpack_tree(download(self._store, archive_key, meta, job), staging / FILES, meta.tar_bytes)
                self._at("restore:unpacked")
                # Flush before the home counts as complete: a power cut must not leave a complete home of empty files.
                self._sync(staging)
                self._swap(paths, ctx, fence, "restore")
            except BaseException as error:
                # Not a crash: clean up. After a crash, the next operation or `sweep` does this.
                remove_tree(staging)
                if isinstance(error, OutOfSpace) and str(self._root) not in str(error):
                    raise OutOfSpace(f"{error} ({self._root})") from error
                raise
            return ctx

        return await self._run(work, Kind.RESTORE)

    async def deprovision(self, home: HomeKey, ctx: HomeCtx, fence: Fence) -> None:
        def work(cancelled: threading.Event) -> None:
            paths = self._checked(home)
            put_back(paths)
            status = inspect_home(paths.home)
            if status.state is not HomeState.ABSENT:
                if status.ctx is None or status.ctx.incarnation != ctx.incarnation:
                    raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")
                fence()
                self._at("deprovision:fenced")
                if not take_away(paths, ctx.incarnation):
                    raise FenceLost(f"the home of {home.workspace_id} is not the one that was to be removed")
                self._at("deprovision:renamed")
            for trash in paths.leftovers(TRASH):
                fence()
                self._remove(trash)
            self._at("deprovision:removed")
            remove_box(paths)

        await self._run(work, Kind.REMOVE)

    def _remove(self, tree: Path) -> None:
        # In two steps, so that tests can crash between them.
        for part in sorted(tree.iterdir() if tree.is_dir() else []):
            remove_tree(part)
            self._at("deprovision:half-removed")
        remove_tree(tree)

    async def purge(self, home: HomeKey, fence: Fence) -> None:
        def work(cancelled: threading.Event) -> None:
            paths = self._checked(home)
            for part in [paths.home, *paths.leftovers(STAGING, TRASH, DAMAGED)]:
                fence()
                remove_tree(part)
            remove_box(paths)

        await self._run(work, Kind.REMOVE)

    async def sweep(self, home: HomeKey, fence: Fence) -> None:
        def work(cancelled: threading.Event) -> None:
            paths = self._checked(home)
            put_back(paths)
            for part in paths.leftovers(STAGING, TRASH):
                fence()
                remove_tree(part)

        await self._run(work)

    async def _run(self, work: Callable[[threading.Event], T], kind: Kind = Kind.OTHER) -> T:
        def translated(cancelled: threading.Event) -> T:
            try:
                return work(cancelled)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise OutOfSpace(f"no space left below {self._root}: free some space") from error
                raise Transient(f"the homes below {self._root} cannot be used: {error}") from error

        return await self._workers.run(translated, kind)

    def _paths(self, home: HomeKey) -> HomePaths:
        return home_paths(self._root, home)

    def _checked(self, home: HomeKey) -> HomePaths:
        """Return the paths for a change, after checking that the root is not a mount point without its disk."""
        if self._mark is not None:
            self._mark.check()
        return self._paths(home)

    def _expect(self, paths: HomePaths, ctx: HomeCtx, home: HomeKey) -> None:
        put_back(paths)
        status = inspect_home(paths.home)
        if status.state is HomeState.ABSENT:
            raise DataLost(f"the home of {home.workspace_id} is gone: {paths.home} does not exist")
        if status.ctx is None or status.ctx.incarnation != ctx.incarnation:
            raise FenceLost(f"the home of {home.workspace_id} is of another incarnation than requested")

    def _clear_the_way(self, paths: HomePaths, fence: Fence) -> HomeCtx | None:
        """Return the ctx of an existing complete volume; otherwise remove whatever blocks a new one."""
        put_back(paths)
        status = inspect_home(paths.home)
        if status.state is HomeState.COMPLETE:
            return status.ctx
        if status.state is HomeState.INCOMPLETE:
            fence()
            set_aside(paths)
        for part in paths.leftovers(STAGING, TRASH):
            fence()
            remove_tree(part)
        return None

    def _stage(self, paths: HomePaths, ctx: HomeCtx, doing: str) -> Path:
        try:
            staging = stage(self._root, paths, ctx)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OutOfSpace(f"no space left for a home below {self._root}") from error
            raise Transient(f"could not create a home below {self._root}: {error}") from error
        begin_quota(self._root, staging)
        self._at(f"{doing}:staged")
        return staging

    def _sync(self, staging: Path) -> None:
        try:
            sync_below(staging)
        except OSError as error:
            kind = OutOfSpace if error.errno in (errno.ENOSPC, errno.EDQUOT) else Transient
            raise kind(f"the home could not be written to the disk below {self._root}: {error.strerror}") from error

    def _swap(self, paths: HomePaths, ctx: HomeCtx, fence: Fence, doing: str) -> None:
        fence()
        # Fails if a home exists: a rename never replaces a directory that is not empty.
        os.rename(paths.staging(ctx.incarnation), paths.home)
        self._at(f"{doing}:swapped")
        sync_dir(paths.box)


def _listed_status(home: Path) -> HomeStatus:
    """Return a home's status for a listing: one that cannot be read must not hide the others.

    It is there, and it cannot be confirmed as complete. A decision about it asks for its own status, which is then Unknown.
    """
    try:
        return inspect_home(home)
    except OSError as error:
        _log.warning("a home cannot be read", home=str(home), error=str(error))
        return HomeStatus(HomeState.INCOMPLETE)
