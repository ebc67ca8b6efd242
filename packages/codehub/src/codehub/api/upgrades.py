"""Describes upgraded connections for OpenAPI: FastAPI leaves out WebSockets, and the proxy's streams are not its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ID: Final = {"name": "workspace_id", "in": "path", "required": True, "schema": {"type": "string"}}
_TERMINAL: Final = {"name": "terminal_id", "in": "path", "required": True, "schema": {"type": "string"}}
_AFTER: Final = {"name": "after", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 0}}
_PORT: Final = {
    "name": "port",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 1, "maximum": 65535},
}
_PROXY: Final = {
    "url": "{proxy}",
    "description": "The workspace proxy.",
    "variables": {"proxy": {"default": "http://localhost:8001", "description": "CODEHUB_WORKSPACE_BASE_URL"}},
}


def _operation(
    name: str, tag: str, text: str, parameters: list[Mapping[str, Any]], errors: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "tags": [tag],
            "summary": name.replace("_", " ").capitalize(),
            "description": text,
            "parameters": parameters,
            "responses": {"101": {"description": "The connection carries the protocol from here on."}, **errors},
            **more,
        }
    }


def upgrades(errors: Mapping[str, Any]) -> dict[str, Any]:
    """Return path items. `errors` are the responses of a request that is refused."""
    return {
        "/api/v1/workspaces/{workspace_id}/terminals/{terminal_id}/attach": _operation(
            "attach_terminal",
            "terminals",
            "WebSocket. First the screen, or the output after byte `after`; then live. Never wakes the workspace.",
            [_ID, _TERMINAL, _AFTER],
            errors,
        ),
        "/_codehub/{workspace_id}/ssh": _operation(
            "ssh_stream",
            "ssh",
            "On the proxy, with `Upgrade: codehub-stream` and a token: raw bytes to the SSH server of the workspace. "
            "Wakes it.",
            [_ID],
            errors,
            servers=[_PROXY],
        ),
        "/_codehub/{workspace_id}/tcp/{port}": _operation(
            "tcp_stream",
            "ports",
            "On the proxy, with `Upgrade: codehub-stream` and a token: raw bytes to a port of the workspace. Wakes it.",
            [_ID, _PORT],
            errors,
            servers=[_PROXY],
        ),
    }
