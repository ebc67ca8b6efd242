"""Both framings, cut anywhere and mixed with anything."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sari.protocol.framing import Decoder, Refused, encode

MESSAGES = st.lists(
    st.binary(min_size=1, max_size=60).map(lambda raw: b"{" + raw.replace(b"\n", b" ") + b"}"), max_size=8
)


def _feed(decoder: Decoder, stream: bytes, cuts: list[int]) -> list[bytes | Refused]:
    found: list[bytes | Refused] = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        found += decoder.feed(stream[start:end])
    return found


@given(MESSAGES, st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(
    messages: list[bytes], uses_headers: bool, cuts: list[int]
) -> None:
    stream = b"".join(encode(message, uses_headers) for message in messages)
    assert _feed(Decoder(), stream, cuts) == messages


@given(st.binary(max_size=400), st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
def test_any_bytes_at_all_neither_raise_nor_pile_up(garbage: bytes, uses_headers: bool, cuts: list[int]) -> None:
    decoder = Decoder(limit=64)
    head = b"Content-" if uses_headers else b"{"
    for _ in range(20):
        for item in _feed(decoder, head + garbage, cuts):
            assert isinstance(item, Refused) or len(item) <= 64
    assert len(decoder._buffer) < 64 + 8192 + len(garbage) + 16


@given(st.integers(65, 5_000), st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_message_over_the_limit_is_refused_once_and_the_next_one_arrives(
    size: int, uses_headers: bool, cuts: list[int]
) -> None:
    stream = encode(b"{" + b"x" * size, uses_headers) + encode(b"{}", uses_headers)
    found = _feed(Decoder(limit=64), stream, cuts)
    assert [type(item) for item in found] == [Refused, bytes]
    assert found[1] == b"{}"


def test_a_bad_header_loses_only_its_own_message() -> None:
    found = Decoder().feed(b"Content-Length: x\r\n\r\n{}Content-Length: 2\r\n\r\n{}")
    assert found[-1] == b"{}"
    assert isinstance(found[0], Refused)
