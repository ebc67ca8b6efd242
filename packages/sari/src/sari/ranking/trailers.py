"""Removes from a commit message what says nothing about the change: addresses, and the lines that tools and hosts add at
its end (`Signed-off-by: …`, `PiperOrigin-RevId: 123`, `RELNOTES=n/a`). Pure.

Such lines would make all messages that have them similar to each other.
"""

from __future__ import annotations

import re

_URL = re.compile(r"https?://\S+")
# Anywhere, because a message that was copied may go on after them.
_KNOWN = re.compile(r"(?im)^(?:signed-off-by|co-authored-by|reviewed-by|reported-by|change-id|cherry.picked).*$")
# A last paragraph of nothing but `Some-Key: any value` or `Key: value`, unlike prose (`Note: this is why …`). The first
# paragraph is the subject, whatever it looks like.
_LAST = re.compile(r"\n[^\S\n]*\n(?:[A-Za-z]\w*(?:(?:-\w+)+(?:: |=)\S.*|(?:: |=)\S+)(?:\n|\Z))+\s*\Z")
_MOST_PARAGRAPHS = 3


def without_trailers(message: str) -> str:
    """Return the text of a message or question without them."""
    for _ in range(_MOST_PARAGRAPHS):
        last = _LAST.search(message)
        if last is not None:
            message = message[: last.start()]
    return _KNOWN.sub(" ", _URL.sub(" ", message))
