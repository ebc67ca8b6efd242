"""Builds term segments: a few files in this process, many files in worker processes.

Splitting text holds the GIL, so it runs in separate processes in order not to slow the daemon's answers. Knows neither
which files need indexing nor which segments make up an index.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sari.ranking.worker import build_segment
from sari.registry.programs import python_command

# A file to index, with the names that it defines.
File = tuple[bytes, Sequence[str]]
# More workers would slow everything else on the machine down.
WORKERS = max(1, min(os.cpu_count() or 1, 4))


class SegmentBuilder:
    """The workers of one workspace, started when needed. Not thread-safe: its owner holds a lock."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._interrupted = False

    def build(self, target: Path, files: Sequence[File]) -> int:
        """Write one segment in this process. Returns how many of the files it has read: see `build_segment`."""
        return build_segment(self._root, target, files)

    def build_in_workers(self, batches: Sequence[tuple[Path, Sequence[File]]]) -> list[int]:
        """Write up to `WORKERS` segments at the same time, and return how many files each has read. If a worker fails, its
        segment is written in this process.
        """
        started = [self._send(number, target, files) for number, (target, files) in enumerate(batches)]
        counts = []
        for number, (target, files) in enumerate(batches):
            count = self._wait(number) if started[number] else -1
            if count < 0:
                self._end(number)
                count = len(files) if self._interrupted else self.build(target, files)
            counts.append(count)
        return counts

    def interrupt(self) -> None:
        """End the workers now, from any thread. What they were building is lost."""
        self._interrupted = True
        for worker in list(self._workers.values()):
            with contextlib.suppress(OSError):
                worker.kill()

    def close(self) -> None:
        """End the workers. They are started again when needed."""
        for number in list(self._workers):
            self._end(number)

    def _send(self, number: int, target: Path, files: Sequence[File]) -> bool:
        stdin = self._started(number).stdin
        assert stdin is not None
        request = [os.fspath(target), [(os.fsdecode(path), names) for path, names in files]]
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _wait(self, number: int) -> int:
        stdout = self._workers[number].stdout
        assert stdout is not None
        try:
            return int(stdout.readline())
        except (OSError, ValueError):
            return -1

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        worker = self._workers.get(number)
        if worker is not None and worker.poll() is None:
            return worker
        self._end(number)
        worker = self._workers[number] = subprocess.Popen(
            python_command("sari.ranking.worker", os.fsdecode(self._root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.dirname(sys.executable),
        )
        return worker

    def _end(self, number: int) -> None:
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.kill()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            worker.wait()
