"""Limits how much of the coordinator's time the questions of one owner's workspaces take.

A workspace chooses how often it asks and how large its files are. An owner can have many workspaces, so all of them share
one budget: about a tenth of a core. What is beyond it waits, and so do the questions after it.
"""

from __future__ import annotations

import asyncio
from typing import Final

# One unit is about 2 ms of CPU time, which a short question takes with its queries.
_UNITS_PER_S: Final = 50
# Saved up by owners who ask little: a clone with many submodules, or several workspaces that start together.
_BURST: Final = 200
_MOST_KEPT: Final = 1_000


def question_units(text: object) -> float:
    """Return what a question takes. `text` is its devcontainer.json, if it has one, which is parsed twice."""
    return 1 + (len(text) / 2_600 if isinstance(text, str) else 0)


def build_units(recipe_bytes: int, feature_bytes: int) -> float:
    """Return what it takes to check a Dockerfile and a lock file, and to read the folders of features."""
    return recipe_bytes / 5_000 + feature_bytes / 50_000


class OwnerPace:
    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}

    async def charge(self, owner_user_id: str, units: float) -> None:
        """Wait until the owner's budget allows this."""
        now = asyncio.get_running_loop().time()
        full_since = now - _BURST / _UNITS_PER_S
        if len(self._free_at) > _MOST_KEPT:
            self._free_at = {owner: at for owner, at in self._free_at.items() if at > full_since}
        free_at = max(self._free_at.get(owner_user_id, full_since), full_since) + units / _UNITS_PER_S
        self._free_at[owner_user_id] = free_at
        if free_at > now:
            await asyncio.sleep(free_at - now)
