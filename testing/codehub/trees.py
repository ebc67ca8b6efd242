"""File trees with everything that an archive must keep, and an exact comparison of two trees."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from pathlib import Path

Fingerprint = dict[bytes, tuple[object, ...]]


def make_rich_tree(root: Path, *, owner: tuple[int, int] | None = None, big: int = 3_000_000) -> None:
    """Create contents, modes, owners, times, links, xattrs, holes, empty directories, long and non-UTF-8 names."""
    rng = random.Random(7)
    base = os.fsencode(root)
    (root / "src/deep/er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "empty").chmod(0o2750)
    (root / "src/main.py").write_bytes(b"print('hello')\n" * 300)
    (root / "src/deep/er/random.bin").write_bytes(rng.randbytes(big))
    (root / "nothing").touch()
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "private").write_bytes(b"secret")
    (root / "private").chmod(0o400)
    os.symlink("src/main.py", root / "link")
    os.symlink("/etc/passwd", root / "absolute-link")
    os.symlink("../../../outside", root / "outward-link")
    os.symlink(b"to-\xff-nowhere", base + b"/dangling-\xfe")
    os.link(root / "src/main.py", root / "hard")
    os.mkfifo(root / "pipe", 0o620)
    (root / ("n" * 255)).write_bytes(b"long name")
    os.makedirs(base + b"/" + b"/".join([b"d" * 100] * 5))
    Path(os.fsdecode(base + b"/caf\xe9-\xff\xfe.txt")).write_bytes(b"not UTF-8")
    (root / "日本語.txt").write_bytes(b"UTF-8")
    (root / "line\nbreak").write_bytes(b"odd")
    with open(root / "sparse", "wb") as sparse:
        sparse.truncate(8 << 20)
        sparse.seek(4 << 20)
        sparse.write(b"in the middle")
    with open(root / "hole", "wb") as hole:
        hole.truncate(5 << 20)
    os.setxattr(root / "run.sh", "user.note", b"kept \x00\xff")
    os.setxattr(root / "src", "user.empty", b"")
    if owner is not None:
        for directory, names, files in os.walk(base):
            for name in [*names, *files]:
                os.chown(os.path.join(directory, name), *owner, follow_symlinks=False)
        (root / "run.sh").chmod(0o755)
        (root / "empty").chmod(0o2750)
    moment = 1_600_000_000_123_456_789
    for number, (directory, _, files) in enumerate(sorted(os.walk(base), reverse=True)):
        for name in files:
            os.utime(os.path.join(directory, name), ns=(moment, moment + number), follow_symlinks=False)
        os.utime(directory, ns=(moment, moment - number * 1_000_000_007))


def fingerprint(root: Path, *, exact: bool = True) -> Fingerprint:
    """Return everything that must survive, by path. `exact=False`: without holes, user xattrs and fractions of seconds."""
    base = os.fsencode(root)
    links: dict[tuple[int, int], bytes] = {}
    seen: Fingerprint = {}
    for directory, names, files in os.walk(base):
        names.sort()
        for name in [b"", *names, *sorted(files)]:
            path = os.path.join(directory, name) if name else directory
            relative = os.path.relpath(path, base)
            if relative in seen:
                continue
            found = os.lstat(path)
            first = links.setdefault((found.st_dev, found.st_ino), relative)
            mtime = found.st_mtime_ns if exact else found.st_mtime_ns // 1_000_000_000
            content: object = None
            xattrs: tuple[object, ...] = ()
            holes: object = None
            if stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                holes = exact and found.st_size > 1 << 20 and found.st_blocks * 512 < found.st_size // 2
            elif stat.S_ISLNK(found.st_mode):
                content = os.readlink(path)
            if exact and not stat.S_ISLNK(found.st_mode):
                xattrs = tuple((key, os.getxattr(path, key)) for key in sorted(os.listxattr(path)))
            seen[relative] = (found.st_mode, found.st_uid, found.st_gid, mtime, content, first, holes, xattrs)
    return seen


def differences(one: Fingerprint, other: Fingerprint) -> list[str]:
    return [
        f"{key!r}: {one.get(key)} != {other.get(key)}" for key in {*one, *other} if one.get(key) != other.get(key)
    ]
