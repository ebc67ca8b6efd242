"""MCP over Streamable HTTP at /mcp, in both eras, as its clients send it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from testing.sari.home import sari_home
from testing.sari.web import Answer, Web

pytestmark = pytest.mark.xdist_group("sari-http")

STATELESS = "2026-07-28"
BOTH = "application/json, text/event-stream"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with sari_home(tmp_path_factory.mktemp("mcp")) as home:
        home.write("main.py", "def needle():\n    pass\n")
        home.start()
        yield Web(home)


def call(identifier: int, tool: str = "search", **arguments: object) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": identifier,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments or {"query": "needle"}},
    }


def post(web: Web, body: object, session: str | None = None, **headers: str) -> Answer:
    if session is not None:
        headers["Mcp_Session_Id"] = session
    headers.setdefault("Accept", BOTH)
    return web.ask(f"/mcp?workspace={quote(str(web.home.workspace))}", "POST", body, **headers)


def initialize(web: Web, version: str = "2025-11-25") -> str:
    client = {"name": "a-client", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    answer = post(web, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    assert answer.status == 200
    result = answer.json["result"]
    assert isinstance(result, dict)
    assert result["protocolVersion"] == version
    session = answer.headers["mcp-session-id"]
    assert post(web, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session).status == 202
    return session


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_session_from_initialize_to_its_end(web: Web, version: str) -> None:
    session = initialize(web, version)
    tools = post(web, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, session, MCP_Protocol_Version=version)
    assert "search" in [tool["name"] for tool in tools.json["result"]["tools"]]  # type: ignore[index]
    found = post(web, call(2), session, MCP_Protocol_Version=version).json
    assert found["id"] == 2
    assert found["result"]["structuredContent"]["total"] == 1  # type: ignore[index]
    sessions = web.ask("/status").json["sessions"]
    assert isinstance(sessions, list)
    assert "a-client" in [view["client"] for view in sessions]
    assert web.ask("/mcp", "DELETE", Mcp_Session_Id=session).status == 204
    assert post(web, call(3), session).status == 404
    assert web.ask("/mcp", "DELETE", Mcp_Session_Id=session).status == 404


def test_a_session_outlives_the_daemon_it_began_with(web: Web) -> None:
    session = initialize(web)
    before = web.home.info()["pid"]
    assert web.home.sari("daemon", "restart").returncode == 0
    assert web.home.info()["pid"] != before
    assert web.home.http_port == web.port, "the address is handed over, too"
    assert post(web, call(1), session).json["result"]["structuredContent"]["total"] == 1  # type: ignore[index]


def test_forged_sessions_are_not_found(web: Web) -> None:
    assert post(web, call(1), "made.9999999999.up").status == 404
    assert web.ask("/mcp", "DELETE", Mcp_Session_Id="nonsense").status == 404
    assert web.ask("/mcp", "DELETE").status == 400


def test_progress_comes_as_events_before_the_answer(web: Web) -> None:
    message = call(7)
    message["params"]["_meta"] = {"progressToken": "p"}  # type: ignore[index]
    answer = post(web, message, initialize(web))
    assert answer.headers["content-type"] == "text/event-stream"
    events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    assert events[-1]["id"] == 7
    assert all(event["method"] == "notifications/progress" for event in events[:-1])
    plain = post(web, message, initialize(web), Accept="application/json")
    assert plain.headers["content-type"] == "application/json"


def test_a_batch_is_answered_as_one(web: Web) -> None:
    batch = [call(1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, call(2)]
    answers = json.loads(post(web, batch, initialize(web)).body)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert post(web, []).status == 400
    assert post(web, [call(1)] * 101).status == 400


def test_what_is_no_message_is_an_error_with_a_reason(web: Web) -> None:
    assert web.ask("/mcp").status == 405
    assert web.ask("/mcp", "POST", call(1), Content_Type="text/plain").status == 415
    assert post(web, call(1), Accept="image/png").status == 406
    head = f"POST /mcp HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {web.token}\r\n"
    broken = web.raw(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{,".encode())
    assert broken.startswith(b"HTTP/1.1 400 ")
    assert b"-32700" in broken
    assert post(web, call(1), MCP_Protocol_Version="1999-01-01").status == 400
    unknown = post(web, call(1, "no_such_tool"), initialize(web)).json
    assert unknown["error"]["code"] == -32602  # type: ignore[index]


def stateless(web: Web, message: dict[str, object], **headers: str) -> Answer:
    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
    }
    params = message.get("params") or {}
    assert isinstance(params, dict)
    sent = {"MCP_Protocol_Version": STATELESS, "Mcp_Method": str(message["method"]), **headers}
    if message["method"] == "tools/call":
        sent.setdefault("Mcp_Name", params["name"])
    return post(web, {**message, "params": {**params, "_meta": meta}}, **sent)


def test_a_stateless_request_says_everything_itself(web: Web) -> None:
    discovered = stateless(web, {"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
    assert discovered.status == 200
    assert "mcp-session-id" not in discovered.headers
    found = stateless(web, call(2))
    assert found.status == 200
    assert found.json["result"]["structuredContent"]["total"] == 1  # type: ignore[index]


def test_stateless_headers_must_agree_with_the_body(web: Web) -> None:
    for wrong in ({"Mcp_Method": "tools/list"}, {"Mcp_Name": "read"}, {"Mcp_Name": "=?base64?!?="}):
        answer = stateless(web, call(3), **wrong)
        assert answer.status == 400
        assert answer.json["error"]["code"] == -32020  # type: ignore[index]
    encoded = stateless(web, call(4), Mcp_Name="=?base64?c2VhcmNo?=")
    assert encoded.status == 200
    unsupported = stateless(web, call(5), MCP_Protocol_Version="2099-01-01")
    assert unsupported.status == 400
    assert STATELESS in unsupported.json["error"]["data"]["supported"]  # type: ignore[index]
    assert stateless(web, {"jsonrpc": "2.0", "id": 6, "method": "no/such"}).status == 404
