"""Runs ripgrep: the walker that says which files there are, and the matcher that says which lines match.

Owns the command line and the reading of its output; nothing else in sari starts ripgrep. The same flags as a person's
`rg --hidden` on the tree, so that ripgrep itself is the oracle.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


class RipgrepFailed(Exception):
    """ripgrep refused the query (a bad regex or glob) or could not run; the message is its own."""


def _find_program() -> str:
    # Resolved once, at import: sysconfig.get_path is not safe to call first from two threads at once.
    name = "rg.exe" if os.name == "nt" else "rg"
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        if folder and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return shutil.which(name) or name


PROGRAM = _find_program()

# What every run has: no user configuration, hidden files but never a repository's own data.
BASE = ("--no-config", "--hidden", "--glob", "!.git", "--color", "never")

_WARNING = re.compile(
    rb'[^\0]*?: WARNING: stopped searching binary file after match \(found "\\0" byte around offset \d+\)\n'
)


@dataclass(frozen=True, slots=True)
class Line:
    """One matching line. `column` is the byte at which the first match begins, from 1."""

    path: bytes
    number: int
    column: int
    text: bytes


def run(arguments: Sequence[str | bytes], root: Path) -> bytes:
    """Run to the end; the output. Files that vanish or cannot be read are not an error; a bad pattern is."""
    done = subprocess.run(
        [PROGRAM, *BASE, *arguments], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode == 2 and not done.stdout and done.stderr:
        complaint = done.stderr.decode("utf-8", "replace").strip()
        if _about_the_query(complaint):
            raise RipgrepFailed(complaint)
    return done.stdout


def _about_the_query(complaint: str) -> bool:
    return "regex parse error" in complaint or "glob" in complaint or "error: " in complaint or "literal" in complaint


def lines(output: bytes) -> Iterator[Line]:
    """Read `--null --line-number --column --no-heading` output. A path may hold anything but NUL; a line no newline."""
    at, end = 0, len(output)
    while at < end:
        stop = output.find(b"\0", at)
        if output.find(b": WARNING: stopped", at, stop if stop >= 0 else end) >= 0:
            warned = _WARNING.match(output, at)
            if warned:
                at = warned.end()
                continue
        if stop < 0:
            return
        number_end = output.index(b":", stop)
        column_end = output.index(b":", number_end + 1)
        text_end = output.find(b"\n", column_end)
        if text_end < 0:
            text_end = end
        yield Line(
            output[at:stop],
            int(output[stop + 1 : number_end]),
            int(output[number_end + 1 : column_end]),
            output[column_end + 1 : text_end],
        )
        at = text_end + 1


def counts(output: bytes) -> Iterator[tuple[bytes, int]]:
    """Read `--null --count` output."""
    at = 0
    while (stop := output.find(b"\0", at)) >= 0:
        newline = output.index(b"\n", stop)
        yield output[at:stop], int(output[stop + 1 : newline])
        at = newline + 1


def files(root: Path, extra: Iterable[str | bytes] = ()) -> list[bytes]:
    """Every file ripgrep would search under the root (or the folders given), relative to it."""
    output = run(["--files", "--null", *extra], root)
    return [path.removeprefix(b"./") for path in output.split(b"\0") if path]


LINES = ("--null", "--line-number", "--column", "--no-heading", "--with-filename")
COUNTS = ("--null", "--count", "--with-filename")
