"""Checks the recorded states of many files in worker processes, on all cores.

In one process, the checks of several threads would take turns for the GIL. A worker that dies costs time, not answers:
its files are checked here instead.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from array import array
from collections.abc import Sequence

from sari.index import stamp_check
from sari.index.stamp_check import differing, read_block, write_block

# Some files, and four numbers for each.
Recorded = tuple[Sequence[bytes], "array[int]"]
# Below this, starting workers costs more than it gains.
ALONE_BELOW = 20_000
# More would only compete with ripgrep, which lists the tree at the same time.
_MOST_WORKERS = 4


class StampCheck:
    """The check of several lists of files. It begins at once; `result` waits for it."""

    def __init__(self, root: bytes, lists: Sequence[Recorded]) -> None:
        self._root = root
        self._lists = lists
        self._workers: list[_Worker] = []
        count = min(os.cpu_count() or 1, _MOST_WORKERS, len(lists))
        if count > 1 and sum(len(paths) for paths, _ in lists) >= ALONE_BELOW:
            self._workers = [_Worker(root, lists, share) for share in _shares(lists, count)]

    def result(self) -> list[set[int]]:
        """Return the positions of the files that differ, for each list."""
        found: dict[int, set[int]] = {}
        for worker in self._workers:
            found.update(worker.result())
        return [
            found[number] if number in found else set(differing(self._root, paths, stamps))
            for number, (paths, stamps) in enumerate(self._lists)
        ]

    def cancel(self) -> None:
        """End the check without a result."""
        for worker in self._workers:
            worker.end()


def _shares(lists: Sequence[Recorded], count: int) -> list[list[int]]:
    """Distribute the lists: the largest first, each to the worker that has the least to do."""
    shares: list[list[int]] = [[] for _ in range(count)]
    for number in sorted(range(len(lists)), key=lambda one: len(lists[one][0]), reverse=True):
        min(shares, key=lambda share: sum(len(lists[one][0]) for one in share)).append(number)
    return shares


class _Worker:
    """One process, and the lists that it checks."""

    def __init__(self, root: bytes, lists: Sequence[Recorded], share: Sequence[int]) -> None:
        self._share = share
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", stamp_check.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.path.dirname(sys.executable),
            )
            assert self._process.stdin is not None
            # It reads everything before it answers, so neither side waits for the other.
            with self._process.stdin as out:
                write_block(out, root)
                for number in share:
                    paths, stamps = lists[number]
                    write_block(out, b"\0".join(paths))
                    write_block(out, stamps.tobytes())

    def result(self) -> dict[int, set[int]]:
        """Return what the worker found: all of its lists, or those that it finished before it died."""
        process = self._process
        if process is None:
            return {}
        assert process.stdout is not None
        found: dict[int, set[int]] = {}
        try:
            with process.stdout as answers:
                for number in self._share:
                    data = read_block(answers)
                    if data is None:
                        break
                    positions: array[int] = array("I")
                    positions.frombytes(data)
                    found[number] = set(positions)
        finally:
            self.end()
        return found

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.kill()
            self._process.stdout.close()
            self._process.wait()
