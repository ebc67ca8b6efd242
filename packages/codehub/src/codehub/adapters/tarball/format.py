"""The tar format's blocks: one entry ↔ its headers. POSIX pax with GNU's sparse 1.0, which both tar and Python read.

Knows only bytes, neither files nor streams. Names are bytes without a leading slash; the root itself is `.`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from codehub.domain.errors import ArchiveCorrupted

BLOCK = 512
END = bytes(BLOCK * 2)
FILE, LINK, SYMLINK, FIFO, DIR = b"0", b"1", b"2", b"6", b"5"
DEVICES = (b"3", b"4")
PAX, PAX_GLOBAL, GNU_LONGNAME, GNU_LONGLINK = b"x", b"g", b"L", b"K"
# A larger pax header cannot come from a file name or attribute (xattrs are at most 64 KiB each).
MAX_PAX = 8 << 20
# Pieces of data in a sparse file, whose places are kept in memory. A program can create millions in a second.
MAX_SEGMENTS = 500_000
# Earlier versions archived files with more. What was archived can be restored.
MAX_SEGMENTS_READ = 8_000_000

_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")
_USTAR = b"ustar\x0000"
_XATTR = b"SCHILY.xattr."
# A record's key ends with the first `=`, so names that contain one are escaped, as GNU tar does. This record says so: what
# looks like an escape in an archive of an earlier version is part of the name. Other programs ignore comments.
_ESCAPED = (b"comment", b"names of xattrs are escaped")
_NEGATIVE = "the archive's tar stream has a negative size"
_OCTAL_ID = 0o7777777
_OCTAL_SIZE = 0o77777777777


@dataclass(slots=True)
class Entry:
    """An entry of a tar stream.

    `size` is the number of bytes that follow in the stream; a sparse file's real size is in its map.
    """

    name: bytes
    kind: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime_ns: int = 0
    link: bytes = b""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    sparse_size: int | None = None


def padding(size: int) -> int:
    return -size % BLOCK


def encode(entry: Entry) -> bytes:
    """Return the entry's headers: a pax header if the ustar fields cannot hold everything, then the ustar header."""
    records: list[bytes] = []
    name, link = entry.name, entry.link
    seconds, nanos = divmod(entry.mtime_ns, 1_000_000_000)
    if nanos or not 0 <= seconds <= _OCTAL_SIZE:
        sign, magnitude = ("-", -entry.mtime_ns) if entry.mtime_ns < 0 else ("", entry.mtime_ns)
        whole, part = divmod(magnitude, 1_000_000_000)
        records.append(_record(b"mtime", b"%s%d.%09d" % (sign.encode(), whole, part)))
    if len(name) > 100 or len(link) > 100:
        if not (_is_utf8(name) and _is_utf8(link)):
            records.append(_record(b"hdrcharset", b"BINARY"))
        if len(name) > 100:
            records.append(_record(b"path", name))
        if len(link) > 100:
            records.append(_record(b"linkpath", link))
    if entry.uid > _OCTAL_ID:
        records.append(_record(b"uid", b"%d" % entry.uid))
    if entry.gid > _OCTAL_ID:
        records.append(_record(b"gid", b"%d" % entry.gid))
    if entry.size > _OCTAL_SIZE:
        records.append(_record(b"size", b"%d" % entry.size))
    if entry.xattrs and any("=" in key or "%" in key for key in entry.xattrs):
        records.append(_record(*_ESCAPED))
    for key, value in entry.xattrs.items():
        raw = key.encode("utf-8", "surrogateescape")
        records.append(_record(_XATTR + raw.replace(b"%", b"%25").replace(b"=", b"%3D"), value))
    if entry.sparse_size is not None:
        records.append(_record(b"GNU.sparse.major", b"1"))
        records.append(_record(b"GNU.sparse.minor", b"0"))
        records.append(_record(b"GNU.sparse.name", name))
        records.append(_record(b"GNU.sparse.realsize", b"%d" % entry.sparse_size))
    head = b""
    if records:
        body = b"".join(records)
        head = _pax_block(len(body)) + body + bytes(padding(len(body)))
    return head + _block(
        name[:100],
        entry.kind,
        mode=entry.mode,
        uid=min(entry.uid, _OCTAL_ID),
        gid=min(entry.gid, _OCTAL_ID),
        size=min(entry.size, _OCTAL_SIZE),
        mtime=min(max(seconds, 0), _OCTAL_SIZE),
        link=link[:100],
    )


