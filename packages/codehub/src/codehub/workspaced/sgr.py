"""Colours and attributes of a terminal's cells, as the parameters of the escape sequence that sets them.

A cell holds a string such as `1;38;5;208`; the empty string is the default. Strings are shared, so a screen in one colour
needs only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_FLAGS = {1: "1", 2: "2", 3: "3", 5: "5", 7: "7", 8: "8", 9: "9", 53: "53"}
_CLEARED = {22: ("1", "2"), 23: ("3",), 25: ("5",), 27: ("7",), 28: ("8",), 29: ("9",), 55: ("53",)}
_UNDERLINES = 5  # single, double, curly, dotted, dashed


class Pen(NamedTuple):
    flags: frozenset[str] = frozenset()
    foreground: str = ""
    background: str = ""
    underline: str = ""
    underline_colour: str = ""

    @property
    def text(self) -> str:
        colours = (self.underline, self.foreground, self.background, self.underline_colour)
        return ";".join([*sorted(self.flags), *filter(None, colours)])


DEFAULT = Pen()
_shared: dict[str, str] = {}


def shared(pen: Pen) -> str:
    text = pen.text
    return _shared.setdefault(text, text) if len(_shared) < 4096 else text


def apply(pen: Pen, parameters: Sequence[Sequence[int]]) -> Pen:
    """Return the pen after `CSI … m`. Each parameter is a list: its number and its colon-separated parts."""
    flags, foreground, background, underline, underline_colour = set(pen.flags), *pen[1:]
    pending: list[Sequence[int]] = list(parameters)[::-1]
    while pending:
        parts = pending.pop()
        number = parts[0]
        if number == 0:
            flags, foreground, background, underline, underline_colour = set(), "", "", "", ""
        elif number in _FLAGS:
            flags.add(_FLAGS[number])
        elif number == 4:
            underline = _underline(parts[1] if len(parts) > 1 else 1)
        elif number == 21:
            underline = _underline(2)
        elif number == 24:
            underline = ""
        elif number in _CLEARED:
            flags.difference_update(_CLEARED[number])
        elif 30 <= number <= 37 or 90 <= number <= 97:
            foreground = str(number)
        elif 40 <= number <= 47 or 100 <= number <= 107:
            background = str(number)
        elif number in (38, 48, 58):
            colour = _extended(parts, pending)
            if colour and number == 38:
                foreground = f"38;{colour}"
            elif colour and number == 48:
                background = f"48;{colour}"
            elif colour:
                underline_colour = f"58;{colour}"
        elif number == 39:
            foreground = ""
        elif number == 49:
            background = ""
        elif number == 59:
            underline_colour = ""
    return Pen(frozenset(flags), foreground, background, underline, underline_colour)


def _underline(style: int) -> str:
    if style == 0:
        return ""
    return f"4:{style}" if 1 < style <= _UNDERLINES else "4"


def _extended(parts: Sequence[int], pending: list[Sequence[int]]) -> str:
    """Return `5;N` or `2;R;G;B`, for any separators. Missing values are 0, as in xterm.js."""
    if len(parts) > 1:
        kind, values = parts[1], list(parts[2:])
        if kind == 2 and len(values) > 3:
            values = values[-3:]  # the colour space's id comes first
    else:
        if not pending:
            return ""
        kind = pending.pop()[0]
        wanted = 1 if kind == 5 else 3 if kind == 2 else 0
        values = [pending.pop()[0] for _ in range(min(wanted, len(pending)))]
    values += [0, 0, 0]
    if kind == 5:
        return f"5;{values[0] & 255}"
    if kind == 2:
        return "2;" + ";".join(str(value & 255) for value in values[:3])
    return ""
