"""The users of a workspace: those of its image, with the workspace's own user instead of any of the same name or number.

Pods run it in the workspace's image: `python users.py DIRECTORY HOME` writes `passwd` and `group`, which are mounted at
`/etc`. Without an entry for their user, OpenSSH refuses connections and shells have no name and no home.
"""

from __future__ import annotations

import os
import sys

USER = "coder"
_LONGEST_TABLE = 256 << 10
_ROOT = {"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n"}


def with_user(table: str, line: str) -> str:
    """Return an image's passwd or group with the workspace's line, without entries of the same name or number."""
    name, _, number = line.split(":")[:3]
    kept = [
        old
        for old in table.splitlines()
        if (fields := old.split(":")) and fields[0] != name and fields[2:3] != [number] and old.isprintable()
    ]
    return "\n".join([*kept, line, ""])


def main(folder: str, home: str) -> None:
    uid, gid = os.getuid(), os.getgid()
    shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
    os.makedirs(folder, exist_ok=True)
    lines = {"passwd": f"{USER}:x:{uid}:{gid}::{home}:{shell}", "group": f"{USER}:x:{gid}:"}
    for name, line in lines.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(with_user(_read(name), line))


def _read(name: str) -> str:
    """Return the image's table; root's entry alone if it has none, or one that is too long to be right."""
    try:
        with open(f"/etc/{name}", encoding="utf-8", errors="surrogateescape") as file:
            found = file.read(_LONGEST_TABLE + 1)
    except OSError:
        return _ROOT[name]
    return found if 0 < len(found) <= _LONGEST_TABLE else _ROOT[name]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
