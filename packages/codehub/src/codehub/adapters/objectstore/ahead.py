"""A stage of a transfer on a thread of its own: makes chunks a few ahead of whoever takes them.

Reading a home, compressing it and sending it each wait for something else; on threads they wait at the same time.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator

# Chunks between two stages: enough that neither waits for the other's hiccups, few enough to be a few megabytes.
_HELD = 4
_LOOK_UP_S = 0.2  # how long a stage whose consumer went away may take to notice


def ahead(chunks: Iterable[bytes], name: str) -> Generator[bytes, None, None]:
    """The same chunks. The producer's error is raised here, as it is; closing this ends and closes the producer."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(_HELD)
    stop = threading.Event()
    source = iter(chunks)

    def put(item: bytes | BaseException | None) -> None:
        while not stop.is_set():
            try:
                made.put(item, timeout=_LOOK_UP_S)
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
    """A generator's open files go with it, on the thread that used them."""
    try:
        yield
    finally:
        if isinstance(source, Generator):
            source.close()
