"""A viewer that attaches later sees what one sees that was there all the time: compared in the page's own xterm.js.

Left out is what xterm.js does differently from other terminals and what cannot be drawn again:

* a saved cursor together with styles and colours of underlines (SGR 4:n, 58, 59), which xterm.js does not restore
* a saved cursor after the scrollback was cleared, which moves it
* half of a wide character that something else overwrote, and the scrollback of the alternate screen
* for resizes: backgrounds of erased cells, the alignment pattern (`ESC # 8`) and saved cursors
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codehub.workspaced import char_width
from codehub.workspaced.vt import Terminal
from testing.codehub.xterm import PAGE, Size, Xterm, running_xterm

pytestmark = pytest.mark.needs("npm")

Pieces = list[bytes]


def sequences(*each: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from([text.encode() for text in each])


text = st.lists(
    st.sampled_from(["abc", " ", "hello world ", "漢", "字かな", "😀", "e\u0301", "é", "0123456789abcdef", "lqk"]),
    min_size=1,
    max_size=4,
).map(lambda words: "".join(words).encode())
controls = sequences("\r\n", "\r\n", "\n", "\r", "\b", "\t", "\x1bM", "\x1bD", "\x1bE")
moves = st.builds(
    lambda numbers, final: f"\x1b[{';'.join(map(str, numbers))}{final}".encode(),
    st.lists(st.integers(0, 12), max_size=2),
    st.sampled_from("ABCDEFGHLMPX@STdef`aIZ"),
)
erasures = sequences("\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2K")
colours = sequences(
    "\x1b[31m", "\x1b[38;5;208m", "\x1b[1m", "\x1b[7m", "\x1b[9;2;3m", "\x1b[22m", "\x1b[53m", "\x1b[m"
)
backgrounds = sequences("\x1b[44m", "\x1b[48;2;1;2;3m", "\x1b[49m", "\x1b[101m")
underlines = sequences("\x1b[4m", "\x1b[4:3m", "\x1b[58;5;3m", "\x1b[21m", "\x1b[24m", "\x1b[3J")
charsets = sequences("\x1b(0", "\x1b(B", "\x1b)0", "\x0e", "\x0f", "\x1b(A")
stops = sequences("\x1bH", "\x1b[g", "\x1b[3g", "\t")
regions = sequences("\x1b[2;4r", "\x1b[1;3r", "\x1b[3;6r", "\x1b[r")
saved = sequences("\x1b7", "\x1b8", "\x1b[s", "\x1b[u", "\x1b[?1048h")
screens = sequences("\x1b[?47h", "\x1b[?47l", "\x1b[?1047h", "\x1b[?1047l")
full_screen = sequences("\x1b[?1049h", "\x1b[?1049l", "\x1b#8")
columns = sequences("\x1b[2 @", "\x1b[2 A", "\x1b[1'}", "\x1b[1'~", "x\x1b[3b")
switches = sequences(
    "\x1b[?7l", "\x1b[?7h", "\x1b[4h", "\x1b[4l", "\x1b[?2004h", "\x1b[?2004l", "\x1b[?1h", "\x1b[?25l", "\x1b[?25h",
    "\x1b[?6h", "\x1b[?6l", "\x1b[?1000h", "\x1b[?1002h", "\x1b[?1002l", "\x1b[?1006h", "\x1b[?1004h", "\x1b[!p", "\x1b=",
    "\x1b[?45h", "\x1b[20h", "\x1b[20l", "\x1b[3 q", "\x1b[0 q", "\x1b[?12h",
)  # fmt: skip
odd = st.one_of(
    st.binary(max_size=6),
    sequences(
        "\x1b[1\n2m", "\x1b[3\x1b[4Cx", "\x1b[99999999999C", "\x1b[00000000000002Cx", "\x1b[1?2hx", "\x1b[?1;2",
        "\x1b[\x18x", "\x1b[é", "\x9b2Cx", "\x9d2;t\x07", "\x84", "\x1b(", "\x1b", "\x1b]2;title", "\x1b]2;a\x1b[3Cb",
        "\x1bPq#0\nab\x1b\\", "\x1bX\x9c", "\x1b_G\x07", "\x07", "\x1b\\", "\x18", "\x7f", "\ufeff", "\x1b^aé", "m",
    ),
)  # fmt: skip
lines = st.one_of(text, text, controls, moves, colours)
anything = st.one_of(
    lines, erasures, backgrounds, charsets, stops, regions, saved, screens, full_screen, columns, switches
)
styled = st.one_of(lines, erasures, backgrounds, underlines, screens, regions)
resizable = st.one_of(lines, erasures, charsets, stops, screens, switches)
sizes = st.sampled_from([(12, 6), (20, 7), (13, 5)])


@pytest.fixture(scope="module")
def xterm() -> Iterator[Xterm]:
    with running_xterm() as running:
        yield running


def same(xterm: Xterm, size: Size, before: Pieces, after: Pieces, resized: Size | None = None) -> None:
    """Compare both viewers when the second one attaches, and after more output."""
    terminal = Terminal(*size)
    terminal.feed(b"".join(before))
    if resized:
        terminal.resize(*resized)
    more = b"".join(after)
    first = xterm.states(size, b"".join(before), *([resized] if resized else []), None, more, None)
    second = xterm.states(resized or size, terminal.snapshot(), None, more, None)
    assert second == first


@given(sizes, st.lists(anything, max_size=50), st.lists(anything, max_size=20))
@example((20, 7), [b"\x1b[3g\x1b[5G\x1bH\r"], [b"\tx"])
@example((20, 7), [b"main\x1b[2;5r\x1b7\x1b[?1049h\x1b[1;3r\x1b[6 q"], [b"\x1b[?1049l\n\n\n\n\n\nx"])
@example((12, 6), [b"0123456789ab"], [b"\x1b[Kx"])
@example((12, 6), ["a😀b".encode()], [b"\x1b[1;4HX"])
@example((12, 6), [b"\x1b(0\x1b7\x1b(B\x1b8"], [b"lqk"])
@example((12, 6), [b"\x1b[?1000h\x1b[?1002h\x1b[?1002l"], [])
def test_a_viewer_that_attaches_later_sees_what_the_first_one_sees(
    xterm: Xterm, size: Size, before: Pieces, after: Pieces
) -> None:
    same(xterm, size, before, [b"\r", *after])


@given(sizes, st.lists(st.one_of(lines, odd), max_size=30), st.lists(st.one_of(lines, odd), max_size=10))
@example((20, 7), [b"caf\xe9 latin-1"], [])
@example((20, 7), [b"\x1b[999999999999C"], [b"x"])
@example((20, 7), [b"\x1b]52;c;" + b"QUJD" * 20_000], [b"QUJD" * 20_000 + b"\x07x"])
@example((20, 7), [b"\x1bPq" + b"#0~~" * 20_000], [b"#0~~\x1b\\x"])
@example((20, 7), [b"\x1b[" + b"1" * 100_000], [b"11Cx"])
def test_interrupted_and_malformed_sequences_are_read_as_xterm_reads_them(
    xterm: Xterm, size: Size, before: Pieces, after: Pieces
) -> None:
    same(xterm, size, before, after)


@given(sizes, st.lists(styled, max_size=50), st.lists(styled, max_size=20))
def test_underlines_and_their_colours_are_seen_by_a_later_viewer(
    xterm: Xterm, size: Size, before: Pieces, after: Pieces
) -> None:
    same(xterm, size, before, after)


@given(sizes, st.sampled_from([(8, 4), (15, 9), (25, 6), (12, 3)]), st.lists(resizable, max_size=50))
@example((20, 7), (12, 7), [b"0123456789abcdefghijklmnopq\r\n$ "])
@example((12, 7), (20, 7), [b"0123456789abcdefghijklmnopq\r\n$ "])
def test_a_viewer_that_attaches_after_a_resize_sees_lines_broken_in_the_same_places(
    xterm: Xterm, size: Size, resized: Size, before: Pieces
) -> None:
    same(xterm, size, before, [], resized)


@pytest.mark.parametrize("char", ["漢", "😀", "🧑", "⌚", "é", "ﬀ", "한", "①", "─", "\U00020000", "✔"])
def test_programs_the_model_and_the_page_agree_how_wide_a_character_is(xterm: Xterm, char: str) -> None:
    terminal = Terminal(10, 2)
    terminal.feed(char.encode())
    (state,) = xterm.states((10, 2), char.encode(), None)
    assert state["cursor"] == [terminal.screen.x, 0]


def test_the_page_and_the_model_have_the_same_table_of_widths() -> None:
    source = (PAGE / "char_width.js").read_text()
    page = ["".join(re.findall(r'"([0-9a-f -]+)"', part)) for part in re.findall(r"const \w+ =\n([^;]+);", source)]
    assert page == [char_width.WIDE, char_width.ZERO]
