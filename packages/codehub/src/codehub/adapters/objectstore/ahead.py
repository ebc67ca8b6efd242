"""A pipeline stage on its own thread: produces chunks a few ahead of the consumer.

Reading, compressing and sending a home each wait for something else. On separate threads they wait at the same time.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator

# Chunks between two stages: enough to absorb short delays, few enough to take only a few megabytes.
_HELD = 4
_POLL_INTERVAL_S = 0.2  # how long a stage may take to notice that its consumer is gone


def ahead(chunks: Iterable[bytes], name: str) -> Generator[bytes, None, None]:
    """Yield the same chunks. The producer's error is raised here unchanged. Closing this generator closes the producer."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(_HELD)
    stop = threading.Event()
    source = iter(chunks)

    def put(item: bytes | BaseException | None) -> None:
        while not stop.is_set():
            try:
                made.put(item, timeout=_POLL_INTERVAL_S)
            except queue.Full:
                continue
            return

    def produce() -> None:
        try:
            with _closing(source):
                for chunk in source:
                    if stop.is_set():
                        return
                    put(chunk)
        except BaseException as error:  # noqa: BLE001 - handed to the consuming thread, which raises it
            put(error)
        else:
            put(None)

    thread = threading.Thread(target=produce, name=name, daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _closing(source: Iterator[bytes]) -> Iterator[None]:
    """Close a generator's open files with it, on the thread that used them."""
    try:
        yield
    finally:
        if isinstance(source, Generator):
            source.close()
