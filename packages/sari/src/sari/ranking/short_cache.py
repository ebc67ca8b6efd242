"""A cache for functions of a path or a name, bounded in memory: long arguments are not kept. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")
# A path can have 4,096 bytes, and its terms take a hundred times that.
_LONGEST = 300


def cached_if_short(most: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Keep the last results of a pure function, except for long arguments."""

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        kept = lru_cache(maxsize=most)(function)

        @wraps(function)
        def call(text: str) -> T:
            return kept(text) if len(text) <= _LONGEST else function(text)

        return call

    return decorate
