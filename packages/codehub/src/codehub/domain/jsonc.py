"""Parses JSON with comments and trailing commas, as used by devcontainer.json and VS Code settings. Pure."""

from __future__ import annotations

import json
import re

from codehub.domain.errors import Invalid

# Matches a string as a whole, so that text inside it that looks like a comment is kept.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_LONGEST = 1 << 20


def parse_jsonc(text: str) -> object:
    """Parse the text, or raise Invalid with line and column. Comments become blanks, so that positions match the file."""
    if len(text) > _LONGEST:
        raise Invalid("the file is larger than 1 MiB")
    plain = _TRAILING_COMMA.sub(lambda found: found.group(1) or " ", _TOKEN.sub(_blank, text.removeprefix("\ufeff")))
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise Invalid(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise Invalid("the file is nested too deeply") from error


def _blank(found: re.Match[str]) -> str:
    piece = found.group()
    if piece.startswith('"'):
        return piece
    if piece == "/*":
        return piece  # never closed: the JSON parser reports the position
    return re.sub(r"[^\n]", " ", piece)
