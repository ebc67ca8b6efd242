"""Files of the home: read with ranges, list, write, remove, edit. Writes are atomic."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator
from urllib.parse import quote, unquote_to_bytes

from . import paths
from .errors import RequestError, conflict, invalid, not_found, too_large
from .http1 import Response, as_json
from .timestamps import timestamp

_READ = 256 << 10
_LONGEST_EDIT = 16 << 20
_MOST_ENTRIES = 10_000
_DEEPEST = 32
UPLOAD_PREFIX = ".codehub-upload-"
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})\Z")
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block the helper


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Return (first, end) of a single range, or None if there is no usable one. An empty range is not satisfiable."""
    match = _RANGE.match(text)
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    begin = int(first)
    end = min(size, int(last) + 1) if last else size
    if begin >= size or end <= begin:
        raise RequestError(416, "INVALID_REQUEST", f"the file has {size} bytes")
    return begin, end


class Files:
    def __init__(self, home: str) -> None:
        self.home = os.fsencode(home).rstrip(b"/")

    def is_directory(self, path: bytes) -> bool:
        with paths.locate(self.home, path) as place:
            return stat.S_ISDIR(_stat(place).st_mode)

    def read(self, path: bytes, range_header: str) -> Response:
        with paths.locate(self.home, path) as place:
            found = _stat(place)
            if not stat.S_ISREG(found.st_mode):
                raise invalid(f"{place.shown} is not a file")
            fd = _open(place, os.O_RDONLY)
        found = os.fstat(fd)
        headers = {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "Last-Modified-Ns": str(found.st_mtime_ns),
        }
        try:
            chosen = parse_range(range_header, found.st_size) if range_header else None
        except RequestError:
            os.close(fd)
            raise
        begin, end = chosen or (0, found.st_size)
        headers["Content-Length"] = str(end - begin)
        if chosen:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.st_size}"
        return Response(206 if chosen else 200, headers, _contents(fd, begin, end))

    def list(self, path: bytes, depth: int, after: str = "") -> Response:
        """List entries below a folder, parents before children. `truncated` is set if there are more than fit.

        `next` is then the `after` of the next ones: a name in the form of URLs, because it need not be UTF-8.
        """
        if after and depth != 1:
            raise invalid("`after` is for lists of depth 1")
        if not 1 <= depth <= _DEEPEST:
            raise invalid(f"depth is 1 to {_DEEPEST}")
        with paths.locate(self.home, path) as place:
            top = _open_directory(place)
        items: list[dict[str, object]] = []
        try:
            truncated = _walk(top, "", depth, items, os.fsdecode(unquote_to_bytes(after)))
        finally:
            os.close(top)
        following = {"next": _next(items[-1])} if truncated and depth == 1 else {}
        return as_json({"items": items, "truncated": truncated, **following})

    async def write(self, path: bytes, body: AsyncIterator[bytes], mode: int | None) -> Response:
        with paths.locate(self.home, path, make_parents=True) as place:
            if not place.name:
                raise invalid("the home itself cannot be written; use Content-Type: application/x-tar for a folder")
            try:
                before: os.stat_result | None = os.lstat(place.name, dir_fd=place.fd)
            except FileNotFoundError:
                before = None
            if before is not None and stat.S_ISDIR(before.st_mode):
                raise conflict(f"{place.shown} is a folder")
            temporary = f"{UPLOAD_PREFIX}{secrets.token_hex(8)}"
            size = 0
            try:
                fd, named = _new_file(place.fd, temporary)
                with open(fd, "wb", buffering=0) as file:
                    async for part in body:
                        size += len(part)
                        view = memoryview(part)
                        while view:
                            view = view[file.write(view) :]
                    if mode is None:
                        mode = stat.S_IMODE(before.st_mode) if before is not None else 0o644
                    os.fchmod(fd, mode & 0o777)
                    if not named:
                        os.link(f"/proc/self/fd/{fd}", temporary, dst_dir_fd=place.fd)
                os.rename(temporary, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            except BaseException as error:
                # An interrupted upload leaves the old file, or none.
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=place.fd)
                if isinstance(error, OSError) and not isinstance(error, ConnectionError):
                    raise paths.refused(error, place.shown) from error
                raise
        return as_json({"path": place.shown, "size": size, "created": before is None}, 200 if before else 201)

    def remove(self, path: bytes, recursive: bool) -> None:
        with paths.locate(self.home, path, follow=False) as place:
            if not place.name:
                raise invalid("the home itself cannot be removed")
            found = _stat(place)
            try:
                if not stat.S_ISDIR(found.st_mode):
                    os.unlink(place.name, dir_fd=place.fd)
                elif recursive:
                    _remove_tree(place)
                else:
                    os.rmdir(place.name, dir_fd=place.fd)
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    raise conflict(
                        f"{place.shown} is not empty; add ?recursive=1 to remove its contents too"
                    ) from error
                raise paths.refused(error, place.shown) from error

    def edit(self, path: bytes, old: str, new: str, expected_count: int) -> Response:
        """Replace a text that occurs exactly `expected_count` times. Otherwise change nothing."""
        if not old:
            raise invalid("`old` is empty")
        with paths.locate(self.home, path) as place:
            fd = _open(place, os.O_RDONLY)
            with open(fd, "rb") as file:
                before = os.fstat(fd)
                if not stat.S_ISREG(before.st_mode):
                    raise invalid(f"{place.shown} is not a file")
                if before.st_size > _LONGEST_EDIT:
                    raise too_large(f"{place.shown} is larger than {_LONGEST_EDIT >> 20} MiB")
                content = file.read(_LONGEST_EDIT + 1)
            wanted, replacement = (text.encode("utf-8", "surrogateescape") for text in (old, new))
            count = content.count(wanted)
            if count != expected_count:
                raise conflict(
                    f"`old` occurs {count} times in {place.shown}, not {expected_count}; nothing was changed"
                )
            temporary = f"{UPLOAD_PREFIX}{secrets.token_hex(8)}"
            try:
                out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place.fd)
                with open(out, "wb") as target:
                    target.write(content.replace(wanted, replacement))
                    os.fchmod(out, stat.S_IMODE(before.st_mode) & 0o777)
                now = os.lstat(place.name, dir_fd=place.fd)
                if (now.st_ino, now.st_mtime_ns, now.st_size) != (before.st_ino, before.st_mtime_ns, before.st_size):
                    raise conflict(
                        f"{place.shown} was changed by another program meanwhile; your edit was not applied"
                    )
                os.rename(temporary, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=place.fd)
                if isinstance(error, OSError):
                    raise paths.refused(error, place.shown) from error
                raise
        return as_json({"path": place.shown, "count": count})


