"""Compares versions. "dev" and versions that cannot be parsed are the oldest, so they never replace another by accident."""

from __future__ import annotations

# The protocol between shim and daemon. A newer daemon keeps serving the older numbers that it lists.
WIRE_PROTOCOL = 1
SERVED_PROTOCOLS = (1,)

Key = tuple[int, ...]
_OLDEST: Key = (-1,)
# Pre-releases sort before the release: 3.1rc1 < 3.1.
_STAGES = {"dev": -4, "a": -3, "b": -2, "rc": -1}


def version_key(version: str) -> Key:
    """Return a sort key for a version."""
    text = version.strip().lower().lstrip("v").partition("+")[0]
    parts: list[int] = []
    stage: list[int] = []
    for piece in text.replace("-", ".").split("."):
        digits = len(piece) - len(piece.lstrip("0123456789"))
        if digits and not stage:
            parts.append(int(piece[:digits]))
        rest = piece[digits:]
        if not rest:
            if stage and digits:
                stage.append(int(piece))
            continue
        name = rest.rstrip("0123456789")
        if name not in _STAGES or not parts:
            return _OLDEST
        stage += [_STAGES[name], int(rest[len(name) :] or 0)]
    if not parts:
        return _OLDEST
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    # No version has more than ten numbers; the stage comes after all of them.
    return (*parts, *([0] * (10 - len(parts))), *(stage or [0]))


def is_older(version: str, than: str) -> bool:
    """Whether one version is older than another."""
    return version_key(version) < version_key(than)
