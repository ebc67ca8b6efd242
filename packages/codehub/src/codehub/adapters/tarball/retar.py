"""Renames entries of a tar stream: every entry is read, checked and written again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.format import Entry
from codehub.adapters.tarball.pack import CHUNK, Packed, bounded
from codehub.adapters.tarball.read import TarStream
from codehub.adapters.tarball.unpack import split
from codehub.domain.errors import ArchiveCorrupted

_KINDS = (tar.FILE, tar.LINK, tar.SYMLINK, tar.DIR, tar.FIFO)


def out_of(folder: bytes) -> Callable[[bytes], bytes]:
    """`folder/x` → `./x`, the folder itself → `.`. Raises Terminal for a path that is too deep or too long to archive."""

    def rename(name: bytes) -> bytes:
        inside = name.lstrip(b"/").removeprefix(folder).strip(b"/")
        return bounded(b"./" + inside, inside.count(b"/")) if inside else b"."

    return rename


def into(folder: bytes) -> Callable[[bytes], bytes]:
    """`./x` → `folder/x`."""

    def rename(name: bytes) -> bytes:
        parts = split(name)
        return b"/".join([folder, *(part.encode("utf-8", "surrogateescape") for part in parts)])

    return rename


def renamed(
    chunks: Iterable[bytes],
    rename: Callable[[bytes], bytes],
    packed: Packed,
    limit: int | None = None,
    owner: int | None = None,
) -> Iterator[bytes]:
    """Yield the renamed stream, without devices.

    Targets of hard links are renamed too, those of symbolic links are not.

    With an `owner`, every entry belongs to that user, regardless of its original owner.
    """
    pieces: list[bytes] = []
    held = 0
    stream = TarStream(chunks, limit)
    for entry in stream:
        if entry.sparse_size is not None:
            raise ArchiveCorrupted("a sparse file cannot be put into a Docker volume: restore to a local directory")
        if entry.kind in tar.DEVICES:
            continue
        if entry.kind not in _KINDS:
            raise ArchiveCorrupted(f"the stream holds an entry of an unknown kind: {entry.kind!r}")
        packed.entries += 1
        head = tar.encode(_as(entry, rename, owner))
        pieces.append(head)
        held += len(head)
        for piece in stream.content(entry):
            pieces.append(bytes(piece))
            held += len(piece)
            if held >= CHUNK:
                packed.tar_bytes += held
                yield b"".join(pieces)
                pieces, held = [], 0
        pieces.append(bytes(tar.padding(entry.size)))
        held += tar.padding(entry.size)
    pieces.append(tar.END)
    packed.tar_bytes += held + len(tar.END)
    yield b"".join(pieces)


def _as(entry: Entry, rename: Callable[[bytes], bytes], owner: int | None) -> Entry:
    link = rename(entry.link) if entry.kind == tar.LINK else entry.link
    return Entry(
        rename(entry.name),
        entry.kind,
        entry.mode,
        entry.uid if owner is None else owner,
        entry.gid if owner is None else owner,
        entry.size,
        entry.mtime_ns,
        link,
        entry.xattrs,
    )
