"""Reads the history of a workspace's files with git, without running programs that the repository names
(`sari.index.git`).
"""

from __future__ import annotations

from pathlib import Path

from sari.index.git import open_repository, read_head
from sari.ranking.file_history import LOG_FORMAT, MOST_COMMITS, FileHistory, parse_log

_TIMEOUT_S = 60.0


def head_of(root: Path) -> str:
    """Return the commit that is checked out; empty outside git and before the first commit."""
    return read_head(root) or ""


def read_history(root: Path) -> FileHistory:
    """Return the history of the files below a root; empty if there is none."""
    with open_repository(root) as repository:
        if repository is None or repository.head is None:
            return FileHistory()
        output = repository.output(
            "log",
            f"-n{MOST_COMMITS}",
            "--no-merges",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-show-signature",
            "--relative",
            "--name-only",
            "-z",
            LOG_FORMAT,
            repository.head,
            "--",
            ".",
            timeout_s=_TIMEOUT_S,
        )
    return FileHistory() if output is None else parse_log(output)
