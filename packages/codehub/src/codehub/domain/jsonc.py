"""Parses JSON with comments and trailing commas, as used by devcontainer.json and VS Code settings. Pure."""

from __future__ import annotations

import json
import re

from codehub.domain.errors import Invalid

# Matches a string as a whole, so that text inside it that looks like a comment is kept. What is never closed matches up to
# the end of the line or file: otherwise the search would begin again at every character of it, in quadratic time.
_STRING = r'"(?:[^"\\\n]+|\\.)*"?'
_TOKEN = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
# Parsing takes up to some milliseconds, in which a coordinator does nothing else. Real files have some kilobytes.
_LONGEST = 128 << 10


def parse_jsonc(text: str) -> object:
    """Parse the text, or raise Invalid with line and column. Comments become blanks, so that positions match the file."""
    if len(text) > _LONGEST:
        raise Invalid("the file is larger than 128 KiB")
    plain = _TRAILING_COMMA.sub(lambda found: found.group(1) or " ", _TOKEN.sub(_blank, text.removeprefix("\ufeff")))
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise Invalid(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise Invalid("the file is nested too deeply") from error
    except ValueError as error:
        raise Invalid("the file holds a number that is too long") from error


def _blank(found: re.Match[str]) -> str:
    piece = found.group()
    if piece.startswith('"'):
        return piece
    if piece.startswith("/*") and (len(piece) < len("/**/") or not piece.endswith("*/")):
        return piece  # never closed: the JSON parser reports the position
    return re.sub(r"[^\n]", " ", piece)
