"""`code FILE` in shells outside of the IDE, where the IDE brings such a command in its own folder.

Where that folder is not on PATH, it is added. A login shell sets PATH again, so the command is also linked into
`~/.local/bin`, which Debian's `.profile` adds.
"""

from __future__ import annotations

import os

_NAME = "code"


def offer(program: str, home: str, env: dict[str, str]) -> None:
    """`program` is the IDE's. Changes PATH in `env`. A file of the user's is never replaced."""
    folder = os.path.dirname(program)
    command = os.path.join(folder, _NAME)
    path = env.get("PATH") or os.defpath
    if not os.path.isabs(folder) or folder in path.split(":") or not os.access(command, os.X_OK):
        return
    env["PATH"] = f"{path}:{folder}"
    link = os.path.join(home, ".local", "bin", _NAME)
    try:
        os.makedirs(os.path.dirname(link), mode=0o755, exist_ok=True)
        if os.path.islink(link) and not os.path.exists(link):
            os.unlink(link)  # to an IDE that is gone
        if not os.path.lexists(link):
            os.symlink(command, link)
    except OSError:  # a full disk or an odd home: the command is then missing in login shells
        pass
