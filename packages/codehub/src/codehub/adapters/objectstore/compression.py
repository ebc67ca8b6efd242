"""Converts between tar chunks and zstd data, with digests and bounds. Knows neither stores nor homes.

Separate from `transfer`, because it also runs where there is no store: in the pod that packs or unpacks a home.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast

import zstandard

from codehub.adapters.objectstore.layout import Meta
from codehub.domain.errors import ArchiveCorrupted, NotFound

LEVEL = 3
# All cores, up to eight: each needs memory for its job, and with eight an archive stays below 200 MB.
THREADS = min(os.cpu_count() or 1, 8)
_JOB_BYTES = 4 << 20
_UNPACKED_CHUNK = 1 << 20
_MAX_WINDOW = 1 << 27  # zstd's own default limit


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, threads=THREADS, job_size=_JOB_BYTES, write_checksum=True
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    for chunk in chunks:
        if piece := compressor.compress(chunk):
            yield piece
    yield compressor.flush()


def decompressed(pieces: Iterator[bytes], key: str, meta: Meta, passed: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the archive's tar stream. Raises ArchiveCorrupted at the end unless digest and sizes match."""
    source = _Digested(pieces)
    unpacked = 0
    try:
        # Read in bounded chunks: a small object may decompress to terabytes.
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            cast("IO[bytes]", source), read_across_frames=True
        )
        while piece := reader.read(_UNPACKED_CHUNK):
            unpacked += len(piece)
            if unpacked > meta.tar_bytes:
                raise ArchiveCorrupted(f"the archive {key} unpacks to more than it was made from")
            yield piece
            passed(source.count)
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
    """A file object that reads from chunks and computes their digest."""

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
