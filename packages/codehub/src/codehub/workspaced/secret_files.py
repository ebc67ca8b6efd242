"""The owner's secrets in this workspace, as files in memory (tmpfs), never in the home."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil


class SecretFiles:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def put(self, files: object) -> None:
        """Write exactly these files and remove all others. Each is replaced atomically."""
        wanted = files if isinstance(files, dict) else {}
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        found = os.lstat(self.folder)
        if found.st_uid != os.geteuid() or os.path.islink(self.folder):
            return  # the folder belongs to another user: write nothing into it
        os.chmod(self.folder, 0o700)
        for name in os.listdir(self.folder):
            if name not in wanted:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.folder, name))
        for name, encoded in wanted.items():
            if "/" in name or name.startswith("."):
                continue
            path = os.path.join(self.folder, name)
            fd = os.open(path + ".new~", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
            with open(fd, "wb") as file:
                file.write(base64.b64decode(str(encoded)))
            os.rename(path + ".new~", path)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
