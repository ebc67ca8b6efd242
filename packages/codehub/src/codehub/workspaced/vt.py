"""Escape sequences: applies bytes to a screen as xterm.js does. `snapshot` is the way back, for a new viewer.

Covers what users of xterm rely on: vim, htop, less, tmux, colours, wide characters, the alternate screen. The viewers' own
terminals answer sequences that query the terminal.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from . import sgr
from .reflow import resize
from .screen import Screen
from .sequences import Control, Csi, Escape, Osc, Sequence
from .snapshot import Modes, snapshot

# Complete sequences, nearly all of what programs send. `Sequence` reads the others.
_TOKEN = re.compile(
    "([^\x00-\x1f\x7f-\x9f]+)"  # text
    "|\x1b\\[([<-?]?[0-;]*)([ -/]*)([@-~])"  # CSI
    "|\x1b\\]([^\x00-\x1f\x7f-\x9f]*)(?:\x07|\x1b\\\\)"  # OSC
    "|\x1b([ -/]*)([0-OQ-WYZ\\\\`-~])"  # other escapes
    "|([\x00-\x1a\x1c-\x1f\x7f-\x8f\x91-\x97\x99\x9a\x9c])"  # control characters
)
_SLICE = 4096
_TOKENS = 8  # between two pauses: a sequence of a few bytes can change a whole screen
_PLAIN = re.compile("[^\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]*\\Z")
_GRAPHICS = str.maketrans(
    "`abcdefghijklmnopqrstuvwxyz{|}~", "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
)  # fmt: skip
_POUND = str.maketrans("#", "£")
_CHARSETS = frozenset("0AB")  # the national ones of the VT220 are drawn as ASCII
_GRAPHIC_SETS = {"(": 0, ")": 1, "*": 2, "+": 3, "-": 1, ".": 2}
_LARGEST_NUMBER = 0x7FFFFFFF
_LEVELS = {"n": 2, "o": 3, "|": 3, "}": 2, "~": 1}
_MOUSE = frozenset((9, 1000, 1002, 1003))
_MOUSE_ENCODINGS = frozenset((1006, 1016))


class Terminal:
    """A screen that processes bytes."""

    def __init__(self, cols: int, rows: int) -> None:
        self.screen = Screen(cols, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._sequence = Sequence()
        self.modes = Modes()
        self.skipped = True  # lines of the last large block need not be drawn
        self._drawn = False  # the last thing that came was text, which can be repeated

    def resize(self, cols: int, rows: int) -> None:
        resize(self.screen, cols, rows)

    def feed(self, data: bytes) -> None:
        for _ in self.feeding(data):
            pass

    def feeding(self, data: bytes) -> Iterator[None]:
        """Like `feed`, in slices of at most a few milliseconds: the caller may do other things between them."""
        text = self._decoder.decode(data).replace("\ufeff", "")
        if len(text) > _SLICE:
            text = self._skip(text)
        for at in range(0, len(text), _SLICE):
            yield from self._apply(text[at : at + _SLICE])
            yield

    def _apply(self, text: str) -> Iterator[None]:
        at, end = 0, len(text)
        match, sequence = _TOKEN.match, self._sequence
        count = 0
        while at < end:
            count += 1
            if count % _TOKENS == 0:
                yield
            found = None if sequence.text else match(text, at)
            if found is None:
                at, event = sequence.read(text, at)
                self._handle(event)
                continue
            at = found.end()
            kind = found.lastindex
            if kind == 1:
                self._draw(found.group(1))
                self._drawn = True
                continue
            if kind == 8:
                self._control(found.group(8))
            elif kind == 4:
                self._csi(found.group(2), found.group(3), found.group(4))
            elif kind == 7:
                self._escape(found.group(6), found.group(7))
            elif kind == 5:
                self._osc(found.group(5))
            self._drawn = False

    def _handle(self, event: Control | Escape | Csi | Osc | None) -> None:
        if event is None:
            return
        if isinstance(event, Control):
            self._control(event.char)
        elif isinstance(event, Csi):
            self._csi(*event)
        elif isinstance(event, Escape):
            self._escape(*event)
        else:
            self._osc(event.text)
        self._drawn = False

    def _draw(self, text: str) -> None:
        charset = self.modes.charset
        if charset != "B":
            text = text.translate(_GRAPHICS if charset == "0" else _POUND)
        self.screen.draw(text)

    def _skip(self, text: str) -> str:
        """Skip plain lines that would scroll out of the scrollback anyway."""
        screen = self.screen
        self.skipped = (
            self.modes.charset == "B"
            and not self._sequence.text
            and (screen.top, screen.bottom) == (0, screen.rows - 1)
            and _PLAIN.match(text) is not None
        )
        kept = screen.rows + (screen.scrollback.maxlen or 0)
        if not self.skipped or text.count("\n") <= kept:
            return text
        at = len(text)
        for _ in range(kept + 1):
            at = text.rfind("\n", 0, at)
        if text[at - 1 : at] != "\r":
            return text  # the column of the cursor is known only after it was drawn
        screen.x = 0
        return text[at:]

    def _control(self, char: str) -> None:
        screen = self.screen
        if char in "\n\x0b\x0c":
            if self.modes.newline:
                screen.x = 0
            screen.line_feed()
        elif char == "\r":
            screen.x = 0
        elif char == "\b":
            screen.backspace()
        elif char == "\t":
            screen.tab()
        elif char in "\x0e\x0f":
            self._set_level(1 if char == "\x0e" else 0)
        elif char in "\x84\x85\x88":
            self._escape("", {"\x84": "D", "\x85": "E", "\x88": "H"}[char])

    def _osc(self, text: str) -> None:
        number, _, value = text.partition(";")
        if number in ("0", "2"):
            self.modes.title = value[:256]

    def _set_level(self, level: int) -> None:
        self.modes.level = level
        self.modes.charset = self.modes.charsets[level]

    def _designate(self, index: int, name: str) -> None:
        self.modes.charsets[index] = name
        if index == self.modes.level:
            self.modes.charset = name

    def _escape(self, between: str, final: str) -> None:
        screen = self.screen
        if between in _GRAPHIC_SETS:
            if final in _CHARSETS:
                self._designate(_GRAPHIC_SETS[between], final)
        elif between == "#" and final == "8":
            screen.fill("E")
        elif between == "%" and final in "@G":
            self._set_level(0)
            self._designate(0, "B")
        elif between:
            return
        elif final == "7":
            screen.save(self.modes.charset)
        elif final == "8":
            self.modes.charset = screen.restore()
        elif final == "D":
            screen.index()
        elif final == "E":
            screen.x = 0
            screen.index()
        elif final == "H":
            screen.tabs.add(screen.x)
        elif final == "M":
            screen.reverse_index()
        elif final == "c":
            screen.reset()
            self.modes = Modes(title=self.modes.title, newline=self.modes.newline, blink=self.modes.blink)
        elif final in "=>":
            self.modes.set(66, final == "=")
        elif final in _LEVELS:
            self._set_level(_LEVELS[final])

    def _csi(self, text: str, between: str, final: str) -> None:
        private = text[:1] if text[:1] in "<=>?" else ""
        parameters = _parameters(text[len(private) :])
        numbers = [parts[0] for parts in parameters]
        if between:
            if not private:
                self._csi_between(between, final, numbers[0])
        elif private:
            if private == "?" and final in "hl":
                for number in numbers:
                    self._mode(number, final == "h")
            elif private == "?" and final in "JK":
                self._move(final, numbers)
        elif final == "m":
            self.screen.set_pen(sgr.apply(self.screen.pen, parameters))
        elif final in "hl":
            if 4 in numbers:
                self.screen.insert = final == "h"
            if 20 in numbers:
                self.modes.newline = final == "h"
        else:
            self._move(final, numbers)

    def _csi_between(self, between: str, final: str, first: int) -> None:
        screen = self.screen
        count = max(1, first)
        if between == "!" and final == "p":
            self._soft_reset()
        elif between == " " and final == "q":
            self.modes.cursor_style = first if first <= 6 else self.modes.cursor_style
        elif between == " " and final in "@A":
            screen.shift_columns(0, count if final == "A" else -count)
        elif between == "'" and final in "}~":
            screen.shift_columns(screen.x, count if final == "}" else -count)

    def _move(self, final: str, numbers: list[int]) -> None:
        screen = self.screen
        first = numbers[0]
        count = max(1, first)
        if final in "Hf":
            second = numbers[1] if len(numbers) > 1 else 1
            screen.move_to(max(1, second) - 1, count - 1)
        elif final in "AF":
            screen.move_up(count)
            screen.x = 0 if final == "F" else screen.x
        elif final in "BE":
            screen.move_down(count)
            screen.x = 0 if final == "E" else screen.x
        elif final in "CDae":
            screen.move_by(*{"C": (count, 0), "D": (-count, 0), "a": (count, 0), "e": (0, count)}[final])
        elif final in "G`":
            screen.move_to(count - 1, screen.y)
        elif final == "d":
            screen.move_to(screen.x, count - 1)
        elif final == "J" and first <= 3:
            screen.erase_display(first)
        elif final == "K" and first <= 2:
            screen.erase_line(first)
        elif final in "LMP@XST":
            change = {
                "L": screen.insert_lines, "M": screen.delete_lines, "P": screen.delete_chars, "@": screen.insert_chars,
                "X": screen.erase_chars, "S": screen.scroll_up, "T": screen.scroll_down,
            }[final]  # fmt: skip
            change(count)
        elif final in "IZ":
            for _ in range(min(count, screen.cols)):
                screen.tab() if final == "I" else screen.back_tab()
        elif final == "g":
            screen.tabs = set() if first == 3 else screen.tabs - ({screen.x} if first == 0 else set())
        elif final == "r":
            bottom = numbers[1] if len(numbers) > 1 and numbers[1] else screen.rows
            screen.set_region(count - 1, min(bottom, screen.rows) - 1)
        elif final == "s":
            screen.save(self.modes.charset)
        elif final == "u":
            self.modes.charset = screen.restore()
        elif final == "b" and self._drawn:
            self._repeat(count)

    def _repeat(self, count: int) -> None:
        screen = self.screen
        chars = screen.lines[screen.y].chars
        at = min(screen.x, screen.cols) - 1
        if at > 0 and chars[at] == "":
            at -= 1
        if at >= 0 and chars[at]:
            screen.draw(chars[at] * min(count, screen.cols * screen.rows))

    def _soft_reset(self) -> None:
        screen = self.screen
        screen.autowrap, screen.insert, screen.origin, screen.reverse_wrap = True, False, False, False
        screen.top, screen.bottom = 0, screen.rows - 1
        screen.set_pen(sgr.DEFAULT)
        screen.reset_saved()
        self.modes.soft_reset()

    def _mode(self, number: int, on: bool) -> None:
        screen = self.screen
        if number == 6:
            screen.origin = on
            screen.move_to(0, 0)
        elif number == 7:
            screen.autowrap = on
        elif number == 45:
            screen.reverse_wrap = on
        elif number in (47, 1047, 1049, 1048):
            if on and number >= 1048:
                screen.save(self.modes.charset)
            if number != 1048:
                screen.show_alternate() if on else screen.show_main()
            if not on and number >= 1048:
                self.modes.charset = screen.restore()
        elif number in _MOUSE:
            self.modes.mouse = number if on else 0
        elif number in _MOUSE_ENCODINGS:
            self.modes.mouse_encoding = number if on else 0
        elif number == 12:
            self.modes.blink = on
        elif number == 2 and on:
            for index in range(4):
                self._designate(index, "B")
        else:
            self.modes.set(number, on)

    def snapshot(self) -> bytes:
        """Return the bytes that bring a freshly reset terminal of this size to this state."""
        # A sequence or character that is incomplete so far is for the viewer, too.
        held = self._decoder.getstate()[0]
        return (snapshot(self.screen, self.modes) + self._sequence.text).encode() + held


def _parameters(text: str) -> list[list[int]]:
    return [[_number(digits) for digits in part.split(":")] for part in text.split(";")[:32]]


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) < 10 else _LARGEST_NUMBER
