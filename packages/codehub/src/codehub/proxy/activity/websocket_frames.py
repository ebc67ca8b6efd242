"""Parses WebSocket frames as far as the background rules need: frame boundaries, and payloads of small messages.

A scanner receives the bytes after they were forwarded, so its result never affects the tunnel.
"""

from __future__ import annotations

import zlib
from time import thread_time
from typing import Final, Protocol

from codehub.proxy.activity.background_traffic import MAX_BACKGROUND, BackgroundTraffic
from codehub.proxy.activity.buffer import Activity
from codehub.proxy.coarse_clock import CoarseClock

_RSV1: Final = 0x40
_FIN: Final = 0x80
_MASKED: Final = 0x80
_MAX_HEADER: Final = 14
# The bytes that permessage-deflate removes from the end of every message.
_DEFLATE_TAIL: Final = b"\x00\x00\xff\xff"
# How much of an inflated message is examined at once. The rest is inflated and dropped, to keep the context.
_INFLATE_STEP: Final = 64 * 1024
# A message may consist of hundreds of small ones, which are compared one by one. As much as a frame costs.
_PIECE: Final = 64
# What a message costs, as a multiple of a frame that is only skipped (about a microsecond).
_COMPARED: Final = 1
_READ_IN_PARTS: Final = 1
_INFLATED: Final = 2
# Blocks that hold nothing but their tables take ten times as long per byte as a compressor's, and inflate to nothing. Time
# beyond the usual is counted in microseconds, for reads that are large enough to measure.
_USUAL_S_PER_BYTE: Final = 20e-9
_MEASURED: Final = 1024


def close_frame(code: int, *, masked: bool) -> bytes:
    """Build a close frame. Frames to the server are masked; a zero key leaves the payload readable."""
    return (b"\x88\x82\x00\x00\x00\x00" if masked else b"\x88\x02") + code.to_bytes(2, "big")


class Scanner(Protocol):
    @property
    def at_boundary(self) -> bool: ...

    def feed(self, data: bytes) -> int:
        """Return how many pieces there were: frames, and the work on messages that were inflated or compared with rules."""
        ...


class FrameScanner:
    """Touch the activity for every data frame that is not background. Skips payloads shortly after a touch."""

    __slots__ = ("_activity", "_background", "_clock", "_partial", "_skip")

    def __init__(self, activity: Activity, clock: CoarseClock, background: BackgroundTraffic) -> None:
        self._activity = activity
        self._clock = clock
        self._background = background if background.frame_rules else None
        self._skip = 0  # bytes until the next frame
        self._partial = b""  # the beginning of an incomplete frame

    @property
    def at_boundary(self) -> bool:
        return not self._skip and not self._partial

    def feed(self, data: bytes) -> int:
        at = self._skip
        if at:
            size = len(data)
            if at >= size:
                self._skip = at - size
                return 0
        elif self._partial:
            data = self._partial + data
            self._partial = b""
        size = len(data)
        frames = 0
        while at < size:
            frames += 1
            if size - at < 2:
                self._partial = data[at:]
                at = size
                break
            first = data[at]
            second = data[at + 1]
            length = second & 127
            head = 2
            if length == 126:
                head = 4
            elif length == 127:
                head = 10
            if second & _MASKED:
                head += 4
            if size < at + head:
                self._partial = data[at:]
                at = size
                break
            if length == 126:
                length = data[at + 2] << 8 | data[at + 3]
            elif length == 127:
                length = int.from_bytes(data[at + 2 : at + 10], "big")
            end = at + head + length
            if not first & 8 and self._clock.now >= self._activity.quiet_at:
                if self._background is None or length > MAX_BACKGROUND:
                    self._activity.touch()
                elif end > size:
                    self._partial = data[at:]
                    at = size
                    break
                else:
                    frames += _COMPARED + length // _PIECE
                    if not self._background.is_message(_payload(data, at + head, end, second & _MASKED)):
                        self._activity.touch()
            at = end
        self._skip = at - size
        return frames


