"""Reads a small tar from an untrusted source into memory: regular files with paths inside the folder, nothing else."""

from __future__ import annotations

from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.read import TarStream
from codehub.domain.dev_features import File
from codehub.domain.errors import Invalid

_MOST_FILES = 200


def files_of(raw: bytes, what: str) -> dict[str, File]:
    """Raises Invalid if it holds links, devices, sparse files, too many files or paths that lead out of it.

    Raises ArchiveCorrupted if it is no tar.
    """
    found: dict[str, File] = {}
    stream = TarStream([raw])
    for entry in stream:
        if entry.kind == tar.DIR:
            continue
        name = entry.name.decode("utf-8", "replace").removeprefix("./")
        inside = name and not name.startswith("/") and ".." not in name.split("/") and name.isprintable()
        if entry.kind != tar.FILE or entry.sparse_size is not None or not inside or len(found) >= _MOST_FILES:
            raise Invalid(f"{what} may hold at most {_MOST_FILES} files, and no links")
        found[name] = File(b"".join(stream.content(entry)), executable=bool(entry.mode & 0o100))
    return found
