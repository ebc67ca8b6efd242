"""Which messages are nobody's work, and that frames are found whatever pieces they arrive in."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.domain.errors import Invalid
from codehub.domain.profiles import CODE_SERVER, SHIPPED
from codehub.proxy.activity.background_traffic import BackgroundTraffic
from codehub.proxy.activity.buffer import INFLATED_BYTES_PER_S, Activity, ActivityBuffer
from codehub.proxy.activity.websocket_frames import FrameScanner, InflatingScanner, Scanner
from codehub.proxy.coarse_clock import CoarseClock
from testing.codehub.memory.activity import MemoryActivity

KEEPALIVE = bytes([9]) + bytes(12)
ACK = bytes([3]) + bytes(12)
KEYSTROKE = bytes([1]) + bytes(8) + (12).to_bytes(4, "big") + b"a key stroke"
RULES = BackgroundTraffic(["ws:vscode-keepalive"])


def activity() -> Activity:
    clock = CoarseClock(lambda: 100.0, lambda: 1_000.0)
    return ActivityBuffer(MemoryActivity(), clock, flush_interval_s=30, shortest_ttl_s=600).of("w")


def touched(made: Activity) -> bool:
    return made.quiet_at > 0


def frame(payload: bytes, *, opcode: int = 2, mask: bytes = b"", rsv1: bool = False) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + size.to_bytes(2, "big") if size < 65_536 else b"\x7f" + size.to_bytes(8, "big")
    first = bytes([0x80 | opcode | (0x40 if rsv1 else 0)])
    if not mask:
        return first + length + payload
    hidden = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    return first + bytes([length[0] | 0x80]) + length[1:] + mask + hidden


def feed(scanner: Scanner, raw: bytes, cuts: list[int]) -> None:
    at = 0
    for cut in [*sorted({c % (len(raw) + 1) for c in cuts}), len(raw)]:
        if cut > at:
            scanner.feed(raw[at:cut])
            at = cut


@pytest.mark.parametrize(
    ("payload", "background"),
    [
        (KEEPALIVE, True),
        (ACK, True),
        (KEEPALIVE + ACK, True),
        (b"", True),
        (KEYSTROKE, False),
        (ACK + KEYSTROKE, False),
        (KEEPALIVE[:5], False),
        (b"text", False),
    ],
)
def test_vscodes_upkeep_is_background_traffic_and_its_messages_are_not(payload: bytes, background: bool) -> None:
    assert RULES.is_message(payload) is background


def message(text: bytes) -> bytes:
    return bytes([1]) + bytes(8) + len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    ("payload", "background"),
    [
        (message(b'{"path":"/home/.own/lock"}'), True),
        (message(b'{"path":"/home/.own/lock"}') + ACK + message(b"12345"), True),
        (message(b'[{"path":"/home/.own/lock"},{"path":"/home/mine.txt"}]'), False),
        (message(b'{"path":"/home/mine.txt"}'), False),
        (message(b'{"path":"/home/.own/lock"}') + KEYSTROKE[:9] + b"\0\0\0\x10" + b"sixteen letters.", False),
    ],
)
def test_messages_about_the_ides_own_files_are_background_traffic(payload: bytes, background: bool) -> None:
    assert BackgroundTraffic(["ws:vscode-message:/.own/"]).is_message(payload) is background


# As code-server 4.139 sends them from a tab that nobody touches.
LOGGED = (
    b'\x01\0\0\0*f\x0c$onFileEvent\0\0\0\xa3[{"created":[],"changed":[{"$mid":1,"external":"vscode-log:/20261117T124607/'
    b'window.log","path":"/20261117T124607/window.log","scheme":"vscode-log"}],"deleted":[]}]'
)
EDITED = LOGGED.replace(b"vscode-log:/", b"vscode-remote://x/").replace(b"window.log", b"mine.txt")
DONE = bytes.fromhex("040206c90106a6060504") + b"null"


@pytest.mark.parametrize(
    ("payload", "background"),
    [
        (message(LOGGED), True),
        (message(LOGGED) + ACK + message(LOGGED), True),
        (message(EDITED), False),
        (message(LOGGED) + message(EDITED), False),
        (message(DONE), True),
        (message(DONE) + message(DONE.replace(b"\xa6\x06", b"\x05")), True),
        (message(DONE.replace(b"null", b"true")), False),
        (message(DONE + b"more"), False),
        (message(b'\x01\0\0\x01\xd83\r$resolveProxy\0\0\0n["https://mobile.events.data.microsoft.com/One"]'), True),
        (message(b'\x01\0\0\x01\xd83\x0b$publicLog2\0\0\0z["activatePlugin",{"id":"vscode.npm"}]'), True),
        (message(b'\x01\0\0\x01\xd83\x08$setText\0\0\0z["typed"]'), False),
    ],
)
def test_what_an_untouched_tab_of_code_server_sends_is_background_traffic(payload: bytes, background: bool) -> None:
    assert BackgroundTraffic(CODE_SERVER.background_traffic).is_message(payload) is background


def test_a_message_that_holds_a_text_is_background_traffic_where_the_profile_says_so() -> None:
    background = BackgroundTraffic(['ws:text:"action": "get"'])
    assert background.is_message(b'{"action": "get", "path": "x"}')
    assert not background.is_message(b'{"action": "save", "path": "x"}')


def test_requests_are_matched_by_method_and_path() -> None:
    background = BackgroundTraffic(["GET /api/kernels", "GET /poll*"])
    assert background.is_request(b"GET", b"/api/kernels")
    assert background.is_request(b"GET", b"/poll/1")
    assert not background.is_request(b"POST", b"/api/kernels")
    assert not background.is_request(b"GET", b"/api/kernels/1")


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="ws:unknown"):
        BackgroundTraffic(["ws:unknown"])


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_profiles_rules_are_all_known(name: str) -> None:
    BackgroundTraffic(SHIPPED[name].background_traffic)


messages = st.lists(
    st.tuples(
        st.sampled_from([KEEPALIVE, ACK, KEEPALIVE * 3, b""])
        | st.just(bytes([9]) + bytes(8) + b"\0\0\1\x2c" + bytes(300)),
        st.sampled_from([2, 9, 10]),
        st.sampled_from([b"", b"\x01\x02\x03\x04"]),
    ),
    max_size=8,
)
cuts = st.lists(st.integers(0, 5_000), max_size=20)


@given(messages, cuts, st.booleans())
def test_work_is_seen_and_background_traffic_is_not_whatever_the_pieces(
    sent: list[tuple[bytes, int, bytes]], pieces: list[int], works: bool
) -> None:
    raw = b"".join(frame(p if opcode == 2 else p[:20], opcode=opcode, mask=mask) for p, opcode, mask in sent)
    if works:
        raw += frame(KEYSTROKE, mask=b"\x09\x08\x07\x06")
    made = activity()
    scanner = FrameScanner(made, CoarseClock(lambda: 100.0, lambda: 0.0), RULES)
    feed(scanner, raw, pieces)
    assert touched(made) is works
    assert scanner.at_boundary


@given(messages, cuts, st.booleans(), st.booleans())
def test_the_same_holds_through_permessage_deflate(
    sent: list[tuple[bytes, int, bytes]], pieces: list[int], works: bool, keep_context: bool
) -> None:
    deflate = zlib.compressobj(wbits=-15)
    raw = b""
    for payload, opcode, mask in [*sent, *([(KEYSTROKE, 2, b"abcd")] if works else [])]:
        if opcode != 2:
            raw += frame(payload[:20], opcode=opcode, mask=mask)
            continue
        squeezed = deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH)
        raw += frame(squeezed.removesuffix(b"\x00\x00\xff\xff"), mask=mask, rsv1=True)
        if not keep_context:
            deflate = zlib.compressobj(wbits=-15)
    made = activity()
    scanner = InflatingScanner(made, RULES, keep_context=keep_context)
    feed(scanner, raw, pieces)
    assert touched(made) is works
    assert scanner.at_boundary


@given(st.binary(max_size=4_000), cuts)
def test_nonsense_never_breaks_a_scanner(raw: bytes, pieces: list[int]) -> None:
    feed(FrameScanner(activity(), CoarseClock(lambda: 100.0, lambda: 0.0), RULES), raw, pieces)
    feed(InflatingScanner(activity(), RULES, keep_context=True), raw, pieces)


def test_small_messages_inside_frames_count_as_pieces() -> None:
    """Each frame takes as long to compare as a hundred keep-alives, and a read of 256 KB has only 62 of them."""
    raw = frame(bytes([1] + [0] * 12) * 315) * 62
    clock = CoarseClock(lambda: 100.0, lambda: 0.0)
    for scanner in (FrameScanner(activity(), clock, RULES), InflatingScanner(activity(), RULES, keep_context=True)):
        assert scanner.feed(raw) > 62 * 50
        assert scanner.feed(frame(KEEPALIVE)) == 2


@pytest.mark.parametrize("keep_context", [True, False])
def test_compressed_messages_cost_what_they_take_to_inflate(keep_context: bool) -> None:
    """Four times as long as a frame that is skipped: 50,000 of them took a quarter of the proxy's time."""
    compressed = frame(b"\x00", mask=b"abcd", rsv1=True)
    assert InflatingScanner(activity(), RULES, keep_context=keep_context).feed(compressed * 100) >= 400


