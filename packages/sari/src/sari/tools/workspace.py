"""Opens a workspace and answers its tools: the one door through which the daemon comes in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sari.index import ripgrep
from sari.protocol.catalog import BY_NAME
from sari.protocol.tooling import Call, ToolResult
from sari.tools import arguments
from sari.tools.arguments import Arguments, BadArguments


class Workspace:
    """One root, answered by ripgrep."""

    def __init__(self, root: Path, data_dir: Path) -> None:
        self._root = Path(os.path.realpath(root))
        self._data_dir = data_dir

    @property
    def root(self) -> Path:
        return self._root

    def call(self, tool: str, raw: Mapping[str, object], call: Call) -> ToolResult:
        if tool not in BY_NAME:
            return _refused(f"There is no tool `{tool}`. There are: {', '.join(BY_NAME)}.")
        try:
            asked = arguments.parse(tool, raw)
            match tool:
                case "search":
                    return self._search(asked)
                case "read":
                    return self._read(asked)
                case "status":
                    return ToolResult(f"{self._root}: ready", self.status())
        except (BadArguments, ripgrep.RipgrepFailed) as wrong:
            return _refused(str(wrong))
        return _refused(f"`{tool}` does not answer in this build. Use `search` and `read`.")

    def _search(self, asked: Arguments) -> ToolResult:
        flags = {"literal": ["-F"], "words": ["-F", "-w"]}.get(asked.text("mode", "literal"), [])
        case = {"smart": "-S", "sensitive": "-s", "insensitive": "-i"}[asked.text("case", "smart")]
        globs = [part for glob in asked.names("globs") for part in ("-g", glob)]
        output = ripgrep.stream([*flags, case, *globs, *ripgrep.LINES, "-e", asked.text("query"), "./"], self._root)
        found = sorted(ripgrep.lines(output), key=lambda line: (line.path, line.number))
        budget = asked.number("max_tokens", 4000) * 4
        matches: list[dict[str, object]] = []
        for line in found:
            text = line.text.decode("utf-8", "replace").rstrip("\r")
            path = line.path.decode("utf-8", "surrogateescape").removeprefix("./")
            budget -= len(path) + len(text)
            if budget < 0 and matches:
                break
            matches.append({"path": path, "line": line.number, "text": text})
        shown = "\n".join(f"{m['path']}:{m['line']}:{m['text']}" for m in matches) or "No matches."
        answer = {"matches": matches, "total": len(found), "complete": True, "cursor": None}
        return ToolResult(shown, answer)

    def _read(self, asked: Arguments) -> ToolResult:
        path = arguments.inside(self._root, asked.text("path"))
        try:
            rows = (self._root / path).read_text("utf-8", "replace").splitlines()
        except OSError as error:
            raise BadArguments(f"{path}: {error.strerror}. Look for the file with `find_files`.") from error
        start = asked.number("start", 1)
        end = min(asked.number("end", start + 399), len(rows))
        text = "\n".join(f"{start + i}\t{row}" for i, row in enumerate(rows[start - 1 : end]))
        return ToolResult(text, {"path": path, "start": start, "end": end, "text": text, "total_lines": len(rows)})

    def status(self) -> Mapping[str, object]:
        return {"root": str(self._root), "state": "ready", "files": 0, "indexed": 0}

    def close(self) -> None:
        return None


def open_workspace(root: Path, data_dir: Path) -> Workspace:
    """Open a root. The index lives under `data_dir`, never in the workspace."""
    return Workspace(root, data_dir)


def _refused(message: str) -> ToolResult:
    return ToolResult(message, {"error": message}, is_error=True)
