"""What a registry sends is parsed in small pieces, and takes at most a tenth of the event loop."""

from __future__ import annotations

import httpcore
import pytest

from codehub.adapters.registry.paced_stream import PacedStream


class Clock:
    """Processor time that passes when the test says so, and the pauses that were made."""

    def __init__(self) -> None:
        self.used_s = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.used_s

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_at_most_four_kilobytes_are_parsed_at_once_however_many_there_are() -> None:
    stream = PacedStream(httpcore.AsyncMockStream([b"x" * 1000]), Clock().now)
    assert len(await stream.read(1 << 20)) == 1000
    asked: list[int] = []

    class Inner(httpcore.AsyncMockStream):
        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            asked.append(max_bytes)
            return await super().read(max_bytes, timeout)

    stream = PacedStream(Inner([b"x"] * 3))
    for most in (1 << 20, 4096, 10):
        await stream.read(most)
    assert asked == [4096, 4096, 10]


async def test_the_more_time_parsing_takes_the_later_the_next_piece_is_read() -> None:
    clock = Clock()
    stream = PacedStream(httpcore.AsyncMockStream([b"x"] * 10), clock.now, clock.sleep)
    await stream.read(1)
    clock.used_s += 0.03
    await stream.read(1)
    await stream.read(1)
    assert clock.pauses == [pytest.approx(0.27), 0.0]


async def test_the_time_between_two_requests_does_not_count() -> None:
    clock = Clock()
    stream = PacedStream(httpcore.AsyncMockStream([b"x"] * 10), clock.now, clock.sleep)
    await stream.read(1)
    clock.used_s += 100.0
    await stream.write(b"GET / HTTP/1.1")
    await stream.read(1)
    assert clock.pauses == []
