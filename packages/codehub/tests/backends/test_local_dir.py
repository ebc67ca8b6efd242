"""Directories as homes and files as archives: the contracts, and what only a directory can show."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
import zstandard

from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.store import Store
from codehub.adapters.objectstore.transfer import Job, find_receipt, upload
from codehub.adapters.tarball.pack import Packed
from codehub.domain.errors import ArchiveCorrupted, BackendDown, Invalid, OutOfSpace, Transient
from codehub.domain.model import HomeCtx
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeKey, HomeState
from testing.codehub.contracts.archives import ArchivesContract
from testing.codehub.contracts.homes import FILES, HomesContract, key, provisioned
from testing.codehub.homes import LocalDirWorld, StoreWorld, local_world
from testing.codehub.trees import differences, fingerprint, make_rich_tree


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "archives").as_uri())


@pytest.fixture
def local(tmp_path: Path, store: Store) -> LocalDirWorld:
    return local_world(tmp_path, store)


class TestLocalDir(HomesContract):
    @pytest.fixture
    def world(self, local: LocalDirWorld) -> LocalDirWorld:
        return local


class TestFileArchives(ArchivesContract):
    @pytest.fixture
    def world(self, store: Store) -> StoreWorld:
        return StoreWorld(ObjectArchives(store), store)


async def test_a_rich_home_survives_archive_and_restore(local: LocalDirWorld) -> None:
    ctx = await local.homes.provision(key(), "inc-1", no_fence)
    files = local.files(key())
    make_rich_tree(files, owner=(1_500_000_001, 1_500_000_001) if os.geteuid() == 0 else None)
    before = fingerprint(files)
    receipt = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await local.homes.deprovision(key(), ctx, no_fence)
    assert not files.parent.parent.exists(), "nothing of it is left"
    await local.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
    assert differences(before, fingerprint(files)) == []


async def archived(local: LocalDirWorld, content: bytes = b"") -> tuple[HomeCtx, str, Path]:
    ctx = await provisioned(local, key())
    if content:
        await local.write(key(), {"content": content})
    receipt = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    await local.homes.deprovision(key(), ctx, no_fence)
    return ctx, receipt.archive_key, local.root.parent / "archives" / receipt.archive_key


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "other", "meta"])
async def test_a_damaged_archive_is_said_to_be_corrupted_and_leaves_nothing(
    local: LocalDirWorld, damage: str
) -> None:
    _, archive_key, path = await archived(local, os.urandom(300_000))
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 1
    elif damage == "truncate":
        del raw[-1:]
    elif damage == "extend":
        raw += b"more"
    elif damage == "other":
        raw = bytearray(os.urandom(len(raw)))
    path.write_bytes(raw)
    if damage == "meta":
        path.with_name("home.tar.zst.meta").write_bytes(b"sha256:nonsense")
    with pytest.raises(ArchiveCorrupted):
        await local.homes.restore(key(), archive_key, "inc-2", ignore_progress, no_fence)
    assert (await local.homes.status(key())).state is HomeState.ABSENT
    assert [p for p in local.root.rglob("*") if p.name.startswith(".")] == []


def plain_tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a")
        member.size = 2_000
        tar.addfile(member, io.BytesIO(b"x" * 2_000))
    return made.getvalue()


@pytest.mark.parametrize("tar", [b"x" * 2048, plain_tar()[:1024], b""], ids=["garbage", "cut", "empty"])
async def test_an_archive_that_could_not_be_restored_does_not_count(store: Store, tar: bytes) -> None:
    """Everything was stored as it was sent, and the digests match: only reading it as a restore does shows it."""
    archive_key = "01890000-0000-7000-8000-000000000001/op-1/home.tar.zst"
    job = Job(ignore_progress, no_fence, threading.Event())
    with pytest.raises(Transient):
        upload(store, archive_key, [tar], Packed(tar_bytes=len(tar)), len(tar), job)
    assert find_receipt(store, archive_key) is None


async def test_an_archive_in_a_directory_is_its_owners_alone(local: LocalDirWorld) -> None:
    """Homes hold keys and passwords."""
    _, _, path = await archived(local)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_an_archive_that_decompresses_to_far_more_than_it_says_is_refused(local: LocalDirWorld) -> None:
    _, archive_key, path = await archived(local)
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    path.write_bytes(bomb)
    meta = f"sha256:{hashlib.sha256(bomb).hexdigest()}\nbytes:{len(bomb)}\ntar_bytes:10240\nentries:3\n"
    path.with_name("home.tar.zst.meta").write_text(meta)
    with pytest.raises(ArchiveCorrupted, match="more than"):
        await local.homes.restore(key(), archive_key, "inc-2", ignore_progress, no_fence)


async def test_a_home_whose_ctx_is_lost_is_never_handed_out_nor_thrown_away(local: LocalDirWorld) -> None:
    await provisioned(local, key())
    home = local.files(key()).parent
    (home / "ctx.json").write_bytes(b"{")
    assert (await local.homes.status(key())).state is HomeState.INCOMPLETE
    ctx = await local.homes.provision(key(), "inc-2", no_fence)
    assert ctx.incarnation == "inc-2"
    assert await local.read(key()) == {}
    await local.homes.sweep(key(), no_fence)
    assert (home.parent / ".damaged-0/files/notes.txt").read_bytes() == FILES["notes.txt"]
    await local.homes.purge(key(), no_fence)
    assert not home.parent.exists()


async def test_cancelling_leaves_nothing_behind(tmp_path: Path, store: Store) -> None:
    local = local_world(tmp_path, store)
    ctx, archive_key, path = await archived(local, os.urandom(3_000_000))
    reached, go_on = threading.Event(), threading.Event()

    def pause(point: str) -> None:
        if point in ("archive:bytes", "restore:bytes"):
            reached.set()
            go_on.wait(60)

    slow = LocalDirHomes(local.root, store, at=pause)

    async def cancelled_midway(work: asyncio.Task[object]) -> None:
        await asyncio.to_thread(reached.wait, 60)
        work.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        reached.clear()
        go_on.clear()

    restore = slow.restore(key(), archive_key, "inc-2", ignore_progress, no_fence)
    await cancelled_midway(asyncio.create_task(restore))
    assert not any(p.name.startswith(".staging") for p in local.root.rglob("*"))
    ctx = await local.homes.restore(key(), archive_key, "inc-3", ignore_progress, no_fence)
    await cancelled_midway(asyncio.create_task(slow.archive(key(), ctx, "op-2", ignore_progress, no_fence)))
    assert sorted(p.name for p in path.parent.parent.rglob("*") if p.is_file()) == [
        "home.tar.zst",
        "home.tar.zst.meta",
    ]


@pytest.mark.needs("root")
async def test_a_full_disk_on_either_side_is_out_of_space_and_harms_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small], check=True)
    try:
        roomy = local_world(tmp_path / "roomy", Store((tmp_path / "archives").as_uri()))
        tight_store = local_world(tmp_path / "roomy", Store((small / "archives").as_uri()))
        ctx = await provisioned(roomy, key())
        await roomy.write(key(), {"content": os.urandom(40 << 20)})
        before = fingerprint(roomy.files(key()))
        with pytest.raises(OutOfSpace):
            await tight_store.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        assert [p for p in (small / "archives").rglob("*") if p.is_file()] == []
        receipt = await roomy.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
        tight_homes = local_world(small, roomy.store)
        with pytest.raises(OutOfSpace):
            await tight_homes.homes.restore(key(), receipt.archive_key, "inc-2", ignore_progress, no_fence)
        assert (await tight_homes.homes.status(key())).state is HomeState.ABSENT
        assert fingerprint(roomy.files(key())) == before
    finally:
        subprocess.run(["umount", "-l", small], check=True)


async def test_a_file_that_cannot_be_read_fails_the_archive(
    local: LocalDirWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = await provisioned(local, key())
    real = os.read

    def failing(fd: int, size: int) -> bytes:
        if "notes.txt" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(5, "Input/output error")
        return real(fd, size)

    monkeypatch.setattr(os, "read", failing)
    with pytest.raises(Transient, match="could not be read"):
        await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    archive = f"{key().workspace_id}/op-1/home.tar.zst"
    assert await local.archives.committed([archive]) == {archive: False}
    assert not list((local.root.parent / "archives").rglob("home.tar.zst*"))


async def test_a_homes_directory_that_went_away_is_a_backend_that_is_down(local: LocalDirWorld) -> None:
    await provisioned(local, key())
    local.root.rename(local.root.with_name("elsewhere"))
    with pytest.raises(BackendDown):
        await local.homes.list_all()


@pytest.mark.parametrize(
    "bad", ["users/ada/workspaces/../home", "users/a/b/workspaces/w/home", "users/ada/workspaces/w/home"]
)
async def test_keys_that_are_not_this_homes_are_refused(local: LocalDirWorld, bad: str) -> None:
    with pytest.raises(Invalid):
        await local.homes.status(HomeKey(key().workspace_id, bad))
    with pytest.raises(Invalid):
        await local.homes.restore(key(), "../../etc/home.tar.zst", "inc-1", ignore_progress, no_fence)
    with pytest.raises(Invalid):
        await local.homes.provision(key(), "../../inc", no_fence)
