"""Unpacks a tar stream into a directory created for it.

Nothing outside the directory can be touched: names are split and checked, every step uses a descriptor, links are created
but never followed. Content that an intact archive cannot have (absolute names, `..`, a duplicate name) is ArchiveCorrupted.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Iterable
from pathlib import Path

from codehub.adapters.filesystem.dir_cursor import DirCursor
from codehub.adapters.filesystem.writeback import Writeback
from codehub.adapters.tarball import format as tar
from codehub.adapters.tarball.format import Entry
from codehub.adapters.tarball.read import TarStream
from codehub.domain.errors import ArchiveCorrupted, OutOfSpace, Transient

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SMALL = 1 << 20
_LONGEST_NUMBER = 19  # digits, of an offset in a file
_BAD_ENTRY = {
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EINVAL,
    errno.ENOENT,
    errno.EXDEV,
}


def split(name: bytes) -> list[str]:
    """Split a name into its parts. Raises if it does not stay below the root."""
    if name.startswith(b"/") or b"\0" in name:
        raise ArchiveCorrupted(f"the archive holds an absolute or impossible name: {name[:200]!r}")
    parts = [part for part in os.fsdecode(name).split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveCorrupted(f"the archive holds a name that leads out of the home: {name[:200]!r}")
    return parts


def unpack_tree(chunks: Iterable[bytes], root: Path, limit: int | None = None, *, root_is_ours: bool = True) -> int:
    """Unpack into the existing, empty directory `root`, and return the number of entries.

    `limit`: the tar stream's size when it was packed; a longer stream is not what was archived. `root_is_ours`: whether to
    set the archived attributes on the directory itself; a volume's root may belong to the volume's creator.
    """
    stream = TarStream(chunks, limit)
    unpacker = _Unpacker(root, stream, root_is_ours=root_is_ours)
    count = 0
    try:
        for entry in stream:
            count += 1
            try:
                unpacker.make(entry)
            except (OSError, OverflowError) as error:
                raise _translate(error, entry) from error
        unpacker.finish()
    finally:
        unpacker.close()
    return count


def _translate(error: OSError | OverflowError, entry: Entry) -> Exception:
    name = entry.name[:200]
    if isinstance(error, OverflowError):
        return ArchiveCorrupted(f"the archive holds {name!r} with an owner, a time or a size that no file can have")
    if error.errno == errno.EFBIG:  # freeing space does not help
        return Transient(
            f"{name!r} is larger than a file may be on the homes' file system: restore it to another one"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(f"no space left while unpacking {name!r}: free some space on the homes' disk")
    if error.errno in _BAD_ENTRY:
        return ArchiveCorrupted(f"the archive holds {name!r}, which cannot be unpacked: {error.strerror}")
    return Transient(f"could not unpack {name!r}: {error.strerror}")


class _Unpacker:
    def __init__(self, root: Path, stream: TarStream, *, root_is_ours: bool) -> None:
        self._stream = stream
        self._root_is_ours = root_is_ours
        self._at = DirCursor(root)
        self._sources = DirCursor(root, holds=True)
        self._root = os.geteuid() == 0
        self._ids = (os.geteuid(), os.getegid())
        self._umask = _umask()
        # Directories on the way to the current one, by depth. Their attributes are set when nothing more is written below.
        self._open: list[tuple[int, Entry]] = []
        self._root_entry: Entry | None = None

    def close(self) -> None:
        self._at.__exit__(None, None, None)
        self._sources.__exit__(None, None, None)

    def make(self, entry: Entry) -> None:
        parts = split(entry.name)
        if not parts:
            if entry.kind != tar.DIR:
                raise ArchiveCorrupted("the archive's root is not a directory")
            self._root_entry = entry
            return
        if entry.kind == tar.DIR:
            self._leave(self._at.common(parts[:-1]))
            self._at.goto(parts, make=True)
            self._open.append((len(parts), entry))
            return
        name = parts.pop()
        self._leave(self._at.common(parts))
        fd = self._at.goto(parts, make=True)
        if entry.kind == tar.FILE:
            self._file(fd, name, entry)
        elif entry.kind == tar.SYMLINK:
            os.symlink(entry.link, os.fsencode(name), dir_fd=fd)
            self._own(name, fd, entry)
            os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=fd, follow_symlinks=False)
        elif entry.kind == tar.LINK:
            source = split(entry.link)
            if not source:
                raise ArchiveCorrupted("the archive holds a hard link to its root")
            source_fd = self._sources.goto(source[:-1])
            os.link(source[-1], name, src_dir_fd=source_fd, dst_dir_fd=fd, follow_symlinks=False)
            if not self._root:
                self._sources.ascend(0)  # the modes on the way may change, so that it cannot go back later
        elif entry.kind == tar.FIFO:
            os.mkfifo(name, 0o600, dir_fd=fd)
            self._own(name, fd, entry)
            os.chmod(name, entry.mode, dir_fd=fd)
            os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=fd)
        elif entry.kind not in tar.DEVICES:
            raise ArchiveCorrupted(f"the archive holds an entry of an unknown kind: {entry.kind!r}")

    def _own(self, name: str, dir_fd: int, entry: Entry) -> None:
        if self._root and (entry.uid, entry.gid) != self._ids:
            os.chown(name, entry.uid, entry.gid, dir_fd=dir_fd, follow_symlinks=False)

    def _file(self, dir_fd: int, name: str, entry: Entry) -> None:
        fd, moded = self._new_file(dir_fd, name, entry)
        try:
            if entry.sparse_size is not None:
                self._sparse(fd, entry)
            elif entry.size <= _SMALL:
                _write(fd, self._stream.small(entry.size))
            else:
                writeback = Writeback(fd)
                for piece in self._stream.content(entry):
                    _write(fd, piece)
                    writeback.wrote(len(piece))
            self._attributes(fd, entry, moded=moded)
        finally:
            os.close(fd)

    def _new_file(self, dir_fd: int, name: str, entry: Entry) -> tuple[int, bool]:
        """Create a file and return its descriptor and whether it already has its final mode.

        It gets the mode at creation if nothing prevents that.

        No other user can access it yet, because the root's mode is set last.
        """
        # Without the permission to write, only root could set the attributes afterwards.
        at_once = not entry.xattrs and not entry.mode & (0o7000 | self._umask)
        fd = os.open(name, _NEW_FILE, entry.mode if at_once else 0o600, dir_fd=dir_fd)
        return fd, at_once

    def _attributes(self, fd: int, entry: Entry, *, moded: bool = False) -> None:
        mode = entry.mode
        if self._root and (entry.uid, entry.gid) != self._ids:
            os.fchown(fd, entry.uid, entry.gid)
        if entry.kind == tar.FILE:
            # Otherwise anyone with write access to the store could create a program that runs as another workspace's user
            # or as root.
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
        for key, value in entry.xattrs.items():
            if key == "security.capability":
                continue  # equivalent to a set-uid bit
            _set_xattr(fd, key, value)
        if not moded:
            os.fchmod(fd, mode)
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))

    def _sparse(self, fd: int, entry: Entry) -> None:
        left = entry.size
        numbers = array("Q")
        rest = b""
        while True:
            if left < tar.BLOCK:
                raise ArchiveCorrupted("the archive holds a sparse file without its map")
            rest += bytes(self._stream.small(tar.BLOCK))
            left -= tar.BLOCK
            *lines, rest = rest.split(b"\n")
            if len(rest) > tar.BLOCK or not all(line.isdigit() and len(line) <= _LONGEST_NUMBER for line in lines):
                raise ArchiveCorrupted("the archive holds a sparse file with a damaged map")
            numbers.extend(map(int, lines))
            if numbers and numbers[0] > tar.MAX_SEGMENTS_READ:
                raise ArchiveCorrupted("the archive holds a sparse file with too many holes")
            if numbers and len(numbers) >= 1 + 2 * numbers[0]:
                break
        offsets, lengths = numbers[1 : 2 * numbers[0] + 1 : 2], numbers[2 : 2 * numbers[0] + 1 : 2]
        size = entry.sparse_size or 0
        if sum(lengths) != left or any(map(lambda *segment: sum(segment) > size, offsets, lengths)):
            raise ArchiveCorrupted("the archive holds a sparse file whose map does not fit it")
        os.ftruncate(fd, size)
        for offset, length in zip(offsets, lengths, strict=True):
            os.lseek(fd, offset, os.SEEK_SET)
            while length:
                piece = self._stream.small(min(length, _SMALL))
                _write(fd, piece)
                length -= len(piece)

    def finish(self) -> None:
        """Set the attributes of the directories that are left, the root last: until then nobody else can enter it."""
        self._leave(0)
        if self._root_entry is not None:
            self._directory(0, self._root_entry)

    def _leave(self, depth: int) -> None:
        """Set the attributes of open directories below a depth, deepest first."""
        while self._open and self._open[-1][0] > depth:
            self._directory(*self._open.pop())

    def _directory(self, depth: int, entry: Entry) -> None:
        try:
            self._attributes(self._at.ascend(depth), entry)
        except PermissionError as error:
            if depth or self._root_is_ours:
                raise _translate(error, entry) from error
        except (OSError, OverflowError) as error:
            raise _translate(error, entry) from error


def _umask() -> int:
    """Read the umask without setting it, which would affect all threads. Returns all bits if it is unknown."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        return 0o777


def _write(fd: int, data: bytes | memoryview) -> None:
    written = os.write(fd, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(fd, data)


def _set_xattr(fd: int, key: str, value: bytes) -> None:
    if key == "user.":
        return  # no attribute can have this name: an earlier version archived one whose name began with `=`
    try:
        os.setxattr(fd, key, value)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP) and not key.startswith("user."):
            return  # capabilities and ACLs need privileges or a file system that we may not have
        if error.errno == errno.ENOTSUP:
            raise Transient("the homes' file system keeps no user xattrs, and this home has some") from error
        raise
