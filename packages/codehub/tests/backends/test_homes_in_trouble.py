"""Homes that cannot be read, or whose disk fails: nothing counts as lost, and no other home is affected."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from codehub.adapters.filesystem.remove import remove_tree
from codehub.adapters.homes.docker_volume import _of_engine
from codehub.adapters.homes.local_dir import LocalDirHomes
from codehub.adapters.homes.mark import MARK, HomesMark
from codehub.adapters.objectstore.store import Store
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.pack import Packed
from codehub.adapters.tarball.retar import out_of, renamed
from codehub.adapters.tarball.unpack import unpack_tree
from codehub.domain.errors import BackendDown, Transient
from codehub.ports.fence import ignore_progress, no_fence
from codehub.ports.homes import HomeState
from testing.codehub.contracts.homes import key, provisioned
from testing.codehub.homes import LocalDirWorld, local_world


@pytest.fixture
def local(tmp_path: Path) -> LocalDirWorld:
    return local_world(tmp_path, Store((tmp_path / "archives").as_uri()))


async def test_a_home_whose_record_cannot_be_read_is_unknown_and_hides_no_other(local: LocalDirWorld) -> None:
    """Once it ended the term of every coordinator."""
    for number in (1, 2, 3):
        await provisioned(local, key(number))
    record = local.files(key(2)).parent / "ctx.json"
    record.unlink()
    record.mkdir()
    listed = dict(await local.homes.list_all())
    assert listed.pop(key(2).workspace_id).state is HomeState.INCOMPLETE
    assert {workspace_id: status.state for workspace_id, status in listed.items()} == {
        key(1).workspace_id: HomeState.COMPLETE,
        key(3).workspace_id: HomeState.COMPLETE,
    }
    with pytest.raises(Transient, match="cannot be read"):
        await local.homes.status(key(2))


@pytest.mark.parametrize("ask", ["list_all", "status"])
async def test_homes_are_not_lost_because_their_disk_went_after_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    mark = HomesMark(tmp_path / "homes")
    homes = LocalDirHomes(tmp_path / "homes", Store((tmp_path / "archives").as_uri()), mark=mark)
    await homes.ping()
    await mark.write_id("store-1")
    mark.expect("store-1")
    await homes.provision(key(), "inc-1", no_fence)
    check, disk = mark.check, tmp_path / "disk"

    def check_and_unmount() -> None:
        check()
        (tmp_path / "homes").rename(disk)
        (tmp_path / "homes").mkdir()

    monkeypatch.setattr(mark, "check", check_and_unmount)
    with pytest.raises(BackendDown, match="is its disk mounted"):
        await (homes.list_all() if ask == "list_all" else homes.status(key()))


async def test_a_home_that_a_deposed_leader_took_by_mistake_is_archived(local: LocalDirWorld) -> None:
    """It was killed before it put the home back."""
    ctx = await provisioned(local, key())
    home = local.files(key()).parent
    home.rename(home.with_name(".trash-inc-0"))
    receipt = await local.homes.archive(key(), ctx, "op-1", ignore_progress, no_fence)
    assert await local.archives.committed([receipt.archive_key]) == {receipt.archive_key: True}
    assert await local.homes.status(key())


@pytest.mark.parametrize("ask", ["sweep", "purge", "deprovision", "provision"])
async def test_an_error_of_the_disk_is_tried_again(local: LocalDirWorld, ask: str) -> None:
    ctx = await provisioned(local, key())
    box = local.files(key()).parent.parent
    remove_tree(box)
    box.write_bytes(b"as a damaged file system shows it")
    homes = local.homes
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "sweep": lambda: homes.sweep(key(), no_fence),
        "purge": lambda: homes.purge(key(), no_fence),
        "deprovision": lambda: homes.deprovision(key(), ctx, no_fence),
        "provision": lambda: homes.provision(key(), "inc-2", no_fence),
    }
    with pytest.raises(Transient):
        await work[ask]()


async def test_the_id_of_a_homes_directory_is_on_the_disk_before_the_database_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the homes would be Unknown after a power cut."""
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def noting(fd: int) -> None:
        real(fd)
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), (tmp_path / MARK).exists()))

    monkeypatch.setattr(os, "fsync", noting)
    await HomesMark(tmp_path).write_id("store-1")
    assert synced[-1] == (str(tmp_path), True)


async def test_the_way_to_a_new_home_is_on_the_disk(local: LocalDirWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    real = os.fsync

    def noting(fd: int) -> None:
        real(fd)
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", noting)
    await local.homes.provision(key(), "inc-1", no_fence)
    box = local.files(key()).parent.parent
    assert {str(place) for place in (box, *box.parents[:4])} <= synced
    assert str(local.root) in synced


def stream(*entries: tar.Entry) -> bytes:
    return b"".join(map(tar.encode, entries)) + tar.END


def test_a_volume_that_the_engine_sent_incompletely_is_archived_again() -> None:
    whole = stream(tar.Entry(b"home/a", tar.FILE), tar.Entry(b"home/b", tar.FILE))
    with pytest.raises(Transient, match="ends in the middle"):
        list(_of_engine(renamed([whole[:512]], out_of(b"home"), Packed())))


def test_an_entry_that_is_not_understood_is_not_left_out_of_an_archive() -> None:
    """Such as a file in a format of old tars. Devices are left out."""
    kept = stream(tar.Entry(b"home/device", tar.DEVICES[0]), tar.Entry(b"home/a", tar.FILE))
    packed = Packed()
    list(renamed([kept], out_of(b"home"), packed))
    assert packed.entries == 1
    with pytest.raises(Transient, match="unknown kind"):
        list(_of_engine(renamed([stream(tar.Entry(b"home/a", b"S"))], out_of(b"home"), Packed())))


def test_an_archive_with_more_links_than_this_file_system_allows_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS allows more links to a file than ext4. The archive is intact, and can be restored elsewhere."""

    def refused(*args: object, **more: object) -> None:
        raise OSError(31, "Too many links")

    monkeypatch.setattr(os, "link", refused)
    links = stream(tar.Entry(b"a", tar.FILE), tar.Entry(b"b", tar.LINK, link=b"a"))
    with pytest.raises(Transient, match="Too many links"):
        unpack_tree([links], tmp_path)
