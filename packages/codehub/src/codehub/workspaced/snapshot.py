"""Renders a terminal's state as the bytes that bring a freshly reset xterm.js of the same size to it.

Besides what is visible this is what later output depends on: the main screen behind the alternate one, which lines
continue each other, tab stops, scroll regions, saved cursors, character sets, modes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .screen import ERASED, Line, Saved, Screen

# Modes that are only passed on to a viewer's terminal, with their defaults.
_DEFAULTS = {1: False, 25: True, 66: False, 1004: False, 2004: False, 2026: False}

_BACKGROUND = re.compile(r"4[0-7]\Z|10[0-7]\Z|48;5;\d+\Z|48;2;\d+;\d+;\d+\Z")


@dataclass
class Modes:
    """What a terminal has besides its screen."""

    switches: dict[int, bool] = field(default_factory=lambda: dict(_DEFAULTS))
    mouse: int = 0
    mouse_encoding: int = 0
    cursor_style: int = 0
    blink: bool = False
    newline: bool = False
    title: str = ""
    charsets: list[str] = field(default_factory=lambda: ["B"] * 4)
    level: int = 0
    charset: str = "B"  # what is drawn with: a restored cursor brings its own

    def set(self, number: int, on: bool) -> None:
        if number in self.switches:
            self.switches[number] = on

    def soft_reset(self) -> None:
        self.switches = dict(_DEFAULTS)
        self.cursor_style, self.level, self.charset = 0, 0, "B"
        self.charsets = ["B"] * 4


def snapshot(screen: Screen, modes: Modes) -> str:
    main = screen.main
    out: list[str] = [_switch("", 20, False)]
    if main is None:
        if screen.saved_alternate != Saved():
            out.append(f"\x1b[?47h{_saved(screen, screen.saved_alternate, 0)}\x1b[?47l\x1b[H")
        out.append(_rows([*screen.scrollback, *screen.lines], screen))
        out.append(_buffer(screen, screen.saved, screen.scrolled, screen.tabs, screen.top, screen.bottom))
    else:
        out.append(_rows([*screen.scrollback, *main.lines], screen))
        out.append(_buffer(screen, main.saved, screen.scrolled, main.tabs, main.top, main.bottom))
        out.append(f"{_position(main.x, main.y, screen)}\x1b[?47h\x1b[H")
        out.append(_rows(screen.lines, screen))
        out.append(_buffer(screen, screen.saved, 0, screen.tabs, screen.top, screen.bottom))
    out += [
        _switch("?", number, on) for number, on in modes.switches.items() if number == 25 or on != _DEFAULTS[number]
    ]
    out += [f"\x1b[?{number}h" for number in (modes.mouse, modes.mouse_encoding) if number]
    out.append(_switch("?", 12, modes.blink) + f"\x1b[{modes.cursor_style} q")
    if modes.title:
        out.append(f"\x1b]2;{modes.title}\x07")
    out.append(_charsets(screen, modes))
    if screen.origin:
        out.append("\x1b[?6h")
    out.append(_cursor(screen))
    for number, on in ((7, not screen.autowrap), (45, screen.reverse_wrap)):
        if on:
            out.append(_switch("?", number, number != 7))
    if screen.insert:
        out.append("\x1b[4h")
    if modes.newline:
        out.append("\x1b[20h")
    if screen.attr:
        out.append(f"\x1b[{screen.attr}m")
    return "".join(out)


def _switch(private: str, number: int, on: bool) -> str:
    return f"\x1b[{private}{number}{'h' if on else 'l'}"


def _position(x: int, y: int, screen: Screen) -> str:
    return f"\x1b[{y + 1};{min(x, screen.cols - 1) + 1}H"


def _buffer(screen: Screen, saved: Saved, scrolled: int, tabs: set[int], top: int, bottom: int) -> str:
    """Render what each of the two screens has for itself."""
    out: list[str] = []
    if tabs != screen.default_tabs():
        stops = [f"\x1b[{stop + 1}G\x1bH" for stop in sorted(tabs) if stop < screen.cols]
        out.append("\x1b[3g" + "".join(stops))
    out.append(_saved(screen, saved, scrolled))
    if (top, bottom) != (0, screen.rows - 1):
        out.append(f"\x1b[{top + 1};{bottom + 1}r")
    return "".join(out)


def _saved(screen: Screen, saved: Saved, scrolled: int) -> str:
    y = max(0, min(saved.y - scrolled, screen.rows - 1))
    if (saved.x, y, saved.pen.text, saved.charset) == (0, 0, "", "B"):
        return ""
    return f"{_position(saved.x, y, screen)}\x1b[0;{saved.pen.text}m\x1b({saved.charset}\x1b7\x1b(B\x1b[m"


def _charsets(screen: Screen, modes: Modes) -> str:
    out = [f"\x1b{'()*+'[index]}{name}" for index, name in enumerate(modes.charsets) if name != "B"]
    if modes.level:
        out.append(("\x0e", "\x1bn", "\x1bo")[modes.level - 1])
    if modes.charset != modes.charsets[modes.level] and modes.charset == screen.saved.charset:
        out.append("\x1b8\x1b[m")  # the only way to a character set that is not the level's
    return "".join(out)


def _cursor(screen: Screen) -> str:
    y = screen.y - (screen.top if screen.origin else 0)
    if screen.x < screen.cols:
        return _position(screen.x, y, screen)
    # The cursor is behind the last column: only drawing the last character again moves it there.
    line = screen.lines[screen.y]
    at = screen.cols - 1 if line.chars[-1] or screen.cols == 1 else screen.cols - 2
    char = " " if line.chars[at] in ("", ERASED) else line.chars[at]
    return f"{_position(at, y, screen)}\x1b[0;{line.attrs[at]}m{char}\x1b[m"


def _rows(lines: list[Line], screen: Screen) -> str:
    out: list[str] = []
    for number, line in enumerate(lines):
        if number:
            wraps = line.wrapped and screen.rows > 1 and screen.cols > 1
            out.append(_wrap(lines[number - 1], screen.cols) if wraps else "\r\n")
        out.append(_row(line))
    return "".join(out)


def _wrap(line: Line, cols: int) -> str:
    """Go on to the next line so that xterm.js sees it as the continuation of this one."""
    if not _skipped(line.chars[-1], line.attrs[-1]):
        return " \r\x1b[X"
    # Something must be drawn at the end of this line, and erased again.
    erased = f"\x1b[A\x1b[{cols}G\x1b[0;{line.attrs[-1]}m\x1b[X\x1b[m\x1b[B"
    return f"\x1b[{cols}G. {erased}\r\x1b[X"


def _skipped(char: str, attr: str) -> bool:
    """Return whether a cell can be left as it is, or erased. One with another attribute than a background is drawn."""
    return char == ERASED and (not attr or _BACKGROUND.match(attr) is not None)


def _whole(line: Line) -> list[str]:
    """Return the characters without halves of wide ones, of which the other half was overwritten."""
    chars = list(line.chars)
    for x, char in enumerate(chars):
        if "" < char < "\u1100":
            continue
        left, right = x > 0 and line.is_wide(x - 1), line.chars[x + 1 : x + 2] == [""]
        if (char == "" and not left) or (line.is_wide(x) and not right):
            chars[x] = ERASED
    return chars


def _row(line: Line) -> str:
    """Render one line. Cells that nothing was written to are skipped, or erased if they have a colour."""
    out: list[str] = []
    at, cols = 0, len(line.chars)
    chars = line.chars
    if max(chars) > "\u10ff" or "" in chars:
        chars = _whole(line)
    while at < cols:
        attr, erased = line.attrs[at], chars[at] == ERASED
        until = at + 1
        while until < cols and line.attrs[until] == attr and (chars[until] == ERASED) == erased:
            until += 1
        count = until - at
        if not _skipped(chars[at], attr):
            text = "".join(chars[at:until]).replace(ERASED, " ")
            out.append(f"\x1b[{attr}m{text}\x1b[m" if attr else text)
        else:
            if attr:
                out.append(f"\x1b[{attr}m\x1b[{count}X\x1b[m")
            if until < cols:
                out.append(f"\x1b[{count}C")
        at = until
    return "".join(out)
