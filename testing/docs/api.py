"""Generates docs/api.md from the OpenAPI description: `python -m testing.docs.api`. A test compares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from codehub.adapters.postgres.pool import Database
from codehub.api.app import create_app
from testing.codehub.api import api_deps

PAGE: Final = Path(__file__).parents[2] / "docs" / "api.md"
_HEAD: Final = """# HTTP API

Generated from `/openapi.json` by `python -m testing.docs.api`.

Sign in with `POST /api/v1/login`, which sets the cookie `session` (`__Host-session` over HTTPS; valid for 24 h), or send an
API token as `Authorization: Bearer cht_…`. A token cannot create tokens, manage users or change passwords.

* Errors are `{"error": {"code", "message"}}`; the message says what happened and what to do. Unknown fields and query
  parameters are errors.
* Lists are `{items, page, per_page, total}`; `per_page` is 50 by default and at most 200.
* Bodies are `application/json` of at most 1 MiB. A request that changes something and has an `Origin` must have the
  dashboard's, and its `Sec-Fetch-Site` must be `same-origin` or `none`.
* 503 with `Retry-After` means that the database does not answer. Nothing was changed.
* Every response has an `X-Request-ID`, which is also in the log.

| code | status |
|---|---|
| INVALID_REQUEST | 400 |
| UNAUTHORIZED | 401 |
| FORBIDDEN | 403: another user's workspace, or a foreign origin |
| PATH_FORBIDDEN | 403: a path outside the home, or one that the workspace's user has no permission for |
| NOT_FOUND, WORKSPACE_NOT_FOUND | 404; a deleted workspace is not found |
| METHOD_NOT_ALLOWED | 405 |
| INVALID_STATE | 409 |
| NAME_TAKEN | 409 |
| WORKSPACE_LIMIT_EXCEEDED | 409: the owner has as many workspaces as allowed |
| PAYLOAD_TOO_LARGE | 413 |
| RUNNING_LIMIT_EXCEEDED | 429 |
| TOO_MANY_REQUESTS | 429 with `Retry-After` |
| INTERNAL_ERROR | 500 |
| UPSTREAM_UNAVAILABLE | 502 |
| SERVICE_UNAVAILABLE | 503 with `Retry-After` |
| INSUFFICIENT_STORAGE | 507: the workspace's disk is full |
"""


def page() -> str:
    described = create_app(api_deps(Database("postgresql://"))).openapi()
    schemas = described["components"]["schemas"]
    by_tag: dict[str, list[str]] = {}
    bodies: dict[str, None] = {}
    answers: dict[str, None] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            body = _named(operation.get("requestBody", {}).get("content", {}).get("application/json", {}))
            good = next(status for status in operation["responses"] if status.startswith(("1", "2")))
            answer = _named(operation["responses"][good].get("content", {}).get("application/json", {}))
            bodies.update(dict.fromkeys([body] if body else []))
            answers.update(dict.fromkeys([answer] if answer else []))
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append(
                _row(path, method, operation, body, answer)
            )
    parts = [_HEAD]
    for tag, rows in by_tag.items():
        parts.append(
            f"\n## {tag.capitalize()}\n\n| request | parameters or body | response | description |\n|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    parts.append("\n## Request bodies\n" + "".join(_schema(name, schemas[name]) for name in bodies))
    parts.append("\n## Responses\n" + "".join(_schema(name, schemas[name]) for name in _closed(answers, schemas)))
    return "".join(parts)


def _row(path: str, method: str, operation: dict[str, Any], body: str, answer: str) -> str:
    query = [f"`{each['name']}`" for each in operation.get("parameters", []) if each["in"] == "query"]
    takes = ", ".join(([f"[{body}](#{body.lower()})"] if body else []) + query)
    good = next(status for status in operation["responses"] if status.startswith(("1", "2")))
    shown = f"{good} [{answer}](#{answer.lower()})" if answer else good
    others = ", ".join(status for status in operation["responses"] if not status.startswith(("1", "2")))
    words = operation.get("description", "").replace("\n", " ").replace("|", "\\|")
    return f"| `{method.upper()} {path}` | {takes} | {shown}; {others} | {words} |"


def _named(content: dict[str, Any]) -> str:
    schema = content.get("schema", {})
    for choice in [schema, *schema.get("anyOf", [])]:
        if "$ref" in choice:
            return str(choice["$ref"]).rpartition("/")[2]
    return ""


def _closed(names: dict[str, None], schemas: dict[str, Any]) -> list[str]:
    """Return these schemas and all that they refer to, without duplicates, in order of appearance."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found and "properties" in schemas[name]:
            found[name] = None
            waiting += [each for field in schemas[name]["properties"].values() for each in _references(field)]
    return list(found)


def _references(schema: dict[str, Any]) -> list[str]:
    here = [str(schema["$ref"]).rpartition("/")[2]] if "$ref" in schema else []
    below = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", [])]
    return here + [name for each in below if isinstance(each, dict) for name in _references(each)]


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    lines = [f"\n### {name}\n"]
    if words := schema.get("description"):
        lines.append(f"{words}\n")
    lines += ["| field | type | |", "|---|---|---|"]
    for field, details in schema.get("properties", {}).items():
        optional = "" if field in required else " (optional)"
        lines.append(f"| `{field}`{optional} | {_type(details)} | {details.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("format") == "date-time":
        return "time"
    bounds = [
        f"{words} {schema[key]}"
        for key, words in (("minLength", "from"), ("maxLength", "to"), ("minimum", "from"), ("maximum", "to"))
        if key in schema
    ]
    kind = str(schema.get("type", "any"))
    unit = " characters" if kind == "string" else ""
    return f"{kind}, {' '.join(bounds)}{unit}" if bounds else kind


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
