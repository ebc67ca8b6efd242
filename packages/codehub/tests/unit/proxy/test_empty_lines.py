"""Empty lines before a request, which anybody may send, are skipped without taking the proxy's time."""

from __future__ import annotations

import pytest

from codehub.proxy.connections.client import empty_lines


class Counted(bytes):
    calls = 0

    def startswith(self, *given: object) -> bool:
        self.calls += 1
        return super().startswith(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [0, 1, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("after", [b"", b"GET / HTTP/1.1\r\n", b"\r", b"\n", b"\r\r\n"])
def test_complete_empty_lines_are_found_and_nothing_else(number: int, after: bytes) -> None:
    assert empty_lines(b"\r\n" * number + after) == 2 * number


def test_a_read_full_of_empty_lines_takes_few_steps() -> None:
    """A read of 256 KB took 131,072 steps, some 10 ms, and one from each of thousands of connections may be waiting."""
    read = Counted(b"\r\n" * (128 << 10))
    assert empty_lines(read) == 256 << 10
    assert read.calls < 500
