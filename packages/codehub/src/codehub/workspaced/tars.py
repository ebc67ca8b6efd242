"""Packs and unpacks folders as tar in a separate process: `python tars.py pack|context FD` or `unpack FD FD`, data on
stdin/stdout.

The folder is an open descriptor, so its path cannot change meanwhile. Unpacking uses a staging folder beside the target's
content, which is moved into place when `COMPLETE` can be read from the second descriptor: an interrupted upload leaves
nothing. The end of the data says nothing, because the parent may have been killed. Members that
point outside the folder are refused, devices are left out. `codehub ws cp` unpacks what a workspace sends in the same way.
`context` packs what an image is built from: without what .dockerignore names.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import sys
import tarfile
from typing import IO, Callable, Literal, Protocol

if not __package__:  # started by file
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    __import__(__package__)

from . import dockerignore

COMPLETE = b"1"
_PREFIX = ".codehub-upload-"
_MOST_MEMBERS = 1_000_000
_DEEPEST = 500  # folders are made and removed recursively
_LONGEST_IGNORE = 256 << 10
# A path and a link have at most 4 KiB. `tarfile` reads such a header as a whole, and copies global ones into every member.
_LONGEST_HEADER = 64 << 10
_MOST_GLOBAL = 100
_HEADERS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
)  # fmt: skip


def pack(left_out: Callable[[str, bool], bool] = lambda path, is_folder: False) -> None:
    def packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if left_out(member.name, member.isdir()) else _packed(member)

    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 18) as archive:
        for name in sorted(os.listdir(".")):
            _add(archive, name, packed)
    sys.stdout.buffer.flush()


def _add(archive: tarfile.TarFile, path: str, packed: Callable[[tarfile.TarInfo], tarfile.TarInfo | None]) -> None:
    """Add a file or a folder with its content. Programs go on meanwhile: what is gone by now is left out."""
    waiting = [path]  # not recursive: a path of 4 KiB has more folders than Python has frames
    while waiting:
        path = waiting.pop()
        try:
            # None if tar has no such kind, as for sockets.
            found = archive.gettarinfo(path)
            member = packed(found) if found is not None else None
            if member is None:
                continue
            if member.isreg():
                with open(path, "rb") as file:
                    archive.addfile(member, _Padded(file))
                continue
            below = sorted(os.listdir(path), reverse=True) if member.isdir() else []
        except FileNotFoundError:
            continue
        archive.addfile(member)
        waiting += [os.path.join(path, name) for name in below]


class _Padded:
    """A file that is read to the length that its header has promised, though it became shorter, as GNU tar does."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = 0, /) -> bytes:
        return self._file.read(size).ljust(size, b"\0")


def pack_context() -> None:
    try:
        with open(".dockerignore", encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_IGNORE)
    except OSError:
        text = ""
    ignored = dockerignore.ignores(text)
    # CodeHub sends a .dockerignore of its own to the engine.
    pack(lambda path, is_folder: path == ".dockerignore" or ignored(path, is_folder))


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.isdev() or os.path.basename(member.name).startswith(_PREFIX):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def check_depth(name: str) -> None:
    if name.count("/") > _DEEPEST:
        raise ValueError(f"{name[:80]!r}… is more than {_DEEPEST} folders deep")


def inside(name: str) -> bool:
    """Return whether a member's name stays in the folder."""
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def link_inside(member: tarfile.TarInfo) -> bool:
    """Return whether a link stays inside: a hard link names another member; a symbolic link is relative to itself.

    A symbolic link has `..` at its beginning only: after a name, it is above whatever that name leads to.
    """
    if member.islnk():
        return inside(member.linkname)
    if member.linkname.startswith("/") or "\0" in member.linkname:
        return False
    depth, below = len(_parts(os.path.dirname(member.name))), False
    for part in _parts(member.linkname):
        if part != "..":
            below = True
        elif below or depth == 0:
            return False
        else:
            depth -= 1
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


