"""Archives that are replaced or half there while others rely on them: only what was verified counts as archived."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from codehub.adapters.objectstore.ahead import ahead
from codehub.adapters.objectstore.archives import ObjectArchives
from codehub.adapters.objectstore.compression import compressed
from codehub.adapters.objectstore.store import Store, StoreOptions
from codehub.adapters.objectstore.transfer import Checkpoint, Job, find_receipt, nowhere, read_meta, upload
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.pack import Packed, pack_tree
from codehub.domain.errors import BackendDown, Denied, FenceLost, Transient
from codehub.ports.fence import Fence, ignore_progress, no_fence
from codehub.ports.homes import ArchiveReceipt
from testing.codehub.contracts.archives import lost_after
from testing.codehub.objectstore import S3Server
from testing.codehub.trees import make_rich_tree

WORKSPACE = "0190a000-0000-7000-8000-000000000001"
KEY = f"{WORKSPACE}/op-1/home.tar.zst"


class Crash(BaseException):
    pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archives"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    made = Store(root.as_uri())
    yield made
    made.close()


def home() -> bytes:
    """A tar stream that is compressed to the same size each time. Of random bytes, a few per cent have another one."""
    while len(b"".join(compressed([made := _random_home()]))) != _compressed_size():
        pass
    return made


@functools.cache
def _compressed_size() -> int:
    return len(b"".join(compressed([_random_home()])))


def _random_home() -> bytes:
    return tar.encode(tar.Entry(b"./file", tar.FILE, size=5120)) + os.urandom(5120) + tar.END


def archive(
    store: Store, content: bytes, *, key: str = KEY, fence: Fence = no_fence, at: Checkpoint = nowhere
) -> ArchiveReceipt:
    job = Job(ignore_progress, fence, threading.Event(), at)
    return upload(store, key, [content], Packed(tar_bytes=len(content), entries=1), len(content), job)


def crash_at(wanted: str) -> Callable[[str], None]:
    def at(point: str) -> None:
        if point == wanted:
            raise Crash(point)

    return at


def test_data_that_was_not_verified_yet_is_not_committed_by_the_meta_of_what_it_replaced(
    store: Store, root: Path
) -> None:
    """Its home would be removed, and the archive refused when it is restored."""
    first = archive(store, home())
    os.truncate(root / KEY, 100)
    assert find_receipt(store, KEY) is None
    with pytest.raises(Crash):
        archive(store, home(), at=crash_at("archive:after-data"))
    assert (root / KEY).stat().st_size == first.bytes, "as long as what the old meta describes"
    assert find_receipt(store, KEY) is None


def test_a_leader_that_was_frozen_does_not_replace_what_the_next_one_verified(store: Store, root: Path) -> None:
    """It goes on when the next leader has committed its archive, and may have removed the home."""
    is_over = threading.Event()

    def fence() -> None:
        if is_over.is_set():
            raise FenceLost("the term is over")

    def at(point: str) -> None:
        if point == "archive:before-data":
            archive(store, home())
            is_over.set()

    with pytest.raises(FenceLost):
        archive(store, home(), fence=fence, at=at)
    committed = find_receipt(store, KEY)
    assert committed is not None
    assert archive_is_intact(root, store, committed)


@pytest.fixture(params=["files", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))])
def any_store(request: pytest.FixtureRequest, store: Store) -> Iterator[Store]:
    if request.param == "files":
        yield store
        return
    server: S3Server = request.getfixturevalue("s3_server")
    made = server.fresh()
    yield made
    made.close()


@pytest.mark.parametrize("number", [1, 2], ids=["data", "meta"])
def test_a_leader_that_freezes_between_its_check_and_a_write_replaces_nothing(any_store: Store, number: int) -> None:
    """The check of its term passed, and it goes on when the next leader may have removed the home."""
    checks, committed = 0, []

    def fence() -> None:
        nonlocal checks
        checks += 1
        if checks == number:
            with ThreadPoolExecutor(1) as next_leader:
                committed.append(next_leader.submit(archive, any_store, home()).result())

    with pytest.raises(Transient):
        archive(any_store, home(), fence=fence)
    assert find_receipt(any_store, KEY) == committed[0]
    digest = hashlib.sha256(b"".join(any_store.stream(KEY))).hexdigest()
    assert digest == committed[0].sha256


def test_a_home_at_rest_has_the_same_archive_each_time(tmp_path: Path) -> None:
    """Where a store cannot refuse a late write, what is written late equals what is there."""
    tree = tmp_path / "home"
    make_rich_tree(tree, big=12_000_000)

    def made() -> str:
        with contextlib.closing(ahead(pack_tree(tree, Packed()), "test")) as chunks:
            return hashlib.sha256(b"".join(compressed(chunks))).hexdigest()

    assert len({made() for _ in range(3)}) == 1


async def test_one_of_two_installations_gets_a_new_store(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of them would remove the archives of the other, which no workspace of its own needs."""
    real = any_store.get

    def get_while_another_claims(key: str) -> bytes | None:
        found = real(key)
        if found is None:
            monkeypatch.setattr(any_store, "get", real)
            asyncio.run(ObjectArchives(any_store).claim("the other"))
        return found

    monkeypatch.setattr(any_store, "get", get_while_another_claims)
    with pytest.raises(Denied, match="the other"):
        await ObjectArchives(any_store).claim("this one")