def _new_file(folder: int, name: str) -> tuple[int, bool]:
    """Return a new file, and whether it has the name already.

    Without a name, nothing of an upload is left if this process is killed. Some file systems need one.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        return os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=folder), False
    return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), True


def _stat(place: paths.Place) -> os.stat_result:
    try:
        return os.lstat(place.name, dir_fd=place.fd) if place.name else os.fstat(place.fd)
    except OSError as error:
        raise paths.refused(error, place.shown) from error


def _open(place: paths.Place, flags: int) -> int:
    if not place.name:
        raise invalid(f"{place.shown or 'the home'} is a folder")
    try:
        return os.open(place.name, flags | _FILE, dir_fd=place.fd)
    except OSError as error:
        raise paths.refused(error, place.shown) from error


def _open_directory(place: paths.Place) -> int:
    try:
        return os.open(
            place.name or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd
        )
    except NotADirectoryError:
        raise invalid(f"{place.shown} is not a folder") from None
    except FileNotFoundError:
        raise not_found(f"{place.shown} is not there") from None
    except OSError as error:
        raise paths.refused(error, place.shown) from error


async def _contents(fd: int, begin: int, end: int) -> AsyncIterator[bytes]:
    try:
        while begin < end:
            part = os.pread(fd, min(_READ, end - begin), begin)
            if not part:
                # The length was already sent: a file that became shorter must break the response, not shorten it.
                raise ConnectionAbortedError("the file was truncated while it was read")
            begin += len(part)
            yield part
    finally:
        os.close(fd)


def _next(last: dict[str, object]) -> str:
    return str(last.get("encoded_path") or quote(str(last["path"])))


def _walk(fd: int, prefix: str, depth: int, items: list[dict[str, object]], after: str = "") -> bool:
    with os.scandir(fd) as scanned:
        entries = sorted((entry for entry in scanned if entry.name > after), key=lambda entry: entry.name)
    for entry in entries:
        if len(items) >= _MOST_ENTRIES:
            return True
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        items.append(_entry(entry.name, prefix, found, fd))
        if depth > 1 and stat.S_ISDIR(found.st_mode):
            try:
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except OSError:
                continue
            try:
                if _walk(below, f"{prefix}{entry.name}/", depth - 1, items):
                    return True
            finally:
                os.close(below)
    return False


def _entry(name: str, prefix: str, found: os.stat_result, fd: int) -> dict[str, object]:
    kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "symlink"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    entry: dict[str, object] = {
        "path": (prefix + name).encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "type": kind,
        "size": found.st_size,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "modified_at": timestamp(found.st_mtime),
    }
    try:
        (prefix + name).encode()
    except UnicodeEncodeError:  # the path above cannot be sent back
        entry["encoded_path"] = quote((prefix + name).encode("utf-8", "surrogateescape"))
    if kind == "symlink":
        with contextlib.suppress(OSError):
            target = os.readlink(name, dir_fd=fd)
            entry["target"] = target.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return entry


def _remove_tree(place: paths.Place) -> None:
    """Remove depth first, by descriptors, without following links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(place.name, flags, dir_fd=place.fd)
    try:
        with os.scandir(fd) as scanned:
            entries = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in scanned]
        for name, is_directory in entries:
            if is_directory:
                _remove_tree(paths.Place(fd, name, place.shown))
            else:
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(place.name, dir_fd=place.fd)
