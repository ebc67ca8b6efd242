"""Escape sequences that are incomplete, interrupted or malformed, read character by character as xterm.js does.

`vt` reads complete sequences itself with one regular expression, and passes the others on. Of a string that never ends,
only a bounded part is kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 4096  # of a sequence: titles and links are shorter, and images are not drawn
_ESCAPE = "\x1b"
_C1 = {"\x90": "P", "\x98": "X", "\x9b": "[", "\x9d": "]", "\x9e": "^", "\x9f": "_"}
_CSI = re.compile("\x1b\\[([<-?]?[0-;]*)([ -/]*)\\Z")
_STRINGS = {
    "]": re.compile("[^\x07\x18\x1a\x1b\x80-\x9f]*"),
    "P": re.compile("[^\x18\x1a\x1b\x80-\x9f]*"),
    "_": re.compile("[^\x18\x1a\x1b\x80-\x9f]*"),
    "X": re.compile("[^\x18\x1a\x1b\x80-\U0010ffff]*"),
    "^": re.compile("[^\x18\x1a\x1b\x80-\U0010ffff]*"),
}
_CONTROLS = dict.fromkeys(range(0x20))


class Control(NamedTuple):
    char: str


class Escape(NamedTuple):
    between: str
    final: str


class Csi(NamedTuple):
    parameters: str
    between: str
    final: str


class Osc(NamedTuple):
    text: str


class Sequence:
    """The sequence that is being read. Empty if there is none."""

    def __init__(self) -> None:
        self.text = ""  # what a viewer that attaches now needs to read on

    def read(self, text: str, at: int) -> tuple[int, Control | Escape | Csi | Osc | None]:
        """Read on from a position. Return the next position, and what is to be done."""
        if self.text[1:] and self.text[1] in _STRINGS:
            return self._read_string(text, at, self.text[1])
        char = text[at]
        if char == _ESCAPE:
            self.text = _ESCAPE
        elif not self.text:
            self.text = _ESCAPE + _C1[char]
        elif char in "\x18\x1a" or "\x80" <= char <= "\x9f":
            self.text = ""
            return at, None
        elif char < " ":
            return at + 1, Control(char)
        elif char <= "~":
            return at + 1, self._read_printable(char)
        elif char != "\x7f" and (self.text[1:2] != "[" or _CSI.match(self.text)):
            self.text = ""
        return at + 1, None

    def _read_printable(self, char: str) -> Escape | Csi | None:
        is_csi = self.text[1:2] == "["
        if char <= ("?" if is_csi else "/"):
            self.text += char if len(self.text) < LONGEST else ""
            return None
        if self.text == _ESCAPE and (char == "[" or char in _STRINGS):
            self.text += char
            return None
        done, self.text = self.text, ""
        if not is_csi:
            return Escape(done[1:], char)
        found = _CSI.match(done)
        return Csi(found[1], found[2], char) if found else None

    def _read_string(self, text: str, at: int, kind: str) -> tuple[int, Osc | None]:
        found = _STRINGS[kind].match(text, at)
        end = found.end() if found else at
        self.text += text[at:end]
        if len(self.text) > LONGEST:
            self.text = f"{_ESCAPE}{kind}x"  # its rest is skipped: a viewer knows no sequence of this name
        if end == len(text):
            return end, None
        done, self.text = self.text, ""
        last = text[end]
        if last == _ESCAPE:
            self.text = _ESCAPE
        # A control character that ends a string is then read for itself.
        after = end + 1 if last == _ESCAPE or last >= "\xa0" else end
        return after, Osc(done[2:].translate(_CONTROLS)) if kind == "]" and last in "\x07\x1b\x9c" else None
