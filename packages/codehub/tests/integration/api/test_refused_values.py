"""Values that PostgreSQL or Python refuse, in every parameter and field of the API: the client's error, never a 500."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from testing.codehub.api import PROFILES, Api

# NUL, and a lone surrogate as UTF-8.
TEXTS = tuple(map(quote, (b"a\x00b", b"\xed\xa0\x80")))
NUMBERS = ("NaN", "1e400", str(2**63), "9" * 400)
DATES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
IN_URLS = (*TEXTS, *NUMBERS, *map(quote, DATES))
# As they stand in JSON. Python reads `NaN` too, and 1e400 as infinity.
IN_JSON = (r'"a\u0000b"', r'"\ud800"', *NUMBERS, *(f'"{date}"' for date in DATES), '{"a": NaN}')
PARAMETER = re.compile(r"\{(\w+)\}")
# Streams without an end, and what ends the caller's session.
LEFT_OUT = frozenset({"live_events", "logout"})
# A route's other parameters.
ORDINARY = {"port": "8080", "version": "1", "name": next(iter(PROFILES))}
# The other fields of a body. A route refuses those that it does not have.
FIELDS: Mapping[str, object] = {
    "command": "true",
    "current_password": "admin-password",
    "host": "git.example",
    "name": "some",
    "new": "b",
    "new_password": "another-password",
    "old": "a",
    "parameters": {"any": 1},
    "password": "some-password",
    "path": "a.txt",
    "public_key": "ssh-ed25519 AAAA",
    "repo": {"url": "https://git.example/a"},
    "share": "link",
    "source": "[templates.a]",
    "step": "clone",
    "template": "some",
    "time_zone": "UTC",
    "token": "some-token",
    "until": None,
    "url": "https://git.example/a",
    "username": "somebody",
    "value": "some",
}


def operations(described: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if "101" not in operation["responses"] and operation["operationId"] not in LEFT_OUT:
                yield path, method, operation


def url_of(path: str, operation: Mapping[str, Any], ordinary: Mapping[str, str], query: Mapping[str, str]) -> str:
    parameters: Sequence[Mapping[str, Any]] = operation.get("parameters", ())
    # There is no coordinator that would wake the workspace.
    asleep = {"wake": "false"} if any(parameter["name"] == "wake" for parameter in parameters) else {}
    found = PARAMETER.sub(lambda match: ordinary.get(match[1], "none"), path)
    return found + "?" + "&".join(f"{name}={value}" for name, value in {**asleep, **query}.items())


def with_wrong_parameters(path: str, operation: Mapping[str, Any], workspace_id: str) -> Iterator[tuple[str, str]]:
    """Yield (parameter, URL) with each value in each parameter."""
    ordinary = {"workspace_id": workspace_id, **ORDINARY}
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        for value in IN_URLS:
            if parameter["in"] == "path":
                yield name, url_of(path, operation, {**ordinary, name: value}, {})
            else:
                yield name, url_of(path, operation, ordinary, {name: value})


def with_wrong_fields(operation: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, body) with each value in each field, also in those of an object in it."""
    for name, schema in fields_of(operation["requestBody"]["content"]["application/json"]["schema"], described):
        known = {key for key, _ in fields_of(schema["parent"], described)}
        others = {key: value for key, value in FIELDS.items() if key in known and key != name}
        for value in IN_JSON:
            inner = [key for key, _ in fields_of(schema["field"], described)]
            yield name, json.dumps({**others, name: "?"}).replace('"?"', value)
            for key in inner:
                nested = {"url": "https://git.example/a", key: "?"}
                yield name, json.dumps({**others, name: nested}).replace('"?"', value)


def fields_of(schema: Mapping[str, Any], described: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the fields of an object, and the one field `any` of a table with free keys."""
    for choice in (schema, *schema.get("anyOf", ())):
        if "$ref" in choice:
            choice = described["components"]["schemas"][choice["$ref"].rpartition("/")[2]]
        if "properties" in choice:
            return [(name, {"field": field, "parent": choice}) for name, field in choice["properties"].items()]
        if choice.get("type") == "object":
            return [("any", {"field": {}, "parent": choice})]
    return []


def is_clear(answer: httpx.Response) -> bool:
    """502: there is no backend here."""
    return answer.status_code < 500 or (answer.status_code == 502 and bool(answer.json()["error"]["message"]))


async def a_workspace(api: Api) -> tuple[httpx.AsyncClient, str]:
    admin = await api.signed_in()
    made = await admin.post("/api/v1/workspaces", json={"name": "one", "start": False})
    shared = await admin.patch(f"/api/v1/workspaces/{made.json()['id']}/ports/8080", json={"share": "link"})
    assert shared.status_code == 200, shared.text
    return admin, made.json()["id"]


async def test_no_value_of_a_parameter_is_a_server_error(api: Api) -> None:
    admin, workspace_id = await a_workspace(api)
    described = (await admin.get("/openapi.json")).json()
    tried: set[str] = set()
    for path, method, operation in operations(described):
        for name, url in with_wrong_parameters(path, operation, workspace_id):
            answer = await admin.request(method, url, json={} if "requestBody" in operation else None)
            tried.add(f"{operation['operationId']} {name}")
            assert is_clear(answer), f"{method} {url[:200]}: {answer.text}"
    assert len(tried) > 100


async def test_no_value_of_a_field_is_a_server_error(api: Api) -> None:
    admin, workspace_id = await a_workspace(api)
    described = (await admin.get("/openapi.json")).json()
    ordinary = {"workspace_id": workspace_id, **ORDINARY}
    tried: set[str] = set()
    for path, method, operation in operations(described):
        if "application/json" not in operation.get("requestBody", {}).get("content", {}):
            continue
        for name, body in with_wrong_fields(operation, described):
            answer = await admin.request(
                method,
                url_of(path, operation, ordinary, {}),
                content=body,
                headers={"content-type": "application/json"},
            )
            tried.add(f"{operation['operationId']} {name}")
            assert is_clear(answer), f"{method} {path} {body[:200]}: {answer.text}"
    assert len(tried) > 50


async def test_an_escaped_slash_before_the_files_is_refused(api: Api) -> None:
    """The route reads the decoded path, and the workspace gets the path as sent: they must mean the same."""
    admin, workspace_id = await a_workspace(api)
    for path in (f"{workspace_id}%2Ffiles/a", f"{workspace_id}/%66iles/a", f"{workspace_id}%2Ffiles%2Fa/files/b"):
        answer = await admin.get(f"/api/v1/workspaces/{path}?wake=false")
        assert answer.status_code == 400, answer.text
        assert "percent-encoded" in answer.json()["error"]["message"]
