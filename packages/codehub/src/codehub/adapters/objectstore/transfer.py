"""Transfers a home to the store and back: tar stream ↔ zstd ↔ object, with digests and meta as the commit marker.

Blocking; runs in a worker thread. Knows neither volumes nor workspaces. `at` names the points at which tests crash it.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from codehub.adapters.objectstore.ahead import ahead
from codehub.adapters.objectstore.compression import compressed, decompressed
from codehub.adapters.objectstore.layout import META_SUFFIX, Meta, parse_key
from codehub.adapters.objectstore.store import Store
from codehub.adapters.tarball.format import END
from codehub.adapters.tarball.pack import Packed
from codehub.adapters.tarball.read import TarStream
from codehub.domain.errors import ArchiveCorrupted, NotFound, Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt

Checkpoint = Callable[[str], None]


def nowhere(point: str) -> None:
    """The checkpoint used in production: does nothing."""


class Cancelled(Transient):
    """Raised when the caller gave up. Never visible outside: it becomes the caller's own cancellation."""


@dataclass(slots=True)
class Job:
    """A transfer's inputs and callbacks."""

    report: Report
    fence: Fence
    cancelled: threading.Event
    at: Checkpoint = nowhere

    def check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled("cancelled")


def find_receipt(store: Store, key: str) -> ArchiveReceipt | None:
    """Return the receipt of an archive that is committed and has the size that its meta states.

    A damaged meta commits nothing.
    """
    raw = store.get(key + META_SUFFIX)
    if raw is None:
        return None
    try:
        meta = Meta.parse(raw)
    except ArchiveCorrupted:
        return None
    if store.size(key) != meta.size:
        return None
    return ArchiveReceipt(key, parse_key(key).op_id, meta.size, meta.sha256)


def upload(
    store: Store, key: str, tar: Iterable[bytes], packed: Packed, total: int | None, job: Job
) -> ArchiveReceipt:
    """Store tar chunks as an object, then its meta. The producer of the chunks counts `packed`."""
    _make_way(store, key, job)
    sent = _Sent()

    def passed() -> Iterator[bytes]:
        for chunk in tar:
            job.at("archive:bytes")
            job.check()
            yield chunk
            job.report(Progress("archive", packed.tar_bytes, total))
        job.check()

    job.at("archive:before-data")
    # Three concurrent stages: reading the home, compressing and digesting, sending.
    with (
        contextlib.closing(ahead(passed(), "codehub-pack")) as read,
        contextlib.closing(ahead(sent.passing(compressed(read)), "codehub-compress")) as made,
    ):
        store.put_stream(key, _fenced(made, job))
    job.at("archive:after-data")
    return _commit(store, key, Meta(sent.digest.hexdigest(), sent.count, packed.tar_bytes, packed.entries), job)


def _make_way(store: Store, key: str, job: Job) -> None:
    """Remove what is left of an earlier attempt.

    A meta that describes other data goes before that data is replaced: after a crash, new data of the same size would count
    as committed, and its home would be removed.
    """
    place = parse_key(key)
    # Not without looking: a leader that is frozen here must not remove the meta that a later one has written.
    if store.size(key + META_SUFFIX) is not None:
        job.fence()
        store.delete(key + META_SUFFIX)
    store.abort_uploads(f"{place.workspace_id}/{place.op_id}")


def _fenced(pieces: Iterable[bytes], job: Job) -> Iterator[bytes]:
    """Yield the pieces. The object appears after the last one, and may replace one that a later leader has verified."""
    yield from pieces
    job.fence()


