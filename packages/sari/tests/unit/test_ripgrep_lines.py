"""ripgrep's output is parsed in linear time, however it is cut into chunks."""

import time
from collections.abc import Iterator

from sari.index import ripgrep

# Copying what has arrived with every chunk takes minutes; without that, it is a fraction of a second.
_DEADLINE_S = 60.0


def test_a_very_long_line_is_parsed_in_time() -> None:
    output = b"long.txt\x001\x0033554434\x00" + b"x" * (32 << 20) + b" needle\nnext.txt\x002\x001\x00needle\n"

    def chunks() -> Iterator[bytes]:
        deadline = time.monotonic() + _DEADLINE_S
        for at in range(0, len(output), 1_000):
            assert time.monotonic() < deadline, f"{at} bytes were parsed"
            yield output[at : at + 1_000]

    found = list(ripgrep.lines(chunks()))
    assert [(line.path, line.number, line.column, len(line.text)) for line in found] == [
        (b"long.txt", 1, 33_554_434, (32 << 20) + 7),
        (b"next.txt", 2, 1, 6),
    ]


def test_a_record_may_be_cut_anywhere() -> None:
    output = b"a\nb\x001\x001\x00needle\nc\x0012\x0034\x00x needle"
    whole = list(ripgrep.lines([output]))
    assert [(line.path, line.number, line.text) for line in whole] == [
        (b"a\nb", 1, b"needle"),
        (b"c", 12, b"x needle"),
    ]
    for size in range(1, len(output)):
        assert list(ripgrep.lines(output[at : at + size] for at in range(0, len(output), size))) == whole
