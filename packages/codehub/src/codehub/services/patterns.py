"""Compiles the patterns of template parameters with an engine that takes linear time (ADR 0470)."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from codehub.domain.errors import Invalid
from codehub.domain.parameters import Pattern

_LONGEST_PATTERN = 512
# Python's `re` backtracks: a text of 30 characters can take it hours.
_LINEAR = ConfigDict(regex_engine="rust-regex")


def compile_pattern(source: str) -> Pattern:
    if len(source) > _LONGEST_PATTERN:
        raise Invalid(f"has at most {_LONGEST_PATTERN} characters")
    _compile(source)  # by itself first: `a)|(b` is a pattern only between the parentheses below
    whole = _compile(rf"\A(?:{source})\z")

    def matches(text: str) -> bool:
        try:
            whole.validate_python(text)
        except ValidationError:
            return False
        return True

    return Pattern(source, matches)


def _compile(source: str) -> TypeAdapter[str]:
    try:
        return TypeAdapter(Annotated[str, Field(pattern=source)], config=_LINEAR)
    except SchemaError as error:
        raise Invalid(f"is not a regular expression that can be used here: {_reason(error)}") from error


def _reason(error: SchemaError) -> str:
    """Return the engine's last line, which says what is wrong."""
    return str(error).strip().splitlines()[-1].removeprefix("error: ").removeprefix("SchemaError: ").strip()
