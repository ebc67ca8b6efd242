"""One connection to a daemon: sends without blocking, reads in a separate thread, and notifies the shim when it ends."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable

from sari.protocol.framing import Decoder, Refused

_CHUNK = 1 << 18
# Answers are bounded by their token budget. This protects against a malfunctioning daemon.
_LARGEST_ANSWER = 1 << 28
_DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)


class Link:
    """A connected daemon. `retired` after it asked us to move: it still answers pending requests and gets no new ones."""

    def __init__(self, sock: socket.socket, boot_id: str) -> None:
        self.boot_id = boot_id
        self.retired = False
        # The ids of the shim's own requests on this link. The client must not see their answers.
        self.internal_ids: set[object] = set()
        self._sock = sock
        self._outbox: deque[bytes] = deque()
        self._sending = threading.Lock()
        self._writer_runs = False

    def start(self, on_line: Callable[[Link, bytes], None], on_end: Callable[[Link], None]) -> None:
        """Start reading."""
        self._sock.settimeout(None)
        threading.Thread(target=self._read, args=(on_line, on_end), name="sari-link", daemon=True).start()

    def send(self, line: bytes) -> None:
        """Send one message, or queue it behind others. Never blocks; the reader detects a broken connection."""
        data = line + b"\n"
        with self._sending:
            if not self._writer_runs:
                try:
                    data = data[self._sock.send(data, _DONT_WAIT) :]
                except BlockingIOError:
                    pass
                except OSError:
                    return
                if not data:
                    return
                self._writer_runs = True
                threading.Thread(target=self._write, name="sari-writer", daemon=True).start()
            self._outbox.append(data)

    def close(self) -> None:
        """Close the connection; the reading thread notices."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _write(self) -> None:
        while True:
            with self._sending:
                if not self._outbox:
                    self._writer_runs = False
                    return
                data = self._outbox.popleft()
            try:
                self._sock.sendall(data)
            except OSError:
                self.close()
                with self._sending:
                    self._outbox.clear()

    def _read(self, on_line: Callable[[Link, bytes], None], on_end: Callable[[Link], None]) -> None:
        decoder = Decoder(_LARGEST_ANSWER)
        try:
            while data := self._sock.recv(_CHUNK):
                for line in decoder.feed(data):
                    if not isinstance(line, Refused):
                        on_line(self, line)
        except OSError:
            pass
        finally:
            self._sock.close()
            on_end(self)