def archive_is_intact(root: Path, store: Store, receipt: ArchiveReceipt) -> bool:
    digest = hashlib.sha256((root / KEY).read_bytes()).hexdigest()
    return digest == receipt.sha256 == read_meta(store, KEY).sha256


def test_a_leader_whose_term_is_over_removes_no_meta(store: Store) -> None:
    receipt = archive(store, home())
    with pytest.raises(FenceLost):
        archive(store, home(), fence=lost_after(0))
    assert find_receipt(store, KEY) == receipt


@pytest.mark.parametrize("meta", [b"", b"sha256:", b"\xff\0"], ids=["empty", "cut", "garbage"])
def test_a_damaged_meta_commits_nothing_and_the_home_is_archived_again(store: Store, root: Path, meta: bytes) -> None:
    """As a power cut may leave it. The home is still there."""
    archive(store, home())
    (root / f"{KEY}.meta").write_bytes(meta)
    assert find_receipt(store, KEY) is None
    again = archive(store, home())
    assert find_receipt(store, KEY) == again


def test_all_names_on_the_way_to_an_archive_are_on_the_disk_before_it_is_committed(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def noting(fd: int) -> None:
        real(fd)
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", noting)
    missing = {str(path) for path in (root / KEY, (root / KEY).parent, (root / KEY).parent.parent, root)}

    def at(point: str) -> None:
        if point == "archive:verified":
            assert missing <= set(synced)
            synced.clear()

    archive(store, home(), at=at)
    assert any(".meta#" in path for path in synced), "the meta's content is there before its name"


class NotFoundForAll(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def unroutable() -> Iterator[Store]:
    """An S3 store behind a reverse proxy that does not know its backend at the moment. A deleted bucket answers alike."""
    with served(NotFoundForAll) as store:
        yield store


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[Store]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        options = StoreOptions(endpoint, "us-east-1", "access", "secret", timeout_s=30, retries=0)
        made = Store("s3://archives/below", options)
        yield made
        made.close()
        server.shutdown()


class NoConditions(BaseHTTPRequestHandler):
    """As some stores answer to a header that they do not know."""

    stored: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        refused = "if-none-match" in self.headers
        answer = b"<Error><Code>NotImplemented</Code></Error>" if refused else b""
        if not refused:
            self.stored[self.path] = body
        self.send_response(501 if refused else 200)
        self.send_header("etag", '"1"')
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_store_without_conditional_writes_is_written_to_all_the_same() -> None:
    with served(NoConditions) as store:
        store.put_new(f"{KEY}.meta", b"content")
    assert NoConditions.stored == {f"/archives/below/{KEY}.meta": b"content"}


async def test_archives_are_not_lost_because_a_proxy_answers_404_to_everything(unroutable: Store) -> None:
    unroutable.expect("store-1")
    with pytest.raises(BackendDown, match="not the one it was"):
        await ObjectArchives(unroutable).committed([KEY])
    for ask in (find_receipt, read_meta):
        with pytest.raises(BackendDown, match="not the one it was"):
            ask(unroutable, KEY)
    with pytest.raises(BackendDown, match="not the one it was"):
        list(unroutable.stream(KEY))


def test_an_archive_is_not_lost_because_its_disk_went_after_the_check(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(store, home())
    store.write_id("store-1")
    store.expect("store-1")
    real, disk = store.read_id, root.with_name("disk")

    def read_and_unmount() -> str | None:
        found = real()
        if not disk.exists():
            root.rename(disk)
            root.mkdir()
        return found

    monkeypatch.setattr(store, "read_id", read_and_unmount)
    with pytest.raises(BackendDown, match="is its disk mounted"):
        find_receipt(store, KEY)
