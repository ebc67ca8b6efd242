"""`sari mcp` as a client runs it: a process with pipes, in either framing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from sari.protocol.framing import Decoder, Refused, encode
from testing.sari.processes import DEADLINE_S

SARI = str(Path(sys.executable).with_name("sari"))
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
Answer = dict[str, object]


class Shim:
    """One client's server process. Answers are kept by id, other messages in order."""

    def __init__(
        self,
        environ: Mapping[str, str],
        directory: Path,
        *words: str,
        sari: str = SARI,
        uses_headers: bool = False,
        **popen: object,
    ) -> None:
        self.uses_headers = uses_headers
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            [sari, "mcp", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env=dict(environ),
            **popen,
        )
        self.stderr = b""
        self.others: list[Answer] = []
        self.stray: list[bytes] = []
        self._answers: dict[object, Answer] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._count = 0
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def send(self, message: object) -> None:
        """Send one message."""
        self.send_bytes(encode(json.dumps(message).encode(), self.uses_headers))

    def send_bytes(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, object] | None = None, request_id: object = None) -> object:
        """Send a request and return its id, without waiting."""
        if request_id is None:
            self._count += 1
            request_id = self._count
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params or {})})
        return request_id

    def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    def answer(self, request_id: object, deadline_s: float = DEADLINE_S) -> Answer:
        """Wait for the answer to a request."""
        with self._changed:
            there = self._changed.wait_for(lambda: request_id in self._answers or self._closed, deadline_s)
            if request_id in self._answers:
                return self._answers.pop(request_id)
        state = "stdout was closed" if there else f"nothing within {deadline_s:g} seconds"
        raise AssertionError(f"no answer to request {request_id!r}: {state}; stderr: {self.stderr.decode()[-2000:]}")

    def has_answer(self, request_id: object) -> bool:
        """Return whether an answer has arrived."""
        with self._changed:
            return request_id in self._answers

    def request(self, method: str, params: Mapping[str, object] | None = None) -> Answer:
        """Send a request and wait for its answer."""
        return self.answer(self.ask(method, params))

    def initialize(self) -> Answer:
        """Perform the handshake of the initialize era."""
        answer = self.request("initialize", INITIALIZE)
        self.notify("notifications/initialized")
        return answer

    def ask_tool(self, tool: str, arguments: Mapping[str, object]) -> object:
        """Send a tool call, without waiting."""
        return self.ask("tools/call", {"name": tool, "arguments": dict(arguments)})

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Call a tool and return its result. Any error fails the test."""
        return result_of(self.answer(self.ask_tool(tool, arguments)))

    def wait_for_other(self, method: str) -> Answer:
        """Wait for a request or notification from the server."""
        with self._changed:
            self._changed.wait_for(lambda: any(one.get("method") == method for one in self.others), DEADLINE_S)
            return next(one for one in self.others if one.get("method") == method)

    def close_stdin(self) -> None:
        """End it gracefully, by closing its stdin."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self) -> int:
        """Close stdin, and wait for the process to end and for all its output."""
        self.close_stdin()
        code = self.process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        return int(code)

    def kill(self) -> None:
        """Kill it, whatever its state."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()

    def _read(self) -> None:
        decoder = Decoder(1 << 28)
        descriptor = self.process.stdout.fileno()
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(descriptor, 1 << 16):
                for item in decoder.feed(data):
                    self._take(item)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, item: bytes | Refused) -> None:
        with self._changed:
            try:
                message = json.loads(item) if isinstance(item, bytes) else None
            except ValueError:
                message = None
            if not isinstance(message, dict):
                self.stray.append(item if isinstance(item, bytes) else item.reason.encode())
            elif "method" in message or message.get("id") is None:
                self.others.append(message)
            else:
                assert message["id"] not in self._answers, f"answered twice: {message['id']}"
                self._answers[message["id"]] = message
            self._changed.notify_all()

    def _read_errors(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self.process.stderr.fileno(), 1 << 16):
                self.stderr += data


def result_of(answer: Answer) -> Answer:
    """Return a tool's successful result."""
    result = answer.get("result")
    assert isinstance(result, dict), f"an error: {answer}"
    assert result.get("isError") is not True, f"an error: {result}"
    return result


def structured(result: Answer) -> Answer:
    """Return the structured content of a tool's result."""
    content = result["structuredContent"]
    assert isinstance(content, dict)
    return content


def found_paths(result: Answer) -> list[str]:
    """Return the paths in a search's answer."""
    matches = structured(result)["matches"]
    assert isinstance(matches, list)
    return sorted(str(match["path"]) for match in matches)
