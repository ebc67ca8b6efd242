"""Writes docs/sari/transcript.md: Codex, a real client, asks sari five natural questions about Python's standard library.

Run as `python -m testing.sari.transcript`. The questions are a user's, the calls are those an agent would make. Codex's
`app-server` sends them to `sari mcp` as it does with a model.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from testing.sari.codex import Codex
from testing.sari.home import SARI
from testing.sari.trees import REPOSITORY, git, python_library

_QUESTIONS: tuple[tuple[str, tuple[tuple[str, dict[str, object]], ...]], ...] = (
    ("What is in this repository?", (("repo_map", {"max_tokens": 500}),)),
    (
        "Where is a temporary directory cleaned up, and how?",
        (
            ("symbols", {"query": "TemporaryDirectory.cleanup"}),
            ("read", {"path": "tempfile.py", "symbol": "TemporaryDirectory.cleanup"}),
        ),
    ),
    ("Who calls `shutil.copytree`?", (("callers", {"name": "copytree"}),)),
    ("Which classes can I subclass an executor from, and which exist?", (("implementations", {"name": "Executor"}),)),
    (
        "Where are environment variables that begin with PYTHON read?",
        (
            (
                "search",
                {"query": r"environ.*['\"]PYTHON[A-Z]+", "mode": "regex", "globs": "!test/**", "max_tokens": 900},
            ),
        ),
    ),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sari-transcript-") as scratch:
        root = python_library(Path(scratch) / "library")
        git(root, "init", "-q")
        home = Path(scratch) / "home"
        home.mkdir()
        environ = {"HOME": str(home), "PATH": os.environ["PATH"], "SARI_DAEMON_PORT": "0", "SARI_HTTP_PORT": "0"}
        codex = Codex(home, environ, root, SARI)
        try:
            text = _ask(codex, root)
        finally:
            codex.close()
            subprocess.run([SARI, "daemon", "stop"], env=environ, check=False, capture_output=True)
    (REPOSITORY / "docs/sari/transcript.md").write_text(text)


def _ask(codex: Codex, root: Path) -> str:
    while True:
        status = codex.call("status", {})["structuredContent"]
        if status["state"] == "ready" and 0 < status["symbols"]["files"] == status["symbols"]["parsed"]:
            break
        time.sleep(0.5)
    files = status["files"]
    parts = [
        "# An MCP session, recorded\n",
        f"Codex (`codex app-server`) asks sari five questions about Python's standard library ({files} files). Recorded by "
        "`python -m testing.sari.transcript`. Times are from one run and include Codex and the shim.\n",
    ]
    for question, calls in _QUESTIONS:
        parts.append(f"## {question}\n")
        for tool, arguments in calls:
            began = time.perf_counter()
            answer = codex.call(tool, arguments)
            took_ms = (time.perf_counter() - began) * 1000
            said = "\n".join(block["text"] for block in answer["content"] if block["type"] == "text")
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            shown = said.replace(str(root), "~/library")
            parts.append(f"`{tool}({given})` — {took_ms:.0f} ms\n\n```\n{_cut(shown)}\n```\n")
    return "\n".join(parts)


def _cut(text: str, most: int = 30) -> str:
    rows = [row.rstrip() for row in text.splitlines()]
    return "\n".join(rows if len(rows) <= most else [*rows[:most], f"… {len(rows) - most} more lines"])


if __name__ == "__main__":
    main()
