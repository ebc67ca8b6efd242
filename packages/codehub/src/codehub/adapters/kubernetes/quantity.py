"""Kubernetes' notation of quantities. Pure."""

from __future__ import annotations

import math
from typing import Final

_SUFFIXES: Final = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def quantity(text: str) -> float:
    """Parse a Kubernetes quantity: `250m`, `4Gi`, `1e3`. Raises ValueError."""
    suffix = next((each for each in sorted(_SUFFIXES, key=len, reverse=True) if text.endswith(each)), "")
    found = float(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, 1.0)
    if not math.isfinite(found):
        raise ValueError(f"{text!r} is not a quantity")
    return found
