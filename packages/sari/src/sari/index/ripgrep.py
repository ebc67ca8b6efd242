"""Lists the files that ripgrep searches, and parses its output."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sari.index.ripgrep_process import BASE, LINES, PROGRAM, Cancelled, Ripgrep, RipgrepDied, RipgrepFailed

__all__ = [
    "BASE",
    "COUNTS",
    "LINES",
    "PROGRAM",
    "Cancelled",
    "Line",
    "RipgrepDied",
    "RipgrepFailed",
    "after_messages",
    "counts",
    "files",
    "lines",
    "run",
    "stream",
]

COUNTS = ("--null", "--count", "--with-filename")

# ripgrep's messages, printed instead of or after the lines of a file that contains a NUL.
_MESSAGE = re.compile(
    rb"[^\0]*?: (?:WARNING: stopped searching binary file after match|binary file matches) "
    rb'\(found "\\0" byte around offset \d+\)\n'
)


@dataclass(frozen=True, slots=True)
class Line:
    """One matching line. `column` is the byte at which the first match begins, from 1."""

    path: bytes
    number: int
    column: int
    text: bytes


def stream(
    arguments: Sequence[str | bytes], root: Path, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Run ripgrep and yield its output as it arrives. Missing or unreadable files are ignored; an invalid pattern
    raises.
    """
    yield from Ripgrep(arguments, os.fspath(root)).output(cancelled)


def run(arguments: Sequence[str | bytes], root: Path, cancelled: Callable[[], bool] = lambda: False) -> bytes:
    """Run to the end and return the complete output."""
    return b"".join(stream(arguments, root, cancelled))


def lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Parse the output of `LINES`. A path may contain anything but NUL, a line anything but a newline."""
    # Joined only when a line may be complete: a line of 100 MB arrives in thousands of chunks.
    parts: list[bytes] = []
    for chunk in chunks:
        parts.append(chunk)
        if b"\n" in chunk:
            parts = [(yield from _records(b"".join(parts)))]
    rest = b"".join(parts)
    if rest:
        yield from _records(rest + b"\n")


def _records(output: bytes) -> Generator[Line, None, bytes]:
    """Yield the complete records of a piece of output and return the rest."""
    at = 0
    while True:
        at = after_messages(output, at)
        path_end = output.find(b"\0", at)
        number_end = output.find(b"\0", path_end + 1)
        text_end = output.find(b"\n", number_end)
        if path_end < 0 or number_end < 0 or text_end < 0:
            return output[at:]
        # An empty match at the end of a file has no column.
        column_end = output.find(b"\0", number_end + 1, text_end)
        column = output[number_end + 1 : column_end] if column_end >= 0 else b""
        yield Line(
            output[at:path_end],
            int(output[path_end + 1 : number_end]),
            int(column) if column.isdigit() else 1,
            output[(column_end if column.isdigit() else number_end) + 1 : text_end],
        )
        at = text_end + 1


def after_messages(output: bytes, at: int) -> int:
    """Return where the next record begins, after messages about files that contain a NUL."""
    while True:
        stop = output.find(b"\0", at)
        if output.find(b" byte around offset ", at, stop if stop >= 0 else len(output)) < 0:
            return at
        message = _MESSAGE.match(output, at)
        if message is None:
            return at
        at = message.end()


def counts(output: bytes) -> Iterator[tuple[bytes, int]]:
    """Parse the output of `COUNTS`."""
    at = 0
    while (stop := output.find(b"\0", at)) >= 0:
        newline = output.index(b"\n", stop)
        yield output[at:stop], int(output[stop + 1 : newline])
        at = newline + 1


def files(
    root: Path, extra: Iterable[str | bytes] = (), cancelled: Callable[[], bool] = lambda: False
) -> list[bytes]:
    """Return every file that ripgrep would search under the root (or the given folders), relative to it."""
    output = run(["--files", "--null", *extra], root, cancelled)
    return [path.removeprefix(b"./") for path in output.split(b"\0") if path]
