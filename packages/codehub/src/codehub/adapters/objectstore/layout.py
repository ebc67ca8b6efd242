"""The layout of the store, and the content of an archive's meta. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codehub.domain.errors import ArchiveCorrupted, Invalid
from codehub.ports.archives import ArchivePlace

DATA_NAME = "home.tar.zst"
META_SUFFIX = ".meta"
OWNER_KEY = "codehub-installation"
ID_KEY = "codehub-store"
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
_KEY = re.compile(rf"({_PART})/({_PART})/home\.tar\.zst")
_PLACE = re.compile(rf"({_PART})/({_PART})(?:/.*)?")


def archive_key(workspace_id: str, op_id: str) -> str:
    key = f"{workspace_id}/{op_id}/{DATA_NAME}"
    if not _KEY.fullmatch(key):
        raise Invalid(f"not a workspace id and an operation id: {workspace_id!r}, {op_id!r}")
    return key


def parse_key(key: str) -> ArchivePlace:
    """Return the place of an archive key. Raises Invalid if it is not one."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise Invalid(f"not an archive key: {key!r}")
    return ArchivePlace(workspace_id=match[1], op_id=match[2], archive_key=key)


def place_of(path: str) -> ArchivePlace | None:
    """Return the place that a path in the store belongs to, or None if it is not an archive's."""
    match = _PLACE.fullmatch(path)
    if match is None:
        return None
    return ArchivePlace(match[1], match[2], f"{match[1]}/{match[2]}/{DATA_NAME}")


@dataclass(frozen=True, slots=True)
class Meta:
    """The commit marker's content, which describes the data beside it."""

    sha256: str
    size: int
    tar_bytes: int
    entries: int

    def render(self) -> bytes:
        return (
            f"sha256:{self.sha256}\nbytes:{self.size}\ntar_bytes:{self.tar_bytes}\nentries:{self.entries}\n"
        ).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Meta:
        try:
            fields = dict(line.split(":", 1) for line in raw.decode("ascii").splitlines() if line)
            meta = cls(fields["sha256"], int(fields["bytes"]), int(fields["tar_bytes"]), int(fields["entries"]))
        except (ValueError, KeyError) as error:
            raise ArchiveCorrupted("the archive's meta is damaged: its digest and sizes cannot be read") from error
        if not re.fullmatch("[0-9a-f]{64}", meta.sha256) or min(meta.size, meta.tar_bytes, meta.entries) < 0:
            raise ArchiveCorrupted("the archive's meta is damaged: its digest or a size is invalid")
        return meta
