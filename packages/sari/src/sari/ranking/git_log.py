"""Runs `git log` for the history of files, so that nothing the repository's configuration names is executed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sari.ranking.file_history import LOG_FORMAT, MOST_COMMITS, FileHistory, parse_log

_TIMEOUT_S = 60.0
_MOST_OUTPUT = 64 << 20
# What a repository's own configuration could make git run: a pager, a monitor, a verifier, a filter, a transport.
SAFE_GIT = (
    "git",
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.quotepath=off",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "log.showSignature=false",
    "-c",
    "gpg.program=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "diff.external=",
)
SAFE_DIFF = ("--no-ext-diff", "--no-textconv")


def safe_environment() -> dict[str, str]:
    """The environment for git: no prompts, no lazy fetches, nothing that an ancestor's variables redirect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C.UTF-8",
    }


def run_git(root: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> bytes | None:
    """What git printed; None when it failed, is not installed or took too long."""
    try:
        done = subprocess.run(
            [*SAFE_GIT, *arguments],
            cwd=root,
            env=safe_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:_MOST_OUTPUT] if done.returncode == 0 else None


def head_of(root: Path) -> str:
    """The commit that is checked out; empty outside git and before the first commit."""
    return (run_git(root, "rev-parse", "--verify", "--quiet", "HEAD", timeout_s=10.0) or b"").decode().strip()


def read_history(root: Path) -> FileHistory:
    """The history of the files below a root; empty when there is none."""
    output = run_git(
        root,
        "log",
        f"-n{MOST_COMMITS}",
        "--no-merges",
        "--no-renames",
        *SAFE_DIFF,
        "--relative",
        "--name-only",
        "-z",
        LOG_FORMAT,
        "--",
        ".",
    )
    return FileHistory() if output is None else parse_log(output)
