"""Parses a tar stream into entries and their content.

Reads what pack, GNU tar and the Docker engine write, and trusts none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.format import BLOCK, Entry
from codehub.domain.errors import ArchiveCorrupted

# Most entries have a pax header for fractions of a second, and most of those are identical, so they are decoded once.
_PAX_HEADERS_KNOWN = 64


class TarStream:
    """Iterates over entries. `content(entry)` must be consumed (or not started) before the next entry."""

    def __init__(self, chunks: Iterable[bytes], limit: int | None = None) -> None:
        self._limit = limit  # most bytes that an intact stream can have
        self._chunks = iter(chunks)
        self._view = memoryview(b"")
        self._at = 0
        self._left = 0  # of the current entry's content and padding
        self.consumed = 0
        self._pax_sizes: dict[bytes, int] = {}

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._next()) is not None:
            yield entry
            self._skip()
        # The rest must be read: the producer of the stream may verify it at its end.
        for chunk in self._chunks:
            self._count(chunk)

    def content(self, entry: Entry) -> Iterator[memoryview]:
        """Yield the current entry's content in chunks."""
        left = entry.size
        while left:
            piece = self._some(left)
            left -= len(piece)
            self._left -= len(piece)
            yield piece

    def small(self, size: int) -> bytes | memoryview:
        """Return `size` bytes of the current entry's content at once."""
        self._left -= size
        return self._take(size)

    def _next(self) -> Entry | None:
        pax: dict[bytes, bytes] = {}
        long_name: bytes | None = None
        long_link: bytes | None = None
        while True:
            head = bytes(self._take(BLOCK))
            if (size := self._pax_sizes.get(head)) is not None:
                pax.update(tar.records(self._body(size)))
                continue
            entry = tar.decode(head)
            if entry is None:
                return None
            if entry.kind not in (tar.PAX, tar.PAX_GLOBAL, tar.GNU_LONGNAME, tar.GNU_LONGLINK):
                break
            if entry.size > tar.MAX_PAX:
                raise ArchiveCorrupted("the archive's tar stream has an oversized header")
            body = self._body(entry.size)
            if entry.kind == tar.PAX:
                pax.update(tar.records(body))
                if len(self._pax_sizes) < _PAX_HEADERS_KNOWN:
                    self._pax_sizes[head] = entry.size
            elif entry.kind == tar.GNU_LONGNAME:
                long_name = body.rstrip(b"\0")
            elif entry.kind == tar.GNU_LONGLINK:
                long_link = body.rstrip(b"\0")
        if long_name is not None:
            entry.name = long_name
        if long_link is not None:
            entry.link = long_link
        if pax:
            tar.apply(entry, pax)
        if entry.kind != tar.FILE:
            entry.size = entry.size if entry.kind not in (tar.LINK, tar.SYMLINK, tar.DIR, tar.FIFO) else 0
        self._left = entry.size + tar.padding(entry.size)
        return entry

    def _body(self, size: int) -> bytes:
        """Return the body of a header that has one."""
        body = bytes(self._take(size))
        self._take(tar.padding(size))
        return body

    def _skip(self) -> None:
        while self._left:
            self._left -= len(self._some(self._left))

    def _some(self, most: int) -> memoryview:
        """Return at least one byte."""
        if self._at == len(self._view):
            self._refill()
        piece = self._view[self._at : self._at + most]
        self._at += len(piece)
        return piece

    def _take(self, size: int) -> bytes | memoryview:
        end = self._at + size
        if end <= len(self._view):
            piece = self._view[self._at : end]
            self._at = end
            return piece
        pieces = [bytes(self._view[self._at :])]
        have = len(pieces[0])
        self._at = len(self._view)
        while have < size:
            piece = self._some(size - have)
            pieces.append(bytes(piece))
            have += len(piece)
        return b"".join(pieces)

    def _refill(self) -> None:
        for chunk in self._chunks:
            if chunk:
                self._count(chunk)
                self._view = memoryview(chunk)
                self._at = 0
                return
        raise ArchiveCorrupted("the archive's tar stream ends in the middle")

    def _count(self, chunk: bytes) -> None:
        self.consumed += len(chunk)
        if self._limit is not None and self.consumed > self._limit:
            raise ArchiveCorrupted("the archive unpacks to more than it was made from")
