"""What must be on the disk before something else happens, in which order things go, and whose record counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codehub.adapters.homes import local_dir
from codehub.adapters.homes.layout import sync_below
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.process.instances import ProcessInstances
from codehub.adapters.process.records import Record, boot_id
from codehub.adapters.process.supervisor import start_ticks
from codehub.domain.errors import ArchiveCorrupted, FenceLost
from codehub.domain.model import HomeCtx
from codehub.ports.archives import ArchivePlace
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.instances import InstanceSpec, Mount, MountKind
from testing.codehub.contracts.archives import lost_after
from testing.codehub.contracts.homes import key
from testing.codehub.contracts.instances import wid
from testing.codehub.services import service_dir
from testing.codehub.tiny_ide import by_socket

ARCHIVE = f"{key().workspace_id}/op-1/home.tar.zst"


class Recording(Store):
    """A store that notes what was asked of it, in order."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.done: list[str] = []

    def put_new(self, name: str, content: bytes) -> None:
        self.done.append(f"put {name.rpartition('/')[2]}")
        super().put_new(name, content)

    def sync(self, name: str) -> None:
        super().sync(name)
        self.done.append(f"synced {name.rpartition('/')[2]}")

    def delete(self, name: str) -> None:
        self.done.append(f"delete {name.rpartition('/')[2]}")
        super().delete(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Recording]:
    made = Recording((tmp_path / "archives").as_uri())
    yield made
    made.close()


async def archived(homes: LocalDirHomes, root: Path) -> HomeCtx:
    ctx = await homes.provision(key(), "inc-1", no_fence)
    (root / key().store_key / "files" / "notes").write_bytes(b"what a user wrote" * 1000)
    await homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    return ctx


async def test_an_archive_is_on_the_disk_before_its_meta_says_so(tmp_path: Path, store: Recording) -> None:
    await archived(LocalDirHomes(tmp_path / "homes", store), tmp_path / "homes")
    assert store.done.index("synced home.tar.zst") < store.done.index("put home.tar.zst.meta")


async def test_a_restored_home_is_on_the_disk_before_it_is_whole(
    tmp_path: Path, store: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[str] = []
    homes = LocalDirHomes(tmp_path / "homes", store, at=points.append)
    ctx = await archived(homes, tmp_path / "homes")
    await homes.deprovision(key(), ctx, no_fence)

    def noting(path: Path) -> None:
        sync_below(path)
        points.append("synced")

    monkeypatch.setattr(local_dir, "sync_below", noting)
    await homes.restore(key(), ARCHIVE, "inc-2", ignore_progress, no_fence)
    assert points.index("restore:unpacked") < points.index("synced") < points.index("restore:swapped")


@pytest.mark.parametrize("damage", ["a bit", "the end", "more"])
async def test_what_is_not_what_was_archived_is_never_restored(tmp_path: Path, store: Recording, damage: str) -> None:
    homes = LocalDirHomes(tmp_path / "homes", store)
    ctx = await archived(homes, tmp_path / "homes")
    await homes.deprovision(key(), ctx, no_fence)
    path = tmp_path / "archives" / ARCHIVE
    right = path.read_bytes()
    # A checksum of the format itself is not what is relied on: the last four bytes are zstd's.
    wrong = {"a bit": right[:-1] + bytes([right[-1] ^ 1]), "the end": right[:-4], "more": right + b"\0\0\0\0"}
    path.write_bytes(wrong[damage])
    with pytest.raises(ArchiveCorrupted):
        await homes.restore(key(), ARCHIVE, "inc-2", ignore_progress, no_fence)
    assert await homes.list_all() == {}


async def test_another_archive_of_the_same_content_and_size_is_recognized_by_its_digest(
    tmp_path: Path, store: Recording
) -> None:
    homes = LocalDirHomes(tmp_path / "homes", store)
    ctx = await archived(homes, tmp_path / "homes")
    await homes.deprovision(key(), ctx, no_fence)
    meta = tmp_path / "archives" / f"{ARCHIVE}.meta"
    lines = meta.read_text().splitlines()
    digest = lines[0].removeprefix("sha256:")
    other = f"{digest[:-1]}{'0' if digest[-1] != '0' else '1'}"
    meta.write_text("\n".join([f"sha256:{other}", *lines[1:]]) + "\n")
    with pytest.raises(ArchiveCorrupted):
        await homes.restore(key(), ARCHIVE, "inc-2", ignore_progress, no_fence)


async def test_an_archive_of_another_size_than_its_meta_says_is_never_restored(
    tmp_path: Path, store: Recording
) -> None:
    homes = LocalDirHomes(tmp_path / "homes", store)
    ctx = await archived(homes, tmp_path / "homes")
    await homes.deprovision(key(), ctx, no_fence)
    size = (tmp_path / "archives" / ARCHIVE).stat().st_size
    meta = tmp_path / "archives" / f"{ARCHIVE}.meta"
    said = meta.read_text()
    assert f"\nbytes:{size}\n" in said
    meta.write_text(said.replace(f"\nbytes:{size}\n", f"\nbytes:{size + 1}\n"))
    with pytest.raises(ArchiveCorrupted):
        await homes.restore(key(), ARCHIVE, "inc-2", ignore_progress, no_fence)


async def test_an_archive_that_is_half_removed_does_not_look_committed(tmp_path: Path, store: Recording) -> None:
    await archived(LocalDirHomes(tmp_path / "homes", store), tmp_path / "homes")
    archives = ObjectArchives(store)
    place = ArchivePlace(key().workspace_id, "op-1", ARCHIVE)
    with pytest.raises(FenceLost):
        await archives.remove(place, lost_after(1))
    assert await archives.committed([ARCHIVE]) == {ARCHIVE: False}
    assert store.size(ARCHIVE) is not None, "the data goes after the meta"


async def test_only_the_recorded_incarnation_is_removed(tmp_path: Path, store: Recording) -> None:
    homes = LocalDirHomes(tmp_path / "homes", store)
    await homes.provision(key(), "inc-1", no_fence)
    with pytest.raises(FenceLost):
        await homes.deprovision(key(), HomeCtx("inc-0"), no_fence)
    assert list(await homes.list_all()) == [key().workspace_id]


def test_a_record_of_another_boot_is_nobodys_instance() -> None:
    import os

    mine = Record("w", "i", "d", boot_id(), os.getpid(), start_ticks(os.getpid()), None, "", 0, "/s", None)
    assert mine.alive
    assert not replace(mine, boot="another boot").alive
    assert not replace(mine, start=mine.start + 1).alive


async def test_nothing_is_launched_when_the_term_ended_while_it_was_prepared() -> None:
    base = service_dir()
    instances = ProcessInstances(base / "run")
    home = base / "homes" / "files"
    home.mkdir(parents=True)
    spec = InstanceSpec(wid(1), "tiny", by_socket("a"), Mount(MountKind.DIR, str(home)))
    try:
        with pytest.raises(FenceLost):
            await instances.start(spec, ignore_progress, lost_after(1))
        assert not (await instances.status(wid(1))).running
    finally:
        await instances.delete(wid(1), no_fence)
