"""The environment of programs in a workspace: its own variables, the repository's, and the owner's secrets.

The dictionary is shared with everything that starts programs, so a change applies to all programs started later. The IDE
starts only once, so it gets the secrets before it starts.
"""

from __future__ import annotations

import contextlib
import json
import os

from .with_environment import repository_variables


class Environment:
    def __init__(self, env: dict[str, str], ide_fd: int) -> None:
        self._env = env
        self._own = dict(env)
        self._ide_fd = ide_fd
        self._repository: dict[str, str] = {}
        self._secrets: dict[str, str] = {}

    def put_repository(self, env: dict[str, str]) -> None:
        """Set the variables of devcontainer.json. They never replace those that git or the shell rely on."""
        self._repository = repository_variables(env, self._own)
        self._fill()

    def put_secrets(self, env: object) -> None:
        given = env if isinstance(env, dict) else {}
        self._secrets = {str(name): str(value) for name, value in given.items()}
        self._fill()
        if self._ide_fd >= 0:
            fd, self._ide_fd = self._ide_fd, -1
            # The IDE may have started without them, or with an earlier helper: then there is no reader.
            with contextlib.suppress(OSError):
                os.write(fd, json.dumps(self._secrets).encode() + b"\n")
            os.close(fd)

    def _fill(self) -> None:
        self._env.clear()
        self._env.update({**self._own, **self._repository, **self._secrets})