class InflatingScanner:
    """A scanner for connections with permessage-deflate.

    It inflates every message, because each depends on the previous ones.
    """

    __slots__ = (
        "_activity",
        "_background",
        "_broken",
        "_compressed",
        "_final",
        "_header",
        "_inflate",
        "_keep_context",
        "_left",
        "_mask",
        "_offset",
        "_opcode_is_data",
        "_pieces",
        "_seen",
        "_size",
    )

    def __init__(self, activity: Activity, background: BackgroundTraffic, *, keep_context: bool) -> None:
        self._activity = activity
        self._background = background
        self._keep_context = keep_context
        self._inflate = zlib.decompressobj(-15)
        self._header = b""
        self._left = 0
        self._mask = b""
        self._offset = 0
        self._final = False
        self._opcode_is_data = False
        self._compressed = False
        self._seen = b""
        self._size = 0
        self._broken = False
        self._pieces = 0

    @property
    def at_boundary(self) -> bool:
        return not self._left and not self._header

    def feed(self, data: bytes) -> int:
        received = len(data)
        if received <= _MEASURED:
            return self._read(data)
        begun = thread_time()
        frames = self._read(data)
        return max(frames, int((thread_time() - begun - received * _USUAL_S_PER_BYTE) * 1e6))

    def _read(self, data: bytes) -> int:
        at = 0
        size = len(data)
        frames = 0
        while at < size:
            if not self._left:
                frames += 1 + _READ_IN_PARTS
                data, at, size = self._begin(data, at)
                if at < 0:
                    break
                continue
            take = min(self._left, size - at)
            if self._opcode_is_data:
                self._take(_unmasked(data[at : at + take], self._mask, self._offset))
            self._offset += take
            self._left -= take
            at += take
            if not self._left:
                self._end_of_frame()
        frames += self._pieces
        self._pieces = 0
        return frames

    def _begin(self, data: bytes, at: int) -> tuple[bytes, int, int]:
        """Read a frame's header. A negative offset means that it is incomplete."""
        if self._header:
            data = self._header + data[at:]
            self._header = b""
            at = 0
        size = len(data)
        rest = size - at
        need = 2
        length = 0
        if rest >= 2:
            length = data[at + 1] & 127
            need = 4 if length == 126 else 10 if length == 127 else 2
            need += 4 if data[at + 1] & _MASKED else 0
        if rest < need:
            self._header = data[at:]
            return data, -1, size
        first = data[at]
        wide = need - (4 if data[at + 1] & _MASKED else 0)
        if wide > 2:
            length = int.from_bytes(data[at + 2 : at + wide], "big")
        self._mask = data[at + wide : at + need]
        self._offset = 0
        self._left = length
        self._opcode_is_data = not first & 8
        if self._opcode_is_data:
            self._final = bool(first & _FIN)
            if first & 15:
                self._compressed = bool(first & _RSV1)
                self._seen = b""
                self._size = 0
        if not length:
            self._end_of_frame()
        return data, at + need, size

    def _take(self, payload: bytes) -> None:
        if not self._compressed:
            self._note(payload)
        elif not self._broken:
            try:
                while payload and not self._broken:
                    content = self._inflate.decompress(payload, _INFLATE_STEP)
                    self._note(content)
                    payload = self._inflate.unconsumed_tail
                    # Past the budget, no further message can be read, because each depends on the previous ones. Past
                    # a final block, zlib would keep all that follows, and copy it each time.
                    self._broken = not self._activity.may_inflate(len(content)) or self._inflate.eof
            except zlib.error:
                self._broken = True

    def _note(self, content: bytes) -> None:
        self._size += len(content)
        if len(self._seen) <= MAX_BACKGROUND:
            self._seen += content[: MAX_BACKGROUND + 1]

    def _end_of_frame(self) -> None:
        if not self._opcode_is_data or not self._final:
            return
        if self._compressed:
            self._pieces += _INFLATED
            self._take(_DEFLATE_TAIL)
            if not self._keep_context:
                self._inflate = zlib.decompressobj(-15)
        self._pieces += len(self._seen) // _PIECE
        # An unreadable message counts as activity: staying awake too long is better than sleeping too soon.
        if self._broken or self._size > MAX_BACKGROUND or not self._background.is_message(self._seen):
            self._activity.touch()
        if not self._keep_context:
            self._broken = False


def _payload(data: bytes, start: int, end: int, masked: int) -> bytes:
    if not masked:
        return data[start:end]
    return _unmasked(data[start:end], data[start - 4 : start], 0)


def _unmasked(payload: bytes, mask: bytes, offset: int) -> bytes:
    if not mask or not payload:
        return payload
    turn = offset & 3
    key = (mask[turn:] + mask[:turn]) * (len(payload) // 4 + 1)
    size = len(payload)
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key[:size], "big")).to_bytes(size, "big")
