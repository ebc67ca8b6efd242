"""Copies a tree of any depth by descriptors, while its owner may be changing it: no link is followed.

Owners, modes, times, hard links, attributes and holes are kept. What vanishes or is replaced meanwhile is left out, as are
sockets and devices. An entry that cannot be copied does not stop the others: `IncompleteCopy` names it afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
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


# There is no room for the copy. Nothing after it would fit either.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_LONGEST_NAMED = 200  # characters of a path in a message


class IncompleteCopy(Exception):
    """Not everything could be copied. The message says what, and why."""

    def __init__(self, message: str, *, changed: bool = False) -> None:
        super().__init__(message)
        self.changed = changed  # because the tree was changed meanwhile: another attempt may succeed


@dataclass(slots=True)
class _Copy:
    report: Callable[[int], None]
    links: FirstNames = field(default_factory=FirstNames)
    parts: list[str] = field(default_factory=list)
    failures: int = 0
    first_failure: str = ""

    def failed(self, name: str, error: OSError | TooManyLinks) -> None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise error
        self.failures += 1
        if not self.first_failure:
            path = "/".join([*self.parts, name] if name else self.parts) or "."
            short = path if len(path) <= _LONGEST_NAMED else f"{path[:_LONGEST_NAMED]}…"
            self.first_failure = f"{short}: {_why(error)}"

    def check(self) -> None:
        if self.failures:
            more = f" ({self.failures} such entries)" if self.failures > 1 else ""
            raise IncompleteCopy(self.first_failure + more)


def _why(error: OSError | TooManyLinks) -> str:
    if isinstance(error, TooManyLinks):
        return str(error)
    if error.errno == errno.EAGAIN:
        return "a program in the workspace holds a lease on it"
    return error.strerror or str(error)


def copy_tree(source: Path, target: Path, report: Callable[[int], None] = lambda size: None) -> None:
    """Copy the tree `source` as `target`. What is there already is replaced, name by name. Raises IncompleteCopy.

    `report` is called with the number of bytes that were copied, and with 0 for each entry.
    """
    os.makedirs(target, 0o700, exist_ok=True)
    copy = _Copy(report)
    _copy_below(source, target, copy)
    copy.check()


def _copy_below(source: Path, target: Path, copy: _Copy) -> None:
    with DirCursor(source, holds=True) as here, _Target(target) as there:
        steps = walk(here, may_vanish=_CHANGED, on_error=copy.failed)
        while (step := _next(steps)) is not None:
            copy.report(0)
            match step.kind:
                case Kind.FILE:
                    _copy_entry(step.name, here.fd, there, copy)
                case Kind.ENTERED:
                    _make_way(step.name, there.fd, for_directory=True)
                    there.enter(step.name, make=True)
                    copy.parts.append(step.name)
                case Kind.LEAVING:
                    try:
                        _set_all(there.fd, os.fstat(here.fd), here.fd, here.mode)
                    except OSError as error:
                        copy.failed("", error)
                case Kind.LEFT:
                    copy.parts.pop()
                    there.leave()
                case Kind.DEEPER:
                    pass
                case _:
                    assert_never(step.kind)


class _Target(DirCursor):
    """Where the copies are made, and a second position there: that of the first name of a hard link."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._first = DirCursor(root, holds=True)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._first.__exit__(kind, exc, tb)
        super().__exit__(kind, exc, tb)

    def link(self, first: str, name: str) -> None:
        """Create `name` here as another name of the file `first`, a path from the root."""
        try:
            os.link(first, name, src_dir_fd=self.root, dst_dir_fd=self.fd, follow_symlinks=False)
        except PermissionError:
            if os.geteuid() == 0:
                raise
            # A directory on the way has its final mode, which denies access to us as its owner.
            *above, last = first.split("/")
            try:
                source = self._first.goto(above)
                os.link(last, name, src_dir_fd=source, dst_dir_fd=self.fd, follow_symlinks=False)
            finally:
                self._first.ascend(0)


