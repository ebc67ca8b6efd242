"""Whose turn it is when many users wait for a few slots: a user with a hundred requests delays others by one.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def next_turn(waiting: Iterable[str], running: Mapping[str, int], served: Mapping[str, int]) -> str | None:
    """Return who of those waiting gets the next slot: whoever has the fewest, then whoever got one the longest ago.

    `waiting` is in order of arrival, which decides between equals. `served` numbers the slots in the order in which they
    were given, and holds the number of each user's last one.
    """
    return min(waiting, key=lambda holder: (running.get(holder, 0), served.get(holder, 0)), default=None)
