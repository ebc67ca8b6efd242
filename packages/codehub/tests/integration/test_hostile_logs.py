"""An instance's output that its workspace fills with short lines, to keep CodeHub busy or to fill its memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from codehub.adapters.docker.instances import demultiplexed
from codehub.adapters.process.output import output
from codehub.adapters.process.records import LOG


async def _read(place: Path, tail: int | None) -> list[bytes]:
    return [piece async for piece in output(place, follow=False, tail=tail)]


@pytest.mark.parametrize("tail", [None, 100_000])
async def test_megabytes_are_read_in_small_pieces(tmp_path: Path, tail: int | None) -> None:
    """Each open connection once kept all of it in memory while its client did not read."""
    (tmp_path / f"{LOG}.1").write_bytes(b"x" * 8_000_000)
    (tmp_path / LOG).write_bytes(b"y" * 1_000_000)
    pieces = await _read(tmp_path, tail)
    assert b"".join(pieces) == b"x" * 8_000_000 + b"y" * 1_000_000
    assert max(len(piece) for piece in pieces) <= 64 << 10


async def test_the_last_lines_are_found_without_splitting_all_of_them(tmp_path: Path) -> None:
    """Eight million lines would be eight million objects, for each request."""
    (tmp_path / f"{LOG}.1").write_bytes(b"\n" * 7_000_000)
    (tmp_path / LOG).write_bytes(b"\n" * 1_000_000 + b"last\n")
    tracemalloc.start()
    try:
        pieces = await _read(tmp_path, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert b"".join(pieces) == b"\nlast\n"
    assert peak < 32_000_000, "a few copies of the text, and no list of its lines"


@pytest.mark.parametrize("current", [b"", b"e\n", b"e\nf", b"e", b"\n"])
@pytest.mark.parametrize("old", [None, b"", b"a\nb\n\nd\n", b"a\nb"])
async def test_the_last_lines_of_both_files_are_found(tmp_path: Path, old: bytes | None, current: bytes) -> None:
    if old is not None:
        (tmp_path / f"{LOG}.1").write_bytes(old)
    (tmp_path / LOG).write_bytes(current)
    lines = ((old or b"") + current).splitlines(keepends=True)
    for tail in range(8):
        assert b"".join(await _read(tmp_path, tail)) == b"".join(lines[max(0, len(lines) - tail) :])


def test_a_containers_lines_are_passed_on_together() -> None:
    line = b"\x01\x00\x00\x00\x00\x00\x00\x01\n"
    assert demultiplexed(line * 10_000 + line[:4]) == (b"\n" * 10_000, line[:4])
    assert demultiplexed(line[:-1]) == (b"", line[:-1])
    assert demultiplexed(b"") == (b"", b"")
