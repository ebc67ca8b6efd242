"""The environment of what is started in a workspace: its own, the repository's, and the owner's secrets.

The dictionary is shared with everything that starts programs, so a change holds for whatever is started next. The IDE,
which is started once, is given the secrets before it begins.
"""

from __future__ import annotations

import contextlib
import json
import os


class Environment:
    def __init__(self, env: dict[str, str], ide_fd: int) -> None:
        self._env = env
        self._own = dict(env)
        self._ide_fd = ide_fd
        self._repository: dict[str, str] = {}
        self._secrets: dict[str, str] = {}

    def put_repository(self, env: dict[str, str]) -> None:
        """Of devcontainer.json. It never replaces how git or the shell find their things."""
        self._repository = {name: value for name, value in env.items() if name not in self._own}
        self._fill()

    def put_secrets(self, env: object) -> None:
        given = env if isinstance(env, dict) else {}
        self._secrets = {str(name): str(value) for name, value in given.items()}
        self._fill()
        if self._ide_fd >= 0:
            fd, self._ide_fd = self._ide_fd, -1
            # The IDE may have been started without, or by an earlier helper: then nobody reads.
            with contextlib.suppress(OSError):
                os.write(fd, json.dumps(self._secrets).encode() + b"\n")
            os.close(fd)

    def _fill(self) -> None:
        self._env.clear()
        self._env.update({**self._own, **self._repository, **self._secrets})
