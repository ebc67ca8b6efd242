"""The client's side: bytes from stdin, framed messages to stdout, nothing else ever."""

from __future__ import annotations

import os
import threading

from sari.protocol.framing import Decoder, Refused, encode

_CHUNK = 1 << 16


class ClientGone(Exception):
    """Nobody reads our stdout any more."""


class Stdio:
    """Reads and writes messages in the framing the client chose with its first byte."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._decoder = Decoder()
        self._writing = threading.Lock()

    def read(self) -> list[bytes | Refused] | None:
        """The next messages, at least one read's worth; None at the end of stdin."""
        while True:
            try:
                data = os.read(self._source, _CHUNK)
            except BlockingIOError:
                _wait(self._source, for_writing=False)
                continue
            except OSError:
                return None
            return self._decoder.feed(data) if data else None

    def write(self, message: bytes) -> None:
        """Write one message, whole. Raises `ClientGone`."""
        rest = memoryview(encode(message, self._decoder.uses_headers is True))
        with self._writing:
            while rest:
                try:
                    rest = rest[os.write(self._target, rest) :]
                except BlockingIOError:
                    _wait(self._target, for_writing=True)
                except OSError as error:
                    raise ClientGone(str(error)) from error

    def is_read(self) -> bool:
        """Whether someone may still read what we write (where the system can tell)."""
        import select

        if not hasattr(select, "poll"):
            return True
        poll = select.poll()
        poll.register(self._target, 0)
        return not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))


def _wait(descriptor: int, *, for_writing: bool) -> None:
    # A client may have given us a descriptor that does not block.
    import select

    select.select([] if for_writing else [descriptor], [descriptor] if for_writing else [], [])
