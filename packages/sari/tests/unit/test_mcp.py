"""What sari answers by itself, in both eras."""

from typing import Any

import pytest

from sari.protocol import jsonrpc, mcp
from sari.protocol.tooling import ToolResult

MODERN = {"_meta": {mcp.VERSION_KEY: "2026-07-28", mcp.CLIENT_KEY: {"name": "modern"}}}


def ask(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = mcp.answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
    assert answer is not None
    return answer


@pytest.mark.parametrize("version", mcp.HANDSHAKE_VERSIONS)
def test_a_known_version_is_echoed(version: str) -> None:
    assert ask("initialize", {"protocolVersion": version})["result"]["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2030-01-01", "2026-07-28", None, 7])
def test_an_unknown_version_is_answered_with_the_latest(version: object) -> None:
    assert ask("initialize", {"protocolVersion": version})["result"]["protocolVersion"] == "2025-11-25"


def test_discover_names_both_eras() -> None:
    result = ask("server/discover", MODERN)["result"]
    assert result["supportedVersions"][0] == "2026-07-28"
    assert set(mcp.HANDSHAKE_VERSIONS) < set(result["supportedVersions"])
    assert result["resultType"] == "complete"


def test_a_modern_request_of_an_unknown_version_is_told_which_there_are() -> None:
    error = ask("tools/list", {"_meta": {mcp.VERSION_KEY: "2031-01-01"}})["error"]
    assert error["code"] == -32022
    assert "2026-07-28" in error["data"]["supported"]


@pytest.mark.parametrize("params", [{}, MODERN], ids=["legacy", "modern"])
def test_all_tools_are_on_the_first_page_with_annotations_and_schemas(params: dict[str, Any]) -> None:
    result = ask("tools/list", params)["result"]
    assert len(result["tools"]) == 13
    assert "nextCursor" not in result
    for tool in result["tools"]:
        hints = tool["annotations"]
        writes = tool["name"] in ("rename_symbol", "replace_symbol")
        assert hints["readOnlyHint"] is not writes
        assert (hints.get("destructiveHint"), hints.get("openWorldHint")) == (
            (True, False) if writes else (None, None)
        )
        assert isinstance(hints["idempotentHint"], bool)
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert "workspace" in tool["inputSchema"]["properties"]
    assert ("ttlMs" in result) == bool(params)


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list", "ping"])
def test_lists_nobody_fills_answer_rather_than_fail(method: str) -> None:
    assert "result" in ask(method)


def test_an_unknown_method_is_said() -> None:
    assert ask("surprise/me")["error"]["code"] == jsonrpc.METHOD_NOT_FOUND


def test_an_error_result_carries_text_only() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": MODERN}
    good = mcp.tool_answer(call, ToolResult("text", {"a": 1}))["result"]
    bad = mcp.tool_answer(call, ToolResult("what to do", {"a": 1}, is_error=True))["result"]
    assert good == {
        "content": [{"type": "text", "text": "text"}],
        "isError": False,
        "structuredContent": {"a": 1},
        "resultType": "complete",
        "_meta": {mcp.SERVER_KEY: mcp.server_info()},
    }
    assert isinstance(bad, dict)
    assert "structuredContent" not in bad