class _Member(tarfile.TarInfo):
    """A member whose headers are bounded."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _HEADERS and (self.size > _LONGEST_HEADER or len(archive.pax_headers) > _MOST_GLOBAL):
            raise ValueError("it has headers that are too long")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def unpack(
    source: Source,
    folder: str,
    mode: Literal["r|", "r|*"],
    outward: list[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Unpack into a folder and return how many entries there were.

    Links that lead out of the folder are refused, or left out and added to `outward`. `check` is called before anything is
    moved into place.
    """
    staging = os.path.join(folder, _PREFIX + secrets.token_hex(8))
    os.mkdir(staging, 0o700)
    try:
        count = _extract(source, staging, mode, outward)
        # The archive may end before the upload does: the rest must have arrived too.
        while source.read(1 << 18):
            pass
        check()
        _merge(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return count


def _extract(source: Source, staging: str, mode: Literal["r|", "r|*"], outward: list[str] | None) -> int:
    count = 0
    with tarfile.open(fileobj=source, mode=mode, bufsize=1 << 18, tarinfo=_Member) as archive:  # type: ignore[call-overload]
        # Newer Pythons would refuse some valid members. The checks below decide.
        if hasattr(tarfile, "fully_trusted_filter"):
            archive.extraction_filter = tarfile.fully_trusted_filter
        for member in archive:
            archive.members.clear()  # it would keep all of them
            count += 1
            if count > _MOST_MEMBERS:
                raise ValueError(f"more than {_MOST_MEMBERS} entries")
            if not inside(member.name):
                raise ValueError(f"{member.name!r} leads out of the folder")
            check_depth(member.name)
            if (member.issym() or member.islnk()) and not link_inside(member):
                if outward is None:
                    raise ValueError(f"the link {member.name!r} leads out of the folder")
                outward.append(member.name)
                continue
            if member.isdev():
                continue
            _make_way(staging, member)
            # Never another user's file, never setuid. Folders stay writable, so that their content can follow.
            member.mode = (member.mode & 0o777) | (0o700 if member.isdir() else 0o600)
            member.uid, member.gid = os.getuid(), os.getgid()
            member.uname = member.gname = ""
            archive.extract(member, staging)
    return count


def _make_way(staging: str, member: tarfile.TarInfo) -> None:
    """Check what is there already under the names of a member, so that nothing is written or linked through a link."""
    if _through_link(staging, member.name):
        raise ValueError(f"{member.name!r} goes through a link")
    if member.islnk():
        target = os.path.join(staging, member.linkname)
        # A second name of a symbolic link would be relative to another folder.
        if _through_link(staging, member.linkname) or os.path.islink(target) or not os.path.isfile(target):
            raise ValueError(f"the link {member.name!r} names no file of this archive")
    there = os.path.join(staging, member.name)
    if os.path.islink(there) or os.path.isfile(there):
        os.unlink(there)


def _through_link(staging: str, name: str) -> bool:
    at = staging
    for part in name.split("/")[:-1]:
        at = os.path.join(at, part)
        if os.path.islink(at):
            return True
    return False


def _merge(source: str, target: str) -> None:
    """Move everything into place. Existing folders are merged, files replaced."""
    for name in os.listdir(source):
        old, new = os.path.join(source, name), os.path.join(target, name)
        try:
            there = os.lstat(new)
        except FileNotFoundError:
            os.rename(old, new)
            continue
        moved = os.lstat(old)
        if stat.S_ISDIR(there.st_mode) and stat.S_ISDIR(moved.st_mode):
            _merge(old, new)
        elif stat.S_ISDIR(there.st_mode):
            raise ValueError(f"{os.path.normpath(new)} is a folder")
        else:
            if stat.S_ISDIR(moved.st_mode):
                os.unlink(new)
            os.rename(old, new)


def _ended(number: int, frame: object) -> None:
    raise ValueError("the upload was cut off")


def _check_complete(fd: int) -> None:
    if os.read(fd, 1) != COMPLETE:
        raise ValueError("the upload was cut off")


def main() -> int:
    signal.signal(signal.SIGTERM, _ended)
    os.fchdir(int(sys.argv[2]))
    try:
        if sys.argv[1] == "pack":
            pack()
        elif sys.argv[1] == "context":
            pack_context()
        else:
            complete = int(sys.argv[3])
            sys.stdout.write(str(unpack(sys.stdin.buffer, ".", "r|*", check=lambda: _check_complete(complete))))
    except (tarfile.TarError, ValueError, EOFError) as error:
        sys.stderr.write(f"not unpacked: {error}")
        return 2
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'the folder'}: {error.strerror}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
