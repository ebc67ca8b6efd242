"""One home's way into the store and back: tar stream ↔ zstd ↔ object, digested on the way, meta as the commit marker.

Blocking; runs in a worker thread. Knows neither volumes nor workspaces. `at` names the points a crash is tested at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, cast

import zstandard

from codehub.adapters.objectstore.ahead import ahead
from codehub.adapters.objectstore.layout import META_SUFFIX, Meta, parse_key
from codehub.adapters.objectstore.store import Store
from codehub.adapters.tarball.format import END
from codehub.adapters.tarball.pack import Packed
from codehub.domain.errors import ArchiveCorrupted, NotFound, Transient
from codehub.domain.model import Progress
from codehub.ports.fence import Fence, Report
from codehub.ports.homes import ArchiveReceipt

LEVEL = 3
# "All cores", but each has a job of its own in memory, before and after: with eight an archive stays below 200 MB.
THREADS = min(os.cpu_count() or 1, 8)
_JOB_BYTES = 4 << 20
_UNPACKED_CHUNK = 1 << 20
_MAX_WINDOW = 1 << 27  # what zstd itself accepts by default

Checkpoint = Callable[[str], None]


def nowhere(point: str) -> None:
    """The checkpoint of production: nothing happens there."""


class Cancelled(Transient):
    """The caller gave up; never seen outside: it becomes the caller's own cancellation."""


@dataclass(slots=True)
class Job:
    """What a transfer is told and tells."""

    report: Report
    fence: Fence
    cancelled: threading.Event
    at: Checkpoint = nowhere

    def check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled("cancelled")


def find_receipt(store: Store, key: str) -> ArchiveReceipt | None:
    """The receipt of an archive that is committed and has the size its meta says."""
    raw = store.get(key + META_SUFFIX)
    if raw is None:
        return None
    meta = Meta.parse(raw)
    if store.size(key) != meta.size:
        return None
    return ArchiveReceipt(key, parse_key(key).op_id, meta.size, meta.sha256)


def upload(
    store: Store, key: str, tar: Iterable[bytes], packed: Packed, total: int | None, job: Job
) -> ArchiveReceipt:
    """Tar chunks → object, then meta. `packed` is counted by whoever makes the chunks."""
    place = parse_key(key)
    store.abort_uploads(f"{place.workspace_id}/{place.op_id}/")
    digest = hashlib.sha256()
    sent = 0

    def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal sent
        for piece in _compressed(chunks):
            digest.update(piece)
            sent += len(piece)
            yield piece

    def passed() -> Iterator[bytes]:
        for chunk in tar:
            job.at("archive:bytes")
            job.check()
            yield chunk
            job.report(Progress("archive", packed.tar_bytes, total))
        job.check()

    job.at("archive:before-data")
    # Three stages at once: the home is read, compressed and digested, and sent.
    with (
        contextlib.closing(ahead(passed(), "codehub-pack")) as read,
        contextlib.closing(ahead(compressed(read), "codehub-compress")) as made,
    ):
        store.put_stream(key, made)
    job.at("archive:after-data")
    meta = Meta(digest.hexdigest(), sent, packed.tar_bytes, packed.entries)
    job.check()
    # What the store holds must be what was sent, and on its disk, before anything says so.
    with ThreadPoolExecutor(1, thread_name_prefix="codehub-sync") as pool:
        synced = pool.submit(store.sync, key)
        verify(store, key, meta, job)
        synced.result()
    job.at("archive:verified")
    job.fence()
    store.put(key + META_SUFFIX, meta.render())
    job.at("archive:after-meta")
    written = store.get(key + META_SUFFIX)
    if written != meta.render():
        raise Transient(f"the archive store returned another meta file than was written for {key}")
    return ArchiveReceipt(key, place.op_id, sent, meta.sha256)


def upload_empty(store: Store, key: str, job: Job) -> ArchiveReceipt:
    """The archive of a home in which there is nothing: a tar that ends where it begins."""
    if (receipt := find_receipt(store, key)) is not None:
        return receipt
    return upload(store, key, [END], Packed(tar_bytes=len(END)), len(END), job)


def verify(store: Store, key: str, meta: Meta, job: Job) -> None:
    """Read back what was stored and compare. Transient when it differs: the volume is still there to try again."""
    found = store.size(key)
    if found != meta.size:
        raise Transient(f"the archive store holds {found} of {meta.size} bytes of {key}")
    digest = hashlib.sha256()
    done = 0
    for chunk in store.stream(key):
        job.check()
        digest.update(chunk)
        done += len(chunk)
        job.report(Progress("verify", done, meta.size))
    if digest.hexdigest() != meta.sha256:
        raise Transient(f"the archive store returned other bytes than were sent for {key}")


def read_meta(store: Store, key: str) -> Meta:
    raw = store.get(key + META_SUFFIX)
    if raw is None:
        raise NotFound(f"there is no committed archive at {key}")
    return Meta.parse(raw)


def download(store: Store, key: str, meta: Meta, job: Job) -> Iterator[bytes]:
    """The archive's tar stream. Its end is only reached when digest and sizes are right; else ArchiveCorrupted.

    Reading, digesting and decompressing run in a thread of their own, a few chunks ahead.
    """
    with contextlib.closing(ahead(_decompressed(store, key, meta, job), "codehub-restore")) as chunks:
        for chunk in chunks:
            job.check()
            job.at("restore:bytes")
            yield chunk


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, threads=THREADS, job_size=_JOB_BYTES, write_checksum=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    for chunk in chunks:
        if piece := compressor.compress(chunk):
            yield piece
    yield compressor.flush()


def _decompressed(store: Store, key: str, meta: Meta, job: Job) -> Iterator[bytes]:
    source = _Digested(store.stream(key))
    unpacked = 0
    try:
        # Read by bounded pieces: a small object may decompress to terabytes.
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            cast("IO[bytes]", source), read_across_frames=True
        )
        while piece := reader.read(_UNPACKED_CHUNK):
            unpacked += len(piece)
            if unpacked > meta.tar_bytes:
                raise ArchiveCorrupted(f"the archive {key} unpacks to more than it was made from")
            yield piece
            job.report(Progress("restore", source.count, meta.size))
        source.drain()
    except (zstandard.ZstdError, NotFound) as error:
        raise ArchiveCorrupted(f"the archive {key} is damaged or gone: {error}") from error
    got, digest = source.count, source.digest
    if got != meta.size or digest.hexdigest() != meta.sha256:
        raise ArchiveCorrupted(
            f"the archive {key} is damaged: {got} of {meta.size} bytes, and its digest does not match"
        )
    if unpacked != meta.tar_bytes:
        raise ArchiveCorrupted(f"the archive {key} unpacks to {unpacked} of {meta.tar_bytes} bytes")


class _Digested:
    """Chunks as a file to read from, digested as they pass."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self.digest = hashlib.sha256()
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        if not self._rest and (chunk := next(self._chunks, None)) is not None:
            self.digest.update(chunk)
            self.count += len(chunk)
            self._rest = memoryview(chunk)
        piece = bytes(self._rest[: size if size >= 0 else None])
        self._rest = self._rest[len(piece) :]
        return piece

    def drain(self) -> None:
        while self.read(_UNPACKED_CHUNK):
            pass
