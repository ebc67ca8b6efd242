"""Parses many files in worker processes on all cores.

Parsing holds the GIL, so it runs in separate processes in order not to slow the daemon's answers. A file that crashes
the parser ends its worker and is skipped until it changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sari.languages.parse import Symbol
from sari.languages.read import Parsed, failed

Results = list[tuple[bytes, Parsed | None]]
# A chunk's paths must fit a pipe's 64 KiB, because all are written before the first answer is read.
_CHUNK_FILES = 60
_CHUNK_BYTES = 40_000


def parse_files(
    root: bytes, paths: Sequence[bytes], stop: Callable[[], bool], *, background: bool
) -> Iterator[Results]:
    """Parse files, yielding results in batches. Stops soon after `stop` returns True."""
    chunks: queue.SimpleQueue[Sequence[bytes]] = queue.SimpleQueue()
    count = 0
    for chunk in _chunks(paths):
        chunks.put(chunk)
        count += 1
    done: queue.SimpleQueue[Results | None] = queue.SimpleQueue()
    abandoned = threading.Event()
    workers = [_Worker(root, background) for _ in range(min(os.cpu_count() or 1, count))]

    def is_over() -> bool:
        return abandoned.is_set() or stop()

    threads = [threading.Thread(target=w.serve, args=(chunks, done, is_over), daemon=True) for w in workers]
    try:
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            results = done.get()
            if results is None:
                running -= 1
            else:
                yield results
    finally:
        abandoned.set()
        for worker in workers:
            worker.kill()
        for thread in threads:
            thread.join()


def _chunks(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for path in paths:
        chunk.append(path)
        # A byte may become six when escaped in JSON.
        size += 6 * len(path) + 3
        if len(chunk) >= _CHUNK_FILES or size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class ParserProcess:
    """One worker process that is kept, for files that an answer needs at once. Thread-safe."""

    def __init__(self, root: bytes) -> None:
        self._worker = _Worker(root, background=False)
        self._lock = threading.Lock()

    def parse(self, paths: Sequence[bytes], stop: Callable[[], bool]) -> Results:
        """Parse files. Leaves out those that remain when `stop` returns True."""
        with self._lock:
            return [
                result
                for chunk in _chunks(paths)
                for results in self._worker.results_of(chunk, stop)
                for result in results
            ]

    def close(self) -> None:
        self._worker.kill()
        with self._lock:
            self._worker.end()


class _Worker:
    """One worker process, restarted when it dies, and the thread that feeds it."""

    def __init__(self, root: bytes, background: bool) -> None:
        self._root = root
        self._background = background
        self._lock = threading.Lock()
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None

    def serve(
        self,
        chunks: queue.SimpleQueue[Sequence[bytes]],
        done: queue.SimpleQueue[Results | None],
        is_over: Callable[[], bool],
    ) -> None:
        try:
            while not is_over():
                try:
                    rest = chunks.get_nowait()
                except queue.Empty:
                    return
                for results in self.results_of(rest, is_over):
                    done.put(results)
        finally:
            self.end()
            done.put(None)

    def results_of(self, rest: Sequence[bytes], is_over: Callable[[], bool]) -> Iterator[Results]:
        while rest and not is_over():
            results = self._parse(rest)
            rest = rest[len(results) :]
            if rest and not is_over():
                # The worker died at this file.
                results.append((rest[0], failed(self._root, rest[0])))
                rest = rest[1:]
            yield results

    def _parse(self, paths: Sequence[bytes]) -> Results:
        """Return the results of these files. If the worker dies, only the first of them have results."""
        process = self._started()
        if process is None:
            return []
        assert process.stdin is not None
        assert process.stdout is not None
        results: Results = []
        try:
            process.stdin.write(b"".join(json.dumps(os.fsdecode(path)).encode() + b"\n" for path in paths))
            process.stdin.flush()
            for path in paths:
                results.append((path, self._parsed(path, json.loads(process.stdout.readline()))))
        except (OSError, ValueError):
            self.end()
        return results

    def _parsed(self, path: bytes, answer: Any) -> Parsed | None:
        if answer is None:
            return failed(self._root, path)
        stamp, rows = answer
        return Parsed(stamp, [_symbol(row) for row in rows])

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._killed:
                return None
            if self._process is None:
                self._process = subprocess.Popen(
                    # Without -P, Python would search the current folder for modules first.
                    [sys.executable, "-P", "-m", "sari.languages.worker", os.fsdecode(self._root)]
                    + (["--background"] if self._background else []),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd=os.path.dirname(sys.executable),
                )
            return self._process

    def kill(self) -> None:
        """Kill the process now. The thread that waits for its answer continues without it."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                with contextlib.suppress(OSError):
                    self._process.kill()

    def end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.wait()


def _symbol(row: list[Any]) -> Symbol:
    name, kind, line, end_line, container, supers = row
    return Symbol(name, kind, line, end_line, container, tuple(supers))
