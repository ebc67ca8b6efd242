"""One immutable part of the index on disk: some files, their stamps when they were read, and postings by trigram.

A segment is written under a temporary name and then renamed; a checksum covers every byte. A reader sees either all of
it or detects that it is damaged. Does not know which segments make up an index.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sari.index.trigram_query import TrigramQuery
from sari.index.trigrams import COUNT, of_word

MAGIC = b"sari-seg"
VERSION = 1
# Local ids are 16 bit.
MAX_FILES = 60_000

# Kinds of files. TEXT contains no NUL. BINARY never matches. ALONE has a NUL further on: what ripgrep finds depends on how
# full its buffer was when it reached the file, so each such file gets its own ripgrep process. The LARGE kinds are not
# indexed, only searched.
TEXT, BINARY, ALONE, LARGE, LARGE_ALONE = 0, 1, 2, 3, 4


class Damaged(Exception):
    """Raised when the file is not a complete segment of this version."""

    def __init__(self, message: str, segment: Segment | None = None) -> None:
        super().__init__(message)
        self.segment = segment


@dataclass(frozen=True, slots=True)
class Stamp:
    """Distinguishes one state of a file from another."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int


# No file has this stamp: an entry with it is read again at the next comparison.
NEVER = Stamp(-1, -1, -1, -1)


def stamp_of(stat: os.stat_result) -> Stamp:
    return Stamp(stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino & 0x7FFF_FFFF_FFFF_FFFF)


# The most words kept before they are converted to trigrams: about 40 MB, whatever the files contain.
_MOST_WORDS = 100_000
# The words of a blob (base64, hashes) rarely occur again, so they are not worth keeping.
_BLOB_WORDS = 20_000


class Writer:
    """Collects files, then writes them as one segment.

    Files are collected by word, and words are converted to trigrams at the end. Source code repeats its words, so most
    of the work is done once per word instead of once per file.
    """

    def __init__(self) -> None:
        self._paths: list[bytes] = []
        self._stamps: array[int] = array("q")
        self._kinds = bytearray()
        self._by_word: defaultdict[bytes, list[int]] = defaultdict(list)
        self._postings: defaultdict[int, array[int]] = defaultdict(lambda: array("H"))

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: bytes, stamp: Stamp, kind: int, words: set[bytes]) -> None:
        local = len(self._paths)
        self._paths.append(path)
        self._stamps.extend((stamp.mtime_ns, stamp.ctime_ns, stamp.size, stamp.inode))
        self._kinds.append(kind)
        if len(words) > _BLOB_WORDS:
            for trigram in {trigram for word in words for trigram in of_word(word)}:
                self._postings[trigram].append(local)
            return
        by_word = self._by_word
        for word in words:
            by_word[word].append(local)
        if len(by_word) > _MOST_WORDS:
            self._turn()

    def _turn(self) -> None:
        """Convert words to trigrams. The order of a posting does not matter, but a file must be in it only once."""
        by_trigram: defaultdict[int, list[list[int]]] = defaultdict(list)
        for word, files in self._by_word.items():
            for trigram in set(of_word(word)):
                by_trigram[trigram].append(files)
        for trigram, groups in by_trigram.items():
            self._postings[trigram].extend(groups[0] if len(groups) == 1 else set().union(*groups))
        self._by_word.clear()

    def write(self, target: Path) -> None:
        self._turn()
        starts = array("I", bytes(4 * (COUNT + 1)))
        at = 0
        pieces: list[bytes] = []
        for trigram in range(COUNT):
            starts[trigram] = at
            found = self._postings.get(trigram)
            if found is not None:
                at += len(found)
                pieces.append(found.tobytes())
        starts[COUNT] = at
        body = (
            b"\0".join(self._paths),
            self._stamps.tobytes(),
            bytes(self._kinds),
            starts.tobytes(),
            b"".join(pieces),
        )
        crc = 0
        for part in body:
            crc = zlib.crc32(part, crc)
        head = json.dumps(
            {
                "version": VERSION,
                "byteorder": sys.byteorder,
                "files": len(self._paths),
                "parts": [len(part) for part in body],
                "crc": crc,
            }
        ).encode()
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as out:
            out.write(MAGIC + len(head).to_bytes(4, "little") + head)
            for part in body:
                out.write(part)
        os.replace(temporary, target)


