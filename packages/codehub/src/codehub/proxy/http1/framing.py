"""Finds the end of a body. A scanner is fed the received data and returns the offset where the body ends, or -1 if it
continues.

Bytes are forwarded unchanged; a chunked body is decoded only for a peer that cannot read chunks.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from codehub.proxy.http1.messages import BadMessage
from codehub.proxy.http1.parser import FORBIDDEN_TRAILERS

MAX_CHUNK_LINE: Final = 4096
MAX_TRAILERS: Final = 16 * 1024

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t\x20-\x7e\x80-\xff]*\r\n")

_SIZE, _DATA, _DATA_END, _TRAILERS, _OVER = range(5)


class BodyScanner(Protocol):
    def feed(self, data: bytes, at: int) -> int: ...


class LengthBody:
    """A body of a known length."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        self.left = length

    def feed(self, data: bytes, at: int) -> int:
        have = len(data) - at
        if have < self.left:
            self.left -= have
            return -1
        end = at + self.left
        self.left = 0
        return end


class EndlessBody:
    """A body that ends with its connection."""

    __slots__ = ()

    def feed(self, data: bytes, at: int) -> int:
        return -1


class ChunkedBody:
    """A chunked body with checked sizes and trailers. `status` is sent if it is malformed.

    With `decode`, the content without its framing collects in `decoded` for the caller to take. `lines` counts what was
    read beside the content.
    """

    __slots__ = ("_decode", "_left", "_partial", "_state", "_status", "_trailer_bytes", "decoded", "lines")

    def __init__(self, status: int, *, decode: bool = False) -> None:
        self._status = status
        self._decode = decode
        self._state = _SIZE
        self._left = 0
        self._partial = b""
        self._trailer_bytes = 0
        self.decoded: list[bytes] = []
        self.lines = 0

    def feed(self, data: bytes, at: int) -> int:
        size = len(data)
        while at < size:
            if self._state == _DATA:
                take = min(self._left, size - at)
                if self._decode:
                    self.decoded.append(data[at : at + take])
                at += take
                self._left -= take
                if not self._left:
                    self._state = _DATA_END
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._partial += data[at:]
                if len(self._partial) > MAX_CHUNK_LINE:
                    raise BadMessage(self._status, "a line of a chunked body is too long")
                return -1
            line = self._partial + data[at : end + 1] if self._partial else data[at : end + 1]
            self._partial = b""
            at = end + 1
            self.lines += 1
            self._line(line)
            if self._state == _OVER:
                return at
        return -1

    def _line(self, line: bytes) -> None:
        if self._state == _SIZE:
            match = _CHUNK_LINE.fullmatch(line)
            if match is None or len(line) > MAX_CHUNK_LINE:
                raise BadMessage(self._status, "a chunk's size is malformed")
            self._left = int(match[1], 16)
            self._state = _DATA if self._left else _TRAILERS
        elif self._state == _DATA_END:
            if line != b"\r\n":
                raise BadMessage(self._status, "a chunk is longer than its size")
            self._state = _SIZE
        elif line == b"\r\n":
            self._state = _OVER
        else:
            self._trailer_bytes += len(line)
            match = _TRAILER.fullmatch(line)
            if match is None or match[1].lower() in FORBIDDEN_TRAILERS:
                raise BadMessage(self._status, "a trailer is malformed or not allowed")
            if self._trailer_bytes > MAX_TRAILERS:
                raise BadMessage(431 if self._status == 400 else self._status, "the trailers are too large")