# Eight blocks of deflate: the tables of one code, and the end of the block. They inflate to nothing.
TABLES_ONLY = bytes.fromhex(
    "04c081000000000090ff6b100007020000000040feaf41001c080000000000f9bf060170200000000000e4ff1a"
    "04c081000000000090ff6b100007020000000040feaf41001c080000000000f9bf060170200000000000e4ff1a"
)


@pytest.mark.parametrize("keep_context", [True, False])
def test_blocks_that_inflate_to_nothing_cost_what_they_take(keep_context: bool) -> None:
    """A read of 256 KB takes 20 ms, as a single frame. What compressors make takes a tenth of that."""
    raw = frame(TABLES_ONLY * 2900, mask=b"abcd", rsv1=True)
    scanner = InflatingScanner(activity(), RULES, keep_context=keep_context)
    assert scanner.feed(raw) > 500
    assert scanner.at_boundary
    assert not scanner._seen


@pytest.mark.parametrize("keep_context", [True, False])
def test_what_follows_a_final_block_is_not_kept(keep_context: bool) -> None:
    """64 MB after such a block took 64 MB, and 22 s of everybody's time."""
    made = activity()
    scanner = InflatingScanner(made, RULES, keep_context=keep_context)
    deflate = zlib.compressobj(wbits=-15)
    final = deflate.compress(KEEPALIVE) + deflate.flush(zlib.Z_FINISH)
    size = len(final) + 100 * 65_536
    scanner.feed(b"\xc2\x7f" + size.to_bytes(8, "big") + final)
    for _ in range(100):
        scanner.feed(bytes(65_536))
    assert scanner.at_boundary
    assert len(scanner._inflate.unused_data) <= 65_536
    assert touched(made)


@pytest.mark.parametrize("keep_context", [True, False])
def test_a_deflate_bomb_is_inflated_only_up_to_a_budget_and_counts_as_work(keep_context: bool) -> None:
    deflate = zlib.compressobj(9, wbits=-15)
    bomb = deflate.compress(bytes(64 << 20)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    raw = frame(bomb.removesuffix(b"\x00\x00\xff\xff"), mask=b"abcd", rsv1=True)
    inflated: list[int] = []

    class Counted(Activity):
        def may_inflate(self, size: int) -> bool:
            inflated.append(size)
            return super().may_inflate(size)

    made = Counted("w", activity()._buffer)
    scanner = InflatingScanner(made, RULES, keep_context=keep_context)
    for _ in range(10):  # 640 MB in the same second
        scanner.feed(raw)
    assert touched(made)
    assert scanner.at_boundary
    assert sum(inflated) < 2 * INFLATED_BYTES_PER_S
