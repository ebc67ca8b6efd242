"""Parses a tool's arguments: lenient in form (a number as text, one string for a list), strict in meaning.

Converts values according to the catalogue's schemas and refuses paths outside the workspace. Every refusal says how to
call the tool correctly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sari.protocol.catalog import BY_NAME


class BadArguments(Exception):
    """Raised when the arguments are invalid. The message says how to call the tool correctly."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """One call's arguments, checked and converted to their types."""

    tool: str
    values: Mapping[str, object]

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        return value if isinstance(value, str) else default

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        return value if isinstance(value, int) else default

    def optional(self, name: str) -> int | None:
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def flag(self, name: str) -> bool:
        return self.values.get(name) is True

    def names(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, ())
        return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def parse(tool: str, raw: Mapping[str, object]) -> Arguments:
    """Check `raw` against the tool's schema."""
    schema = BY_NAME[tool].input_schema
    properties = schema["properties"]
    required = schema["required"]
    assert isinstance(properties, Mapping)
    assert isinstance(required, list)
    unknown = [name for name in raw if name not in properties]
    if unknown:
        raise BadArguments(f"`{tool}` has no argument `{unknown[0]}`. It takes: {', '.join(properties)}.")
    values: dict[str, object] = {}
    for name, value in raw.items():
        if value is not None:
            values[name] = _coerce(tool, name, value, properties[name])
    for name in required:
        if name not in values:
            raise BadArguments(f'`{tool}` needs `{name}`, e.g. {{"{name}": {_example(name)}}}.')
    return Arguments(tool, values)


def _example(name: str) -> str:
    examples = {"path": "src/main.py", "name": "open_file", "new_name": "open_path", "symbol": "Class.method"}
    return f'"{examples.get(name, "text to find")}"'


def _coerce(tool: str, name: str, value: object, schema: Mapping[str, object]) -> object:
    if "anyOf" in schema:
        return _strings(tool, name, value)
    match schema.get("type"):
        case "integer":
            return _integer(tool, name, value, schema)
        case "boolean":
            return _boolean(tool, name, value)
        case "string":
            if not isinstance(value, str):
                raise BadArguments(f"`{name}` of `{tool}` must be a string, not {_kind(value)}.")
            return _choice(tool, name, _utf8(name, value), schema)
    return value


def _integer(tool: str, name: str, value: object, schema: Mapping[str, object]) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,12}\s*", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadArguments(f"`{name}` of `{tool}` must be a whole number, not {_kind(value)}.")
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int) and value < least:
        counted = " Lines are counted from 1." if name in ("start", "end") else ""
        raise BadArguments(f"`{name}` of `{tool}` must be at least {least}, not {value}.{counted}")
    if isinstance(most, int) and value > most:
        return most
    return value


def _boolean(tool: str, name: str, value: object) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise BadArguments(f"`{name}` of `{tool}` must be true or false, not {_kind(value)}.")
    return value


def _choice(tool: str, name: str, value: str, schema: Mapping[str, object]) -> str:
    allowed = schema.get("enum")
    if not isinstance(allowed, list):
        return value
    folded = value.strip().lower()
    if folded not in allowed:
        raise BadArguments(f"`{name}` of `{tool}` must be one of {', '.join(allowed)}; not {value!r}.")
    return folded


def _strings(tool: str, name: str, value: object) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise BadArguments(f"`{name}` of `{tool}` must be a string or a list of strings, not {_kind(value)}.")
    return [_utf8(name, item) for item in items if item.strip()]


def _utf8(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadArguments(f"`{name}` holds half a surrogate pair. Send it as whole UTF-8 text.") from error
    return value


def _kind(value: object) -> str:
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def inside(root: Path, given: str) -> str:
    """Return the path relative to the root with `/`. Refuses paths that lead outside, also through links."""
    if not given.strip():
        raise BadArguments("`path` is empty. Give a path relative to the workspace, e.g. src/main.py.")
    if "\0" in given:
        raise BadArguments("`path` holds a NUL character. Give a path relative to the workspace, e.g. src/main.py.")
    path = Path(given)
    lexical = Path(os.path.normpath(path if path.is_absolute() else root / path))
    if not lexical.is_relative_to(root):
        resolved_parent = Path(os.path.realpath(lexical))
        if not resolved_parent.is_relative_to(root):
            raise BadArguments(f"{given} is outside the workspace {root}. Give a path within it.")
        lexical = resolved_parent
    if not Path(os.path.realpath(lexical)).is_relative_to(root):
        raise BadArguments(f"{given} is a link that leads outside the workspace {root}, so it is not read.")
    return lexical.relative_to(root).as_posix()
