"""Escape sequences: applies bytes to a screen, and renders the screen as escape sequences for a new viewer.

Covers what users of xterm rely on: vim, htop, less, tmux, colours, wide characters, the alternate screen. The viewers' own
terminals answer sequences that query the terminal.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence

from . import sgr
from .screen import Line, Saved, Screen

_TOKEN = re.compile(
    "([^\x00-\x1f\x7f-\x9f]+)"  # text
    "|\x1b\\[([0-?]*)([ -/]*)([@-~])"  # CSI
    "|\x1b\\]([^\x07\x1b]*)(?:\x07|\x1b\\\\)"  # OSC
    "|\x1b[PX^_][^\x1b]*\x1b\\\\"  # DCS and other strings
    "|\x1b([ -/]*)([0-OQ-WYZ\\\\`-~])"  # other escapes
    "|([\x00-\x1a\x1c-\x1f\x7f-\x9f])"  # control characters
)
# The beginning of a sequence, whose rest comes with the next bytes; and a sequence that another one interrupts.
_PARTIAL = re.compile("\x1b(?:\\[[0-?]*[ -/]*|\\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\\Z")
_INTERRUPTED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b]*)?|.", re.DOTALL)
_LONGEST_SEQUENCE = 64 << 10
_SLICE = 4096
_PLAIN = re.compile("[^\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]*\\Z")
_GRAPHICS = str.maketrans(
    "`abcdefghijklmnopqrstuvwxyz{|}~", "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
)  # fmt: skip
# Modes that also apply to a viewer's terminal, with their defaults.
_MODES = {1: False, 7: True, 9: False, 25: True, 66: False, 1000: False, 1002: False, 1003: False, 1004: False, 1005: False,
          1006: False, 1015: False, 2004: False}  # fmt: skip


class Terminal:
    """A screen that processes bytes."""

    def __init__(self, cols: int, rows: int) -> None:
        self.screen = Screen(cols, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._reset_modes()

    def _reset_modes(self) -> None:
        self.modes: dict[int, bool] = dict(_MODES)
        self.title = ""
        self._charsets = ["B", "B"]
        self._charset = 0

    def feed(self, data: bytes) -> None:
        for _ in self.feeding(data):
            pass

    def feeding(self, data: bytes) -> Iterator[None]:
        """Like `feed`, in slices of at most a few milliseconds: the caller may do other things between them."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if len(text) > _SLICE and self._charsets[self._charset] == "B":
            text = self._skip(text)
        for at in range(0, len(text), _SLICE):
            self._apply(self._rest + text[at : at + _SLICE])
            yield

    def _apply(self, text: str) -> None:
        self._rest = ""
        screen = self.screen
        at, end = 0, len(text)
        match = _TOKEN.match
        while at < end:
            found = match(text, at)
            if found is None:
                if end - at < _LONGEST_SEQUENCE and _PARTIAL.match(text, at):
                    self._rest = text[at:]
                    return
                if (interrupted := _INTERRUPTED.match(text, at)) is not None:
                    at = interrupted.end()
                continue
            at = found.end()
            kind = found.lastindex
            if kind == 1:
                part = found.group(1)
                screen.draw(part.translate(_GRAPHICS) if self._charsets[self._charset] == "0" else part)
            elif kind == 8:
                self._control(found.group(8))
            elif kind == 4:
                self._csi(found.group(2), found.group(3), found.group(4))
            elif kind == 7:
                self._escape(found.group(6), found.group(7))
            elif kind == 5:
                self._osc(found.group(5))

    def _skip(self, text: str) -> str:
        """Skip plain lines that would scroll out of the scrollback anyway."""
        screen = self.screen
        if screen.top != 0 or screen.bottom != screen.rows - 1 or not _PLAIN.match(text):
            return text
        kept = screen.rows + (screen.scrollback.maxlen or 0)
        if text.count("\n") <= kept:
            return text
        at = len(text)
        for _ in range(kept + 1):
            at = text.rfind("\n", 0, at)
        screen.x = screen.x if text[at - 1] != "\r" else 0
        return text[at:]

    def _control(self, char: str) -> None:
        screen = self.screen
        if char == "\n" or char in "\x0b\x0c":
            screen.index()
        elif char == "\r":
            screen.x = 0
        elif char == "\b":
            screen.x = max(0, min(screen.x, screen.cols - 1) - 1)
        elif char == "\t":
            screen.tab()
        elif char == "\x0e":
            self._charset = 1
        elif char == "\x0f":
            self._charset = 0

    def _osc(self, text: str) -> None:
        number, _, value = text.partition(";")
        if number in ("0", "2"):
            self.title = value[:256]

    def _escape(self, between: str, final: str) -> None:
        screen = self.screen
        if between in ("(", ")"):
            self._charsets["()".index(between)] = final
        elif between == "#" and final == "8":
            for y in range(screen.rows):
                screen.lines[y].chars = ["E"] * screen.cols
                screen.lines[y].attrs = [""] * screen.cols
        elif between:
            return
        elif final == "7":
            screen.saved = Saved(screen.x, screen.y, screen.pen, screen.origin, self._charset)
        elif final == "8":
            self._restore(screen.saved)
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
            self._reset_modes()
        elif final in "=>":
            self.modes[66] = final == "="

    def _restore(self, saved: Saved) -> None:
        screen = self.screen
        screen.x, screen.y = min(saved.x, screen.cols), min(saved.y, screen.rows - 1)
        screen.origin = saved.origin
        self._charset = saved.charset
        screen.set_pen(saved.pen)

    def _csi(self, text: str, between: str, final: str) -> None:
        private = text[:1] if text[:1] in "<=>?" else ""
        if between == "!" and final == "p":
            self._soft_reset()
            return
        if between:
            return
        parameters = _parameters(text[len(private) :])
        numbers = [parts[0] for parts in parameters]
        if private:
            if private == "?" and final in "hl":
                for number in numbers:
                    self._mode(number, final == "h")
            return
        if final == "m":
            self.screen.set_pen(sgr.apply(self.screen.pen, parameters))
        elif final in "hl":
            if 4 in numbers:
                self.screen.insert = final == "h"
        else:
            self._move(final, numbers)

    def _move(self, final: str, numbers: list[int]) -> None:
        screen = self.screen
        first = numbers[0]
        count = max(1, first)
        if final in "Hf":
            second = numbers[1] if len(numbers) > 1 else 1
            screen.move_to(max(1, second) - 1, count - 1)
        elif final in "ABCDae":
            dx, dy = {"A": (0, -1), "B": (0, 1), "C": (1, 0), "D": (-1, 0), "a": (1, 0), "e": (0, 1)}[final]
            screen.move_by(dx * count, dy * count)
        elif final in "EF":
            screen.move_by(0, count if final == "E" else -count)
            screen.x = 0
        elif final in "G`":
            screen.x = min(count, screen.cols) - 1
        elif final == "d":
            screen.move_to(min(screen.x, screen.cols - 1), count - 1)
        elif final == "J" and first <= 3:
            screen.erase_display(first)
        elif final == "K" and first <= 2:
            screen.erase_line(first)
        elif final == "L":
            screen.insert_lines(count)
        elif final == "M":
            screen.delete_lines(count)
        elif final == "P":
            screen.delete_chars(count)
        elif final == "@":
            screen.insert_chars(count)
        elif final == "X":
            screen.x = min(screen.x, screen.cols - 1)
            screen.erase(screen.y, screen.x, screen.x + count)
        elif final == "S":
            screen.scroll_up(count)
        elif final == "T":
            screen.scroll_down(count)
        elif final == "I":
            for _ in range(min(count, screen.cols)):
                screen.tab()
        elif final == "Z":
            for _ in range(min(count, screen.cols)):
                screen.back_tab()
        elif final == "g":
            screen.tabs = set() if first == 3 else screen.tabs - {screen.x}
        elif final == "r":
            bottom = numbers[1] if len(numbers) > 1 and numbers[1] else screen.rows
            screen.set_region(count - 1, min(bottom, screen.rows) - 1)
        elif final == "s":
            screen.saved = Saved(screen.x, screen.y, screen.pen, screen.origin, self._charset)
        elif final == "u":
            self._restore(screen.saved)
        elif final == "b":
            self._repeat(count)

    def _repeat(self, count: int) -> None:
        screen = self.screen
        at = min(screen.x, screen.cols) - 1
        if at >= 0 and screen.lines[screen.y].chars[at]:
            screen.draw(screen.lines[screen.y].chars[at][0] * min(count, screen.cols * screen.rows))

    def _soft_reset(self) -> None:
        screen = self.screen
        screen.autowrap, screen.insert, screen.origin = True, False, False
        screen.top, screen.bottom = 0, screen.rows - 1
        screen.set_pen(sgr.DEFAULT)
        self.modes[25], self.modes[1], self.modes[66] = True, False, False

    def _mode(self, number: int, on: bool) -> None:
        screen = self.screen
        if number == 6:
            screen.origin = on
            screen.move_to(0, 0)
        elif number == 7:
            screen.autowrap = on
        elif number in (47, 1047, 1049):
            if on and screen.main is None:
                if number == 1049:
                    screen.saved_main = Saved(screen.x, screen.y, screen.pen, screen.origin, self._charset)
                screen.show_alternate()
            elif not on and screen.main is not None:
                screen.show_main()
                if number == 1049:
                    self._restore(screen.saved_main)
        elif number == 1048:
            if on:
                screen.saved = Saved(screen.x, screen.y, screen.pen, screen.origin, self._charset)
            else:
                self._restore(screen.saved)
        if number in self.modes:
            self.modes[number] = on

    def snapshot(self) -> bytes:
        """Return the bytes that bring a freshly reset terminal of this size to this state.

        They contain the scrollback, screen, modes and cursor.
        """
        screen = self.screen
        out: list[str] = []
        if screen.main is not None:
            out.append(_rows([*screen.scrollback, *screen.main]))
            saved = screen.saved_main
            out.append(f"\x1b[{saved.y + 1};{min(saved.x, screen.cols - 1) + 1}H\x1b[?1049h\x1b[H")
            out.append(_rows(screen.lines))
        else:
            out.append(_rows([*screen.scrollback, *screen.lines]))
        out.append("\x1b[m")
        if (screen.top, screen.bottom) != (0, screen.rows - 1):
            out.append(f"\x1b[{screen.top + 1};{screen.bottom + 1}r")
        for number, default in _MODES.items():
            if self.modes[number] != default:
                if number == 66:
                    out.append("\x1b=")
                else:
                    out.append(f"\x1b[?{number}{'h' if self.modes[number] else 'l'}")
        if screen.insert:
            out.append("\x1b[4h")
        if self.title:
            out.append(f"\x1b]2;{self.title}\x07")
        out.append(self._cursor())
        if screen.origin:
            y = max(0, screen.y - screen.top)
            out.append(f"\x1b[?6h\x1b[{y + 1};{min(screen.x, screen.cols - 1) + 1}H")
        if screen.attr:
            out.append(f"\x1b[{screen.attr}m")
        for index, name in enumerate(self._charsets):
            if name == "0":
                out.append(f"\x1b{'()'[index]}0")
        if self._charset:
            out.append("\x0e")
        # Repeat a sequence that the snapshot cut off, for the viewer.
        out.append(self._rest)
        held = self._decoder.getstate()[0]
        return "".join(out).encode("utf-8", "replace") + held

    def _cursor(self) -> str:
        screen = self.screen
        if screen.x < screen.cols:
            return f"\x1b[{screen.y + 1};{screen.x + 1}H"
        # The cursor is behind the last column: only drawing the last character again moves it there.
        line = screen.lines[screen.y]
        at = screen.cols - 1 if line.chars[-1] else screen.cols - 2
        text = f"\x1b[{screen.y + 1};{at + 1}H\x1b[{line.attrs[at]}m{line.chars[at]}"
        return text + "\x1b[m"


def _parameters(text: str) -> list[Sequence[int]]:
    found: list[Sequence[int]] = []
    for part in text.split(";")[:32]:
        numbers = [
            min(int(digits), 65535) if digits.isdigit() and len(digits) < 10 else 0 for digits in part.split(":")
        ]
        found.append(numbers)
    return found


def _rows(lines: Sequence[Line]) -> str:
    return "\r\n".join(_row(line) for line in lines)


def _row(line: Line) -> str:
    """Render one line, without trailing blanks that have no attribute."""
    end = len(line.chars)
    while end and line.chars[end - 1] == " " and not line.attrs[end - 1]:
        end -= 1
    out: list[str] = []
    attr = ""
    at = 0
    while at < end:
        until = at
        while until < end and line.attrs[until] == line.attrs[at]:
            until += 1
        if line.attrs[at] != attr:
            attr = line.attrs[at]
            out.append(f"\x1b[0;{attr}m" if attr else "\x1b[m")
        out.append("".join(line.chars[at:until]))
        at = until
    if attr:
        out.append("\x1b[m")
    return "".join(out)
