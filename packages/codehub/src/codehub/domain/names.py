"""Names of workspaces: unique among the live workspaces of an owner, because commands and SSH hosts use them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Final

LONGEST: Final = 255


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, or the first of NAME-2, NAME-3, … that is not taken.

    For workspaces that reach an owner without the owner choosing a name: a transfer, an undelete, a continuation.
    """
    if name not in taken:
        return name
    candidates = (f"-{number}" for number in count(2))
    return next(made for end in candidates if (made := name[: LONGEST - len(end)] + end) not in taken)
