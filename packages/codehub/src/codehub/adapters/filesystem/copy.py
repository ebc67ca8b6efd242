"""Copies a tree of any depth by descriptors, while its owner may be changing it: no link is followed.

Owners, modes, times, hard links, attributes and holes are kept. What vanishes or is replaced meanwhile is left out, as are
sockets and devices.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from codehub.adapters.filesystem.dir_cursor import DirCursor, open_unreadable
from codehub.adapters.filesystem.hard_links import FirstNames, TooManyLinks
from codehub.adapters.filesystem.holes import data_segments
from codehub.adapters.filesystem.walk import Kind, Step, walk
from codehub.adapters.filesystem.xattrs import kept_xattrs

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20
_FICLONE: Final = 0x40049409
# The errors of an entry that is no longer what it was when it was listed.
_CHANGED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE})


@dataclass(slots=True)
class _Copy:
    target: Path
    links: FirstNames = field(default_factory=FirstNames)
    parts: list[str] = field(default_factory=list)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the tree `source` as `target`. What is there already is replaced, name by name. Raises IncompleteCopy."""
    os.makedirs(target, 0o700, exist_ok=True)
    copy = _Copy(target)
    try:
        _copy_below(source, target, copy)
    except TooManyLinks as error:
        raise IncompleteCopy(str(error)) from error


def _copy_below(source: Path, target: Path, copy: _Copy) -> None:
    with DirCursor(source) as here, DirCursor(target) as there:
        steps = walk(here, may_vanish=_CHANGED)
        while (step := _next(steps)) is not None:
            match step.kind:
                case Kind.FILE:
                    with contextlib.suppress(_Vanished):
                        _copy_file(step.name, here.fd, there.fd, copy)
                case Kind.ENTERED:
                    _make_way(step.name, there.fd, for_directory=True)
                    there.enter(step.name, make=True)
                    copy.parts.append(step.name)
                case Kind.LEAVING:
                    _set_all(there.fd, os.fstat(here.fd), here.fd)
                case Kind.LEFT:
                    copy.parts.pop()
                    there.leave()
                case Kind.DEEPER:
                    pass
                case _:
                    assert_never(step.kind)


def _next(steps: Iterator[Step]) -> Step | None:
    try:
        return next(steps, None)
    except OSError as error:
        if error.errno in _CHANGED:
            raise IncompleteCopy("its directories were moved meanwhile") from error
        if error.errno == errno.ENAMETOOLONG:
            raise IncompleteCopy("its directories are nested too deep") from error
        raise


def sync_disk(directory: Path) -> None:
    """Wait until everything on the file system of this directory is on its disk."""
    subprocess.run(["sync", "-f", "--", str(directory)], env={"PATH": os.defpath}, check=True)


class IncompleteCopy(Exception):
    """The tree cannot be copied completely, which its owner alone can cause. The message says why."""


class _Vanished(Exception):
    pass


@contextlib.contextmanager
def _unless_changed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _CHANGED:
            raise _Vanished from error
        raise


def _copy_file(name: str, here: int, there: int, copy: _Copy) -> None:
    with _unless_changed():
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        link = os.readlink(name, dir_fd=here) if stat.S_ISLNK(found.st_mode) else ""
    if stat.S_ISREG(found.st_mode):
        _copy_regular(name, here, there, copy)
        return
    if not stat.S_ISLNK(found.st_mode) and not stat.S_ISFIFO(found.st_mode):
        return
    _make_way(name, there)
    if link:
        os.symlink(link, name, dir_fd=there)
    else:
        os.mkfifo(name, 0o600, dir_fd=there)
    with _if_allowed():
        os.chown(name, found.st_uid, found.st_gid, dir_fd=there, follow_symlinks=False)
    if not link:
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=there)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=there, follow_symlinks=False)


def _copy_regular(name: str, here: int, there: int, copy: _Copy) -> None:
    with _unless_changed():
        source = _open(name, here)
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            return
        _make_way(name, there)
        if found.st_nlink > 1:
            first = copy.links.of(found, os.fsencode(copy.target.joinpath(*copy.parts, name)))
            if first is not None and _linked(first, name, there):
                return
        made = os.open(name, _NEW, 0o600, dir_fd=there)
        try:
            _copy_content(source, made, found.st_size)
            _set_all(made, found, source)
        finally:
            os.close(made)
    finally:
        os.close(source)


def _open(name: str, here: int) -> int:
    try:
        return os.open(name, _READ, dir_fd=here)
    except PermissionError:
        return open_unreadable(name, _READ, 0o400, here)


def _linked(first: bytes, name: str, there: int) -> bool:
    """Whether it is a link to the first copy now. A path may be too long for that: then it is copied again."""
    try:
        os.link(first, os.fsencode(name), dst_dir_fd=there, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EMLINK, errno.EPERM):
            raise
        return False
    return True


def _copy_content(source: int, made: int, size: int) -> None:
    """Copy up to `size` bytes, however much the file grows meanwhile. Holes stay holes."""
    try:
        fcntl.ioctl(made, _FICLONE, source)
    except OSError:  # another file system, or one that cannot share data
        pass
    else:
        return
    for start, end in data_segments(source, size):
        if _copy_segment(source, made, start, end) < end:
            break  # it was shortened meanwhile
    os.ftruncate(made, min(size, os.fstat(source).st_size))


def _copy_segment(source: int, made: int, at: int, end: int) -> int:
    """Copy the data from `at` to `end`. Returns where it ended."""
    while at < end:
        data = os.pread(source, min(_CHUNK, end - at), at)
        if not data:
            break
        while data:
            written = os.pwrite(made, data, at)
            data, at = data[written:], at + written
    return at


def _make_way(name: str, there: int, *, for_directory: bool = False) -> None:
    """Remove what an earlier attempt left in the place of this name."""
    try:
        mode = os.stat(name, dir_fd=there, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        if for_directory:
            return
        raise FileExistsError(errno.EEXIST, "there is a directory in place of a file", name)
    os.unlink(name, dir_fd=there)


def _set_all(made: int, found: os.stat_result, source: int) -> None:
    """Give a copy the owner, attributes, mode and times of the original."""
    with _if_allowed():
        os.fchown(made, found.st_uid, found.st_gid)
    for name, value in kept_xattrs(source):
        with contextlib.suppress(OSError):  # not supported there
            os.setxattr(made, name, value)
    os.fchmod(made, stat.S_IMODE(found.st_mode))
    os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))


@contextlib.contextmanager
def _if_allowed() -> Iterator[None]:
    """Only root can give files to others. Without it, everything here is the user's own."""
    try:
        yield
    except PermissionError:
        if os.geteuid() == 0:
            raise
