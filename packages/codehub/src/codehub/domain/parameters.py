"""A template's parameters, which users fill in when they create a workspace: kinds, checks and placeholders. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from codehub.domain.errors import Invalid
from codehub.domain.table_reader import TableReader

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
Value = str | int | float | bool
_PLACEHOLDER = re.compile(r"\{parameters\.([^{}]*)\}")
_LONGEST_TEXT = 256


class ParameterKind(StrEnum):
    CHOICE = "choice"
    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression. `matches` says whether it matches the whole text, in time linear in the text's length: users
    enter the texts, and the API waits for the answer."""

    source: str
    matches: Callable[[str], bool] = field(compare=False, repr=False)


CompilePattern = Callable[[str], Pattern]  # raises Invalid


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` None: a value is required."""

    name: str
    kind: ParameterKind
    description: str = ""
    choices: tuple[str, ...] = ()
    default: Value | None = None
    pattern: Pattern | None = None
    minimum: float | None = None
    maximum: float | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether the administrator restricted the values, so that users cannot enter arbitrary text."""
        return self.kind is not ParameterKind.TEXT or self.pattern is not None

    def text_of(self, given: Value | None) -> str:
        """Return the value, or else the default, as text. Raises Invalid with the allowed values."""
        value = self.default if given is None else given
        if value is None:
            raise Invalid("a value is needed")
        match self.kind:
            case ParameterKind.CHOICE:
                if not isinstance(value, str) or value not in self.choices:
                    raise Invalid(f"must be one of {', '.join(self.choices)}")
                return value
            case ParameterKind.TEXT:
                return self._text(value)
            case ParameterKind.NUMBER:
                return self._number(value)
            case ParameterKind.SWITCH:
                if not isinstance(value, bool):
                    raise Invalid("must be true or false")
                return "true" if value else "false"

    def _text(self, value: Value) -> str:
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
            raise Invalid(f"must be a text of at most {_LONGEST_TEXT} printable characters")
        if self.pattern is not None and not self.pattern.matches(value):
            raise Invalid(f"must match {self.pattern.source}")
        return value

    def _number(self, value: Value) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid("must be a number")
        if not _is_finite(value):  # JSON does not know the others
            raise Invalid("must be a number")
        if self.minimum is not None and value < self.minimum:
            raise Invalid(f"must be at least {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise Invalid(f"must be at most {self.maximum:g}")
        return str(value)


def parse_parameter(name: str, reader: TableReader, compile_pattern: CompilePattern) -> Parameter | None:
    """Parse a parameter. Returns None after a mistake, which the reader records."""
    choices = tuple(str(item) for item in reader.items("choices", str, "texts"))
    kind = reader.parsed("type", _kind) or (ParameterKind.CHOICE if choices else ParameterKind.TEXT)
    wanted: type | tuple[type, ...] = bool if reader.holds("default", bool) else (str, int, float)
    default = reader.take("default", wanted, "a text, a number or a switch")
    parameter = Parameter(
        name=name,
        kind=kind,
        description=reader.text("description"),
        choices=choices,
        default=default if isinstance(default, str | int | float | bool) else None,
        pattern=_pattern(reader, compile_pattern),
        minimum=_bound(reader, "min"),
        maximum=_bound(reader, "max"),
    )
    reader.end("type, description, choices, default, pattern (or validation), min, max")
    return parameter if _is_consistent(parameter, reader) else None


def _kind(text: str) -> ParameterKind:
    try:
        return ParameterKind(text)
    except ValueError as error:
        raise Invalid(f"must be one of {', '.join(ParameterKind)}") from error


def _pattern(reader: TableReader, compile_pattern: CompilePattern) -> Pattern | None:
    """Return the pattern, which may also be called `validation`."""
    if reader.holds("pattern", str) and reader.holds("validation", str):
        reader.wrong("validation", "is another name for pattern: write one of them")
    found = reader.parsed("pattern", compile_pattern)
    return found or reader.parsed("validation", compile_pattern)


def _bound(reader: TableReader, key: str) -> float | None:
    value = reader.take(key, (int, float), "a number")
    if not isinstance(value, int | float):
        return None
    if not _is_finite(value):
        reader.wrong(key, "must be a number")
        return None
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every floating-point number
        return False


def _is_consistent(parameter: Parameter, reader: TableReader) -> bool:
    if (parameter.kind is ParameterKind.CHOICE) != bool(parameter.choices):
        reader.wrong("choices", "a choice needs them, and nothing else has them")
        return False
    if parameter.pattern is not None and parameter.kind is not ParameterKind.TEXT:
        reader.wrong("pattern", "only a text has a pattern")
        return False
    if parameter.kind is not ParameterKind.NUMBER and (parameter.minimum, parameter.maximum) != (None, None):
        reader.wrong("min" if parameter.minimum is not None else "max", "only a number has bounds")
        return False
    if len(set(parameter.choices)) < len(parameter.choices):
        reader.wrong("choices", "has one twice")
        return False
    if parameter.minimum is not None and parameter.maximum is not None and parameter.minimum > parameter.maximum:
        reader.wrong("min", "is larger than max")
        return False
    if parameter.default is not None:
        try:
            parameter.text_of(None)
        except Invalid as error:
            reader.wrong("default", str(error))
            return False
    return True


def placeholders(text: str) -> set[str]:
    return set(_PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder once. A value that looks like a placeholder is not expanded."""
    return _PLACEHOLDER.sub(lambda found: values[found.group(1)], text)
