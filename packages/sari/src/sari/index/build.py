"""Builds segments: a few files in this process, many files in worker processes on all cores.

Distributes the work; does not decide what happens to the segments. A worker ends when its standard input closes, so
none outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sari.index import content
from sari.index.segment import Writer
from sari.index.trigrams import words
from sari.registry.programs import python_command

# Below this, starting a process costs more than it gains.
ALONE_BELOW = 2_500
CHUNK = 8_192
# How soon a stop is noticed. A worker may need seconds for its files, and is killed.
_STOP_POLL_S = 0.2


def build_one(root: Path, paths: Sequence[bytes], target: Path, stop: Callable[[], bool]) -> int:
    """Read files and write them as one segment. Returns how many it contains; files that no longer exist are left out."""
    writer = Writer()
    base = os.fsencode(root) + b"/"
    for path in paths:
        if stop():
            return 0
        read = content.read(base + path)
        if read is not None:
            writer.add(path, read.stamp, read.kind, words(read.text))
    if len(writer):
        writer.write(target)
    return len(writer)


def build(
    root: Path, paths: Sequence[bytes], new_target: Callable[[], Path], stop: Callable[[], bool]
) -> Iterator[tuple[Path, int]]:
    """Build segments of all the files, yielding each when it is written."""
    if len(paths) < ALONE_BELOW:
        target = new_target()
        count = build_one(root, paths, target, stop)
        yield target, count
        return
    yield from _by_workers(root, paths, new_target, stop)


def _by_workers(
    root: Path, paths: Sequence[bytes], new_target: Callable[[], Path], stop: Callable[[], bool]
) -> Iterator[tuple[Path, int]]:
    cores = os.cpu_count() or 1
    size = min(CHUNK, max(1_000, -(-len(paths) // cores)))
    chunks: queue.SimpleQueue[Sequence[bytes]] = queue.SimpleQueue()
    for at in range(0, len(paths), size):
        chunks.put(paths[at : at + size])
    count = -(-len(paths) // size)
    done: queue.SimpleQueue[tuple[Path, int] | None] = queue.SimpleQueue()
    workers = [_Worker(root) for _ in range(min(cores, count))]
    threads = [threading.Thread(target=w.serve, args=(chunks, done, new_target, stop), daemon=True) for w in workers]
    try:
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            try:
                built = done.get(timeout=_STOP_POLL_S)
            except queue.Empty:
                if stop():
                    return
                continue
            if built is None:
                running -= 1
            else:
                yield built
    finally:
        for worker in workers:
            worker.end()
        for thread in threads:
            thread.join()


class _Worker:
    """One worker process and the thread that feeds it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = subprocess.Popen(
            python_command("sari.index.worker", os.fspath(root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.dirname(sys.executable),
        )

    def serve(
        self,
        chunks: queue.SimpleQueue[Sequence[bytes]],
        done: queue.SimpleQueue[tuple[Path, int] | None],
        new_target: Callable[[], Path],
        stop: Callable[[], bool],
    ) -> None:
        try:
            while not stop():
                try:
                    chunk = chunks.get_nowait()
                except queue.Empty:
                    return
                target = new_target()
                count = self._ask(chunk, target)
                if count is None and not stop():
                    # The worker died (killed, out of memory): read its files here instead.
                    with contextlib.suppress(OSError):
                        count = build_one(self._root, chunk, target, stop)
                done.put((target, count or 0))
        finally:
            done.put(None)

    def _ask(self, chunk: Sequence[bytes], target: Path) -> int | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        payload = b"\0".join([os.fsencode(target), *chunk])
        try:
            stdin.write(len(payload).to_bytes(4, "little") + payload)
            stdin.flush()
            return int(stdout.readline())
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