class Segment:
    """A segment opened for reading. The paths and stamps are returned once; postings are read on demand."""

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | os.O_CLOEXEC)
        try:
            self._read_head(verify)
        except (ValueError, KeyError, TypeError, OSError) as error:
            os.close(self._fd)
            raise Damaged(f"{path}: {error}") from error

    def _read_head(self, verify: bool) -> None:
        lead = os.pread(self._fd, 12, 0)
        if lead[:8] != MAGIC:
            raise ValueError("not a segment")
        head_size = int.from_bytes(lead[8:], "little")
        head = json.loads(os.pread(self._fd, head_size, 12))
        if head["version"] != VERSION or head["byteorder"] != sys.byteorder:
            raise ValueError("another version")
        self.files: int = head["files"]
        sizes: list[int] = head["parts"]
        self.bytes = 12 + head_size + sum(sizes)
        if os.fstat(self._fd).st_size != self.bytes:
            raise ValueError("cut short")
        if verify and _checksum(self._fd, 12 + head_size) != head["crc"]:
            raise ValueError("checksum differs")
        self._paths_at = 12 + head_size
        self._sizes = sizes
        kinds_at = self._paths_at + sizes[0] + sizes[1]
        self._starts: array[int] = array("I")
        self._starts.frombytes(os.pread(self._fd, sizes[3], kinds_at + sizes[2]))
        self._postings_at = kinds_at + sizes[2] + sizes[3]

    def entries(self) -> tuple[list[bytes], array[int], bytes]:
        """Return the paths, four stamp numbers for each, and a kind for each."""
        paths = os.pread(self._fd, self._sizes[0], self._paths_at).split(b"\0") if self.files else []
        stamps: array[int] = array("q")
        stamps.frombytes(os.pread(self._fd, self._sizes[1], self._paths_at + self._sizes[0]))
        kinds = os.pread(self._fd, self._sizes[2], self._paths_at + self._sizes[0] + self._sizes[1])
        return paths, stamps, kinds

    def _posting(self, trigram: int) -> array[int]:
        start, end = self._starts[trigram], self._starts[trigram + 1]
        found: array[int] = array("H")
        if end > start:
            data = os.pread(self._fd, 2 * (end - start), self._postings_at + 2 * start)
            if len(data) != 2 * (end - start):
                raise Damaged(f"{self.path}: cut short while in use", self)
            found.frombytes(data)
        return found

    def having(self, query: TrigramQuery) -> set[int] | None:
        """Return the local ids of the files that satisfy the query; None for all."""
        starts = self._starts
        order = sorted(query.trigrams, key=lambda t: starts[t + 1] - starts[t])
        result: set[int] | None = None
        for trigram in order:
            # At some point, another intersection costs more than searching the files that it would exclude.
            if result is not None and len(result) * 50 < starts[trigram + 1] - starts[trigram]:
                break
            posting = self._posting(trigram)
            result = set(posting) if result is None else result.intersection(posting)
            if not result:
                return result
        for alternatives in query.either:
            union: set[int] = set()
            for alternative in alternatives:
                some = self.having(alternative)
                if some is None:
                    break
                union |= some
            else:
                result = union if result is None else result & union
        return result

    def close(self) -> None:
        os.close(self._fd)


def _checksum(fd: int, at: int) -> int:
    crc = 0
    while block := os.pread(fd, 1 << 20, at):
        crc = zlib.crc32(block, crc)
        at += len(block)
    return crc


def verify(paths: Sequence[Path]) -> list[Path]:
    """Return the damaged segments."""
    damaged = []
    for path in paths:
        try:
            Segment(path).close()
        except (Damaged, OSError):
            damaged.append(path)
    return damaged
