"""The terminal's model. `test_reattached_screen.py` compares it with xterm.js."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codehub.workspaced.vt import Terminal


def fed(data: bytes, cols: int = 20, rows: int = 5) -> Terminal:
    terminal = Terminal(cols, rows)
    terminal.feed(data)
    return terminal


def lines(terminal: Terminal) -> list[str]:
    return [line.text for line in terminal.screen.lines]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"one\r\ntwo", ["one", "two", "", "", ""]),
        (b"a" * 25, ["a" * 20, "aaaaa", "", "", ""]),
        (b"abc\x1b[2Dx", ["axc", "", "", "", ""]),
        (b"abc\x1b[1;1HX\x1b[3;4HY", ["Xbc", "", "   Y", "", ""]),
        (b"abc\x1b[2Jx", ["   x", "", "", "", ""]),
        (b"abcdef\x1b[3G\x1b[K", ["ab", "", "", "", ""]),
        (b"1\r\n2\r\n3\r\n4\r\n5\r\n6", ["2", "3", "4", "5", "6"]),
        (b"1\r\n2\r\n3\x1b[2;2r\x1b[2;3r\x1b[3;1H\nx", ["1", "3", "x", "", ""]),
        (b"abcd\x1b[2G\x1b[2P", ["ad", "", "", "", ""]),
        (b"abcd\x1b[2G\x1b[2@", ["a  bcd", "", "", "", ""]),
        (b"1\r\n2\r\n3\x1b[2;1H\x1b[L", ["1", "", "2", "3", ""]),
        (b"1\r\n2\r\n3\x1b[1;1H\x1b[M", ["2", "3", "", "", ""]),
        (b"main\x1b[?1049h\x1b[Halt", ["alt", "", "", "", ""]),
        (b"main\x1b[?1049h\x1b[Halt\x1b[?1049l", ["main", "", "", "", ""]),
        (b"\x1b(0lqk\x1b(B x", ["┌─┐ x", "", "", "", ""]),
        ("漢字かな".encode(), ["漢字かな", "", "", "", ""]),
        ("e\u0301x".encode(), ["e\u0301x", "", "", "", ""]),
        (b"a\tb", ["a       b", "", "", "", ""]),
        (b"\x1b]0;title\x07text", ["text", "", "", "", ""]),
        (b"\x1bP+q544e\x1b\\text", ["text", "", "", "", ""]),
        (b"x\x1b[5b", ["xxxxxx", "", "", "", ""]),
        (b"\x1b[3\x1b[1mx", ["x", "", "", "", ""]),
        (b"\x1b]0;title\x1b[1mx", ["x", "", "", "", ""]),
        (b"\x1b[3\nCx", ["", "   x", "", "", ""]),
        (b"\x1b\x1b[1mx", ["x", "", "", "", ""]),
    ],
)
def test_sequences_do_what_xterm_does(data: bytes, wanted: list[str]) -> None:
    assert lines(fed(data)) == wanted


def test_a_wide_character_that_does_not_fit_goes_to_the_next_line() -> None:
    assert lines(fed("abc漢".encode(), cols=4)) == ["abc", "漢", "", "", ""]


def test_half_of_a_wide_character_that_is_overwritten_becomes_blank() -> None:
    assert lines(fed("漢字\x1b[2Gx".encode())) == [" x字", "", "", "", ""]


def test_what_scrolled_out_is_kept_and_a_flood_leaves_only_its_end() -> None:
    terminal = fed(b"".join(b"line %d\r\n" % number for number in range(5000)))
    kept = [line.text for line in terminal.screen.scrollback]
    assert len(kept) == 1000
    assert kept[-1] == "line 4995"
    assert lines(terminal) == ["line 4996", "line 4997", "line 4998", "line 4999", ""]


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=20))
def test_how_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    whole = fed(data)
    parts = Terminal(20, 5)
    at = 0
    for size in [*cuts, len(data)]:
        parts.feed(data[at : at + size])
        at += size
    assert lines(parts) == lines(whole)


@given(st.binary(max_size=400))
def test_no_bytes_break_it(data: bytes) -> None:
    terminal = fed(data, cols=3, rows=2)
    terminal.resize(7, 4)
    terminal.feed(data)
    terminal.resize(1, 1)
    terminal.feed(data)
    terminal.snapshot()
