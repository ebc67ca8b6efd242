"""Reads the history of a workspace's files from git, through `sari.index.git`: nothing that the repository names is run."""

from __future__ import annotations

from pathlib import Path

from sari.index.git import open_repository
from sari.ranking.file_history import LOG_FORMAT, MOST_COMMITS, FileHistory, parse_log


def head_of(root: Path) -> str:
    """The commit that is checked out; empty outside git and before the first commit."""
    with open_repository(root) as repository:
        return (repository.head or "") if repository is not None else ""


def read_history(root: Path) -> FileHistory:
    """The history of the files below a root; empty when there is none."""
    with open_repository(root) as repository:
        if repository is None or repository.head is None:
            return FileHistory()
        output = repository.run(
            "log",
            f"-n{MOST_COMMITS}",
            "--no-merges",
            "--no-renames",
            "--no-show-signature",
            "--no-ext-diff",
            "--no-textconv",
            "--relative",
            "--name-only",
            "-z",
            LOG_FORMAT,
            repository.head,
            "--",
            ".",
        )
    return parse_log(output)
