"""Adds and removes the paragraph about sari in a client's instructions file (AGENTS.md, CLAUDE.md, GEMINI.md).

A client includes these files in every conversation, so the paragraph is short. It stands between two markers; text
around it is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sari.install.clients import Client, Launch, Machine, Scope

BEGIN: Final = "<!-- sari: begin -->"
END: Final = "<!-- sari: end -->"
PARAGRAPH: Final = (
    "To search this code, use the sari MCP tools before grep, rg or find: `search` with mode `ranked` for a question in "
    "plain words, `search` for text, `symbols` for definitions, `callers` and `references` for uses, and `read` with "
    "`symbol` for one definition."
)
_SUFFIX: Final = "instructions"
_BLOCK: Final = f"{BEGIN}\n{PARAGRAPH}\n{END}\n"


@dataclass(frozen=True, slots=True)
class Guidance(Client):
    """A client's instructions file, which is changed and restored in the same way as its configuration."""

    def file(self, scope: Scope, machine: Machine, project: Path) -> Path:
        home = machine.home
        match self.name.partition(" ")[0]:
            case "codex":
                folder, name = machine.moved("CODEX_HOME", home / ".codex"), "AGENTS.md"
            case "gemini":
                folder, name = machine.moved("GEMINI_CLI_HOME", home) / ".gemini", "GEMINI.md"
            case _:
                folder, name = machine.moved("CLAUDE_CONFIG_DIR", home / ".claude"), "CLAUDE.md"
        return (project if scope is Scope.PROJECT else folder) / name

    def read(self, text: str) -> dict[str, object]:
        return {}

    def put(self, text: str, launch: Launch) -> str:
        """Return the text with the paragraph at its end, or in place of an earlier one."""
        begin, end = _marks(text)
        if begin >= 0:
            return text[:begin] + _BLOCK + text[end:]
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return text + gap + _BLOCK

    def drop(self, text: str) -> str:
        begin, end = _marks(text)
        return text if begin < 0 else text[:begin] + text[end:]

    def configured(self, text: str) -> dict[str, object] | None:
        return {} if _marks(text)[0] >= 0 else None

    def by_hand(self, launch: Launch) -> str:
        return PARAGRAPH


def _marks(text: str) -> tuple[int, int]:
    """Return where the paragraph begins and ends; −1 if it is missing or incomplete."""
    begin = text.find(BEGIN)
    end = text.find(END, begin)
    if begin < 0 or end < 0:
        return -1, -1
    end += len(END)
    return begin, end + (text[end : end + 1] == "\n")


# By the name of the client that reads the file.
GUIDANCE: Final[Mapping[str, Guidance]] = {
    name: Guidance(f"{name} {_SUFFIX}", f"{title} instructions", _SUFFIX, None)
    for name, title in (("codex", "Codex CLI"), ("gemini", "Gemini CLI"), ("claude", "Claude Code"))
}


def by_receipt(name: str) -> Guidance | None:
    """Return the instructions file that a receipt refers to."""
    return next((one for one in GUIDANCE.values() if one.name == name), None)
