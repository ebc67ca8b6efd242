"""Colours and attributes of a terminal's cells, as the parameters of the escape sequence that sets them.

A cell holds a string such as `1;38;5;208`; the empty string is the default. Strings are shared, so a screen in one colour
needs only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_FLAGS = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 7: "7", 8: "8", 9: "9"}
_CLEARED = {22: ("1", "2"), 23: ("3",), 24: ("4",), 25: ("5",), 27: ("7",), 28: ("8",), 29: ("9",)}


class Pen(NamedTuple):
    flags: frozenset[str] = frozenset()
    foreground: str = ""
    background: str = ""

    @property
    def text(self) -> str:
        return ";".join([*sorted(self.flags), *filter(None, (self.foreground, self.background))])


DEFAULT = Pen()
_shared: dict[str, str] = {}


def shared(pen: Pen) -> str:
    text = pen.text
    return _shared.setdefault(text, text) if len(_shared) < 4096 else text


def apply(pen: Pen, parameters: Sequence[Sequence[int]]) -> Pen:
    """Return the pen after `CSI … m`. Each parameter is a list: its number and its colon-separated parts."""
    flags, foreground, background = set(pen.flags), pen.foreground, pen.background
    pending: list[Sequence[int]] = list(parameters)[::-1]
    while pending:
        parts = pending.pop()
        number = parts[0]
        if number == 0:
            flags, foreground, background = set(), "", ""
        elif number in _FLAGS:
            if number == 4 and len(parts) > 1 and parts[1] == 0:
                flags.discard("4")
            else:
                flags.add(_FLAGS[number])
        elif number == 21:
            flags.add("4")
        elif number in _CLEARED:
            flags.difference_update(_CLEARED[number])
        elif 30 <= number <= 37 or 90 <= number <= 97:
            foreground = str(number)
        elif 40 <= number <= 47 or 100 <= number <= 107:
            background = str(number)
        elif number in (38, 48):
            colour = _extended(parts, pending)
            if colour and number == 38:
                foreground = f"38;{colour}"
            elif colour:
                background = f"48;{colour}"
        elif number == 39:
            foreground = ""
        elif number == 49:
            background = ""
    return Pen(frozenset(flags), foreground, background)


def _extended(parts: Sequence[int], pending: list[Sequence[int]]) -> str:
    """Return `5;N` or `2;R;G;B`, for any separators. Empty if it is incomplete."""
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
    if kind == 5 and len(values) >= 1:
        return f"5;{min(values[0], 255)}"
    if kind == 2 and len(values) >= 3:
        return "2;" + ";".join(str(min(value, 255)) for value in values[:3])
    return ""
