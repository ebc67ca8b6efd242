"""Paths inside the home. They are resolved one component at a time from an open directory, so that none can leave it.

Links are resolved manually: a link that stays in the home works, one that leaves it is refused, even under concurrent
changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from .errors import RequestError, conflict, invalid, not_found

_MOST_LINKS = 40  # as in the kernel
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    """A name in an open directory. `name` is empty for the home itself."""

    fd: int
    name: bytes
    shown: str


def split(path: bytes, home: bytes) -> list[bytes]:
    """Split a path into components, which are relative to the home."""
    if b"\0" in path:
        raise invalid("a path cannot hold a NUL byte")
    if path == home or path.startswith(home + b"/"):
        path = path[len(home) :]
    return [part for part in path.split(b"/") if part not in (b"", b".")]


@contextlib.contextmanager
def locate(home: bytes, path: bytes, *, make_parents: bool = False, follow: bool = True) -> Iterator[Place]:
    """Yield the directory that contains `path`, and the last name.

    The name may be absent; with `follow` it is not a link.
    """
    shown = os.fsdecode(path)
    if _is_outside(path, home) and path.strip(b"/"):
        raise _outside(shown)
    stack = [os.open(home, _DIRECTORY & ~os.O_NOFOLLOW)]
    try:
        parts = split(path, home)[::-1]
        links = 0
        while parts:
            part = parts.pop()
            if part == b"..":
                _leave(stack, shown)
                continue
            try:
                found = os.lstat(part, dir_fd=stack[-1])
            except FileNotFoundError:
                if not parts:
                    yield Place(stack[-1], part, shown)
                    return
                if not make_parents or b".." in parts:
                    raise not_found(f"{shown} is not there") from None
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=stack[-1])
                stack.append(os.open(part, _DIRECTORY, dir_fd=stack[-1]))
                continue
            except OSError as error:
                raise refused(error, shown) from error
            if stat.S_ISLNK(found.st_mode) and (parts or follow):
                links += 1
                if links > _MOST_LINKS:
                    raise invalid(f"{shown} goes through too many links")
                target = os.readlink(part, dir_fd=stack[-1])
                if target.startswith(b"/"):
                    if _is_outside(target, home):
                        raise _outside(shown)
                    while len(stack) > 1:
                        os.close(stack.pop())
                parts += split(target, home)[::-1]
                continue
            if not parts:
                yield Place(stack[-1], part, shown)
                return
            try:
                stack.append(os.open(part, _DIRECTORY, dir_fd=stack[-1]))
            except OSError as error:
                if error.errno == errno.ELOOP:  # it just became a link
                    raise conflict(f"{shown} changed while it was resolved; try again") from None
                raise refused(error, shown) from error
        yield Place(stack[-1], b"", shown)
    finally:
        for fd in stack:
            os.close(fd)


def _is_outside(path: bytes, home: bytes) -> bool:
    return path.startswith(b"/") and path != home and not path.startswith(home + b"/")


def _leave(stack: list[int], shown: str) -> None:
    if len(stack) == 1:
        raise _outside(shown)
    os.close(stack.pop())


def _outside(shown: str) -> RequestError:
    return RequestError(403, "PATH_FORBIDDEN", f"{shown} is outside the home")


def refused(error: OSError, shown: str) -> RequestError:
    """Convert an operating system error to a response."""
    text = f"{shown}: {error.strerror}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return not_found(text)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return RequestError(403, "PATH_FORBIDDEN", text)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RequestError(507, "INSUFFICIENT_STORAGE", text)
    if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
        return invalid(text)
    return conflict(text)
