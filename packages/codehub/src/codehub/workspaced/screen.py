"""A terminal's screen: cells, cursor, scroll region, scrollback, and their operations. Knows no escape sequences.

Lines are lists, so that a run of text is one slice assignment: heavy output costs a few microseconds per line.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from typing import NamedTuple

from .sgr import DEFAULT, Pen, shared

SCROLLBACK = 1000


class Line:
    """Characters and their attributes. The right half of a wide character is an empty string."""

    __slots__ = ("attrs", "chars", "wrapped")

    def __init__(self, cols: int, attr: str = "") -> None:
        self.chars: list[str] = [" "] * cols
        self.attrs: list[str] = [attr] * cols
        self.wrapped = False  # continues on the next line

    def fit(self, cols: int) -> None:
        more = cols - len(self.chars)
        if more > 0:
            self.chars += [" "] * more
            self.attrs += [""] * more
        elif more < 0:
            del self.chars[cols:], self.attrs[cols:]
            self.wrapped = False


class Saved(NamedTuple):
    x: int
    y: int
    pen: Pen
    origin: bool
    charset: int


def width_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


class Screen:
    def __init__(self, cols: int, rows: int, scrollback: int = SCROLLBACK) -> None:
        self.cols, self.rows = cols, rows
        self.lines: list[Line] = [Line(cols) for _ in range(rows)]
        self.scrollback: deque[Line] = deque(maxlen=scrollback)
        self.main: list[Line] | None = None  # the main screen's lines while the alternate screen is shown
        self.reset()

    def reset(self) -> None:
        if self.main is not None:
            self.lines, self.main = self.main, None
        self.lines = [Line(self.cols) for _ in range(self.rows)]
        self.x = self.y = 0
        self.top, self.bottom = 0, self.rows - 1
        self.set_pen(DEFAULT)
        self.autowrap, self.insert, self.origin = True, False, False
        self.saved = Saved(0, 0, DEFAULT, False, 0)
        self.saved_main = self.saved
        self.tabs = set(range(8, self.cols, 8))

    def set_pen(self, pen: Pen) -> None:
        self.pen = pen
        self.attr = shared(pen)
        self.blank = shared(Pen(background=pen.background))  # erased cells keep only the background

    def draw(self, text: str) -> None:
        if not text.isascii():
            for char in text:
                self._draw_char(char)
            return
        while text:
            if self.x >= self.cols:
                if not self.autowrap:
                    self.x = self.cols - 1
                    text = text[-1:]
                else:
                    self._wrap()
            line, x = self.lines[self.y], self.x
            part = text[: self.cols - x]
            count = len(part)
            if self.insert:
                self._make_room(line, x, count)
            end = x + count
            if line.chars[x] == "":
                line.chars[x - 1] = " "
            if end < self.cols and line.chars[end] == "":
                line.chars[end] = " "
            line.chars[x:end] = part
            line.attrs[x:end] = [self.attr] * count
            self.x = end
            text = text[count:]

    def _draw_char(self, char: str) -> None:
        width = width_of(char) if not char.isascii() else 1
        if width == 0:
            self._combine(char)
            return
        if self.x + width > self.cols:
            if not self.autowrap or self.cols < width:
                self.x = max(0, self.cols - width)
            else:
                self._wrap()
        line = self.lines[self.y]
        if self.insert:
            self._make_room(line, self.x, width)
        end = self.x + width
        if line.chars[self.x] == "" and self.x:
            line.chars[self.x - 1] = " "
        if end < self.cols and line.chars[end] == "":
            line.chars[end] = " "
        line.chars[self.x : end] = [char] if width == 1 else [char, ""]
        line.attrs[self.x : end] = [self.attr] * width
        self.x = end

    def _combine(self, char: str) -> None:
        at = min(self.x, self.cols) - 1
        chars = self.lines[self.y].chars
        if at > 0 and chars[at] == "":
            at -= 1
        if at >= 0 and len(chars[at]) < 8:
            chars[at] += char

    def _wrap(self) -> None:
        self.lines[self.y].wrapped = True
        self.x = 0
        self.index()

    def _make_room(self, line: Line, x: int, count: int) -> None:
        count = min(count, self.cols - x)
        line.chars[x:x] = [" "] * count
        line.attrs[x:x] = [self.blank] * count
        del line.chars[self.cols :], line.attrs[self.cols :]
        if line.chars and line.chars[-1] and width_of(line.chars[-1][0]) == 2:
            line.chars[-1] = " "

    def index(self) -> None:
        """Move down one line. At the end of the scroll region, the region scrolls."""
        if self.y == self.bottom:
            self.scroll_up(1)
        elif self.y < self.rows - 1:
            self.y += 1

    def reverse_index(self) -> None:
        if self.y == self.top:
            self.scroll_down(1)
        elif self.y > 0:
            self.y -= 1

    def scroll_up(self, count: int) -> None:
        for _ in range(min(count, self.bottom - self.top + 1)):
            gone = self.lines.pop(self.top)
            if self.top == 0 and self.main is None:
                self.scrollback.append(gone)
            self.lines.insert(self.bottom, Line(self.cols, self.blank))

    def scroll_down(self, count: int) -> None:
        for _ in range(min(count, self.bottom - self.top + 1)):
            del self.lines[self.bottom]
            self.lines.insert(self.top, Line(self.cols, self.blank))

    def insert_lines(self, count: int) -> None:
        if self.top <= self.y <= self.bottom:
            top, self.top = self.top, self.y
            self.scroll_down(count)
            self.top, self.x = top, 0

    def delete_lines(self, count: int) -> None:
        if self.top <= self.y <= self.bottom:
            for _ in range(min(count, self.bottom - self.y + 1)):
                del self.lines[self.y]
                self.lines.insert(self.bottom, Line(self.cols, self.blank))
            self.x = 0

    def insert_chars(self, count: int) -> None:
        self._settle()
        self._make_room(self.lines[self.y], self.x, count)

    def delete_chars(self, count: int) -> None:
        self._settle()
        line = self.lines[self.y]
        count = min(count, self.cols - self.x)
        del line.chars[self.x : self.x + count], line.attrs[self.x : self.x + count]
        line.chars += [" "] * count
        line.attrs += [self.blank] * count
        if line.chars[self.x] == "":
            line.chars[self.x] = " "

    def erase(self, y: int, begin: int, end: int) -> None:
        line = self.lines[y]
        begin, end = max(0, begin), min(end, self.cols)
        if begin >= end:
            return
        if line.chars[begin] == "" and begin:
            line.chars[begin - 1] = " "
        if end < self.cols and line.chars[end] == "":
            line.chars[end] = " "
        line.chars[begin:end] = [" "] * (end - begin)
        line.attrs[begin:end] = [self.blank] * (end - begin)
        if end == self.cols:
            line.wrapped = False

    def erase_line(self, how: int) -> None:
        self._settle()
        begin, end = ((self.x, self.cols), (0, self.x + 1), (0, self.cols))[how]
        self.erase(self.y, begin, end)

    def erase_display(self, how: int) -> None:
        if how == 3:
            self.scrollback.clear()
            return
        self.erase_line(min(how, 2))
        rows = (range(self.y + 1, self.rows), range(self.y), range(self.rows))[how]
        for y in rows:
            self.erase(y, 0, self.cols)

    def _settle(self) -> None:
        """Move a cursor that waits behind the last column back onto it."""
        self.x = min(self.x, self.cols - 1)

    def move_to(self, x: int, y: int) -> None:
        """Move to a position: absolute, or relative to the scroll region in origin mode."""
        low, high = (self.top, self.bottom) if self.origin else (0, self.rows - 1)
        self.y = max(low, min(y + (self.top if self.origin else 0), high))
        self.x = max(0, min(x, self.cols - 1))

    def move_by(self, dx: int, dy: int) -> None:
        self._settle()
        if dy < 0:
            low = self.top if self.y >= self.top else 0
            self.y = max(low, self.y + dy)
        elif dy > 0:
            high = self.bottom if self.y <= self.bottom else self.rows - 1
            self.y = min(high, self.y + dy)
        self.x = max(0, min(self.x + dx, self.cols - 1))

    def tab(self) -> None:
        self.x = min((stop for stop in self.tabs if stop > self.x), default=self.cols - 1)

    def back_tab(self) -> None:
        self.x = max((stop for stop in self.tabs if stop < self.x), default=0)

    def set_region(self, top: int, bottom: int) -> None:
        if 0 <= top < bottom <= self.rows - 1:
            self.top, self.bottom = top, bottom
            self.move_to(0, 0)

    def show_alternate(self) -> None:
        if self.main is None:
            self.main = self.lines
            self.lines = [Line(self.cols, self.blank) for _ in range(self.rows)]

    def show_main(self) -> None:
        if self.main is not None:
            self.lines, self.main = self.main, None

    def resize(self, cols: int, rows: int) -> None:
        """Resize. Lines are cut or padded; rows move to and from the scrollback. Programs redraw themselves."""
        alternate = self.main is not None
        for lines in filter(None, (self.lines, self.main)):
            for line in lines:
                line.fit(cols)
            on_main = lines is self.main or not alternate
            while len(lines) > rows:
                below = len(lines) - 1
                if (self.y if lines is self.lines else below) < below:
                    lines.pop()
                else:
                    gone = lines.pop(0)
                    if on_main:
                        self.scrollback.append(gone)
                    if lines is self.lines:
                        self.y -= 1
            while len(lines) < rows:
                lines.append(Line(cols))
        self.cols, self.rows = cols, rows
        self.top, self.bottom = 0, rows - 1
        self.x, self.y = max(0, min(self.x, cols - 1)), max(0, min(self.y, rows - 1))
        self.tabs = set(range(8, cols, 8))