def _record(key: bytes, value: bytes) -> bytes:
    """Return `LENGTH key=value\\n`, where LENGTH includes itself."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _block(
    name: bytes,
    kind: bytes,
    *,
    mode: int = 0o644,
    uid: int = 0,
    gid: int = 0,
    size: int = 0,
    mtime: int = 0,
    link: bytes = b"",
) -> bytes:
    block = _HEADER.pack(
        name,
        b"%07o" % (mode & 0o7777),
        b"%07o" % uid,
        b"%07o" % gid,
        b"%011o" % size,
        b"%011o" % mtime,
        b"        ",
        kind,
        link,
        _USTAR,
        b"",
        b"",
        b"0000000",
        b"0000000",
        b"",
    )
    return b"%s%06o\0 %s" % (block[:148], _sum(block), block[156:])


@lru_cache(64)
def _pax_block(size: int) -> bytes:
    """Return the header of a pax header.

    Cached: most files have one, for fractions of a second, and most have the same size.
    """
    return _block(b"././@PaxHeader", PAX, size=size)


def _sum(block: bytes) -> int:
    """Return the sum of all bytes.

    The low half of an Adler checksum is that sum plus one for as few bytes as cannot reach its modulus. It is five times as
    fast as `sum`, which took a fifth of the time to build a header.
    """
    return (zlib.adler32(block[:256]) & 0xFFFF) + (zlib.adler32(block[256:]) & 0xFFFF) - 2


def decode(block: bytes) -> Entry | None:
    """Decode one header block, or return None for an empty one. Raises ArchiveCorrupted if its checksum is wrong."""
    if block.count(0) == BLOCK:
        return None
    (name, mode, uid, gid, size, mtime, checksum, kind, link, magic, _, _, _, _, prefix) = _HEADER.unpack(block)
    if _sum(block) - sum(checksum) + 8 * 32 != _number(checksum):
        raise ArchiveCorrupted("the archive's tar stream has a damaged header")
    name, link = name.partition(b"\0")[0], link.partition(b"\0")[0]
    if magic[:6] == b"ustar\0" and (front := prefix.partition(b"\0")[0]):
        name = front + b"/" + name
    if (length := _number(size)) < 0:
        raise ArchiveCorrupted(_NEGATIVE)
    return Entry(
        name=name,
        kind=FILE if kind in (b"\0", b"7") else kind,
        mode=_number(mode) & 0o7777,
        uid=_number(uid),
        gid=_number(gid),
        size=length,
        mtime_ns=_number(mtime) * 1_000_000_000,
        link=link,
    )


def _number(raw: bytes) -> int:
    if raw[0] & 0x80:  # GNU's base 256
        value = int.from_bytes(raw, "big", signed=True) if raw[0] == 0xFF else int.from_bytes(raw[1:], "big")
    else:
        text = raw.strip(b" \0")
        try:
            value = int(text, 8) if text else 0
        except ValueError as error:
            raise ArchiveCorrupted("the archive's tar stream has an invalid number") from error
    return value


def records(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a pax header."""
    at = 0
    while at < len(body):
        space = body.find(b" ", at, at + 12)
        equals = body.find(b"=", space)
        if space < 0 or equals < 0 or not body[at:space].isdigit():
            raise ArchiveCorrupted("the archive's tar stream has a damaged pax header")
        end = at + int(body[at:space])
        if end > len(body) or end <= equals or body[end - 1 : end] != b"\n":
            raise ArchiveCorrupted("the archive's tar stream has a damaged pax record")
        yield body[space + 1 : equals], body[equals + 1 : end - 1]
        at = end


def apply(entry: Entry, pax: Mapping[bytes, bytes]) -> None:
    """Override the ustar fields with pax records."""
    xattrs: dict[str, bytes] = {}
    escaped = pax.get(_ESCAPED[0]) == _ESCAPED[1]
    try:
        for key, value in pax.items():
            if key == b"path":
                entry.name = value
            elif key == b"linkpath":
                entry.link = value
            elif key == b"size":
                entry.size = int(value)
            elif key == b"uid":
                entry.uid = int(value)
            elif key == b"gid":
                entry.gid = int(value)
            elif key == b"mtime":
                entry.mtime_ns = _nanoseconds(value)
            elif key.startswith(_XATTR):
                raw = key[len(_XATTR) :]
                raw = raw.replace(b"%3D", b"=").replace(b"%25", b"%") if escaped else raw
                xattrs[raw.decode("utf-8", "surrogateescape")] = value
        if pax.get(b"GNU.sparse.major") == b"1":
            entry.sparse_size = int(pax[b"GNU.sparse.realsize"])
            entry.name = pax[b"GNU.sparse.name"]
        elif any(key.startswith(b"GNU.sparse") for key in pax):
            raise ArchiveCorrupted("the archive holds a sparse file in a form older than GNU's 1.0")
    except (ValueError, KeyError) as error:
        raise ArchiveCorrupted("the archive's tar stream has an invalid pax record") from error
    if entry.size < 0 or (entry.sparse_size or 0) < 0:
        raise ArchiveCorrupted(_NEGATIVE)
    entry.xattrs = xattrs


def _nanoseconds(value: bytes) -> int:
    whole, _, part = value.partition(b".")
    nanos = int(part[:9].ljust(9, b"0")) if part else 0
    seconds = int(whole or b"0")
    return seconds * 1_000_000_000 + (-nanos if whole.startswith(b"-") else nanos)