def _copy_entry(name: str, here: int, there: _Target, copy: _Copy) -> None:
    try:
        _copy_file(name, here, there, copy)
    except _Vanished:
        pass
    except (OSError, TooManyLinks) as error:
        copy.failed(name, error)


def _next(steps: Iterator[Step]) -> Step | None:
    try:
        return next(steps, None)
    except OSError as error:
        if error.errno in _CHANGED:
            raise IncompleteCopy("its directories were moved meanwhile", changed=True) from error
        raise


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


def _copy_file(name: str, here: int, to: _Target, copy: _Copy) -> None:
    with _unless_changed():
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        link = os.readlink(name, dir_fd=here) if stat.S_ISLNK(found.st_mode) else ""
    if stat.S_ISREG(found.st_mode):
        _copy_regular(name, here, to, copy)
        return
    there = to.fd
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


def _copy_regular(name: str, here: int, to: _Target, copy: _Copy) -> None:
    there = to.fd
    with _unless_changed():
        source = _open(name, here)
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            return
        _make_way(name, there)
        if found.st_nlink > 1:
            # Relative, so that a copy of this copy is within the same limits, wherever it is.
            first = copy.links.of(found, os.fsencode("/".join([*copy.parts, name])))
            if first is not None and _linked(os.fsdecode(first), name, to):
                return
        made = os.open(name, _NEW, 0o600, dir_fd=there)
        try:
            try:
                _copy_content(source, made, found.st_size, copy.report)
            except OSError:
                os.unlink(name, dir_fd=there)  # a part of a file must not be taken for it
                raise
            _set_all(made, found, source, stat.S_IMODE(found.st_mode))
        finally:
            os.close(made)
    finally:
        os.close(source)


def _open(name: str, here: int) -> int:
    try:
        return os.open(name, _READ, dir_fd=here)
    except PermissionError:
        return open_unreadable(name, _READ, 0o400, here)


def _linked(first: str, name: str, to: _Target) -> bool:
    """Whether it is a link to the first copy now. A path may be too long for that: then it is copied again."""
    try:
        to.link(first, name)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EMLINK, errno.EPERM):
            raise
        return False
    return True


def _copy_content(source: int, made: int, size: int, report: Callable[[int], None]) -> None:
    """Copy up to `size` bytes, however much the file grows meanwhile. Holes stay holes."""
    try:
        fcntl.ioctl(made, _FICLONE, source)
    except OSError:  # another file system, or one that cannot share data
        pass
    else:
        report(size)
        return
    for start, end in data_segments(source, size):
        if _copy_segment(source, made, start, end, report) < end:
            break  # it was shortened meanwhile
    os.ftruncate(made, min(size, os.fstat(source).st_size))


def _copy_segment(source: int, made: int, at: int, end: int, report: Callable[[int], None]) -> int:
    """Copy the data from `at` to `end`. Returns where it ended."""
    while at < end:
        data = os.pread(source, min(_CHUNK, end - at), at)
        if not data:
            break
        while data:
            written = os.pwrite(made, data, at)
            data, at = data[written:], at + written
            report(written)
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


def _set_all(made: int, found: os.stat_result, source: int, mode: int) -> None:
    """Give a copy the owner, attributes, mode and times of the original."""
    with _if_allowed():
        os.fchown(made, found.st_uid, found.st_gid)
    refused = None
    for name, value in kept_xattrs(source):
        try:
            os.setxattr(made, name, value)
        except OSError as error:
            if name.startswith("user."):  # ACLs need a file system that we may not have
                refused = OSError(errno.ENOTSUP, f"its extended attribute {name} cannot be kept: {error.strerror}")
    os.fchmod(made, mode)
    os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
    if refused is not None:
        raise refused


@contextlib.contextmanager
def _if_allowed() -> Iterator[None]:
    """Only root can give files to others. Without it, everything here is the user's own."""
    try:
        yield
    except PermissionError:
        if os.geteuid() == 0:
            raise
