"""How often the control plane checks whether something that it waits for exists. A user waits too."""

from __future__ import annotations

from typing import Final

# A process workspace answers after some 200 ms. A check takes about 1 ms.
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 1.0
# What is there is seen after at most this part of the time that it took.
_PART: Final = 0.1


def next_pause_s(waited_s: float) -> float:
    """Return how long to pause before the next check."""
    return min(_LONGEST_S, max(_SHORTEST_S, waited_s * _PART))
