"""Real clients call a tool through nothing but the configuration `sari install` wrote, and over HTTP."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from testing.sari.home import TIMEOUT_S, SariHome, sari_home
from testing.sari.parts import node_part, python_part
from testing.sari.web import Web

pytestmark = pytest.mark.xdist_group("sari-clients")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SariHome]:
    with sari_home(tmp_path) as made:
        made.write("main.py", "def needle():\n    pass\n")
        yield made


def installed(home: SariHome, host: str) -> None:
    done = home.sari("install", "--host", host)
    assert done.returncode == 0, done.stderr


def inspector(home: SariHome, *words: str) -> dict[str, object]:
    """The MCP Inspector's command line."""
    place = node_part("inspector") / "node_modules" / ".bin"
    done = home.run(str(place / "node"), str(place / "mcp-inspector"), "--cli", "--format", "json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.needs("npm")
def test_codex_calls_a_tool_through_what_was_installed(home: SariHome) -> None:
    installed(home, "codex")
    programs = node_part("codex").glob("node_modules/@openai/codex-*/vendor/*/bin/codex")
    codex = subprocess.Popen(
        [str(next(programs)), "app-server"],
        cwd=home.workspace,
        env=home.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    deadline = threading.Timer(TIMEOUT_S, codex.kill)
    deadline.start()

    def ask(identifier: int, method: str, **params: object) -> dict[str, dict[str, object]]:
        assert codex.stdin is not None
        assert codex.stdout is not None
        codex.stdin.write(json.dumps({"id": identifier, "method": method, "params": params}) + "\n")
        codex.stdin.flush()
        for line in codex.stdout:
            message = json.loads(line)
            if message.get("id") == identifier and "method" not in message:
                assert "result" in message, message
                return dict(message)
        raise AssertionError(f"Codex ended before it answered {method}")

    try:
        ask(1, "initialize", clientInfo={"name": "test", "title": "test", "version": "1"})
        thread = ask(2, "thread/start", cwd=str(home.workspace))["result"]["thread"]
        assert isinstance(thread, dict)
        call = {"server": "sari", "tool": "search", "arguments": {"query": "needle"}}
        result = ask(3, "mcpServer/tool/call", threadId=thread["id"], **call)["result"]
        assert result["structuredContent"]["matches"][0]["path"] == "main.py"  # type: ignore[index]
    finally:
        deadline.cancel()
        codex.kill()
        codex.communicate()


@pytest.mark.needs("npm")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_a_tool_through_what_was_installed(home: SariHome, era: str) -> None:
    installed(home, "claude")
    call = ("--method", "tools/call", "--tool-name", "search", "--tool-args-json", '{"query": "needle"}')
    config = ("--config", str(home.home / ".claude.json"), "--server", "sari", "--protocol-era", era)
    answer = inspector(home, *config, *call)
    assert "main.py" in json.dumps(answer)


@pytest.mark.needs("npm")
def test_the_inspector_calls_a_tool_over_http(home: SariHome) -> None:
    home.start()
    web = Web(home)
    url = f"http://127.0.0.1:{web.port}/mcp?workspace={quote(str(home.workspace))}"
    call = ("--method", "tools/call", "--tool-name", "search")
    arguments = json.dumps({"query": "needle", "workspace": str(home.workspace)})
    header = f"Authorization: Bearer {web.token}"
    words = (*call, "--tool-args-json", arguments, "--header", header)
    assert "main.py" in json.dumps(inspector(home, *words, "--transport", "http", "--server-url", url))


# Run by the SDK's own interpreter: it must not see this repository's packages.
SESSION = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

entry = json.loads(open(sys.argv[1]).read())["mcpServers"]["sari"]

async def main():
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env"))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            print((await session.call_tool("search", {"query": "needle"})).model_dump_json())

asyncio.run(main())
"""
HTTP_1 = """
import asyncio, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main():
    url, token, workspace = sys.argv[1:]
    async with streamablehttp_client(url, headers={"Authorization": f"Bearer {token}"}) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            print((await session.call_tool("search", {"query": "needle", "workspace": workspace})).model_dump_json())

asyncio.run(main())
"""
HTTP_2 = """
import asyncio, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    url, token, workspace = sys.argv[1:4]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=sys.argv[4]) as client:
            print((await client.call_tool("search", {"query": "needle", "workspace": workspace})).model_dump_json())

asyncio.run(main())
"""


@pytest.mark.parametrize("sdk", ["mcp1", "mcp2"])
def test_the_python_sdk_calls_a_tool_through_what_was_installed(home: SariHome, sdk: str) -> None:
    installed(home, "claude")
    python = str(python_part(sdk) / "bin" / "python")
    done = home.run(python, "-c", SESSION, str(home.home / ".claude.json"))
    assert done.returncode == 0, done.stderr
    assert "main.py" in done.stdout


@pytest.mark.parametrize(
    ("sdk", "program", "more"),
    [("mcp1", HTTP_1, ()), ("mcp2", HTTP_2, ("2026-07-28",))],
    ids=["sessions", "stateless"],
)
def test_the_python_sdk_calls_a_tool_over_http(home: SariHome, sdk: str, program: str, more: tuple[str, ...]) -> None:
    home.start()
    web = Web(home)
    python = str(python_part(sdk) / "bin" / "python")
    url = f"http://127.0.0.1:{web.port}/mcp?workspace={quote(str(home.workspace))}"
    done = home.run(python, "-W", "ignore", "-c", program, url, web.token, str(home.workspace), *more)
    assert done.returncode == 0, done.stderr
    assert "main.py" in done.stdout
