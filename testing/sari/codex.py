"""Codex as a real MCP client without a model: its `app-server`, over stdio."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testing.sari.parts import node_part
from testing.sari.processes import DEADLINE_S


class Codex:
    """One `codex app-server` with sari configured as users configure it."""

    def __init__(self, home: Path, environ: Mapping[str, str], directory: Path, sari: str) -> None:
        folder = home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(f'[mcp_servers.sari]\ncommand = "{sari}"\nargs = ["mcp"]\n')
        program = node_part("codex") / "node_modules/.bin/codex"
        self._process = subprocess.Popen(
            [str(program), "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={**environ, "CODEX_HOME": str(folder)},
        )
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._count = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.request("initialize", {"clientInfo": {"name": "test", "version": "1"}})
        self._send({"method": "initialized"})
        self._directory = directory
        self._thread = ""

    def tools(self) -> list[str]:
        """Return the names of sari's tools, as Codex lists them."""
        servers = self.request("mcpServerStatus/list", {})["data"]
        return sorted(next(server for server in servers if server["name"] == "sari")["tools"])

    def ask_tool(self, tool: str, arguments: Mapping[str, object]) -> int:
        """Call a tool, without waiting."""
        if not self._thread:
            self._thread = self.request("thread/start", {"cwd": str(self._directory)})["thread"]["id"]
        params = {"threadId": self._thread, "server": "sari", "tool": tool, "arguments": dict(arguments)}
        return self.ask("mcpServer/tool/call", params)

    def call(self, tool: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Call a tool and wait for its result."""
        return self.answer(self.ask_tool(tool, arguments))

    def request(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return self.answer(self.ask(method, params))

    def ask(self, method: str, params: Mapping[str, object]) -> int:
        """Send a request without waiting."""
        self._count += 1
        self._send({"id": self._count, "method": method, "params": dict(params)})
        return self._count

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for an answer."""
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, DEADLINE_S), f"no answer to {number}"
            answer = self._answers.pop(number)
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def close(self) -> None:
        """End it as a terminal does."""
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self._process.stdout:
                message = json.loads(line)
                if "id" in message and "method" not in message:
                    with self._changed:
                        self._answers[message["id"]] = message
                        self._changed.notify_all()
