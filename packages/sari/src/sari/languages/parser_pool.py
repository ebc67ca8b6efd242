"""Parses in worker processes, many files on all cores or what one answer needs.

Parsing holds the GIL, so it runs in separate processes in order not to slow the daemon's answers. A file that crashes
the parser, or takes it too long, ends its worker and is skipped until it changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sari.languages.parse import Span, Symbol
from sari.languages.read import Parsed, failed
from sari.registry.programs import python_command

Results = list[tuple[bytes, Parsed | None]]
# A chunk's paths must fit a pipe's 64 KiB, because all are written before the first answer is read.
_CHUNK_FILES = 60
_CHUNK_BYTES = 40_000
# Results are passed on when the answers have this size, so that few files with very many symbols are in memory at a time.
_BATCH_BYTES = 4 << 20
_POLL_INTERVAL_S = 0.1
# A line of megabytes may consist of one name. Encoding its places would let no other thread run for a second.
_MOST_SPANS = 100_000


def parse_files(
    root: bytes, paths: Sequence[bytes], stop: Callable[[], bool], *, background: bool
) -> Iterator[Results]:
    """Parse files, yielding results in batches. Stops soon after `stop` returns True."""
    chunks: queue.SimpleQueue[Sequence[bytes]] = queue.SimpleQueue()
    count = 0
    for chunk in _chunks(paths):
        chunks.put(chunk)
        count += 1
    # Bounded, because the caller stores results more slowly than workers produce them.
    done: queue.Queue[Results | None] = queue.Queue(4)
    abandoned = threading.Event()
    workers = [_Worker(root, background) for _ in range(min(os.cpu_count() or 1, count))]

    def is_over() -> bool:
        return abandoned.is_set() or stop()

    def put(results: Results | None) -> None:
        while not abandoned.is_set():
            with contextlib.suppress(queue.Full):
                done.put(results, timeout=_POLL_INTERVAL_S)
                return

    threads = [threading.Thread(target=w.serve, args=(chunks, put, is_over), daemon=True) for w in workers]
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
    """One worker process that is kept, for what an answer needs at once. Thread-safe."""

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

    def roles(
        self, language: str, text: bytes, spans: Sequence[Span], stop: Callable[[], bool]
    ) -> list[str | None] | None:
        """Return the roles of names in a text; None if it takes too long to parse, or there are very many names."""
        if not spans:
            return []
        if len(spans) > _MOST_SPANS:
            return None
        found = self._about({"language": language, "size": len(text), "places": spans}, text, stop)
        return found if found is not None and len(found) == len(spans) else None

    def first_error(self, language: str, text: bytes, stop: Callable[[], bool]) -> tuple[int | None] | None:
        """Return the first line of a text with a syntax error, if there is one; None if it takes too long to parse."""
        found = self._about({"language": language, "size": len(text)}, text, stop)
        return None if found is None else (found[0],)

    def _about(self, request: dict[str, object], text: bytes, stop: Callable[[], bool]) -> list[Any] | None:
        with self._lock:
            answer = self._worker.ask(json.dumps(request).encode() + b"\n" + text, stop)
        return answer if isinstance(answer, list) else None

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
        self._received = bytearray()

    def serve(
        self,
        chunks: queue.SimpleQueue[Sequence[bytes]],
        put: Callable[[Results | None], None],
        is_over: Callable[[], bool],
    ) -> None:
        try:
            while not is_over():
                try:
                    rest = chunks.get_nowait()
                except queue.Empty:
                    return
                for results in self.results_of(rest, is_over):
                    put(results)
        finally:
            self.end()
            put(None)

    def results_of(self, rest: Sequence[bytes], is_over: Callable[[], bool]) -> Iterator[Results]:
        while rest and not is_over():
            done = 0
            for results in self._parse(rest, is_over):
                done += len(results)
                yield results
            rest = rest[done:]
            if rest and not is_over():
                # The worker died at this file.
                yield [(rest[0], failed(self._root, rest[0]))]
                rest = rest[1:]

    def _parse(self, paths: Sequence[bytes], is_over: Callable[[], bool]) -> Iterator[Results]:
        """Yield the results of these files. If the worker dies, or nobody waits any more, only the first of them have
        results.
        """
        process = self._started()
        if process is None:
            return
        results: Results = []
        size = 0
        try:
            _write(process, b"".join(json.dumps(os.fsdecode(path)).encode() + b"\n" for path in paths))
            for path in paths:
                parsed, length = self._parsed(path, process, is_over)
                size += length
                results.append((path, parsed))
                if size > _BATCH_BYTES:
                    yield results
                    results, size = [], 0
        except (OSError, ValueError):
            self.end()
        if results:
            yield results

    def ask(self, request: bytes, is_over: Callable[[], bool]) -> object:
        """Return the answer to a request; None if the worker dies of it, or nobody waits any more."""
        process = self._started()
        if process is None:
            return None
        try:
            _write(process, request)
            answer: object = json.loads(self._line(process, is_over))
        except (OSError, ValueError):
            self.end()
            return None
        return answer

    def _line(self, process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> bytes:
        """Return the next line of the worker's output. Raises `OSError` if there is none, or nobody waits any more."""
        assert process.stdout is not None
        output = process.stdout.fileno()
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if os.name == "posix":
                waiting = select.poll()
                waiting.register(output, select.POLLIN)
                while not waiting.poll(_POLL_INTERVAL_S * 1000):
                    if is_over():
                        raise InterruptedError
            chunk = os.read(output, 1 << 18)
            if not chunk:
                raise BrokenPipeError("the worker has ended")
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _parsed(
        self, path: bytes, process: subprocess.Popen[bytes], is_over: Callable[[], bool]
    ) -> tuple[Parsed | None, int]:
        """Return the next file's result and its size."""
        head = self._line(process, is_over)
        answer: Any = json.loads(head)
        if answer is None:
            return failed(self._root, path), len(head)
        stamp, count = answer
        size = len(head)
        symbols: list[Symbol] = []
        for _ in range(count):
            line = self._line(process, is_over)
            size += len(line)
            symbols += [_symbol(row) for row in json.loads(line)]
        return Parsed(stamp, symbols), size

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._killed:
                return None
            if self._process is None:
                self._process = subprocess.Popen(
                    python_command(
                        "sari.languages.worker",
                        os.fsdecode(self._root),
                        *(["--background"] if self._background else []),
                    ),
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
            self._received.clear()
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.wait()


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def _symbol(row: list[Any]) -> Symbol:
    name, kind, line, end_line, container, supers = row
    return Symbol(name, kind, line, end_line, container, tuple(supers))
