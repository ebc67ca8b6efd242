"""Project quotas of XFS and ext4: all files below a directory count for one project, which has a limit. Linux only.

Knows the two interfaces of the kernel: the project of a file (FS_IOC_FSSETXATTR) and a project's limits (quotactl_fd, from
Linux 5.14 on). Where either is missing or not permitted, nothing is enforced, and callers need no other branch.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codehub.adapters.filesystem.dir_cursor import DirCursor, look_into
from codehub.adapters.filesystem.walk import Kind, walk

_LIBC = ctypes.CDLL(None, use_errno=True)
_QUOTACTL_FD: Final = 443  # the same number on every architecture
_PROJECT: Final = 2  # PRJQUOTA
_GET: Final = 0x800007  # Q_GETQUOTA
_SET: Final = 0x800008  # Q_SETQUOTA
_STATE: Final = 0x5805  # Q_XGETQSTAT
_ENFORCED: Final = 1 << 5  # FS_QUOTA_PDQ_ENFD
_LIMITS: Final = 1  # QIF_BLIMITS
_DQBLK = struct.Struct("=8QI4x")  # block limits in KiB, bytes in use, inode limits, inodes in use, times, valid
_QSTAT_BYTES: Final = 128  # more than struct fs_quota_stat has
_FSXATTR = struct.Struct("=5I8x")
_FSGETXATTR, _FSSETXATTR, _INHERIT = 0x801C581F, 0x401C5820, 0x200
# Ours: an administrator's own projects have small numbers.
_FIRST, _MOST = 0x40000000, 0x3FFFFFFF


@dataclass(frozen=True, slots=True)
class Usage:
    bytes: int
    inodes: int


def is_enforced(path: Path) -> bool:
    """Return whether the file system at `path` enforces project quotas, and this process may set them."""
    state = ctypes.create_string_buffer(_QSTAT_BYTES)
    try:
        with _opened(path) as fd:
            _quotactl(fd, _STATE, 0, state)
            flags = struct.unpack_from("=bxH", state)[1]
            _get(fd, _FIRST)  # permitted?
            return bool(flags & _ENFORCED)
    except OSError:
        return False


def project_of(path: Path) -> int:
    """Return which of our projects a file or directory belongs to; 0 if it belongs to none of ours."""
    with _opened(path) as fd:
        project = _FSXATTR.unpack(fcntl.ioctl(fd, _FSGETXATTR, bytes(_FSXATTR.size)))[3]
        return project if project >= _FIRST else 0


def usage_of(path: Path, project: int) -> Usage:
    with _opened(path) as fd:
        return _get(fd, project)


def set_limit(path: Path, project: int, limit: int | None) -> None:
    """Limit a project's bytes; None is no limit. A limit below the present use refuses only what would be written next."""
    kib = 0 if limit is None else max(1, limit >> 10)
    block = ctypes.create_string_buffer(_DQBLK.pack(kib, 0, 0, 0, 0, 0, 0, 0, _LIMITS), _DQBLK.size)
    with _opened(path) as fd:
        _quotactl(fd, _SET, project, block)


def claim_project(file: Path, wanted: int) -> int:
    """Put a file into a project that no other file belongs to. The caller holds a lock against others who do the same.

    The kernel's own count is the record: while a file belongs to a project, its number is not given to another home.
    """
    for number in range(wanted, wanted + 1000):
        project = _FIRST + number % _MOST
        if usage_of(file, project).inodes == 0:
            set_limit(file, project, None)
            _assign(file, project)
            return project
    raise OSError(errno.EAGAIN, "no project is free")


def adopt_tree(root: Path, project: int) -> None:
    """Put everything below a directory at rest into a project, and the directory itself last: then it is complete."""
    with DirCursor(root, open_dir=look_into) as at:
        for step in walk(at):
            if step.kind is Kind.FILE:
                _assign_file(step.name, at.fd, project)
            elif step.kind is Kind.ENTERED:
                _set_project(at.fd, project)
    _assign(root, project)


def _assign_file(name: str, fd: int, project: int) -> None:
    if not stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
        return  # links, sockets and pipes cannot be opened for this, and they take no space
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            _set_project(file, project)
    finally:
        os.close(file)


def _assign(path: Path, project: int) -> None:
    with _opened(path) as fd:
        _set_project(fd, project)


def _set_project(fd: int, project: int) -> None:
    flags, extent, extents, _, cow = _FSXATTR.unpack(fcntl.ioctl(fd, _FSGETXATTR, bytes(_FSXATTR.size)))
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        flags |= _INHERIT
    fcntl.ioctl(fd, _FSSETXATTR, _FSXATTR.pack(flags, extent, extents, project, cow))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a file or directory, never through a link."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _get(fd: int, project: int) -> Usage:
    block = ctypes.create_string_buffer(_DQBLK.size)
    try:
        _quotactl(fd, _GET, project, block)
    except FileNotFoundError:  # XFS: nothing is recorded for it
        return Usage(0, 0)
    _, _, used, _, _, inodes, _, _, _ = _DQBLK.unpack(block.raw)
    return Usage(used, inodes)


def _quotactl(fd: int, command: int, project: int, block: ctypes.Array[ctypes.c_char]) -> None:
    done = _LIBC.syscall(
        ctypes.c_long(_QUOTACTL_FD),
        ctypes.c_uint(fd),
        ctypes.c_uint((command << 8) | _PROJECT),
        ctypes.c_uint(project),
        block,
    )
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
