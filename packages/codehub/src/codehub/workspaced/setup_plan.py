"""Turns CodeHub's message into ordered setup steps. Pure."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

MOST_STEPS = 200


class Step(NamedTuple):
    """A setup step. `once`: once per home, otherwise at each start. `group`: steps of one group run concurrently."""

    id: str
    title: str
    kind: str  # clone, dotfiles, image or command
    once: bool
    spec: dict[str, object]
    group: str = ""
    needs_clone: bool = False


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def first_steps(message: dict[str, object]) -> list[Step]:
    """Return the clone and the dotfiles: the steps that are known before the repository exists."""
    steps: list[Step] = []
    repo, dotfiles = message.get("repo"), message.get("dotfiles")
    if isinstance(repo, dict) and repo.get("url"):
        steps.append(Step("clone", f"Clone {repo.get('name')}", "clone", True, dict(repo)))
    if isinstance(dotfiles, dict) and dotfiles.get("url"):
        id_ = "dotfiles-" + digest(dotfiles["url"], dotfiles.get("ref", ""))
        steps.append(Step(id_, "Dotfiles", "dotfiles", True, dict(dotfiles)))
    return steps


def command_steps(commands: object, prefix: str, folder: str, *, needs_clone: bool) -> list[Step]:
    """Return steps for commands of a template or of devcontainer.json.

    A command is `{name, when: create|start, shell | words, group}`.
    """
    steps: list[Step] = []
    for number, command in enumerate(commands if isinstance(commands, list) else []):
        if not isinstance(command, dict) or len(steps) >= MOST_STEPS:
            continue
        shell, words = command.get("shell"), command.get("words")
        if not (isinstance(shell, str) and shell) and not (isinstance(words, list) and words):
            continue
        once = command.get("when") != "start"
        text = shell if isinstance(shell, str) and shell else " ".join(str(word) for word in words or [])
        steps.append(
            Step(
                id=f"{prefix}-{number}",
                title=str(command.get("name") or text)[:200],
                kind="command",
                once=once,
                spec={"shell": shell, "words": words, "cwd": folder},
                group=str(command.get("group") or ""),
                needs_clone=needs_clone,
            )
        )
    return steps


def folders_of(repo: object) -> tuple[str, str]:
    """Return the folder that the IDE should open, and the clone; relative to the home."""
    if not isinstance(repo, dict) or not repo.get("name"):
        return "", ""
    name, path = str(repo["name"]), str(repo.get("path") or "")
    return (f"{name}/{path}" if path else name), name
