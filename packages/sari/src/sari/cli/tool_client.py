"""Calls one tool from the command line, through a shim as every client does: it finds or starts the daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import IO

from sari.protocol.errors import SariError

# A workspace that this call opened is still being parsed, and the answer says to ask again: at a terminal, waiting is
# better than a partial answer.
_AGAIN_S = 60.0
_ASK_AGAIN = "ask again in a moment"
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """The tool's result."""

    text: str
    structured: Mapping[str, object]


def call_tool(tool: str, arguments: Mapping[str, object], workspace: str | None) -> Answer:
    """Call a tool in a workspace (default: found from here). Raises `SariError` with what the tool said is wrong."""
    named = {"workspace": os.path.abspath(workspace)} if workspace else {}
    shim = subprocess.Popen(
        [sys.executable, "-P", "-m", "sari.cli.main", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with shim:
        assert shim.stdin is not None
        assert shim.stdout is not None
        try:
            return _until_complete(shim.stdin, shim.stdout, {"name": tool, "arguments": {**arguments, **named}})
        except BrokenPipeError as error:
            raise SariError(_NO_ANSWER) from error
        finally:
            shim.stdin.close()


_NO_ANSWER = "sari's own client ended without an answer; `sari doctor` may know why"


def _until_complete(to: IO[bytes], out_of: IO[bytes], call: Mapping[str, object]) -> Answer:
    client = {"name": "sari-cli", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    _send(to, {"id": 0, "method": "initialize", "params": hello})
    _send(to, {"method": "notifications/initialized"})
    deadline = time.monotonic() + _AGAIN_S
    for identifier in count(1):
        _send(to, {"id": identifier, "method": "tools/call", "params": call})
        answer = _answer(_wait(out_of, identifier))
        if _ASK_AGAIN not in str(answer.structured.get("note")) or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return answer


def _send(to: IO[bytes], message: Mapping[str, object]) -> None:
    to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    to.flush()


def _wait(out_of: IO[bytes], identifier: int) -> Mapping[str, object]:
    for line in out_of:
        message: Mapping[str, object] = json.loads(line)
        if message.get("id") == identifier and "method" not in message:
            return message
    raise SariError(_NO_ANSWER)


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
