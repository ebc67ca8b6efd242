"""Small files on threads of their own: while one waits for the file system, the stream is read on and another is made.

Batches go by directory, each with a descriptor of its own; how a file is made is its maker's business. Order among files
does not matter: an archive that names one twice fails whoever comes second.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from codehub.adapters.tarball.format import Entry

SMALL = 256 << 10
_WRITERS = 2
_BATCH_FILES = 32
_BATCH_BYTES = 1 << 20
_UNDER_WAY = 4  # batches: bounds memory

Maker = Callable[[int, str, Entry, bytes], None]


@dataclass(slots=True)
class _Batch:
    parts: list[str]
    dir_fd: int
    files: list[tuple[str, Entry, bytes]] = field(default_factory=list)
    size: int = 0


class SmallFiles:
    def __init__(self, make: Maker) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="codehub-unpack")
        self._under_way: deque[Future[None]] = deque()
        self._batch: _Batch | None = None

    def add(self, parts: list[str], dir_fd: int, name: str, entry: Entry, content: bytes) -> None:
        """`dir_fd` is open at `parts`, for now."""
        if self._batch is not None and self._batch.parts != parts:
            self._hand_over()
        if self._batch is None:
            self._batch = _Batch(parts, os.dup(dir_fd))
        self._batch.files.append((name, entry, content))
        self._batch.size += len(content)
        if len(self._batch.files) >= _BATCH_FILES or self._batch.size >= _BATCH_BYTES:
            self._hand_over()

    def wait(self) -> None:
        """Until all are made; raises the first one's error."""
        self._hand_over()
        while self._under_way:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Whatever happened: nothing is written to the tree after this."""
        if self._batch is not None:
            os.close(self._batch.dir_fd)
            self._batch = None
        self._pool.shutdown(wait=True)

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self._under_way.append(self._pool.submit(self._write, batch))
        while len(self._under_way) > _UNDER_WAY:
            self._under_way.popleft().result()

    def _write(self, batch: _Batch) -> None:
        try:
            for name, entry, content in batch.files:
                self._make(batch.dir_fd, name, entry, content)
        finally:
            os.close(batch.dir_fd)
