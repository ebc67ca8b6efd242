"""Which fields of an object an API server does not know, by the OpenAPI document that the server itself publishes.

Old servers drop unknown fields silently, so that a created object says nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]


def unknown_fields(body: Json, definitions: Mapping[str, Json]) -> list[str] | None:
    """Return the paths of unknown fields, or None if the server has no such kind."""
    group, _, version = str(body["apiVersion"]).rpartition("/")
    wanted = {"group": group, "version": version, "kind": body["kind"]}
    for schema in definitions.values():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return list(_unknown(body, schema, definitions, str(body["kind"])))
    return None


def _unknown(value: Any, schema: Json, definitions: Mapping[str, Json], path: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _unknown(one, schema.get("items", {}), definitions, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        known, others = schema.get("properties"), schema.get("additionalProperties")
        for name, one in value.items():
            if known is not None and name in known:
                yield from _unknown(one, known[name], definitions, f"{path}.{name}")
            elif others is not None:
                yield from _unknown(one, others, definitions, f"{path}.{name}")
            elif known is not None or schema.get("type") not in ("object", None):
                yield f"{path}.{name}"
