"""Recognizes the background traffic of an IDE. The rules are data in the profile; this module parses and applies them.

`METHOD /path` with `*` globs matches a request. `ws:vscode-keepalive` matches the upkeep messages of VS Code's protocol,
and `ws:vscode-message:TEXT` a VS Code message about TEXT, such as a file event about the IDE's own files. `ws:text:TEXT`
matches any message that contains TEXT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import partial
from typing import Final

from codehub.domain.errors import Invalid

FrameRule = Callable[[bytes], bool]

# Longer messages always count as activity, which keeps the buffers small.
MAX_BACKGROUND: Final = 4096

# VS Code's persistent protocol: 13 bytes of type, id, ack and length precede each message. 1 is a message of the IDE; the
# others maintain the connection: 2 handshake, 3 acknowledgement, 6 replay, 7 and 8 pause and resume, 9 keep-alive.
_VSCODE_HEADER: Final = 13
_VSCODE_MESSAGE: Final = 1
_VSCODE_UPKEEP: Final = frozenset({2, 3, 6, 7, 8, 9})
# An answer that only acknowledges, by its length or with `null` (201: a request succeeded, and its number). The message
# that it answers was judged separately.
_VSCODE_BARE_ANSWER: Final = 9
_VSCODE_NULL_ANSWER: Final = re.compile(rb"\x04\x02\x06\xc9\x01\x06[\x80-\xff]*[\x00-\x7f]\x05\x04null")
_VSCODE_TEXT: Final = "ws:vscode-message:"
_TEXT: Final = "ws:text:"
_PATH: Final = b'"path":"'


def vscode_keepalive(payload: bytes, texts: tuple[bytes, ...] = ()) -> bool:
    """Return whether the payload holds only upkeep messages, bare answers, and messages about one of `texts`."""
    at = 0
    size = len(payload)
    while at + _VSCODE_HEADER <= size:
        kind = payload[at]
        length = int.from_bytes(payload[at + 9 : at + 13], "big")
        at += _VSCODE_HEADER
        if kind == _VSCODE_MESSAGE:
            if not _is_background(payload[at : at + length], length, texts):
                return False
        elif kind not in _VSCODE_UPKEEP:
            return False
        at += length
    return at == size


def _is_background(message: bytes, length: int, texts: tuple[bytes, ...]) -> bool:
    return (
        length <= _VSCODE_BARE_ANSWER
        or _VSCODE_NULL_ANSWER.fullmatch(message) is not None
        or _speaks_of(message, texts)
    )


def _holds(payload: bytes, text: bytes) -> bool:
    return text in payload


def _speaks_of(message: bytes, texts: tuple[bytes, ...]) -> bool:
    """Return whether all paths in the message match.

    A message about both the IDE's files and a user's counts as activity.
    """
    paths = message.count(_PATH)
    return any(text in message and message.count(text) >= paths for text in texts)


class BackgroundTraffic:
    """A profile's rules, compiled."""

    __slots__ = ("_paths", "frame_rules")

    def __init__(self, rules: Iterable[str]) -> None:
        patterns = []
        texts = []
        frames: list[FrameRule] = []
        vscode = False
        for rule in rules:
            if rule.startswith(_TEXT):
                frames.append(partial(_holds, text=rule.removeprefix(_TEXT).encode()))
            elif rule.startswith(_VSCODE_TEXT):
                texts.append(rule.removeprefix(_VSCODE_TEXT).encode())
                vscode = True
            elif rule == "ws:vscode-keepalive":
                vscode = True
            elif rule.startswith("ws:"):
                raise Invalid(
                    f"no such background rule: {rule} (known: ws:vscode-keepalive, {_VSCODE_TEXT}…, {_TEXT}…)"
                )
            else:
                patterns.append(translate(rule))
        self._paths = re.compile("|".join(patterns).encode()) if patterns else None
        if vscode:
            frames.append(partial(vscode_keepalive, texts=tuple(texts)))
        self.frame_rules: tuple[FrameRule, ...] = tuple(frames)

    def is_request(self, method: bytes, path: bytes) -> bool:
        """`path` excludes the workspace's prefix and the query."""
        return self._paths is not None and self._paths.match(b"%b %b" % (method, path)) is not None

    def is_message(self, payload: bytes) -> bool:
        return any(rule(payload) for rule in self.frame_rules)
