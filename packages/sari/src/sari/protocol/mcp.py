"""MCP in both eras: answers the requests that need no workspace and formats tool results. No I/O, quick to import.

The `initialize` revisions negotiate once per connection; the 2026-07-28 revision names itself in each request's
`_meta`. One connection may use both, so the era is always determined per request.
"""

from __future__ import annotations

from sari import __version__
from sari.protocol import jsonrpc
from sari.protocol.jsonrpc import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sari.protocol.tooling import ToolResult

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

# The catalogue changes only with an upgrade, after which the client starts a new server.
_CACHE_MS = 3_600_000
_INSTRUCTIONS = (
    "Search and read the code of this workspace: `search` with mode ranked for a question in plain words, with the other "
    "modes for every matching line; `symbols` and `outline` for definitions, `references` and `callers` for uses, "
    "`find_files` for names, `read` for lines, `history` for commits, `repo_map` for an overview. Answers fit a budget "
    "(`max_tokens`, or `limit` for files and symbols); pass `cursor` back for more. `languages` and `case` narrow a "
    "search. `workspace` is a root directory or a list of them, e.g. node_modules/react; default: the client's "
    "project."
)
_EMPTY_LISTS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def server_info() -> Message:
    """Return the server's name and version."""
    return {"name": "sari", "title": "sari code search", "version": __version__}


def is_modern(params: Message) -> bool:
    """Whether a request uses the stateless era."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def client_name(params: Message) -> str:
    """Return the client's name, in either era."""
    meta = params.get("_meta")
    info = params.get("clientInfo") or (meta.get(CLIENT_KEY) if isinstance(meta, dict) else None)
    name = info.get("name") if isinstance(info, dict) else None
    return name[:100] if isinstance(name, str) else ""


def answer(message: Message) -> Message | None:
    """Answer a checked request that needs no workspace. Returns None for `tools/call`."""
    method, params, request_id = message["method"], jsonrpc.params_of(message), message["id"]
    refusal = _unknown_version(request_id, params)
    if refusal is not None:
        return refusal
    if method == "tools/call":
        return None
    result = _result(str(method), params)
    if result is None:
        return jsonrpc.failure(request_id, jsonrpc.METHOD_NOT_FOUND, f"sari has no method {str(method)[:100]!r}")
    return jsonrpc.success(request_id, _dress(result, params))


def _result(method: str, params: Message) -> Message | None:
    if method == "initialize":
        return _initialize(params)
    if method == "server/discover":
        return {
            "supportedVersions": [*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS)],
            "capabilities": _capabilities(),
            "instructions": _INSTRUCTIONS,
            "resultType": "complete",
            "ttlMs": _CACHE_MS,
            "cacheScope": "private",
            "_meta": {SERVER_KEY: server_info()},
        }
    if method == "tools/list":
        from sari.protocol.catalog import TOOLS
        from sari.protocol.listing import describe

        return _cached({"tools": [describe(spec) for spec in TOOLS if spec.listed]}, params)
    if method in _EMPTY_LISTS:
        return _cached({_EMPTY_LISTS[method]: []}, params)
    if method in ("ping", "logging/setLevel"):
        return {}
    return None


def _initialize(params: Message) -> Message:
    requested = params.get("protocolVersion")
    return {
        "protocolVersion": requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": _capabilities(),
        "serverInfo": server_info(),
        "instructions": _INSTRUCTIONS,
    }


def _capabilities() -> Message:
    return {"tools": {"listChanged": False}, "prompts": {}, "resources": {}}


def _cached(result: Message, params: Message) -> Message:
    if is_modern(params):
        return {**result, "ttlMs": _CACHE_MS, "cacheScope": "private"}
    return result


def _dress(result: Message, params: Message) -> Message:
    if not is_modern(params) or "resultType" in result:
        return result
    return {**result, "resultType": "complete", "_meta": {SERVER_KEY: server_info()}}


def _unknown_version(request_id: object, params: Message) -> Message | None:
    meta = params.get("_meta")
    requested = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if requested is None or requested in MODERN_VERSIONS:
        return None
    data = {"supported": [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS], "requested": requested}
    return jsonrpc.failure(request_id, jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def tool_answer(message: Message, result: ToolResult) -> Message:
    """Return the answer to a `tools/call`. An error contains only text, because its data would not match the output
    schema.
    """
    wire: Message = {"content": [{"type": "text", "text": result.text}], "isError": result.is_error}
    if not result.is_error:
        wire["structuredContent"] = result.structured
    return jsonrpc.success(message["id"], _dress(wire, jsonrpc.params_of(message)))
