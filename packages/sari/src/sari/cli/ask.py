"""Calls one tool from the command line, through a shim like every client's: it finds or starts the daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sari.protocol.errors import SariError


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool said."""

    text: str
    structured: Mapping[str, object]


def ask(tool: str, arguments: Mapping[str, object], workspace: str | None) -> Answer:
    """Call a tool in a workspace (default: found from here). Raises `SariError` with what the tool said is wrong."""
    named = {"workspace": os.path.abspath(workspace)} if workspace else {}
    client = {"name": "sari-cli", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": tool, "arguments": {**arguments, **named}},
        },
    ]
    shim = subprocess.Popen(
        [sys.executable, "-P", "-m", "sari.cli.main", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with shim:
        assert shim.stdin is not None
        assert shim.stdout is not None
        try:
            shim.stdin.write("".join(json.dumps(message) + "\n" for message in messages).encode())
            shim.stdin.flush()
            for line in shim.stdout:
                message = json.loads(line)
                if message.get("id") == 2:
                    return _answer(message)
        except BrokenPipeError:
            pass
        finally:
            shim.stdin.close()
    raise SariError("sari's own client ended without an answer; `sari doctor` may know why")


def _answer(message: Mapping[str, object]) -> Answer:
    error = message.get("error")
    if isinstance(error, dict):
        raise SariError(str(error.get("message")))
    result = message.get("result")
    assert isinstance(result, dict)
    text = "\n".join(part.get("text", "") for part in result.get("content") or [])
    if result.get("isError"):
        raise SariError(text)
    return Answer(text, result.get("structuredContent") or {})
