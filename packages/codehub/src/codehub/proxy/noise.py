"""What of an IDE's traffic is nobody's work. The rules are data in the profile; here they are read and applied.

`METHOD /path` with `*` globs is a request; `ws:NAME` is a kind of WebSocket message, known here by its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Final

from codehub.domain.errors import Invalid

FrameRule = Callable[[bytes], bool]

# Longer messages are somebody's work whatever the rules: it keeps what is buffered small.
MAX_NOISE: Final = 1024

# VS Code's persistent protocol: 13 bytes of type, id, ack and length before each message. 1 is a message of the IDE; the
# others keep the connection: 2 handshake, 3 acknowledgement, 6 replay, 7 and 8 pause and resume, 9 keep-alive.
_VSCODE_HEADER: Final = 13
_VSCODE_UPKEEP: Final = frozenset({2, 3, 6, 7, 8, 9})


def vscode_keepalive(payload: bytes) -> bool:
    at = 0
    size = len(payload)
    if not size:
        return True
    while at + _VSCODE_HEADER <= size:
        if payload[at] not in _VSCODE_UPKEEP:
            return False
        at += _VSCODE_HEADER + int.from_bytes(payload[at + 9 : at + 13], "big")
    return at == size


FRAME_RULES: Final[dict[str, FrameRule]] = {"ws:vscode-keepalive": vscode_keepalive}


class Noise:
    """A profile's rules, ready to be asked."""

    __slots__ = ("_paths", "frame_rules")

    def __init__(self, rules: Iterable[str]) -> None:
        patterns = []
        frames = []
        for rule in rules:
            if rule.startswith("ws:"):
                if rule not in FRAME_RULES:
                    raise Invalid(f"no such noise rule: {rule} (known: {', '.join(sorted(FRAME_RULES))})")
                frames.append(FRAME_RULES[rule])
            else:
                patterns.append(translate(rule))
        self._paths = re.compile("|".join(patterns).encode()) if patterns else None
        self.frame_rules: tuple[FrameRule, ...] = tuple(frames)

    def is_request(self, method: bytes, path: bytes) -> bool:
        """`path` is without the workspace's prefix and without its query."""
        return self._paths is not None and self._paths.match(b"%b %b" % (method, path)) is not None

    def is_message(self, payload: bytes) -> bool:
        return any(rule(payload) for rule in self.frame_rules)