def upload_compressed(
    store: Store, key: str, pieces: Iterable[bytes], declared: Callable[[], Meta], job: Job
) -> ArchiveReceipt:
    """Store an archive that was packed and compressed elsewhere, then its meta.

    `declared` is called after the last piece: the producer's declaration must match the received data.
    """
    _make_way(store, key, job)
    sent = _Sent()

    def passed() -> Iterator[bytes]:
        for piece in sent.passing(pieces):
            job.at("archive:bytes")
            job.check()
            yield piece
            job.report(Progress("archive", sent.count))

    job.at("archive:before-data")
    store.put_stream(key, _fenced(passed(), job))
    job.at("archive:after-data")
    meta = declared()
    if (sent.digest.hexdigest(), sent.count) != (meta.sha256, meta.size):
        raise Transient(f"{sent.count} of {meta.size} bytes of {key} came through, or other ones than were sent")
    return _commit(store, key, meta, job)


@dataclass(slots=True)
class _Sent:
    """The data sent to the store so far."""

    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    count: int = 0

    def passing(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.digest.update(piece)
            self.count += len(piece)
            yield piece


def _commit(store: Store, key: str, meta: Meta, job: Job) -> ArchiveReceipt:
    """Verify the stored object, then write its meta."""
    job.check()
    # The store must hold what was sent, on its disk, before the meta says so.
    with ThreadPoolExecutor(1, thread_name_prefix="codehub-sync") as pool:
        synced = pool.submit(store.sync, key)
        verify(store, key, meta, job)
        synced.result()
    job.at("archive:verified")
    job.fence()
    # A leader that is frozen here must not replace the meta of a later one: it may describe other data.
    store.put_new(key + META_SUFFIX, meta.render())
    job.at("archive:after-meta")
    written = store.get(key + META_SUFFIX)
    if written != meta.render():
        raise Transient(f"the archive store returned another meta file than was written for {key}")
    return ArchiveReceipt(key, parse_key(key).op_id, meta.size, meta.sha256)


def upload_empty(store: Store, key: str, job: Job) -> ArchiveReceipt:
    """Store the archive of an empty home: a tar that contains only its end."""
    if (receipt := find_receipt(store, key)) is not None:
        return receipt
    return upload(store, key, [END], Packed(tar_bytes=len(END)), len(END), job)


def verify(store: Store, key: str, meta: Meta, job: Job) -> None:
    """Read the object back through the parser that a restore uses: verified means that it can be restored.

    Raises Transient if it differs: the volume still exists, so the archive can be retried.
    """
    found = store.size(key)
    if found != meta.size:
        raise Transient(f"the archive store holds {found} of {meta.size} bytes of {key}")

    def passed(count: int) -> None:
        job.check()
        job.report(Progress("verify", count, meta.size))

    made = decompressed(store.stream(key), key, meta, passed)
    try:
        with contextlib.closing(ahead(made, "codehub-verify")) as chunks:
            for _ in TarStream(chunks):
                job.check()
    except ArchiveCorrupted as error:
        raise Transient(f"the archive store returned something else than was sent for {key}: {error}") from error


def read_meta(store: Store, key: str, sha256: str | None = None) -> Meta:
    """Return an archive's meta. Raises ArchiveCorrupted if it is of another archive than the one with this digest."""
    raw = store.get(key + META_SUFFIX)
    if raw is None:
        raise NotFound(f"there is no committed archive at {key}")
    meta = Meta.parse(raw)
    if sha256 is not None and meta.sha256 != sha256:
        raise ArchiveCorrupted(f"{key} is not the archive that was stored there: it has been replaced")
    return meta


def download(store: Store, key: str, meta: Meta, job: Job) -> Iterator[bytes]:
    """Yield the archive's tar stream. Raises ArchiveCorrupted at the end unless digest and sizes match.

    Reading, digesting and decompressing run in a separate thread, a few chunks ahead.
    """

    def passed(count: int) -> None:
        job.report(Progress("restore", count, meta.size))

    made = decompressed(store.stream(key), key, meta, passed)
    with contextlib.closing(ahead(made, "codehub-restore")) as chunks:
        for chunk in chunks:
            job.check()
            job.at("restore:bytes")
            yield chunk
