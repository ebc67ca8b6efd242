"""Formats a tool for `tools/list` with as few tokens as a model needs to choose it and call it correctly.

The limits of arguments and the details of results are in the catalogue and are checked there. Listing them would cost
tokens in every conversation.
"""

from __future__ import annotations

from collections.abc import Mapping

from sari.protocol.tooling import ToolSpec

_UNLISTED = frozenset({"minimum", "maximum", "additionalProperties"})
# Arguments that are accepted but not listed. Answers mention them where they are useful, and so do the server's
# instructions.
_UNLISTED_ARGUMENTS = frozenset({"case", "cursor", "key", "languages", "limit", "max_tokens", "regex"})
# Exceptions: listed for the most frequently called tool.
_LISTED_ARGUMENTS = frozenset({("search", "max_tokens")})


def describe(spec: ToolSpec) -> dict[str, object]:
    """Return one tool as an element of the list."""
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": _short(_with_listed_arguments(spec)),
        "outputSchema": {"type": "object", "required": spec.output_schema["required"]},
        "annotations": _hints(spec),
    }


def _hints(spec: ToolSpec) -> dict[str, bool]:
    """Return a tool's annotations. Clients use the last two only to decide whether to ask before a change."""
    hints = {"readOnlyHint": spec.read_only, "idempotentHint": spec.idempotent}
    return hints if spec.read_only else {**hints, "destructiveHint": True, "openWorldHint": False}


def _with_listed_arguments(spec: ToolSpec) -> dict[str, object]:
    properties = spec.input_schema["properties"]
    assert isinstance(properties, Mapping)
    listed = {
        name: schema
        for name, schema in properties.items()
        if name not in _UNLISTED_ARGUMENTS or (spec.name, name) in _LISTED_ARGUMENTS
    }
    return {**spec.input_schema, "properties": listed}


def _short(schema: Mapping[str, object]) -> dict[str, object]:
    short: dict[str, object] = {}
    for key, value in schema.items():
        if key in _UNLISTED or (key in ("required", "description") and not value):
            continue
        if key == "anyOf":
            # A list or one string. Without a description, callers usually pass one string.
            short |= (
                {"type": "array", "items": {"type": "string"}} if schema.get("description") else {"type": "string"}
            )
        elif key == "properties" and isinstance(value, Mapping):
            short[key] = {name: _short(one) for name, one in value.items()}
        else:
            short[key] = value
    return short
