"""Disk sizes of homes in directories, enforced by project quotas where the homes' file system has them.

The project of a home is recorded as that of its `ctx.json`, which users cannot change. Its `files` belong to the same one:
from the beginning where the home was made with quotas, else from its next start on. Nothing else is stored, and each step
can be killed and repeated.

No boundary: the owner of a file may change its project. Sizes are measured all the same, and its owner is warned.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from codehub.adapters.filesystem.project_quota import (
    adopt_tree,
    claim_project,
    is_enforced,
    project_of,
    set_limit,
)
from codehub.adapters.homes.layout import CTX, FILES

_log = structlog.get_logger()


def begin_quota(root: Path, home: Path) -> None:
    """Give a new and empty home a project, so that all that is written to it counts. Without quotas, do nothing."""
    if not is_enforced(root):
        return
    try:
        adopt_tree(home / FILES, _project(root, home))
    except OSError as error:
        _log.warning("a new home has no disk quota", home=str(home), error=str(error))


def limit_home(root: Path, home: Path, limit: int | None) -> bool:
    """Limit a home at rest to so many bytes; None is no limit. Returns whether the file system enforces it."""
    if not is_enforced(root):
        return False
    try:
        project = project_of(home / CTX)
        if limit is None and not project:
            return False
        project = project or _project(root, home)
        # A home from before the quotas, or an adoption that was interrupted.
        if project_of(home / FILES) != project:
            adopt_tree(home / FILES, project)
        set_limit(root, project, limit)
    except OSError as error:
        # A workspace without a quota is better than none; its size is measured all the same.
        _log.warning("the disk quota of a home cannot be set", home=str(home), error=str(error))
        return False
    return limit is not None


def _project(root: Path, home: Path) -> int:
    wanted = int.from_bytes(hashlib.sha256((home / CTX).read_bytes()).digest()[:4])
    with _one_at_a_time(root):
        return claim_project(home / CTX, wanted)


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
