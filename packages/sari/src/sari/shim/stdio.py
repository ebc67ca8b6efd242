"""The client's side: reads bytes from stdin and writes only framed messages to stdout."""

from __future__ import annotations

import os
import threading

from sari.protocol.framing import Decoder, Refused, encode

_CHUNK = 1 << 16


class ClientGone(Exception):
    """Raised when the client no longer reads our stdout."""


class Stdio:
    """Reads and writes messages in the framing that the client's first byte selected."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._decoder = Decoder()
        self._writing = threading.Lock()

    def read(self) -> list[bytes | Refused] | None:
        """Read once and return the messages, or None at the end of stdin."""
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
        """Write one complete message. Raises `ClientGone`."""
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
        """Whether the client may still read our output (where the system can tell)."""
        import select

        if not hasattr(select, "poll"):
            return True
        poll = select.poll()
        poll.register(self._target, 0)
        return not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))


def _wait(descriptor: int, *, for_writing: bool) -> None:
    # The client may have passed a non-blocking descriptor.
    import select

    select.select([] if for_writing else [descriptor], [descriptor] if for_writing else [], [])
