"""Whatever bytes come, the parsers read them or refuse them by BadMessage, and agree with themselves in any pieces."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from codehub.proxy.http1.framing import ChunkedBody, LengthBody
from codehub.proxy.http1.headers import PathRewrite, map_cookie, map_location, request_bytes, split_cookies
from codehub.proxy.http1.messages import BadMessage
from codehub.proxy.http1.parser import parse_request, parse_response

MAPPING = PathRewrite(b"/w/x", strip=True)
_bits = st.sampled_from(
    [
        *b"GET|POST| |/|/w/x/|HTTP/1.1|\n|\r|:|Host: a|Content-Length: 3|Transfer-Encoding: chunked".split(b"|"),
        *b"Cookie: codehub_ws=s; a=1|\t|\x00|X: y|Connection: x|HTTP/1.1 200 OK|\r\n".split(b"|"),
    ]
)
heads = st.lists(_bits | st.binary(max_size=6), max_size=14).map(b"".join)


def refused_with(parse: Callable[[bytes], object], raw: bytes) -> int | None:
    try:
        parse(raw)
    except BadMessage as error:
        return error.status
    return None


@given(heads)
def test_a_head_is_read_or_refused_and_what_is_read_is_safe_to_forward(raw: bytes) -> None:
    status = refused_with(parse_request, raw)
    if status is not None:
        assert 400 <= status < 600
        return
    request = parse_request(raw)
    out = request_bytes(request, MAPPING, split_cookies(request.fields.cookie)[1], b"1.2.3.4", upgrade=False)
    assert out.endswith(b"\r\n\r\n")
    assert out.count(b"\r\n\r\n") == 1
    assert out.count(b"\n") == out.count(b"\r\n") == out.count(b"\r")
    assert b"codehub_ws" not in out.partition(b"Cookie: ")[2]
    again = parse_request(out[:-4].replace(b" ", b" /", 1) if out.split(b" ")[1] == b"" else out[:-4])
    assert (again.fields.chunked, again.fields.content_length, again.fields.host) == (
        request.fields.chunked,
        request.fields.content_length,
        request.fields.host,
    )


@given(heads)
def test_an_answer_is_read_or_refused(raw: bytes) -> None:
    assert refused_with(parse_response, b"HTTP/1.1 200 OK\r\n" + raw) in (None, 502)


def outcome(raw: bytes, cuts: list[int]) -> object:
    """Where the body ended, or that it was refused; the same for any cuts."""
    body = ChunkedBody(400, decode=True)
    at = 0
    try:
        for cut in [*sorted({c % (len(raw) + 1) for c in cuts}), len(raw)]:
            if cut <= at:
                continue
            end = body.feed(raw[at:cut], 0)
            if end >= 0:
                return at + end, b"".join(body.decoded)
            at = cut
    except BadMessage:
        return "refused"
    return "more", b"".join(body.decoded)


_chunky = st.sampled_from([b"0", b"5", b"a", b"A;x=y", b"\r\n", b"\n", b"hello", b"X: y", b"Content-Length: 1", b" "])


@given(
    st.lists(_chunky | st.binary(max_size=3), max_size=12).map(b"".join), st.lists(st.integers(0, 100), max_size=8)
)
def test_a_chunked_body_ends_in_the_same_place_in_any_pieces(raw: bytes, cuts: list[int]) -> None:
    assert outcome(raw, cuts) == outcome(raw, [])


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(0, 500), max_size=8))
def test_a_well_formed_chunked_body_is_decoded_whole(pieces: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    assert outcome(raw + b"rest", cuts) == (len(raw), b"".join(pieces))


@given(st.integers(0, 50), st.lists(st.binary(max_size=9), max_size=9))
def test_a_length_is_exact(length: int, pieces: list[bytes]) -> None:
    body = LengthBody(length)
    at = 0
    for piece in pieces:
        end = body.feed(piece, 0)
        if end >= 0:
            assert at + end == length
            return
        at += len(piece)
    assert at < length or not length


@given(st.binary(max_size=60).filter(lambda raw: not set(raw) & {0, 10, 13}))
def test_addresses_and_cookies_never_lead_to_ours(raw: bytes) -> None:
    assert b"codehub_ws" not in map_cookie(raw, MAPPING).partition(b"=")[0]
    location = map_location(raw, MAPPING, b"localhost")
    assert location.startswith(b"/w/x") or location == raw
