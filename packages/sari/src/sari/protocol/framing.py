"""Both framings of JSON-RPC on a byte stream: one message per line (as in MCP) and Content-Length headers. No I/O.

The first byte determines which framing a peer uses. Memory is bounded: a message over the limit is skipped as it
arrives and reported once, and decoding continues after it.
"""

from __future__ import annotations

# A tool call takes a few kilobytes. Even an editor that sends a complete file stays far below this.
LARGEST_MESSAGE = 16 * 1024 * 1024
_LARGEST_HEADER = 8192
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Refused:
    """A part of the stream that is not a message, and the reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Decoder:
    """Splits incoming bytes into messages."""

    def __init__(self, limit: int = LARGEST_MESSAGE) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._skip_bytes = 0
        self._skip_line = False
        self._resync = False
        self._body: int | None = None
        self.uses_headers: bool | None = None

    def raise_limit(self, limit: int) -> None:
        """Accept larger messages from now on, because the peer is authenticated."""
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes | Refused]:
        """Add bytes and return the messages that are now complete."""
        self._buffer += data
        found: list[bytes | Refused] = []
        while True:
            if self.uses_headers is None and not self._detect():
                return found
            item = self._next_framed() if self.uses_headers else self._next_line()
            if item is None:
                return found
            if item != b"":
                found.append(item)

    def _detect(self) -> bool:
        head = bytes(self._buffer[:3])
        if head and _BYTE_ORDER_MARK.startswith(head) and head != _BYTE_ORDER_MARK:
            return False
        if head == _BYTE_ORDER_MARK:
            del self._buffer[:3]
        start = len(self._buffer) - len(self._buffer.lstrip(_SPACE))
        del self._buffer[:start]
        if not self._buffer:
            return False
        self.uses_headers = self._buffer[0] in b"Cc"
        return True

    def _next_line(self) -> bytes | Refused | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            if len(self._buffer) > self._limit:
                self._buffer.clear()
                self._searched = 0
                if not self._skip_line:
                    self._skip_line = True
                    return Refused(self._too_large())
            elif self._skip_line:
                self._buffer.clear()
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        if self._skip_line:
            self._skip_line = False
            return b""
        return Refused(self._too_large()) if len(line) > self._limit else line.strip(_SPACE)

    def _next_framed(self) -> bytes | Refused | None:
        if self._skip_bytes:
            taken = min(self._skip_bytes, len(self._buffer))
            del self._buffer[:taken]
            self._skip_bytes -= taken
            return None if self._skip_bytes else b""
        if self._body is not None:
            if len(self._buffer) < self._body:
                return None
            body = bytes(self._buffer[: self._body])
            del self._buffer[: self._body]
            self._body = None
            return body.strip(_SPACE)
        return self._read_header()

    def _read_header(self) -> bytes | Refused | None:
        start = len(self._buffer) - len(self._buffer.lstrip(_SPACE))
        del self._buffer[:start]
        if self._resync:
            at = self._buffer.lower().find(b"content-")
            if at < 0:
                # Keep bytes that may be the start of the next header.
                del self._buffer[: max(0, len(self._buffer) - 8)]
                return None
            del self._buffer[:at]
            self._resync = False
        end, width = self._buffer.find(b"\r\n\r\n"), 4
        bare = self._buffer.find(b"\n\n")
        if bare >= 0 and (end < 0 or bare < end):
            end, width = bare, 2
        if end < 0:
            if len(self._buffer) <= _LARGEST_HEADER:
                return None
            return self._lost("the header has no end")
        header = bytes(self._buffer[:end])
        length = _content_length(header)
        if length is None:
            return self._lost("there is no valid Content-Length in the header")
        del self._buffer[: end + width]
        if length > self._limit:
            self._skip_bytes = length
            return Refused(self._too_large())
        self._body = length
        return b""

    def _lost(self, why: str) -> Refused:
        # A valid header may follow the one that could not be read.
        del self._buffer[:1]
        self._resync = True
        return Refused(why)

    def _too_large(self) -> str:
        return f"the message is larger than {self._limit // (1024 * 1024)} MB, which is refused"


def encode(message: bytes, uses_headers: bool) -> bytes:
    """Frame one message."""
    if uses_headers:
        return b"Content-Length: %d\r\n\r\n%s" % (len(message), message)
    return message + b"\n"


def _content_length(header: bytes) -> int | None:
    for line in header.splitlines():
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < 19 else None
    return None
