"""A terminal's screen: cells, cursor, scroll region, scrollback, and their operations. Knows no escape sequences.

It does what xterm.js does, cell by cell, because a viewer that attaches later must see what the first one sees:
test_reattached_screen.py compares them. Lines are lists, so that a run of text is one slice assignment: heavy output
costs a few microseconds per line.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .char_width import width_of
from .sgr import DEFAULT, Pen, shared

SCROLLBACK = 1000
ERASED = "\0"  # a cell that nothing was written to: unlike a space, it ends a line
_TAB = 8


class Line:
    """Characters and their attributes. The right half of a wide character is an empty string."""

    __slots__ = ("attrs", "chars", "wrapped")

    def __init__(self, cols: int, attr: str = "", wrapped: bool = False) -> None:
        self.chars: list[str] = [ERASED] * cols
        self.attrs: list[str] = [attr] * cols
        self.wrapped = wrapped  # continues the line above

    @property
    def text(self) -> str:
        return "".join(self.chars).replace(ERASED, " ").rstrip()

    def fit(self, cols: int) -> None:
        more = cols - len(self.chars)
        if more > 0:
            self.chars += [ERASED] * more
            self.attrs += [""] * more
        elif more < 0:
            del self.chars[cols:], self.attrs[cols:]
            if self.is_wide(cols - 1):
                self.chars[cols - 1] = ERASED

    def is_wide(self, x: int) -> bool:
        char = self.chars[x]
        return char > "\u10ff" and width_of(char[0]) == 2

    def put(self, x: int, char: str, attr: str) -> None:
        self.chars[x] = char
        self.attrs[x] = attr

    def erase(self, begin: int, end: int, attr: str) -> None:
        end = min(end, len(self.chars))
        if begin and begin <= len(self.chars) and self.is_wide(begin - 1):
            self.put(begin - 1, ERASED, attr)
        if 0 < end < len(self.chars) and self.is_wide(end - 1):
            self.put(end, ERASED, attr)
        if begin < end:
            self.chars[begin:end] = [ERASED] * (end - begin)
            self.attrs[begin:end] = [attr] * (end - begin)

    def insert(self, x: int, count: int, attr: str) -> None:
        cols = len(self.chars)
        x %= cols
        if x and self.is_wide(x - 1):
            self.put(x - 1, ERASED, attr)
        count = min(count, cols - x)
        self.chars[x:x] = [ERASED] * count
        self.attrs[x:x] = [attr] * count
        del self.chars[cols:], self.attrs[cols:]
        if self.is_wide(cols - 1):
            self.put(cols - 1, ERASED, attr)

    def delete(self, x: int, count: int, attr: str) -> None:
        cols = len(self.chars)
        x %= cols
        count = min(count, cols - x)
        del self.chars[x : x + count], self.attrs[x : x + count]
        self.chars += [ERASED] * count
        self.attrs += [attr] * count
        if x and self.is_wide(x - 1):
            self.put(x - 1, ERASED, attr)
        if self.chars[x] == "":
            self.put(x, ERASED, attr)


class Saved(NamedTuple):
    """A saved cursor. `y` counts from the first line that was ever on the screen, so that it moves with its line."""

    x: int = 0
    y: int = 0
    pen: Pen = DEFAULT
    charset: str = "B"


class Main(NamedTuple):
    """The main screen while the alternate screen is shown."""

    lines: list[Line]
    x: int
    y: int
    top: int
    bottom: int
    saved: Saved
    tabs: set[int]


class Screen:
    def __init__(self, cols: int, rows: int, scrollback: int = SCROLLBACK) -> None:
        self.cols, self.rows = cols, rows
        self.scrollback: deque[Line] = deque(maxlen=scrollback)
        self.reset()

    def reset(self) -> None:
        self.lines: list[Line] = [Line(self.cols) for _ in range(self.rows)]
        self.scrollback.clear()
        self.scrolled = 0  # lines that left the main screen at its top
        self.main: Main | None = None
        self.x = self.y = 0
        self.top, self.bottom = 0, self.rows - 1
        self.set_pen(DEFAULT)
        self.autowrap, self.insert, self.origin, self.reverse_wrap = True, False, False, False
        self.saved = Saved()
        self.saved_alternate = Saved()
        self.tabs = self.default_tabs()

    def default_tabs(self) -> set[int]:
        return set(range(0, self.cols, _TAB))

    def set_pen(self, pen: Pen) -> None:
        self.pen = pen
        self.attr = shared(pen)
        self.blank = shared(Pen(background=pen.background))  # erased cells keep only the background

    def draw(self, text: str) -> None:
        line = self.lines[self.y]
        if self.x and line.is_wide(self.x - 1):
            line.put(self.x - 1, ERASED, self.attr)
        if text.isascii() and not self.insert:
            self._draw_ascii(text)
        else:
            for char in text:
                self._draw_char(char)
        line = self.lines[self.y]
        if self.x < self.cols and line.chars[self.x] == "":
            line.put(self.x, ERASED, self.attr)

    def _draw_ascii(self, text: str) -> None:
        while text:
            if self.x >= self.cols:
                if not self.autowrap:
                    self.x = self.cols - 1
                    text = text[-1:]
                else:
                    self._wrap()
            line, x = self.lines[self.y], self.x
            part = text[: self.cols - x]
            end = x + len(part)
            line.chars[x:end] = part
            line.attrs[x:end] = [self.attr] * len(part)
            self.x = end
            text = text[len(part) :]

    def _draw_char(self, char: str) -> None:
        width = width_of(char)
        if width == 0:
            self._combine(char)
            return
        if self.x + width > self.cols:
            if self.autowrap and width <= self.cols:
                if self.x < self.cols:
                    self.lines[self.y].put(self.x, ERASED, self.attr)
                self._wrap()
            else:
                self.x = self.cols - 1
                if width == 2:
                    return
        line = self.lines[self.y]
        if self.insert:
            line.insert(self.x, width, self.attr)
        line.put(self.x, char, self.attr)
        if width == 2:
            line.put(self.x + 1, "", self.attr)
        self.x += width

    def _combine(self, char: str) -> None:
        chars = self.lines[self.y].chars
        if self.x == 0:
            self.lines[self.y].put(0, char, self.attr)
            self.x = 1
            return
        at = min(self.x, self.cols) - 1
        if at > 0 and chars[at] == "":
            at -= 1
        if chars[at] == ERASED:
            chars[at] = char
        elif len(chars[at]) < 8:
            chars[at] += char

    def _wrap(self) -> None:
        self.x = 0
        if self.y == self.bottom:
            self.scroll(wrapped=True)
        else:
            self.y = min(self.y + 1, self.rows - 1)
            self.lines[self.y].wrapped = True

    def scroll(self, wrapped: bool = False) -> None:
        """Scroll the region up one line. What leaves the main screen at its top is kept."""
        gone = self.lines.pop(self.top)
        if self.top == 0 and self.main is None:
            self.scrollback.append(gone)
            self.scrolled += 1
        self.lines.insert(self.bottom, Line(self.cols, self.blank, wrapped))

    def line_feed(self) -> None:
        if self.y == self.bottom:
            self.scroll()
        elif self.y < self.rows - 1:
            self.y += 1
            self.lines[self.y].wrapped = False
        if self.x >= self.cols:
            self.x = self.cols - 1

    def backspace(self) -> None:
        if not self.reverse_wrap:
            self.restrict()
            self.x = max(0, self.x - 1)
            return
        if self.x > 0:
            self.x -= 1
        elif self.top < self.y <= self.bottom and self.lines[self.y].wrapped:
            self.lines[self.y].wrapped = False
            self.y -= 1
            self.x = self.cols - 1
            if self.lines[self.y].chars[self.x] == ERASED and self.x:
                self.x -= 1
        self.restrict()

    def index(self) -> None:
        """Move down one line. At the end of the scroll region, the region scrolls."""
        self.restrict()
        if self.y == self.bottom:
            self.scroll()
        else:
            self.y = min(self.y + 1, self.rows - 1)
        self.restrict()

    def reverse_index(self) -> None:
        self.restrict()
        if self.y == self.top:
            del self.lines[self.bottom]
            self.lines.insert(self.top, Line(self.cols, self.blank))
        else:
            self.y -= 1
            self.restrict()

    def scroll_up(self, count: int) -> None:
        for _ in range(min(count, self.bottom - self.top + 1)):
            del self.lines[self.top]
            self.lines.insert(self.bottom, Line(self.cols, self.blank))

    def scroll_down(self, count: int) -> None:
        for _ in range(min(count, self.bottom - self.top + 1)):
            del self.lines[self.bottom]
            self.lines.insert(self.top, Line(self.cols))

    def insert_lines(self, count: int) -> None:
        self.restrict()
        if self.top <= self.y <= self.bottom:
            for _ in range(min(count, self.bottom - self.y + 1)):
                del self.lines[self.bottom]
                self.lines.insert(self.y, Line(self.cols, self.blank))
            self.x = 0

    def delete_lines(self, count: int) -> None:
        self.restrict()
        if self.top <= self.y <= self.bottom:
            for _ in range(min(count, self.bottom - self.y + 1)):
                del self.lines[self.y]
                self.lines.insert(self.bottom, Line(self.cols, self.blank))
            self.x = 0

    def insert_chars(self, count: int) -> None:
        self.restrict()
        self.lines[self.y].insert(self.x, count, self.blank)

    def delete_chars(self, count: int) -> None:
        self.restrict()
        self.lines[self.y].delete(self.x, count, self.blank)

    def shift_columns(self, x: int, count: int) -> None:
        """Insert columns in the scroll region, or delete them if the count is negative."""
        if self.top <= self.y <= self.bottom:
            for line in self.lines[self.top : self.bottom + 1]:
                if count > 0:
                    line.insert(x, count, self.blank)
                else:
                    line.delete(x, -count, self.blank)
                line.wrapped = False

    def erase_chars(self, count: int) -> None:
        self.restrict()
        self.lines[self.y].erase(self.x, self.x + count, self.blank)

    def erase_line(self, how: int) -> None:
        self.restrict(self.cols)
        line = self.lines[self.y]
        begin, end = ((self.x, self.cols), (0, self.x + 1), (0, self.cols))[how]
        line.erase(begin, end, self.blank)
        if begin == 0 and how != 1:
            line.wrapped = False

    def erase_display(self, how: int) -> None:
        self.restrict(self.cols)
        if how == 3:
            if self.main is None:
                self.scrollback.clear()
                self.scrolled = 0
            return
        if how != 2:
            self.erase_line(how)
        if how == 1:
            self.lines[self.y].wrapped = False
        for y in (range(self.y + 1, self.rows), range(self.y), range(self.rows))[how]:
            self.lines[y] = Line(self.cols, self.blank)

    def restrict(self, most: int | None = None) -> None:
        """Move the cursor into the screen. One that waits behind the last column moves back onto it."""
        self.x = max(0, min(self.x, self.cols - 1 if most is None else most))
        low, high = (self.top, self.bottom) if self.origin else (0, self.rows - 1)
        self.y = max(low, min(self.y, high))

    def move_to(self, x: int, y: int) -> None:
        """Move to a position: absolute, or relative to the scroll region in origin mode."""
        self.x, self.y = x, y + (self.top if self.origin else 0)
        self.restrict()

    def move_by(self, dx: int, dy: int) -> None:
        self.restrict()
        self.move_to(self.x + dx, self.y + dy)  # in origin mode xterm.js counts from the region here, too

    def move_up(self, count: int) -> None:
        room = self.y - self.top
        self.move_by(0, -(min(room, count) if room >= 0 else count))

    def move_down(self, count: int) -> None:
        room = self.bottom - self.y
        self.move_by(0, min(room, count) if room >= 0 else count)

    def tab(self) -> None:
        if self.x < self.cols:
            self.x = min((stop for stop in self.tabs if self.x < stop < self.cols), default=self.cols - 1)

    def back_tab(self) -> None:
        if self.x < self.cols:
            self.x = max((stop for stop in self.tabs if stop < self.x), default=0)

    def set_region(self, top: int, bottom: int) -> None:
        if 0 <= top < bottom <= self.rows - 1:
            self.top, self.bottom = top, bottom
            self.move_to(0, 0)

    def fill(self, char: str) -> None:
        self.move_to(0, 0)
        for line in self.lines[self.y :]:
            line.chars = [char] * self.cols
            line.attrs = [self.attr] * self.cols
            line.wrapped = False
        self.move_to(0, 0)

    def save(self, charset: str) -> None:
        self.saved = Saved(self.x, self.y + (self.scrolled if self.main is None else 0), self.pen, charset)

    def restore(self) -> str:
        """Move to the saved cursor, and return its character set."""
        saved = self.saved
        self.x, self.y = saved.x, max(0, saved.y - (self.scrolled if self.main is None else 0))
        self.set_pen(saved.pen)
        self.restrict()
        return saved.charset

    def reset_saved(self) -> None:
        self.saved = Saved(y=self.scrolled if self.main is None else 0)

    def show_alternate(self) -> None:
        if self.main is None:
            self.main = Main(self.lines, self.x, self.y, self.top, self.bottom, self.saved, self.tabs)
            self.lines = [Line(self.cols, self.blank) for _ in range(self.rows)]
            self.top, self.bottom = 0, self.rows - 1
            self.saved, self.tabs = self.saved_alternate, self.default_tabs()

    def show_main(self) -> None:
        if self.main is not None:
            self.saved_alternate = self.saved
            self.lines, _, _, self.top, self.bottom, self.saved, self.tabs = self.main
            self.main = None
