"""Runs ripgrep, which lists the files to search and finds the matching lines.

Builds the command line and parses the output; nothing else in sari starts ripgrep. Uses the same flags as a user's `rg
--hidden` on the tree, so that ripgrep itself is the test oracle.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


class RipgrepFailed(Exception):
    """Raised when ripgrep rejected the query (an invalid regex or glob) or could not run. Contains ripgrep's message."""


def _find_program() -> str:
    # Resolved once, at import: the first call of sysconfig.get_path is not thread-safe.
    name = "rg.exe" if os.name == "nt" else "rg"
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        if folder and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return shutil.which(name) or name


PROGRAM = _find_program()

# Common to every run: no user configuration; hidden files, but never a repository's own data.
BASE = ("--no-config", "--hidden", "--glob", "!.git", "--color", "never")

# Folders of installed dependencies.
_DEPENDENCIES = frozenset({"site-packages", "dist-packages", "node_modules"})

# How often a search without output checks whether it is still needed.
_POLL_INTERVAL_S = 0.2

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


class Cancelled(Exception):
    """Raised when the client no longer needs the answer."""


def stream(
    arguments: Sequence[str | bytes], root: Path, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Run ripgrep and yield its output as it arrives. Missing or unreadable files are ignored; an invalid pattern
    raises.
    """
    try:
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [PROGRAM, *BASE, *_ignore_flags(root), *arguments],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
            try:
                assert process.stdout is not None
                while chunk := _next(process.stdout.fileno(), cancelled):
                    yield chunk
                code = process.wait()
            finally:
                process.kill()
                assert process.stdout is not None
                process.stdout.close()
                process.wait()
            if code == 2:
                complaints.seek(0)
                complaint = complaints.read(20_000).decode("utf-8", "replace").strip()
                if _ABOUT_THE_QUERY.search(complaint):
                    raise RipgrepFailed(complaint)
    except OSError as error:
        raise RipgrepFailed(f"ripgrep cannot be run in {root}: {error}. Is the folder still there?") from error


def _ignore_flags(root: Path) -> tuple[str, ...]:
    """Search the sources of an installed dependency even if the project around them ignores them."""
    return ("--no-ignore-parent",) if not _DEPENDENCIES.isdisjoint(root.parts) or "pkg/mod" in root.as_posix() else ()


def _next(output: int, cancelled: Callable[[], bool]) -> bytes:
    """Return the next piece of output. Also checks for cancellation while there is none."""
    if os.name == "posix":
        with selectors.PollSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not selector.select(_POLL_INTERVAL_S):
                if cancelled():
                    raise Cancelled
    chunk = os.read(output, 1 << 18)
    if cancelled():
        raise Cancelled
    return chunk


_ABOUT_THE_QUERY = re.compile(
    r"regex parse error|error parsing glob|is not allowed in a regex|^error: |exceeds size limit", re.M
)


def run(arguments: Sequence[str | bytes], root: Path, cancelled: Callable[[], bool] = lambda: False) -> bytes:
    """Run to the end and return the complete output."""
    return b"".join(stream(arguments, root, cancelled))


def lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Parse the output of `LINES`. A path may contain anything but NUL, a line anything but a newline."""
    rest = b""
    for chunk in chunks:
        rest = yield from _records(rest + chunk if rest else chunk)
    if rest:
        yield from _records(rest + b"\n")


def _records(output: bytes) -> Generator[Line, None, bytes]:
    """Yield the complete records of a piece of output and return the rest."""
    at = 0
    while True:
        at = _after_messages(output, at)
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


def _after_messages(output: bytes, at: int) -> int:
    """Return where the next record begins."""
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


# NUL between the fields: if a field is missing, a colon could be part of the text.
LINES = (
    "--null", "--line-number", "--column", "--no-heading", "--with-filename", "--field-match-separator", r"\x00",
)  # fmt: skip
COUNTS = ("--null", "--count", "--with-filename")
